"""The architectures of GPUs that code is made for, and which one is meant where none is named."""

from ..diagnostics import user_error
from . import cuda_driver

# The PTX version that has all instructions in use, by architecture; the driver must know it (CUDA 12.0 and 11.0).
PTX_VERSION = {"sm_80": 70, "sm_86": 71, "sm_89": 78, "sm_90": 78, "sm_90a": 80}
DEFAULT_ARCH = "sm_90a"


def choose_arch(wanted: str | None) -> str:
    """The architecture to compile for: what was asked for, else this machine's GPU, else Hopper."""
    if wanted is None:
        try:
            wanted = cuda_driver.device_arch()
        except cuda_driver.CudaError:
            return DEFAULT_ARCH
    if wanted not in PTX_VERSION:
        known = ", ".join(PTX_VERSION)
        raise user_error(f"GPUs of architecture '{wanted}' are not supported; the known architectures are: {known}")
    return wanted

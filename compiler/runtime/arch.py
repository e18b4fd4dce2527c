"""Which architecture of GPUs is meant, and how many multiprocessors they have, where that is not said."""

import warnings

from ...transforms.nvidia.architecture import HOPPER, MULTIPROCESSORS, architecture
from ..diagnostics import user_error
from . import cuda_driver


def choose_arch(wanted: str | None) -> str:
    """The architecture to compile for: what was asked for, else this machine's GPU, else Hopper."""
    if wanted is None:
        try:
            wanted = cuda_driver.device_arch()
        except cuda_driver.CudaError:
            return HOPPER
    try:
        note = architecture(wanted).note
    except ValueError as error:
        raise user_error(f"arch: {error}") from None
    if note:
        warnings.warn(f"attn_opt: {note}", stacklevel=2)
    return wanted


def choose_multiprocessors(wanted: int | None) -> int:
    """How many to compile for: what was asked for, else as this machine's GPU has, else an H200."""
    if wanted is not None:
        return wanted
    try:
        return cuda_driver.device_multiprocessors()
    except cuda_driver.CudaError:
        return MULTIPROCESSORS

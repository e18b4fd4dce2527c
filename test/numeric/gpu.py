"""What tests on an NVIDIA GPU have in common."""

import ctypes

import pytest
from attn_opt.compiler.runtime import cuda_driver


def _arch() -> str:
    try:
        return cuda_driver.device_arch()
    except cuda_driver.CudaError:
        return ""


def have_gpu() -> bool:
    return _arch() != ""


TOLERANCE = {"f16": 5e-3, "bf16": 2e-2, "f32": 1e-5, "f8E4M3FN": 8e-2, "f8E5M2": 1e-1}  # relative, of attention
needs_gpu = pytest.mark.skipif(not have_gpu(), reason="no NVIDIA GPU")
needs_hopper = pytest.mark.skipif(_arch() != "sm_90a", reason="no GPU with sm_90a")


@pytest.fixture
def poisoned(monkeypatch):
    """Results start as NaN: what is not written shows."""
    plain = cuda_driver.Driver.allocate

    def allocate(self, size):
        pointer = plain(self, size)
        self.call("cuMemsetD8_v2", ctypes.c_uint64(pointer), 0xFF, ctypes.c_size_t(size))
        return pointer

    monkeypatch.setattr(cuda_driver.Driver, "allocate", allocate)

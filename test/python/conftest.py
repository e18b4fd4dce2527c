"""GPUs that note down what is launched on them, and a library of tensors on them: see fake_cuda and fake_tensors."""

import pytest


@pytest.fixture
def gpu():
    from fake_cuda import fake_driver

    with fake_driver() as fake:
        yield fake


@pytest.fixture
def library(monkeypatch):
    import fake_tensors
    from attn_opt.compiler.runtime import cuda_arrays

    found = fake_tensors.Tensors()
    monkeypatch.setitem(cuda_arrays._KINDS, fake_tensors.__name__, lambda: found)
    cuda_arrays.library.cache_clear()
    cuda_arrays._of_package.cache_clear()
    yield found
    cuda_arrays.library.cache_clear()
    cuda_arrays._of_package.cache_clear()

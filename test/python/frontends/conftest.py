"""Makes the modules beside the tests importable, and those of tests for GPUs, one folder up."""

import sys
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
pytest.register_assert_rewrite("torch_harness", "onnx_harness", "jax_harness")


@pytest.fixture
def gpu():
    """A driver that notes down what is launched."""
    from fake_cuda import fake_driver

    with fake_driver() as fake:
        yield fake

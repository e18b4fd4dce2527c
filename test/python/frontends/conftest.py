"""Makes the modules beside the tests importable, and those of tests for GPUs, one folder up and in `numeric`."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1]), str(HERE.parents[1] / "numeric")]
pytest.register_assert_rewrite("torch_harness", "onnx_harness", "jax_harness")


@pytest.fixture
def gpu():
    """A driver that notes down what is launched."""
    from fake_cuda import fake_driver

    with fake_driver() as fake:
        yield fake

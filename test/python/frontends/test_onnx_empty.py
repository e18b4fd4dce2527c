"""Tensors of ONNX models without elements: constants, however they are made."""

import numpy as np
import pytest
from attn_opt.compiler import compile

onnx = pytest.importorskip("onnx", reason="the extra 'onnx' is not installed")

from test_onnx import model  # noqa: E402

HALVES = "y = Reshape(x, shape)"
CASES = {
    "minus one": ("float[0,4] x", HALVES, [-1, 2], (0, 4)),
    "zeros as they are": ("float[0,4] x", "y = Reshape<allowzero = 1>(x, shape)", [0, 2], (0, 4)),
    "sliced": ("float[3,4] x", "z = Slice(x, zero, zero)\n y = Reshape(z, shape)", [-1, 2], (3, 4)),
    "fixed by the call": ("float[n,4] x", HALVES, [-1, 2], (0, 4)),
}


@pytest.mark.parametrize("name", CASES)
def test_reshapes(name):
    inputs, nodes, shape, size = CASES[name]
    text = f"g ({inputs}) => (float[m,2] y) {{ {nodes} }}"
    source = model(text, 18, shape=np.array(shape, np.int64), zero=np.zeros(1, np.int64))
    x = np.ones(size, np.float32)
    assert np.asarray(compile(source, (x,))(x)).shape == (0, 2)

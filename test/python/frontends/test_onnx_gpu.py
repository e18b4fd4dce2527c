"""What only a GPU knows in models of ONNX: places that are written, and what decides on branches."""

import numpy as np
import pytest
from attn_opt.compiler.api import compile

pytest.importorskip("onnx", reason="the extra 'onnx' is not installed")

from gpu_modules import run_module
from onnx_harness import model, random, softmax

PLACES = np.array([[1], [-2], [1]])
NODES = {
    "rows": ('y = ScatterND<reduction = "add">(x, at, u)', (PLACES, random(3, 16))),
    "elements": (
        "y = ScatterElements<axis = 1>(x, at, u)",
        (np.array([[0, 15, -3]] * 9), random(9, 3)),
    ),
    "branches": (
        "s = ReduceMax<keepdims = 0>(x) c = Less(s, u) i = Identity(at)"
        "y = If(c) <then_branch = a () => (float[9, 16] t) { t = Softmax(x) },"
        " else_branch = b () => (float[9, 16] e) { e = Identity(x) }>",
        (np.array([1]), np.array(9.0, np.float32)),
    ),
}


@pytest.mark.filterwarnings("ignore:.*only the GPU knows what decides on a branch")
@pytest.mark.parametrize("name", NODES)
def test_without_a_gpu(name):
    nodes, (at, u) = NODES[name]
    kinds = f"int64{list(at.shape)} at, float{list(u.shape)} u".replace("float[]", "float")
    text = f"g (float[9, 16] x, {kinds}) => (float[9, 16] y) {{ {nodes} }}"
    source = model(text, 18)
    x = random(9, 16)
    kernel = compile(source)
    assert compile(source, target="nvidia").ir("ptx")
    (found,) = run_module(kernel.ir("graph"), [x, at, u])
    np.testing.assert_allclose(found, np.asarray(kernel(x, at, u)), rtol=1e-5, atol=1e-6)
    assert not np.array_equal(found, x)


def test_rows_are_written_as_windows():
    """The importer makes single elements of them."""
    text = (
        "g (float[2, 9, 16] x, int64[2, 3, 2] at, float[2, 3, 16] u) => (float[2, 9, 16] y) { y = ScatterND(x, at, u) }"
    )
    kernel = compile(model(text, 18))
    assert "[1, 16] [1, 1] : tensor<16xf32> into tensor<18x16xf32>" in kernel.ir("graph")
    x, u, at = random(2, 9, 16), random(2, 3, 16), np.array([[[0, 8], [1, -1], [0, 8]], [[1, 0], [-1, 5], [-2, 3]]])
    expected = x.copy()
    for place, row in zip(at.reshape(-1, 2), u.reshape(-1, 16), strict=True):
        expected[tuple(place)] = row
    np.testing.assert_array_equal(kernel(x, at, u), expected)


@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("kind", ["float", "float16"])
def test_keys_that_are_computed_and_are_results(kind, arch):
    """As prompts have them that start a cache: the bias is added to keys on their way to shared memory."""
    text = f"""g ({kind}[3,7,16] x, {kind}[16,48] w, {kind}[48] u) => ({kind}[3,7,16] y, {kind}[3,7,16] k) {{
      qkv0 = MatMul(x, w)  qkv = Add(qkv0, u)  q, k, v = Split<axis = -1, num_outputs = 3>(qkv)
      kt = Transpose<perm = [0, 2, 1]>(k)  s = MatMul(q, kt)  p = Softmax(s)  y = MatMul(p, v)
    }}"""
    kernel = compile(model(text, 18), target="nvidia", arch=arch)
    assert "1 attention found and fused" in kernel.explain()
    assert kernel.ir("ptx")


def test_a_bias_of_heads_that_stand_last():
    """Heads that share keys are rows of one tile, of which the bias has queries, keys and heads in this order."""
    text = """g (float[1,4,7,16] q, float[1,1,16,65] k, float[1,1,65,16] v, float[7,65,4] bias) => (float[1,4,7,16] y) {
      b = Transpose<perm = [2, 0, 1]>(bias)
      s0 = MatMul(q, k)  s = Add(s0, b)  p = Softmax(s)  y = MatMul(p, v)
    }"""
    kernel = compile(model(text, 18))
    q, k, v, bias = random(1, 4, 7, 16), random(1, 1, 16, 65), random(1, 1, 65, 16), 4 * random(7, 65, 4)
    (found,) = run_module(kernel.ir("graph"), [q, k, v, bias])
    s = q.astype(np.float64) @ k + bias.transpose(2, 0, 1)
    np.testing.assert_allclose(found, softmax(s) @ v, rtol=1e-3, atol=1e-4)

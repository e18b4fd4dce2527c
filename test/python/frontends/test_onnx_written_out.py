"""Operators that are written out where little is known of their inputs at first, in old versions, or after others."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="the extra 'onnx' is not installed")

from attn_opt.compiler.frontends.onnx.lowering import lower  # noqa: E402
from attn_opt.dialects.reference import evaluate as evaluate_graph  # noqa: E402
from onnx_harness import assert_close, contributed, model, random  # noqa: E402
from onnx_numpy import evaluate  # noqa: E402

X, Y = 4 * random(2, 9, 32), random(2, 9, 32, seed=1)


def check(source, inputs) -> None:
    """The graph, of which no code is generated."""
    lowered = lower(source)
    found = evaluate_graph(lowered.module, [*inputs, *lowered.weights])
    expected = [x.astype(np.float32) for x in evaluate(source, inputs, is_wide=True)]
    assert_close(tuple(np.asarray(x, np.float32) for x in found), expected)


@pytest.mark.parametrize("opset", [11, 13, 14])
def test_operators_of_onnxruntime_in_old_versions(opset):
    body = "z = com.microsoft.MultiHeadAttention<num_heads = 4>(x, x, y0)  t = Tanh(z)  y = Add(t, x)"
    check(contributed(body, "float[2,9,32] x, float[2,9,32] y0", opset=opset), [X, Y])


def test_operators_of_onnxruntime_in_functions_of_old_versions():
    text = """<ir_version: 9, opset_import: ["" : 13, "com.microsoft" : 1, "own" : 1]>
      g (float[2,9,32] x, float[2,9,32] z) => (float[2,9,32] y) { y = own.attend(x, z) }
      <domain: "own", opset_import: ["" : 13, "com.microsoft" : 1]> attend (x, z) => (y) {
        a = com.microsoft.MultiHeadAttention<num_heads = 4>(x, z, z)
        y = Add(a, x)
      }"""
    flat = contributed(
        "a = com.microsoft.MultiHeadAttention<num_heads = 4>(x, z, z)  y = Add(a, x)",
        "float[2,9,32] x, float[2,9,32] z",
    )
    lowered = lower(onnx.parser.parse_model(text))
    found = evaluate_graph(lowered.module, [X, Y])
    expected = [x.astype(np.float32) for x in evaluate(flat, [X, Y], is_wide=True)]
    assert_close(tuple(np.asarray(x, np.float32) for x in found), expected)


SIZES = """all = Shape(x)  zero = Constant<value_int = 0>()  axis = Constant<value_ints = [0]>()  b0 = Gather(all, zero)
  b = Unsqueeze(b0, axis)  rest = Constant<value_ints = [{}]>()  form = Concat<axis = 0>(b, rest)
  x1 = Reshape(x, form)  """
COMPUTED = {
    "lengths of a batch": ("com.microsoft.Attention<num_heads = 4>(x1, w, , at)", (9, 32), np.array([9, 4], np.int32)),
    "rotary positions": (
        "com.microsoft.RotaryEmbedding<num_heads = 2, rotary_embedding_dim = 16>(x1, at, w, w)",
        (9, 32),
        np.array([[*range(9)], [*range(9)]]),
    ),
}


@pytest.mark.parametrize("name", COMPUTED)
def test_sizes_that_are_computed(name):
    """They are known when what computes them is folded."""
    call, shape, at = COMPUTED[name]
    kind = f"{at.dtype.name}{[*at.shape]} at"
    w = random(32, 96) if "lengths" in name else random(9, 8)
    sizes = SIZES.format(", ".join(map(str, shape)))
    check(contributed(f"{sizes} y = {call}", f"float[2,9,32] x, {kind}", w=w), [X, at])


def test_a_norm_behind_an_operator_of_onnxruntime():
    """What is replaced by a function needs the type of what is written out before it."""
    body = "z = com.microsoft.Gelu(x)  y = RMSNormalization<axis = -1, epsilon = 1e-3>(z, g)"
    check(contributed(body, "float[2,9,32] x", opset=23, g=random(32)), [X])


def test_what_is_written_out_by_operators_that_are_functions_themselves():
    """Such as GreaterOrEqual, up to version 15."""
    body = (
        "y = com.microsoft.GroupQueryAttention<num_heads = 4, kv_num_heads = 2, local_window_size = 3>"
        "(x, z, z, k, k, last, total)"
    )
    inputs = "float[2,1,32] x, float[2,1,16] z, float[2,2,5,8] k, int32[2] last, int32[1] total"
    source = contributed(body, inputs, "float[2,1,32] y", opset=15)
    check(source, [X[:, :1], Y[:, :1, :16], random(2, 2, 5, 8), np.array([4, 2], np.int32), np.array([5], np.int32)])


def test_a_bias_of_values_of_another_width():
    body = "y = com.microsoft.MultiHeadAttention<num_heads = 4>(x, y0, v, b)"
    inputs = "float[2,9,32] x, float[2,9,32] y0, float[2,9,12] v, float[76] b"
    source = contributed(body, inputs, "float[2,9,12] y")
    check(source, [X, Y, random(2, 9, 12), random(76)])


@pytest.mark.parametrize("mode", [0, 3])
@pytest.mark.parametrize("length", ["t", "7"])
def test_scores_of_attention_are_results(mode, length):
    """Of an unknown number of keys, onnx infers that there are none."""
    text = f"""g (float[2,4,9,8] q, float[2,2,{length},8] k) => (float[2,4,9,8] y, float[2,4,9,n] t) {{
      y, , , s = Attention<qk_matmul_output_mode = {mode}, softcap = 2.0>(q, k, k)  t = Tanh(s)
    }}"""
    check(model(text, 23), [4 * random(2, 4, 9, 8), random(2, 2, 7, 8)])


def test_present_keys_without_a_past():
    text = """g (float[2,9,32] q, float[2,7,16] k) => (float[2,9,32] y, float[2,2,7,8] u, float[2,2,7,8] v) {
      y, u, v0 = Attention<q_num_heads = 4, kv_num_heads = 2>(q, k, k)  v = Neg(v0)
    }"""
    check(model(text, 23), [X, random(2, 7, 16)])

"""Reductions of ONNX that are written out: along any axes, of one element too, and as a second result of attention."""

import numpy as np
import pytest
from attn_opt.compiler.api import compile

pytest.importorskip("onnx", reason="the extra 'onnx' is not installed")

from attn_opt.compiler.frontends.onnx.lowering import lower
from attn_opt.dialects.reference import evaluate
from onnx_harness import assert_close, model, random, softmax


def log_sum_exp(x, **over):
    with np.errstate(divide="ignore"):
        return np.log(np.exp(x).sum(**over))


REDUCTIONS = {
    "ReduceLogSumExp": log_sum_exp,
    "ReduceLogSum": lambda x, **over: np.log(x.sum(**over)),
    "ReduceL2": lambda x, **over: np.sqrt((x * x).sum(**over)),
}
AXES = {"one": (-1,), "two": (0, 2), "all": None}


@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("opset", [13, 18])
@pytest.mark.parametrize("op_type", REDUCTIONS)
def test_reductions(op_type, opset, axes):
    over, inputs, body = AXES[axes], [], f"axes = Constant<value_ints = {[*(AXES[axes] or (0,))]}>()"
    kinds, outputs, expected = [], [], []
    for i, shape in enumerate(((3, 4, 5), (1, 4, 1), (2, 1, 1))):
        inputs.append(1 + random(*shape))
        kinds.append(f"float{[*shape]} x{i}")
        for keeps in (0, 1):
            said = f"<keepdims = {keeps}, axes = {[*(over or ())]}>(x{i})"
            if over is None or opset >= 18:
                said = f"<keepdims = {keeps}>(x{i}{'' if over is None else ', axes'})"
            wide = inputs[-1].astype(np.float64)
            expected.append(REDUCTIONS[op_type](wide, axis=over, keepdims=bool(keeps)).astype(np.float32))
            outputs.append(f"float{[*expected[-1].shape]} y{i}{keeps}".replace("[]", ""))
            body += f" y{i}{keeps} = {op_type}{said}"
    lowered = lower(model(f"g ({', '.join(kinds)}) => ({', '.join(outputs)}) {{ {body} }}", opset))
    found = evaluate(lowered.module, inputs)
    assert_close(tuple(np.asarray(x, np.float32) for x in found), expected)


def test_logarithms_of_sums_beyond_what_exponentials_hold():
    """ONNX's own definition sums exponentials in double precision."""
    x = np.array([[1e4, 1e4], [-1e4, -1e4], [-np.inf, 3], [-np.inf, -np.inf], [np.inf, 0]], np.float32)
    kernel = compile(model("g (float[5,2] x) => (float[5] y) { y = ReduceLogSumExp<axes = [-1], keepdims = 0>(x) }"))
    two = np.log(2)
    np.testing.assert_allclose(kernel(x), [1e4 + two, two - 1e4, 3, -np.inf, np.inf], rtol=1e-6)


def test_attention_by_its_log_sum_exp():
    text = """g (float[2,9,8] q, float[2,13,8] k, float[2,13,8] v) => (float[2,9,8] y, float[2,9,1] l) {
      axes = Constant<value_ints = [-1]>()  kt = Transpose<perm = [0, 2, 1]>(k)
      s = MatMul(q, kt)  l = ReduceLogSumExp(s, axes)  d = Sub(s, l)  p = Exp(d)  y = MatMul(p, v)
    }"""
    kernel = compile(model(text, 18))
    assert "1 attention found and fused" in kernel.explain()
    q, k, v = 4 * random(2, 9, 8), random(2, 13, 8), random(2, 13, 8, seed=1)
    s = q.astype(np.float64) @ k.swapaxes(1, 2)
    expected = softmax(s) @ v, log_sum_exp(s, axis=-1, keepdims=True)
    assert_close(kernel(q, k, v), [x.astype(np.float32) for x in expected])

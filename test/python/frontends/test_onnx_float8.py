"""Models of ONNX that compute with floats of 8 bits, or are quantized to them."""

import ml_dtypes
import numpy as np
import pytest
from attn_opt.compiler.api import compile
from attn_opt.compiler.counts import stats

onnx = pytest.importorskip("onnx", reason="the extra 'onnx' is not installed")

from onnx_harness import assert_close, model, random  # noqa: E402

FLOAT8 = {17: ml_dtypes.float8_e4m3fn, 18: ml_dtypes.float8_e4m3fnuz, 19: ml_dtypes.float8_e5m2}


@pytest.mark.parametrize("kind", FLOAT8)
def test_floats_of_8_bits(kind):
    """As element types of inputs and outputs, and in between."""
    name = onnx.TensorProto.DataType.Name(kind).lower()
    source = model(
        f"""g ({name}[2,9,8] q, {name}[2,13,8] k, float[2,13,8] v) => ({name}[2,9,8] o) {{
          qf = Cast<to=1>(q)  kf = Cast<to=1>(k)  kt = Transpose<perm=[0,2,1]>(kf)
          s = MatMul(qf, kt)  p = Softmax<axis=-1>(s)
          c = Constant<value_float=128.0>()
          p0 = Mul(p, c)  p1 = Cast<to={kind}>(p0)  p2 = Cast<to=1>(p1)
          v1 = Cast<to={kind}>(v)  v2 = Cast<to=1>(v1)
          o0 = MatMul(p2, v2)  o1 = Div(o0, c)  o = Cast<to={kind}>(o1)
        }}""",
        opset=21,
    )
    before = stats()["compiled"]
    kernel = compile(source)
    assert stats()["compiled"] == before + 1
    q, k, v = (4 * random(*s) for s in ((2, 9, 8), (2, 13, 8), (2, 13, 8)))
    q, k = q.astype(FLOAT8[kind]), k.astype(FLOAT8[kind])
    found = kernel(q, k, v)
    s = q.astype(np.float64) @ k.astype(np.float64).swapaxes(-1, -2)
    p = np.exp(s - s.max(-1, keepdims=True))
    expected = p / p.sum(-1, keepdims=True) @ v.astype(FLOAT8[kind]).astype(np.float64)
    assert found.dtype == FLOAT8[kind]
    assert np.abs(found.astype(np.float64) - expected).max() < 0.2 * np.abs(expected).max()


@pytest.mark.parametrize("saturate", [0, 1])
def test_casts_to_8_bits_saturate(saturate):
    source = model(f"g (float[5] x) => (float8e4m3fn[5] y) {{ y = Cast<to=17, saturate={saturate}>(x) }}", opset=21)
    found = compile(source)(np.array([1000, -np.inf, np.nan, 3.3, -0.0], np.float32)).astype(np.float32)
    most = 448 if saturate else np.nan
    np.testing.assert_array_equal(found, np.array([most, -most, np.nan, 3.25, -0.0], np.float32))


@pytest.mark.parametrize("axis", [None, -1])
def test_quantized_to_8_bits(axis):
    scale = np.float32(0.02) if axis is None else np.linspace(0.01, 0.03, 8, dtype=np.float32)
    zero = onnx.helper.make_tensor("z", 17, list(scale.shape), np.zeros(scale.size))
    source = model(
        """g (float[2,9,8] q, float[2,13,8] k, float[2,13,8] v) => (float[2,9,8] o) {
          k0 = QuantizeLinear<axis=-1>(k, s, z)  k1 = DequantizeLinear<axis=-1>(k0, s, z)
          v0 = QuantizeLinear<axis=-1>(v, s, z)  v1 = DequantizeLinear<axis=-1>(v0, s, z)
          kt = Transpose<perm=[0,2,1]>(k1)  x = MatMul(q, kt)  p = Softmax<axis=-1>(x)  o = MatMul(p, v1)
        }""",
        opset=21,
        s=scale,
    )
    source.graph.initializer.append(zero)
    inputs = [4 * random(*s) for s in ((2, 9, 8), (2, 13, 8), (2, 13, 8))]
    k, v = (((x / scale).astype(ml_dtypes.float8_e4m3fn).astype(np.float64) * scale) for x in inputs[1:])
    s = inputs[0].astype(np.float64) @ k.swapaxes(-1, -2)
    p = np.exp(s - s.max(-1, keepdims=True))
    assert_close(compile(source)(*inputs), [(p / p.sum(-1, keepdims=True) @ v).astype(np.float32)])

"""Quantized models of ONNX, of integers: attention is found behind QuantizeLinear and DequantizeLinear."""

import numpy as np
import pytest
from attn_opt.compiler import CompileError, compile
from attn_opt.compiler.counts import stats

onnx = pytest.importorskip("onnx", reason="the extra 'onnx' is not installed")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx_harness import assert_close, random  # noqa: E402

LIMITS = {"INT4": (-8, 7), "INT8": (-128, 127), "UINT8": (0, 255), "UINT16": (0, 65535)}


def pair(name, kind, scale, zero, axis=1, ways="QD"):
    """Nodes that quantize `name`, and make floats of it again; their constants."""
    constants = [
        numpy_helper.from_array(np.float32(scale), f"{name}.scale"),
        helper.make_tensor(f"{name}.zero", TensorProto.DataType.Value(kind), np.shape(scale), np.ravel(zero)),
    ]
    s, z = (c.name for c in constants)
    nodes = {
        "Q": helper.make_node("QuantizeLinear", [name, s, z], [f"{name}.int"], axis=axis),
        "D": helper.make_node("DequantizeLinear", [f"{name}.int", s, z], [f"{name}.float"], axis=axis),
    }
    return [nodes[way] for way in ways], constants


def rounded(x, kind, scale, zero):
    return (np.clip(np.rint(x / np.float32(scale)) + zero, *LIMITS[kind]) - zero) * np.float64(np.float32(scale))


def model(nodes, constants, inputs, output, opset):
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in inputs.items()]
    result = helper.make_tensor_value_info(output, TensorProto.UNDEFINED, None)
    graph = helper.make_graph(nodes, "g", values, [result], constants)
    source = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return onnx.shape_inference.infer_shapes(source)


@pytest.mark.parametrize("kind", LIMITS)
@pytest.mark.parametrize("quantized", ["qkv", "qkvp"])
@pytest.mark.parametrize("is_open", [False, True])
def test_attention(kind, quantized, is_open):
    inputs = {
        name: 8 * random(2, length, 8, seed=i) for i, (name, length) in enumerate((("q", 9), ("k", 13), ("v", 13)))
    }
    zero = 3 if LIMITS[kind][0] else LIMITS[kind][1] // 2
    scales = {"q": 5 / LIMITS[kind][1], "k": 6 / LIMITS[kind][1], "v": 0.3, "p": 1 / LIMITS[kind][1]}
    pairs = {x: pair(x, kind, scales[x], 0 if x == "p" else zero) for x in quantized}
    nodes = [node for x in "qkv" for node in pairs[x][0]]
    nodes.append(helper.make_node("Transpose", ["k.float"], ["kt"], perm=[0, 2, 1]))
    nodes += [helper.make_node("MatMul", ["q.float", "kt"], ["s"]), helper.make_node("Softmax", ["s"], ["p"], axis=-1)]
    nodes += pairs["p"][0] if "p" in pairs else []
    nodes.append(helper.make_node("MatMul", ["p.float" if "p" in pairs else "p", "v.float"], ["o"]))
    constants = [c for _, added in pairs.values() for c in added]
    shapes = {name: ["b", f"{name}s", 8] if is_open else array.shape for name, array in inputs.items()}
    before = stats()
    found = compile(model(nodes, constants, shapes, "o", 21))(*inputs.values())
    assert stats()["found"] == before["found"] + (2 if "p" in pairs else 1)
    q, k, v = (rounded(array, kind, scales[name], zero) for name, array in inputs.items())
    s = q @ k.swapaxes(-1, -2)
    p = np.exp(s - s.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    if "p" in pairs:  # a probability between two integers may be rounded to either
        assert_close(found.astype(np.float64), [rounded(p, kind, scales["p"], 0) @ v], 2 * scales["p"])
        return
    assert_close(found.astype(np.float64), [p @ v])


@pytest.mark.parametrize("kind", ["INT8", "UINT8"])
@pytest.mark.parametrize("opset", [13, 21])
def test_of_an_axis(kind, opset):
    x, scale = 100 * random(3, 4, 5), np.array([0.5, 0.1, 2, 1], np.float32)
    zero = np.array([0, 3, 7, 1])
    nodes, constants = pair("x", kind, scale, zero, axis=-2)
    column = (slice(None), None)
    expected = rounded(x, kind, scale[column], zero[column])
    found = compile(model(nodes, constants, {"x": x.shape}, "x.float", opset))(x)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    nodes, constants = pair("x", kind, scale, zero, axis=-2, ways="Q")  # the integers themselves
    found = compile(model(nodes, constants, {"x": x.shape}, "x.int", opset))(x)
    assert found.dtype == kind.lower()
    np.testing.assert_array_equal(found, np.rint(expected / scale[column]) + zero[column])


def test_what_is_beyond_the_limits_saturates():
    x = np.array([-np.inf, -3e9, -129, -0.5, 0.5, 1.5, 126.5, 3e9, np.inf], np.float32)
    nodes, constants = pair("x", "INT8", 1, 0, ways="Q")
    found = compile(model(nodes, constants, {"x": x.shape}, "x.int", 19))(x)
    np.testing.assert_array_equal(found, np.array([-128, -128, -128, 0, 0, 2, 126, 127, 127], np.int8))


def test_integers_of_4_bits_are_no_tensors():
    nodes, constants = pair("x", "INT4", 1, 0)
    nodes.insert(1, helper.make_node("Identity", ["x.int"], ["moved"]))
    nodes[2].input[0] = "moved"
    with pytest.raises(CompileError, match="has no lowering to linalg of int4"):
        compile(model(nodes, constants, {"x": (5,)}, "x.float", 21))

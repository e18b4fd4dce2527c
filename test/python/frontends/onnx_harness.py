"""Models of ONNX made of text, their inputs, and comparison with onnx's reference evaluator or with numpy."""

import numpy as np
import onnx

HEADER = '<ir_version: 9, opset_import: ["" : {}]>\n'
B, S, D, HEADS = 2, 9, 32, 4  # batch, tokens, model size, heads


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng((seed, *shape)).standard_normal(shape) / 4).astype(np.float32)


def model(text: str, opset: int = 17, **weights: np.ndarray):
    parsed = onnx.parser.parse_model(HEADER.format(opset) + text)
    parsed.graph.initializer.extend(onnx.numpy_helper.from_array(v, k) for k, v in weights.items())
    return parsed


def reference(source, inputs):
    from onnx.reference import ReferenceEvaluator

    return ReferenceEvaluator(source).run(None, dict(zip([i.name for i in source.graph.input], inputs, strict=True)))


def assert_close(found, expected, tolerance=1e-5):
    found = found if isinstance(found, tuple) else (found,)
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype
        assert np.abs(a.astype(np.float64) - b).max() <= tolerance * np.abs(b.astype(np.float64)).max()


def contributed(body: str, inputs: str, outputs: str = "float[2,9,32] y", opset: int = 17, **weights):
    """A model with operators of onnxruntime's domain."""
    header = f'<ir_version: 9, opset_import: ["" : {opset}, "com.microsoft" : 1]>\n'
    parsed = onnx.parser.parse_model(f"{header} g ({inputs}) => ({outputs}) {{ {body} }}")
    parsed.graph.initializer.extend(onnx.numpy_helper.from_array(v, k) for k, v in weights.items())
    return parsed


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def heads(x):
    return x.astype(np.float64).reshape(*x.shape[:2], HEADS, -1).swapaxes(1, 2)


def attention(q, k, v, mask=0.0):
    q, k, v = heads(q), heads(k), heads(v)
    o = softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]) + mask) @ v
    return o.swapaxes(1, 2).reshape(B, S, -1)

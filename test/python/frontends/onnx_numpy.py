"""Models of ONNX evaluated by numpy, operator by operator: in float64, or rounded to the model's own types after each.

It knows what random programs consist of, and nothing of onnx's own evaluation or of the compiler: the meaning of each
operator is written down once more. Half precision is computed in single, then rounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx_numpy_attention import (
    attention_of_opset_23,
    contributed_attention,
    contributed_rotary,
    group_query,
    multi_head,
    softmax,
)

HALVES = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))


def is_float(x: np.ndarray) -> bool:
    return x.dtype.kind == "f" or x.dtype in HALVES


def evaluate(
    model: onnx.ModelProto,
    inputs: Sequence[np.ndarray],
    is_wide: bool,
    results: Sequence[str] = (),
    moved: Callable[[np.ndarray], np.ndarray] = lambda x: x,
) -> list[np.ndarray]:
    """The outputs, or `results`: in float64 if `is_wide`, where `moved` may change what is computed, else in the
    model's types."""
    values = dict(zip([value.name for value in model.graph.input], inputs, strict=True))
    values |= {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    if is_wide:
        values = {name: x.astype(float) if is_float(x) else x for name, x in values.items()}
    with np.errstate(all="ignore"):
        _run(model.graph, values, is_wide, moved)
    return [values[name] for name in results or [value.name for value in model.graph.output]]


def _run(graph: onnx.GraphProto, values: dict[str, np.ndarray], is_wide: bool, moved: Callable) -> None:
    for node in graph.node:
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        given = [values[name] if name else None for name in node.input]
        floats = [x.dtype for x in given if x is not None and is_float(x)]
        if node.op_type == "If":
            body = attributes["then_branch" if given[0] else "else_branch"]
            inner = dict(values)
            _run(body, inner, is_wide, moved)
            found: Any = inner[body.output[0].name]
        else:
            operands = [x.astype(np.float32) if x is not None and x.dtype in HALVES else x for x in given]
            found = OPERATORS[f"{node.domain}.{node.op_type}".removeprefix(".")](attributes, *operands)
            if is_wide and node.op_type == "Cast" and is_float(found):
                found = operands[0]  # in float64 nothing is rounded, as where frameworks are asked for the same
        found = found if isinstance(found, tuple) else (found,)
        for name, x in zip(node.output, map(np.asarray, found), strict=False):
            if is_float(x):
                own = floats[0] if floats and node.op_type not in CONVERSIONS else x.dtype
                x = x.astype(float if is_wide else own)
                x = moved(x) if is_wide and floats and node.op_type not in CONVERSIONS else x
            values[name] = x


Attributes = Mapping[str, Any]
CONVERSIONS = ("Cast", "CastLike", "If")  # whose results have another type than what they are made of


def _of_elements(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, *xs: function(*xs)


def _reduced(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(a: Attributes, x: np.ndarray, axes: np.ndarray | None = None) -> np.ndarray:
        listed = a.get("axes") if axes is None else axes.tolist()
        over = tuple(range(x.ndim)) if listed is None else tuple(listed)
        return function(x, axis=over, keepdims=bool(a.get("keepdims", 1)))

    return run


def _cast(a: Attributes, x: np.ndarray) -> np.ndarray:
    return x.astype(helper.tensor_dtype_to_np_dtype(a["to"]))


def _clip(a: Attributes, x: np.ndarray, low: Any = None, high: Any = None) -> np.ndarray:
    return np.clip(x, low, high)


def _constant(a: Attributes) -> np.ndarray:
    ((name, value),) = a.items()
    if name == "value":
        return numpy_helper.to_array(value)
    return np.array(value, np.float32 if name.startswith("value_float") else np.int64)


def _divided(a: Attributes, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return x / y if x.dtype.kind == "f" else np.trunc(x / y).astype(x.dtype)


def _expanded(a: Attributes, x: np.ndarray, shape: np.ndarray) -> np.ndarray:
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(shape.tolist())))


def _gelu(a: Attributes, x: np.ndarray, bias: Any = 0.0) -> np.ndarray:
    x = x + bias
    if a.get("approximate", b"none") == b"tanh":
        return x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2
    return x * (1 + _erf(x / math.sqrt(2))) / 2


def _erf(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erf, otypes=[float])(x)


def _gemm(a: Attributes, x: np.ndarray, y: np.ndarray, z: Any = 0.0) -> np.ndarray:
    x, y = x.T if a.get("transA") else x, y.T if a.get("transB") else y
    return a.get("alpha", 1.0) * (x @ y) + a.get("beta", 1.0) * z


def _layer_norm(a: Attributes, x: np.ndarray, scale: Any, shift: Any = None, epsilon: float = 1e-5) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    return _rms_norm(a, centred, scale, epsilon) + (0.0 if shift is None else shift)


def _rms_norm(a: Attributes, x: np.ndarray, scale: Any, epsilon: float = 1e-5) -> np.ndarray:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + a.get("epsilon", epsilon)) * scale


def _skip_layer_norm(a: Attributes, x: np.ndarray, skip: np.ndarray, scale: Any, shift: Any = None, bias: Any = None):
    total = x + skip + (0.0 if bias is None else bias)
    return _layer_norm(a, total, scale, shift, 1e-12), None, None, total


def _log_sum_exp(x: np.ndarray, axis: Any, keepdims: bool) -> np.ndarray:
    most = x.max(axis, keepdims=True)
    found = np.log(np.exp(x - most).sum(axis, keepdims=True)) + most
    return found if keepdims else found.squeeze(axis)


def _log_softmax(a: Attributes, x: np.ndarray) -> np.ndarray:
    centred = x - x.max(a.get("axis", -1), keepdims=True)  # its maximum may be beyond all that is added to it
    return centred - np.log(np.exp(centred).sum(a.get("axis", -1), keepdims=True))


def _padded(a: Attributes, x: np.ndarray, amounts: np.ndarray) -> np.ndarray:
    return np.pad(x, amounts.reshape(2, -1).T)


def _reshaped(a: Attributes, x: np.ndarray, shape: np.ndarray) -> np.ndarray:
    return x.reshape([x.shape[d] if n == 0 else n for d, n in enumerate(shape.tolist())])


def _rotary(
    a: Attributes, x: np.ndarray, cos: np.ndarray, sin: np.ndarray, places: np.ndarray | None = None
) -> np.ndarray:
    """Of opset 23, all of each head."""
    heads = x if x.ndim == 4 else x.reshape(*x.shape[:2], a["num_heads"], -1).swapaxes(1, 2)
    cos, sin = (table if places is None else table[places] for table in (cos, sin))
    cos, sin = cos[:, None], sin[:, None]
    if a.get("interleaved"):
        left, right = heads[..., ::2], heads[..., 1::2]
    else:
        left, right = np.split(heads, 2, -1)
    parts = left * cos - right * sin, left * sin + right * cos
    turned = np.stack(parts, -1).reshape(heads.shape) if a.get("interleaved") else np.concatenate(parts, -1)
    return turned if x.ndim == 4 else turned.swapaxes(1, 2).reshape(x.shape)


def _scatter_elements(a: Attributes, x: np.ndarray, at: np.ndarray, new: np.ndarray) -> np.ndarray:
    x, axis = x.copy(), a.get("axis", 0)
    np.put_along_axis(x, np.where(at < 0, at + x.shape[axis], at), new, axis)
    return x


def _scatter_nd(a: Attributes, x: np.ndarray, at: np.ndarray, new: np.ndarray) -> np.ndarray:
    x = x.copy()
    for place in np.ndindex(*at.shape[:-1]):
        x[tuple(at[place])] = new[place]
    return x


def _sliced(a: Attributes, x: np.ndarray, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> np.ndarray:
    index = [slice(None)] * x.ndim
    axes = range(len(starts)) if axes is None else axes.tolist()
    steps = np.ones(len(starts), int) if steps is None else steps
    for axis, start, end, step in zip(axes, starts.tolist(), ends.tolist(), steps.tolist(), strict=True):
        if step < 0 and end < -x.shape[axis]:
            index[axis] = slice(start, None, step)
        else:
            index[axis] = slice(start, end, step)
    return x[tuple(index)]


def _split(a: Attributes, x: np.ndarray, sizes: np.ndarray | None = None) -> tuple[np.ndarray, ...]:
    axis = a.get("axis", 0)
    cuts = a.get("num_outputs", 3) if sizes is None else np.cumsum(sizes)[:-1]
    return tuple(np.split(x, cuts, axis))


def _squeezed(a: Attributes, x: np.ndarray, axes: np.ndarray) -> np.ndarray:
    return x.squeeze(tuple(axes.tolist()))


def _triangle(a: Attributes, x: np.ndarray, k: Any = 0) -> np.ndarray:
    return np.triu(x, int(k)) if a.get("upper", 1) else np.tril(x, int(k))


def _summed(a: Attributes, x: np.ndarray, axis: Any) -> np.ndarray:
    return np.cumsum(x, int(axis), dtype=x.dtype)


def _unsqueezed(a: Attributes, x: np.ndarray, axes: np.ndarray) -> np.ndarray:
    return np.expand_dims(x, tuple(axes.tolist()))


def _fused_matmul(a: Attributes, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    x, y = x.swapaxes(-1, -2) if a.get("transA") else x, y.swapaxes(-1, -2) if a.get("transB") else y
    return a.get("alpha", 1.0) * (x @ y)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return np.exp(-np.logaddexp(0, -x))


ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "Abs": np.abs,
    "Add": np.add,
    "And": np.logical_and,
    "Cos": np.cos,
    "Equal": np.equal,
    "Erf": _erf,
    "Exp": np.exp,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "IsNaN": np.isnan,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Log": np.log,
    "MatMul": np.matmul,
    "Max": np.maximum,
    "Min": np.minimum,
    "Mod": np.mod,
    "Mul": np.multiply,
    "Neg": np.negative,
    "Not": np.logical_not,
    "Or": np.logical_or,
    "Pow": np.power,
    "Sigmoid": _sigmoid,
    "Sign": np.sign,
    "Sin": np.sin,
    "Sqrt": np.sqrt,
    "Sub": np.subtract,
    "Tanh": np.tanh,
    "Where": np.where,
}
OPERATORS: dict[str, Callable[..., Any]] = {
    **{name: _of_elements(function) for name, function in ELEMENTWISE.items()},
    **{name: _of_elements(lambda x, *more: x) for name in ("Identity", "Dropout")},
    "Attention": attention_of_opset_23,
    "Cast": _cast,
    "CastLike": lambda a, x, like: x.astype(like.dtype),
    "Clip": _clip,
    "Concat": lambda a, *xs: np.concatenate(xs, a["axis"]),
    "Constant": _constant,
    "ConstantOfShape": lambda a, shape: np.full(shape.tolist(), numpy_helper.to_array(a["value"])[0]),
    "CumSum": _summed,
    "Div": _divided,
    "Einsum": lambda a, *xs: np.einsum(a["equation"].decode(), *xs),
    "Expand": _expanded,
    "Flatten": lambda a, x: x.reshape(math.prod(x.shape[: a["axis"]]), -1),
    "Gather": lambda a, x, at: np.take(x, at, a.get("axis", 0)),
    "GatherElements": lambda a, x, at: np.take_along_axis(x, at, a.get("axis", 0)),
    "Gelu": _gelu,
    "Gemm": _gemm,
    "LayerNormalization": _layer_norm,
    "LeakyRelu": lambda a, x: np.where(x < 0, a.get("alpha", 0.01) * x, x),
    "LogSoftmax": _log_softmax,
    "Pad": _padded,
    "RMSNormalization": _rms_norm,
    "Range": lambda a, start, end, step: np.arange(start, end, step, dtype=start.dtype),
    "Reciprocal": lambda a, x: 1 / x,
    "ReduceL2": _reduced(lambda x, **over: np.sqrt((x * x).sum(**over))),
    "ReduceLogSumExp": _reduced(_log_sum_exp),
    "ReduceMax": _reduced(np.max),
    "ReduceMean": _reduced(np.mean),
    "ReduceSum": _reduced(np.sum),
    "ReduceSumSquare": _reduced(lambda x, **over: (x * x).sum(**over)),
    "Relu": lambda a, x: np.maximum(x, 0),
    "Reshape": _reshaped,
    "RotaryEmbedding": _rotary,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "Shape": lambda a, x: np.array(x.shape[a.get("start", 0) : a.get("end", x.ndim)], np.int64),
    "Slice": _sliced,
    "Softmax": lambda a, x: softmax(x, a.get("axis", -1)),
    "Softplus": lambda a, x: np.logaddexp(0, x),
    "Split": _split,
    "Squeeze": _squeezed,
    "Tile": lambda a, x, counts: np.tile(x, counts.tolist()),
    "Transpose": lambda a, x: x.transpose(a["perm"]),
    "Trilu": _triangle,
    "Unsqueeze": _unsqueezed,
    "com.microsoft.BiasGelu": _gelu,
    "com.microsoft.FastGelu": lambda a, *xs: _gelu({"approximate": b"tanh"}, *xs),
    "com.microsoft.FusedMatMul": _fused_matmul,
    "com.microsoft.GroupQueryAttention": group_query,
    "com.microsoft.MultiHeadAttention": multi_head,
    "com.microsoft.QuickGelu": lambda a, x: x * _sigmoid(a.get("alpha", 1.702) * x),
    "com.microsoft.SkipLayerNormalization": _skip_layer_norm,
    "com.microsoft.SkipSimplifiedLayerNormalization": lambda a, x, y, scale: _rms_norm(a, x + y, scale, 1e-12),
    "com.microsoft.Attention": contributed_attention,
    "com.microsoft.Gelu": _gelu,
    "com.microsoft.RotaryEmbedding": contributed_rotary,
}

"""Operators of onnxruntime's own domain, ``com.microsoft``, as functions of standard ones.

    Y = com.microsoft.FastGelu(X, B)
  becomes what the operator is defined to compute:
    Z = Add(X, B); Y = Gelu<approximate = "tanh">(Z)

onnxruntime's optimizers and exporters put them into models. Inputs that a node lacks and attributes that it has decide
what its function holds, so one is written for each node. What is not covered here has no lowering.
"""

import math
import re
from collections.abc import Callable, Sequence

import onnx
from onnx import FunctionProto, NodeProto

from .contrib_attention import WRITERS as ATTENTION
from .contrib_group_query import group_query_attention
from .tensor_scatter import tensor_scatter
from .text import Attributes, Has, Shape, arange, ints, mean, number, rms_norm

DOMAIN = "com.microsoft"
UNCLAIMED = ("SimplifiedLayerNormalization",)
WITHOUT_LOWERING = ("TensorScatter",)  # of the standard ones, which no function of the standard defines
MOST_INPUTS = 16
OLDEST = 15  # of the versions of the standard operators that the functions can be written in


def adopt(model: onnx.ModelProto) -> None:
    """Gives operators that onnxruntime writes without a domain, though no standard has them, its own one."""
    found = [node for node in model.graph.node if node.op_type in UNCLAIMED and not node.domain]
    for node in found:
        node.domain = DOMAIN
    if found and all(o.domain != DOMAIN for o in model.opset_import):
        model.opset_import.append(onnx.helper.make_opsetid(DOMAIN, 1))


def is_known(op_type: str) -> bool:
    """Whether an operator of `DOMAIN` is written out, at least with some inputs and attributes."""
    return op_type in _WRITERS


def function_of(
    node: NodeProto, opset: int, shapes: Sequence[Shape], names: Sequence[Sequence[str]]
) -> FunctionProto | None:
    """The function that `node` calls, in that version of the standard operators; None where none is known.

    `shapes` are those of its inputs, as far as they are known; `names` what their sizes are called, "" for no name.
    """
    if opset < OLDEST:
        return None
    is_own = node.domain == DOMAIN or (not node.domain and node.op_type in WITHOUT_LOWERING)
    write = _WRITERS.get(node.op_type) if is_own else None
    if write is None:
        return None
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute} | {"opset": opset}
    attributes["shapes"] = [*shapes, *[None] * (MOST_INPUTS - len(shapes))]
    attributes["names"] = [*names, *[()] * (MOST_INPUTS - len(names))]

    def has(i: int) -> bool:
        return i < len(node.input) and bool(node.input[i])

    body = write(attributes, has)
    wanted = [f"y{i}" for i, name in enumerate(node.output) if name]
    if body is None or not all(re.search(rf"\b{name}\b[^=\n]*= ", body) for name in wanted):
        return None
    inputs, outputs = ", ".join(f"x{i}" for i in range(len(node.input)) if has(i)), ", ".join(wanted)
    return onnx.parser.parse_function(
        f'<opset_import: ["" : {opset}], domain: "{DOMAIN}"> {node.op_type} ({inputs}) => ({outputs}) {{\n{body}\n}}'
    )


# Element-wise.


def _gelu(a: Attributes, has: Has) -> str:
    """x·(1 + erf(x/√2))/2, of the sum of the inputs."""
    text = "z = Add(x0, x1)\n" if has(1) else "z = Identity(x0)\n"
    text += number("root", math.sqrt(2)) + number("unit", 1.0) + number("half", 0.5)
    return text + "r = Div(z, root)\ne = Erf(r)\nu = Add(e, unit)\nh = Mul(z, half)\ny0 = Mul(h, u)"


def _fast_gelu(a: Attributes, has: Has) -> str:
    """x·(1 + tanh(√(2/π)·(x + 0.044715·x³)))/2, of the sum of the inputs."""
    text = "z = Add(x0, x1)\n" if has(1) else "z = Identity(x0)\n"
    text += number("outer", math.sqrt(2 / math.pi)) + number("inner", 0.044715) + number("unit", 1.0)
    text += number("half", 0.5) + "zz = Mul(z, z)\nc = Mul(zz, inner)\nd = Add(c, unit)\nf = Mul(z, d)\n"
    return text + "g = Mul(f, outer)\nt = Tanh(g)\nu = Add(t, unit)\nh = Mul(z, half)\ny0 = Mul(h, u)"


def _quick_gelu(a: Attributes, has: Has) -> str:
    return number("alpha", a.get("alpha", 1.702)) + "z = Mul(x0, alpha)\ns = Sigmoid(z)\ny0 = Mul(x0, s)"


def _fused_matmul(a: Attributes, has: Has) -> str | None:
    if a.get("transBatchA") or a.get("transBatchB"):
        return None
    text = ""
    for i, transposed in enumerate((a.get("transA"), a.get("transB"))):
        shape = a["shapes"][i]
        if transposed and shape is None:
            return None
        rank = len(shape or ())
        axes = [*range(rank - 2), rank - 1, rank - 2] if transposed else []
        text += f"z{i} = Transpose<perm = {axes}>(x{i})\n" if transposed else f"z{i} = Identity(x{i})\n"
    return text + "m = MatMul(z0, z1)\n" + number("alpha", a.get("alpha", 1.0)) + "y0 = Mul(m, alpha)"


# Normalisations.


def _layer_norm(a: Attributes, x: str, scale: str, shift: str | None, epsilon: float) -> str:
    centred = f"{mean(a, 'centre', x)}centred = Sub({x}, centre)\n"
    return centred + rms_norm(a, "centred", scale, epsilon, shift)


def _skip(a: Attributes, has: Has, bias: int) -> str:
    return "t = Add(x0, x1)\n" + (f"s = Add(t, x{bias})\n" if has(bias) else "s = Identity(t)\n") + "y3 = Identity(s)\n"


def _skip_layer_norm(a: Attributes, has: Has) -> str:
    return _skip(a, has, 4) + _layer_norm(a, "s", "x2", "x3" if has(3) else None, a.get("epsilon", 1e-12))


def _skip_rms_norm(a: Attributes, has: Has) -> str:
    return _skip(a, has, 3) + rms_norm(a, "s", "x2", a.get("epsilon", 1e-12))


def _simplified_layer_norm(a: Attributes, has: Has) -> str | None:
    return rms_norm(a, "x0", "x1", a.get("epsilon", 1e-5)) if a.get("axis", -1) == -1 else None


def _embed_layer_norm(a: Attributes, has: Has) -> str:
    """The norm of what x2, x3 and x4 have for tokens, positions and segments; y1: how many tokens x7 keeps of each
    sequence; y2: the sum itself."""
    text = "words = Gather(x2, x0)\n"
    if has(8):
        text += "positions = Gather(x3, x8)\n"
    else:
        text += (
            "length = Shape<start = 1, end = 2>(x0)\n" + arange("place", "length") + "positions = Gather(x3, place)\n"
        )
    text += "placed = Add(words, positions)\n"
    text += "segments = Gather(x4, x1)\ny2 = Add(placed, segments)\n" if has(1) else "y2 = Identity(placed)\n"
    text += "counted0 = Cast<to = 6>(x7)\n" if has(7) else "counted0 = Sub(x0, x0)\n"
    text += ints("last", -1) + "counted = Cast<to = 6>(counted0)\ny1 = ReduceSum<keepdims = 0>(counted, last)\n"
    return text + _layer_norm(a, "y2", "x5", "x6", a.get("epsilon", 1e-12))


# Quantization.


def _quantize(a: Attributes, has: Has) -> str:
    return f"y0 = QuantizeLinear<axis = {a.get('axis', 1)}>({'x0, x1, x2' if has(2) else 'x0, x1'})\n"


def _dequantize(a: Attributes, has: Has) -> str:
    return f"y0 = DequantizeLinear<axis = {a.get('axis', 1)}>({'x0, x1, x2' if has(2) else 'x0, x1'})\n"


def _integer_matmul(factors: str, scales: tuple[str, str], bias: str | None) -> str:
    text = (
        f"whole = MatMulInteger({factors})\nproduct = CastLike(whole, {scales[0]})\nscale = Mul({', '.join(scales)})\n"
    )
    return text + (
        f"scaled = Mul(product, scale)\ny0 = Add(scaled, {bias})\n" if bias else "y0 = Mul(product, scale)\n"
    )


def _matmul_integer_to_float(a: Attributes, has: Has) -> str:
    zeros = ", ".join(f"x{i}" if has(i) else "" for i in (4, 5)[: 2 if has(5) else 1])
    return _integer_matmul(f"x0, x1, {zeros}", ("x2", "x3"), "x6" if has(6) else None)


def _dynamic_quantize_matmul(a: Attributes, has: Has) -> str:
    factors = "codes, x1, zero, x3" if has(3) else "codes, x1, zero"
    text = "codes, x_scale, zero = DynamicQuantizeLinear(x0)\n"
    return text + _integer_matmul(factors, ("x_scale", "x2"), "x4" if has(4) else None)


_WRITERS: dict[str, Callable[[Attributes, Has], str | None]] = {
    **ATTENTION,
    "BiasGelu": _gelu,
    "DequantizeLinear": _dequantize,
    "DynamicQuantizeMatMul": _dynamic_quantize_matmul,
    "EmbedLayerNormalization": _embed_layer_norm,
    "FastGelu": _fast_gelu,
    "FusedMatMul": _fused_matmul,
    "Gelu": _gelu,
    "GroupQueryAttention": group_query_attention,
    "MatMulIntegerToFloat": _matmul_integer_to_float,
    "QuantizeLinear": _quantize,
    "QuickGelu": _quick_gelu,
    "SimplifiedLayerNormalization": _simplified_layer_norm,
    "SkipLayerNormalization": _skip_layer_norm,
    "SkipSimplifiedLayerNormalization": _skip_rms_norm,
    "TensorScatter": tensor_scatter,
}

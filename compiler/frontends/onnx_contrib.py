"""Operators of onnxruntime's own domain, ``com.microsoft``, as functions of standard ones.

    Y = com.microsoft.FastGelu(X, B)
  becomes what the operator is defined to compute:
    Z = Add(X, B); Y = Gelu<approximate = "tanh">(Z)

onnxruntime's optimizers and exporters put them into models. Inputs that a node lacks and attributes that it has decide
what its function holds, so one is written for each node. What is not covered here has no lowering.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import onnx
from onnx import FunctionProto, NodeProto

DOMAIN = "com.microsoft"
UNCLAIMED = ("SimplifiedLayerNormalization",)
MOST_INPUTS = 12
OLDEST = 15  # of the versions of the standard operators that the functions can be written in

Attributes = dict[str, Any]  # the node's; "opset" is the version, "shapes" are those of the inputs
Shape = Sequence[int | None] | None  # without the sizes that are not known; None where the rank is not
Has = Callable[[int], bool]  # whether the node has an input


def adopt(model: onnx.ModelProto) -> None:
    """Gives operators that onnxruntime writes without a domain, though no standard has them, its own one."""
    found = [node for node in model.graph.node if node.op_type in UNCLAIMED and not node.domain]
    for node in found:
        node.domain = DOMAIN
    if found and all(o.domain != DOMAIN for o in model.opset_import):
        model.opset_import.append(onnx.helper.make_opsetid(DOMAIN, 1))


def function_of(node: NodeProto, opset: int, shapes: Sequence[Shape]) -> FunctionProto | None:
    """The function that `node` calls, in that version of the standard operators; None where none is known.

    `shapes` are those of its inputs, as far as they are known.
    """
    if opset < OLDEST:
        return None
    write = _WRITERS.get(node.op_type) if node.domain == DOMAIN else None
    if write is None:
        return None
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute} | {"opset": opset}
    attributes["shapes"] = [*shapes, *[None] * (MOST_INPUTS - len(shapes))]

    def has(i: int) -> bool:
        return i < len(node.input) and bool(node.input[i])

    body = write(attributes, has)
    if body is None:
        return None
    inputs = ", ".join(f"x{i}" for i in range(len(node.input)) if has(i))
    outputs = ", ".join(f"y{i}" for i, name in enumerate(node.output) if name)
    return onnx.parser.parse_function(
        f'<opset_import: ["" : {opset}], domain: "{DOMAIN}"> {node.op_type} ({inputs}) => ({outputs}) {{\n{body}\n}}'
    )


def _number(name: str, value: float) -> str:
    return f"{name}_64 = Constant<value_float = {float(value)!r}>()\n{name} = CastLike({name}_64, x0)\n"


def _ints(name: str, *values: int) -> str:
    return f"{name} = Constant<value_ints = [{', '.join(map(str, values))}]>()\n"


def _mean(a: Attributes, name: str, source: str) -> str:
    """Along the last dimension, which stays."""
    if a["opset"] < 18:
        return f"{name} = ReduceMean<axes = [-1]>({source})\n"
    return _ints(f"{name}_axis", -1) + f"{name} = ReduceMean({source}, {name}_axis)\n"


def _thirds(a: Attributes, names: str, source: str, axis: int) -> str:
    parts = ", num_outputs = 3" if a["opset"] >= 18 else ""
    return f"{names} = Split<axis = {axis}{parts}>({source})\n"


# Element-wise.


def _gelu(a: Attributes, has: Has) -> str:
    """x·(1 + erf(x/√2))/2, of the sum of the inputs."""
    text = "z = Add(x0, x1)\n" if has(1) else "z = Identity(x0)\n"
    text += _number("root", math.sqrt(2)) + _number("unit", 1.0) + _number("half", 0.5)
    return text + "r = Div(z, root)\ne = Erf(r)\nu = Add(e, unit)\nh = Mul(z, half)\ny0 = Mul(h, u)"


def _fast_gelu(a: Attributes, has: Has) -> str:
    """x·(1 + tanh(√(2/π)·(x + 0.044715·x³)))/2, of the sum of the inputs."""
    text = "z = Add(x0, x1)\n" if has(1) else "z = Identity(x0)\n"
    text += _number("outer", math.sqrt(2 / math.pi)) + _number("inner", 0.044715) + _number("unit", 1.0)
    text += _number("half", 0.5) + "zz = Mul(z, z)\nc = Mul(zz, inner)\nd = Add(c, unit)\nf = Mul(z, d)\n"
    return text + "g = Mul(f, outer)\nt = Tanh(g)\nu = Add(t, unit)\nh = Mul(z, half)\ny0 = Mul(h, u)"


def _quick_gelu(a: Attributes, has: Has) -> str:
    return _number("alpha", a.get("alpha", 1.702)) + "z = Mul(x0, alpha)\ns = Sigmoid(z)\ny0 = Mul(x0, s)"


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
    return text + "m = MatMul(z0, z1)\n" + _number("alpha", a.get("alpha", 1.0)) + "y0 = Mul(m, alpha)"


# Normalisations.


def _rms_norm(a: Attributes, x: str, scale: str, epsilon: float, shift: str | None = None) -> str:
    return (
        _number("epsilon", epsilon)
        + f"squares = Mul({x}, {x})\n{_mean(a, 'mean', 'squares')}shifted = Add(mean, epsilon)\n"
        + f"rms = Sqrt(shifted)\nnormed = Div({x}, rms)\n"
        + (f"scaled = Mul(normed, {scale})\ny0 = Add(scaled, {shift})" if shift else f"y0 = Mul(normed, {scale})")
    )


def _layer_norm(a: Attributes, x: str, scale: str, shift: str | None, epsilon: float) -> str:
    centred = f"{_mean(a, 'centre', x)}centred = Sub({x}, centre)\n"
    return centred + _rms_norm(a, "centred", scale, epsilon, shift)


def _skip(a: Attributes, has: Has, bias: int) -> str:
    return "t = Add(x0, x1)\n" + (f"s = Add(t, x{bias})\n" if has(bias) else "s = Identity(t)\n") + "y3 = Identity(s)\n"


def _skip_layer_norm(a: Attributes, has: Has) -> str:
    return _skip(a, has, 4) + _layer_norm(a, "s", "x2", "x3" if has(3) else None, a.get("epsilon", 1e-12))


def _skip_rms_norm(a: Attributes, has: Has) -> str:
    return _skip(a, has, 3) + _rms_norm(a, "s", "x2", a.get("epsilon", 1e-12))


def _simplified_layer_norm(a: Attributes, has: Has) -> str | None:
    return _rms_norm(a, "x0", "x1", a.get("epsilon", 1e-5)) if a.get("axis", -1) == -1 else None


# Attention.


def _heads(name: str, source: str, heads: int) -> str:
    """[batch, length, heads·size] as [batch, heads, length, size]."""
    return (
        _ints(f"{name}_shape", 0, 0, heads, -1)
        + f"{name}_split = Reshape({source}, {name}_shape)\n{name} = Transpose<perm = [0, 2, 1, 3]>({name}_split)\n"
    )


def _scores_and_output(a: Attributes, mask: str, bias: str | None, causal: bool) -> str:
    """From q, k and v in heads to y0; `mask`: lines that make the additive mask `m`, or nothing."""
    text = "kt = Transpose<perm = [0, 1, 3, 2]>(k)\nproducts = MatMul(q, kt)\n"
    if a.get("scale"):
        text += _number("factor", a["scale"]) + "s0 = Mul(products, factor)\n"
    else:
        text += (
            "size_int = Shape<start = 3, end = 4>(q)\nsize = CastLike(size_int, q)\nroot = Sqrt(size)\n"
            "s0 = Div(products, root)\n"
        )
    text += f"s1 = Add(s0, {bias})\n" if bias else "s1 = Identity(s0)\n"
    text += f"{mask}s2 = Add(s1, m)\n" if mask else "s2 = Identity(s1)\n"
    if causal:
        text += _number("low", a.get("mask_filter_value", -10000.0)) + (
            "q_end = Shape<start = 2, end = 3>(q)\nk_end = Shape<start = 2, end = 3>(k)\n"
            "zero = Constant<value_int = 0>()\none = Constant<value_int = 1>()\n"
            "none = Constant<value_ints = [0]>()\nq_last = Squeeze(q_end, none)\n"
            "k_last = Squeeze(k_end, none)\nrows = Range(zero, q_last, one)\ncolumns = Range(zero, k_last, one)\n"
            "past = Sub(k_last, q_last)\nrow_ends = Add(rows, past)\nsecond = Constant<value_ints = [1]>()\n"
            "row_column = Unsqueeze(row_ends, second)\nseen = LessOrEqual(columns, row_column)\n"
            "s3 = Where(seen, s2, low)\n"
        )
    else:
        text += "s3 = Identity(s2)\n"
    return (
        text
        + "p = Softmax<axis = -1>(s3)\no = MatMul(p, v)\nt = Transpose<perm = [0, 2, 1, 3]>(o)\n"
        + _ints("merged", 0, 0, -1)
        + "y0 = Reshape(t, merged)"
    )


def _padding(a: Attributes, i: int) -> str | None:
    """The additive mask of input `i`: ones and zeros [batch, keys] or [batch, queries, keys], or lengths [batch]."""
    shape, batch = a["shapes"][i], (a["shapes"][0] or [None])[0]
    if shape is None or len(shape) > 3 or (len(shape) == 1 and (batch is None or shape[0] != batch)):
        return None
    text = f"kept = Identity(x{i})\n"
    if len(shape) == 1:
        text = "last = Constant<value_ints = [1]>()\nfirst_key = Constant<value_int = 0>()\n"
        text += "next_key = Constant<value_int = 1>()\nnone0 = Constant<value_ints = [0]>()\n"
        text += "keys_end = Shape<start = 2, end = 3>(k)\nkeys = Squeeze(keys_end, none0)\n"
        text += f"key = Range(first_key, keys, next_key)\nlengths_int = Cast<to = 7>(x{i})\n"
        text += "lengths = Unsqueeze(lengths_int, last)\nkept = Less(key, lengths)\n"
    return (
        text
        + _ints("inner", *((1,) if len(shape) == 3 else (1, 2)))
        + _number("fill", a.get("mask_filter_value", -10000.0))
        + _number("unit", 1.0)
        + "mask4 = Unsqueeze(kept, inner)\nmask_float = CastLike(mask4, x0)\nabsent = Sub(unit, mask_float)\n"
        + "m = Mul(absent, fill)\n"
    )


def _multi_head_attention(a: Attributes, has: Has) -> str | None:
    if not (has(1) and has(2)) or any(has(i) for i in (8, 9)) or has(6) != has(7) or "num_heads" not in a:
        return None  # packed queries, keys and values; a past in a buffer
    ranks = [None if shape is None else len(shape) for shape in a["shapes"]]
    if ranks[0] != 3 or ranks[1] not in (3, 4) or ranks[1] != ranks[2]:
        return None
    text = ""
    names = ["x0", "x1", "x2"]
    if has(3):
        text += _thirds(a, "bq, bk, bv", "x3", 0)
        biases = list(zip(names, ("bq", "bk", "bv"), strict=True))[: 1 if ranks[1] == 4 else 3]
        text += "".join(f"{n}b = Add({n}, {b})\n" for n, b in biases)
        names = [f"{n}b" for n, _ in biases] + names[len(biases) :]
    for name, source, rank in zip("qkv", names, ranks[:3], strict=True):
        own = name if name == "q" else f"{name}_new"
        text += f"{own} = Identity({source})\n" if rank == 4 else _heads(own, source, a["num_heads"])
    for name, past in (("k", 6), ("v", 7)):
        text += f"{name} = " + (f"Concat<axis = 2>(x{past}, {name}_new)\n" if has(past) else f"Identity({name}_new)\n")
    text += "y1 = Identity(k)\ny2 = Identity(v)\n"
    mask = _padding(a, 4) if has(4) else ""
    if mask is None:
        return None
    return text + _scores_and_output(a, mask, "x5" if has(5) else None, bool(a.get("unidirectional")))


def _attention(a: Attributes, has: Has) -> str | None:
    if any(has(i) for i in (4, 6)) or a.get("do_rotary") or a.get("qkv_hidden_sizes"):
        return None
    text = "packed0 = MatMul(x0, x1)\n" + ("packed = Add(packed0, x2)\n" if has(2) else "packed = Identity(packed0)\n")
    text += _thirds(a, "fq, fk, fv", "packed", -1)
    for name in "qkv":
        text += _heads(name, f"f{name}", a["num_heads"])
    mask = _padding(a, 3) if has(3) else ""
    if mask is None:
        return None
    return text + _scores_and_output(a, mask, "x5" if has(5) else None, bool(a.get("unidirectional")))


def _rotary(a: Attributes, has: Has) -> str | None:
    """Pairs of elements, halves of a head or neighbours, turned by angles that stand in tables by position."""
    x, positions, table = a["shapes"][0], a["shapes"][1], a["shapes"][2]
    if x is None or positions is None or table is None or table[1] is None or a.get("rotary_embedding_dim"):
        return None
    if a.get("is_packed_batching") or a.get("scale", 1.0) != 1.0:
        return None
    size, flat = 2 * table[1], len(x) == 3
    text = "h = Identity(x0)\n"
    if flat:
        text = _ints("split_shape", 0, 0, -1, size) + "split = Reshape(x0, split_shape)\n"
        text += "h = Transpose<perm = [0, 2, 1, 3]>(split)\n"
    if len(positions) == 1:  # where the first one stands
        text += (
            "zero = Constant<value_int = 0>()\none = Constant<value_int = 1>()\nnone = Constant<value_ints = [0]>()\n"
        )
        text += "length1 = Shape<start = 2, end = 3>(h)\nlength = Squeeze(length1, none)\n"
        text += "row = Range(zero, length, one)\nat0 = Add(row, x1)\nat = Unsqueeze(at0, none)\n"
    else:
        text += "at = Identity(x1)\n"
    text += _ints("heads_axis", 1) + "cos0 = Gather(x2, at)\nsin0 = Gather(x3, at)\n"
    text += "cos = Unsqueeze(cos0, heads_axis)\nsin = Unsqueeze(sin0, heads_axis)\n"
    outer, axis = "h", -1
    if a.get("interleaved"):
        outer, axis = "pairs", -2
        text += _ints("pairs_shape", 0, 0, 0, size // 2, 2) + "pairs0 = Reshape(h, pairs_shape)\n"
        text += "pairs = Transpose<perm = [0, 1, 2, 4, 3]>(pairs0)\n"
        text += _ints("axis", -2)
    parts = ", num_outputs = 2" if a["opset"] >= 18 else ""
    text += f"a0, b0 = Split<axis = {axis}{parts}>({outer})\n"
    squeeze = "Squeeze({}, axis)" if a.get("interleaved") else "Identity({})"
    text += f"a = {squeeze.format('a0')}\nb = {squeeze.format('b0')}\n"
    text += "ac = Mul(a, cos)\nbs = Mul(b, sin)\nbc = Mul(b, cos)\nas = Mul(a, sin)\n"
    text += "c = Sub(ac, bs)\nd = Add(bc, as)\n"
    if a.get("interleaved"):
        text += _ints("back", 0, 0, 0, size) + _ints("last", -1)
        text += "c1 = Unsqueeze(c, last)\nd1 = Unsqueeze(d, last)\n"
        text += "joined0 = Concat<axis = -1>(c1, d1)\njoined = Reshape(joined0, back)\n"
    else:
        text += "joined = Concat<axis = -1>(c, d)\n"
    if not flat:
        return text + "y0 = Identity(joined)"
    return text + "t = Transpose<perm = [0, 2, 1, 3]>(joined)\n" + _ints("merged", 0, 0, -1) + "y0 = Reshape(t, merged)"


_WRITERS: dict[str, Callable[[Attributes, Has], str | None]] = {
    "Attention": _attention,
    "BiasGelu": _gelu,
    "FastGelu": _fast_gelu,
    "FusedMatMul": _fused_matmul,
    "Gelu": _gelu,
    "MultiHeadAttention": _multi_head_attention,
    "QuickGelu": _quick_gelu,
    "RotaryEmbedding": _rotary,
    "SimplifiedLayerNormalization": _simplified_layer_norm,
    "SkipLayerNormalization": _skip_layer_norm,
    "SkipSimplifiedLayerNormalization": _skip_rms_norm,
}

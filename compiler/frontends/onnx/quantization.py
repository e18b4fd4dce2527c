"""Quantization in ONNX graphs: conversions in steps that are lowered to linalg.

    Y = QuantizeLinear(X, S) : f8E4M3FN;  Z = DequantizeLinear(Y, S)
  becomes
    Y = Cast(Min(448, Max(-448, Div(X, S)))) : f8E4M3FN;  Z = Mul(Cast(Y), S)

A Cast to 8 bits saturates, unless it has ``saturate = 0``. In torch's dialect casts are ``aten.to.dtype``.

Of integers, whose lowering knows neither scales of an axis nor types of 4 bits, and would put matmuls of integers where
no attention is found:

    Y = QuantizeLinear(X, S, P) : i8;  Z = DequantizeLinear(Y, S, P)
  becomes
    N = Min(127, Max(-128, Add(Round(Div(X, S)), Cast(P)))) : f32;  Z = Mul(Sub(N, Cast(P)), S)

and N is cast to i8 where Y is used otherwise.
"""

from typing import Any

import ml_dtypes
import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, helper, numpy_helper

from ....dialects.mlir import ir
from .limits import TYPE_NAMES
from .rewriting import replace_nodes, types_of

# By ONNX's number of the type: what ml_dtypes calls it, torch's number.
TYPES = {
    TensorProto.FLOAT8E4M3FN: ("float8_e4m3fn", 24),
    TensorProto.FLOAT8E4M3FNUZ: ("float8_e4m3fnuz", 26),
    TensorProto.FLOAT8E5M2: ("float8_e5m2", 23),
    TensorProto.FLOAT8E5M2FNUZ: ("float8_e5m2fnuz", 25),
}

INTEGERS = {
    TensorProto.DataType.Value(name)
    for name in ("UINT2", "INT2", "UINT4", "INT4", "UINT8", "INT8", "UINT16", "INT16")
    if name in TYPE_NAMES
}


def in_steps(model: ModelProto) -> bool:
    """Writes the conversions of a model whose types were inferred in steps; whether there are any."""
    graph = model.graph
    steps = _Steps(types_of(graph), _used_otherwise(graph))
    for node in graph.node:
        steps.add(node)
    if len(steps.nodes) == len(graph.node):
        return False
    replace_nodes(graph, steps.nodes, steps.constants)
    return True


def _used_otherwise(graph: GraphProto) -> set[str]:
    """The values that are more than the operands of DequantizeLinear."""
    used = {value.name for value in graph.output}
    for node in graph.node:
        if node.op_type != "DequantizeLinear":
            used.update(node.input)
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                used |= _used_otherwise(inner) | {name for n in inner.node for name in n.input}
    return used


class _Steps:
    """The nodes of a graph, some of them in steps. `used`: which values DequantizeLinear is not alone to read."""

    def __init__(self, types: dict[str, TypeProto.Tensor], used: set[str]):
        self.types, self.used = types, used
        self.rounded: dict[str, str] = {}  # by the name of a quantized integer: the same as a float
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []

    def add(self, node: NodeProto) -> None:
        given: dict[str, Any] = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        source, result = (names[0] if names else "" for names in (node.input, node.output))
        of_8_bits = self._element(source) in TYPES
        to: int = given["to"] if node.op_type == "Cast" else self._element(result)
        if node.op_type == "Cast" and to in TYPES and given.get("saturate", 1):
            self._rounded(node, source, to)
        elif node.op_type == "QuantizeLinear" and to in TYPES and not given.get("block_size"):
            scale = self._scale(node, given.get("axis", 1))
            self._rounded(node, self._step(node, "Div", [source, scale], self._element(source)), to)
        elif node.op_type == "DequantizeLinear" and of_8_bits and not given.get("block_size"):
            element = self._element(node.input[1])
            wide = self._step(node, "Cast", [source], element, to=element)
            self._step(node, "Mul", [wide, self._scale(node, given.get("axis", 1))], element, result)
        elif node.op_type == "QuantizeLinear" and to in INTEGERS and self._is_plain(node, given):
            self._quantized(node, given.get("axis", 1), to)
        elif node.op_type == "DequantizeLinear" and self._is_plain(node, given):
            self._dequantized(node, given.get("axis", 1))
        else:
            self.nodes.append(node)

    def _is_plain(self, node: NodeProto, given: dict[str, Any]) -> bool:
        """Whether it computes in the type of its scale, without blocks, and what it needs to know is known."""
        element = self._element(node.input[1])
        is_float = element in (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
        is_known = all(name in self.types and self.types[name].HasField("shape") for name in node.input[:2])
        own = given.get("precision", element) == element and given.get("output_dtype", element) == element
        own |= node.op_type == "QuantizeLinear" and not given.get("precision")
        return is_float and is_known and own and not given.get("block_size")

    def _quantized(self, node: NodeProto, axis: int, to: int) -> None:
        element = self._element(node.input[1])
        dtype = helper.tensor_dtype_to_np_dtype(element)
        value = self._cast(node, node.input[0], element)
        value = self._step(node, "Div", [value, self._scale(node, axis)], element)
        value = self._step(node, "Round", [value], element)
        if (zero := self._zero(node, axis, element)) is not None:
            value = self._step(node, "Add", [value, zero], element)
        limits = ml_dtypes.iinfo(helper.tensor_dtype_to_np_dtype(to))
        for operator, limit in (("Max", limits.min), ("Min", limits.max)):
            value = self._step(node, operator, [self._constant(node, float(limit), dtype), value], element)
        self.rounded[node.output[0]] = value
        if node.output[0] in self.used:
            self._step(node, "Cast", [value], to, node.output[0], to=to)

    def _dequantized(self, node: NodeProto, axis: int) -> None:
        element = self._element(node.input[1])
        value = self.rounded.get(node.input[0], node.input[0])
        value = self._cast(node, value, element)
        if (zero := self._zero(node, axis, element)) is not None:
            value = self._step(node, "Sub", [value, zero], element)
        self._step(node, "Mul", [value, self._scale(node, axis)], element, node.output[0])

    def _zero(self, node: NodeProto, axis: int, element: int) -> str | None:
        """The node's zero point as a float, in a shape that goes with its input's."""
        if len(node.input) < 3 or not node.input[2]:
            return None
        return self._along(node, self._cast(node, node.input[2], element), node.input[1], axis, element)

    def _cast(self, node: NodeProto, source: str, element: int) -> str:
        if self._element(source) == element:
            return source
        return self._step(node, "Cast", [source], element, to=element)

    def _rounded(self, node: NodeProto, source: str, to: int) -> None:
        element = self._element(source)
        most = float(ml_dtypes.finfo(TYPES[to][0]).max)
        dtype = helper.tensor_dtype_to_np_dtype(element)
        for operator, limit in (("Max", -most), ("Min", most)):  # NaN stays NaN
            source = self._step(node, operator, [self._constant(node, limit, dtype), source], element)
        self._step(node, "Cast", [source], to, node.output[0], to=to, saturate=0)

    def _scale(self, node: NodeProto, axis: int) -> str:
        """The node's scale in a shape that goes with its input's."""
        return self._along(node, node.input[1], node.input[1], axis, self._element(node.input[1]))

    def _along(self, node: NodeProto, value: str, like: str, axis: int, element: int) -> str:
        """`value`, of the shape of `like`, with more dimensions where it is a vector along the input's `axis`."""
        rank = len(self.types[node.input[0]].shape.dim)
        if len(self.types[like].shape.dim) != 1 or rank < 2:
            return value
        axes = [d for d in range(rank) if d != axis % rank]
        return self._step(node, "Unsqueeze", [value, self._constant(node, axes, np.int64)], element)

    def _step(self, node: NodeProto, operator: str, inputs: list[str], element: int, name: str = "", **given) -> str:
        name = name or f"{node.output[0]} ({len(self.nodes)})"
        self.nodes.append(helper.make_node(operator, inputs, [name], node.name or node.output[0], **given))
        if name not in self.types:
            self.types[name] = helper.make_tensor_type_proto(element, None).tensor_type
        return name

    def _constant(self, node: NodeProto, value: float | list[int], dtype: np.dtype | type) -> str:
        name = f"{node.output[0]} ({len(self.nodes)}.{len(self.constants)})"
        self.constants.append(numpy_helper.from_array(np.array(value, dtype), name))
        return name

    def _element(self, name: str) -> int:
        return self.types[name].elem_type if name in self.types else TensorProto.UNDEFINED


def lower_casts(module: ir.Module) -> None:
    """Casts to floats of 8 bits, of which the lowering of ONNX's operators knows nothing, in torch's dialect."""
    found: list[ir.Operation] = []

    def look(op: ir.Operation) -> ir.WalkResult:
        is_cast = op.name == "torch.operator" and op.attributes["name"].value == "onnx.Cast"
        if is_cast and ir.IntegerAttr(op.attributes["torch.onnx.to"]).value in TYPES:
            found.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(look)
    for op in found:
        _, number = TYPES[ir.IntegerAttr(op.attributes["torch.onnx.to"]).value]
        with ir.InsertionPoint(op), op.location:
            i64, i1 = (ir.IntegerType.get_signless(n) for n in (64, 1))
            dtype = _constant("int", value=ir.IntegerAttr.get(i64, number))
            no = _constant("bool", value=ir.IntegerAttr.get(i1, 0))
            operands = [op.operands[0], dtype, no, no, _constant("none")]
            kind = op.results[0].type
            new = ir.Operation.create("torch.aten.to.dtype", results=[kind], operands=operands)
            op.results[0].replace_all_uses_with(new.result)
        op.erase()


def _constant(kind: str, **attributes: ir.Attribute) -> ir.Value:
    type_ = ir.Type.parse(f"!torch.{kind}")
    return ir.Operation.create(f"torch.constant.{kind}", results=[type_], attributes=attributes).result

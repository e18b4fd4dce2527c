"""Models of ONNX written as functions of Python: operators are calls of `op`, sums and products Python's own.

    writer = Writer(opset=17, kind=TensorProto.FLOAT)
    q, k = writer.input("q", [2, 9, 8]), writer.input("k", ["b", 9, 8])
    s = q @ writer.Transpose(k, perm=[0, 2, 1]) * 0.35
    model = writer.model([writer.Softmax(s, axis=-1)])

Numbers and lists become constants: numbers of the type of what they meet, lists of integers of int64. Attributes that
are inputs in other versions are written as `opset` has them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

CONTRIBUTED = "com.microsoft"
OF_BOOLEANS = ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Not", "And", "Or", "IsNaN")
OF_SIZES = ("Shape", "Size")
OF_PLACES = ("Gather", "Range", "Trilu")  # whose numbers are places, not elements
INT64 = TensorProto.INT64


@dataclasses.dataclass(frozen=True, eq=False)
class Value:
    writer: Writer
    name: str
    kind: int

    def _with(self, op_type: str, other: Any, is_turned: bool = False) -> Value:
        operands = (other, self) if is_turned else (self, other)
        return self.writer.node(op_type, *operands)

    def __add__(self, other: Any) -> Value:
        return self._with("Add", other)

    def __radd__(self, other: Any) -> Value:
        return self._with("Add", other, True)

    def __sub__(self, other: Any) -> Value:
        return self._with("Sub", other)

    def __rsub__(self, other: Any) -> Value:
        return self._with("Sub", other, True)

    def __mul__(self, other: Any) -> Value:
        return self._with("Mul", other)

    def __rmul__(self, other: Any) -> Value:
        return self._with("Mul", other, True)

    def __truediv__(self, other: Any) -> Value:
        return self._with("Div", other)

    def __rtruediv__(self, other: Any) -> Value:
        return self._with("Div", other, True)

    def __matmul__(self, other: Any) -> Value:
        return self._with("MatMul", other)

    def __mod__(self, other: Any) -> Value:
        return self._with("Mod", other)

    def __pow__(self, other: Any) -> Value:
        return self._with("Pow", other)

    def __neg__(self) -> Value:
        return self.writer.node("Neg", self)

    def __lt__(self, other: Any) -> Value:
        return self._with("Less", other)

    def __le__(self, other: Any) -> Value:
        return self._with("LessOrEqual", other)

    def __gt__(self, other: Any) -> Value:
        return self._with("Greater", other)

    def __ge__(self, other: Any) -> Value:
        return self._with("GreaterOrEqual", other)

    def __and__(self, other: Any) -> Value:
        return self._with("And", other)

    def __or__(self, other: Any) -> Value:
        return self._with("Or", other)

    def __invert__(self) -> Value:
        return self.writer.node("Not", self)


class Writer:
    """`are_weights`: constants are initializers, not nodes. `way_of_sizes`: how a size is read, "Gather", "Slice" or
    "Shape"."""

    def __init__(self, opset: int, kind: int, are_weights: bool = False, way_of_sizes: str = "Gather"):
        self.opset, self.kind = opset, kind
        self.are_weights, self.way_of_sizes = are_weights, way_of_sizes
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.weights: list[TensorProto] = []
        self._count = 0

    def __getattr__(self, op_type: str) -> Callable[..., Any]:
        if not op_type[0].isupper():
            raise AttributeError(op_type)
        return partial(self.node, op_type)

    def input(self, name: str, dims: Sequence[int | str], kind: int) -> Value:
        self.inputs.append(helper.make_tensor_value_info(name, kind, list(dims)))
        return Value(self, name, kind)

    def weight(self, name: str, value: np.ndarray) -> Value:
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return Value(self, name, self.weights[-1].data_type)

    def node(self, op_type: str, *inputs: Any, outputs: int = 1, domain: str = "", **attributes: Any) -> Any:
        if "axes" in attributes and (op_type == "ReduceSum" or self.opset >= 18):
            inputs = (*inputs, attributes.pop("axes"))
        if op_type == "Split" and len(inputs) == 1 and self.opset >= 18:
            attributes["num_outputs"] = outputs
        values = [x for x in inputs if isinstance(x, Value)]
        like = values[1 if op_type == "Where" and len(values) > 1 else 0].kind if values else INT64
        like = INT64 if op_type in OF_PLACES else like
        given = [self._value(x, like) for x in inputs]
        names = [self._name() for _ in range(outputs)]
        written = [x.name if x is not None else "" for x in given]
        self.nodes.append(helper.make_node(op_type, written, names, domain=domain, **attributes))
        kind = self._kind(op_type, given, attributes)
        results = tuple(Value(self, name, kind) for name in names)
        return results[0] if outputs == 1 else results

    def _name(self) -> str:
        self._count += 1
        return f"x{self._count}"

    def _value(self, x: Any, like: int) -> Value | None:
        if x is None or isinstance(x, Value):
            return x
        is_places = isinstance(x, list) and all(isinstance(n, int) for n in x)
        return self.constant(x, INT64 if is_places else like)

    def _kind(self, op_type: str, inputs: Sequence[Value | None], attributes: dict[str, Any]) -> int:
        if op_type in OF_BOOLEANS:
            return TensorProto.BOOL
        if op_type in OF_SIZES:
            return INT64
        if op_type == "Cast":
            return attributes["to"]
        if op_type == "ConstantOfShape":
            return attributes["value"].data_type
        of = inputs[1 if op_type in ("Where", "CastLike") else 0]
        assert of is not None
        return of.kind

    def constant(self, x: Any, kind: int) -> Value:
        tensor = numpy_helper.from_array(np.asarray(x).astype(helper.tensor_dtype_to_np_dtype(kind)), self._name())
        if self.are_weights:
            self.weights.append(tensor)
        else:
            self.nodes.append(helper.make_node("Constant", [], [tensor.name], value=tensor))
        return Value(self, tensor.name, kind)

    # What exporters make of several nodes.

    def size(self, x: Value, d: int) -> Value:
        """A list of that one size."""
        if self.way_of_sizes == "Shape" and self.opset >= 15:
            return self.Shape(x, start=d, end=d + 1)
        if self.way_of_sizes == "Slice":
            return self.Slice(self.Shape(x), [d], [d + 1], [0])
        return self.Unsqueeze(self.Gather(self.Shape(x), d), [0])

    def shape(self, *parts: Any) -> Value | list[int]:
        """Of lists that `size` made, and numbers."""
        if all(isinstance(part, int) for part in parts):
            return list(parts)
        return self.Concat(*([part] if isinstance(part, int) else part for part in parts), axis=0)

    def reshape(self, x: Value, *parts: Any) -> Value:
        return self.Reshape(x, self.shape(*parts))

    def cut(self, x: Value, axis: int, start: Any, end: Any, step: int = 1) -> Value:
        start, end = ([n] if isinstance(n, int) else n for n in (start, end))
        return self.Slice(x, start, end, [axis], *([[step]] if step != 1 else []))

    def places(self, count: Any) -> Value:
        """0, 1, … below a size, a number or in a list."""
        return self.Range(0, count if isinstance(count, int) else self.Squeeze(count, [0]), 1)

    def filled(self, shape: Any, value: float, kind: int) -> Value:
        element = np.array([value]).astype(helper.tensor_dtype_to_np_dtype(kind))
        return self.ConstantOfShape(shape, value=numpy_helper.from_array(element))

    def cast(self, x: Value, kind: int | None = None) -> Value:
        """To the type of the program, if no other is said."""
        return self.Cast(x, to=self.kind if kind is None else kind)

    def branch(self, condition: Value, then: Callable[[], Value], other: Callable[[], Value]) -> Value:
        bodies = []
        for name, write in (("then", then), ("else", other)):
            outside, self.nodes = self.nodes, []
            result = self.Identity(write())
            value = helper.make_tensor_value_info(result.name, result.kind, None)
            bodies.append(helper.make_graph(self.nodes, name, [], [value]))
            self.nodes = outside
        name = self._name()
        self.nodes.append(
            helper.make_node("If", [condition.name], [name], then_branch=bodies[0], else_branch=bodies[1])
        )
        return Value(self, name, result.kind)

    def model(self, results: Sequence[Value]) -> onnx.ModelProto:
        outputs = []
        for i, result in enumerate(results):
            self.nodes.append(helper.make_node("Identity", [result.name], [f"y{i}"]))
            outputs.append(helper.make_tensor_value_info(f"y{i}", result.kind, None))
        graph = helper.make_graph(self.nodes, "program", self.inputs, outputs, self.weights)
        opsets = [helper.make_opsetid("", self.opset)]
        if any(node.domain == CONTRIBUTED for node in self.nodes):
            opsets.append(helper.make_opsetid(CONTRIBUTED, 1))
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

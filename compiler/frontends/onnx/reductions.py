"""Reductions that are others and a function of these, written out.

  y = ReduceLogSumExp<keepdims = 0>(x, axes)
becomes
  m = ReduceMax(x, axes);  h = Where(Equal(Abs(m), ∞), 0, m)
  z = Add(Log(ReduceSum(Exp(Sub(x, h)), axes)), h);  y = Squeeze(z, axes)
and
  y = ReduceL2(x, axes)           y = ReduceLogSum(x, axes)
become
  y = Sqrt(ReduceSumSquare(x, axes))    y = Log(ReduceSum(x, axes))

The importer sums exponentials in double precision, which overflow all the same and are not seen to be a softmax's, and
ends the process on all three along dimensions of one element.
"""

import math

from onnx import ModelProto, NodeProto, TensorProto, helper

from .rewriting import Scope, numbers, rewrite_all, sizes_of

PARTS = {"ReduceL2": ("ReduceSumSquare", "Sqrt"), "ReduceLogSum": ("ReduceSum", "Log")}
FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)
AS_INPUT = {"ReduceSum": 13}  # the versions since which axes are an input; of the others:
SINCE = 18


def in_parts(model: ModelProto) -> bool:
    """Rewrites these reductions, in place, also in the bodies of nodes; whether there was one."""
    opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 1)
    return rewrite_all(model.graph, lambda node, scope: _parts(node, scope, opset))


def _parts(node: NodeProto, scope: Scope, opset: int) -> list[NodeProto] | None:
    """The nodes that compute the same; None where the importer knows it as it is."""
    kind = scope.types.get(node.input[0]) if node.input else None
    if node.domain or kind is None or kind.elem_type not in FLOATS:
        return None
    if node.op_type not in PARTS and node.op_type != "ReduceLogSumExp":
        return None
    reduction = _Reduction(node, opset)
    if reduction.is_none:
        return None
    if node.op_type in PARTS:
        reduce, function = PARTS[node.op_type]
        reduction.reduced(reduce, node.input[0], f"{reduction.name}, reduced", reduction.keeps)
        reduction.add(function, [f"{reduction.name}, reduced"], reduction.name)
        return reduction.nodes
    sizes = sizes_of(kind)
    return None if sizes is None else _log_sum_exp(reduction, kind.elem_type, len(sizes))


def _log_sum_exp(reduction: "_Reduction", kind: int, rank: int) -> list[NodeProto]:
    """As torch has it: the largest one is put before the sum, unless it is infinite."""
    name, x = reduction.name, reduction.node.input[0]
    m, a, i, h, s, e, t, g, z = (f"{name}, part {i}" for i in range(9))
    reduction.reduced("ReduceMax", x, m, True)
    zero, infinity = f"{name}, zero", f"{name}, infinity"
    for constant, value in ((zero, 0.0), (infinity, math.inf)):
        tensor = helper.make_tensor(constant, kind, [], [value])
        reduction.nodes.append(helper.make_node("Constant", [], [constant], value=tensor))
    reduction.add("Abs", [m], a)
    reduction.add("Equal", [a, infinity], i)
    reduction.add("Where", [i, zero, m], h)
    reduction.add("Sub", [x, h], s)
    reduction.add("Exp", [s], e)
    reduction.reduced("ReduceSum", e, t, True)
    reduction.add("Log", [t], g)
    reduction.add("Add", [g, h], name if reduction.keeps else z)
    if not reduction.keeps:
        axes = reduction.axes
        if axes is None:
            axes = f"{name}, all axes"
            reduction.nodes.append(numbers(axes, range(rank)))
        reduction.add("Squeeze", [z, axes], name)
    return reduction.nodes


class _Reduction:
    """The nodes that are written in the place of `node`."""

    def __init__(self, node: NodeProto, opset: int):
        self.node, self.opset, self.name = node, opset, node.output[0]
        self.nodes: list[NodeProto] = []
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        self.keeps = bool(attributes.get("keepdims", 1))
        self.listed = attributes.get("axes")
        self.axes = node.input[1] if len(node.input) > 1 and node.input[1] else None
        self.is_none = self.axes is None and bool(attributes.get("noop_with_empty_axes"))
        if self.listed is not None:
            self.axes = f"{self.name}, axes"
            self.nodes.append(numbers(self.axes, self.listed))

    def add(self, op_type: str, inputs: list[str], output: str) -> None:
        self.nodes.append(helper.make_node(op_type, inputs, [output], self.node.name or self.name))

    def reduced(self, op_type: str, source: str, target: str, keeps: bool) -> None:
        attributes = {"keepdims": int(keeps)}
        if self.opset < AS_INPUT.get(op_type, SINCE) and self.listed is not None:
            made = helper.make_node(op_type, [source], [target], axes=self.listed, **attributes)
        else:
            made = helper.make_node(op_type, [source, *([self.axes] if self.axes else [])], [target], **attributes)
        made.name = self.node.name or self.name
        self.nodes.append(made)

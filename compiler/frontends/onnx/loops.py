"""Loops of ONNX as the importer knows them: it does not look at whether the condition holds before the first iteration,
and takes one that the body does not compute to hold.

  y = Loop(n, c, x) <body = (i, d, s) => (e, t) { e = Identity(d)  … }>
becomes
  m = Where(c, n, 0);  y = Loop(m, true, x) <…>
and where e = Identity(w) of a constant, or of what is computed around the loop, the first is the last unless w holds:
  m = Where(c, Where(w, n, Min(n, 1)), 0)

A condition that the body computes is all that it looks at, and not even that where the first one is known to hold. So
the body counts, too, and the first one comes with an argument (`HOLDS`) of which nothing is known:
  y = Loop(, And(HOLDS, And(c, n > 0)), x, 0) <body = (_, d, s, i) => (And(e, j < n), t, j) { e = …  j = Add(i, 1) }>
"""

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from .rewriting import Scope, constants_of, rewrite_all, scopes_of

MOST = 2**63 - 1  # iterations, of a loop that has a condition alone
HOLDS = "what always holds, and is no constant"  # a weight that is passed to the kernel


def counted(model: ModelProto) -> bool:
    """Rewrites these loops, in place, also in the bodies of nodes; whether there was one."""
    changed = rewrite_all(model.graph, _counted)
    if any(HOLDS in node.input for scope in scopes_of(model.graph) for node in scope.graph.node):
        model.graph.initializer.append(numpy_helper.from_array(np.array(True), HOLDS))
    return changed


def _counted(node: NodeProto, scope: Scope) -> list[NodeProto] | None:
    """The nodes that compute the same; None where the importer is right."""
    if node.op_type != "Loop" or node.domain:
        return None
    body = helper.get_attribute_value(next(a for a in node.attribute if a.name == "body"))
    if _is_computed(body):
        return _with_own_count(node)
    own = constants_of(body)
    first, others = node.input[1], _unchanged(body)
    is_started, is_repeated = (_holds({**scope.constants, **own}.get(name), name) for name in (first, others))
    if is_started and is_repeated and all(node.input[:2]):  # without a count or a condition it has no lowering
        return None
    loop, maker = NodeProto(), Maker(next(filter(None, node.output)), node.name)
    loop.CopyFrom(node)
    count = node.input[0] or maker.constant("most", MOST)
    if not is_repeated:
        if others in own:
            others = maker.add("is repeated", "Constant", value=own[others])
        once = maker.add("once", "Min", count, maker.constant("one", 1))
        count = maker.add("repeated", "Where", others, count, once)
    if not is_started:
        count = maker.add("started", "Where", first, count, maker.constant("none", 0))
    loop.input[0], loop.input[1] = count, maker.constant("true", True)
    return [*maker.nodes, loop]


def _holds(constant: TensorProto | None, name: str) -> bool:
    """Whether a condition always does; there is none without a name."""
    return not name or (constant is not None and bool(numpy_helper.to_array(constant).all()))


def _unchanged(body: GraphProto) -> str:
    """The condition that a loop's body hands on, where that is not its own and it does not compute it; else none."""
    name, _ = _condition(body)
    return "" if name == body.input[1].name else name


def _is_computed(body: GraphProto) -> bool:
    producer = _condition(body)[1]
    return producer is not None and producer.op_type != "Constant"


def _condition(body: GraphProto) -> tuple[str, NodeProto | None]:
    """Where the condition that a loop's body hands on comes from; None is what stands around it, or is handed to it."""
    producers = {name: node for node in body.node for name in node.output}
    name = body.output[0].name
    while name in producers and producers[name].op_type == "Identity" and not producers[name].domain:
        name = producers[name].input[0]
    return name, producers.get(name)


def _with_own_count(node: NodeProto) -> list[NodeProto] | None:
    """The loop that computes its condition, with one that counts; None where it has results of all iterations."""
    loop = NodeProto()
    loop.CopyFrom(node)
    body = next(a.g for a in loop.attribute if a.name == "body")
    if len(body.output) >= len(body.input):
        return None
    count, first, place = node.input[0], node.input[1], next(filter(None, node.output))
    before, inside = Maker(place, node.name), Maker(f"{place}, body", node.name)
    conditions = [HOLDS, first] if first else [HOLDS]
    number, after = body.input[0].name, inside.add("count", "Add", body.input[0].name, inside.constant("one", 1))
    going = body.output[0].name
    if count:
        conditions.append(before.add("any", "Greater", count, before.constant("none", 0)))
        going = inside.add("going", "And", going, inside.add("fewer", "Less", after, count))
    start = conditions[0]
    for i, condition in enumerate(conditions[1:]):
        start = before.add(f"start {i}", "And", start, condition)
    loop.input[0], loop.input[1] = before.constant("most", MOST), start
    loop.input.append(before.constant("first number", 0))
    loop.output.append(f"{place}, count")
    body.input[0].name = f"{number}, unused"
    body.input.append(helper.make_tensor_value_info(number, TensorProto.INT64, []))
    body.output[0].name = going
    body.output.append(helper.make_tensor_value_info(after, TensorProto.INT64, []))
    body.node.extend(inside.nodes)
    return [*before.nodes, loop]


class Maker:
    """Makes nodes, whose results have names that begin with `place`."""

    def __init__(self, place: str, name: str):
        self.place, self.name = place, name
        self.nodes: list[NodeProto] = []

    def add(self, result: str, op_type: str, *inputs: str, **attributes: TensorProto) -> str:
        self.nodes.append(helper.make_node(op_type, inputs, [f"{self.place}, {result}"], self.name, **attributes))
        return self.nodes[-1].output[0]

    def constant(self, result: str, value: int | bool) -> str:
        kind = np.bool_ if isinstance(value, bool) else np.int64
        return self.add(result, "Constant", value=numpy_helper.from_array(np.array(value, kind)))

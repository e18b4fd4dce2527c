"""Loops of ONNX as the importer knows them: it does not look at whether the condition holds before the first iteration,
and takes one that the body does not compute to hold.

  y = Loop(n, c, x) <body = (i, d, s) => (e, t) { e = Identity(d)  … }>
becomes
  m = Where(c, n, 0);  y = Loop(m, true, x) <…>
and where e = Identity(w) of a constant, or of what is computed around the loop, the first is the last unless w holds:
  m = Where(c, Where(w, n, Min(n, 1)), 0)
"""

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from .onnx_rewriting import Scope, constants_of, rewrite_all

MOST = 2**63 - 1  # iterations, of a loop that has a condition alone


def counted(model: ModelProto) -> bool:
    """Rewrites these loops, in place, also in the bodies of nodes; whether there was one."""
    return rewrite_all(model.graph, _counted)


def _counted(node: NodeProto, scope: Scope) -> list[NodeProto] | None:
    """The nodes that compute the same; None where the importer is right."""
    if node.op_type != "Loop" or node.domain:
        return None
    body = helper.get_attribute_value(next(a for a in node.attribute if a.name == "body"))
    own = constants_of(body)
    first, others = node.input[1], _unchanged(body)
    is_started, is_repeated = (_holds({**scope.constants, **own}.get(name), name) for name in (first, others))
    if is_started and is_repeated and first:  # without a condition it has no lowering
        return None
    place, loop = next(filter(None, node.output)), NodeProto()
    loop.CopyFrom(node)
    made: list[NodeProto] = []

    def add(name: str, op_type: str, *inputs: str, **attributes: TensorProto) -> str:
        made.append(helper.make_node(op_type, inputs, [f"{place}, {name}"], node.name, **attributes))
        return made[-1].output[0]

    def constant(name: str, value: np.generic) -> str:
        return add(name, "Constant", value=numpy_helper.from_array(np.asarray(value)))

    count = node.input[0] or constant("most", np.int64(MOST))
    if not is_repeated:
        if others in own:
            others = add("is repeated", "Constant", value=own[others])
        once = add("once", "Min", count, constant("one", np.int64(1)))
        count = add("repeated", "Where", others, count, once)
    if not is_started:
        count = add("started", "Where", first, count, constant("none", np.int64(0)))
    loop.input[0], loop.input[1] = count, constant("true", np.True_)
    return [*made, loop]


def _holds(constant: TensorProto | None, name: str) -> bool:
    """Whether a condition always does; there is none without a name."""
    return not name or (constant is not None and bool(numpy_helper.to_array(constant).all()))


def _unchanged(body: GraphProto) -> str:
    """The condition that a loop's body hands on, where that is not its own and it does not compute it; else none."""
    producers = {name: node for node in body.node for name in node.output}
    name = body.output[0].name
    while name in producers and producers[name].op_type == "Identity" and not producers[name].domain:
        name = producers[name].input[0]
    is_computed = name in producers and producers[name].op_type != "Constant"
    return "" if is_computed or name == body.input[1].name else name

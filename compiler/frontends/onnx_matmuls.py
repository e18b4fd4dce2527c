"""Products of batches whose number is open, in a form that has a lowering.

  y = MatMul(a, b)      a: [n, s, 8], b: [n, 8, t], where n is not known: a size, or heads times a size, as of BLOOM
becomes
  y = Squeeze(MatMul(Unsqueeze(a, 0), Unsqueeze(b, 0)), 0)

Of three dimensions the importer takes those alone whose batches are known to be as many.
"""

import numpy as np
from onnx import ModelProto, NodeProto, TypeProto, helper, numpy_helper

AXES = "first axis"


def in_four_dimensions(model: ModelProto) -> bool:
    """Rewrites these products, in place; whether there was one."""
    graph = model.graph
    values = (*graph.value_info, *graph.input, *graph.output)
    types = {v.name: v.type.tensor_type for v in values} | {
        t.name: helper.make_tensor_type_proto(t.data_type, list(t.dims)).tensor_type for t in graph.initializer
    }
    nodes: list[NodeProto] = []
    for node in graph.node:
        if node.op_type != "MatMul" or node.domain or not all(_is_open(types.get(name)) for name in node.input):
            nodes.append(node)
            continue
        place = node.name or node.output[0]
        wide = [f"{node.output[0]}, {name}, in four dimensions" for name in ("left", "right", "product")]
        for name, operand in zip(wide, node.input, strict=False):
            nodes.append(helper.make_node("Unsqueeze", [operand, AXES], [name], f"{place}, {operand}"))
        nodes.append(helper.make_node("MatMul", wide[:2], wide[2:], place))
        nodes.append(helper.make_node("Squeeze", [wide[2], AXES], list(node.output), f"{place}, narrow"))
    changed = len(nodes) != len(graph.node)
    if changed:
        graph.initializer.append(numpy_helper.from_array(np.array([0], np.int64), AXES))
        del graph.node[:]
        graph.node.extend(nodes)
    return changed


def _is_open(kind: TypeProto.Tensor | None) -> bool:
    """Whether it has three dimensions, of which the first is not known."""
    if kind is None or not kind.HasField("shape") or len(kind.shape.dim) != 3:
        return False
    return not kind.shape.dim[0].HasField("dim_value")

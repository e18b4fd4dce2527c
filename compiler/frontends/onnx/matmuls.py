"""Products of batches whose number is open, in a form that has a lowering.

  y = MatMul(a, b)      a: [n, s, 8], b: [n, 8, t], where n is not known: a size, or heads times a size, as of BLOOM
becomes
  y = Squeeze(MatMul(Unsqueeze(a, 0), Unsqueeze(b, 0)), 0)

Of three dimensions the importer takes those alone whose batches are known to be as many.
"""

import numpy as np
from onnx import ModelProto, NodeProto, TypeProto, helper, numpy_helper

from .rewriting import rewrite, sizes_of, types_of

AXES = "first axis"


def in_four_dimensions(model: ModelProto) -> bool:
    """Rewrites these products, in place; whether there was one."""
    types = types_of(model.graph)

    def product(node: NodeProto) -> list[NodeProto] | None:
        if node.op_type != "MatMul" or node.domain or not all(_is_open(types.get(name)) for name in node.input):
            return None
        place = node.name or node.output[0]
        wide = [f"{node.output[0]}, {name}, in four dimensions" for name in ("left", "right", "product")]
        nodes = [
            helper.make_node("Unsqueeze", [operand, AXES], [name], f"{place}, {operand}")
            for name, operand in zip(wide, node.input, strict=False)
        ]
        nodes.append(helper.make_node("MatMul", wide[:2], wide[2:], place))
        return [*nodes, helper.make_node("Squeeze", [wide[2], AXES], list(node.output), f"{place}, narrow")]

    return rewrite(model.graph, product, [numpy_helper.from_array(np.array([0], np.int64), AXES)])


def _is_open(kind: TypeProto.Tensor | None) -> bool:
    """Whether it has three dimensions, of which the first is not known."""
    sizes = sizes_of(kind)
    return sizes is not None and len(sizes) == 3 and sizes[0] is None

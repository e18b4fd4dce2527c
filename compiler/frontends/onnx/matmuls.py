"""Products of batches whose number is open, in a form that has a lowering.

  y = MatMul(a, b)      a: [n, s, 8], b: [n, 8, t], where n is not known: a size, or heads times a size, as of BLOOM
becomes
  y = Squeeze(MatMul(Unsqueeze(a, 0), Unsqueeze(b, 0)), 0)

Of three dimensions the importer takes those alone whose batches are known to be as many. Where one operand's are known,
  y = MatMul(a, b)      a: [4, s, 8], b: [n, 8, t]
becomes
  y = MatMul(a, Reshape(b, [4, 0, 0]))
"""

import numpy as np
from onnx import ModelProto, NodeProto, helper, numpy_helper

from .rewriting import numbers, rewrite, sizes_of, types_of

AXES = "first axis"


def in_four_dimensions(model: ModelProto) -> bool:
    """Rewrites these products, in place; whether there was one."""
    types = types_of(model.graph)

    def product(node: NodeProto) -> list[NodeProto] | None:
        if node.op_type != "MatMul" or node.domain:
            return None
        sizes = [sizes_of(types.get(name)) or [] for name in node.input]
        if any(len(size) != 3 for size in sizes):
            return None
        left, right = (size[0] for size in sizes)
        if left == right is not None:
            return None
        if None in (left, right) and (known := left or right or 1) > 1:
            return _as_many(node, known, [left is None, right is None])
        place = node.name or node.output[0]
        wide = [f"{node.output[0]}, {name}, in four dimensions" for name in ("left", "right", "product")]
        nodes = [
            helper.make_node("Unsqueeze", [operand, AXES], [name], f"{place}, {operand}")
            for name, operand in zip(wide, node.input, strict=False)
        ]
        nodes.append(helper.make_node("MatMul", wide[:2], wide[2:], place))
        return [*nodes, helper.make_node("Squeeze", [wide[2], AXES], list(node.output), f"{place}, narrow")]

    return rewrite(model.graph, product, [numpy_helper.from_array(np.array([0], np.int64), AXES)])


def _as_many(node: NodeProto, batches: int, is_open: list[bool]) -> list[NodeProto]:
    """The product of as many batches as one operand has, of which it is not known that the other one has them."""
    operands, nodes = list(node.input), []
    for i in (i for i, found in enumerate(is_open) if found):
        operands[i] = f"{node.output[0]}, {node.input[i]}, of {batches}"
        sizes = numbers(f"{operands[i]}, sizes", [batches, 0, 0])
        nodes += [sizes, helper.make_node("Reshape", [node.input[i], sizes.output[0]], [operands[i]])]
    nodes.append(helper.make_node("MatMul", operands, list(node.output)))
    for made in nodes:
        made.name = node.name or node.output[0]
    return nodes

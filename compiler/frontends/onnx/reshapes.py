"""Reshapes that merge several open sizes, in steps that have a lowering.

  y = Reshape(x, [-1, 32])      x: [s, b, 4, 8], where s and b are not known: what is before a layer's projection
becomes
  y = Flatten<axis = 2>(x)

  y = Reshape(x, [2, -1, 8])    x: [2, s, b, 8]
becomes
  y = Reshape(Reshape(x, [0, -1]), [0, -1, 8])

The importer takes all open sizes but one to be what leaves the last ones as they are: b to be 1.
"""

import math
from collections.abc import Sequence

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from .rewriting import Size, rewrite, sizes_of, types_of


def merged_first(model: ModelProto) -> bool:
    """Rewrites these reshapes, in place; whether there was one."""
    graph, types = model.graph, types_of(model.graph)
    lists = {t.name: t for t in graph.initializer if len(t.dims) == 1 and t.data_type == TensorProto.INT64}
    added: list[TensorProto] = []

    def reshapes(node: NodeProto) -> list[NodeProto] | None:
        own = sizes_of(types.get(node.input[0])) if node.op_type == "Reshape" and not node.domain else None
        if own is None or node.input[1] not in lists:
            return None
        steps = _steps(own, numpy_helper.to_array(lists[node.input[1]]).tolist())
        return None if steps is None else _reshapes(node, *steps, added)

    return rewrite(graph, reshapes, added)


def _steps(own: Sequence[Size], target: Sequence[int]) -> tuple[int | None, list[list[int]]] | None:
    """The axis to flatten at, if that helps, and the shapes that then lead to `target`; None where none is needed."""
    kept = 0  # sizes that stay
    while kept < min(len(own), len(target)) and (target[kept] == 0 or target[kept] == own[kept]):
        kept += 1
    rest, others = own[kept:], list(target[kept:])
    if rest.count(None) < 2 or others.count(-1) != 1 or 0 in others or len(others) == 1:
        return None
    width = math.prod(others[1:])
    for axis in range(len(own) - 1, 0, -1):
        if None in own[axis:] or kept or others[0] != -1:
            break
        if math.prod(size or 0 for size in own[axis:]) == width:
            return axis, [[0, *others[1:]]] if len(others) > 2 else []
    first = [0] * kept
    return None, [[*first, -1], [*first, *others]]


def _reshapes(
    node: NodeProto, axis: int | None, shapes: Sequence[Sequence[int]], added: list[TensorProto]
) -> list[NodeProto]:
    """A Flatten at `axis`, if there is one, and a Reshape to each of `shapes`, which are `added`."""
    result, place = node.output[0], node.name or node.output[0]
    names = [f"{result}, step {i}" for i in range(len(shapes) + (axis is not None) - 1)] + [result]
    values = [node.input[0], *names]
    nodes = []
    if axis is not None:
        nodes.append(helper.make_node("Flatten", values[:1], names[:1], place, axis=axis))
    for shape in shapes:
        i = len(nodes)
        added.append(numpy_helper.from_array(np.array(shape, np.int64), f"{names[i]}, shape"))
        nodes.append(helper.make_node("Reshape", [values[i], added[-1].name], names[i : i + 1], place))
    return nodes

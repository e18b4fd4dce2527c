"""Sinks beside keys of an open number: softmax over a concatenation, of which only the first part is used.

    softmax(cat(s, y))[..., :n]     is     e / (Σ e + Σ exp(y − m)),  e = exp(s − m),  m = max(max s, max y)

where s has n columns and y one. In linalg, a slice of what is concatenated from an open size and a known one is taken
by computed bounds, which say no longer that it is s; attention with sinks would not be found there. Where all sizes
are known, it is found as it stands.
"""

import operator
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from ....transforms.raising.sinks import MAX_SINKS

aten, convert = torch.ops.aten, torch.ops.prims.convert_element_type.default


def write_out(graph: torch.fx.Graph) -> None:
    """Replaces each such slice; values of the new nodes are computed as torch.export has them."""
    for node in list(graph.nodes):
        found = parts(node)
        if found is not None and not isinstance(found[0].meta["val"].shape[-1], int):
            scores, others, dim = found
            with graph.inserting_before(node):
                node.replace_all_uses_with(_probabilities(graph, scores, others, dim, node.meta["val"].dtype))
    graph.eliminate_dead_code()


def parts(node: torch.fx.Node) -> tuple[torch.fx.Node, list[torch.fx.Node], int] | None:
    """(s, [y, …], dimension) if `node` is softmax(cat(s, y, …)) where s is."""
    if node.target is not aten.slice.Tensor:
        return None
    given: tuple[Any, ...] = (*node.args, 0, 0)
    softmax, dim, start = given[:3]
    rank = node.meta["val"].dim()
    if softmax.target not in (aten._softmax.default, aten.softmax.int) or start != 0 or len(node.args) > 4:
        return None
    if dim % rank != rank - 1 or softmax.args[1] % rank != rank - 1:
        return None
    whole: Any = _unshifted(softmax.args[0], rank)
    if whole.target is not aten.cat.default or len(whole.args) < 2 or whole.args[1] % rank != rank - 1:
        return None
    scores, *others = whole.args[0]
    size = scores.meta["val"].shape[-1]
    if len(others) > MAX_SINKS or any(other.meta["val"].shape[-1] != 1 for other in others):
        return None
    if not statically_known_true(node.meta["val"].shape[-1] == size):
        return None
    return scores, others, rank - 1


def _unshifted(node: Any, rank: int) -> Any:
    """`node` without the maximum of its rows, where that is subtracted: softmax does not see it."""
    while node.target is aten.sub.Tensor and isinstance(node.args[1], torch.fx.Node) and not node.kwargs:
        x, shift = node.args
        if shift.target is operator.getitem and shift.args[0].target is aten.max.dim:
            shift = shift.args[0]
        if shift.target not in (aten.amax.default, aten.max.dim):
            break
        of, dims, kept = (*shift.args, False)[:3]
        dims = dims if isinstance(dims, list | tuple) else [dims]
        if of is not x or [d % rank for d in dims] != [rank - 1] or not kept:
            break
        node = x
    return node


def _probabilities(
    graph: torch.fx.Graph, scores: torch.fx.Node, others: list[torch.fx.Node], dim: int, dtype: torch.dtype
) -> torch.fx.Node:
    def call(target: Any, *args: Any, **kwargs: Any) -> torch.fx.Node:
        made = graph.call_function(target, args, kwargs)
        values = torch.fx.map_arg((args, kwargs), lambda n: n.meta["val"])
        made.meta["val"] = target(*values[0], **values[1])
        return made

    def wide(node: torch.fx.Node) -> torch.fx.Node:
        narrow = node.meta["val"].dtype in (torch.float16, torch.bfloat16)
        return call(convert, node, torch.float32) if narrow else node

    scores, *columns = map(wide, (scores, *others))
    most = call(aten.amax.default, scores, [dim], True)
    for column in columns:
        most = call(aten.maximum.default, most, column)
    exponentials = call(aten.exp.default, call(aten.sub.Tensor, scores, most))
    total = call(aten.sum.dim_IntList, exponentials, [dim], True)
    for column in columns:
        total = call(aten.add.Tensor, total, call(aten.exp.default, call(aten.sub.Tensor, column, most)))
    result = call(aten.div.Tensor, exponentials, total)
    return result if result.meta["val"].dtype == dtype else call(convert, result, dtype)

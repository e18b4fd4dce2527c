"""view and expand where sizes are symbols, in terms that say which dimensions are merged, split or kept.

A ``view`` of dynamic sizes reaches MLIR as a reshape to computed sizes, which nothing can see through. What torch
knows about the symbols tells the groups of dimensions: [b, t, 32] as [b, t, 4, 8] is one split of the last, and
[b·t, 32] one merge of the first two.
"""

from collections.abc import Sequence
from itertools import product
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true


def _is_dynamic(sizes: Sequence[Any]) -> bool:
    return any(not isinstance(s, int) for s in sizes)


def _equal(a: Any, b: Any) -> bool:
    return bool(statically_known_true(a == b))


def _product(sizes: Sequence[Any]) -> Any:
    total: Any = 1
    for s in sizes:
        total = total * s
    return total


def groups(source: Sequence[Any], target: Sequence[Any]) -> list[tuple[int, int]] | None:
    """How many dimensions of `source` become how many of `target`, from the first on; None if that cannot be told."""
    if not source and not target:
        return []
    counts = sorted(product(range(len(source) + 1), range(len(target) + 1)), key=lambda c: (c != (1, 1), sum(c)))
    for a, b in counts:
        if a + b and _equal(_product(source[:a]), _product(target[:b])):
            rest = groups(source[a:], target[b:])
            if rest is not None:
                return [(a, b), *rest]
    return None


def split_and_merge(graph: torch.fx.Graph) -> None:
    """Replaces every view of dynamic sizes by flatten, unflatten, squeeze and unsqueeze, where its groups are known."""
    for target in (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default):
        for node in graph.find_nodes(op="call_function", target=target):
            source, result = node.args[0].meta["val"], node.meta["val"]
            if not _is_dynamic([*source.shape, *result.shape]):
                continue
            found = groups(list(source.shape), list(result.shape))
            if found is None:
                continue
            with graph.inserting_before(node):
                node.replace_all_uses_with(_regrouped(graph, node, found))
            graph.erase_node(node)


def _regrouped(graph: torch.fx.Graph, node: torch.fx.Node, found: list[tuple[int, int]]) -> torch.fx.Node:
    sizes = _size_nodes(node)
    x = node.args[0]
    at = 0
    for merged, made in found:
        made_sizes = sizes[at : at + made]
        if merged == 0:
            for d in range(made):
                x = _emitted(graph, torch.ops.aten.unsqueeze.default, x, at + d)
        elif made == 0:
            for _ in range(merged):
                x = _emitted(graph, torch.ops.aten.squeeze.dim, x, at)
        else:
            if merged > 1:
                x = _emitted(graph, torch.ops.aten.flatten.using_ints, x, at, at + merged - 1)
            if made > 1:
                x = _emitted(graph, torch.ops.aten.unflatten.int, x, at, made_sizes)
        at += made
    return x


def _size_nodes(node: torch.fx.Node) -> list[Any]:
    """The target sizes: numbers, and nodes that compute them; −1 at most once, where torch infers it."""
    return list(node.args[1])


def _emitted(graph: torch.fx.Graph, target: Any, *args: Any) -> torch.fx.Node:
    new = graph.call_function(target, args)
    values = torch.fx.map_arg(args, lambda n: n.meta["val"])
    new.meta["val"] = target(*values)
    return new


def expand(x: torch.Tensor, size: Sequence[Any], *, implicit: bool = False) -> Any:
    """aten.expand with −1 for every dimension that is kept: then a dynamic one needs no test for size 1."""
    added = len(size) - x.dim()
    if not _is_dynamic([*x.shape, *size]):
        return NotImplemented
    kept = list(size)
    for d, s in enumerate(x.shape):
        if not (isinstance(s, int) and s == 1) and not (isinstance(kept[added + d], int) and kept[added + d] == -1):
            kept[added + d] = -1
    changed = [not (isinstance(a, int) and isinstance(b, int) and a == b) for a, b in zip(kept, size, strict=True)]
    if not any(changed) or all(isinstance(s, torch.SymInt) or s != -1 for s in kept):
        return NotImplemented
    return torch.ops.aten.expand.default(x, kept)

"""Attentions without a softmax whose loops can be one, as they have products in common and go over the same tiles: the
derivatives of an attention by keys and by values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

from ..dialects.mlir import ir
from ..dialects.tiling.structured import operand_loops
from .attention import Attention, contraction_loops, has_scores_by_keys, products_beside
from .equivalence import is_same
from .extents import static_extents
from .graph import Needed
from .reshapes import VIEWS
from .rewriting import defining_op
from .tile_and_fuse import MADE_AGAIN


def siblings(attentions: Sequence[Attention]) -> list[list[Attention]]:
    """Attentions in groups of more than one: those whose scores are by rows of the result first, of these the one with
    the most products."""
    groups: list[list[Attention]] = []
    of = {one.root: products(one) for one in attentions if one.softmax is None}
    for attention in attentions:
        group = next((group for group in groups if all(_are_siblings(attention, other, of) for other in group)), None)
        if group is None:
            groups.append([attention])
        else:
            group.append(attention)
    return [sorted(group, key=_rank) for group in groups if len(group) > 1]


def _rank(attention: Attention) -> tuple[bool, int]:
    return has_scores_by_keys(attention), -len(products(attention))


def of_sibling(loops: Sequence[int], of: Attention, sibling: Attention) -> list[int]:
    """The loops of the second matmul of `sibling` that play the parts of these of the one of `of`."""
    parts = _parts(of, sibling)
    return [parts[d] for d in loops]


def _are_siblings(a: Attention, b: Attention, of: Mapping[ir.Operation, Sequence[ir.Operation]]) -> bool:
    """`of`: the products of those without a softmax, by their roots."""
    if a.root not in of or b.root not in of or a.root.block != b.root.block:
        return False
    if not any(is_same(x, y, {}, _is_same_tensor) for x in of[a.root] for y in of[b.root]):
        return False
    parts, columns = _parts(a, b), _roles(a)[-1]
    ours, theirs = static_extents(a.root), static_extents(b.root)
    if not len(parts) == len(ours) == len(theirs):
        return False
    if any(ours[d] != theirs[e] for d, e in parts.items() if d not in columns):  # of which there may be more or fewer
        return False
    return a.root not in Needed(b.root) and b.root not in Needed(a.root)


def _is_same_tensor(a: ir.Value, b: ir.Value) -> bool:
    """Whether two tensors are one, the same view of one, or filled with the same."""
    if a == b:
        return True
    maker, other = defining_op(a), defining_op(b)
    if maker is None or other is None or maker.name not in ("arith.constant", *VIEWS, *MADE_AGAIN):
        return False
    return is_same(maker, other, {}, _is_same_tensor)


def products(attention: Attention) -> list[ir.Operation]:
    """Of queries and keys, or of the like, that its weights are made of."""
    return [attention.scores, *products_beside(attention)]


def _parts(a: Attention, b: Attention) -> dict[int, int]:
    """The loop of b's root for each of a's that plays its part, as far as there is one. Where the weights of one were
    turned, heads that share keys are its rows, and batch entries of the other one: their places in the weights tell."""
    roles, others = _roles(a), _roles(b)
    if has_scores_by_keys(a) != has_scores_by_keys(b):
        roles, others = ([weights_loops(one), columns] for one, (*_, columns) in ((a, roles), (b, others)))
    return dict(zip(chain(*roles), chain(*others), strict=False))


def _roles(attention: Attention) -> list[list[int]]:
    """The loops of batch entries, of rows and columns of tiles of scores, and of columns of the result."""
    loops = contraction_loops(attention.root)
    assert loops is not None, "an attention's root is a contraction"
    tile = (loops.k, loops.m) if has_scores_by_keys(attention) else (loops.m, loops.k)
    return [loops.batch, *tile, loops.n]


def weights_loops(attention: Attention) -> list[int]:
    """The loops of the root that dimensions of the weights are indexed by."""
    return [d for d in operand_loops(attention.root)[0] if d is not None]

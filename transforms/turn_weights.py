"""The weights of one attention without a softmax in place of another one's, of which they are the transpose."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..dialects import build
from ..dialects.mlir import ir
from ..dialects.tiling.structured import indexing_maps
from .attention import Attention, contraction_loops, has_scores_by_keys
from .graph import Needed, can_move_after, erase_with_producers, move_users_after, ops_on_way
from .passes import remark
from .rewriting import defining_op
from .separate_scores import copy_for
from .siblings import products, siblings, weights_loops
from .transposed_values import is_transpose


def turn_weights(attentions: Sequence[Attention], pays: Callable[[Attention, Attention], bool]) -> bool:
    """Computes weights once, by keys, that are there by queries, too, so that all loops can go over the same tiles::

        %d = linalg.generic {D[b, i, j] = f(Q[b, i]·K[b, j], …)}
        %q = linalg.generic {dQ[b, i, c] += D[b, i, j]·K[b, j, c]} ins(%d, %k)
        %e = linalg.generic {E[b, j, i] = f(K[b, j]·Q[b, i], …)}
        %k = linalg.generic {dK[b, j, c] += E[b, j, i]·Q[b, i, c]} ins(%e, %q)
      becomes
        %e = …, %k = … as they are
        %c = linalg.generic {E[b, j, i] = f(K[b, j]·Q[b, i], …)}                   // as each nest has its own, so far
        %q = linalg.generic {dQ[b, i, c] += E[b, j, i]·K[b, j, c]} ins(%c, %k)

    So the derivative by queries can be part of the loops of those by keys and values: five products for each tile, in
    place of seven. Which one is turned: the one with fewer siblings. Its sum then goes over a loop that is parallel for
    the others: whether that `pays`, for the one and the other, the target says. Returns whether any were turned.
    """
    turned: set[ir.Operation] = set()
    candidates = [attention for attention in attentions if attention.softmax is None]
    company = {one.root: len(group) for group in siblings(candidates) for one in group}
    for one in candidates:
        own = company.get(one.root, 1)
        others = [a for a in candidates if a is not one and own <= company.get(a.root, 1) and a.root not in turned]
        orders = ((a, _order_to_turn(one, a)) for a in others if pays(one, a))
        other, order = next((found for found in orders if found[1] is not None), (None, None))
        if other is not None and order is not None:
            _turn(one, other, order)
            remark(one.root, "its weights are those of the derivative by keys, whose loops it is to be part of")
            turned.add(one.root)
    return bool(turned)


def _order_to_turn(one: Attention, other: Attention) -> list[int] | None:
    """That of the weights of the one, transposed, in terms of the other's; None if it cannot have these."""
    if one.root.block != other.root.block or one.root.name != "linalg.generic":
        return None
    order = None if has_scores_by_keys(one) or has_scores_by_keys(other) else _order(one, other)
    if order is None or not is_transpose(one.root.operands[0], other.root.operands[0], order):
        return None  # as with attentions of other layers
    maker = defining_op(other.root.operands[0])
    can_move = maker is not None and one.root not in Needed(other.root) and can_move_after([one.root], maker)
    return order if can_move else None


def _order(one: Attention, other: Attention) -> list[int] | None:
    """Which dimension of the other one's weights each of the one's is, where the one sums up along rows of the other,
    and has rows along which that one sums up; None where there is no such order, or it is the same."""
    a, b = contraction_loops(one.root), contraction_loops(other.root)
    assert a is not None and b is not None, "roots are contractions"
    mine, theirs = weights_loops(one), weights_loops(other)
    if len(mine) != len(theirs) or len(a.k) != len(b.m) or len(a.m) < len(b.k):
        return None
    parts = dict(zip((*a.k, *a.m[-len(b.k) :]), (*b.m, *b.k), strict=True))
    heads, others = ([d for d in loops if d not in known] for loops, known in ((mine, parts), (theirs, parts.values())))
    parts.update(zip(heads, others, strict=True))
    order = [theirs.index(parts[d]) for d in mine]
    return order if order != sorted(order) else None


def _turn(one: Attention, other: Attention, order: list[int]) -> None:
    root, weights = one.root, other.root.operands[0]
    maker = defining_op(weights)
    assert maker is not None, "_order_to_turn was asked"
    before = defining_op(root.operands[0])
    move_users_after([root], maker)
    mine = weights_loops(one)
    maps = indexing_maps(root)
    maps[0] = build.projection(maps[0].n_dims, [mine[order.index(d)] for d in range(len(order))])
    root.attributes["indexing_maps"] = build.map_array(maps)
    root.operands[0] = weights
    if before is not None:
        erase_with_producers(before)
    copy_for(root, {op for product in products(other) for op in ops_on_way(product, [other.root])} - {other.root})

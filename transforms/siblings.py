"""Attentions without a softmax whose loops can be one, as they have products in common and go over the same tiles: the
derivatives of an attention by keys and by values."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from ..dialects.mlir import ir
from .attention import Attention, contraction_loops, products_beside
from .equivalence import is_same
from .extents import static_extents
from .graph import backward_slice
from .reshapes import VIEWS
from .rewriting import defining_op
from .tile_and_fuse import MADE_AGAIN


def siblings(attentions: Sequence[Attention]) -> list[list[Attention]]:
    """Attentions in groups of more than one, the one with the most products first."""
    groups: list[list[Attention]] = []
    for attention in attentions:
        group = next((group for group in groups if all(_are_siblings(attention, other) for other in group)), None)
        if group is None:
            groups.append([attention])
        else:
            group.append(attention)
    return [sorted(group, key=lambda one: -len(_products(one))) for group in groups if len(group) > 1]


def of_sibling(loops: Sequence[int], of: Attention, sibling: Attention) -> list[int]:
    """The loops of the second matmul of `sibling` that play the parts of these of the one of `of`."""
    parts = dict(zip(chain(*_loops(of)), chain(*_loops(sibling)), strict=True))
    return [parts[d] for d in loops]


def _are_siblings(a: Attention, b: Attention) -> bool:
    if a.softmax is not None or b.softmax is not None or a.root.block != b.root.block:
        return False
    ours, theirs = ([[static_extents(one.root)[d] for d in part] for part in _loops(one)] for one in (a, b))
    if ours[:-1] != theirs[:-1] or len(ours[-1]) != len(theirs[-1]):  # columns may be more or fewer
        return False
    if not any(is_same(x, y, {}, _is_same_tensor) for x in _products(a) for y in _products(b)):
        return False
    return a.root not in backward_slice(b.root) and b.root not in backward_slice(a.root)


def _is_same_tensor(a: ir.Value, b: ir.Value) -> bool:
    """Whether two tensors are one, the same view of one, or filled with the same."""
    if a == b:
        return True
    maker, other = defining_op(a), defining_op(b)
    if maker is None or other is None or maker.name not in ("arith.constant", *VIEWS, *MADE_AGAIN):
        return False
    return is_same(maker, other, {}, _is_same_tensor)


def _products(attention: Attention) -> list[ir.Operation]:
    return [attention.scores, *products_beside(attention)]


def _loops(attention: Attention) -> tuple[list[int], ...]:
    """Those of batch entries, rows and the sum, which tiles of scores go along, and of columns."""
    loops = contraction_loops(attention.root)
    assert loops is not None, "an attention's root is a contraction"
    return loops.batch, loops.m, loops.k, loops.n

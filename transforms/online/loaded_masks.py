"""Tiles that a mask in memory makes dead: looked for before the loop, from its first tile on and from its last one.

For causal or padding masks that are passed as arrays of i1 these are all dead tiles. The elements of a tile are read
until one is live, so that a mask with little to skip costs little, and each dead element is read once::

    %first, %found = scf.while (%t = %c0, %found = %false) {
      scf.condition(%t < %n and not %found)
    } do {
      %some = any of mask[%q + i, %t + j]                // i < %rows, j < min(32, %n - %t)
      scf.yield (%some ? %t : %t + 32), %some
    }
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...dialects import build
from ...dialects.mlir import arith, ir, scf, tensor
from ...dialects.tiling import Index
from .positions import VIEWS, Local, Scalar, of_source, operand_of
from .tile_sets import Tiles, TileSets


@dataclass(frozen=True)
class LoadedMask:
    """A tensor of i1, where the tile starts in it, its dimension along the loop, and its extents along others."""

    tensor: ir.Value
    position: tuple[Index, ...]
    along: int
    rows: tuple[tuple[int, Index], ...]


def loaded_mask(scalar: Scalar, sets: TileSets, sizes: Sequence[Sequence[Index]]) -> LoadedMask | None:
    """The mask of which `scalar` is an element, if that is there before the loop, and the loop goes through it."""
    if not isinstance(scalar.value.owner, ir.Block) or scalar.value.type != ir.IntegerType.get_signless(1):
        return None
    place = operand_of(scalar)
    while place is not None and not isinstance(place[0].owner, ir.Block):
        op = place[0].owner.operation
        if op.name not in VIEWS:
            break
        source = of_source(op, place[1])
        place = (op.operands[0], source) if source is not None else None
    if place is None or not sets.visible(place[0]) or not isinstance(place[0].type, ir.RankedTensorType):
        return None
    start, along, rows = [], None, []
    for d, at in enumerate(place[1]):
        local = [atom for atom, c in at.terms if isinstance(atom, Local) and c == 1]
        if len(local) > 1:
            return None
        for atom in local:
            at = at.without(atom)
        if at.coefficient(sets.variable):
            if along is not None or not local or at.coefficient(sets.variable) != 1:
                return None
            along, at = d, at.without(sets.variable)
        elif local:
            size = sizes[local[0].dim]
            if len(size) != 1 or not _is_visible(size[0], sets):
                return None
            rows.append((d, size[0]))
        if not _is_visible(at, sets):
            return None
        start.append(at)
    return None if along is None else LoadedMask(place[0], tuple(start), along, tuple(rows))


def _is_visible(form: Index, sets: TileSets) -> bool:
    return all(isinstance(v, ir.Value) and sets.visible(v) for v, _ in form.terms)


def tiles_without(mask: LoadedMask, value: bool, sets: TileSets) -> Tiles:
    """The first and the last tiles of the loop in which no element of the mask is `value`."""
    first = sets.build(lambda: _search(mask, value, sets, forwards=True))
    last = sets.build(lambda: _search(mask, value, sets, forwards=False))
    end = sets.minimum(last, sets.high)
    start = sets.minimum(first, sets.high)
    return sets.union(sets.interval(sets.low, start), sets.interval(sets.maximum(start, end), sets.high))


def _search(mask: LoadedMask, value: bool, sets: TileSets, forwards: bool) -> ir.Value:
    """The first tile that has an element of `value`, or what follows the last one."""
    index, i1 = ir.IndexType.get(), ir.IntegerType.get_signless(1)
    less = arith.CmpIPredicate.slt
    low, high, step = (sets.in_place(bound) for bound in (sets.low, sets.high, sets.step))
    start = [sets.of_form(at) for at in mask.position]
    rows = [(d, sets.of_form(size)) for d, size in mask.rows]
    zero, one = build.index(0), build.index(1)
    false, true = build.constant(i1, 0), build.constant(i1, 1)
    extent = tensor.dim(mask.tensor, build.index(mask.along))
    limit = arith.subi(extent, start[mask.along])  # as the loop counts
    begin = low if forwards else _after_last(low, high, step)
    search = scf.WhileOp([index, i1], [begin, false])
    before = search.regions[0].blocks.append(index, i1)
    with ir.InsertionPoint(before):
        t, found = before.arguments
        more = arith.cmpi(less, t, high) if forwards else arith.cmpi(less, low, t)
        scf.ConditionOp(arith.andi(more, arith.xori(found, true)), [t, found])
    after = search.regions[1].blocks.append(index, i1)
    with ir.InsertionPoint(after):
        t = after.arguments[0]
        tile = t if forwards else arith.subi(t, step)
        end = arith.minsi(arith.addi(tile, step), limit)

        def element(places: list[ir.Value]) -> ir.Value:
            loaded = tensor.extract(mask.tensor, places)
            return loaded if value else arith.xori(loaded, true)

        def along(places: list[ir.Value]) -> ir.Value:
            return _any(tile, end, one, false, lambda k: element(_moved(places, mask.along, k)))

        def across(places: list[ir.Value], left: list[tuple[int, ir.Value]]) -> ir.Value:
            if not left:
                return along(places)
            d, size = left[0]
            return _any(zero, size, one, false, lambda i: across(_moved(places, d, i), left[1:]), true)

        some = across(start, rows)
        scf.YieldOp([arith.select(some, t, arith.addi(t, step) if forwards else tile), some])
    return search.results[0]


def _moved(places: list[ir.Value], d: int, by: ir.Value) -> list[ir.Value]:
    return [arith.addi(at, by) if i == d else at for i, at in enumerate(places)]


def _any(
    low: ir.Value, high: ir.Value, step: ir.Value, false: ir.Value, test: Callable, true: ir.Value | None = None
) -> ir.Value:
    """Whether `test` holds for any index; with `true`, it is not made again once it does."""
    loop = scf.ForOp(low, high, step, [false])
    with ir.InsertionPoint(loop.body):
        known = loop.inner_iter_args[0]
        if true is None:
            scf.YieldOp([arith.ori(known, test(loop.induction_variable))])
        else:
            branch = scf.IfOp(known, [known.type], has_else=True)
            with ir.InsertionPoint(branch.then_block):
                scf.YieldOp([true])
            with ir.InsertionPoint(branch.else_block):
                scf.YieldOp([test(loop.induction_variable)])
            scf.YieldOp([branch.results[0]])
    return loop.results[0]


def _after_last(low: ir.Value, high: ir.Value, step: ir.Value) -> ir.Value:
    """The first tile that the loop does not reach."""
    count = arith.ceildivsi(arith.subi(high, low), step)
    return arith.addi(low, arith.muli(count, step))

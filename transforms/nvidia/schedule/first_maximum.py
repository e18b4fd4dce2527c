"""The maximum of the first tile of keys, for ``keep-maximum``: made such that it suits the tiles that follow, too.

Any finite number would do for softmax; what it decides is whether exponentials stay in range. Two things would make it
a bad one. Under a causal mask rows may have few keys in the first tile, or none: their maximum is that of all scores of
the tile, dead ones too, which are of the same size as those to come (but where scores change with the distance of
keys, as by ALiBi: the dead ones are then larger than all that are live)::

    %x = matmul(%q, %k)                                   %x = matmul(%q, %k)
    %y = scf.if %cut { select(j > i, −inf, %x) } …        %m = rowmax(%x · 0.18)
    %t = %y · 0.18                              becomes   %y = scf.if %cut { select(j > i, −inf, %x) } …
    %m = rowmax(%t)                                       %t = %y · 0.18

And a maximum that is −inf all the same, by a mask from memory, or as low as masks are that are finite, is taken as 0.
Where scores are bounded, and more than half of what exponents hold, it is kept within what they leave, so that
exponentials come from a table in the short way (``bounds``): a softcap of 50 is 72 · ln 2, which leaves 54 for the
maximum. Rows with scores close to the cap are computed again.
"""

from __future__ import annotations

from ....dialects import build
from ....dialects.mlir import arith, ir
from ...rewriting import Values, copy_op, defining_op, ops_in, ops_of
from ..bounds import may_be_low
from ..masking import OF_MASKS, masks, modifies_first, unmasked, yielded


def unmask(maxima: ir.Operation) -> None:
    """Makes `maxima`, which reduces a tile to the maximum of each row, leave out masks that depend on the row."""
    if _are_by_place(maxima.operands[0]):
        return
    with maxima.location:
        tile = _unmasked(maxima.operands[0])
    if tile == maxima.operands[0]:
        return
    maxima.operands[0] = tile
    # Before masks and what follows: the scores without them are dead then, and their registers free.
    maxima.move_before(_behind(maxima))


def adjust(update: ir.Operation, number: int, by: float, limit: float | None) -> None:
    """Adds to the result `number`, a maximum, of `update`, in whose region it is computed; in place of −inf, or of what
    is as low as masks are, to 0. What exceeds the limit, on either side, becomes that."""
    terminator = ops_of(update.regions[0].blocks[0])[-1]
    value = terminator.operands[number]
    with ir.InsertionPoint(terminator), update.location:
        is_masked = may_be_low(value, OF_MASKS)
        at, low = (arith.CmpFPredicate.OLT, OF_MASKS) if is_masked else (arith.CmpFPredicate.OEQ, float("-inf"))
        is_low = arith.cmpf(at, value, build.constant(value.type, low))
        finite = arith.select(is_low, build.constant(value.type, 0.0), value)
        found = arith.addf(finite, build.constant(value.type, by)) if by else finite
        if limit is not None:
            ends = [build.constant(value.type, x) for x in (-limit, limit)]
            found = ir.Operation.create("math.clampf", [value.type], [found, *ends]).result
        terminator.operands[number] = found


def _are_by_place(tile: ir.Value) -> bool:
    """Whether scores depend on the row they are in, by more than masks."""
    op = defining_op(tile)
    if op is not None and op.name == "scf.if":
        number = list(op.results).index(tile)
        return any(_are_by_place(ops_of(region.blocks[0])[-1].operands[number]) for region in op.regions)
    if op is None or not modifies_first(op):
        return False
    return _depends_on_row(unmasked(yielded(op))) or _are_by_place(op.operands[0])


def _unmasked(value: ir.Value) -> ir.Value:
    """What `value` is without masks that depend on the row; itself if there are none."""
    op = defining_op(value)
    if op is None:
        return value
    if op.name == "scf.if":
        number = list(op.results).index(value)
        masked, plain = (ops_of(region.blocks[0])[-1].operands[number] for region in op.regions)
        mask = defining_op(masked)
        is_mask = mask is not None and modifies_first(mask) and mask.operands[0] == plain and _strips_to_input(mask)
        return _unmasked(plain) if is_mask else value
    if not modifies_first(op):
        return value
    source = _unmasked(op.operands[0])
    if source == op.operands[0] and not _masks(op):
        return value
    if _strips_to_input(op):
        return source
    values: Values = {op.operands[0]: source}
    with ir.InsertionPoint(op), op.location:
        copy_op(op, values)
    copy = defining_op(values[value])
    for select in _masks(copy):
        select.results[0].replace_all_uses_with(select.operands[2])
        select.erase()
    copy.move_before(_behind(copy))
    return copy.results[0]


def _masks(op: ir.Operation) -> list[ir.Operation]:
    """Those that depend on the row."""
    return [select for select in masks(yielded(op)) if _depends_on_row(select.operands[0])]


def _strips_to_input(op: ir.Operation) -> bool:
    """Whether `op` is nothing but masks that depend on the row."""
    return _masks(op) == masks(yielded(op)) and unmasked(yielded(op)) == op.regions[0].blocks[0].arguments[0]


def _depends_on_row(value: ir.Value) -> bool:
    op = defining_op(value)
    if op is None:
        return False
    if op.name == "linalg.index":
        return ir.IntegerAttr(op.attributes["dim"]).value == 0
    return any(map(_depends_on_row, op.operands))


def _behind(op: ir.Operation) -> ir.Operation:
    """The first op before which `op` may stand: right behind the last one that makes an operand."""
    ops = ops_of(op.block)
    used = [v for inner in [op, *ops_in(op)] for v in inner.operands]
    makers = [m for m in map(defining_op, used) if m is not None and m.block == op.block]
    return ops[max((ops.index(m) for m in makers), default=-1) + 1]

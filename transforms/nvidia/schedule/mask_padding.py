"""The pass ``mask-padding``."""

from __future__ import annotations

from dataclasses import dataclass

from ....dialects import build
from ....dialects.build import constant_value
from ....dialects.mlir import arith, ir, linalg
from ....dialects.tiling.structured import indexing_maps, iterator_types, reduces
from ...attention import is_matmul
from ...guarded_maxima import guarded
from ...passes import Pass
from ...rewriting import defining_op, ops_in, ops_of, single_use
from ..masking import is_rising_line, yielded
from ..reductions import MAXIMA
from .bulk_copies import bulk_copies

EXPONENTIALS = ("math.exp", "math.exp2")


@dataclass(frozen=True)
class MaskPadding(Pass):
    """Padding of scores becomes −inf once, in the tiles that have some, instead of being left out wherever it is read::

        %m = linalg.generic … ins(%x) { max(select(j < %valid, x, −inf), …) }
        %p = linalg.generic … ins(%x, %m) { select(j < %valid, exp(x − m), 0) }
      becomes
        %some = %valid < 128
        %y = scf.if %some { linalg.generic … ins(%x) { select(j < %valid, x, −inf) } } else { %x }
        %m = linalg.generic … ins(%y) { max(x, …) }
        %p = linalg.generic … ins(%y, %m) { exp(x − m) }

    where m is no −inf. Where %x is another tile times a positive number, or that and a position, that one is masked.
    For kernels whose loads the copy engine does.
    """

    def run(self, op: ir.Operation) -> None:
        for kernel in ops_in(op, "gpu.func"):
            if bulk_copies(kernel):
                for inner in ops_in(kernel, "linalg.generic"):
                    if reduces(inner) and not is_matmul(inner):
                        _mask(inner)


@dataclass(frozen=True)
class _Inside:
    """select(index `dim` < `valid`, element, neutral)"""

    select: ir.Operation
    dim: int
    valid: ir.Value
    element: ir.Value
    neutral: float

    @staticmethod
    def of(value: ir.Value) -> _Inside | None:
        select = defining_op(value)
        if select is None or select.name != "arith.select":
            return None
        compare, neutral = defining_op(select.operands[0]), constant_value(select.operands[2])
        if compare is None or compare.name != "arith.cmpi" or not isinstance(neutral, float):
            return None
        index = defining_op(compare.operands[0])
        slt = ir.IntegerAttr(compare.attributes["predicate"]).value == int(arith.CmpIPredicate.slt)
        if not slt or index is None or index.name != "linalg.index":
            return None
        dim = ir.IntegerAttr(index.attributes["dim"]).value
        return _Inside(select, dim, compare.operands[1], select.operands[1], neutral)


def _mask(maximum: ir.Operation) -> None:
    """Masks the tile that `maximum` reduces, if it leaves out padding and is the maximum of a tile as it is."""
    block = maximum.regions[0].blocks[0]
    combiner = defining_op(ops_of(block)[-1].operands[0])
    if combiner is None or combiner.name not in MAXIMA or len(maximum.results) != 1:
        return
    found = next((f for f in map(_Inside.of, combiner.operands) if f is not None), None)
    if found is None or found.neutral != float("-inf") or found.element not in block.arguments:
        return
    tile = maximum.operands[found.element.arg_number]
    if indexing_maps(maximum)[found.element.arg_number] != ir.AffineMap.get_identity(len(iterator_types(maximum))):
        return
    made = defining_op(tile)
    if made is None or made.block != maximum.block:
        return
    others = [u for u in tile.uses if u.owner.operation != maximum]
    dropped = [found]
    for use in others:
        dropped += _zeroes(use.owner.operation, use.operand_number, found)
    source = _scaled(made) or tile
    masked = _masked(source, found, maximum)
    source.replace_all_uses_except(masked, [defining_op(masked), *ops_in(defining_op(masked))])
    for inside in dropped:
        inside.select.results[0].replace_all_uses_with(inside.element)


def _zeroes(op: ir.Operation, number: int, found: _Inside) -> list[_Inside]:
    """The selects of a user of the tile that make 0 of what is 0 anyway once the tile is −inf."""
    if op.name != "linalg.generic" or is_matmul(op):
        return []
    block = op.regions[0].blocks[0]
    zeroes = []
    for inner in ops_of(block):
        inside = _Inside.of(inner.results[0]) if inner.name == "arith.select" else None
        if inside is None or inside.valid != found.valid or inside.neutral != 0.0 or inside.dim != found.dim:
            continue
        power = defining_op(inside.element)
        difference = scaled(power.operands[0])[0] if power is not None and power.name in EXPONENTIALS else None
        if difference is None or difference.name != "arith.subf":
            continue
        if difference.operands[0] == block.arguments[number] and _is_finite(difference.operands[1]):
            zeroes.append(inside)
    return zeroes


def scaled(value: ir.Value) -> tuple[ir.Operation | None, float]:
    """What `value` is a positive multiple of, and the factor: (its op, 1) if it is no product with a constant."""
    op = defining_op(value)
    if op is not None and op.name == "arith.mulf":
        for i in (0, 1):
            factor = constant_value(op.operands[1 - i])
            if factor is not None and factor > 0:
                return defining_op(op.operands[i]), factor
    return op, 1.0


def _is_finite(value: ir.Value) -> bool:
    """Whether 0 stands for −∞ in `value`."""
    found = guarded(value)
    return found is not None and constant_value(found[1]) == 0.0


def _scaled(op: ir.Operation) -> ir.Value | None:
    """The tile of which `op` makes a positive multiple, to which it may add a position, and nothing else is made."""
    if op.name != "linalg.generic" or len(op.results) != 1 or reduces(op):
        return None
    if not is_rising_line(yielded(op), op.regions[0].blocks[0].arguments[0]):
        return None
    source = op.operands[0]
    made = defining_op(source)
    fits = source.type == op.results[0].type and single_use(source) and made is not None and made.block == op.block
    return source if fits else None


def _masked(tile: ir.Value, found: _Inside, maximum: ir.Operation) -> ir.Value:
    made = defining_op(tile)
    rank = tile.type.rank
    # The number of valid columns may be computed behind the tile.
    count = defining_op(found.valid)
    behind = made if count is None or count.block != made.block or _is_before(count, made) else count
    following = ops_of(behind.block)[ops_of(behind.block).index(behind) + 1]
    with ir.InsertionPoint(following), maximum.location:
        some = arith.cmpi(arith.CmpIPredicate.slt, found.valid, build.index(tile.type.shape[found.dim]))
        branch = ir.Operation.create("scf.if", [tile.type], [some], regions=2)
        with ir.InsertionPoint(branch.regions[0].blocks.append()):

            def select(x: ir.Value, _: ir.Value) -> ir.Value:
                inside = arith.cmpi(arith.CmpIPredicate.slt, linalg.IndexOp(found.dim).result, found.valid)
                return arith.select(inside, x, build.constant(x.type, float("-inf")))

            empty = ir.Operation.create("tensor.empty", [tile.type], []).result
            identity = build.projection(rank, range(rank))
            (new,) = build.generic([tile], [empty], [identity] * 2, [build.PARALLEL] * rank, select)
            ir.Operation.create("scf.yield", [], [new])
        with ir.InsertionPoint(branch.regions[1].blocks.append()):
            ir.Operation.create("scf.yield", [], [tile])
    return branch.results[0]


def _is_before(a: ir.Operation, b: ir.Operation) -> bool:
    ops = ops_of(a.block)
    return ops.index(a) < ops.index(b)

"""The pass ``roll-loops``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...dialects import build
from ...dialects.build import constant_value
from ...dialects.mlir import arith, ir, scf
from ..passes import Pass
from ..rewriting import ops_in
from .initial_values import WITHOUT_MEMORY


@dataclass(frozen=True)
class RollLoops(Pass):
    """Makes one loop of two with the same body, also where others stand between them::

        scf.for %k = %a to %b step %c64 { … a tile that the mask cuts … }
        scf.for %k = %b to %c step %c64 { … a live tile … }
        scf.for %k = %c to %d step %c64 { … a tile that the mask cuts … }
    becomes
        scf.for %turn = %c0 to %c2 step %c1 {
          %first = arith.cmpi eq, %turn, %c0
          %low = arith.select %first, %a, %c    %high = arith.select %first, %b, %d
          scf.for %k = %low to %high step %c64 { … a tile that the mask cuts … }
          %low2 = arith.select %first, %b, %c0  %high2 = arith.select %first, %c, %c0
          scf.for %k = %low2 to %high2 step %c64 { … a live tile … }
        }

    The order of all that is computed stays. A body is compiled once: of a sliding window's three loops over keys, the
    first and the last one cut tiles in the same way.
    """

    def run(self, op: ir.Operation) -> None:
        while (found := _find(op)) is not None:
            _roll(*found)


def _find(op: ir.Operation) -> tuple[list[ir.Operation], int] | None:
    """Loops in a row, and after how many of them the first one's body comes again, and so on to the last one."""
    blocks = {loop.block: None for loop in ops_in(op, "scf.for") if loop.name == "scf.for"}
    found = (_period(run) for block in blocks for run in _runs(block))
    return next((one for one in found if one is not None), None)


def _runs(block: ir.Block) -> list[list[ir.Operation]]:
    """Loops with nothing but numbers computed between them."""
    runs: list[list[ir.Operation]] = [[]]
    for op in [o.operation for o in block.operations]:
        if op.name == "scf.for" and not op.results:
            runs[-1].append(op)
        elif op.regions or op.name.split(".")[0] not in WITHOUT_MEMORY:
            runs.append([])
    return [run for run in runs if len(run) > 1]


def _period(loops: list[ir.Operation]) -> tuple[list[ir.Operation], int] | None:
    for start in range(len(loops)):
        for period in range(1, len(loops) - start):
            end = start + period
            while end < len(loops) and _same(loops[end], loops[start + (end - start) % period]):
                end += 1
            if end > start + period:
                return loops[start:end], period
    return None


def _roll(loops: list[ir.Operation], period: int) -> None:
    turns = -(-len(loops) // period)
    bounds = [list(loop.operands)[:2] for loop in loops]
    with ir.InsertionPoint(loops[-1]), loops[-1].location:
        rolled = scf.ForOp(build.index(0), build.index(turns), build.index(1), [])
        with ir.InsertionPoint(rolled.body):
            end = scf.YieldOp([]).operation
        for i, loop in enumerate(loops[:period]):
            with ir.InsertionPoint(end):
                none = build.index(0)
                low, high = bounds[i + (turns - 1) * period] if i + (turns - 1) * period < len(loops) else (none, none)
                for turn in reversed(range(turns - 1)):
                    is_turn = arith.cmpi(arith.CmpIPredicate.eq, rolled.induction_variable, build.index(turn))
                    earlier = bounds[i + turn * period]
                    low, high = arith.select(is_turn, earlier[0], low), arith.select(is_turn, earlier[1], high)
            loop.move_before(end)
            loop.operands[0], loop.operands[1] = low, high
    for loop in loops[period:]:
        loop.erase()


def _same(one: ir.Operation, other: ir.Operation) -> bool:
    """Whether two loops differ in their bounds alone."""
    values: dict[ir.Value, ir.Value] = {}
    return _same_operands(one.operands[2:], other.operands[2:], values) and _same_regions(one, other, values)


def _same_regions(one: ir.Operation, other: ir.Operation, values: dict[ir.Value, ir.Value]) -> bool:
    if len(one.regions) != len(other.regions):
        return False
    for a, b in zip(one.regions, other.regions, strict=True):
        if len(a.blocks) != len(b.blocks):
            return False
        for x, y in zip(a.blocks, b.blocks, strict=True):
            if [v.type for v in x.arguments] != [v.type for v in y.arguments]:
                return False
            values.update(zip(x.arguments, y.arguments, strict=True))
            first, second = ([o.operation for o in block.operations] for block in (x, y))
            if len(first) != len(second):
                return False
            if not all(_same_op(p, q, values) for p, q in zip(first, second, strict=True)):
                return False
    return True


def _same_op(one: ir.Operation, other: ir.Operation, values: dict[ir.Value, ir.Value]) -> bool:
    if one.name != other.name or [r.type for r in one.results] != [r.type for r in other.results]:
        return False
    if {a: one.attributes[a] for a in one.attributes} != {a: other.attributes[a] for a in other.attributes}:
        return False
    if not _same_operands(one.operands, other.operands, values) or not _same_regions(one, other, values):
        return False
    values.update(zip(one.results, other.results, strict=True))
    return True


def _same_operands(one: Sequence[ir.Value], other: Sequence[ir.Value], values: dict[ir.Value, ir.Value]) -> bool:
    """Whether operands are the same where the loops stand, or what corresponds in their bodies."""
    if len(one) != len(other):
        return False
    for a, b in zip(one, other, strict=True):
        number = constant_value(a) if a not in values else None
        if values.get(a, a) != b and (number is None or a.type != b.type or number != constant_value(b)):
            return False
    return True

"""The pass ``roll-loops``."""

from __future__ import annotations

from dataclasses import dataclass

from ....dialects import build
from ....dialects.build import constant_value
from ....dialects.mlir import arith, ir, scf
from ...equivalence import have_same_regions
from ...passes import Pass
from ...rewriting import ops_in, ops_of
from ..initial_values import is_arithmetic


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
    blocks = {loop.block: None for loop in ops_in(op, "scf.for")}
    found = (_period(run) for block in blocks for run in _runs(block))
    return next((one for one in found if one is not None), None)


def _runs(block: ir.Block) -> list[list[ir.Operation]]:
    """Loops with nothing but numbers computed between them."""
    runs: list[list[ir.Operation]] = [[]]
    for op in ops_of(block):
        if op.name == "scf.for" and not op.results:
            runs[-1].append(op)
        elif not is_arithmetic(op):
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
    steps = zip(one.operands[2:], other.operands[2:], strict=True)
    return all(_alike(a, b) for a, b in steps) and have_same_regions(one, other, {}, _alike)


def _alike(a: ir.Value, b: ir.Value) -> bool:
    """Whether two values are one, or the same number."""
    return a == b or (a.type == b.type and constant_value(a) is not None and constant_value(a) == constant_value(b))

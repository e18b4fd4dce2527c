"""Tests of tiles that several iterations of a parallel loop would make again: made once, before it.

A mask without a dimension of heads is the same for all of them::

    scf.forall (%h, %q) … { scf.for %k … { %dead = … of mask[%q, %k] …
becomes
    %table = scf.forall (%q) … shared_outs(%t = %empty : tensor<64x64xi1>) {
      %row = scf.for %k … { %dead = … of mask[%q, %k] …   tensor.insert %dead into … }
      tensor.parallel_insert_slice %row into %t[%q / 64, 0] [1, 64] [1, 1]
    }
    scf.forall (%h, %q) … { scf.for %k … { %dead = tensor.extract %table[%q / 64, %k / 64] …
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...dialects import build
from ...dialects.mlir import ir, scf, tensor
from ..slices import insert_parallel
from .before_loops import BeforeLoops, Steps
from .loaded_masks import LoadedMask, Test, by_mask, emit_tests
from .mark_few_rows import mark_as
from .tile_sets import TileSets


@dataclass(frozen=True)
class Table:
    """The results of a test, for each iteration of some loops."""

    values: ir.Value
    loops: tuple[Steps, ...]

    def look_up(self, moved: dict[ir.Value, ir.Value]) -> ir.Value:
        """For the tile that is computed here; `moved`: what stands in the place of variables."""
        return tensor.extract(self.values, [s.place(moved.get(s.variable, s.variable)) for s in self.loops])


def make_tables(sets: TileSets, tests: Sequence[Test]) -> dict[Test, Table]:
    """Tables of those tests that are worth it, before the parallel loop around the loop of `sets`."""
    before = BeforeLoops(sets.loop)
    forall = before.forall
    if forall is None or not isinstance(sets.low, int) or not isinstance(sets.step, int):
        return {}
    inner = Steps.of(sets)
    found: dict[Test, Table] = {}
    for mask, of_mask in by_mask(tests).items():
        loops = _loops_of(mask, inner, before)
        if loops is not None:
            with ir.InsertionPoint(forall), forall.location:
                found.update(_tabulated(of_mask, loops, inner, forall))
    return found


def _loops_of(mask: LoadedMask, inner: Steps, before: BeforeLoops) -> list[Steps] | None:
    """The parallel loops that the mask depends on, if there are others, and it has rows."""
    used = mask.needs
    own = [s for s in before.counted or [] if s.variable in used]
    known = [s.variable for s in own] + [inner.variable]
    if not own or not before.has(mask.tensor) or not all(v in known or before.has(v) for v in used):
        return None
    if not all(isinstance(s.high, int) or before.has(s.high) for s in [*own, inner]):
        return None
    return own if mask.has_rows and before.sharing(used) > 1 else None


def _tabulated(tests: list[Test], own: list[Steps], inner: Steps, forall: ir.Operation) -> dict[Test, Table]:
    """Before the loop that reads them."""
    i1 = ir.IntegerType.get_signless(1)
    sizes = [s.size() for s in [*own, inner]]
    ones = [1] * len(own)
    loop = scf.ForallOp(
        [s.low for s in own], [s.high for s in own], [s.step for s in own], [build.empty(sizes, i1) for _ in tests]
    )
    mark_as(forall, loop.operation)
    with ir.InsertionPoint(loop.body):
        moved = {s.variable: v for s, v in zip(own, loop.induction_variables, strict=False)}
        low, high, step = map(build.as_index, (inner.low, inner.high, inner.step))
        rows = scf.ForOp(low, high, step, [build.empty([*ones, sizes[-1]], i1) for _ in tests])
        with ir.InsertionPoint(rows.body):
            at = rows.induction_variable
            values = emit_tests(tests, moved | {inner.variable: at})
            zeros = [build.index(0) for _ in own]
            place = inner.place(at)
            scf.YieldOp(
                [
                    tensor.insert(values[test], row, [*zeros, place])
                    for test, row in zip(tests, rows.inner_iter_args, strict=True)
                ]
            )
        places = [s.place(moved[s.variable]) for s in own]
        end = loop.terminator()
    with ir.InsertionPoint(end.block):
        for row, whole in zip(rows.results, loop.inner_iter_args, strict=True):
            insert_parallel(row, whole, [*places, 0], [*ones, sizes[-1]])
    return {t: Table(values, (*own, inner)) for t, values in zip(tests, loop.results, strict=True)}

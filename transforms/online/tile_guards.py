"""Tests of each tile that a loop over tiles comes to, by which it is skipped, or computed without its mask."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field

from ...dialects.mlir import arith, ir, scf
from ..rewriting import ops_of
from .fold_conditions import DECIDED_BY_TEST, fold_conditions
from .loaded_masks import Test, emit_tests
from .masks import Decided
from .tile_predicates import ALL, NONE, Predicate, holds
from .tile_sets import TileSets
from .tile_tables import Table, make_tables

Tests = tuple[Test, ...]


@dataclass(frozen=True)
class Guard:
    """`dead`: tests of which one makes a tile dead. `live`: of each of these at least one makes it live. So do numbers
    of a tile: all of `dead_where` are dead, and none is live outside of `live_where`, if there is such a set."""

    variable: ir.Value  # of the loop that was analysed
    dead: Tests = ()
    live: tuple[Tests, ...] = ()
    tables: dict[Test, Table] = field(default_factory=dict)  # of tests that were made before
    dead_where: Predicate = NONE
    live_where: Predicate | None = None

    @staticmethod
    def of(sets: TileSets, dead: Tests, decided: Sequence[Decided]) -> Guard | None:
        """`decided`: the conditions that only tests decide."""
        live = tuple(dict.fromkeys(one.where.tests for one in decided))
        if not dead and not live:
            return None
        tables = make_tables(sets, _once([*dead, *(t for tests in live for t in tests)]))
        return Guard(sets.variable, dead, live, tables)

    @property
    def has_tests(self) -> bool:
        return bool(self.dead or self.live)

    @property
    def has_live(self) -> bool:
        """Whether any tile may be known to be live."""
        return bool(self.live) or self.live_where is not None

    def ask(self, at: ir.Value, with_live: bool) -> tuple[ir.Value, ir.Value]:
        """Whether the tile at this value of the variable is dead, and whether it is live, which is false if that is not
        asked; at the insertion point."""
        moved, known = {self.variable: at}, dict[Predicate, ir.Value]()
        tests = _once([*self.dead, *(t for tests in self.live if with_live for t in tests)])
        found = {test: self.tables[test].look_up(moved) for test in tests if test in self.tables}
        found |= emit_tests([test for test in tests if test not in self.tables], moved)
        dead, live = (
            holds(predicate, moved, lambda value, there: there.get(value, value), known)
            for predicate in (
                self.dead_where,
                (ALL if self.live_where is None else self.live_where) if with_live else NONE,
            )
        )
        for test in self.dead:
            dead = arith.ori(dead, found[test])
        for some in self.live if with_live else ():
            live = arith.andi(live, functools.reduce(arith.ori, [found[test] for test in some]))
        return dead, live


def put_guard(loop: ir.Operation, guard: Guard, with_live: bool) -> None:
    """Asks in each iteration whether the tile is dead, and `with_live` whether it is live::

        scf.for %k = … iter_args(%o = …) {
          %dead, %live = …                                 // loaded_masks.py, tile_tables.py, tile_predicates.py
          %r = scf.if %dead -> … { scf.yield %o } else {
            %r2 = scf.if %live -> … { … without the mask } else { … with it }
            scf.yield %r2
          }
          scf.yield %r

    `loop` is a copy of the one that was analysed.
    """
    body = loop.regions[0].blocks[0]
    *with_mask, end = ops_of(body)
    with_live = with_live and guard.has_live
    without = loop.clone().operation if with_live else None
    carried, kinds = list(body.arguments)[1:], [v.type for v in list(body.arguments)[1:]]
    with ir.InsertionPoint(with_mask[0]), loop.location:
        is_dead, is_live = guard.ask(body.arguments[0], with_live)
        skipped = scf.IfOp(is_dead, kinds, has_else=True)
    with ir.InsertionPoint(skipped.then_block), loop.location:
        scf.YieldOp(carried)
    with ir.InsertionPoint(skipped.else_block), loop.location:
        choice = scf.IfOp(is_live, kinds, has_else=True)
        scf.YieldOp(list(choice.results))
    _move(with_mask, end, choice.else_block)
    if without is None:
        with ir.InsertionPoint(choice.then_block), loop.location:
            scf.YieldOp(carried)  # is_live is false
    else:
        fold_conditions(without, DECIDED_BY_TEST)
        inner = without.regions[0].blocks[0]
        for old, new in zip(inner.arguments, body.arguments, strict=True):
            old.replace_all_uses_with(new)
        *ops, its_end = ops_of(inner)
        _move(ops, its_end, choice.then_block)
        without.erase()
    for i, value in enumerate(skipped.results):
        end.operands[i] = value


def _move(ops: Sequence[ir.Operation], end: ir.Operation, block: ir.Block) -> None:
    """The ops to an empty block, which then yields what `end` does."""
    for op in ops:
        block.append(op)
    with ir.InsertionPoint(block), end.location:
        scf.YieldOp(list(end.operands))


def _once(tests: Sequence[Test]) -> Tests:
    return tuple(dict.fromkeys(tests))

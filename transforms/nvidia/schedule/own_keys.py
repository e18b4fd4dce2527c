"""Which of a loop's tiles of keys are live for the rows of a single warpgroup.

The bounds of a loop over keys are those of all rows of a tile; masks by position make them depend on where these begin,
%x. What is dead for the rows from %x on is dead for each of them, wherever that is. So of a warpgroup whose rows begin
at %y, those keys are live that are live both for a tile that begins there and for one that ends with its rows (before
0 as it may be: bounds are formulas)::

    lower(%x) = max(⌈(%x − 318) / 64⌉ · 64, 0)          of 256 rows, with a window of 256 keys
    own lower = max(lower(%y), lower(%y + 64 − 256))
    own upper = min(upper(%y), upper(%y + 64 − 256))
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from ....dialects import build
from ....dialects.build import constant_value
from ....dialects.mlir import arith, ir
from ....dialects.tile import dims_of
from ...attention import is_matmul
from ...copying import copy_needed
from ...rewriting import Values, defining_op, for_body, is_made_inside, ops_in, ops_of, through
from ..architecture import ROWS

MATMULS = 2  # of an iteration; where there are three, turns are worth more (measured on an H200: 6 to 12%)
SIGNED = [f"arith.{name}" for name in ("addi", "subi", "muli", "maxsi", "minsi", "cmpi", "select", "index_cast")]
FORMULAS = (*SIGNED, "affine.apply", "affine.max", "affine.min")


class Slice:
    """What is computed from `roots`."""

    def __init__(self, *roots: ir.Value):
        self.roots = set(roots)
        self.known: dict[ir.Value, bool] = dict.fromkeys(roots, True)

    def has(self, value: ir.Value) -> bool:
        if value not in self.known:
            op = defining_op(value)
            self.known[value] = op is not None and any(map(self.has, op.operands))
        return self.known[value]

    def is_formula(self, value: ir.Value) -> bool:
        """Whether it is computed from the roots by ops that know negative numbers, too, alone."""
        op = defining_op(value)
        if value in self.roots or op is None or not self.has(value):
            return True
        return op.name in FORMULAS and all(map(self.is_formula, op.operands))

    def copied(self, wanted: list[ir.Value], roots: Values, values: Values) -> Values:
        """`values`, but for this slice: what it takes to have the `wanted` ones is computed from other roots, at the
        insertion point."""
        found = {old: new for old, new in values.items() if not self.has(old)} | roots
        for value in wanted:
            copy_needed(value, found, lambda op: any(map(self.has, op.results)))
        return found


@dataclass(frozen=True)
class OwnKeys:
    """Of the loop in `branch` over all keys but the first tile, which `first` loads (``overlap-matmuls``). The branch
    is taken if `lower` is less than `upper`; the rows of the block's tile begin at `start`."""

    branch: ir.Operation
    loop: ir.Operation
    lower: ir.Value
    upper: ir.Value
    start: ir.Value
    first: ir.Operation

    @staticmethod
    def of(branch: ir.Operation) -> OwnKeys | None:
        """None where the warpgroups of a tile have the same keys, or it cannot be told which."""
        ops = ops_of(branch.regions[0].blocks[0])
        loops, loads = ([o for o in ops if o.name == name] for name in ("scf.for", "tile.load"))
        bounds = _bounds(branch.operands[0])
        start = _first_row(loops[0]) if len(loops) == 1 else None
        if bounds is None or start is None or start in bounds or loops[0].operands[1] != bounds[1] or not loads:
            return None
        if sum(map(is_matmul, ops_of(for_body(loops[0])))) > MATMULS:
            return None
        own, of_start = OwnKeys(branch, loops[0], bounds[0], bounds[1], start, loads[0]), Slice(start)
        differ = any(map(of_start.has, bounds)) and all(map(of_start.is_formula, bounds))
        return own if differ and own.apart and own.place is not None else None

    @property
    def step(self) -> ir.Value:
        return self.loop.operands[2]

    @property
    def rows(self) -> int:
        return next(filter(is_matmul, ops_of(for_body(self.loop)))).results[0].type.shape[0]

    @functools.cached_property
    def place(self) -> ir.Value | None:
        """Where the first tile of keys begins, if that depends on one bound at least."""
        view = self.first.opview
        found = [v for v in view.indices[: view.memory.type.rank] if self._of_bounds.has(v)]
        return found[0] if len(found) == 1 else None

    @functools.cached_property
    def _of_bounds(self) -> Slice:
        """What depends on the bounds; a number is none of the loop's own, nor is an argument, as the number of keys."""
        return Slice(*(v for v in (self.lower, self.upper) if defining_op(v) is not None and constant_value(v) is None))

    @property
    def apart(self) -> int:
        """How many tiles of keys the first and the last warpgroup may be apart. Larger ones than a warpgroup has rows
        are not looked at: few would be left out, and tiles of 128 keys leave three warpgroups no registers for it."""
        step = constant_value(self.step)
        return (self.rows - ROWS) // step if step is not None and step <= ROWS else 0

    def bounds(self, row: ir.Value, values: Values) -> Values:
        """What bounds become that are no numbers, for the warpgroup whose rows begin at `row` of the tile, at the
        insertion point, where `values` are. There is one tile of keys at least."""
        lower, upper, start = (values.get(v, v) for v in (self.lower, self.upper, self.start))
        one, tiles = build.index(1), self.tiles(lower, upper)
        first = arith.addi(start, row)
        ending = arith.subi(first, build.index(self.rows - ROWS))
        of_start, wanted = Slice(self.start), [self.lower, self.upper]
        live = [of_start.copied(wanted, {self.start: x}, values) for x in (first, ending)]
        lowest = arith.maxsi(*(v.get(self.lower, lower) for v in live))
        highest = arith.minsi(*(v.get(self.upper, upper) for v in live))
        skipped = arith.divui(arith.maxsi(arith.subi(lowest, lower), build.index(0)), self.step)
        skipped = arith.maxsi(arith.minsi(skipped, arith.subi(tiles, one)), build.index(0))
        end = arith.maxsi(arith.minsi(self.tiles(lower, highest), tiles), arith.addi(skipped, one))
        own = {v: arith.addi(lower, arith.muli(n, self.step)) for v, n in zip(wanted, (skipped, end), strict=True)}
        return {v: bound for v, bound in own.items() if v in self._of_bounds.roots}

    def tiles(self, lower: ir.Value, upper: ir.Value) -> ir.Value:
        """How many there are between bounds."""
        keys = arith.maxsi(arith.subi(upper, lower), build.index(0))
        return arith.divui(arith.addi(keys, arith.subi(self.step, build.index(1))), self.step)

    def moved(self, bounds: Values, values: Values) -> Values:
        """`values` for a branch with other bounds: what it takes from before it is computed for these."""
        taken = [v for op in ops_in(self.branch) for v in op.operands if not is_made_inside(v, self.branch)]
        condition = self.branch.operands[0]  # with no tile at all, there is none of a warpgroup either
        return self._of_bounds.copied(taken, bounds, values) | {condition: values[condition]}

    def others(self, bounds: Values, values: Values) -> tuple[ir.Value, ir.Value]:
        """How many tiles come before those within other bounds, whichever way the loop goes, and how many behind."""
        place, ends = self.place, (self.lower, self.upper)
        all_ = {v: values.get(v, v) for v in ends}
        own, first = (self._of_bounds.copied([place], all_ | moved, values)[place] for moved in (bounds, {}))
        distance = arith.divui(arith.maxsi(arith.subi(own, first), arith.subi(first, own)), self.step)
        left = arith.subi(*(self.tiles(*((all_ | moved)[v] for v in ends)) for moved in ({}, bounds)))
        left = arith.maxsi(left, build.index(0))  # also with no tile at all, of which a warpgroup has one
        before = arith.minsi(distance, left)
        return before, arith.subi(left, before)


def _bounds(condition: ir.Value) -> list[ir.Value] | None:
    """Of a loop that is taken if this is true."""
    op = defining_op(condition)
    if op is None or op.name != "arith.cmpi":
        return None
    predicate = arith.CmpIPredicate(ir.IntegerAttr(op.attributes["predicate"]).value)
    turned = {arith.CmpIPredicate.slt: 1, arith.CmpIPredicate.sgt: -1}
    return list(op.operands)[:: turned[predicate]] if predicate in turned else None


def _first_row(loop: ir.Operation) -> ir.Value | None:
    """Where the rows begin of the left operand that matmuls of the loop have from memory."""
    left = next((o.operands[0] for o in ops_of(for_body(loop)) if is_matmul(o)), None)
    op = defining_op(through(left, "tile.convert_layout", "tile.scale")) if left is not None else None
    dim = dims_of(op.opview)[0] if op is not None and op.name == "tile.load" else None
    return op.opview.indices[dim] if isinstance(dim, int) else None

"""What a mask does to whole tiles of scores, read off the IR that computes the mask.

The score at a position is followed backwards through the element-wise ops of the loop body (and before the loop), with
the position as linear forms: of `Local` d, the element's index in the tile along dimension d, and of SSA values, the
offsets of the tile. There, comparisons of integers become linear forms e ≤ 0, whose extremes over the tile
(tile_forms.py) are conditions on the loop's induction variable: sets of tiles (tile_sets.py). They go through and, or,
not and select (tile_conditions.py) to what makes a score −∞::

    %i = linalg.index 0 + %q                         j − i ≤ 0, with i = Local(0) + %q, j = Local(1) + %k
    %j = linalg.index 1 + %k                         always: %k + 31 − %q ≤ 0     (tile of 32 keys)
    %visible = arith.cmpi sle, %j, %i                never:  1 − %k + %q + 15 ≤ 0 (tile of 16 queries)
    %x = arith.select %visible, %s, %minus_inf       dead:   where never

A mask that is loaded gives a test in place of a set (loaded_masks.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...dialects.build import constant_value
from ...dialects.mlir import ir
from ...dialects.tiling import Index
from ...dialects.tiling.structured import indexing_maps
from ..extents import extent
from ..rewriting import defining_op, is_inside
from .loaded_masks import LoadedMask, is_number
from .positions import Local, Scalar, element, follow, through_views
from .scores import HIGHEST_MASK, is_score
from .tile_conditions import Scan, TileConditions, Where
from .tile_forms import TileForms, sizes_of
from .tile_predicates import TilePredicates
from .tile_scans import TileScans
from .tile_sets import TileSets

if TYPE_CHECKING:
    from .split_masked_tiles import SplitMaskedTiles


@dataclass(frozen=True)
class Decided:
    """Operand `number` of `user` is `value` in all of `where`."""

    user: ir.Operation
    number: int
    value: bool
    where: Where


@dataclass(frozen=True)
class Added:
    """How a number that is added to scores goes into an exponential: times `factor`, and less one number for each row.
    Rows are along the dimensions `rows` of the tile; None where that is not known."""

    factor: float = 1.0
    rows: frozenset[int] | None = None

    def times(self, factor: float) -> Added:
        return Added(self.factor * factor, self.rows)


class DeadTiles:
    """Tiles in which a score is −∞ everywhere, or a weight 0."""

    def __init__(self, forms: TileForms, tests: bool = False, scan: Scan = TileScans.at_the_ends):
        self.at = TileConditions(forms, tests, scan)

    def dead(self, scalar: Scalar | None, bound: float = -math.inf, added: Added | None = None) -> Where:
        """Where the float `scalar` is `bound` at most in all elements. (Adding to −∞ is taken to give −∞.)

        `added`: it goes into an exponential so, and nothing else there may be a mask. Then it counts, too, where what
        is added from memory is so low that this gives 0, as others of the row are far above."""
        at = self.at
        infinite = bound == -math.inf
        followed = scalar and follow(scalar)
        if scalar is None or followed is None:
            mask = self._loaded(scalar) if infinite else None
            if mask is None:
                return at.none
            is_of_rows = added is not None and added.rows is not None and _goes_along_rows(scalar, added.rows)
            return at.low(mask, HIGHEST_MASK / added.factor if is_of_rows else None)
        scalar = followed
        if (number := constant_value(scalar.value)) is not None:
            return at.all if number <= bound else at.none
        op = defining_op(scalar.value)
        if op is None:
            return at.none
        if infinite and op.name == "arith.addf":
            beside_scores = [added if is_score(scalar.operand(1 - i)) else None for i in (0, 1)]
            return at.union(*(self.dead(scalar.operand(i), bound, beside_scores[i]) for i in (0, 1)))
        if infinite and op.name == "arith.subf":
            rows = _dims_of(scalar.operand(1)) if added is not None and added.rows is None else None
            return self.dead(scalar.operand(0), bound, Added(added.factor, rows) if rows else None)
        if op.name in ("arith.minnumf", "arith.minimumf"):
            return at.union(*(self.dead(scalar.operand(i), bound) for i in (0, 1)))
        if op.name in ("arith.maxnumf", "arith.maximumf"):
            return at.intersection(*(self.dead(scalar.operand(i), bound) for i in (0, 1)))
        if op.name == "arith.extf" or (infinite and op.name == "arith.truncf"):
            return self.dead(scalar.operand(0), bound, added)
        if (scaled := scaled_by(op)) is not None:
            return self.dead(scalar.operand(scaled[0]), bound / scaled[1], added and added.times(scaled[1]))
        return self._chosen(scalar, lambda x: self.dead(x, bound)) if op.name == "arith.select" else at.none

    def zero(self, scalar: Scalar | None) -> Where:
        """Where the float `scalar` is 0 in all elements. (0 times anything is taken to give 0.)"""
        at = self.at
        followed = scalar and follow(scalar)
        if scalar is None or followed is None:
            mask = self._loaded(scalar)
            return at.holds(is_number(mask, 0.0)) if mask is not None else at.none
        if (number := constant_value(followed.value)) is not None:
            return at.all if number == 0 else at.none
        op = defining_op(followed.value)
        if op is None:
            return at.none
        if op.name == "arith.uitofp":
            return at.truth(followed.operand(0)).never
        if op.name in ("math.exp", "math.exp2"):
            return self.dead(followed.operand(0), added=Added())
        if op.name == "arith.mulf":
            return at.union(*(self.zero(followed.operand(i)) for i in (0, 1)))
        if op.name in ("arith.addf", "arith.subf"):
            return at.intersection(*(self.zero(followed.operand(i)) for i in (0, 1)))
        if op.name in ("arith.extf", "arith.truncf", "arith.divf"):
            return self.zero(followed.operand(0))
        return self._chosen(followed, self.zero) if op.name == "arith.select" else at.none

    def _loaded(self, scalar: Scalar | None) -> LoadedMask | None:
        """The mask of floats that it is an element of."""
        mask = self.at.loaded(scalar) if scalar is not None else None
        return mask if mask is not None and isinstance(mask.tensor.type.element_type, ir.FloatType) else None

    def _chosen(self, select: Scalar, where: Callable[[Scalar], Where]) -> Where:
        """Where something holds of what is selected, of which `where` tells it of either side."""
        at = self.at
        condition = at.truth(select.operand(0))
        a, b = (where(select.operand(i)) for i in (1, 2))
        if a == at.all:  # whatever the condition is where the other side is dead too
            return at.union(condition.always, b)
        if b == at.all:
            return at.union(condition.never, a)
        chosen = at.union(at.intersection(condition.always, a), at.intersection(condition.never, b))
        return at.union(chosen, at.intersection(a, b))


class TileMasks(DeadTiles):
    """What the masks of the scores `x` do to the tiles of the loop of `sets`."""

    def __init__(
        self,
        sets: TileSets,
        x: ir.Value,
        options: SplitMaskedTiles,
        predicates: TilePredicates | None = None,
    ):
        """`predicates`: in the place of intervals."""
        self._sizes = sizes_of(x, sets)
        forms = TileForms(predicates or sets, self._sizes, sets if options.from_data else None, options.added)
        of_each = predicates and (lambda _, form: predicates.where_not_positive(form))
        super().__init__(forms, options.tests, of_each or TileScans.at_the_ends)
        # A mask of queries and keys is brought along with the keys: tiles without it would have loops of their own.
        self._live_at = TileConditions(forms, options.tests, of_each or TileScans.in_a_row, tables=bool(predicates))
        self.sets = sets
        self.forms = forms
        self._x = x
        self._conditions: list[Decided] = []
        self.unknown: list[ir.Operation] = []  # selects of −∞ by a condition that is not understood
        self._seen: set[Scalar] = set()

    @property
    def scores(self) -> Scalar | None:
        of_all = [Index(0) if size == [Index(1)] else Index(0, ((Local(d), 1),)) for d, size in enumerate(self._sizes)]
        return element(self._x, of_all)

    def lowest(self, scalar: Scalar | None) -> float | None:
        """The largest of the finite numbers that selects on the way to `scalar` put where a mask would put −∞."""
        scalar = scalar and follow(scalar)
        op = defining_op(scalar.value) if scalar is not None else None
        if scalar is None or op is None:
            return None
        if op.name == "arith.select" or op.name in _BOUNDS:
            values = [constant_value(v) for v in op.operands]
            found = [self.lowest(scalar.operand(i)) for i, n in enumerate(values) if n is None]
            found += [n for n in values if isinstance(n, float) and math.isfinite(n)]
        elif op.name == "arith.extf":
            return self.lowest(scalar.operand(0))
        elif (scaled := scaled_by(op)) is not None:
            inner = self.lowest(scalar.operand(scaled[0]))
            found = [inner * scaled[1] if inner is not None else None]
        else:
            return None
        return max((n for n in found if n is not None and n < 0), default=None)

    def conditions(self, scalar: Scalar | None) -> list[Decided]:
        """The masks on the way to `scalar`, selects in the loop with a constant, or what is one for a row, on one side:
        where it is not taken."""
        self._visit(scalar)
        return self._conditions

    def _visit(self, scalar: Scalar | None) -> None:
        scalar = scalar and follow(scalar)
        op = defining_op(scalar.value) if scalar is not None else None
        if scalar is None or op is None or scalar in self._seen or not is_inside(op, self.sets.loop):
            return
        self._seen.add(scalar)
        if op.name == "arith.select":
            constants = [constant_value(op.operands[i]) for i in (1, 2)]
            is_fixed = [number is not None for number in constants]
            of_rows = [self._is_of_row(scalar.operand(i)) for i in (1, 2)]
            if not any(is_fixed) and not all(of_rows):
                is_fixed = of_rows
            if constants[0] == -math.inf or not is_fixed[1]:
                wanted = False if is_fixed[0] else None
            else:
                wanted = True
            if wanted is not None and not self._decide(op, 0, wanted, scalar) and -math.inf in constants:
                self.unknown.append(op)
        for i, operand in enumerate(op.operands):
            if isinstance(operand.type, ir.FloatType):
                self._visit(scalar.operand(i))

    def _is_of_whole_tile(self, user: ir.Operation, loops: Sequence[Index]) -> bool:
        """Whether all that the op around `user` computes are elements of the tile, so that what holds there holds."""
        op = user.parent.operation
        used = [at.terms[0][0] if at.is_value else None for at in loops]
        output = indexing_maps(op)[-1]
        for d, e in enumerate(output.results):
            size, atom = extent(op.results[-1], d), used[e.position]
            if loops[e.position] == Index(0):
                whole = size == Index(1)
            else:
                whole = isinstance(atom, Local) and size is not None and size == extent(self._x, atom.dim)
            if not whole:
                return False
        locals_ = [atom for atom in used if atom is not None]
        return len(set(locals_)) == len(locals_)

    def _is_of_many(self, loops: Sequence[Index]) -> bool:
        """Whether an op has as many elements as the tile. Those of a vector, such as a guard of each row's statistics,
        take less time than a test of each tile would."""
        return sum(at.is_value for at in loops) >= sum(size != [Index(1)] for size in self._sizes)

    def _is_of_row(self, scalar: Scalar) -> bool:
        """Whether it is read from what has fewer dimensions than a tile of scores."""
        if not isinstance(scalar.value, ir.BlockArgument) or not scalar.loops:
            return False
        read = indexing_maps(scalar.value.owner.owner)[scalar.value.arg_number]
        return not self._is_of_many([scalar.loops[e.position] for e in read.results])

    def _decide(self, user: ir.Operation, number: int, wanted: bool, scalar: Scalar) -> bool:
        """Notes where the operand is `wanted`; of a condition of which that is unknown, where its known parts are."""
        at = scalar.operand(number)
        truth = self._live_at.truth(at)
        where = truth.always if wanted else truth.never
        if where and self._is_of_whole_tile(user, scalar.loops):
            if where.tiles or self._is_of_many(scalar.loops):
                self._conditions.append(Decided(user, number, wanted, where))
            return True
        followed = follow(at)
        op = defining_op(followed.value) if followed is not None else None
        if followed is None or op is None or not is_inside(op, self.sets.loop):
            return False
        if op.name in ("arith.andi", "arith.ori"):
            left, right = (self._decide(op, i, wanted, followed) for i in (0, 1))
            return left or right
        if op.name == "arith.xori" and (flip := constant_value(op.operands[1])) is not None:
            return self._decide(op, 0, wanted != bool(flip), followed)
        return False


def _dims_of(scalar: Scalar) -> frozenset[int] | None:
    """The dimensions of the tile that what is loaded goes through, an element for each index."""
    place = through_views(scalar) if isinstance(scalar.value.owner, ir.Block) else None
    if place is None:
        return None
    return frozenset(atom.dim for at in place[1] for atom, _ in at.terms if isinstance(atom, Local))


def _goes_along_rows(scalar: Scalar, rows: frozenset[int]) -> bool:
    """Whether the rows of what is loaded, along its last dimension, are those of scores."""
    place = through_views(scalar)
    dims = [{atom.dim for atom, _ in at.terms if isinstance(atom, Local)} for at in place[1]]
    return not dims[-1] & rows and all(of_one <= rows for of_one in dims[:-1])


_BOUNDS = ("arith.minnumf", "arith.minimumf", "arith.maxnumf", "arith.maximumf")


def scaled_by(op: ir.Operation) -> tuple[int, float] | None:
    """(0 or 1, c) if `op` is that operand times a positive constant c."""
    if op.name not in ("arith.mulf", "arith.divf"):
        return None
    for number in (1, 0) if op.name == "arith.mulf" else (1,):
        factor = constant_value(op.operands[number])
        if factor is not None and 0 < factor < math.inf:
            return 1 - number, factor if op.name == "arith.mulf" else 1 / factor
    return None

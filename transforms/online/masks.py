"""What a mask does to whole tiles of scores, read off the IR that computes the mask.

The score at a position is followed backwards through the element-wise ops of the loop body (and before the loop), with
the position as linear forms: of `Local` d, the element's index in the tile along dimension d, and of SSA values, the
offsets of the tile. There, comparisons of integers become linear forms e ≤ 0, whose extremes over the tile,
0 ≤ Local(d) < size, are conditions on the loop's induction variable: sets of tiles (tile_sets.py). They go through and,
or, not and select to what makes a score −∞::

    %i = linalg.index 0 + %q                         j − i ≤ 0, with i = Local(0) + %q, j = Local(1) + %k
    %j = linalg.index 1 + %k                         always: %k + 31 − %q ≤ 0     (tile of 32 keys)
    %visible = arith.cmpi sle, %j, %i                never:  1 − %k + %q + 15 ≤ 0 (tile of 16 queries)
    %x = arith.select %visible, %s, %minus_inf       dead:   where never
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...dialects.build import constant_value
from ...dialects.mlir import arith, ir
from ...dialects.tiling import Index
from ...dialects.tiling.structured import indexing_maps, is_structured, iterator_types
from ...dialects.tiling.tensor_ops import kept_dims
from ..linear import linear, minima
from ..parallel_loops import slice_parts
from ..rewriting import defining_op, is_inside
from .extents import extent
from .tile_sets import Tiles, TileSets


@dataclass(frozen=True)
class Local:
    """The index along dimension `dim` of an element of the tile of scores."""

    dim: int


@dataclass(frozen=True)
class Greatest:
    """The maximum of forms, where it stands in a form."""

    forms: tuple[Index, ...]


@dataclass(frozen=True)
class Scalar:
    """A value in the body of a structured op whose loops are at `loops`; outside of bodies these are empty."""

    value: ir.Value
    loops: tuple[Index, ...] = ()

    def operand(self, number: int) -> Scalar:
        return Scalar(self.value.owner.operation.operands[number], self.loops)


@dataclass(frozen=True)
class Truth:
    """Tiles in all elements of which a condition holds, and in none."""

    always: Tiles
    never: Tiles


@dataclass(frozen=True)
class Decided:
    """Operand `number` of `user` is `value` in all of `tiles`."""

    user: ir.Operation
    number: int
    value: bool
    tiles: Tiles


class TileMasks:
    """What the masks of the scores `x` do to the tiles of the loop of `sets`."""

    def __init__(self, sets: TileSets, x: ir.Value):
        self.sets = sets
        self._sizes = [self._extents(x, d) for d in range(x.type.rank)]
        self._x = x
        self._loaded: dict[tuple[ir.Value, tuple[Index, ...]], ir.Value] = {}
        self._conditions: list[Decided] = []
        self._seen: set[Scalar] = set()

    @property
    def scores(self) -> Scalar | None:
        position = [
            Index(0) if size == [Index(1)] else Index(0, frozenset({(Local(d), 1)}))
            for d, size in enumerate(self._sizes)
        ]
        return self.element(self._x, position)

    # Sizes of the tile.

    def _extents(self, x: ir.Value, d: int) -> list[Index]:
        """Forms that the extent never exceeds: of values from before the loop exactly one, the extent itself."""
        form = extent(x, d)
        if form is None:
            return []
        if all(self.sets.visible(v) for v, _ in form.terms):
            return [form]
        value = next(iter(form.terms))[0]
        return minima(value) if form.is_value else []

    def _extremes(self, form: Index, sign: int) -> list[Index]:
        """The maximum (sign 1) of `form` over the tile, or its negated minimum (−1): each of the forms bounds it."""
        found = [Index(form.const * sign)]
        for atom, c in form.terms:
            if isinstance(atom, Local):
                steps = [(s - 1).scaled(c * sign) for s in self._sizes[atom.dim]] if c * sign > 0 else [Index(0)]
            else:
                steps = [Index(0, frozenset({(atom, c * sign)}))]
            found = [f + s for f in found for s in steps]
        return found

    # Positions.

    def element(self, tensor: ir.Value, position: Sequence[Index]) -> Scalar | None:
        """What computes the element of `tensor` at `position`, as far as it can be followed."""
        if not isinstance(tensor.type, ir.RankedTensorType):
            return Scalar(tensor)
        op = defining_op(tensor)
        if op is None:
            return None
        if op.name == "linalg.fill":
            return Scalar(op.operands[0])
        if op.name == "tensor.cast":
            return self.element(op.operands[0], position)
        if op.name == "tensor.extract_slice":
            offsets, sizes, strides = slice_parts(op)
            kept = kept_dims([s if isinstance(s, int) else None for s in sizes], list(op.results[0].type.shape))
            if not all(isinstance(t, int) for t in strides):
                return None
            at = iter(position)
            places = [
                (linear(o), next(at).scaled(t) if d in kept else Index(0))
                for d, (o, t) in enumerate(zip(offsets, strides, strict=True))
            ]
            return self.element(op.operands[0], [o + inner for o, inner in places])
        if op.name == "tensor.expand_shape":
            return self._of_expanded(op, position)
        if op.name == "tensor.collapse_shape":
            return self._of_collapsed(op, position)
        if is_structured(op) and len(op.regions) and "reduction" not in iterator_types(op):
            return self._of_structured(op, list(op.results).index(tensor), position)
        return None

    def _of_expanded(self, op: ir.Operation, position: Sequence[Index]) -> Scalar | None:
        shape = op.results[0].type.shape
        source = []
        for group in op.opview.reassociation:
            at = Index(0)
            for d in (ir.IntegerAttr(e).value for e in group):
                if at != Index(0) and shape[d] < 0:
                    return None
                at = (at.scaled(shape[d]) if at != Index(0) else at) + position[d]
            source.append(at)
        return self.element(op.operands[0], source)

    def _of_collapsed(self, op: ir.Operation, position: Sequence[Index]) -> Scalar | None:
        shape = op.operands[0].type.shape
        source = []
        for group, at in zip(op.opview.reassociation, position, strict=True):
            members = [ir.IntegerAttr(e).value for e in group]
            real = [d for d in members if shape[d] != 1]
            if len(real) > 1:
                return None
            source += [at if d in real else Index(0) for d in members]
        return self.element(op.operands[0], source)

    def _of_structured(self, op: ir.Operation, number: int, position: Sequence[Index]) -> Scalar | None:
        maps = indexing_maps(op)
        output = maps[len(op.operands) - len(op.results) + number]
        loops: list[Index | None] = [None] * output.n_dims
        for e, at in zip(output.results, position, strict=True):
            if not isinstance(e, ir.AffineDimExpr) or loops[e.position] is not None:
                return None
            loops[e.position] = at
        if any(at is None for at in loops):
            return None
        body = op.regions[0].blocks[0]
        return Scalar(body.operations[len(body.operations) - 1].operation.operands[number], tuple(loops))

    def follow(self, scalar: Scalar) -> Scalar | None:
        """A block argument is an element of an operand; what is no block argument is itself."""
        while isinstance(scalar.value.owner, ir.Block):
            place = self._operand(scalar)
            found = place and self.element(*place)
            if not found:
                return None
            scalar = found
        return scalar

    def _operand(self, scalar: Scalar) -> tuple[ir.Value, list[Index]] | None:
        """The tensor and position that a block argument of a structured op's body stands for."""
        op = scalar.value.owner.owner.operation
        if not is_structured(op):
            return None
        position = []
        for e in indexing_maps(op)[scalar.value.arg_number].results:
            if isinstance(e, ir.AffineConstantExpr):
                position.append(Index(e.value))
            elif isinstance(e, ir.AffineDimExpr):
                position.append(scalar.loops[e.position])
            else:
                return None
        return op.operands[scalar.value.arg_number], position

    # Integers.

    def _form(self, scalar: Scalar) -> Index:
        def leaf(value: ir.Value) -> Index | None:
            at = Scalar(value, scalar.loops)
            op = defining_op(value)
            if op is None:
                followed = self.follow(at)
                return self._form(followed) if followed is not None else self._load(at)
            if op.name == "linalg.index":
                return scalar.loops[ir.IntegerAttr(op.attributes["dim"]).value]
            if op.name == "math.absi":
                inner = self._form(at.operand(0))
                return _greatest(inner, inner.scaled(-1))
            if op.name in ("arith.maxsi", "arith.minsi"):
                sign = 1 if op.name == "arith.maxsi" else -1
                return _greatest(*(self._form(at.operand(i)).scaled(sign) for i in (0, 1))).scaled(sign)
            return None

        return linear(scalar.value, leaf)

    def _load(self, scalar: Scalar) -> Index | None:
        """A number that is loaded, if it is one for all of the loop: a length, say. It is loaded before the loop."""
        place = self._operand(scalar)
        while place is not None and (op := defining_op(place[0])) is not None and op.name == "tensor.extract_slice":
            offsets, sizes, _ = slice_parts(op)
            if not all(s == 1 for s in sizes) or place[0].type.rank != len(sizes):
                return None
            place = op.operands[0], [linear(o) for o in offsets]
        if place is None or not self.sets.visible(place[0]):
            return None
        tensor, position = place[0], tuple(place[1])
        values = [v for at in position for v, _ in at.terms]
        if not all(isinstance(v, ir.Value) and self.sets.visible(v) for v in values):
            return None
        key = tensor, position
        if key not in self._loaded:
            self._loaded[key] = self.sets.extract(tensor, position)
        return Index.of(self._loaded[key])

    # Conditions.

    def truth(self, scalar: Scalar) -> Truth:
        sets = self.sets
        unknown = Truth(sets.none, sets.none)
        number = constant_value(scalar.value)
        if number is not None:
            return Truth(sets.all, sets.none) if number else Truth(sets.none, sets.all)
        op = defining_op(scalar.value)
        if op is None:
            followed = self.follow(scalar)
            return self.truth(followed) if followed is not None else unknown
        if op.name == "arith.cmpi":
            return self._compare(op, scalar)
        parts = [self.truth(scalar.operand(i)) for i in range(len(op.operands))] if op.name in _LOGIC else []
        if op.name in ("arith.andi", "arith.ori"):
            return self._both(*parts) if op.name == "arith.andi" else self._either(*parts)
        if op.name == "arith.xori":
            a, b = parts
            return self._either(self._both(a, _not(b)), self._both(_not(a), b))
        if op.name == "arith.select":
            c, a, b = parts
            return self._either(self._both(c, a), self._both(_not(c), b))
        return unknown

    def _both(self, a: Truth, b: Truth) -> Truth:
        return Truth(self.sets.intersection(a.always, b.always), self.sets.union(a.never, b.never))

    def _either(self, a: Truth, b: Truth) -> Truth:
        return _not(self._both(_not(a), _not(b)))

    def _compare(self, op: ir.Operation, scalar: Scalar) -> Truth:
        if op.operands[0].type == ir.IntegerType.get_signless(1):
            return Truth(self.sets.none, self.sets.none)
        predicate = arith.CmpIPredicate(ir.IntegerAttr(op.attributes["predicate"]).value)
        difference = self._form(scalar.operand(0)) - self._form(scalar.operand(1))
        at_most = functools.partial(self._not_positive, difference)
        at_least = functools.partial(self._not_positive, difference.scaled(-1))
        compare: dict[Any, Callable[[], Truth]] = {
            arith.CmpIPredicate.sle: at_most,
            arith.CmpIPredicate.sge: at_least,
            arith.CmpIPredicate.slt: lambda: _not(at_least()),
            arith.CmpIPredicate.sgt: lambda: _not(at_most()),
            arith.CmpIPredicate.eq: lambda: self._both(at_most(), at_least()),
            arith.CmpIPredicate.ne: lambda: _not(self._both(at_most(), at_least())),
        }
        return compare[predicate]() if predicate in compare else Truth(self.sets.none, self.sets.none)

    def _not_positive(self, form: Index) -> Truth:
        """`form` ≤ 0. Of a maximum all forms must be, of a negated one any."""
        for atom, c in form.terms:
            if isinstance(atom, Greatest):
                rest = form.without(atom)
                parts = [self._not_positive(rest + f.scaled(c)) for f in atom.forms]
                combine = self._both if c > 0 else self._either
                return combine(*parts)
        always, never = self.sets.none, self.sets.none
        for extreme in self._extremes(form, 1):
            always = self.sets.union(always, self.sets.where_not_positive(extreme))
        for extreme in self._extremes(form, -1):
            never = self.sets.union(never, self.sets.where_not_positive(extreme + 1))
        return Truth(always, never)

    # Scores.

    def dead(self, scalar: Scalar | None) -> Tiles:
        """Tiles in which the float `scalar` is −∞ in all elements. (Adding to −∞ is taken to give −∞.)"""
        sets = self.sets
        scalar = scalar and self.follow(scalar)
        if scalar is None:
            return sets.none
        if (number := constant_value(scalar.value)) is not None:
            return sets.all if number == -math.inf else sets.none
        op = defining_op(scalar.value)
        if op is None:
            return sets.none
        if op.name in ("arith.addf", "arith.minnumf", "arith.minimumf"):
            return sets.union(self.dead(scalar.operand(0)), self.dead(scalar.operand(1)))
        if op.name in ("arith.maxnumf", "arith.maximumf"):
            return sets.intersection(self.dead(scalar.operand(0)), self.dead(scalar.operand(1)))
        if op.name in ("arith.extf", "arith.truncf", "arith.subf"):
            return self.dead(scalar.operand(0))
        if op.name in ("arith.mulf", "arith.divf"):
            factor = constant_value(op.operands[1])
            return self.dead(scalar.operand(0)) if factor is not None and factor > 0 else sets.none
        if op.name == "arith.select":
            condition = self.truth(scalar.operand(0))
            a, b = (self.dead(scalar.operand(i)) for i in (1, 2))
            chosen = sets.union(sets.intersection(condition.always, a), sets.intersection(condition.never, b))
            return sets.union(chosen, sets.intersection(a, b))
        return sets.none

    def conditions(self, scalar: Scalar | None) -> list[Decided]:
        """The masks on the way to `scalar`, selects in the loop with a constant on one side: where it is not taken."""
        self._visit(scalar)
        return self._conditions

    def _visit(self, scalar: Scalar | None) -> None:
        scalar = scalar and self.follow(scalar)
        op = scalar and defining_op(scalar.value)
        if not op or scalar in self._seen or not is_inside(op, self.sets.loop):
            return
        self._seen.add(scalar)
        if op.name == "arith.select":
            constants = [constant_value(op.operands[i]) for i in (1, 2)]
            if constants[0] == -math.inf or constants[1] is None:
                wanted = False if constants[0] is not None else None
            else:
                wanted = True
            if wanted is not None:
                self._decide(op, 0, wanted, scalar)
        for i, operand in enumerate(op.operands):
            if isinstance(operand.type, ir.FloatType):
                self._visit(scalar.operand(i))

    def _decide(self, user: ir.Operation, number: int, wanted: bool, scalar: Scalar) -> None:
        """Notes where the operand is `wanted`; of a condition of which that is unknown, where its known parts are."""
        at = scalar.operand(number)
        truth = self.truth(at)
        tiles = truth.always if wanted else truth.never
        if tiles:
            self._conditions.append(Decided(user, number, wanted, tiles))
            return
        followed = self.follow(at)
        op = followed and defining_op(followed.value)
        if not op or not is_inside(op, self.sets.loop):
            return
        if op.name in ("arith.andi", "arith.ori"):
            for i in (0, 1):
                self._decide(op, i, wanted, followed)
        elif op.name == "arith.xori" and (number := constant_value(op.operands[1])) is not None:
            self._decide(op, 0, wanted != bool(number), followed)


_LOGIC = ("arith.andi", "arith.ori", "arith.xori", "arith.select")


def _not(a: Truth) -> Truth:
    return Truth(a.never, a.always)


def _greatest(*forms: Index) -> Index:
    if all(f.static is not None for f in forms):
        return Index(max(f.const for f in forms))
    return Index(0, frozenset({(Greatest(forms), 1)}))

"""Integers at a position of a tile as linear forms, and their extremes over the tile, 0 ≤ Local(d) < size.

What is loaded takes part: a number for all of the tile is a value, one for each index along a dimension is an atom,
`Loaded`, whose extremes are looked for before the loop.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...dialects.build import constant_value
from ...dialects.mlir import ir
from ...dialects.tiling import Index
from ..extents import extent
from ..linear import linear, minima
from ..rewriting import defining_op
from .positions import Greatest, Loaded, Local, Quotient, Scalar, follow, through_views
from .tile_sets import SetsOfTiles, TileSets


class TileForms:
    """Of the tiles of `sets`.

    `sizes`: per dimension, forms that the extent never exceeds; if there is one, of values from before the loop, it is
    the extent itself. `loads`: the sets before whose loop what is loaded may be looked at; None if it may not.
    """

    def __init__(self, sets: SetsOfTiles, sizes: Sequence[Sequence[Index]], loads: TileSets | None = None):
        self.sets = sets
        self.loads = loads
        self.sizes = sizes
        self._loaded: dict[tuple[ir.Value, tuple[Index, ...]], ir.Value] = {}
        self._extremes_of: dict[tuple[Loaded, int], ir.Value] = {}

    def extremes(self, form: Index, sign: int) -> list[Index]:
        """The maximum (sign 1) of `form` over the tile, or its negated minimum (−1): each of the forms bounds it."""
        found = [Index(form.const * sign)]
        for atom, c in form.terms:
            if isinstance(atom, Local):
                steps = [(s - 1).scaled(c * sign) for s in self.sizes[atom.dim]] if c * sign > 0 else [Index(0)]
            elif isinstance(atom, Quotient):
                way = 1 if c * sign > 0 else -1
                inner = [self.sets.quotient(e.scaled(way), atom.divisor) for e in self.extremes(atom.form, way)]
                steps = [q.scaled(c * sign) for q in inner if q is not None]
            elif isinstance(atom, Loaded):
                steps = [Index.of(self._extreme(atom, 1 if c * sign > 0 else -1)).scaled(c * sign)]
            else:
                steps = [Index(0, ((atom, c * sign),))]
            found = [f + s for f in found for s in steps]
        return found

    def of(self, scalar: Scalar) -> Index:
        """The form of an integer."""

        def leaf(value: ir.Value) -> Index | None:
            at = Scalar(value, scalar.loops)
            op = defining_op(value)
            if op is None:
                followed = follow(at)
                form = self.of(followed) if followed is not None else None
                return form if form is not None and self._is_known(form) else self._load(at) or form
            if op.name == "linalg.index":
                return scalar.loops[ir.IntegerAttr(op.attributes["dim"]).value]
            if op.name == "math.absi":
                inner = self.of(at.operand(0))
                return _greatest(inner, inner.scaled(-1))
            if op.name in ("arith.maxsi", "arith.minsi"):
                sign = 1 if op.name == "arith.maxsi" else -1
                return _greatest(*(self.of(at.operand(i)).scaled(sign) for i in (0, 1))).scaled(sign)
            if op.name in _DIVISIONS:
                return self._quotient(op, at)
            return None

        return linear(scalar.value, leaf)

    def _quotient(self, op: ir.Operation, scalar: Scalar) -> Index | None:
        """By a positive constant. What truncates does as ⌊⌋ only where nothing is negative."""
        divisor = constant_value(op.operands[1])
        if divisor is None or divisor <= 0:
            return None
        divisor = 1 << divisor if op.name in ("arith.shrui", "arith.shrsi") else divisor
        form = self.of(scalar.operand(0))
        floors = op.name in ("arith.floordivsi", "arith.shrsi") or is_never_negative(form)
        return Index(0, ((Quotient(form, divisor), 1),)) if floors else None

    def _is_known(self, form: Index) -> bool:
        """Whether the extremes of `form` can be computed before the loop, for each of its tiles."""
        for atom, _ in form.terms:
            if isinstance(atom, Greatest):
                known = all(self._is_known(f) for f in atom.forms)
            elif isinstance(atom, Quotient):
                known = self._is_known(atom.form)
            elif isinstance(atom, ir.Value):
                known = atom == self.sets.counter or self.sets.visible(atom)
            else:
                known = True
            if not known:
                return False
        return True

    def _load(self, scalar: Scalar) -> Index | None:
        """A number that is loaded before the loop: one for all of the tile, or one for each index along a dimension."""
        place = through_views(scalar)
        if place is None or self.loads is None or not self.sets.visible(place[0]):
            return None
        tensor, position = place[0], tuple(place[1])
        atoms = [(d, atom, c) for d, at in enumerate(position) for atom, c in at.terms]
        local = [(d, atom) for d, atom, c in atoms if isinstance(atom, Local) and c == 1]
        rest = [atom for _, atom, _ in atoms if not isinstance(atom, Local)]
        if not all(isinstance(v, ir.Value) and self.sets.visible(v) for v in rest):
            return None
        if len(local) == 1 and len(rest) + 1 == len(atoms):
            (along, atom) = local[0]
            size = self.sizes[atom.dim]
            if len(size) != 1 or not all(isinstance(v, ir.Value) and self.sets.visible(v) for v, _ in size[0].terms):
                return None
            start = (*position[:along], position[along].without(atom), *position[along + 1 :])
            return Index(0, ((Loaded(tensor, start, along, atom.dim), 1),))
        if local or len(rest) < len(atoms):
            return None
        key = tensor, position
        if key not in self._loaded:
            self._loaded[key] = self.loads.extract(tensor, position)
        return Index.of(self._loaded[key])

    def _extreme(self, atom: Loaded, sign: int) -> ir.Value:
        """The largest of the loaded numbers of a tile, or the least."""
        key = atom, sign
        if key not in self._extremes_of:
            (size,) = self.sizes[atom.dim]
            self._extremes_of[key] = self.loads.extreme(atom.tensor, atom.position, atom.along, size, sign)
        return self._extremes_of[key]


def sizes_of(x: ir.Value, sets: TileSets) -> list[list[Index]]:
    """The sizes of tiles that are the tensor `x`."""
    return [_extents(x, d, sets) for d in range(x.type.rank)]


def _extents(x: ir.Value, d: int, sets: TileSets) -> list[Index]:
    form = extent(x, d)
    if form is None:
        return []
    if all(sets.visible(v) for v, _ in form.terms):
        return [form]
    return minima(form.terms[0][0]) if form.is_value else []


_DIVISIONS = ("arith.floordivsi", "arith.divsi", "arith.divui", "arith.shrui", "arith.shrsi")


def is_never_negative(form: Index) -> bool:
    return form.const >= 0 and all(
        c >= 0 and (isinstance(atom, Local) or (isinstance(atom, ir.Value) and _is_count(atom)))
        for atom, c in form.terms
    )


def _is_count(value: ir.Value) -> bool:
    """Whether an index is a size, or a loop's induction variable that counts from 0 or more."""
    op = defining_op(value)
    if op is not None:
        return op.name == "tensor.dim"
    loop = value.owner.owner.operation
    if loop.name == "scf.for" and value.arg_number == 0:
        low = constant_value(loop.operands[0])
        return low is not None and low >= 0
    if loop.name != "scf.forall" or value.arg_number >= len(value.owner.arguments) - len(loop.results):
        return False
    return list(loop.attributes["staticLowerBound"])[value.arg_number] >= 0  # a dynamic one is a negative number


def _greatest(*forms: Index) -> Index:
    if all(f.static is not None for f in forms):
        return Index(max(f.const for f in forms))
    return Index(0, ((Greatest(forms), 1),))

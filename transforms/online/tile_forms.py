"""Integers at a position of a tile as linear forms, and their extremes over the tile, 0 ≤ Local(d) < size.

What is loaded takes part: a number for all of the tile is a value, one for each index along a dimension is an atom,
`Loaded`, whose extremes are looked up in a table of all tiles (tile_extremes.py), or looked for before the loop.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...dialects.build import constant_value
from ...dialects.mlir import arith, ir
from ...dialects.tiling import Index
from ..extents import extent
from ..linear import linear, minima
from ..rewriting import defining_op
from .before_loops import BeforeLoops
from .loaded_masks import Depth, Test
from .mask_tables import MaskTables
from .positions import Greatest, Loaded, Local, OfTile, Quotient, Scalar, Tiled, follow, through_views
from .tile_extremes import TileExtremes, smallest
from .tile_scans import TileScans
from .tile_sets import SetsOfTiles, TileSets


class TileForms:
    """Of the tiles of `sets`.

    `sizes`: per dimension, forms that the extent never exceeds; if there is one, of values from before the loop, it is
    the extent itself. `loads`: the sets before whose loop what is loaded may be looked at; None if it may not.
    """

    def __init__(
        self, sets: SetsOfTiles, sizes: Sequence[Sequence[Index]], loads: TileSets | None = None, added: int = 0
    ):
        """`added`: from how many scores on there are tables of what is added to them; 0: never."""
        self.sets = sets
        self.loads = loads
        self.sizes = sizes
        self._tables: TileExtremes | None = None
        self._masks: MaskTables | None = None
        self.scans: TileScans | None = None
        self.by_data = False  # whether numbers that are loaded may say of each tile anything
        if loads is not None:
            before = BeforeLoops(loads.loop)
            self._tables, self._masks = TileExtremes(loads, before), MaskTables(loads, before, added)
            self.scans = TileScans(loads, before)
        self._loaded: dict[tuple[ir.Value, tuple[Index, ...]], ir.Value] = {}
        self._extremes_of: dict[tuple[Loaded, int], Index] = {}

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
                steps = [self._extreme(atom, 1 if c * sign > 0 else -1).scaled(c * sign)]
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
            if op.name == "arith.select":
                return self.of(at.operand(2)) if self._is_false(at.operand(0)) else None
            return self.looked_up(at) if op.name == "tensor.extract" else None

        return linear(scalar.value, leaf)

    def _is_false(self, scalar: Scalar) -> bool:
        """Whether a condition never holds, as that an index is negative, which would count from the end."""
        op = defining_op(scalar.value)
        if op is None or op.name != "arith.cmpi":
            return False
        predicate = arith.CmpIPredicate(ir.IntegerAttr(op.attributes["predicate"]).value)
        if predicate != arith.CmpIPredicate.slt:
            return False
        return is_never_negative(self.of(scalar.operand(0)) - self.of(scalar.operand(1)))

    def looked_up(self, scalar: Scalar) -> Index | None:
        """The bit that a tensor.extract reads, if it is one for all of a tile: that of a block of queries and keys, at
        ⌊i / 128⌋ and ⌊j / 128⌋ in a table of blocks."""
        op = defining_op(scalar.value)
        is_bit = op is not None and scalar.value.type == ir.IntegerType.get_signless(1)
        if not is_bit or op.name != "tensor.extract" or self._tables is None or not self._tables.has(op.operands[0]):
            return None
        position, tiled = [], []
        for d in range(1, len(op.operands)):
            form = self.of(scalar.operand(d))
            atom = form.terms[0][0] if form.is_value else None
            if isinstance(atom, Quotient):
                position.append(self._start_in_block(atom))
                tiled.append(Tiled(d - 1, 0, atom.divisor))
            else:
                position.append(form)
        if not all(p is not None and all(isinstance(v, ir.Value) for v, _ in p.terms) for p in position):
            return None
        changing = [t.along for t in tiled if position[t.along].coefficient(self.sets.counter)]
        others = [p for d, p in enumerate(position) if d not in changing]
        if len(changing) != 1 or not all(self._is_known(p) and not p.coefficient(self.sets.counter) for p in others):
            return None
        self.by_data = True
        return Index(0, ((OfTile(op.operands[0], tuple(position), tuple(tiled), changing[0]), 1),))

    def _start_in_block(self, quotient: Quotient) -> Index | None:
        """Where the tile begins, if all of it is in one of the blocks of which a quotient is the number."""
        local = [atom for atom, c in quotient.form.terms if isinstance(atom, Local)]
        if len(local) != 1 or quotient.form.coefficient(local[0]) != 1:
            return None
        start, size = quotient.form.without(local[0]), smallest(self.sizes[local[0].dim])
        is_whole = size is not None and quotient.divisor % size == 0 and self._tables.begins_tile(start, size)
        return start if is_whole else None

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
        rest = [(d, atom) for d, atom, _ in atoms if not isinstance(atom, Local)]
        if len(local) + len(rest) < len(atoms) or len(local) > 1:
            return None
        changing = [(d, v) for d, v in rest if not (isinstance(v, ir.Value) and self.sets.visible(v))]
        if local:
            (along, atom) = local[0]
            start = (*position[:along], position[along].without(atom), *position[along + 1 :])
            loaded = Loaded(tensor, start, along, atom.dim)
            if any(place != (along, self.sets.counter) for place in changing):
                return None
            is_known = self._step(loaded) is not None or (not changing and self._number_of(loaded) is not None)
            return Index(0, ((loaded, 1),)) if is_known else None
        if changing:
            return None
        key = tensor, position
        if key not in self._loaded:
            self._loaded[key] = self.loads.number(tensor, position)
        return Index.of(self._loaded[key])

    def compares_alone(self, form: Index) -> bool:
        """Whether a form is of several numbers that stand alone, which are no more than about what they were."""
        return sum(any(v == atom for v in self._loaded.values()) for atom, _ in form.terms) > 1

    def fails(self, test: Test) -> Index | None:
        """A form that is 0 at most where a test holds for all of a tile of a mask, of which there is a table then."""
        found = self._masks.fails(test)
        self.by_data |= found is not None
        return found

    def depths(self, depth: Depth) -> tuple[Index, Index] | None:
        """Of a tile of a mask, of which there are tables then, the least of its elements, and the greatest of what is
        the least of a row."""
        least, of_rows = self._masks.least(depth), self._masks.greatest_of_rows(depth)
        return (self._of_each(least), self._of_each(of_rows)) if least is not None and of_rows is not None else None

    def _step(self, loaded: Loaded) -> int | None:
        """The size of tiles, but for a shorter last one, that a table can have, and of which the numbers are one."""
        step = smallest(self.sizes[loaded.dim])
        return step if step and self._tables.can_look_up(loaded, step) else None

    def _number_of(self, loaded: Loaded) -> Index | None:
        """How many they are, known before the loop."""
        size = self.sizes[loaded.dim]
        if len(size) != 1 or not all(isinstance(v, ir.Value) and self.sets.visible(v) for v, _ in size[0].terms):
            return None
        return size[0]

    def _extreme(self, loaded: Loaded, sign: int) -> Index:
        """The largest of the loaded numbers of a tile, or the least."""
        key = loaded, sign
        if key not in self._extremes_of:
            step = self._step(loaded)
            if step is None:
                size = self._number_of(loaded)
                found = Index.of(self.loads.extreme(loaded.tensor, loaded.position, loaded.along, size, sign))
            else:
                found = self._of_each(self._tables.of(loaded, step, sign))
            self._extremes_of[key] = found
        return self._extremes_of[key]

    def _of_each(self, atom: OfTile) -> Index:
        """What a table has of a tile, looked up before the loop where that does not go through these tiles."""
        if any(at.coefficient(self.sets.counter) for at in atom.position):
            self.by_data = True
            return Index(0, ((atom, 1),))
        position = list(atom.position)
        for tiled in atom.tiled:
            position[tiled.along] = self.loads.quotient(position[tiled.along] - tiled.start, tiled.step)
        return Index.of(self.loads.extract(atom.table, position))


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
        c >= 0
        and (
            isinstance(atom, Local)
            or (isinstance(atom, ir.Value) and _is_count(atom))
            or (isinstance(atom, Quotient) and is_never_negative(atom.form))
        )
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

"""Masks in memory: what they do to a tile is found by looking at it when the loop is there.

An array of i1 that selects scores, or one of floats that is added to them, with −∞ where a score is masked, says
nothing before it is read. A test says what all elements of a tile have to be; a loop over tiles asks it of each tile,
before that is computed (tile_guards.py)::

    %first:2 = … of the first row of queries, which most tiles that are neither dead nor live tell apart
    %both:2 = scf.if %any_of_first {
      %0:2 = linalg.generic ins(%mask : tensor<64x64xi1>) outs(%true, %true) { and(%dead, not %x), and(%live, %x) }
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...dialects import build
from ...dialects.mlir import arith, ir, scf, tensor
from ...dialects.tiling import Index
from ...dialects.tiling.index import affine_map
from ..slices import extract
from .positions import Local, Scalar, through_views
from .tile_sets import TileSets


@dataclass(frozen=True)
class LoadedMask:
    """Where a tile stands in a tensor, and how far it reaches: per dimension, the forms whose minimum is its extent.

    Dimensions that are missing in `extents` have one element for all of the tile.
    """

    tensor: ir.Value
    position: tuple[Index, ...]
    along: int  # the dimension that the loop goes through
    extents: tuple[tuple[int, tuple[Index, ...]], ...]

    @property
    def needs(self) -> set[Any]:
        """Of what values the tile's place and size are made."""
        forms = [*self.position, *(form for _, found in self.extents for form in found)]
        return {v for form in forms for v, _ in form.terms}

    @property
    def has_rows(self) -> bool:
        return any(d != self.along for d, _ in self.extents)


@dataclass(frozen=True)
class Test:
    """Whether a comparison with a number holds for all elements of a tile of the mask, or, `negated`, for none."""

    mask: LoadedMask = field(repr=False)
    comparison: str  # arith.cmpi or arith.cmpf
    predicate: int
    number: float
    negated: bool = False

    def opposite(self) -> Test:
        return Test(self.mask, self.comparison, self.predicate, self.number, not self.negated)

    def of_element(self, x: ir.Value, kind: ir.Type) -> ir.Value:
        """As 0 or 1."""
        predicate = build.i64_attribute(self.predicate)
        attributes = {"predicate": predicate}
        operands = [x, build.constant(x.type, self.number)]
        i1 = ir.IntegerType.get_signless(1)
        holds = ir.Operation.create(self.comparison, results=[i1], operands=operands, attributes=attributes).result
        holds = arith.xori(holds, build.constant(i1, 1)) if self.negated else holds
        return holds if kind == i1 else arith.extui(kind, holds)


def is_true(mask: LoadedMask) -> Test:
    """Of a mask of i1."""
    return Test(mask, "arith.cmpi", arith.CmpIPredicate.ne, 0)


def is_number(mask: LoadedMask, number: float) -> Test:
    """Of a mask of floats."""
    return Test(mask, "arith.cmpf", arith.CmpFPredicate.OEQ, number)


@dataclass(frozen=True)
class Depth:
    """How many of some bounds, of which each is below the one before it, an element of a mask of floats is at most."""

    mask: LoadedMask = field(repr=False)
    bounds: tuple[float, ...]

    def of_element(self, x: ir.Value, kind: ir.Type) -> ir.Value:
        bounds = [build.constant(x.type, bound) for bound in self.bounds]
        reached = [arith.extui(kind, arith.cmpf(arith.CmpFPredicate.OLE, x, bound)) for bound in bounds]
        return functools.reduce(arith.addi, reached)


def loaded_mask(scalar: Scalar, sets: TileSets, sizes: Sequence[Sequence[Index]]) -> LoadedMask | None:
    """The mask of which `scalar` is an element, if that is there before the loop, and the loop goes through it."""
    if not isinstance(scalar.value.owner, ir.Block):
        return None
    place = through_views(scalar)
    if place is None or not sets.visible(place[0]) or not isinstance(place[0].type, ir.RankedTensorType):
        return None
    start, along, extents = [], None, []
    for d, at in enumerate(place[1]):
        local = [atom for atom, c in at.terms if isinstance(atom, Local) and c == 1]
        if len(local) > 1:
            return None
        for atom in local:
            at = at.without(atom)
            if not sizes[atom.dim]:
                return None
            extents.append((d, tuple(sizes[atom.dim])))
        if at.coefficient(sets.variable):
            if along is not None or not local or at.coefficient(sets.variable) != 1:
                return None
            along = d
        start.append(at)
    forms = [*start, *(form for _, found in extents for form in found)]
    if along is None or not all(_is_known(form, sets) for form in forms):
        return None
    return LoadedMask(place[0], tuple(start), along, tuple(extents))


def _is_known(form: Index, sets: TileSets) -> bool:
    return all(isinstance(v, ir.Value) and (v == sets.variable or sets.visible(v)) for v, _ in form.terms)


def by_mask(tests: Iterable[Test]) -> dict[LoadedMask, list[Test]]:
    found: dict[LoadedMask, list[Test]] = {}
    for test in tests:
        found.setdefault(test.mask, []).append(test)
    return found


def emit_tests(tests: Iterable[Test], moved: dict[ir.Value, ir.Value]) -> dict[Test, ir.Value]:
    """The tests of one tile, at the insertion point; `moved`: what stands in the place of loops' variables."""
    found: dict[Test, ir.Value] = {}
    for mask, of_mask in by_mask(tests).items():
        tile = _Tile(mask, moved)
        rows = [d for d, size in tile.sizes.items() if d != mask.along and size != 1]
        values = tile.scan(of_mask, rows)
        if rows:
            i1 = ir.IntegerType.get_signless(1)
            some = values[0]
            for value in values[1:]:
                some = arith.ori(some, value)
            rest = scf.IfOp(some, [i1] * len(values), has_else=True)
            with ir.InsertionPoint(rest.then_block):
                scf.YieldOp(tile.scan(of_mask, []))
            with ir.InsertionPoint(rest.else_block):
                scf.YieldOp(values)
            values = list(rest.results)
        found.update(zip(of_mask, values, strict=True))
    return found


class _Tile:
    def __init__(self, mask: LoadedMask, values: dict[ir.Value, ir.Value]):
        self.mask = mask
        self.values = values
        self.offsets = [self._value([at]) for at in mask.position]
        self.sizes = {d: self._value(forms) for d, forms in mask.extents}

    def scan(self, tests: list[Test], first_of: Sequence[int]) -> list[ir.Value]:
        """What the tests say of the tile, or of the first row along the dimensions `first_of`."""
        sizes = [1 if d in first_of else self.sizes.get(d, 1) for d in range(len(self.offsets))]
        kept = [d for d in self.sizes if d not in first_of]
        source = self.mask.tensor
        static = [s if isinstance(s, int) else ir.ShapedType.get_dynamic_size() for s in sizes]
        kind = ir.RankedTensorType.get([static[d] for d in kept], source.type.element_type)
        tile = extract(kind, source, self.offsets, sizes, [1] * len(sizes))
        i1 = ir.IntegerType.get_signless(1)
        starts = [build.fill(build.constant(i1, 1), build.empty([], i1)) for _ in tests]

        def combined(x: ir.Value, *known: ir.Value) -> list[ir.Value]:
            return [arith.andi(k, test.of_element(x, i1)) for k, test in zip(known, tests, strict=True)]

        n = len(kept)
        maps = [build.projection(n, range(n)), *([build.projection(n, [])] * len(tests))]
        results = build.generic([tile], starts, maps, [build.REDUCTION] * n, combined)
        return [tensor.extract(result, []) for result in results]

    def _value(self, forms: Sequence[Index]) -> ir.Value | int:
        """The minimum of the forms."""
        if len(forms) == 1 and forms[0].static is not None:
            return forms[0].static
        atoms = list(dict.fromkeys(v for form in forms for v, _ in form.terms))
        values = [self.values.get(v, v) for v in atoms]
        index = ir.IndexType.get()
        values = [v if v.type == index else arith.index_cast(index, v) for v in values]
        name = "affine.min" if len(forms) > 1 else "affine.apply"
        return ir.Operation.create(name, [index], values, {"map": affine_map(forms, atoms)}).result

"""Linear forms of whole tiles, evaluated before all loops, for each iteration of some and each tile.

Of ``%least[tile] − %q − 63 ≤ 0``, where a tile is a block of 64 keys, and the loop comes to those of a batch entry::

    %tile = min(%k / 64, 31)                        // behind the loop any
    %least = tensor.extract %least_of_keys[%batch, %tile]
    %sum = %least + %q * -1 + -63                   // of 64 bits: numbers may be far from 0
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from ...dialects import build
from ...dialects.mlir import arith, ir, tensor
from ...dialects.tiling import Index
from .before_loops import BeforeLoops, Steps, Unknown
from .far_numbers import widened
from .positions import OfTile, Quotient
from .tile_sets import TileSets, as_index

Moved: TypeAlias = dict[ir.Value, ir.Value]
Copied: TypeAlias = Callable[[ir.Value, Moved], ir.Value]


def has_looked_up(form: Index) -> bool:
    """Whether a form is of numbers that are looked up for each tile."""
    return any(isinstance(atom, OfTile) for atom, _ in form.terms)


def needed_steps(before: BeforeLoops, sets: TileSets, forms: Iterable[Index]) -> tuple[Steps, ...] | None:
    """What of the parallel loop's counters the forms of tiles of `sets`, and the loop's end, depend on; None where they
    cannot be evaluated before it."""
    counted = before.counted
    if counted is None or not sets.supported:
        return None
    try:
        needed = before.needed(v for form in forms for v in values_of(form))
        needed |= before.needed([] if isinstance(sets.high, int) else [sets.high])
        own = tuple(s for s in counted if s.variable in needed)
        is_known = all(isinstance(s.high, int) or not before.needed([s.high]) for s in own)
    except Unknown:
        return None
    variables = [sets.variable, *(s.variable for s in own)]
    return own if is_known and all(v in variables for v in needed) else None


def sizes_of(before: BeforeLoops, own: Sequence[Steps]) -> list[ir.Value | int]:
    """How many iterations there are, emitted at the insertion point."""
    highs = [s.high if isinstance(s.high, int) else before.copied(s.high, {}) for s in own]
    return [replace(s, high=high).size() for s, high in zip(own, highs, strict=True)]


def value_of(form: Index, moved: Moved, copied: Copied) -> ir.Value:
    """A form of numbers that may be far from 0, of 64 bits, at the insertion point; `moved`: what stands in the place
    of loops' variables; `copied` makes a number from that."""
    found = build.constant(wide(), form.const)
    for atom, c in form.terms:
        value = widened(_atom(atom, moved, copied), wide())
        found = arith.addi(found, arith.muli(value, build.constant(wide(), c)))
    return found


def _atom(atom: Any, moved: Moved, copied: Copied) -> ir.Value:
    if isinstance(atom, OfTile):
        return _looked_up(atom, moved, copied)
    if isinstance(atom, Quotient):
        return arith.floordivsi(value_of(atom.form, moved, copied), build.constant(wide(), atom.divisor))
    return copied(atom, moved)


def values_of(form: Index) -> list[ir.Value]:
    """What it is computed of."""
    found = []
    for atom, _ in form.terms:
        inner = atom.position if isinstance(atom, OfTile) else [atom.form] if isinstance(atom, Quotient) else None
        found += [atom] if inner is None else [v for f in inner for v in values_of(f)]
    return found


def wide() -> ir.Type:
    return ir.IntegerType.get_signless(64)


def narrow() -> ir.Type:
    """What memory has in place of an index."""
    return ir.IntegerType.get_signless(32)


def _looked_up(atom: OfTile, moved: Moved, copied: Copied) -> ir.Value:
    position = [_place(form, moved, copied) for form in atom.position]
    for tiled in atom.tiled:
        tile = arith.divui(arith.subi(position[tiled.along], build.index(tiled.start)), build.index(tiled.step))
        last = arith.subi(build.as_index(build.mixed_size(atom.table, tiled.along)), build.index(1))
        position[tiled.along] = arith.minui(tile, last)  # behind the loop: any
    return tensor.extract(atom.table, position)


def _place(form: Index, moved: Moved, copied: Copied) -> ir.Value:
    found = build.index(form.const)
    for atom, c in form.terms:
        found = arith.addi(found, arith.muli(as_index(copied(atom, moved)), build.index(c)))
    return found

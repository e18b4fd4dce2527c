"""One tile in the place of those of a loop: of a condition it is known that it holds there, or nothing."""

from __future__ import annotations

from typing import Any

from ...dialects.mlir import ir
from ...dialects.tiling import Index
from .tile_forms import is_never_negative
from .tile_sets import SetsOfTiles, Tiles


class OneTile(SetsOfTiles):
    """It is in a set, or not."""

    def __init__(self) -> None:
        self.none = []
        self.counter: Any = object()  # no form differs from tile to tile

    @property
    def all(self) -> Tiles:
        return [(0, 1)]

    def where_not_positive(self, form: Index) -> Tiles:
        return self.all if is_never_negative(form.scaled(-1)) else self.none

    def union(self, a: Tiles, b: Tiles) -> Tiles:
        return a or b

    def intersection(self, a: Tiles, b: Tiles) -> Tiles:
        return a and b

    def visible(self, value: ir.Value) -> bool:
        return True

    def quotient(self, form: Index, divisor: int) -> Index | None:
        return Index(form.static // divisor) if form.static is not None else None

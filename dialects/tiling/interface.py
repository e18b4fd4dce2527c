"""The tiling interface: what an op tells the tile-and-fuse transform about itself.

Upstream's TilingInterface cannot be attached from Python, so this one is ours. An op's iteration domain is a box with
one extent per loop; a `Tile` is a box in it, or in one of its operands or results. To make an op tileable, write a
`Tiling` for it and register it (one line), or give an op class of ours the members of `structured.StructuredOp`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..mlir import ir
from .index import Index, Tile, TileBuilder, Untileable


class Tiling:
    """How one op is tiled. The base class knows only ops whose domain is that of their one result."""

    def __init__(self, op: ir.Operation):
        self.op = op

    def iterator_types(self) -> list[str]:
        """ "parallel" or "reduction" for every loop of the iteration domain."""
        return ["parallel"] * self.op.results[0].type.rank

    def domain(self, builder: TileBuilder) -> list[Index]:
        """The extent of every loop of the iteration domain; lower bounds are 0."""
        result = self.op.results[0]
        return [builder.dim(result, d) for d in range(result.type.rank)]

    def domain_tile(self, builder: TileBuilder, result: int, tile: Tile) -> Tile:
        """The tile of the iteration domain that computes `tile` of the result with number `result`."""
        return tile

    def result_tile(self, builder: TileBuilder, result: int, tile: Tile) -> Tile:
        """The tile of a result that the domain's `tile` computes."""
        return tile

    def tile(self, builder: TileBuilder, tile: Tile, operand: Callable[[int, Tile], ir.Value]) -> list[ir.Value]:
        """Builds the op for `tile` at the current insertion point; `operand(i, tile)` slices operand number i.

        Returns its results, each the `result_tile` of the domain's `tile`.
        """
        raise Untileable(f"'{self.op.name}' has no tiled form")


@dataclass(frozen=True)
class OnlineReduction:
    """How an op reduces a dimension tile by tile, so that the consumer of `result` can accumulate over the tiles.

    `dimension`: the loop that may be tiled. `carried`: pairs (result, operand): the state that goes from tile to tile.
    `scale`: the result by which what was accumulated so far is multiplied, row by row, before a tile is added.
    """

    dimension: int
    result: int
    carried: Sequence[tuple[int, int]]
    scale: int


_REGISTRY: dict[str, type[Tiling]] = {}


def register(*names: str) -> Callable[[type[Tiling]], type[Tiling]]:
    """Class decorator: this Tiling is for the upstream ops of these names."""

    def add(cls: type[Tiling]) -> type[Tiling]:
        _REGISTRY.update(dict.fromkeys(names, cls))
        return cls

    return add


def tiling_of(op: ir.Operation) -> Tiling | None:
    """The Tiling of `op`, or None if it has none."""
    from . import structured, tensor_ops  # noqa: F401  (they register themselves)

    if structured.is_structured(op):
        return structured.StructuredTiling(op)
    cls = _REGISTRY.get(op.name)
    return cls(op) if cls else None


def online_reduction_of(op: ir.Operation) -> OnlineReduction | None:
    """The op's online reduction, where its class declares one."""
    declared = getattr(op.opview, "online_reduction", None)
    return declared() if declared else None

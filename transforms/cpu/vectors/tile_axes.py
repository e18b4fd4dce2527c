"""Which dimensions of the buffers in a block are the queries and the keys of one tile of scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....dialects.mlir import ir
from ....dialects.tiling.structured import dim_position, indexing_maps, iterator_types
from ...linear import DYNAMIC


@dataclass(frozen=True)
class Axis:
    """A loop, or a dimension of a buffer. A step along it is `unit` of the tile: 2 where rows stand in pairs."""

    number: int
    unit: int = 1


class TileAxes:
    """Dimensions of buffers, by what their loops have in common with those of `start`.

    `axes` are names of dimensions of `start`, a buffer of one of the ops, by their number. `loops[op]` and
    `dims[buffer]` say where they are found, by name. They are followed through `views` that take all of a dimension, or
    every other row of it.
    """

    def __init__(
        self,
        ops: Sequence[ir.Operation],
        start: ir.Value,
        axes: dict[str, int],
        views: Sequence[ir.Operation] = (),
    ):
        self.loops: dict[ir.Operation, dict[str, Axis]] = {op: {} for op in ops}
        self.dims: dict[ir.Value, dict[str, Axis]] = {start: {name: Axis(d) for name, d in axes.items()}}
        self.consistent = True
        changed = True
        while changed and self.consistent:
            told = [self._spread(op) for op in ops] + [self._through(view) for view in views]
            changed = any(told)

    def _spread(self, op: ir.Operation) -> bool:
        """From buffers to loops and back; True if that told something new."""
        changed = False
        loops = self.loops[op]
        for operand, map_ in zip(op.operands, indexing_maps(op), strict=True):
            for name, axis in self.dims.get(operand, {}).items():
                changed |= self._note(loops, name, dim_position(map_.results[axis.number]), axis.unit)
        for operand, map_ in zip(op.operands, indexing_maps(op), strict=True):
            if not isinstance(operand.type, ir.MemRefType):
                continue
            for d, e in enumerate(map_.results):
                for name, axis in loops.items():
                    if dim_position(e) == axis.number:
                        changed |= self._note(self.dims.setdefault(operand, {}), name, d, axis.unit)
        return changed

    def _through(self, view: ir.Operation) -> bool:
        """From a buffer to a view of it, and back; True if that told something new."""
        source, result = view.operands[0], view.results[0]
        if view.name != "memref.subview" or source.type.rank != result.type.rank:
            self.consistent &= source not in self.dims or view.name == "memref.subview"
            return False
        changed = False
        for d, (offset, size, step) in enumerate(_parts(view)):
            extent = source.type.shape[d]
            is_whole = DYNAMIC not in (offset, size, extent) and offset < step and size * step == extent
            for name, axis in list(self.dims.get(source, {}).items()):
                if axis.number == d:
                    changed |= self._note(
                        self.dims.setdefault(result, {}), name, d if is_whole else None, axis.unit * step
                    )
            for name, axis in list(self.dims.get(result, {}).items()):
                if axis.number == d and is_whole and axis.unit % step == 0:
                    changed |= self._note(self.dims.setdefault(source, {}), name, d, axis.unit // step)
        return changed

    def _note(self, known: dict[str, Axis], name: str, number: int | None, unit: int) -> bool:
        axis = None if number is None else Axis(number, unit)
        if known.get(name) == axis and axis is not None:
            return False
        twice = axis is None or name in known or any(axis.number == other.number for other in known.values())
        self.consistent &= not twice
        if not twice and axis is not None:
            known[name] = axis
        return not twice

    def is_parallel(self, op: ir.Operation, name: str) -> bool:
        return "parallel" in str(iterator_types(op)[self.loops[op][name].number])


def _parts(subview: ir.Operation) -> list[tuple[int, int, int]]:
    """Offset, size and stride along each dimension; DYNAMIC where they are not known."""
    static = [list(subview.attributes[f"static_{name}"]) for name in ("offsets", "sizes", "strides")]
    return list(zip(*static, strict=True))

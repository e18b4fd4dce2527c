"""Which dimensions of the buffers in a block are the queries and the keys of one tile of scores."""

from __future__ import annotations

from collections.abc import Sequence

from ...dialects.mlir import ir
from ...dialects.tiling.structured import dim_position, indexing_maps, iterator_types


class TileAxes:
    """Dimensions of buffers, by what their loops have in common with those of `start`.

    `axes` are names of dimensions of `start`, a buffer of one of the ops, by their number. `loops[op]` and
    `dims[buffer]` say where they are found, by name.
    """

    def __init__(self, ops: Sequence[ir.Operation], start: ir.Value, axes: dict[str, int]):
        self.loops: dict[ir.Operation, dict[str, int]] = {op: {} for op in ops}
        self.dims: dict[ir.Value, dict[str, int]] = {start: dict(axes)}
        self.consistent = True
        changed = True
        while changed and self.consistent:
            told = [self._spread(op) for op in ops]
            changed = any(told)

    def _spread(self, op: ir.Operation) -> bool:
        """From buffers to loops and back; True if that told something new."""
        changed = False
        loops = self.loops[op]
        for operand, map_ in zip(op.operands, indexing_maps(op), strict=True):
            for name, d in self.dims.get(operand, {}).items():
                changed |= self._note(loops, name, dim_position(map_.results[d]))
        for operand, map_ in zip(op.operands, indexing_maps(op), strict=True):
            if not isinstance(operand.type, ir.MemRefType):
                continue
            for d, e in enumerate(map_.results):
                for name, loop in loops.items():
                    if dim_position(e) == loop:
                        changed |= self._note(self.dims.setdefault(operand, {}), name, d)
        return changed

    def _note(self, known: dict[str, int], name: str, value: int | None) -> bool:
        if known.get(name) == value:
            return False
        twice = value is None or value in known.values() or name in known
        self.consistent &= not twice
        if not twice and value is not None:
            known[name] = value
        return not twice

    def is_parallel(self, op: ir.Operation, name: str) -> bool:
        return "parallel" in str(iterator_types(op)[self.loops[op][name]])

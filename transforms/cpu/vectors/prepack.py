"""Packs an operand of contractions once, before the parallel loop whose tasks all read it.

    scf.parallel (%h, %q) = … {                       # heads, blocks of queries
      scf.for %j = … step %c64 {
        … %k = memref.subview %arg1[%h, %j, 0] [1, 64, 64] …      # as B, k contiguous
becomes
    %panel = memref.alloc() : memref<Hx(⌈S/16⌉)x2x16x32xbf16>
    scf.parallel (%h, %t) = … { … }                   # all of %arg1 into pairs
    scf.parallel (%h, %q) = … {
      scf.for %j = … {
        … tiles of %panel[%h, %j / 16 …]
    memref.dealloc %panel

That takes offsets that are multiples of a tile, and an end that is the operand's own: beyond it the panel is zero.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ....dialects import build
from ....dialects.mlir import arith, ir, memref, scf
from ...slices import split
from ..matrix_unit import DEPTH, PAIRS, ROWS
from ..memory import ALIGNMENT
from .buffer_parts import shared_part
from .tile_panels import Extent, Matrix, pack_tiles, parts_of, plus, tiles_of

CHUNK = 8  # tiles that a task packs, along each dimension


@dataclass(frozen=True)
class Panel:
    """Where the tiles of a part are: panel[*first, n tile + …, (k tile + …) · parts, 16, 32]."""

    value: ir.Value
    first: tuple[ir.Value, ...] = ()
    n_tile: ir.Value | None = None
    k_tile: ir.Value | None = None
    parts: int = 1

    def subscripts(self, n_tile: ir.Value, k_tile: ir.Value, part: int) -> list[ir.Value]:
        n = n_tile if self.n_tile is None else arith.addi(n_tile, self.n_tile)
        k = k_tile if self.k_tile is None else arith.addi(k_tile, self.k_tile)
        k = plus(arith.muli(k, build.index(self.parts)) if self.parts > 1 else k, part)
        return [*self.first, n, k, build.index(0), build.index(0)]


class Prepacking:
    """The panels of one run of the pass, by what they hold."""

    def __init__(self) -> None:
        self._panels: dict[tuple, ir.Value] = {}

    def panel(self, part: Matrix, kind: ir.Type) -> Panel | None:
        """A panel of `kind`, packed before the parallel loop around, with the tiles of this part of a larger operand.

        None where there is no such loop, nothing to gain, or the part is not made of whole tiles.
        """
        k, n = part.row, part.column
        shared = shared_part(part.value, k, {k: DEPTH, n: ROWS})
        if shared is None:
            return None
        task, root, offsets, fixed, end = shared.task, shared.root, shared.offsets, shared.fixed, shared.end
        moving = [d for d in range(len(offsets)) if d not in fixed and d not in (k, n)]
        key = (*shared.key, k, n, kind)
        value = self._panels.get(key)
        if value is None:
            value = self._panels[key] = _pack(root, k, n, end, fixed, moving, task, kind)
        n_tile, k_tile = (
            None if d in fixed else arith.divui(build.as_index(offsets[d]), build.index(size))
            for d, size in ((n, ROWS), (k, DEPTH))
        )
        parts = parts_of(root.type.element_type, kind)
        return Panel(value, tuple(build.as_index(offsets[d]) for d in moving), n_tile, k_tile, parts)


def _pack(
    root: ir.Value,
    k: int,
    n: int,
    end: Extent,
    fixed: dict[int, tuple[int, int]],
    moving: Sequence[int],
    task: ir.Operation,
    kind: ir.Type,
) -> ir.Value:
    with ir.InsertionPoint(task), task.location:
        extents: dict[int, Extent] = {}
        for d in (*moving, k, n):
            if d == k:
                extents[d] = end
            elif d in fixed:
                extents[d] = fixed[d][1]
            else:
                extents[d] = build.mixed_size(root, d)
        counts = [*(extents[d] for d in moving), tiles_of(extents[n], ROWS), tiles_of(extents[k], DEPTH)]
        parts = parts_of(root.type.element_type, kind)
        k_tiles = counts[-1]
        k_tiles = k_tiles * parts if isinstance(k_tiles, int) else arith.muli(k_tiles, build.index(parts))
        dynamic, shape = split([*counts[:-1], k_tiles])
        panel_type = ir.MemRefType.get([*shape, PAIRS, DEPTH], kind)
        panel = memref.AllocOp(panel_type, dynamic, [], alignment=ALIGNMENT).result
        steps = [1] * len(moving) + [CHUNK, CHUNK]
        ends = [build.as_index(c) for c in counts]
        loop = scf.ParallelOp([], [build.index(0) for _ in ends], ends, [build.index(s) for s in steps], [])
        body = loop.regions[0].blocks.append(*[ir.IndexType.get()] * len(ends))
        with ir.InsertionPoint(body):
            *outer, n_start, k_start = body.arguments
            at = {d: build.index(start) for d, (start, _) in fixed.items() if d not in (k, n)}
            at |= dict(zip(moving, outer, strict=True))
            shift_k, shift_n = (fixed[d][0] if d in fixed else 0 for d in (k, n))
            source = Matrix(root, k, n, at, (shift_k, shift_n))
            ranges = []
            for start, count in ((n_start, counts[-2]), (k_start, counts[-1])):
                end = arith.minui(arith.addi(start, build.index(CHUNK)), build.as_index(count))
                ranges.append((start, end))
            pack_tiles(source, extents[k], extents[n], panel, outer, *ranges)
            scf.ReduceOp([], 0)
    with ir.InsertionPoint.after(task), task.location:
        memref.DeallocOp(panel)
    return panel

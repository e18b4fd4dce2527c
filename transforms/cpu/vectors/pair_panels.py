"""Copies operands of contractions into panels of words: pairs of bf16 that are neighbours along the sum.

An operand whose rows are contiguous along another dimension has two rows interleaved, one whose rows are contiguous
along the sum is copied only where it has an odd number of elements there, or floats of 8 bits, which become bf16. A
panel has the operand's dimensions, that of the sum halved; what lies beyond an odd end is zero, and rows are padded to
whole vectors.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ....dialects import build
from ....dialects.mlir import arith, ir, memref, scf, vector
from ...slices import split
from ..blocks import subview
from ..memory import ALIGNMENT
from .buffer_parts import SharedPart, shared_part
from .multiples import is_multiple
from .tile_panels import Extent, for_each, plus, tiles_of

WORDS = 16  # of a vector
CHUNK = 64  # pairs, or rows, that a task packs


@dataclass(frozen=True)
class Source:
    """What is packed: a buffer from `starts` on, and how far along each dimension; `summed` is that of pairs."""

    value: ir.Value
    summed: int
    starts: Sequence[Extent]
    extents: Sequence[Extent]

    @property
    def is_interleaved(self) -> bool:
        return self.summed != len(self.extents) - 1

    def panel_extents(self) -> list[Extent]:
        """What the panel has of each dimension, in words."""
        found = [tiles_of(extent, 2) if d == self.summed else extent for d, extent in enumerate(self.extents)]
        words = tiles_of(found[-1], WORDS)
        found[-1] = words * WORDS if isinstance(words, int) else arith.muli(words, build.index(WORDS))
        return found

    def load(self, at: Sequence[ir.Value], lanes: int, mask: ir.Value | None) -> ir.Value:
        """A vector of bf16 from this place on, counted from `starts`; zero where the mask is."""
        kind = ir.VectorType.get([lanes], self.value.type.element_type)
        place = [
            plus(x, start) if isinstance(start, int) else arith.addi(x, start)
            for x, start in zip(at, self.starts, strict=True)
        ]
        if mask is None:
            read = vector.LoadOp(kind, self.value, place).result
        else:
            read = vector.MaskedLoadOp(kind, self.value, place, mask, build.constant(kind, 0.0)).result
        return (
            arith.extf(build.like(read.type, ir.BF16Type.get()), read) if build.is_float8(kind.element_type) else read
        )

    def pack_row(self, at: Sequence[ir.Value], panel: ir.Value) -> None:
        """The words panel[*at, …]."""
        pair = at[self.summed] if self.is_interleaved else None
        upper = extent = None
        if pair is not None:
            upper = arith.addi(arith.muli(pair, build.index(2)), build.index(1))
            extent = self.extents[self.summed]
        width = self.extents[-1]
        lanes = WORDS if pair is not None else 2 * WORDS

        def piece(number: ir.Value, is_cut: bool) -> None:
            start = arith.muli(number, build.index(lanes))
            mask = _mask(lanes, arith.subi(build.as_index(width), start)) if is_cut else None
            if pair is None:
                words = self.load([*at[:-1], start], lanes, mask)
            else:
                rows = [[*at[:-1], start] for _ in range(2)]
                rows[0][self.summed], rows[1][self.summed] = arith.muli(pair, build.index(2)), upper
                second = mask
                if not is_multiple(extent, 2):
                    left = arith.subi(build.as_index(width), start)
                    is_there = arith.cmpi(arith.CmpIPredicate.ult, upper, build.as_index(extent))
                    second = _mask(lanes, arith.select(is_there, left, build.index(0)))
                words = vector.interleave(self.load(rows[0], lanes, mask), self.load(rows[1], lanes, second))
            place = [*at[:-1], arith.muli(number, build.index(WORDS))]
            kind = ir.VectorType.get([WORDS], ir.IntegerType.get_signless(32))
            vector.StoreOp(vector.bitcast(kind, words), panel, place)

        if isinstance(width, int):
            for_each(width // lanes, lambda number: piece(number, False))
            if width % lanes:
                piece(build.index(width // lanes), True)
        else:
            for_each(tiles_of(width, lanes), lambda number: piece(number, True))


def _mask(lanes: int, count: ir.Value) -> ir.Value:
    return vector.CreateMaskOp(ir.VectorType.get([lanes], ir.IntegerType.get_signless(1)), [count]).result


def pack_here(source: Source, panel: ir.Value) -> None:
    """All of it, at the insertion point."""
    counts = source.panel_extents()[:-1]

    def along(at: list[ir.Value]) -> None:
        if len(at) == len(counts):
            source.pack_row([*at, build.index(0)], panel)
        else:
            for_each(counts[len(at)], lambda i: along([*at, i]))

    along([])


class SharedPanels:
    """The panels, of one run of the pass, of what tasks share: packed in a parallel loop before them."""

    def __init__(self) -> None:
        self._panels: dict[tuple, ir.Value] = {}

    def can_have(self, value: ir.Value, summed: int) -> bool:
        """Whether `part` would find words for it."""
        return shared_part(value, summed, {summed: 2}) is not None

    def part(self, value: ir.Value, summed: int) -> ir.Value | None:
        """The words of a part of a larger buffer; None where it is to be packed, if at all, in its task."""
        shared = shared_part(value, summed, {summed: 2})
        if shared is None:
            return None
        key = (*shared.key, summed)
        panel = self._panels.get(key)
        if panel is None:
            panel = self._panels[key] = _pack_before(shared, summed)
        offsets, sizes = [], []
        for d, offset in enumerate(shared.offsets):
            is_pairs = d == summed
            offset = 0 if d in shared.fixed else offset
            if is_pairs and offset != 0:
                offset = arith.divui(build.as_index(offset), build.index(2))
            size = build.mixed_size(value, d)
            offsets.append(offset)
            sizes.append(tiles_of(size, 2) if is_pairs else size)
        return part_of_panel(panel, offsets, sizes)


def part_of_panel(panel: ir.Value, offsets: Sequence[Extent], sizes: Sequence[Extent]) -> ir.Value:
    strides, _ = panel.type.get_strides_and_offset()
    start = 0 if all(x == 0 for x in offsets) else ir.ShapedType.get_dynamic_stride_or_offset()
    return subview(panel, ir.StridedLayoutAttr.get(start, list(strides)), offsets, sizes)


def _pack_before(shared: SharedPart, summed: int) -> ir.Value:
    """Allocates and fills a panel of all of the buffer, in front of the tasks; frees it after them."""
    root, fixed = shared.root, shared.fixed
    with ir.InsertionPoint(shared.task), shared.task.location:
        starts = [fixed[d][0] if d in fixed else 0 for d in range(root.type.rank)]
        extents: list[Extent] = []
        for d in range(root.type.rank):
            if d == summed:
                extents.append(shared.end)
            elif d in fixed:
                extents.append(fixed[d][1])
            else:
                extents.append(build.mixed_size(root, d))
        source = Source(root, summed, starts, extents)
        counts = source.panel_extents()
        dynamic, shape = split(counts)
        kind = ir.MemRefType.get(shape, ir.IntegerType.get_signless(32))
        panel = memref.AllocOp(kind, dynamic, [], alignment=ALIGNMENT).result
        rows = summed if source.is_interleaved else max(len(counts) - 2, 0)
        _in_parallel(counts[:-1], rows, lambda at: source.pack_row([*at, build.index(0)], panel))
    with ir.InsertionPoint.after(shared.task), shared.task.location:
        memref.DeallocOp(panel)
    return panel


def _in_parallel(counts: Sequence[Extent], rows: int, body: Callable[[Sequence[ir.Value]], None]) -> None:
    """Calls body with all indices below `counts`; a task takes a chunk of those of the dimension `rows`."""
    steps = [CHUNK if d == rows else 1 for d in range(len(counts))]
    ends = [build.as_index(c) for c in counts]
    loop = scf.ParallelOp([], [build.index(0) for _ in ends], ends, [build.index(s) for s in steps], [])
    block = loop.regions[0].blocks.append(*[ir.IndexType.get()] * len(ends))
    with ir.InsertionPoint(block):
        at = list(block.arguments)
        start = at[rows]
        end = arith.minui(arith.addi(start, build.index(CHUNK)), ends[rows])
        for_each(end, lambda i: body([*at[:rows], i, *at[rows + 1 :]]), start)
        scf.ReduceOp([], 0)

"""Copies operands of contractions into panels of tiles, as a matrix unit reads them; what lies beyond an edge is zero.

    rows      [k tiles · parts][rows][32]           the first factor, 32 of a row's elements side by side
    pairs     [n tiles][k tiles · parts][16][32]    the second factor: row j of a tile has the elements 2j and 2j + 1
                                                    of the sum of each of 16 columns side by side (VNNI)

What the unit multiplies has one part, and so have floats of 8 bits, which become bf16. Else a number is the sum of two
parts of bf16: of f16 its upper 8 significant bits and the other 3, exactly, both in the range of bf16; of f32 they keep
16 bits. The tiles of the parts follow one another.

An operand is read along whichever of its dimensions is contiguous: pairs that stand side by side move as 32 bits and
are transposed in registers, others are interleaved.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from ....dialects import build
from ....dialects.mlir import arith, ir, math, memref, scf, vector
from ..matrix_unit import DEPTH, PAIRS, ROWS
from .shuffles import transpose

Extent: TypeAlias = int | ir.Value


def parts_of(element: ir.Type, kind: ir.Type) -> int:
    """How many numbers of the type `kind`, which the unit multiplies, stand for one of the element type."""
    return 1 if element == kind or build.is_float8(element) else 2


def split(value: ir.Value, kind: ir.Type) -> list[ir.Value]:
    """A scalar or vector as its parts: itself, as bf16 if it has 8 bits, or two of bf16 for f16 or f32."""
    element = build.element_of(value.type)
    if element == kind:
        return [value]
    if build.is_float8(element):
        return [arith.extf(build.like(value.type, kind), value)]
    number = value if isinstance(element, ir.F32Type) else arith.extf(build.like(value.type, ir.F32Type.get()), value)
    bits = arith.bitcast(build.like(value.type, ir.IntegerType.get_signless(32)), number)
    kept = build.constant(bits.type, -(1 << 16))
    if not isinstance(element, ir.F32Type):
        # Infinity is 1 + ∞, with its sign: a product of parts is then infinite or, of the upper ones, finite with the
        # same sign, so that no sum of them is ∞ − ∞ or has 0·∞ in it. Without bit 30 infinity is 1.
        is_infinite = arith.cmpf(arith.CmpFPredicate.OEQ, math.absf(number), build.constant(number.type, float("inf")))
        kept = arith.select(is_infinite, build.constant(bits.type, -(1 << 16) & ~(1 << 30)), kept)
    upper = arith.bitcast(number.type, arith.andi(bits, kept))
    rest = arith.subf(number, upper)
    return [_upper_half(upper), _upper_half(rest)]


def _upper_half(number: ir.Value) -> ir.Value:
    """The upper 16 bits of f32, which are bf16."""
    bits = arith.bitcast(build.like(number.type, ir.IntegerType.get_signless(32)), number)
    half = arith.trunci(
        build.like(number.type, ir.IntegerType.get_signless(16)), arith.shrui(bits, build.constant(bits.type, 16))
    )
    return arith.bitcast(build.like(number.type, ir.BF16Type.get()), half)


@dataclass(frozen=True)
class Matrix:
    """Two dimensions of a buffer, seen as rows × columns from `shift` on; all others are at `at`, by position, or 0."""

    value: ir.Value
    row: int
    column: int
    at: dict[int, ir.Value] = field(default_factory=dict)
    shift: tuple[int, int] = (0, 0)

    def subscripts(self, row: ir.Value, column: ir.Value) -> list[ir.Value]:
        places = {**self.at, self.row: plus(row, self.shift[0]), self.column: plus(column, self.shift[1])}
        return [places[d] if d in places else build.index(0) for d in range(self.value.type.rank)]

    def is_contiguous(self, position: int) -> bool:
        strides, _ = self.value.type.get_strides_and_offset()
        return position == self.value.type.rank - 1 and strides[position] == 1

    def row_stride(self) -> ir.Value:
        """Elements from a row to the next one."""
        strides, _ = self.value.type.get_strides_and_offset()
        if strides[self.row] != ir.ShapedType.get_dynamic_stride_or_offset():
            return build.index(strides[self.row])
        rank = self.value.type.rank
        return memref.ExtractStridedMetadataOp(self.value).results[2 + rank + self.row]


def plus(value: ir.Value, number: int) -> ir.Value:
    return arith.addi(value, build.index(number)) if number else value


def tiles_of(extent: Extent, size: int) -> Extent:
    """⌈extent / size⌉"""
    if isinstance(extent, int):
        return -(-extent // size)
    return arith.ceildivui(extent, build.index(size))


def halved(extent: Extent) -> Extent:
    """⌊extent / 2⌋"""
    return extent // 2 if isinstance(extent, int) else arith.divui(extent, build.index(2))


def for_each(end: Extent, body: Callable[[ir.Value], None], start: Extent = 0, step: int = 1) -> None:
    """scf.for; one iteration without a loop where the bounds say so."""
    if isinstance(start, int) and isinstance(end, int) and end - start <= step:
        if end > start:
            body(build.index(start))
        return
    loop = scf.ForOp(build.as_index(start), build.as_index(end), build.index(step), [])
    with ir.InsertionPoint(loop.body):
        body(loop.induction_variable)
        scf.YieldOp([])


def if_else(condition: ir.Value, then: Callable[[], None], otherwise: Callable[[], None] | None = None) -> None:
    op = scf.IfOp(condition, [], has_else=otherwise is not None)
    for block, body in ((op.then_block, then), (op.else_block if otherwise else None, otherwise)):
        if body is not None:
            with ir.InsertionPoint(block):
                body()
                scf.YieldOp([])


def fits(start: ir.Value, width: int, extent: Extent) -> ir.Value | None:
    """start + width ≤ extent, as a condition; None where it is known to hold."""
    if isinstance(extent, int) and extent % width == 0:
        return None
    end = arith.addi(start, build.index(width))
    return arith.cmpi(arith.CmpIPredicate.ule, end, build.as_index(extent))


def pack_rows(source: Matrix, rows: Extent, depth: Extent, panel: ir.Value, start: Extent = 0) -> None:
    """`source`, rows × depth, from the k tile `start` on, into panel[k tile · parts][row][32]; all its rows."""
    _, padded_rows, _ = panel.type.shape
    kind = panel.type.element_type

    def row(r: ir.Value) -> None:
        def tile(kt: ir.Value) -> None:
            k = arith.muli(kt if start == 0 else arith.addi(kt, build.as_index(start)), build.index(DEPTH))
            if source.is_contiguous(source.column):
                (read,) = _read(source, [(r, k)], DEPTH, k, depth, [(r, rows)])
                for part, at in zip(split(read, kind), part_tiles(kt, source, panel), strict=True):
                    vector.StoreOp(part, panel, [at, r, build.index(0)])
            else:
                targets = [[at, r] for at in part_tiles(kt, source, panel)]
                _copy_elements(source, (rows, depth), panel, targets, lambda lane: (r, arith.addi(k, lane)))

        count = tiles_of(depth, DEPTH)
        if isinstance(count, int) and isinstance(start, int):
            count -= start
        elif start != 0:
            count = arith.subi(build.as_index(count), build.as_index(start))
        for_each(count, tile)

    for_each(padded_rows, row)


def pack_pairs(source: Matrix, depth: Extent, columns: Extent, panel: ir.Value) -> None:
    """`source`, depth × columns, into panel[n tile][k tile][16][32]."""
    pack_tiles(source, depth, columns, panel, (), (0, tiles_of(columns, ROWS)), (0, tiles_of(depth, DEPTH)))


def pack_tiles(
    source: Matrix,
    depth: Extent,
    columns: Extent,
    panel: ir.Value,
    first: Sequence[ir.Value],
    n_tiles: tuple[Extent, Extent],
    k_tiles: tuple[Extent, Extent],
) -> None:
    """Tiles from n_tiles[0] to n_tiles[1], and so along k, of `source`, depth × columns, into panel[*first]…"""

    def n_tile(nt: ir.Value) -> None:
        for_each(k_tiles[1], lambda kt: _pack_tile(source, depth, columns, panel, [*first, nt, kt]), k_tiles[0])

    for_each(n_tiles[1], n_tile, n_tiles[0])


def part_tiles(k_tile: ir.Value, source: Matrix, panel: ir.Value) -> list[ir.Value]:
    """Where the tiles of the parts are, along k."""
    parts = parts_of(source.value.type.element_type, panel.type.element_type)
    first = arith.muli(k_tile, build.index(parts)) if parts > 1 else k_tile
    return [plus(first, part) for part in range(parts)]


def _pack_tile(source: Matrix, depth: Extent, columns: Extent, panel: ir.Value, place: list[ir.Value]) -> None:
    n, k = (arith.muli(t, build.index(size)) for t, size in zip(place[-2:], (ROWS, DEPTH), strict=True))
    kind = panel.type.element_type
    targets = [[*place[:-1], at] for at in part_tiles(place[-1], source, panel)]

    def store(part: int, rows: Sequence[ir.Value]) -> None:
        for j, row in enumerate(rows):
            vector.StoreOp(row, panel, [*targets[part], build.index(j), build.index(0)])

    if source.is_contiguous(source.row):  # elements of a sum side by side: rows of the source are columns of B
        starts = [(k, plus(n, j)) for j in range(ROWS)]
        read = _read(source, starts, DEPTH, k, depth, [(column, columns) for _, column in starts])
        pairs = ir.VectorType.get([PAIRS], ir.IntegerType.get_signless(32))
        for part, rows in enumerate(zip(*(split(row, kind) for row in read), strict=True)):
            turned = transpose([vector.bitcast(pairs, row) for row in rows])
            store(part, [vector.bitcast(rows[0].type, column) for column in turned])
    elif source.is_contiguous(source.column):
        starts = [(plus(k, j), n) for j in range(DEPTH)]
        read = _read(source, starts, ROWS, n, columns, [(row, depth) for row, _ in starts])
        for part, rows in enumerate(zip(*(split(row, kind) for row in read), strict=True)):
            store(part, [vector.interleave(rows[2 * j], rows[2 * j + 1]) for j in range(PAIRS)])
    else:
        for j in range(PAIRS):
            places = [[*target, build.index(j)] for target in targets]
            _copy_elements(source, (depth, columns), panel, places, _of_pairs(plus(k, 2 * j), n))


def _read(
    source: Matrix,
    starts: Sequence[tuple[ir.Value, ir.Value]],
    width: int,
    along: ir.Value,
    extent: Extent,
    others: Sequence[tuple[ir.Value, Extent]],
) -> list[ir.Value]:
    """Vectors from these places along the contiguous dimension, of which `extent` − `along` elements are live.

    `others`: the place of each vector along the other dimension, and how far that goes.
    """
    kind = ir.VectorType.get([width], source.value.type.element_type)

    def whole() -> list[ir.Value]:
        return [vector.LoadOp(kind, source.value, source.subscripts(*place)).result for place in starts]

    def masked() -> list[ir.Value]:
        rest = arith.subi(build.as_index(extent), along)
        zero = build.constant(kind, 0.0)
        bits = ir.VectorType.get([width], ir.IntegerType.get_signless(1))
        found = []
        for place, (at, end) in zip(starts, others, strict=True):
            is_live = arith.cmpi(arith.CmpIPredicate.ult, at, build.as_index(end))
            mask = vector.CreateMaskOp(bits, [arith.select(is_live, rest, build.index(0))]).result
            found.append(vector.MaskedLoadOp(kind, source.value, source.subscripts(*place), mask, zero).result)
        return found

    conditions = [c for c in (fits(along, width, extent), *_last_fits(others)) if c is not None]
    if not conditions:
        return whole()
    condition = conditions[0]
    for other in conditions[1:]:
        condition = arith.andi(condition, other)
    op = scf.IfOp(condition, [kind] * len(starts), has_else=True)
    for block, read in ((op.then_block, whole), (op.else_block, masked)):
        with ir.InsertionPoint(block):
            scf.YieldOp(read())
    return list(op.results)


def _last_fits(others: Sequence[tuple[ir.Value, Extent]]) -> list[ir.Value | None]:
    """Whether the last vector, and so all, are inside; they are in order, and as many as a tile has."""
    at, end = others[-1]
    if isinstance(end, int) and end % len(others) == 0 and len(others) > 1:
        return []
    return [arith.cmpi(arith.CmpIPredicate.ult, at, build.as_index(end))]


def _of_pairs(k: ir.Value, n: ir.Value) -> Callable[[ir.Value], tuple[ir.Value, ir.Value]]:
    """Where the elements of a row of pairs are, of which the first one is at k, n."""
    two = build.index(2)
    return lambda lane: (arith.addi(k, arith.remui(lane, two)), arith.addi(n, arith.divui(lane, two)))


def _copy_elements(
    source: Matrix,
    extents: tuple[Extent, Extent],
    panel: ir.Value,
    places: Sequence[list[ir.Value]],
    at: Callable[[ir.Value], tuple[ir.Value, ir.Value]],
) -> None:
    """A row of a panel element by element, of a source that is contiguous along neither dimension; `at` tells where
    the source has them. A loop: LLVM takes minutes for the dependences of as many accesses as elements."""
    element = source.value.type.element_type

    def copy(lane: ir.Value) -> None:
        r, c = at(lane)
        inside = [
            arith.cmpi(arith.CmpIPredicate.ult, i, build.as_index(end)) for i, end in zip((r, c), extents, strict=True)
        ]
        op = scf.IfOp(arith.andi(*inside), [element], has_else=True)
        with ir.InsertionPoint(op.then_block):
            scf.YieldOp([memref.LoadOp(source.value, source.subscripts(r, c)).result])
        with ir.InsertionPoint(op.else_block):
            scf.YieldOp([build.constant(element, 0.0)])
        for part, place in zip(split(op.results[0], panel.type.element_type), places, strict=True):
            memref.StoreOp(part, panel, [*place, lane])

    for_each(DEPTH, copy)

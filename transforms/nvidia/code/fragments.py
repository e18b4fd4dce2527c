"""Emits tiles in shared memory as fragments, for element-wise ops: biases and masks that the copy engine brought.

16-bit elements come by ldmatrix, which gives every thread the pairs of columns that it has in a fragment; others in
pairs where columns stand side by side. No two rows of a quarter of a warp are in the same banks, but for those of f32.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ....dialects.mlir import ir
from ...passes import PassError
from ..elements import byte_width
from .contraction import ldmatrix_a
from .conversions import from_word
from .thread import Registers, Shared, Thread, add, asm, constant, create, f32, i32, places


def load_fragment(tile: Shared, kind: ir.RankedTensorType, thread: Thread) -> Registers:
    """All elements of a tile that a thread has; rows are its dimension 0."""
    loads = {1: _pairs, 2: _halves, 4: _pairs}
    width = byte_width(kind.element_type)
    if width not in loads:
        raise PassError(f"elements of type {kind.element_type} are not read from shared memory", None)
    words, loaded = loads[width](tile, kind, thread)
    return Registers("fragment", tuple(kind.shape), Packed(words, kind.element_type), loaded=loaded)


def load_first_row(tile: Shared, kind: ir.RankedTensorType, thread: Thread) -> Registers:
    """The elements of a tile's first row that a thread has: two side by side of eight."""
    width = byte_width(kind.element_type)
    load = {1: _load_bytes, 2: _load_half_words, 4: _load_words}[width]
    first = tile.element(constant(i32(), 0), thread.place(1, 0))
    words: Words = []
    for begin in range(0, kind.shape[0], 8):
        line, inside = divmod(begin * width, tile.line)
        words += load(first, line * tile.outer_size * tile.line + inside)
    return Registers("column", tuple(kind.shape), Packed(words, kind.element_type))


class Packed(list[ir.Value]):
    """Elements that stay in the words they came in, one or two in each, until they are read: `words` says which, and by
    how many bits to shift it."""

    def __init__(self, words: Sequence[tuple[ir.Value, int]], element: ir.Type):
        super().__init__(word for word, _ in words)
        self.shifts, self.element = [shift for _, shift in words], element

    def __getitem__(self, number):  # type: ignore[override]
        if isinstance(number, slice):
            return [self[i] for i in range(*number.indices(len(self)))]
        word, shift = super().__getitem__(number), self.shifts[number]
        if isinstance(self.element, ir.BF16Type):  # the upper half of an f32
            bits = (
                create("arith.andi", i32(), word, constant(i32(), -(1 << 16)))
                if shift
                else create("arith.shli", i32(), word, constant(i32(), 16))
            )
            return create("arith.bitcast", f32(), bits)
        shifted = create("arith.shrui", i32(), word, constant(i32(), shift)) if shift else word
        return from_word(shifted, self.element)

    def __iter__(self) -> Iterator[ir.Value]:
        return (self[i] for i in range(len(self)))


Words = list[tuple[ir.Value, int]]


def _halves(tile: Shared, kind: ir.RankedTensorType, thread: Thread) -> tuple[Words, list[ir.Value]]:
    words: Words = []
    loaded: list[ir.Value] = []
    for step in range(kind.shape[1] // 16):
        four = ldmatrix_a(tile, 0, step, thread)
        loaded.append(four[0])
        words += [(word, shift) for word in four for shift in (0, 16)]
    return words, loaded


def _pairs(tile: Shared, kind: ir.RankedTensorType, thread: Thread) -> tuple[Words, list[ir.Value]]:
    """By loads of two neighbours along the columns, or of one each where those are rows in memory."""
    words: Words = []
    loaded: list[ir.Value] = []
    narrow = byte_width(kind.element_type) == 1
    addresses: dict[int, ir.Value] = {}
    for row, column in places("fragment", Registers.count(kind))[::2]:
        assert row is not None and column is not None
        if tile.inner == 1:
            # Rows 8 below, and columns of the same 16 bytes, are as far away in every thread.
            group = column // 2
            first = group - group % 2 if narrow else group
            if first not in addresses:
                addresses[first] = tile.element(thread.place(0, 0), thread.place(1, 2 * first))
            offset = 8 * tile.line * row + 8 * (group - first)
            pair = (_load_bytes if narrow else _load_words)(addresses[first], offset)
            loaded.append(pair[0][0])
        else:
            rows, columns = thread.place(0, row), thread.place(1, column)
            both = [tile.element(add(columns, i), rows) for i in (0, 1)]
            pair = [((_load_byte if narrow else _load_word)(place), 0) for place in both]
            loaded += [word for word, _ in pair]
        words += pair
    return words, loaded


def _load_word(place: ir.Value) -> ir.Value:
    return asm("ld.shared.b32 $0, [$1];", "=r,r", [place], [i32()])[0]


def _load_words(place: ir.Value, offset: int) -> Words:
    return [(word, 0) for word in asm(f"ld.shared.v2.b32 {{$0, $1}}, [$2+{offset}];", "=r,=r,r", [place], [i32()] * 2)]


def _load_half_words(place: ir.Value, offset: int) -> Words:
    (word,) = asm(f"ld.shared.b32 $0, [$1+{offset}];", "=r,r", [place], [i32()])
    return [(word, 0), (word, 16)]


def _load_byte(place: ir.Value) -> ir.Value:
    return asm("{ .reg .b16 t; ld.shared.u8 t, [$1]; cvt.u32.u16 $0, t; }", "=r,r", [place], [i32()])[0]


def _load_bytes(place: ir.Value, offset: int) -> Words:
    (word,) = asm(f"{{ .reg .b16 t; ld.shared.u16 t, [$1+{offset}]; cvt.u32.u16 $0, t; }}", "=r,r", [place], [i32()])
    return [(word, 0), (word, 8)]

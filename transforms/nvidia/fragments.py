"""Emits tiles in shared memory as fragments, for element-wise ops: biases and masks that the copy engine brought.

16-bit elements come by ldmatrix, which gives every thread the pairs of columns that it has in a fragment; others in
pairs where columns stand side by side. No two rows of a quarter of a warp are in the same banks, but for those of f32.
"""

from __future__ import annotations

from ...dialects.mlir import ir
from ..passes import PassError
from .contraction import ldmatrix_a
from .memory import byte_width, from_word
from .thread import Registers, Shared, Thread, add, asm, constant, create, f32, i32, places


def load_fragment(tile: Shared, kind: ir.RankedTensorType, thread: Thread) -> Registers:
    """All elements of a tile that a thread has; rows are its dimension 0."""
    loads = {1: _bytes, 2: _halves, 4: _words}
    width = byte_width(kind.element_type)
    if width not in loads:
        raise PassError(f"elements of type {kind.element_type} are not read from shared memory", None)
    values, loaded = loads[width](tile, kind, thread)
    return Registers("fragment", tuple(kind.shape), values, loaded=loaded)


def _halves(tile: Shared, kind: ir.RankedTensorType, thread: Thread) -> tuple[list[ir.Value], list[ir.Value]]:
    values: list[ir.Value] = []
    loaded: list[ir.Value] = []
    for step in range(kind.shape[1] // 16):
        words = ldmatrix_a(tile, 0, step, thread)
        loaded.append(words[0])
        for word in words:
            values += _unpacked(word, kind.element_type)
    return values, loaded


def _unpacked(word: ir.Value, element: ir.Type) -> list[ir.Value]:
    """The two halves of a word as f32."""
    if isinstance(element, ir.BF16Type):  # the upper half of an f32
        low = create("arith.shli", i32(), word, constant(i32(), 16))
        high = create("arith.andi", i32(), word, constant(i32(), -(1 << 16)))
        return [create("arith.bitcast", f32(), half) for half in (low, high)]
    return [from_word(half, element) for half in (word, create("arith.shrui", i32(), word, constant(i32(), 16)))]


def _words(tile: Shared, kind: ir.RankedTensorType, thread: Thread) -> tuple[list[ir.Value], list[ir.Value]]:
    values: list[ir.Value] = []
    loaded: list[ir.Value] = []
    for row, column in places("fragment", Registers.count(kind))[::2]:
        first, second = (tile.element(*_at(tile, row, column, i, thread)) for i in (0, 1))
        if tile.inner == 1:
            words = asm("ld.shared.v2.b32 {$0, $1}, [$2];", "=r,=r,r", [first], [i32()] * 2)
            loaded.append(words[0])
        else:
            words = [asm("ld.shared.b32 $0, [$1];", "=r,r", [place], [i32()])[0] for place in (first, second)]
            loaded += words
        values += [from_word(word, kind.element_type) for word in words]
    return values, loaded


def _bytes(tile: Shared, kind: ir.RankedTensorType, thread: Thread) -> tuple[list[ir.Value], list[ir.Value]]:
    values: list[ir.Value] = []
    loaded: list[ir.Value] = []
    for row, column in places("fragment", Registers.count(kind))[::2]:
        first, second = (tile.element(*_at(tile, row, column, i, thread)) for i in (0, 1))
        if tile.inner == 1:
            (word,) = asm("{ .reg .b16 t; ld.shared.u16 t, [$1]; cvt.u32.u16 $0, t; }", "=r,r", [first], [i32()])
            words = [word, create("arith.shrui", i32(), word, constant(i32(), 8))]
            loaded.append(word)
        else:
            text = "{ .reg .b16 t; ld.shared.u8 t, [$1]; cvt.u32.u16 $0, t; }"
            words = [asm(text, "=r,r", [place], [i32()])[0] for place in (first, second)]
            loaded += words
        values += [from_word(word, kind.element_type) for word in words]
    return values, loaded


def _at(tile: Shared, row: int | None, column: int | None, i: int, thread: Thread) -> tuple[ir.Value, ir.Value]:
    """Where the element `i` columns behind a place is: along the tile's outer and its inner dimension."""
    assert row is not None and column is not None
    positions = thread.place(0, row), add(thread.place(1, column), i)
    return positions if tile.inner == 1 else positions[::-1]

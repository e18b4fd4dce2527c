"""Asynchronous copies of tiles from memory to shared memory, by threads (cp.async)."""

from __future__ import annotations

from ....dialects.mlir import ir
from ...rewriting import only_if
from ..alignment import CHUNK
from .memory import Access
from .thread import Shared, Thread, add, asm, constant, create, div, i1, i32, i64, less, mul, rem, select


def copy_to_shared(access: Access, tile: Shared, thread: Thread, vector_bytes: int) -> None:
    """Asynchronous copies of 16 bytes a thread; what is not valid becomes 0.

    `vector_bytes`: how memory is aligned along the inner dimension; below 16, a piece of 16 bytes takes several copies.
    """
    outer, inner = 1 - tile.inner, tile.inner
    per_row = tile.inner_size // tile.per_piece
    total = tile.outer_size * per_row
    size = access.memory.bytes
    contiguous = vector_bytes if access.stride(inner) is not None else size
    lanes = 1 << (per_row - 1).bit_length()  # threads for a row; the last of them have nothing to do
    step = thread.threads // lanes
    if step > 0 and step % 8 == 0 and tile.outer_size % step == 0:
        with only_if(less(rem(thread.number, lanes), constant(i32(), per_row)) if lanes != per_row else None):
            _copy_columns(access, tile, thread, lanes, contiguous)
        return
    for first in range(0, total, thread.threads):
        number = add(thread.number, first)
        row, column = div(number, per_row), mul(rem(number, per_row), tile.per_piece)
        target = tile.piece(row, column)
        beyond = total - first < thread.threads
        with only_if(less(number, constant(i32(), total)) if beyond else None):
            _copy_piece(access, outer, inner, row, column, target, contiguous)


def _copy_columns(access: Access, tile: Shared, thread: Thread, lanes: int, vector_bytes: int) -> None:
    """As above, where a thread's pieces are one below the other: an address follows from the one before.

    (One by one, the parts of them that no iteration changes would be kept in registers across the loop.)
    """
    step = thread.threads // lanes
    row, column = div(thread.number, lanes), mul(rem(thread.number, lanes), tile.per_piece)
    target, place = tile.piece(row, column), None
    outer = 1 - tile.inner
    stride = access.stride(outer)
    delta = None if stride is None else mul(stride, step)
    for number in range(tile.outer_size // step):
        at = add(row, number * step)
        if place is None or access.is_joined(outer):
            place = _place(access, tile.inner, at, column)
        elif delta is not None:
            place = add(place, delta)
        below = add(target, number * step * 128)
        _copy_piece(access, outer, tile.inner, at, column, below, vector_bytes, place)


def _place(access: Access, inner: int, row: ir.Value, column: ir.Value) -> ir.Value:
    """The number of the element at (row, column), column along the dimension `inner`."""
    return access.place([row, column] if inner == 1 else [column, row])


def _copy_piece(access: Access, outer: int, inner: int, row, column, target, vector_bytes: int, first=None) -> None:
    """16 bytes of shared memory, from (row, column) of the tile on, where the element's number is `first`."""
    elements = vector_bytes // access.memory.bytes
    for part in range(CHUNK // vector_bytes):
        at = add(column, part * elements)
        place = first if first is not None and part == 0 else _place(access, inner, row, at)
        count = constant(i32(), vector_bytes)
        if not access.is_full(inner):
            left = mul(add(access.sizes[inner], mul(at, -1)), access.memory.bytes)
            left = create("arith.maxsi", i32(), left, constant(i32(), 0))
            count = create("arith.minsi", i32(), left, count)
        if not access.is_full(outer):
            count = select(less(row, access.sizes[outer]), count, constant(i32(), 0))
        if not (access.is_full(inner) and access.is_full(outer)):
            # Nothing is read through an address when no byte is valid; it is kept within the tensor all the same.
            some = create("arith.cmpi", i1(), count, constant(i32(), 0), predicate=ir.IntegerAttr.get(i64(), 1))
            place = select(some, place, constant(i64(), 0))
        address = access.memory.address(place)
        _copy_part(address, add(target, part * vector_bytes), count, vector_bytes)


def _copy_part(address: ir.Value, target: ir.Value, count: ir.Value, vector_bytes: int) -> None:
    if vector_bytes >= 4:
        cache = "cg" if vector_bytes == CHUNK else "ca"
        text = f"cp.async.{cache}.shared.global [$0], [$1], {vector_bytes}, $2;"
        asm(text, "r,l,r", [target, address, count])
        return
    asm(
        "{ .reg .pred p; .reg .b16 v; setp.ne.b32 p, $2, 0; mov.b16 v, 0; "
        "@p ld.global.b16 v, [$1]; st.shared.b16 [$0], v; }",
        "r,l,r",
        [target, address, count],
    )

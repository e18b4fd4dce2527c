"""Emits what puts right operands of 8 bits in order, from one place in shared memory to another: ``tile.arrange``.

The tensor cores take them with k side by side. Of 16 k the order is that in which a thread has left operands: those of
a pair of columns, then of the pair eight further on ("paired"). Where k stand side by side already, they change places
within 16 bytes. Else 32 k × 16 n are transposed at once. ldmatrix takes pairs of n for one element, and gives a thread
two k of a pair of n in a word, and the two k eight further on in another one: of these two words, the bytes of the
first n are four k of it in that order, the other bytes those of the second n. stmatrix stores words as they are.
"""

from __future__ import annotations

from ....dialects.mlir import ir
from ...rewriting import only_if
from .contraction import ldmatrix
from .thread import Shared, Thread, add, asm, constant, div, i32, less, mul, permuted, rem


def arrange(source: Shared, target: Shared, warps: int, thread: Thread) -> None:
    """A tile to the layout "paired"; `warps`, the last ones of the block, share it."""
    first = add(thread.warp, warps - thread.threads // 32)
    if source.inner == target.inner:
        _pair_columns(source, target, add(mul(first, 32), thread.lane), 32 * warps)
    else:
        _transpose(source, target, first, warps, thread)
    asm("fence.proxy.async.shared::cta; bar.warp.sync -1;", "", [])


def _pair_columns(source: Shared, target: Shared, number: ir.Value, threads: int) -> None:
    total = source.size // 16
    for begin in range(0, total, threads):
        with only_if(less(number, constant(i32(), total - begin)) if total - begin < threads else None):
            at = mul(add(number, begin), 16)
            text = "ld.shared.v4.b32 {$0, $1, $2, $3}, [$4];"
            words = asm(text, "=r,=r,=r,=r,r", [add(source.address, at)], [i32()] * 4)
            paired = [permuted(words[i], words[i + 2], s) for i in (0, 1) for s in (0x5410, 0x7632)]
            asm("st.shared.v4.b32 [$0], {$1, $2, $3, $4};", "r,r,r,r,r", [add(target.address, at), *paired])


def _transpose(source: Shared, target: Shared, first: ir.Value, warps: int, thread: Thread) -> None:
    """Each warp takes groups of 16 n, which are a piece of the source's rows; of all k."""
    keys, columns = source.outer_size, source.inner_size
    lane, matrix = thread.lane, div(thread.lane, 8)
    in_row = add(mul(rem(lane, 8), 2), rem(matrix, 2))  # the row of a group of 16 that this lane has the address of
    for begin in range(0, columns // 16, warps):
        group = add(first, begin)
        left = columns // 16 - begin
        with only_if(less(group, constant(i32(), columns // 16)) if left < warps else None):
            read = source.piece(lane, mul(group, 16))
            write = add(mul(group, 16), in_row)
            for step in range(keys // 32):
                words = ldmatrix(add(read, 32 * step * source.line), transposed=True)
                made = [permuted(words[i], words[i + 1], s) for i in (0, 2) for s in (0x6420, 0x7531)]
                place = target.piece(write, add(mul(div(matrix, 2), 16), 32 * step))
                text = "stmatrix.sync.aligned.m8n8.x4.shared.b16 [$0], {$1, $2, $3, $4};"
                asm(text, "r,r,r,r,r", [place, *made])

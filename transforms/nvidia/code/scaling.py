"""Emits left operands of matmuls times a power of two: ``tile.scale``. Two elements of 16 bits a word."""

from __future__ import annotations

import struct

from ....dialects.mlir import ir
from ..architecture import ROWS, WARPS
from .synchronisation import meet_in_warpgroup
from .thread import Registers, Shared, Thread, add, asm, constant, div, i32, mul, rem

WARPGROUP = 32 * WARPS  # threads


def scale(tile: Registers | Shared, element: str, exponent: int, thread: Thread) -> Registers | Shared:
    """One in shared memory changes where it is, rows of a warpgroup by its threads alone; then tensor cores read it."""
    if isinstance(tile, Registers):
        return Registers(tile.layout, tile.shape, [_scaled(word, element, exponent) for word in tile.values])
    first = mul(div(thread.warp, WARPS), ROWS * tile.line)
    start = add(add(tile.address, first), mul(rem(thread.number, WARPGROUP), 16))
    for block in range(tile.size // (tile.outer_size * tile.line)):
        for step in range(ROWS * tile.line // (16 * WARPGROUP)):
            at = add(start, block * tile.outer_size * tile.line + 16 * WARPGROUP * step)
            words = asm("ld.shared.v4.b32 {$0, $1, $2, $3}, [$4];", "=r,=r,=r,=r,r", [at], [i32()] * 4)
            made = [_scaled(word, element, exponent) for word in words]
            asm("st.shared.v4.b32 [$0], {$1, $2, $3, $4};", "r,r,r,r,r", [at, *made])
    asm("fence.proxy.async.shared::cta;", "", [])
    meet_in_warpgroup(thread)
    return tile


def _scaled(word: ir.Value, element: str, exponent: int) -> ir.Value:
    factor = constant(i32(), _bits(element, 2.0**exponent) * 0x10001)
    return asm(f"mul.rn.{element}x2 $0, $1, $2;", "=r,r,r", [word, factor], [i32()], effects=False)[0]


def _bits(element: str, value: float) -> int:
    """A power of two, in 16 bits."""
    if element == "bf16":
        return int.from_bytes(struct.pack(">f", value)[:2])
    return int.from_bytes(struct.pack(">e", value))

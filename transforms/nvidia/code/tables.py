"""Emits what fills words of shared memory with constants: tables, ones."""

from __future__ import annotations

from collections.abc import Callable

from ....dialects.mlir import ir
from ...rewriting import make_for
from .thread import Shared, Thread, add, asm, constant, i32, mul

ONE_WORDS = {"f16": 0x3C003C00, "bf16": 0x3F803F80}  # two ones


def fill_words(address: ir.Value, count: int, word: Callable[[ir.Value], ir.Value], thread: Thread) -> None:
    """Writes so many words from `address` on, each by one thread; `word`: what the one of a number is."""
    _, block = make_for([thread.number, constant(i32(), count), constant(i32(), thread.threads)])
    with ir.InsertionPoint(block):
        number = block.arguments[0]
        asm("st.shared.b32 [$0], $1;", "r,r", [add(address, mul(number, 4)), word(number)])
        ir.Operation.create("scf.yield", [], [])


def fill_ones(tile: Shared, element: str, thread: Thread) -> None:
    """Makes all elements 1, for the tensor cores."""
    fill_words(tile.first, tile.size // 4, lambda _: constant(i32(), ONE_WORDS[element]), thread)
    asm("fence.proxy.async.shared::cta;", "", [])

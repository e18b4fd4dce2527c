"""How many bytes tiles take in shared memory, by their layouts (``code/thread.py``: Shared, Skewed)."""

from __future__ import annotations


def line_bytes(inner: int, width: int) -> int:
    """The bytes of a row in shared memory: 128; less where `inner` elements of one byte fill no more."""
    return 128 if width > 1 else next(line for line in (32, 64, 128) if line >= min(inner, 128))


def shared_bytes(outer: int, inner: int, width: int = 2) -> int:
    """Of a tile whose rows are permuted, of elements of so many bytes; `inner`: how many stand side by side."""
    line = line_bytes(inner, width)
    return -(-inner * width // line) * outer * line


def skewed_bytes(rows: int, columns: int, width: int) -> int:
    """Of a tile whose rows begin where they do in memory, but for multiples of 16 bytes."""
    return rows * (-(-columns * width // 16) + 1 | 1) * 16

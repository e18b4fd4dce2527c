"""Types of elements: how many bytes they take, and which of them registers hold as f32."""

from __future__ import annotations

from ...dialects.mlir import ir

EIGHT_BITS = (ir.Float8E4M3FNType, ir.Float8E5M2Type)
NARROW = (ir.F16Type, ir.BF16Type, *EIGHT_BITS)


def byte_width(element: ir.Type) -> int:
    """How many bytes an element takes in memory."""
    return max(getattr(element, "width", 64) // 8, 1)  # an index has no width

"""Builders of slices of tensors, whose offsets and sizes are ints where they are static."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from ..dialects.mlir import ir, tensor
from .linear import DYNAMIC

Size: TypeAlias = ir.Value | int


def split(parts: Sequence[Size]) -> tuple[list[ir.Value], list[int]]:
    """The dynamic ones, and all with a marker in place of these."""
    return [p for p in parts if not isinstance(p, int)], [p if isinstance(p, int) else DYNAMIC for p in parts]


def extract(kind: ir.Type, source: ir.Value, offsets: Sequence, sizes: Sequence, strides: Sequence) -> ir.Value:
    (o, so), (s, ss), (t, st) = split(offsets), split(sizes), split(strides)
    return tensor.ExtractSliceOp(kind, source, o, s, t, so, ss, st).result


def insert_parallel(source: ir.Value, dest: ir.Value, offsets: Sequence, sizes: Sequence) -> None:
    """In the terminator of a scf.forall."""
    (o, so), (s, ss) = split(offsets), split(sizes)
    tensor.ParallelInsertSliceOp(source, dest, o, s, [], so, ss, [1] * len(offsets))

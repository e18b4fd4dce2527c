"""Where an emitter stands: the current tile along each loop, and the positions of its iterations."""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ....dialects import build
from ....dialects.mlir import arith, ir, vector
from ..structured import NO_LOOP, Operand
from .schedule import Schedule

Offsets = tuple[int, ...]
Key = tuple[int, Offsets]  # an operand's number, and unroll offsets of its loops


@dataclass
class Span:
    """The part of a loop that is in the tile: base index, unrolled iterations (or vectors), mask of the lanes."""

    base: ir.Value
    count: int
    mask: ir.Value | None = None


class RegisterTile:
    """The iterations of an op that are evaluated in registers at once; a point of it has an offset per loop."""

    def __init__(self, schedule: Schedule):
        self.v = schedule.vector_loop
        self.lanes = schedule.lanes
        self.spans: dict[int, Span] = {}
        self.indices: dict[tuple[int, int], ir.Value] = {}

    @contextmanager
    def along(self, d: int, base: ir.Value, count: int, end: ir.Value | None = None) -> Iterator[None]:
        """Enters `count` iterations (vectors) of loop `d` from `base` on; lanes beyond `end`, if given, are masked."""
        saved = dict(self.spans), dict(self.indices)
        mask = None
        if end is not None:
            kind = ir.VectorType.get([self.lanes], ir.IntegerType.get_signless(1))
            mask = vector.CreateMaskOp(kind, [arith.subi(end, base)]).result
        self.spans[d] = Span(base, count, mask)
        for offset in range(count):
            self.indices[d, offset] = arith.addi(base, build.index(offset * self.width(d))) if offset else base
        yield
        self.spans, self.indices = saved

    def width(self, d: int) -> int:
        """How many iterations one unrolled step of the loop is."""
        return self.lanes if d == self.v else 1

    def count(self, d: int) -> int:
        return self.spans[d].count

    @property
    def mask(self) -> ir.Value | None:
        """Which lanes are iterations; None: all."""
        return None if self.v == NO_LOOP else self.spans[self.v].mask

    def offsets(self, loops: Sequence[int]) -> list[Offsets]:
        return list(itertools.product(*(range(self.count(d)) for d in loops)))

    def at(self, loops: frozenset[int], offsets: Offsets) -> dict[int, int]:
        return dict(zip(sorted(loops), offsets, strict=True))

    def subscripts(self, operand: Operand, at: dict[int, int]) -> list[ir.Value]:
        return [build.index(0) if d == NO_LOOP else self.indices[d, at[d]] for d in operand.dims]

"""Constants that follow from their indices, computed from these: a mask made by numpy is then as good as any other.

    %mask = arith.constant dense<"0x…"> : tensor<512x512xi1>          // numpy.tril(numpy.ones((512, 512), bool))
  becomes
    %mask = linalg.generic … { %d = arith.subi %j, %i; %c = arith.cmpi sle, %d, %c0; linalg.yield %c }

Two kinds are recognised: numbers that are linear in the indices, as ``arange`` makes them; and two values, one where
low ≤ j − i ≤ high for two of the indices, or where low ≤ j ≤ high for one, and the other elsewhere.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from ...dialects import build
from ...dialects.mlir import arith, ir, linalg
from .lowering import ops

LEAST = 16  # elements: smaller constants may be shapes or axes
LARGEST = 2**31  # of numbers that follow from indices
SAMPLE = 64
ELEMENTS = ("i1", "i8", "i16", "i32", "i64", "f16", "f32", "f64")


@dataclasses.dataclass(frozen=True)
class Linear:
    """start + Σ steps[d]·index(d)."""

    start: int
    steps: tuple[int, ...]

    def emit(self, kind: ir.Type) -> ir.Value:
        total = build.index(self.start)
        for d, step in enumerate(self.steps):
            if step:
                total = arith.addi(total, arith.muli(linalg.IndexOp(d).result, build.index(step)))
        if isinstance(kind, ir.FloatType):
            return arith.sitofp(kind, arith.index_cast(ir.IntegerType.get_signless(64), total))
        return arith.index_cast(kind, total)


@dataclasses.dataclass(frozen=True)
class Band:
    """`inside` where low ≤ index(column) − index(row) ≤ high, `outside` elsewhere; None: no limit, or no row."""

    row: int | None
    column: int
    low: int | None
    high: int | None
    inside: float
    outside: float

    def emit(self, kind: ir.Type) -> ir.Value:
        at = linalg.IndexOp(self.column).result
        if self.row is not None:
            at = arith.subi(at, linalg.IndexOp(self.row).result)
        conditions = []
        if self.low is not None:
            conditions.append(arith.cmpi(arith.CmpIPredicate.sge, at, build.index(self.low)))
        if self.high is not None:
            conditions.append(arith.cmpi(arith.CmpIPredicate.sle, at, build.index(self.high)))
        holds = conditions[0] if len(conditions) == 1 else arith.andi(*conditions)
        return arith.select(holds, build.constant(kind, self.inside), build.constant(kind, self.outside))


def pattern(array: np.ndarray) -> Linear | Band | None:
    """How the elements follow from their indices; None if they do not in a way that is known here."""
    if array.size <= LEAST or array.dtype.kind not in "biuf":
        return None
    sample = array.ravel()[:: max(1, array.size // SAMPLE)]
    if array.dtype.kind == "f" and not (np.isinf(sample) | (sample == np.round(sample))).all():
        few = len(np.unique(sample)) <= 2
        return _band(array) if few else None
    return _band(array) or _linear(array)


def _linear(array: np.ndarray) -> Linear | None:
    if array.dtype.kind == "b" or not np.isfinite(array.flat[0]):
        return None
    first = array[(0,) * array.ndim]
    units = [tuple(int(i == d and n > 1) for i in range(array.ndim)) for d, n in enumerate(array.shape)]
    neighbours = [array[unit] for unit in units]
    numbers = [first, *neighbours]
    if not all(np.isfinite(n) and n == int(n) and abs(int(n)) < LARGEST for n in numbers):
        return None
    start, steps = int(first), tuple(int(n) - int(first) for n in neighbours)
    if not any(steps):
        return None
    expected = np.asarray(start, np.int64)
    for d, step in enumerate(steps):
        shape = [-1 if i == d else 1 for i in range(array.ndim)]
        expected = expected + (np.arange(array.shape[d], dtype=np.int64) * step).reshape(shape)
    return Linear(start, steps) if np.array_equal(array, np.broadcast_to(expected, array.shape)) else None


def _band(array: np.ndarray) -> Band | None:
    first = array[(0,) * array.ndim]
    other = array.ravel()[np.argmax(array.ravel() != first)]
    if first != first or other == first or not ((array == first) | (array == other)).all():
        return None
    varying = [d for d in range(array.ndim) if array.shape[d] > 1 and not (array == array.take([0], d)).all()]
    if len(varying) == 1:
        (column,) = varying
        line = array[tuple(slice(None) if d == column else 0 for d in range(array.ndim))]
        return _interval(line, None, column, 0)
    if len(varying) != 2:
        return None
    row, column = varying
    plane = array[tuple(slice(None) if d in varying else 0 for d in range(array.ndim))]
    m, n = plane.shape
    diagonals = np.concatenate([plane[::-1, 0], plane[0, 1:]])  # j − i from 1 − m to n − 1
    if not np.array_equal(plane, diagonals[np.arange(n)[None] - np.arange(m)[:, None] + m - 1]):
        return None
    return _interval(diagonals, row, column, 1 - m)


def _interval(line: np.ndarray, row: int | None, column: int, start: int) -> Band | None:
    """The band whose values at start, start + 1, … are those of `line`."""
    changes = np.flatnonzero(line[1:] != line[:-1])
    if len(changes) == 1:
        return Band(row, column, None, start + int(changes[0]), line[0].item(), line[-1].item())
    if len(changes) == 2:
        low, high = (start + int(c) for c in changes)
        return Band(row, column, low + 1, high, line[changes[0] + 1].item(), line[0].item())
    return None


def compute_constants(module: ir.Module) -> None:
    """Replaces the constants of `module` that follow from their indices."""
    for op in ops(module):
        if op.name != "arith.constant" or not isinstance(op.results[0].type, ir.RankedTensorType):
            continue
        value, kind = op.attributes["value"], op.results[0].type
        if not isinstance(value, ir.DenseElementsAttr) or str(kind.element_type) not in ELEMENTS or value.is_splat:
            continue
        found = pattern(np.array(value))
        if found is None:
            continue
        with ir.InsertionPoint(op), op.location:
            (result,) = build.generic(
                [],
                [build.empty(list(kind.shape), kind.element_type)],
                [build.projection(kind.rank, range(kind.rank))],
                [build.PARALLEL] * kind.rank,
                lambda _, found=found, kind=kind: found.emit(kind.element_type),
            )
        op.results[0].replace_all_uses_with(result)
        op.erase()

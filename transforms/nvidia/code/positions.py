"""Numbers that depend on where an element is. What grows evenly from one element to the next is made once for the
thread, from its first row and column; the others are that many steps away, which is known for each::

    j − i                    d + 9            all elements of a diagonal share it, and what is computed from it
    float(j − i)             float(d) + 9.0
    x + slope · float(j − i) x + (9.0 · slope + slope · float(d))

Integers of less than 2^24 are exact in f32. A product with a slope is rounded as what is largest in the tile, and so
made in this way only where it is added to something.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ....dialects.mlir import ir
from ...linear import CASTS
from ...rewriting import defining_op
from .functions import times
from .scalars import emit_scalar
from .thread import add, constant, create, f32

if TYPE_CHECKING:
    from .elementwise import Elementwise


ROWS, COLUMNS = 0, 1
Place = tuple[int | None, int | None]


@dataclass(frozen=True)
class Line:
    """`base`, of the thread's first element, and so many steps more. `step`: of f32; None: 1."""

    base: ir.Value
    step: ir.Value | None
    steps: int

    def value(self) -> ir.Value:
        if not self.steps:
            return self.base
        steps = constant(f32(), float(self.steps))
        if self.step is None:
            return create("arith.addf", f32(), self.base, steps)
        return create("math.fma", f32(), steps, self.step, self.base)


@dataclass(frozen=True)
class Linear:
    """factor · values, each plus its line, if there are any."""

    values: list[ir.Value]
    factor: float
    lines: list[Line] | None = None


class Positions:
    """Those in the body of one linalg.generic."""

    def __init__(self, elements: Elementwise):
        self.elements = elements
        self._made: dict[tuple, ir.Value] = {}

    def emit(self, op: ir.Operation, row: int | None, column: int | None) -> list[ir.Value] | None:
        """The result of `op` if it is made from a position in one of the ways above; None for other ops."""
        if op.name in ("arith.addi", "arith.subi"):
            found = self._distance(op, row, column)
            return None if found is None else [add(*found)]
        if op.name == "arith.sitofp":
            return self._float(op, row, column)
        if op.name in ("arith.addf", "arith.subf"):
            return self._sum(op, row, column)
        return None

    def line(self, value: ir.Value, row: int | None, column: int | None) -> Line | None:
        """A float that is a position, or a product of one with what is the same for all elements."""
        op = defining_op(value)
        if op is None or op.block != self.elements.body or value.type != f32():
            return None
        if op.name == "arith.sitofp":
            found = self._steps(op.operands[0], row, column)
            return None if found is None else Line(self._once(op, found[0]), None, found[1])
        if op.name != "arith.mulf":
            return None
        for position, factor in (op.operands, reversed(op.operands)):
            if not any(self.elements.depends(factor)):
                line = self.line(position, row, column)
                return None if line is None else self._times(op, line, self.elements.value(factor, None, None))
        return None

    def lines(self, op: ir.Operation, value: ir.Value, places: Sequence[Place]) -> list[Line]:
        """What `op` adds, or subtracts, at these places, if that is a product with a position; else []."""
        lines: list[Line] = []
        for place in places:
            line = self.line(value, *place)
            if line is None or line.step is None:
                return []
            lines.append(line)
        return [self._negative(op, line) for line in lines] if op.name == "arith.subf" else lines

    def moved(self, op: ir.Operation, line: Line, factor: float, by: ir.Value) -> Line:
        """line · factor + by, as a part of `op`."""
        assert line.step is not None
        step, base = ((op.results[0], line.step, factor), (op.results[0], line.base, by))
        if step not in self._made:
            self._made[step] = times(line.step, factor)
        if base not in self._made:
            self._made[base] = create("math.fma", f32(), line.base, constant(f32(), factor), by)
        return Line(self._made[base], self._made[step], line.steps)

    # Floats.

    def _float(self, op: ir.Operation, row: int | None, column: int | None) -> list[ir.Value] | None:
        line = self.line(op.results[0], row, column)
        if line is not None:
            return [line.value()]
        absolute = defining_op(op.operands[0])
        if op.results[0].type != f32() or absolute is None or absolute.name != "math.absi":
            return None
        found = self._steps(absolute.operands[0], row, column)
        if found is None:
            return None
        return [create("math.absf", f32(), Line(self._once(op, found[0]), None, found[1]).value())]

    def _sum(self, op: ir.Operation, row: int | None, column: int | None) -> list[ir.Value] | None:
        for number in (0, 1):
            line = self.line(op.operands[number], row, column)
            if line is not None and line.step is not None:
                operands = [self.elements.value(op.operands[1 - number], row, column), line.value()]
                return emit_scalar(op, operands if number else operands[::-1])
        return None

    def _times(self, op: ir.Operation, line: Line, factor: ir.Value) -> Line:
        step = factor if line.step is None else self._product(op, line.step, factor)
        return Line(self._product(op, line.base, factor), step, line.steps)

    def _negative(self, op: ir.Operation, line: Line) -> Line:
        assert line.step is not None
        for value in (line.base, line.step):
            if (op.results[0], value) not in self._made:
                self._made[op.results[0], value] = create("arith.negf", f32(), value)
        return Line(self._made[op.results[0], line.base], self._made[op.results[0], line.step], line.steps)

    def _product(self, op: ir.Operation, a: ir.Value, b: ir.Value) -> ir.Value:
        key = (op.results[0], a, b)
        if key not in self._made:
            self._made[key] = create("arith.mulf", f32(), a, b)
        return self._made[key]

    # Integers.

    def _steps(self, value: ir.Value, row: int | None, column: int | None) -> tuple[ir.Value, int] | None:
        """An integer that grows by 1 along columns or rows, or falls, as it is in the thread's first element, and how
        much more it is here; None for other numbers."""
        op = defining_op(value)
        if op is None or op.block != self.elements.body:
            return None
        if op.name in CASTS:
            found = self._steps(op.operands[0], row, column)
            return None if found is None else (self._once(op, found[0]), found[1])
        return self._distance(op, row, column) or self._origin(value, row, column)

    def _once(self, op: ir.Operation, operand: ir.Value) -> ir.Value:
        """The result of `op`, with one operand, for the thread's first element."""
        key = (op.results[0], operand)
        if key not in self._made:
            (self._made[key],) = emit_scalar(op, [operand])
        return self._made[key]

    def _distance(self, op: ir.Operation, row: int | None, column: int | None) -> tuple[ir.Value, int] | None:
        """The same of a sum or difference of a row's and a column's number. None where `op` is none."""
        if op.name not in ("arith.addi", "arith.subi") or not all(self.elements.depends(op.results[0])):
            return None
        parts = [self._origin(v, row, column) for v in op.operands]
        if None in parts:
            return None
        (a, first), (b, second) = parts  # type: ignore[misc]
        key = (op.results[0], a, b)
        if key not in self._made:
            self._made[key] = create(op.name, a.type, a, b)
        return self._made[key], first + second if op.name == "arith.addi" else first - second

    def _origin(self, value: ir.Value, row: int | None, column: int | None) -> tuple[ir.Value, int] | None:
        """The same of a number that depends on the row or the column alone."""
        op = defining_op(value)
        by_row, by_column = self.elements.depends(value)
        if op is None or op.block != self.elements.body or by_row == by_column:
            return None
        if op.name == "linalg.index":
            axis = ROWS if by_row else COLUMNS
            here = row if by_row else column
            assert here is not None
            return self.elements.thread.place(axis, 0), self.elements.thread.distance(axis, here)
        if op.name in CASTS:
            cast = self._origin(op.operands[0], row, column)
            return None if cast is None else (self._once(op, cast[0]), cast[1])
        if op.name != "arith.addi" or not any(self.elements.depends(v) == (False, False) for v in op.operands):
            return None
        moving = next(i for i, v in enumerate(op.operands) if self.elements.depends(v) != (False, False))
        origin = self._origin(op.operands[moving], row, column)
        if origin is None:
            return None
        key = (value, origin[0])
        if key not in self._made:
            other = self.elements.value(op.operands[1 - moving], None, None)
            self._made[key] = create("arith.addi", other.type, origin[0], other)
        return self._made[key], origin[1]

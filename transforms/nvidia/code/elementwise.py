"""Emits a linalg.generic on tiles in registers: its body once per element that a thread has, reductions over columns.

A value of the body that depends on the row alone, or on the column alone, is emitted once for it. A tile that is
another one times a constant c > 0 (scaled scores) is seldom needed itself: the maximum of c·s is c times that of s, and
c·s − m is one instruction. So is (c·s − m)·k, which exponentials are of, in kernels of 16 bits or less: k·m is rounded.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from ....dialects.build import constant_value
from ....dialects.mlir import ir
from ....dialects.tile import SHARES, layout_of
from ....dialects.tiling.structured import dim_position, indexing_maps, iterator_types
from ...passes import PassError
from ...rewriting import defining_op, ops_of, single_use
from ..bounds import may_be_low
from ..marks import AS_STORED, LIMIT
from ..reductions import MAXIMA, NEUTRAL
from . import exponentials
from .exponentials import Factor, of_elements
from .functions import divide_by_normal, divide_by_products, exp2, times
from .positions import COLUMNS, ROWS, Linear, Positions
from .scalars import Emit, scalar_emitter
from .thread import (
    EQ,
    Registers,
    Thread,
    at,
    compare,
    constant,
    create,
    f32,
    i1,
    i64,
    places,
    register_type,
    select,
    shuffled,
)

ALONG = {"fragment": (ROWS, COLUMNS), "row": (ROWS,), "row_part": (ROWS,), "column": (COLUMNS,)}


Sum: TypeAlias = "tuple[ir.Value, Factor, ir.Value]"  # element · factor + what its row has

DISTRIBUTED = "reassoc"  # of a product: (s − m)·k may be s·k − m·k, which is not 0 where s is m, as k·m is rounded

QUAD = (1, 2)  # by which bits of their numbers the threads of a quad differ


OLT = 4  # arith's predicate "ordered and less than"


class Elementwise:
    """One linalg.generic. `operands`: Registers for tiles, scalars as they are. `outer`: gives scalars from outside."""

    def __init__(self, op: ir.Operation, operands: Sequence[Registers | ir.Value], thread: Thread, outer):
        self.op, self.operands, self.thread, self.outer = op, list(operands), thread, outer
        self.body = op.regions[0].blocks[0]
        self.axes = self._axes_of_loops()
        self._values: dict[tuple[ir.Value, tuple], ir.Value] = {}
        self._depends: dict[ir.Value, tuple[bool, bool]] = {}
        self._low: dict[ir.Value, bool] = {}
        # Of an op, by its result, once for all elements.
        self._emitters: dict[ir.Value, Emit] = {}
        self._differences: dict[ir.Value, tuple[ir.Operation | None, float]] = {}
        self.positions = Positions(self)

    def _axes_of_loops(self) -> list[int]:
        """For every loop whether it runs along rows or columns."""
        axes: dict[int, int] = {}
        tiles = [*self.op.operands, *self.op.results]
        maps = indexing_maps(self.op)
        maps = [*maps, *maps[len(maps) - len(self.op.results) :]]
        for value, m in zip(tiles, maps, strict=True):
            along = ALONG.get(layout_of(value.type) or "", ())
            for axis, expression in zip(along, m.results, strict=False):
                loop = dim_position(expression)
                if loop is not None and axes.setdefault(loop, axis) != axis:
                    raise PassError("a dimension is rows of one tile and columns of another", self.op)
        return [axes.get(loop, COLUMNS) for loop in range(len(iterator_types(self.op)))]

    # Which of row and column a value of the body depends on.

    def depends(self, value: ir.Value) -> tuple[bool, bool]:
        if value not in self._depends:
            self._depends[value] = self._find_dependence(value)
        return self._depends[value]

    def _find_dependence(self, value: ir.Value) -> tuple[bool, bool]:
        op = defining_op(value)
        if op is None:
            layout = layout_of(self.op.operands[value.arg_number].type) if value.owner == self.body else None
            along = ALONG.get(layout or "", ())
            return ROWS in along, COLUMNS in along
        if op.block != self.body:
            return False, False
        if op.name == "linalg.index":
            axis = self.axes[ir.IntegerAttr(op.attributes["dim"]).value]
            return axis == ROWS, axis == COLUMNS
        found = [self.depends(v) for v in op.operands]
        return any(r for r, _ in found), any(c for _, c in found)

    # The value at a place.

    def value(self, value: ir.Value, row: int | None, column: int | None) -> ir.Value:
        by_row, by_column = self.depends(value)
        place = (row if by_row else None, column if by_column else None)
        key = (value, place)
        if key not in self._values:
            self._values[key] = self._emit(value, *place)
        return self._values[key]

    def _emit(self, value: ir.Value, row: int | None, column: int | None) -> ir.Value:
        op = defining_op(value)
        if op is None and value.owner == self.body:
            operand = self.operands[value.arg_number]
            if isinstance(operand, Registers):
                return operand.values[at(layout_of(self.op.operands[value.arg_number].type), row, column)]
            return operand
        if op is None or op.block != self.body:
            return self.outer(value)
        if op.name == "linalg.index":
            axis = self.axes[ir.IntegerAttr(op.attributes["dim"]).value]
            return self.thread.place(axis, row if axis == ROWS else column)  # type: ignore[arg-type]
        results = self._fused_difference(op, row, column) or self.positions.emit(op, row, column)
        results = results or self._exponential(op, row, column)
        results = results or self._quotient(op, row, column)
        if results is None:
            if value not in self._emitters:
                self._emitters[value] = scalar_emitter(op)
            results = self._emitters[value]([self.value(v, row, column) for v in op.operands])
        by_row, by_column = self.depends(value)
        place = (row if by_row else None, column if by_column else None)
        for result, emitted in zip(op.results, results, strict=True):
            self._values[(result, place)] = emitted
        return self._values[(value, place)]

    # Tiles that are products with a constant, to which positions may be added.

    def _factors_of(self, value: ir.Value) -> Linear | None:
        """What an operand's tile is made of, where the body's argument `value` is an element of one that is linear."""
        if defining_op(value) is not None or value.owner != self.body:
            return None
        operand = self.operands[value.arg_number]
        return operand.linear if isinstance(operand, Registers) else None

    def _fused_difference(self, op: ir.Operation, row: int | None, column: int | None) -> list[ir.Value] | None:
        """(c·s − m)·k, or one of the products alone, as one op, (c·s + position − m)·k as two; None where `op` is no
        such difference."""
        found = self._linear_by_place(op, row, column) or self._linear(op, row, column)
        if found is None:
            return None
        element, factor, of_row = found
        return [create("math.fma", f32(), element, of_elements(factor), of_row)]

    def _linear(self, op: ir.Operation, row: int | None, column: int | None) -> Sum | None:
        """(c·s − m)·k as s, c·k, −m·k."""
        difference, factor = self._difference(op)
        if difference is None:
            return None
        linear = self._factors_of(difference.operands[0])
        if linear is not None and linear.lines is None:
            layout = layout_of(self.op.operands[difference.operands[0].arg_number].type)
            minuend, of_element = linear.values[at(layout, row, column)], linear.factor * factor
        elif factor != 1.0:
            minuend, of_element = self.value(difference.operands[0], row, column), factor
            if factor > 1 and self._may_be_low(difference.operands[1]):  # m·k may be infinite
                return None
        else:
            return None
        return minuend, of_element, self._of_row(op, difference, factor, row)

    def _linear_by_place(self, op: ir.Operation, row: int | None, column: int | None) -> Sum | None:
        """(c·s + position − m)·k as s, c·k, position·k − m·k, where no one else reads c·s + position."""
        difference, factor = self._difference(op)
        linear = self._factors_of(difference.operands[0]) if difference is not None else None
        if difference is None or linear is None or linear.lines is None:
            return None
        tile = self.op.operands[difference.operands[0].arg_number]
        if not single_use(tile):
            return None
        number = at(layout_of(tile.type), row, column)
        of_row = self._of_row(op, difference, factor, row)
        line = self.positions.moved(op, linear.lines[number], factor, of_row)
        return linear.values[number], linear.factor * factor, line.value()

    def _difference(self, op: ir.Operation) -> tuple[ir.Operation | None, float]:
        """`op` as k times a difference whose subtrahend is a row's, where k·c·s − k·m may stand for k·(c·s − m)."""
        if op.results[0] not in self._differences:
            self._differences[op.results[0]] = self._find_difference(op)
        return self._differences[op.results[0]]

    def _find_difference(self, op: ir.Operation) -> tuple[ir.Operation | None, float]:
        if not is_f32(op.results[0]):
            return None, 1.0
        difference, factor = self._times_constant(op)
        if factor != 1.0 and not ("fastmath" in op.attributes and DISTRIBUTED in str(op.attributes["fastmath"])):
            return None, 1.0
        if difference is None or difference.name != "arith.subf" or difference.block != self.body:
            return None, 1.0
        return (None, 1.0) if self.depends(difference.operands[1])[1] else (difference, factor)

    def _of_row(self, op: ir.Operation, difference: ir.Operation, factor: float, row: int | None) -> ir.Value:
        """−m·k, made once a row."""
        subtrahend, key = self.value(difference.operands[1], row, None), (op.results[0], (row, -1))
        if key not in self._values:
            self._values[key] = times(subtrahend, -factor)
        return self._values[key]

    def _may_be_low(self, value: ir.Value) -> bool:
        if value not in self._low:
            self._low[value] = may_be_low(value)
        return self._low[value]

    # Exponentials by a table.

    def _exponential(self, op: ir.Operation, row: int | None, column: int | None) -> list[ir.Value] | None:
        """2^x of a score, by the table for the share that the op says, evenly spread; None for other ops."""
        if op.name != "tile.exp2":
            return None
        (x, table), share = op.operands, op.opview.share.value
        if row is None or column is None or at("fragment", row, column) * share % SHARES >= share:
            return [exp2(self.value(x, row, column))]
        element, factor, of_row = self._sum_with_row(x, row, column)
        bound = op.opview.bound.value if op.opview.bound.value >= 0 else None
        key = (op.results[0], (row, -1))
        if key not in self._values:
            self._values[key] = exponentials.row_part(of_row, bound)
        address = self.outer(table).address
        return [exponentials.look_up(element, factor, self._values[key], bound is not None, address, self.thread)]

    def _quotient(self, op: ir.Operation, row: int | None, column: int | None) -> list[ir.Value] | None:
        """a / b by products for the share that the op says, evenly spread; None for other ops."""
        if op.name != "tile.divide":
            return None
        share, operands = op.opview.share.value, [self.value(v, row, column) for v in op.operands]
        by_unit = row is None or column is None or at("fragment", row, column) * share % SHARES >= share
        return [divide_by_normal(*operands) if by_unit else divide_by_products(*operands)]

    def _sum_with_row(self, value: ir.Value, row: int, column: int) -> tuple[ir.Value, Factor, ir.Value | None]:
        """A value as s·c and what its row has, if it is such a sum."""
        op = defining_op(value)
        if op is not None and op.block == self.body:
            found = self._linear(op, row, column)
            if found is not None:
                return found
            if op.name == "arith.subf" and not self.depends(op.operands[1])[1] and not self._may_be_low(op.operands[1]):
                of_row = times(self.value(op.operands[1], row, None), -1.0)
                return *_factors(self.value(op.operands[0], row, column)), of_row
        return *_factors(self.value(value, row, column)), None

    @staticmethod
    def _times_constant(op: ir.Operation) -> tuple[ir.Operation | None, float]:
        """`op` as something times a constant."""
        if op.name != "arith.mulf":
            return op, 1.0
        for i in (0, 1):
            factor = constant_value(op.operands[1 - i])
            if factor is not None:
                return defining_op(op.operands[i]), float(factor)
        return None, 1.0

    def _found_linear(self, value: ir.Value, layout: str | None, count: int) -> Linear | None:
        """What a result is made of, where the body does nothing but to scale an element of that layout, and to add a
        position."""
        op = defining_op(value)
        if op is None or op.block != self.body or not is_f32(value):
            return None
        if op.name in ("arith.addf", "arith.subf"):
            a, b = op.operands
            for product, position in ((a, b), (b, a)) if op.name == "arith.addf" else ((a, b),):
                linear = self._scaled_element(product, layout, count)
                lines = self.positions.lines(op, position, places(layout, count)) if linear is not None else []
                if linear is not None and lines:
                    return dataclasses.replace(linear, lines=lines)
        return self._scaled_element(value, layout, count)

    def _scaled_element(self, value: ir.Value, layout: str | None, count: int) -> Linear | None:
        """c·s as s and c, of an element of that layout and a constant."""
        op = defining_op(value)
        if op is None or op.block != self.body or op.name != "arith.mulf":
            return None
        for element, factor in ((0, 1), (1, 0)):
            number = constant_value(op.operands[factor])
            argument = op.operands[element]
            if number is None or number <= 0 or defining_op(argument) is not None or argument.owner != self.body:
                continue
            if layout_of(self.op.operands[argument.arg_number].type) == layout:
                return Linear([self.value(argument, *place) for place in places(layout, count)], float(number))
        return None

    # Results.

    def run(self) -> list[Registers]:
        yielded = list(ops_of(self.body)[-1].operands)
        kinds = iterator_types(self.op)
        maps = indexing_maps(self.op)[len(self.op.operands) - len(self.op.results) :]
        reduced = [d for d, kind in enumerate(kinds) if kind == "reduction"]
        results: list[Registers | None] = []
        for result, value, m in zip(self.op.results, yielded, maps, strict=True):
            layout = layout_of(result.type)
            mapped = {dim_position(e) for e in m.results}
            if any(d not in mapped for d in reduced):
                results.append(None)
                continue
            count = Registers.count(result.type)
            if AS_STORED in self.op.attributes:
                results.append(Registers(layout or "", tuple(result.type.shape), _AsRead(self, value, layout, count)))
                continue
            found = [self.value(value, *place) for place in places(layout, count)]
            linear = self._found_linear(value, layout, count)
            results.append(Registers(layout or "", tuple(result.type.shape), found, linear))
        # Reductions last: the elements that they add are there.
        return [r or self._reduce(number, yielded[number]) for number, r in enumerate(results)]

    def _reduce(self, number: int, value: ir.Value) -> Registers:
        result = self.op.results[number]
        if layout_of(result.type) not in ("row", "row_part"):
            raise PassError("only reductions over columns, to a value for each row, are lowered for GPUs", self.op)
        if isinstance(result.type.element_type, ir.F64Type):
            raise PassError("f64 is not reduced on GPUs: use f32, f16 or bf16", self.op)
        combiner = defining_op(value)
        accumulator = self.body.arguments[len(self.op.operands) - len(self.op.results) + number]
        if combiner is None or combiner.name not in NEUTRAL or accumulator not in combiner.operands:
            raise PassError(f"expects a reduction that ends in one of {', '.join(NEUTRAL)}", self.op)
        element = combiner.operands[1 if combiner.operands[0] == accumulator else 0]
        columns = self._columns()
        product = self._factors_of(element) if combiner.name in MAXIMA else None
        product = product if product is not None and product.lines is None else None
        layout = layout_of(self.op.operands[element.arg_number].type) if product else None

        def read(row: int, column: int) -> ir.Value:
            return product.values[at(layout, row, column)] if product else self.value(element, row, column)

        init = self.operands[accumulator.arg_number]
        assert isinstance(init, Registers), "the init of a reduction is a tile"
        values = []
        for row in (0, 1):
            # Four chains, so that they overlap.
            chains = [read(row, c) for c in range(min(4, columns))]
            for c in range(len(chains), columns):
                chains[c % 4] = self._combine(combiner, chains[c % 4], read(row, c))
            within = self._within_limit(combiner, chains)
            while len(chains) > 1:
                chains = [self._combine(combiner, a, b) for a, b in zip(chains[::2], chains[1::2], strict=True)]
            total = chains[0]
            if within is not None:
                total = select(within, total, constant(f32(), float("inf")))
            for distance in QUAD if layout_of(result.type) == "row" else ():
                total = self._combine(combiner, total, shuffled(total, "bfly", distance))
            if product:
                total = create("arith.mulf", f32(), total, constant(f32(), product.factor))
            start = init.values[row]
            adds = combiner.name != "arith.addf" or constant_value(start) != 0.0
            values.append(self._combine(combiner, start, total) if adds else total)
        return Registers(layout_of(result.type) or "", tuple(result.type.shape), values)

    def _within_limit(self, combiner: ir.Operation, parts: Sequence[ir.Value]) -> ir.Value | None:
        """Whether all parts of a sum are below its limit, if it has one."""
        if LIMIT not in self.op.attributes or combiner.name != "arith.addf":
            return None
        largest = functools.reduce(lambda a, b: create("arith.maximumf", f32(), a, b), parts)
        limit = constant(f32(), ir.FloatAttr(self.op.attributes[LIMIT]).value)
        return create("arith.cmpf", i1(), largest, limit, predicate=ir.IntegerAttr.get(i64(), OLT))

    def _columns(self) -> int:
        """How many columns a thread has."""
        for value in self.op.operands:
            if layout_of(value.type) == "fragment":
                return value.type.shape[1] // 4
            if layout_of(value.type) == "column":
                return value.type.shape[0] // 4
        raise PassError("a reduction needs a tile of rows and columns", self.op)

    @staticmethod
    def _combine(combiner: ir.Operation, a: ir.Value, b: ir.Value) -> ir.Value:
        return create(combiner.name, register_type(a.type), a, b)


class _AsRead(list[ir.Value]):
    """The elements of a result, each emitted where it is first read."""

    def __init__(self, op: Elementwise, value: ir.Value, layout: str | None, count: int):
        super().__init__([value] * count)
        self.op, self.value, self.places = op, value, places(layout, count)

    def __getitem__(self, number):  # type: ignore[override]
        if isinstance(number, slice):
            return [self[i] for i in range(*number.indices(len(self)))]
        return self.op.value(self.value, *self.places[number])

    def __iter__(self) -> Iterator[ir.Value]:
        return (self[i] for i in range(len(self)))


def _factors(value: ir.Value) -> tuple[ir.Value, float]:
    """What has been emitted, as something times a constant."""
    op = defining_op(value)
    factor = constant_value(op.operands[1]) if op is not None and op.name == "arith.mulf" else None
    return (value, 1.0) if factor is None else (op.operands[0], float(factor))


def is_f32(value: ir.Value) -> bool:
    """Whether registers hold f32 for a scalar."""
    return isinstance(register_type(value.type), ir.F32Type)


def whole_rows(tile: Registers) -> Registers:
    """Rows from their parts in the threads of a quad."""
    values = []
    for value in tile.values:
        for distance in QUAD:
            value = create("arith.addf", value.type, value, shuffled(value, "bfly", distance))
        values.append(value)
    return Registers("row", tile.shape, values)


def row_parts(tile: Registers, thread: Thread) -> Registers:
    """Rows as parts, of which all but the first thread's are 0."""
    first = compare(EQ, thread.column, thread.zero)
    values = [select(first, value, constant(value.type, 0.0)) for value in tile.values]
    return Registers("row_part", tile.shape, values)

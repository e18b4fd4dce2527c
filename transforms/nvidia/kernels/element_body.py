"""What threads compute of a linalg.generic that stands outside of loops over tiles; used by ``outline-elements``."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence

from ....dialects import build
from ....dialects.mlir import arith, ir
from ....dialects.tiling.structured import dim_position, indexing_maps, iterator_types
from ...copying import copy_scalar_body, index_at
from ...rewriting import defining_op, either, make_for, only_if
from ...splats import filled_with
from ..alignment import CHUNK
from ..axes import is_first, source_indices
from ..elements import byte_width
from .column_lanes import TOGETHER, ColumnLanes
from .element_pieces import Pieces
from .producer_body import extracted, store_piece
from .row_lanes import RowLanes, SharedSums
from .scan_lanes import ScanLanes, scan_lanes

STRAIGHT = 4  # pieces of a row that are no loop, so that loads of all of them are under way together


class ElementBody:
    """An element of the results for each thread, or a piece of a row (`pieces`); where rows or columns are shared
    (`lanes`, `scan`), for so many threads."""

    def __init__(self, op: ir.Operation, lanes: SharedSums | None):
        self.op, self.lanes, self.scan = op, lanes, scan_lanes(op)
        self.pieces: Pieces | None = None
        self.kinds, self.maps = iterator_types(op), indexing_maps(op)
        self.parallel = [d for d, kind in enumerate(self.kinds) if kind == "parallel"]
        self.reduced = [d for d, kind in enumerate(self.kinds) if kind == "reduction"]
        self.first_init = len(op.operands) - len(op.results)
        # Results that have an element for each step of a sum: the exponentials that are summed, say.
        self.of_steps = [
            i
            for i, m in enumerate(self.maps[self.first_init :])
            if any(dim_position(e) not in self.parallel and not is_first(e) for e in m.results)
        ]
        self.rows: Mapping[int, ir.Value] = {}  # loops over rows that the block has one of
        self.sizes: list[ir.Value | int] = []  # of the loops, on the host
        self.outputs: list[ir.Value] = []  # of the kernel
        self.values: Mapping[ir.Value, ir.Value] = {}  # of the kernel, for the host's

    def threads(self, size: Callable[[ir.Value | int], ir.Value] | None = None) -> ir.Value:
        """How many there are, in the kernel; or, where `size` tells what sizes are there, elsewhere."""
        shared = self.lanes or self.scan
        total = build.index(shared.lanes if shared else 1)
        for d in self._own_loops:
            total = arith.muli(total, (size or self.of_kernel)(self._numbers(d)))
        return total

    def emit(self, number: ir.Value, inside: ir.Value) -> None:
        """What the thread of that number does, if it is one of them."""
        if isinstance(self.lanes, RowLanes):
            self._shared_rows(self.lanes, number, inside)
            return
        if isinstance(self.lanes, ColumnLanes):
            with only_if(inside):  # for all of a block or a warp, or none
                self._shared_columns(self.lanes, number)
            return
        if self.scan is not None:
            self._running_sums(self.scan, number, inside)
            return
        with only_if(inside):
            at = self._place(number)
            if self.pieces is not None:
                self._piece_of_results(self.pieces, at)
                return
            values = self._loops(self.reduced, at, [self._init(i, at) for i in self._sums])
            self._finish(self._sums, values, at)

    def _piece_of_results(self, by: Pieces, at: dict[int, ir.Value]) -> None:
        """Elements of a row, side by side, one after the other; `at`: which piece it is."""
        first = {**at, by.loop: arith.muli(at[by.loop], build.index(by.width))}
        pieces, found = self._pieces(by, first), []
        for number in range(by.width):
            here = {**first, by.loop: arith.addi(first[by.loop], build.index(number))}
            inits = [self._init(i, here) for i in self._sums]
            found.append(self._body(here, inits, {i: piece[number] for i, piece in pieces.items()}))
        for i, values in zip(self._sums, zip(*found, strict=True), strict=True):
            store_piece(values, self.outputs[i], self._indices(self.first_init + i, first))

    def _finish(self, results: list[int], values: list[ir.Value], at: dict[int, ir.Value]) -> None:
        for i, value in zip(results, values, strict=True):
            self._store(i, value, at)

    @property
    def _sums(self) -> list[int]:
        """The results of all steps together."""
        return [i for i in range(len(self.op.results)) if i not in self.of_steps]

    @property
    def _own_loops(self) -> list[int]:
        """Those that elements have numbers along."""
        return [d for d in self.parallel if d not in self.rows]

    def _numbers(self, loop: int) -> ir.Value | int:
        """How many elements, or pieces of rows, or groups of columns, have numbers along a loop."""
        size = self.sizes[loop]
        if self.pieces is not None and loop == self.pieces.loop:
            assert isinstance(size, int), "rows of pieces are of so many"
            return size // self.pieces.width
        if isinstance(self.lanes, ColumnLanes) and loop == self.lanes.loop:
            assert isinstance(size, int), "columns that are shared are so many"
            return size // self.lanes.columns
        return size

    def _place(self, number: ir.Value) -> dict[int, ir.Value]:
        """Where the element of that number is, or which piece of which row, or which group of columns."""
        at: dict[int, ir.Value] = dict(self.rows)
        for d in reversed(self._own_loops):
            at[d] = arith.remui(number, self.of_kernel(self._numbers(d)))
            number = arith.divui(number, self.of_kernel(self._numbers(d)))
        return at

    def _shared_rows(self, by: RowLanes, number: ir.Value, inside: ir.Value) -> None:
        """The sums of a thread's row, of which it adds up a part. All threads of a warp go on to where parts are put
        together, those without a row too."""
        lane, row = arith.remui(number, build.index(by.lanes)), arith.divui(number, build.index(by.lanes))
        neutral, at = by.neutral, self._place(row)

        def parts() -> list[ir.Value]:
            return self._loops(self.reduced, at, neutral, lane)

        values = either(inside, [v.type for v in neutral], parts, lambda: neutral)
        values = by.put_together(values)
        first = arith.cmpi(arith.CmpIPredicate.eq, lane, build.index(0))
        with only_if(arith.andi(inside, first)):
            self._store_sums(by, values, at)

    def _store_sums(self, by: SharedSums, values: Sequence[ir.Value], at: dict[int, ir.Value]) -> None:
        """What threads have put together, with what there was before."""
        for i, (value, combiner) in enumerate(zip(values, by.combiners, strict=True)):
            whole = ir.Operation.create(combiner.name, [value.type], [self._init(i, at), value]).result
            self._store(i, whole, at)

    def _shared_columns(self, by: ColumnLanes, number: ir.Value) -> None:
        """The sums of a group of columns, of some of which a thread adds up some rows."""
        lane, group = arith.remui(number, build.index(by.lanes)), arith.divui(number, build.index(by.lanes))
        piece, lane = arith.remui(lane, build.index(by.beside)), arith.divui(lane, build.index(by.beside))
        first, count = self._place(group), len(by.combiners)
        pieces = arith.addi(arith.muli(first[by.loop], build.index(by.beside)), piece)
        first[by.loop] = arith.muli(pieces, build.index(by.width))
        columns = [{**first, by.loop: arith.addi(first[by.loop], build.index(c))} for c in range(by.width)]
        parts = self._part_of_columns(by, columns, lane)
        sums = [by.put_together(parts[c * count : (c + 1) * count]) for c in range(by.width)]
        with only_if(arith.cmpi(arith.CmpIPredicate.eq, lane, build.index(0))):
            for at, values in zip(columns, sums, strict=True):
                self._store_sums(by, values, at)

    def _part_of_columns(self, by: ColumnLanes, columns: list[dict[int, ir.Value]], lane: ir.Value) -> list[ir.Value]:
        """What every so many-th row adds to the columns, of each of them the values of all sums."""
        sizes, count = [self.of_kernel(self.sizes[d]) for d in self.reduced], len(by.combiners)

        def add_row(number: ir.Value, values: list[ir.Value]) -> list[ir.Value]:
            outermost, places = build.digits(arith.addi(arith.muli(number, build.index(by.of_each)), lane), sizes[1:])
            row = dict(zip(self.reduced, [outermost, *places], strict=True))
            pieces, found = self._pieces(by, columns[0] | row), []
            for c, column in enumerate(columns):
                loaded = {i: piece[c] for i, piece in pieces.items()}
                found += self._body(column | row, values[c * count : (c + 1) * count], loaded)
            return found

        def add_rows(number: ir.Value, values: list[ir.Value]) -> list[ir.Value]:
            first = arith.muli(number, build.index(TOGETHER))
            for n in range(TOGETHER):
                values = add_row(arith.addi(first, build.index(n)), values)
            return values

        rows = self._rows(by, functools.reduce(arith.muli, sizes), lane)
        whole = arith.divui(rows, build.index(TOGETHER))
        values = _loop(whole, by.neutral * by.width, add_rows)
        return _loop(rows, values, add_row, arith.muli(whole, build.index(TOGETHER)))

    def _rows(self, by: ColumnLanes, total: ir.Value, lane: ir.Value) -> ir.Value:
        """How many rows a thread has, of all; some may have one more than the others."""
        known = [n for d in self.reduced if isinstance(n := self.sizes[d], int)]
        if len(known) == len(self.reduced) and math.prod(known) % by.of_each == 0:
            return build.index(math.prod(known) // by.of_each)
        behind = arith.addi(total, build.index(by.of_each - 1))
        return arith.divui(arith.subi(behind, lane), build.index(by.of_each))

    def _running_sums(self, by: ScanLanes, number: ir.Value, inside: ir.Value) -> None:
        """Of a thread's part of a row, the last one of which has the sums of all."""
        lane, row = arith.remui(number, build.index(by.lanes)), arith.divui(number, build.index(by.lanes))
        at, kinds = self._place(row), [c.results[0].type for c in by.combiners]
        parts = either(inside, kinds, lambda: self._part_of_scan(by, at, by.neutral, lane), lambda: by.neutral)
        before = by.of_those_before(parts, lane)
        with only_if(inside):
            start = by.combined([self._init(i, at) for i in self._sums], before)
            values = self._part_of_scan(by, at, start, lane, stores=True)
            with only_if(arith.cmpi(arith.CmpIPredicate.eq, lane, build.index(by.lanes - 1))):
                self._finish(self._sums, values, at)

    def _part_of_scan(
        self, by: ScanLanes, at: dict[int, ir.Value], values: list[ir.Value], lane: ir.Value, stores: bool = False
    ) -> list[ir.Value]:
        """Elements side by side; the last lanes may have fewer."""
        size = self.sizes[by.loop]
        if isinstance(size, int) and size <= STRAIGHT * by.lanes and size % by.lanes == 0:
            first = arith.muli(lane, build.index(size // by.lanes))
            for i in range(size // by.lanes):
                values = self._body({**at, by.loop: arith.addi(first, build.index(i))}, values, stores=stores)
            return values
        count = self.of_kernel(size)
        each = arith.divui(arith.addi(count, build.index(by.lanes - 1)), build.index(by.lanes))
        first = arith.minui(arith.muli(lane, each), count)
        end = arith.minui(arith.addi(first, each), count)
        return _loop(end, values, lambda i, v: self._body({**at, by.loop: i}, v, stores=stores), first)

    def of_kernel(self, value: ir.Value | int) -> ir.Value:
        """The kernel's value for the host's."""
        constant = value if isinstance(value, int) else build.constant_value(value)
        if constant is None:
            return self.values[value]
        return build.index(constant) if isinstance(value, int) else defining_op(value).clone().results[0]

    def _store(self, result: int, value: ir.Value, at: dict[int, ir.Value]) -> None:
        place = [self.outputs[result], *self._indices(self.first_init + result, at)]
        ir.Operation.create("memref.store", [], [value, *place])

    def _init(self, result: int, at: dict[int, ir.Value]) -> ir.Value:
        number = self.first_init + result
        init = self.op.operands[number]
        splat = filled_with(init)
        if splat is None and self.is_read(number):
            return self._element(init, self._indices(number, at))
        kind = self.op.results[result].type.element_type
        zero = ir.FloatAttr.get(kind, 0.0) if isinstance(kind, ir.FloatType) else ir.IntegerAttr.get(kind, 0)
        return arith.ConstantOp(kind, splat if splat is not None else zero).result

    def is_read(self, number: int) -> bool:
        init = self.op.operands[number]
        used = list(self.op.regions[0].blocks[0].arguments[number].uses)
        return bool(used) and filled_with(init) is None

    def _indices(self, number: int, at: dict[int, ir.Value]) -> list[ir.Value]:
        """Which element of an operand an iteration reads or writes."""
        return [index_at(e, at.__getitem__, len(at)) for e in self.maps[number].results]

    def _element(self, value: ir.Value, indices: list[ir.Value]) -> ir.Value:
        """The element of a tensor, or of what it is a slice of."""
        (found,) = self._elements(value, indices)
        return found

    def _elements(self, value: ir.Value, indices: list[ir.Value], count: int = 1) -> list[ir.Value]:
        """Elements of a row, side by side."""
        op = defining_op(value)
        while op is not None and op.name == "tensor.extract_slice":
            indices = source_indices(op, value.type, indices, self.of_kernel, steps=True)
            value = op.operands[0]
            op = defining_op(value)
        place = self.values[value]
        kind = value.type.element_type
        if not isinstance(place.type, ir.ShapedType):  # all elements of a constant
            return [place] * count
        if count == 1:
            return [ir.Operation.create("memref.load", [kind], [place, *indices]).result]
        found, width = [], min(count, CHUNK // byte_width(kind))
        for start in range(0, count, width):
            vector = ir.VectorType.get([width], kind)
            at = [*indices[:-1], arith.addi(indices[-1], build.index(start)) if start else indices[-1]]
            piece = ir.Operation.create("vector.load", [vector], [place, *at]).result
            found += [extracted(piece, number) for number in range(width)]
        return found

    def _loops(
        self, reduced: list[int], at: dict[int, ir.Value], values: list[ir.Value], lane: ir.Value | None = None
    ) -> list[ir.Value]:
        """The loops that are summed over, the body in the innermost; of that, the part of a `lane`."""
        if not reduced:
            return self._body(at, values)
        first, *rest = reduced
        if isinstance(self.lanes, RowLanes) and lane is not None and not rest:
            return self._part_of_row(self.lanes, at, values, lane)
        count = self.of_kernel(self.sizes[first])
        return _loop(count, values, lambda i, v: self._loops(rest, {**at, first: i}, v, lane))

    def _part_of_row(self, by: RowLanes, at: dict[int, ir.Value], values: list[ir.Value], lane: ir.Value):
        """Every `lanes`-th piece of a row; some lanes have one more than the others."""

        def add_piece(round_: ir.Value, values: list[ir.Value]) -> list[ir.Value]:
            piece = arith.addi(arith.muli(round_, build.index(by.lanes)), lane)
            return self._piece(by, arith.muli(piece, build.index(by.width)), at, values)

        rounds, rest = divmod(by.pieces, by.lanes)
        if rounds > STRAIGHT:
            values = _loop(build.index(rounds), values, add_piece)
        else:
            for number in range(rounds):
                values = add_piece(build.index(number), values)
        if not rest:
            return values
        more = arith.cmpi(arith.CmpIPredicate.ult, lane, build.index(rest))
        kinds = [v.type for v in values]
        return either(more, kinds, lambda: add_piece(build.index(rounds), values), lambda: values)

    def _piece(self, by: RowLanes, first: ir.Value, at: dict[int, ir.Value], values: list[ir.Value]) -> list[ir.Value]:
        """The body for the elements of a piece, whose first one is `first`."""
        pieces = self._pieces(by, {**at, by.loop: first})
        for number in range(by.width):
            here = {**at, by.loop: arith.addi(first, build.index(number))}
            values = self._body(here, values, {i: piece[number] for i, piece in pieces.items()})
        return values

    def _pieces(self, by: SharedSums | Pieces, first: dict[int, ir.Value]) -> dict[int, list[ir.Value]]:
        """By the number of the operand the elements of a piece, whose first one is there."""
        known: dict[tuple[ir.Value, ir.AffineMap], list[ir.Value]] = {}
        for i in by.along:
            key = self.op.operands[i], self.maps[i]
            if key not in known:
                known[key] = self._elements(key[0], self._indices(i, first), by.width)
        return {i: known[self.op.operands[i], self.maps[i]] for i in by.along}

    def _body(
        self,
        at: dict[int, ir.Value],
        values: list[ir.Value],
        loaded: Mapping[int, ir.Value] = {},
        stores: bool = True,
    ) -> list[ir.Value]:
        """One step. `loaded`: elements of operands that are there; `stores`: the results of the step itself."""
        body = self.op.regions[0].blocks[0]
        carried = iter(values)
        known = {
            argument: self._init(i, at) if i in self.of_steps else next(carried)
            for i, argument in enumerate(list(body.arguments)[self.first_init :])
        }
        for number, operand in enumerate(list(self.op.operands)[: self.first_init]):
            argument = body.arguments[number]
            if number in loaded:
                known[argument] = loaded[number]
            elif isinstance(operand.type, ir.ShapedType):
                known[argument] = self._element(operand, self._indices(number, at))
            else:
                known[argument] = self.of_kernel(operand)

        def extract(op: ir.Operation, here: Callable[[ir.Value], ir.Value]) -> ir.Value:
            source, *indices = op.operands
            return self._element(source, [here(v) for v in indices])

        computed = copy_scalar_body(body, known, self.of_kernel, at.__getitem__, extract)
        for i in self.of_steps if stores else ():
            self._store(i, computed[i], at)
        return [value for i, value in enumerate(computed) if i not in self.of_steps]


def _loop(
    end: ir.Value,
    values: list[ir.Value],
    body: Callable[[ir.Value, list[ir.Value]], list[ir.Value]],
    first: ir.Value | None = None,
) -> list[ir.Value]:
    """A loop that carries values, its `body` given the number of an iteration and theirs."""
    loop, block = make_for([build.index(0) if first is None else first, end, build.index(1)], values)
    with ir.InsertionPoint(block):
        induction, *carried = block.arguments
        ir.Operation.create("scf.yield", [], body(induction, list(carried)))
    return list(loop.results)

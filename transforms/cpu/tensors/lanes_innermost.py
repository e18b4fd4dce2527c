"""The pass ``lanes-innermost``."""

from collections.abc import Sequence
from dataclasses import dataclass

from ....dialects import build
from ....dialects.mlir import ir, tensor
from ....dialects.tiling.structured import indexing_maps
from ...host import matrix_unit
from ...passes import Pass, option
from ...rewriting import is_inside, ops_in
from ...slices import mixed, slice_parts, split
from ..matrix_unit import MATRIX_OPTION, has_tiles, is_for_matrix_unit, suits
from ..tile_sizes import ROWS_OF_LANES, ROWS_TO_PACK
from .dimension_classes import Dim, DimensionClasses
from .shared_rows import is_contraction, is_spread, reads_again, row_extent, shared_rows, streamed_columns, summed_along
from .tile_values import CARRYING, before, can_change, carried_pairs, carried_uses, hoisted, only_written, tile_values
from .widen_tiles import widen_argument


@dataclass(frozen=True)
class LanesInnermost(Pass):
    """Lays the tiles of a parallel loop out so that the rows that its matmuls share are contiguous::

        scf.forall (%i) … {
          scf.for %k … iter_args(%o) {
            linalg.generic {S[m, n] += Q[m, d]·K[n, d]} ins(%q, %k) outs(%s : tensor<64x128xf32>)
            …
            linalg.generic {O[m, v] += P[m, n]·V[n, v]} ins(%p, %v) outs(%o : tensor<64x80xf32>)
    becomes
        scf.forall (%i) … {
          %qt = transpose of %q                                     # once per block of queries
          scf.for %k … iter_args(%o) {
            linalg.generic {S[n, m] += Q[d, m]·K[n, d]} ins(%qt, %k) outs(%s : tensor<128x64xf32>)
            …
            linalg.generic {O[v, m] += P[n, m]·V[n, v]} ins(%p, %v) outs(%o : tensor<80x64xf32>)
          }
          transpose of the loop's result

    With queries as lanes, statistics of rows are vectors, their maxima and sums need no reduction across lanes, and of
    keys and values single elements are broadcast, so that these need no packing. The rows are those dimensions that
    are parallel in every contraction of the loop and lacking in one of its inputs. Whatever else is computed from them,
    masks from indices included, follows. Tensors from outside of the loop are read as they stand by element-wise ops.
    A contraction that sums up along the rows of all others, as dQ += dSᵀ·K where keys are rows, has its columns as
    lanes, and reads K as it stands. What a loop only inserts tiles into is laid out as in memory.
    Loops whose matmuls are computed in tiles (AMX) keep their layout, which is theirs. What is multiplied in pairs is
    not transposed here: `pair-contractions` transposes whole pairs.

    Fewer rows, but enough for a vector, may be those of several dimensions, as a few queries of the heads of a group
    (which `collapse-loops` makes one). Then scores alone have the rows innermost: keys are broadcast as they come from
    memory, and no sums across lanes are left. The output keeps its layout, with lanes along the rows of values, which
    are read as they stand, too. Not where keys would have to be converted for that, nor where a bias is loaded.
    """

    matrix: str = option(MATRIX_OPTION, "")

    def run(self, op: ir.Operation) -> None:
        unit = matrix_unit(self.matrix)
        for loop in ops_in(op, "scf.forall"):
            if has_tiles(unit) and is_for_matrix_unit(loop, unit):
                continue
            classes = DimensionClasses(loop)
            rows = shared_rows(classes, ROWS_TO_PACK, ROWS_OF_LANES)
            columns = None
            if any((row_extent(classes, c) or ROWS_TO_PACK) < ROWS_TO_PACK for c in rows):
                columns = streamed_columns(classes, rows, unit)
                if columns is None or not _are_together(classes, rows, columns, loop):
                    continue
            if rows:
                _Layout(loop, classes, rows, columns, unit).apply()


class _Layout:
    """Changes the types of one parallel loop's tensors, and the ops that touch them, in place."""

    def __init__(self, loop: ir.Operation, classes: DimensionClasses, rows: list[Dim], columns: Dim | None, unit: str):
        self.loop = loop
        self.unit = unit
        self.classes = classes
        self.rows = rows
        self.columns = columns  # of few rows: only what has them changes
        self.ops = ops_in(loop)
        self.copies: dict[tuple[ir.Value, ir.Type], ir.Value] = {}
        self.orders: dict[ir.Value, list[int]] = {}
        as_in_memory = only_written(loop)
        for value in tile_values(loop):
            if value in as_in_memory:
                continue
            order = self._order(value)
            if order is not None and not classes.is_repeated(value) and can_change(value, loop):
                self.orders[value] = order

    def _order(self, value: ir.Value, is_packed: bool = False) -> list[int] | None:
        """The dimensions of `value` with the rows last; None if they are there already, or it has none."""
        if self.columns is not None and not is_packed and self.classes.position(value, self.columns) is None:
            return None
        positions = [d for c in self.rows if (d := self.classes.position(value, c)) is not None]
        rank = value.type.rank if positions else 0
        order = [d for d in range(rank) if d not in positions] + positions
        return None if order == list(range(rank)) else order

    def apply(self) -> None:
        for op in self.ops:
            self._adapt_operands(op)
        for value, order in self.orders.items():
            value.set_type(permuted_type(value.type, order))

    # --- ops, before the types change

    def _adapt_operands(self, op: ir.Operation) -> None:
        if op.name == "linalg.generic":
            self._generic(op)
        elif op.name == "tensor.empty":
            order = self.orders.get(op.results[0])
            if order is not None:
                _permute_sizes(op, order)
        elif op.name == "tensor.extract_slice":
            self._slice(op, [op.operands[0]], self.orders.get(op.results[0]))
        elif op.name == "tensor.insert_slice":
            self._slice(op, list(op.operands)[:2], self.orders.get(op.results[0]))
        elif op.name == "tensor.dim":
            self._dim(op)
        elif op.name in CARRYING:
            for result, other in carried_pairs(op):
                self._convert_uses(op, result, other)
        elif op.name != "scf.yield":
            for number, operand in enumerate(op.operands):
                if operand in self.orders:
                    op.operands[number] = self._with_order(operand, None, op)

    def _generic(self, op: ir.Operation) -> None:
        maps = indexing_maps(op)
        n_inputs = len(op.operands) - len(op.results)
        sums_rows = is_contraction(op) and any(c in self.rows for c in summed_along(op, self.classes))
        for number, operand in enumerate(list(op.operands)):
            if number >= n_inputs:
                order = self.orders.get(op.results[number - n_inputs])
                is_read = bool(list(op.regions[0].blocks[0].arguments[number].uses))
                op.operands[number] = self._with_order(operand, order, op, is_read)
            elif operand in self.orders:
                order = self.orders[operand]
            else:
                is_packed = not sums_rows and reads_again(op, maps[number]) and not suits(op, self.unit)
                order = self._order(operand, True) if is_packed else None
                if order is None:
                    if reads_again(op, maps[number]) and self._is_apart(operand, sums_rows):
                        op.operands[number] = self._gathered(operand, op)
                else:
                    element = build.compute_type(operand.type.element_type)
                    op.operands[number] = self._with_order(operand, order, op, element=element)
                    widen_argument(op, number)
            if order is not None:
                old = maps[number]
                maps[number] = ir.AffineMap.get(old.n_dims, 0, [old.results[d] for d in order])
        op.attributes["indexing_maps"] = build.map_array(maps)

    def _is_apart(self, value: ir.Value, sums_rows: bool) -> bool:
        """Whether rows of a tile of memory, of several dimensions, or that are summed over, are apart."""
        position = self.classes.position(value, self.rows[0])
        return position is not None and (is_spread(value, position) if sums_rows else len(self.rows) > 1)

    def _slice(self, op: ir.Operation, tensors: Sequence[ir.Value], order: list[int] | None) -> None:
        for number, operand in enumerate(tensors):
            op.operands[number] = self._with_order(operand, order, op)
        if order is None:
            return
        position = len(tensors)
        for name, part in zip(("static_offsets", "static_sizes", "static_strides"), slice_parts(op), strict=True):
            dynamic, static = split([part[d] for d in order])
            for value in dynamic:
                op.operands[position] = value
                position += 1
            op.attributes[name] = ir.DenseI64ArrayAttr.get(static)

    def _dim(self, op: ir.Operation) -> None:
        order = self.orders.get(op.operands[0])
        if order is None:
            return
        d = build.constant_value(op.operands[1])
        with ir.InsertionPoint(op), op.location:
            if isinstance(d, int):
                op.operands[1] = build.index(order.index(d))
            else:
                op.operands[0] = self._with_order(op.operands[0], None, op)

    def _convert_uses(self, op: ir.Operation, result: ir.Value, other: ir.Value) -> None:
        """Makes what a loop starts from, or a region yields, have the layout of the result."""
        order = self.orders.get(result)
        if self.orders.get(other) == order:
            return
        for user, number in carried_uses(op, result, other):
            user.operands[number] = self._with_order(other, order, user)

    # --- copies

    def _with_order(
        self,
        value: ir.Value,
        order: list[int] | None,
        user: ir.Operation,
        is_read: bool = True,
        element: ir.Type | None = None,
    ) -> ir.Value:
        """`value` in the layout `order`, copied in front of `user` if it has another one; the copy is of `element`."""
        own = self.orders.get(value)
        if own == order:
            return value
        kind = value.type  # of the identity layout: types change at the end
        element = element or kind.element_type
        user = before(user)
        with ir.InsertionPoint(user), user.location:
            known = self.copies.get((value, element)) if order is not None and is_read else None
            if known is not None and is_inside(user, known.owner.operation.parent):
                return known
            place = hoisted(value, user, self.loop) if order is not None and is_read else user
        with ir.InsertionPoint(place), user.location:
            n = kind.rank
            stored = own or list(range(n))
            wanted = order or list(range(n))
            sizes = self._sizes(value, stored)
            init = build.empty([sizes[d] for d in wanted], element)
            if not is_read:
                return init
            copy = _copy(value, init, stored, wanted)
        if order is not None and place != user:
            self.copies[value, element] = copy
        return copy

    def _gathered(self, value: ir.Value, user: ir.Operation) -> ir.Value:
        """A tile of memory in the order that it has, its rows, of several dimensions, next to each other."""
        with ir.InsertionPoint(hoisted(value, before(user), self.loop)), user.location:
            as_is = range(value.type.rank)
            return _copy(value, build.empty(build.mixed_sizes(value), value.type.element_type), as_is, as_is)

    def _sizes(self, value: ir.Value, stored: list[int]) -> list[int | ir.Value]:
        """The sizes by dimension of the identity layout; tensor.dim counts in the one it will have."""
        kind = value.type
        return [
            tensor.dim(value, build.index(stored.index(d))) if kind.is_dynamic_dim(d) else kind.get_dim_size(d)
            for d in range(kind.rank)
        ]


def _are_together(classes: DimensionClasses, rows: Sequence[Dim], columns: Dim, loop: ir.Operation) -> bool:
    """True if what is computed element by element has all of the rows or none, and no bias is loaded for them."""
    for generic in classes.generics:
        for value in generic.operands if not is_contraction(generic) else []:
            count = sum(classes.position(value, c) is not None for c in rows)
            is_bias = count and classes.position(value, columns) is not None and not can_change(value, loop)
            if is_bias or count not in (0, len(rows)):
                return False
    return True


def _copy(value: ir.Value, init: ir.Value, stored: Sequence[int], wanted: Sequence[int]) -> ir.Value:
    """An op that copies and converts; the dimensions stand in these orders in `value` and in `init`."""
    n, element = len(stored), init.type.element_type
    maps, kinds = [build.projection(n, stored), build.projection(n, wanted)], [build.PARALLEL] * n
    (copy,) = build.generic([value], [init], maps, kinds, lambda x, _: build.convert(x, element))
    return copy


def permuted_type(kind: ir.RankedTensorType, order: Sequence[int]) -> ir.RankedTensorType:
    return ir.RankedTensorType.get([kind.shape[d] for d in order], kind.element_type, kind.encoding)


def _permute_sizes(op: ir.Operation, order: Sequence[int]) -> None:
    """Puts the dynamic sizes of a tensor.empty into the new order of dimensions."""
    sizes = mixed(op.operands, op.results[0].type.shape)
    for number, size in enumerate(split([sizes[d] for d in order])[0]):
        op.operands[number] = size

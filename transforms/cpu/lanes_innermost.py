"""The pass ``lanes-innermost``."""

from collections.abc import Sequence
from dataclasses import dataclass

from ...dialects import build
from ...dialects.mlir import ir
from ...dialects.tiling.structured import indexing_maps
from ..linear import upper_bound
from ..passes import Pass, option
from ..rewriting import ancestors, defining_op, is_inside, ops_in
from .dimension_classes import Dim, DimensionClasses
from .target import host_target
from .tile_values import CARRYING, before, can_change, carried_pairs, carried_uses, tile_values
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
    """

    vector_bytes: int = option("bytes of a vector; 0 = what the host has", 0)

    def run(self, op: ir.Operation) -> None:
        lanes = host_target(self.vector_bytes).vector_bytes // 4
        for loop in ops_in(op, "scf.forall"):
            classes = DimensionClasses(loop)
            rows = _rows(classes, lanes)
            if rows is not None:
                _Layout(loop, classes, rows).apply()


def is_contraction(generic: ir.Operation) -> bool:
    return len(generic.operands) > len(generic.results) + 1 and any(
        "reduction" in str(t) for t in generic.attributes["iterator_types"]
    )


def _rows(classes: DimensionClasses, lanes: int) -> Dim | None:
    """The class of dimensions to be innermost, if there is one, and it fills vectors."""
    candidates: dict[Dim, int] | None = None
    for generic in filter(is_contraction, classes.generics):
        if len(generic.operands) != 3:
            continue
        reused = _reused_along(generic, classes)
        if candidates is None:
            candidates = dict.fromkeys(reused, 0)
        candidates = {c: n for c, n in candidates.items() if c in reused}
    fitting = [c for c in candidates or () if (_extent(classes, c) or lanes) >= lanes]
    return fitting[0] if len(fitting) == 1 else None


def _reused_along(generic: ir.Operation, classes: DimensionClasses) -> list[Dim]:
    """The classes of the parallel loops along which the op reads the same elements of an input again."""
    kinds = [str(t) for t in generic.attributes["iterator_types"]]
    maps = indexing_maps(generic)[: len(generic.operands) - len(generic.results)]
    return [
        class_
        for loop, class_ in classes.loop_classes(generic).items()
        if "parallel" in kinds[loop] and any(not m_uses(m, loop) for m in maps)
    ]


def m_uses(map_: ir.AffineMap, loop: int) -> bool:
    return any(e == ir.AffineExpr.get_dim(loop) for e in map_.results)


def _extent(classes: DimensionClasses, class_: Dim) -> int | None:
    """How far tiles reach along the class, at most, as the results of the region's ops tell."""
    for generic in classes.generics:
        for value in generic.operands:
            d = classes.position(value, class_)
            if d is None:
                continue
            if not value.type.is_dynamic_dim(d):
                return value.type.get_dim_size(d)
            made = defining_op(value)
            if made is not None and made.name == "tensor.empty":
                before = sum(value.type.is_dynamic_dim(i) for i in range(d))
                return upper_bound(made.operands[before])
    return None


class _Layout:
    """Changes the types of one parallel loop's tensors, and the ops that touch them, in place."""

    def __init__(self, loop: ir.Operation, classes: DimensionClasses, rows: Dim):
        self.loop = loop
        self.classes = classes
        self.rows = rows
        self.ops = ops_in(loop)
        self.copies: dict[tuple[ir.Value, ir.Type], ir.Value] = {}
        self.orders: dict[ir.Value, list[int]] = {}
        for value in tile_values(loop):
            order = self._order(value)
            if order is not None and not classes.is_repeated(value) and can_change(value, loop):
                self.orders[value] = order

    def _order(self, value: ir.Value) -> list[int] | None:
        """The dimensions of `value` with the rows last; None if they are there already, or it has none."""
        position = self.classes.position(value, self.rows)
        if position is None or position == value.type.rank - 1:
            return None
        return [d for d in range(value.type.rank) if d != position] + [position]

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
                _permute_sizes(op, 0, order)
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
        for number, operand in enumerate(list(op.operands)):
            if number >= n_inputs:
                order = self.orders.get(op.results[number - n_inputs])
                is_read = bool(list(op.regions[0].blocks[0].arguments[number].uses))
                op.operands[number] = self._with_order(operand, order, op, is_read)
            elif operand in self.orders:
                order = self.orders[operand]
            else:
                order = self._order(operand) if self._is_packed(op, maps[number]) else None
                if order is None:
                    op.operands[number] = self._with_order(operand, None, op)
                else:
                    element = build.compute_type(operand.type.element_type)
                    op.operands[number] = self._with_order(operand, order, op, element=element)
                    widen_argument(op, number)
            if order is not None:
                old = maps[number]
                maps[number] = ir.AffineMap.get(old.n_dims, 0, [old.results[d] for d in order])
        op.attributes["indexing_maps"] = ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps])

    def _is_packed(self, op: ir.Operation, map_: ir.AffineMap) -> bool:
        """True if a contraction reads the elements of this input more than once."""
        kinds = [str(t) for t in op.attributes["iterator_types"]]
        return is_contraction(op) and any("parallel" in kinds[d] and not m_uses(map_, d) for d in range(map_.n_dims))

    def _slice(self, op: ir.Operation, tensors: Sequence[ir.Value], order: list[int] | None) -> None:
        for number, operand in enumerate(tensors):
            op.operands[number] = self._with_order(operand, order, op)
        if order is None:
            return
        dynamic = ir.ShapedType.get_dynamic_size()
        position = len(tensors)
        for name in ("static_offsets", "static_sizes", "static_strides"):
            static = list(op.attributes[name])
            end = position + static.count(dynamic)
            values = iter(list(op.operands)[position:end])
            mixed = [next(values) if s == dynamic else s for s in static]
            mixed = [mixed[d] for d in order]
            for value in mixed:
                if isinstance(value, ir.Value):
                    op.operands[position] = value
                    position += 1
            op.attributes[name] = ir.DenseI64ArrayAttr.get([dynamic if isinstance(x, ir.Value) else x for x in mixed])

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
            if order is not None and (value, element) in self.copies and is_read:
                return self.copies[value, element]
            place = self._hoisted(value, user) if order is not None and is_read else user
        with ir.InsertionPoint(place), user.location:
            n = kind.rank
            stored = own or list(range(n))
            wanted = order or list(range(n))
            sizes = self._sizes(value, stored)
            init = build.empty([sizes[d] for d in wanted], element)
            if not is_read:
                return init
            source = build.projection(n, stored)
            target = build.projection(n, wanted)
            (copy,) = build.generic(
                [value], [init], [source, target], [build.PARALLEL] * n, lambda x, _: build.convert(x, element)
            )
        if order is not None and place != user:
            self.copies[value, element] = copy
        return copy

    def _sizes(self, value: ir.Value, stored: list[int]) -> list[int | ir.Value]:
        """The sizes by dimension of the identity layout; tensor.dim counts in the one it will have."""
        from ...dialects.mlir import tensor

        kind = value.type
        return [
            tensor.dim(value, build.index(stored.index(d))) if kind.is_dynamic_dim(d) else kind.get_dim_size(d)
            for d in range(kind.rank)
        ]

    def _hoisted(self, value: ir.Value, user: ir.Operation) -> ir.Operation:
        """The op to put a copy of `value` in front of: the outermost loop in which it does not change."""
        made = defining_op(value)
        place = user
        for loop in ancestors(user):
            if loop == self.loop or loop.name != "scf.for":
                break
            if made is not None and is_inside(made, loop):
                movable = made.name == "tensor.extract_slice" and not any(_is_of(v, loop) for v in made.operands)
                if not movable:
                    break
                made.move_before(loop)
            elif made is None and _is_of(value, loop):
                break
            place = loop
        return place


def _is_of(value: ir.Value, loop: ir.Operation) -> bool:
    """True if `value` is made inside of `loop`."""
    owner = value.owner
    holder = owner.owner.operation if isinstance(owner, ir.Block) else owner.operation
    return holder == loop if isinstance(owner, ir.Block) and holder == loop else is_inside(holder, loop)


def permuted_type(kind: ir.RankedTensorType, order: Sequence[int]) -> ir.RankedTensorType:
    return ir.RankedTensorType.get([kind.shape[d] for d in order], kind.element_type, kind.encoding)


def _permute_sizes(op: ir.Operation, first: int, order: Sequence[int]) -> None:
    """Puts the dynamic sizes of a tensor.empty, from operand `first` on, into the new order of dimensions."""
    kind = op.results[0].type
    values = iter(list(op.operands)[first:])
    sizes = {d: next(values) for d in range(kind.rank) if kind.is_dynamic_dim(d)}
    for number, d in enumerate(d for d in order if d in sizes):
        op.operands[first + number] = sizes[d]

"""Index arithmetic for tiles: linear expressions over index values, compared by structure and built only when needed.

Offsets and sizes of tiles are such expressions. Two slices that mean the same compare equal before any op exists, and
``8·%i`` becomes one ``affine.apply`` in the prologue of the loop body.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Protocol

from ..mlir import ir


@dataclass(frozen=True, eq=False)
class Index:
    """``const + Σ coefficient·value`` over SSA values of type index.

    The order of terms does not count when two are compared. It is kept all the same: what is built of them is then the
    same in each process, which the order in a set is not.
    """

    const: int = 0
    terms: tuple[tuple[ir.Value, int], ...] = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Index) and self._unordered == other._unordered

    def __hash__(self) -> int:
        return hash(self._unordered)

    @property
    def _unordered(self) -> tuple[int, frozenset[tuple[ir.Value, int]]]:
        return self.const, frozenset(self.terms)

    @staticmethod
    def of(value: Index | int | ir.Value) -> Index:
        if isinstance(value, Index):
            return value
        return Index(value) if isinstance(value, int) else Index(0, ((value, 1),))

    @property
    def static(self) -> int | None:
        """The number that this is, or None if it depends on a value."""
        return None if self.terms else self.const

    @property
    def is_value(self) -> bool:
        """Whether this is just one SSA value."""
        return self.const == 0 and len(self.terms) == 1 and self.terms[0][1] == 1

    def __add__(self, other: Index | int) -> Index:
        other = Index.of(other)
        coefficients = dict(self.terms)
        for value, coefficient in other.terms:
            coefficients[value] = coefficients.get(value, 0) + coefficient
        return Index(self.const + other.const, tuple((v, c) for v, c in coefficients.items() if c))

    def __sub__(self, other: Index | int) -> Index:
        return self + Index.of(other).scaled(-1)

    def scaled(self, factor: int) -> Index:
        return Index(self.const * factor, tuple((v, c * factor) for v, c in self.terms if factor))

    def coefficient(self, value: ir.Value) -> int:
        return next((c for v, c in self.terms if v == value), 0)

    def without(self, value: ir.Value) -> Index:
        return Index(self.const, tuple((v, c) for v, c in self.terms if v != value))

    def divisible_by(self, divisor: int) -> bool:
        return self.const % divisor == 0 and all(c % divisor == 0 for _, c in self.terms)

    def divided(self, divisor: int) -> Index:
        """The exact quotient; only where `divisible_by` holds."""
        return Index(self.const // divisor, tuple((v, c // divisor) for v, c in self.terms))


@dataclass(frozen=True)
class Range:
    """A tile along one dimension.

    `full`: it is the whole dimension. `whole`: the tiles of all iterations together cover the dimension exactly once.
    `loops`: the loop dimensions of the root that it comes from (more than one after a collapse).
    """

    offset: Index
    size: Index
    full: bool = field(default=False, compare=False)
    whole: bool = field(default=False, compare=False)
    loops: frozenset[int] = field(default=frozenset(), compare=False)

    @staticmethod
    def everything(size: Index, loops: frozenset[int] = frozenset()) -> Range:
        return Range(Index(0), size, full=True, whole=True, loops=loops)


Tile = tuple[Range, ...]


def is_full(tile: Iterable[Range]) -> bool:
    return all(r.full for r in tile)


class Untileable(Exception):
    """This op cannot be computed in such a tile; the message says why."""


def static_shape(sizes: Iterable[Index]) -> list[int]:
    dynamic = ir.ShapedType.get_dynamic_size()
    return [dynamic if s.static is None else s.static for s in sizes]


def affine_expression(index: Index, values: Sequence[ir.Value]) -> ir.AffineExpr:
    """The index over `values` as dimensions."""
    expression = ir.AffineExpr.get_constant(index.const)
    for v, coefficient in index.terms:
        expression = expression + ir.AffineExpr.get_dim(values.index(v)) * coefficient
    return expression


def affine_map(indices: Sequence[Index], values: Sequence[ir.Value]) -> ir.AffineMapAttr:
    """(values…) -> (indices…)."""
    expressions = [affine_expression(index, values) for index in indices]
    return ir.AffineMapAttr.get(ir.AffineMap.get(len(values), 0, expressions))


class Extents(Protocol):
    """Whoever tells the extent of dimension `d` of a tensor."""

    def dim(self, value: ir.Value, d: int) -> Index: ...


class TileBuilder:
    """Builds what tiles need: index arithmetic in the loop body's prologue, slices where the insertion point stands."""

    def __init__(self, outside: ir.InsertionPoint, body: ir.Block):
        self.outside = outside
        self.body = body
        self._last: ir.Operation | None = None
        self._built: dict[Index, ir.Value] = {}
        self._constants: dict[int, ir.Value] = {}

    def inside(self, loop: ir.Operation, body: ir.Block) -> TileBuilder:
        """A builder for the `body` of `loop`, which builds what depends on no iteration before that."""
        builder = TileBuilder(ir.InsertionPoint(loop), body)
        builder._constants = self._constants
        return builder

    # Index values.

    def _prologue(self) -> ir.InsertionPoint:
        if self._last is None:
            return ir.InsertionPoint.at_block_begin(self.body)
        return ir.InsertionPoint.after(self._last)

    def in_prologue(self, name: str, operands: Sequence[ir.Value], **attributes: ir.Attribute) -> ir.Value:
        """One index-valued op at the head of the loop body."""
        with self._prologue():
            op = ir.Operation.create(name, [ir.IndexType.get()], list(operands), attributes)
        self._last = op
        return op.result

    def constant(self, number: int) -> ir.Value:
        if number not in self._constants:
            with self.outside:
                self._constants[number] = ir.Operation.create(
                    "arith.constant",
                    [ir.IndexType.get()],
                    attributes={"value": ir.IntegerAttr.get(ir.IndexType.get(), number)},
                ).result
        return self._constants[number]

    def value(self, index: Index) -> ir.Value:
        """An SSA value for `index`, valid in the loop body."""
        if index.static is not None:
            return self.constant(index.static)
        if index.is_value:
            return index.terms[0][0]
        if index not in self._built:
            values = [v for v, _ in index.terms]
            self._built[index] = self.in_prologue("affine.apply", values, map=affine_map([index], values))
        return self._built[index]

    def outside_value(self, index: Index) -> ir.Value:
        """An SSA value for `index`, which depends on no loop, valid before the loops."""
        if index.static is not None or index.is_value:
            return self.value(index)
        values = [v for v, _ in index.terms]
        with self.outside:
            kind = ir.IndexType.get()
            return ir.Operation.create("affine.apply", [kind], values, {"map": affine_map([index], values)}).result

    def minimum(self, *indices: Index) -> Index:
        """min of all; ``affine.min`` unless they are numbers."""
        return self._extremum("affine.min", min, indices)

    def maximum(self, *indices: Index) -> Index:
        return self._extremum("affine.max", max, indices)

    def _extremum(self, op: str, fold, indices: Sequence[Index]) -> Index:
        unique = list(dict.fromkeys(indices))
        if len(unique) == 1:
            return unique[0]
        if all(i.static is not None for i in unique):
            return Index(fold(i.static for i in unique))
        values = list(dict.fromkeys(v for i in unique for v, _ in i.terms))
        return Index.of(self.in_prologue(op, values, map=affine_map(unique, values)))

    def product(self, a: Index, b: Index) -> Index:
        if a.static is not None:
            return b.scaled(a.static)
        if b.static is not None:
            return a.scaled(b.static)
        return Index.of(self.in_prologue("arith.muli", [self.value(a), self.value(b)]))

    def floor_divided(self, a: Index, divisor: int) -> Index:
        if a.divisible_by(divisor):
            return a.divided(divisor)
        return self._apply(a, lambda d: ir.AffineExpr.get_floor_div(d, divisor))

    def remainder(self, a: Index, divisor: int) -> Index:
        if a.divisible_by(divisor):
            return Index(0)
        return self._apply(a, lambda d: ir.AffineExpr.get_mod(d, divisor))

    def _apply(self, a: Index, expression) -> Index:
        applied = ir.AffineMap.get(1, 0, [expression(ir.AffineExpr.get_dim(0))])
        return Index.of(self.in_prologue("affine.apply", [self.value(a)], map=ir.AffineMapAttr.get(applied)))

    def ceil_divided_outside(self, a: Index, divisor: int) -> Index:
        """⌈a / divisor⌉, which depends on no loop, computed before the loops."""
        if a.static is not None:
            return Index(-(-a.static // divisor))
        applied = ir.AffineMap.get(1, 0, [ir.AffineExpr.get_ceil_div(ir.AffineExpr.get_dim(0), divisor)])
        with self.outside:
            kind, value = ir.IndexType.get(), self.outside_value(a)
            op = ir.Operation.create("affine.apply", [kind], [value], {"map": ir.AffineMapAttr.get(applied)})
            return Index.of(op.result)

    # Shapes.

    def dim(self, value: ir.Value, d: int) -> Index:
        """The extent of dimension `d`, read off the ops that make `value`, so that they need not be kept for it."""
        extent = value.type.shape[d]
        if extent != ir.ShapedType.get_dynamic_size():
            return Index(extent)
        owner = value.owner
        if isinstance(owner, ir.Operation | ir.OpView):
            operation = owner.operation
            reified = reify_dim(self, operation, value, d)
            if reified is not None:
                return reified
        with self.outside:
            at = self.constant(d)
            return Index.of(ir.Operation.create("tensor.dim", [ir.IndexType.get()], [value, at]).result)

    def everything(self, value: ir.Value, loops: Sequence[frozenset[int]] | None = None) -> Tile:
        """The tile that is all of `value`."""
        rank = value.type.rank
        loops = loops or [frozenset()] * rank
        return tuple(Range.everything(self.dim(value, d), loops[d]) for d in range(rank))

    # Tensors.

    def mixed(self, indices: Iterable[Index]) -> tuple[list[int], list[ir.Value]]:
        """Static entries and dynamic operands, as the ops of the tensor dialect want them."""
        static, dynamic = [], []
        for index in indices:
            if index.static is None:
                static.append(ir.ShapedType.get_dynamic_size())
                dynamic.append(self.value(index))
            else:
                static.append(index.static)
        return static, dynamic

    def slice(self, source: ir.Value, tile: Tile, shape: Sequence[int] | None = None) -> ir.Value:
        """``tensor.extract_slice``; `shape` drops unit dimensions (a rank-reduced slice)."""
        kind = source.type
        sizes = [r.size for r in tile]
        result = ir.RankedTensorType.get(
            static_shape(sizes) if shape is None else shape, kind.element_type, kind.encoding
        )
        return self._slice_op("tensor.extract_slice", result, [source], tile)

    def insert(self, source: ir.Value, into: ir.Value, tile: Tile) -> ir.Value:
        return self._slice_op("tensor.insert_slice", into.type, [source, into], tile)

    def _slice_op(self, name: str, result: ir.Type, operands: list[ir.Value], tile: Tile) -> ir.Value:
        offsets, dynamic_offsets = self.mixed(r.offset for r in tile)
        sizes, dynamic_sizes = self.mixed(r.size for r in tile)
        segments = [1] * len(operands) + [len(dynamic_offsets), len(dynamic_sizes), 0]
        attributes = {
            "static_offsets": ir.DenseI64ArrayAttr.get(offsets),
            "static_sizes": ir.DenseI64ArrayAttr.get(sizes),
            "static_strides": ir.DenseI64ArrayAttr.get([1] * len(tile)),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get(segments),
        }
        return ir.Operation.create(name, [result], [*operands, *dynamic_offsets, *dynamic_sizes], attributes).result

    def empty(self, sizes: Sequence[Index], element_type: ir.Type) -> ir.Value:
        static, dynamic = self.mixed(sizes)
        return ir.Operation.create("tensor.empty", [ir.RankedTensorType.get(static, element_type)], dynamic).result

    def empty_outside(self, sizes: Sequence[Index], element_type: ir.Type) -> ir.Value:
        """``tensor.empty`` whose sizes depend on no loop, for use before the loops."""
        dynamic = [self.outside_value(s) for s in sizes if s.static is None]
        kind = ir.RankedTensorType.get(static_shape(sizes), element_type)
        return ir.Operation.create("tensor.empty", [kind], dynamic).result


def reify_dim(builder: Extents, op: ir.Operation, value: ir.Value, d: int) -> Index | None:
    """The extent of dimension `d` of the result `value` of `op` from its operands, or None where that is unknown."""
    view, dynamic = op.opview, ir.ShapedType.get_dynamic_size()
    if op.name == "tensor.empty":
        return Index.of(op.operands[sum(s == dynamic for s in value.type.shape[:d])])
    if op.name == "tensor.expand_shape":
        return Index.of(view.output_shape[sum(s == dynamic for s in list(view.static_output_shape)[:d])])
    if op.name == "tensor.collapse_shape":
        extents = [builder.dim(view.src, ir.IntegerAttr(s).value) for s in view.reassociation[d]]
        symbolic = [e for e in extents if e.static is None]
        return (
            symbolic[0].scaled(prod(e.const for e in extents if e.static is not None)) if len(symbolic) == 1 else None
        )
    if op.name == "tensor.insert_slice":
        return builder.dim(view.dest, d)
    if op.name == "tensor.cast":
        return builder.dim(view.source, d)
    if op.name == "tensor.extract_slice":
        static = list(view.static_sizes)
        of_source = sorted(kept_dims([None if s == dynamic else s for s in static], value.type.shape))[d]
        return Index.of(view.sizes[sum(s == dynamic for s in static[:of_source])])
    if op.name.startswith(("linalg.", "linalg_ext.")):
        inits = len(op.operands) - len(op.results)
        return builder.dim(op.operands[inits + list(op.results).index(value)], d)
    return None


def kept_dims(sizes: Sequence[int | None], shape: Sequence[int]) -> set[int]:
    """Which dimensions of a slice of these sizes remain in its rank-reduced type: unit ones are dropped greedily."""
    kept: set[int] = set()
    remaining = list(shape)
    for d, size in enumerate(sizes):
        matches = remaining and (size == remaining[0] or size is None)
        spare = len(sizes) - d > len(remaining)
        if matches and not (spare and size == 1 and remaining[0] != 1):
            kept.add(d)
            remaining.pop(0)
    return kept

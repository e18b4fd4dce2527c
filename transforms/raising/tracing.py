"""From an element of a tensor to the expression that computes it, backwards through linalg and reshapes.

Through layout (transpose, expand_shape, collapse_shape, broadcast, cast) an element of the result *is* an element of
the source; through an element-wise op it is an expression of elements. Where neither can be seen (function arguments,
reductions, gathers, reshapes that do not come apart) the element stands for itself. Every tensor on the way may be
read in place of the last one: `Tracer.aliases` keeps them.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...dialects.build import constant_value, is_float8
from ...dialects.mlir import arith, ir
from ...dialects.tiling.structured import dim_position, indexing_maps, is_structured, iterator_types, moved_operand
from ...dialects.tiling.tensor_ops import reassociation
from ..linear import DYNAMIC
from ..reshapes import RESHAPES
from ..rewriting import defining_op, terminator
from .expressions import REAL, ROUND, Expr, Expressions, scalar_type
from .indices import Index, Opaque, SplitNeeded, Var, delinearize, linearize, mixed_radix
from .padding import is_padding, unpadded

MAX_DEPTH = 200  # of element-wise ops in a row; beyond it a tensor is read, not looked into
MOVES = ("linalg.transpose", "linalg.broadcast", "linalg.generic")  # that one, where it yields an operand
SUMS = {"arith.addf": "sum", "arith.andi": "all", "arith.ori": "any"}
MAXIMA = {"arith.maximumf", "arith.maxnumf"}


def extents(value: ir.Value) -> list[int | None]:
    return [None if s == DYNAMIC else s for s in value.type.shape]


@dataclass(frozen=True)
class Reduction:
    """An element that reduces: `kind` is sum, max, all, any or "" for anything else; `loops` are what it runs over."""

    tracer: Tracer
    op: ir.Operation
    kind: str
    loops: tuple[int, ...]
    outer: Mapping[int, Index]
    yielded: ir.Value | None
    init: Expr

    def extent(self, loop: int) -> int | None:
        return loop_extents(self.op)[loop]

    def body(self, indices: Sequence[Index]) -> Expr:
        """What is reduced, at these indices of `loops`; its elements are not looked into."""
        bound = {**self.outer, **dict(zip(self.loops, indices, strict=True))}
        loops = [bound[d] for d in range(len(bound))]
        if not len(self.op.regions):  # linalg_ext.batch_matmul
            return self.tracer.make.mul(*(self.tracer.operand(self.op, i, loops) for i in (0, 1)))
        assert self.yielded is not None
        return Body(self.tracer, self.op, loops).value(self.yielded)


class Tracer:
    """Makes expressions of elements; see the module. `splittable` are the variables that may be split."""

    def __init__(self) -> None:
        self.make = Expressions()
        self.splittable: frozenset[Var] = frozenset()
        self.aliases: dict[Expr, list[Expr]] = {}
        self.parts: set[ir.Value] = set()  # of which gathers may read a part, from the first element on
        self._expanded: dict[Expr, Expr] = {}

    # One step.

    def source(self, element: Expr) -> Expr | None:
        """The element that this one is, on the other side of one layout op; None if no layout op makes it."""
        tensor, indices = element.payload
        op = defining_op(tensor)
        if op is None or tensor in self.parts:
            return None
        try:
            moved = self._moved(op, indices)
        except Opaque:
            return None
        except SplitNeeded as split:
            if split.var in self.splittable:
                raise
            return None
        if moved is None:
            return None
        known = self.aliases.get(element, [element])
        self.aliases.setdefault(moved, [*known, moved])
        return moved

    def origin(self, element: Expr) -> Expr:
        """The element that this one is, on the other side of all layout ops."""
        while (source := self.source(element)) is not None:
            element = source
        return element

    def step(self, element: Expr) -> Expr | None:
        """The expression that one element-wise op computes there, its elements not looked into; None if none does."""
        tensor, indices = element.payload
        op = defining_op(tensor)
        if op is None:
            return None
        if op.name == "arith.constant":
            return self._constant(op, indices, element.type)
        if op.name == "linalg.fill":
            return self.captured(op.operands[0])
        if tensor in self.parts:  # what made it may have other loops
            return None
        if op.name == "tensor.insert_slice":
            return self._inserted(op, indices)
        if op.name == "tensor.pad":
            return self.captured(terminator(op.regions[0].blocks[0]).operands[0]) if is_padding(op, indices) else None
        if not is_structured(op) or not len(op.regions) or "reduction" in iterator_types(op):
            return None
        number = tensor_result_number(tensor)
        loops = _loops_at(op, number, indices)
        if loops is None:
            return None
        yielded = terminator(op.regions[0].blocks[0]).operands[number]
        try:
            return Body(self, op, [loops[d] for d in range(len(loops))]).value(yielded)
        except Opaque:
            return None

    def reduction(self, element: Expr) -> Reduction | None:
        """The reduction that computes this element, if one does."""
        tensor, indices = element.payload
        op = defining_op(tensor)
        if op is None or not is_structured(op) or "reduction" not in iterator_types(op):
            return None
        number = tensor_result_number(tensor)
        outer = _loops_at(op, number, indices)
        if outer is None:
            return None
        loops = tuple(d for d, kind in enumerate(iterator_types(op)) if kind == "reduction" and d not in outer)
        outer_or_zero = [outer.get(d, Index()) for d in range(len(iterator_types(op)))]
        init = self.operand(op, len(op.operands) - len(op.results) + number, outer_or_zero)
        if op.name == "linalg_ext.batch_matmul":
            return Reduction(self, op, "sum", loops, outer, None, init)
        if not len(op.regions):
            return None
        kind, yielded = _combiner(op, number)
        return Reduction(self, op, kind, loops, outer, yielded, init)

    def operand(self, op: ir.Operation, number: int, loops: Sequence[Index]) -> Expr:
        """The element of an operand that a structured op reads in an iteration."""
        value = op.operands[number]
        if not isinstance(value.type, ir.RankedTensorType):
            return self.captured(value)
        return self.make.element(value, tuple(_apply(e, loops) for e in indexing_maps(op)[number].results))

    def captured(self, value: ir.Value) -> Expr:
        """A scalar from outside of all loops."""
        number = constant_value(value)
        if number is not None:
            return self.make.const(number, scalar_type(value.type))
        op = defining_op(value)
        if op is not None and op.name in ("arith.extf", "arith.truncf") and not is_float8(value.type):
            return self.captured(op.operands[0])
        return self.make.scalar(value)

    # All steps.

    def expand(self, expr: Expr, depth: int = 0) -> Expr:
        """`expr` with every element looked into as far as element-wise ops and layout go."""
        if expr.kind == "element":
            found = self._expanded.get(expr)
            if found is None:
                origin = self.origin(expr)
                stepped = self.step(origin) if depth < MAX_DEPTH else None
                found = origin if stepped is None else self.expand(stepped, depth + 1)
                self._expanded[expr] = found
            return found
        if not expr.args or not any(n.kind == "element" for n in expr.nodes()):
            return expr
        return self.make.rewritten(expr, lambda n: self.expand(n, depth + 1) if n.kind == "element" else None)

    # The ops.

    def _moved(self, op: ir.Operation, indices: tuple[Index, ...]) -> Expr | None:
        if op.name in RESHAPES:
            source = op.operands[0]
            expanding = op.name == "tensor.expand_shape"
            wide = extents(op.results[0] if expanding else source)
            if not expanding and not indices:  # of all dimensions, which no group names, one element is left
                return self.make.element(source, (Index(),) * len(wide))
            narrow: list[Index] = []
            for position, dims in enumerate(reassociation(op)):
                sizes = [wide[d] for d in dims]
                if expanding:
                    narrow.append(linearize([indices[d] for d in dims], sizes))
                else:
                    narrow += delinearize(indices[position], sizes)
            return self.make.element(source, tuple(narrow))
        if op.name == "tensor.cast" and isinstance(op.operands[0].type, ir.RankedTensorType):
            return self.make.element(op.operands[0], indices)
        if op.name == "tensor.extract_slice":
            return self._sliced(op, indices)
        if op.name == "tensor.concat":
            return self._piece(op, indices)
        if op.name == "tensor.pad":
            moved = unpadded(op, indices)
            return None if moved is None else self.make.element(op.operands[0], moved)
        if op.name in MOVES and len(op.results) == 1 and "reduction" not in iterator_types(op):
            loops, number = _loops_at(op, 0, indices), moved_operand(op)
            if loops is not None and number is not None and isinstance(op.operands[number].type, ir.RankedTensorType):
                return self.operand(op, number, [loops[d] for d in range(len(loops))])
        return None

    def _sliced(self, op: ir.Operation, indices: tuple[Index, ...]) -> Expr | None:
        """The element of the source of a slice of known offsets and strides.

        A part of a dimension is read by loops of known extents alone: another is taken to be the whole dimension's.
        """
        sizes, offsets, steps = (list(op.attributes[f"static_{name}"]) for name in ("sizes", "offsets", "strides"))
        whole, kept = extents(op.operands[0]), iter(zip(indices, op.results[0].type.shape, strict=True))
        if DYNAMIC in (*offsets, *steps) or None in whole:
            return None
        following = next(kept, None)
        moved = []
        for size, extent, offset, step in zip(sizes, whole, offsets, steps, strict=True):
            index = Index()  # of a dimension of one element that is dropped
            if following is not None and following[1] == size:
                index, following = following[0], next(kept, None)
            elif size != 1:
                return None
            if size != extent and None in (v.extent for v in index.vars):
                return None
            moved.append(index.scaled(step).plus(Index((), offset)))
        return self.make.element(op.operands[0], tuple(moved)) if following is None else None

    def _piece(self, op: ir.Operation, indices: tuple[Index, ...]) -> Expr | None:
        """The element of the one operand of a concatenation that the index is sure to be in."""
        dimension = ir.IntegerAttr(op.attributes["dim"]).value
        index, start = indices[dimension], 0
        lowest, highest = index.bounds()
        for operand in op.operands:
            size = extents(operand)[dimension]
            if size is None or highest is None:
                return None
            if start <= lowest and highest < start + size:
                moved = [i.plus(Index((), -start)) if d == dimension else i for d, i in enumerate(indices)]
                return self.make.element(operand, tuple(moved))
            start += size
        return None

    def _inserted(self, op: ir.Operation, indices: tuple[Index, ...]) -> Expr | None:
        """A choice by index between the source and what it is inserted into, where the source is a slice of that, or
        the same along the dimensions of which it is a part: nothing is read where it has no elements::

            %s1 = tensor.insert_slice %x into %s[0, 3] [5, 4] [1, 1]  // select(j ≥ 3 and j < 7, x[i, j − 3], s[i, j])
        """
        source, target = op.operands[0], op.operands[1]
        sizes, offsets, steps = (list(op.attributes[f"static_{name}"]) for name in ("sizes", "offsets", "strides"))
        if len(extents(source)) != len(sizes) or DYNAMIC in (*offsets, *sizes) or any(s != 1 for s in steps):
            return None
        make, flag, kind = self.make, ir.IntegerType.get_signless(1), ir.IndexType.get()
        conditions: list[Expr] = []

        def require(predicate: arith.CmpIPredicate, index: Index, bound: int) -> None:
            compared = (make.index(index), make.const(bound, kind))
            number = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), int(predicate))
            conditions.append(make.op("arith.cmpi", compared, flag, (("predicate", number),)))

        for index, offset, size, whole in zip(indices, offsets, sizes, extents(target), strict=True):
            if offset > 0:
                require(arith.CmpIPredicate.sge, index, offset)
            if offset + size != whole:
                require(arith.CmpIPredicate.slt, index, offset + size)
        moved = [index.plus(Index((), -offset)) for index, offset in zip(indices, offsets, strict=True)]
        inserted = make.element(source, tuple(moved))
        if not all(_is_inside(n) for n in self.expand(inserted).nodes() if n.kind == "element"):
            return None
        if not conditions:
            return inserted
        both = functools.reduce(lambda a, b: make.op("arith.andi", (a, b), flag), conditions)
        return make.op("arith.select", (both, inserted, make.element(target, indices)), inserted.type)

    def _constant(self, op: ir.Operation, indices: tuple[Index, ...], type_) -> Expr | None:
        value = op.attributes["value"]
        if not isinstance(value, ir.DenseElementsAttr):
            return None
        if value.is_splat:
            return self.make.const(value.get_splat_value().value, type_)
        if not isinstance(value, ir.DenseIntElementsAttr) or str(type_) == "i1":
            return None
        # 0, 1, 2, … along its one dimension that is not 1 is an index.
        numbers = np.array(value)
        wide = [d for d, size in enumerate(numbers.shape) if size != 1]
        if len(wide) != 1 or not np.array_equal(numbers.ravel(), np.arange(numbers.size)):
            return None
        return self.make.op("arith.index_cast", (self.make.index(indices[wide[0]]),), type_)


def _is_inside(element: Expr) -> bool:
    """Whether all of its indices, whatever the variables are, are of its tensor."""
    tensor, indices = element.payload
    for index, size in zip(indices, extents(tensor), strict=True):
        lowest, highest = index.bounds()
        if index.single is not None and not index.constant:
            if index.single.extent != size:
                return False
        elif lowest < 0 or highest is None or size is None or highest >= size:
            return False
    return True


class Body:
    """The region of a structured op, in the iteration `loops`."""

    def __init__(self, tracer: Tracer, op: ir.Operation, loops: Sequence[Index]):
        self.tracer, self.op, self.loops = tracer, op, loops
        self.block = op.regions[0].blocks[0]
        self.known: dict[ir.Value, Expr] = {}

    def value(self, value: ir.Value) -> Expr:
        found = self.known.get(value)
        if found is None:
            found = self.known[value] = self._value(value)
        return found

    def _value(self, value: ir.Value) -> Expr:
        make = self.tracer.make
        if isinstance(value.owner, ir.Block):
            if value.owner == self.block:
                return self.tracer.operand(self.op, ir.BlockArgument(value).arg_number, self.loops)
            return self.tracer.captured(value)
        op = value.owner.operation
        if op.block != self.block:
            return self.tracer.captured(value)
        if op.name == "linalg.index":
            return make.index(self.loops[ir.IntegerAttr(op.attributes["dim"]).value])
        if op.name == "arith.constant":
            return self.tracer.captured(value)
        if op.name == "tensor.extract":
            return self._extracted(op)
        if op.name.partition(".")[0] not in ("arith", "math") or len(op.results) != 1 or len(op.regions):
            raise Opaque(f"'{op.name}' in a region")
        kind = scalar_type(value.type)
        if isinstance(value.type, ir.ShapedType) or op.name == "arith.bitcast":
            raise Opaque(f"'{op.name}' in a region")
        if op.name == "arith.truncf" and is_float8(value.type):
            return make.op(ROUND, (self.value(op.operands[0]),), REAL, (("type", ir.TypeAttr.get(value.type)),))
        attributes = tuple(sorted(((a.name, a.attr) for a in _named(op)), key=lambda pair: pair[0]))
        return make.op(op.name, tuple(self.value(v) for v in op.operands), kind, attributes)

    def _extracted(self, op: ir.Operation) -> Expr:
        """A gather by loops themselves is an element like any other. One by computed indices is not looked into.

        Nothing says that these loops are as long as the dimension that they index: a table may be longer.
        """
        table, make = op.operands[0], self.tracer.make
        indices: list[Index] = []
        for value, size in zip(list(op.operands)[1:], extents(table), strict=True):
            if size == 0:  # a slice of it has nowhere to begin
                raise Opaque("a gather from an empty table")
            # Index tensors that are iotas are looked into.
            index = self.tracer.expand(self.value(value))
            if index.kind == "const":
                indices.append(Index((), index.payload))
            elif index.kind != "index":
                raise Opaque("a gather")
            else:
                indices.append(index.payload)
                single, is_known = index.payload.single, None not in (v.extent for v in index.payload.vars)
                if single is not None and (not is_known or single.extent != size):
                    self.tracer.parts.add(table)
                elif index.payload.terms and not (is_known and mixed_radix(index.payload, size)):
                    raise Opaque("a gather")
        return make.element(table, tuple(indices))


@dataclass(frozen=True)
class _Named:
    name: str
    attr: ir.Attribute


def _named(op: ir.Operation) -> list[_Named]:
    """The attributes that say what is computed. Fast-math flags do not: numbers are real here."""
    found = []
    for name in op.attributes:
        key = name if isinstance(name, str) else name.name
        if key not in ("fastmath", "overflowFlags"):
            found.append(_Named(key, op.attributes[key]))
    return found


def tensor_result_number(tensor: ir.Value) -> int:
    return ir.OpResult(tensor).result_number


def loop_extents(op: ir.Operation) -> list[int | None]:
    """The extents of the loops of a structured op; None where dynamic."""
    maps = indexing_maps(op)
    found: list[int | None] = [None] * maps[0].n_dims
    for operand, m in zip(op.operands, maps, strict=True):
        for size, expression in zip(extents(operand) if m.results else [], m.results, strict=True):
            loop = dim_position(expression)
            if loop is not None and size is not None:
                found[loop] = size
    return found


def _loops_at(op: ir.Operation, number: int, indices: Sequence[Index]) -> dict[int, Index] | None:
    """The iteration that makes an element of result `number`; None if its map is no projection."""
    loops: dict[int, Index] = {}
    out = indexing_maps(op)[len(op.operands) - len(op.results) + number]
    for expression, index in zip(out.results, indices, strict=True):
        loop = dim_position(expression)
        if loop is None:
            if not isinstance(expression, ir.AffineConstantExpr):
                return None
        elif loop in loops:
            return None
        else:
            loops[loop] = index
    kinds = iterator_types(op)
    return loops if all(d in loops for d, kind in enumerate(kinds) if kind == "parallel") else None


def _apply(expression: ir.AffineExpr, loops: Sequence[Index]) -> Index:
    if isinstance(expression, ir.AffineConstantExpr):
        return Index((), expression.value)
    loop = dim_position(expression)
    if loop is not None:
        return loops[loop]
    if isinstance(expression, ir.AffineAddExpr):
        return _apply(expression.lhs, loops).plus(_apply(expression.rhs, loops))
    if isinstance(expression, ir.AffineMulExpr):
        a, b = _apply(expression.lhs, loops), _apply(expression.rhs, loops)
        if not b.terms:
            return a.scaled(b.constant)
        if not a.terms:
            return b.scaled(a.constant)
    raise Opaque(f"an operand is indexed by {expression}")


def _combiner(op: ir.Operation, number: int) -> tuple[str, ir.Value | None]:
    """The kind of reduction that result `number` of `op` is, and what it reduces."""
    block = op.regions[0].blocks[0]
    accumulator = block.arguments[len(op.operands) - len(op.results) + number]
    yielded = terminator(op.regions[0].blocks[0]).operands[number]
    while _is_cast(yielded):
        yielded = yielded.owner.operands[0]
    if isinstance(yielded.owner, ir.Block):
        return "", None
    combine = yielded.owner.operation
    if combine.name not in SUMS and combine.name not in MAXIMA:
        return "", None
    for this, other in (0, 1), (1, 0):
        value = combine.operands[this]
        while _is_cast(value):
            value = value.owner.operands[0]
        if value == accumulator:
            reduced = combine.operands[other]
            uses = [u.owner.operation for u in accumulator.uses]
            if combine.name in SUMS and len(uses) > 1:
                return "", None
            return SUMS.get(combine.name, "max"), reduced
    return "", None


def _is_cast(value: ir.Value) -> bool:
    return not isinstance(value.owner, ir.Block) and value.owner.operation.name in ("arith.extf", "arith.truncf")


__all__ = ["DYNAMIC", "REAL", "Reduction", "Tracer", "extents", "loop_extents"]

"""A linalg op on buffers, as the vectorizer sees it: loops, operands as projections of the loops, and a scalar body."""

import functools
from collections.abc import Iterator
from dataclasses import dataclass

from ...dialects import build
from ...dialects.mlir import ir, memref
from ...dialects.tiling.structured import iterator_types, once
from ..rewriting import defining_op, ops_in, ops_of

DYNAMIC_STRIDE = ir.ShapedType.get_dynamic_stride_or_offset()
DYNAMIC_SIZE = ir.ShapedType.get_dynamic_size()


NO_LOOP = -1


class Unsupported(Exception):
    """Why an op cannot be vectorised; it is lowered to scalar loops instead."""


@dataclass
class Operand:
    """A buffer and the loop of each of its dimensions (NO_LOOP: always index 0); or a scalar, which has none."""

    number: int
    value: ir.Value
    dims: tuple[int, ...]
    is_scalar: bool
    is_output: bool
    is_read: bool
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()

    @functools.cached_property
    def element(self) -> ir.Type:
        return self.value.type if self.is_scalar else self.value.type.element_type

    @functools.cached_property
    def loops(self) -> frozenset[int]:
        return frozenset(d for d in self.dims if d != NO_LOOP)

    def stride_kind(self, loop: int) -> str:
        """How consecutive iterations of `loop` walk over the buffer: "none", "unit" or "strided"."""
        if loop not in self.loops:
            return "none"
        return "unit" if self.dims[-1] == loop and self.strides[-1] == 1 else "strided"


class Structured:
    """A linalg.generic on buffers; raises Unsupported where its maps are no projections."""

    def __init__(self, op: ir.Operation):
        self.op = op
        self.iterators = iterator_types(op)
        self.n_loops = len(self.iterators)
        self.body = op.regions[0].blocks[0]
        *self.body_ops, self.end = ops_of(self.body)
        self.reductions = [d for d, kind in enumerate(self.iterators) if kind != build.PARALLEL]
        n_inputs = len(op.operands) - len(self.end.operands)
        maps = once(_projections, op.attributes["indexing_maps"])
        described = zip(op.operands, maps, self.body.arguments, strict=True)
        self.operands = [
            _operand(number, value, dims, number >= n_inputs, bool(list(argument.uses)))
            for number, (value, dims, argument) in enumerate(described)
        ]
        self.outputs = self.operands[n_inputs:]
        self.sizes = [self._static_size(d) for d in range(self.n_loops)]  # None: dynamic
        for out in self.outputs:
            missing = set(range(self.n_loops)) - out.loops
            if any(self.is_parallel(d) for d in missing):
                raise Unsupported("a result that lacks a parallel loop")
            if missing and missing != set(self.reductions):
                raise Unsupported("a result that lacks some, but not all reduction loops")

    def _static_size(self, loop: int) -> int | None:
        sizes = [o.shape[o.dims.index(loop)] for o in self.operands if loop in o.dims]
        if not sizes:
            raise Unsupported(f"loop d{loop} whose size no operand tells")
        return next((size for size in sizes if size != DYNAMIC_SIZE), None)

    def is_parallel(self, loop: int) -> bool:
        return self.iterators[loop] == build.PARALLEL

    def is_accumulator(self, out: Operand) -> bool:
        """True if reduction loops run over one element of `out`."""
        return len(out.loops) < self.n_loops

    def size(self, loop: int) -> ir.Value:
        """The trip count of `loop` as an index value, at the insertion point."""
        size = self.sizes[loop]
        if size is not None:
            return build.index(size)
        for operand in self.operands:
            if loop in operand.loops:
                return memref.dim(operand.value, build.index(operand.dims.index(loop)))
        raise AssertionError("sizes were checked")

    def most(self, loop: int) -> int | None:
        """How far `loop` goes at most, if a size, or that of what an operand is a part of, tells."""
        for operand in self.operands:
            value = operand.value if loop in operand.loops else None
            while value is not None:
                size = value.type.shape[operand.dims.index(loop)]
                if size != DYNAMIC_SIZE:
                    return size
                made = defining_op(value)
                is_part = made is not None and made.name == "memref.subview"
                value = made.operands[0] if is_part and made.operands[0].type.rank == len(operand.dims) else None
        return None

    def element_types(self) -> list[ir.Type]:
        return [o.element for o in self.operands] + [r.type for o in self.body_ops for r in o.results]


def _operand(
    number: int, value: ir.Value, dims: tuple[int, ...] | ir.AffineMap, is_output: bool, is_read: bool
) -> Operand:
    kind = value.type
    if not isinstance(kind, ir.MemRefType):
        if isinstance(kind, ir.ShapedType):
            raise Unsupported(f"an operand of type {kind}")
        return Operand(number, value, (), True, is_output, is_read)
    if isinstance(dims, ir.AffineMap):
        raise Unsupported(f"an indexing map that is no projection: {dims}")
    strides, _ = kind.get_strides_and_offset()
    return Operand(number, value, dims, False, is_output, is_read, tuple(kind.shape), tuple(strides))


def _projections(maps: ir.ArrayAttr) -> list[tuple[int, ...] | ir.AffineMap]:
    """For each operand the loop of each of its dimensions, see `Operand`; its map where that is no projection."""
    return [_projection(ir.AffineMapAttr(attribute).value) for attribute in maps]


def _projection(map_: ir.AffineMap) -> tuple[int, ...] | ir.AffineMap:
    dims: list[int] = []
    for expr in map_.results:
        if isinstance(expr, ir.AffineDimExpr) and expr.position not in dims:
            dims.append(expr.position)
        elif isinstance(expr, ir.AffineConstantExpr) and expr.value == 0:
            dims.append(NO_LOOP)
        else:
            return map_
    return tuple(dims)


def structured_of(generic: ir.Operation) -> Structured | None:
    """None where it is Unsupported."""
    try:
        return Structured(generic)
    except Unsupported:
        return None


def reductions_in(op: ir.Operation) -> Iterator[Structured]:
    """The ops in `op` that reduce loops, one after the other; but those that are Unsupported."""
    for generic in ops_in(op, "linalg.generic"):
        structured = structured_of(generic) if "reduction" in iterator_types(generic) else None
        if structured is not None:
            yield structured

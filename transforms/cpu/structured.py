"""A linalg op on buffers, as the vectorizer sees it: loops, operands as projections of the loops, and a scalar body."""

import functools
from dataclasses import dataclass, field

from ...dialects import build
from ...dialects.mlir import ir, memref
from ...dialects.tiling.structured import iterator_types
from ..rewriting import defining_op, ops_of

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
    strides: list[int] = field(default_factory=list)

    @property
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
        view = op.opview
        self.op = op
        self.iterators = iterator_types(op)
        self.n_loops = len(self.iterators)
        self.body = op.regions[0].blocks[0]
        *self.body_ops, self.end = ops_of(self.body)
        n_inputs = len(view.inputs)
        self.operands = []
        for number, (value, attribute) in enumerate(zip(op.operands, op.attributes["indexing_maps"], strict=True)):
            self.operands.append(self._operand(number, value, attribute.value, number >= n_inputs))
        self.outputs = self.operands[n_inputs:]
        self.sizes: list[int | None] = [None] * self.n_loops  # None: dynamic
        for d in range(self.n_loops):
            self.sizes[d] = self._static_size(d)
        for out in self.outputs:
            missing = set(range(self.n_loops)) - out.loops
            if any(self.is_parallel(d) for d in missing):
                raise Unsupported("a result that lacks a parallel loop")
            reductions = {d for d in range(self.n_loops) if not self.is_parallel(d)}
            if missing and missing != reductions:
                raise Unsupported("a result that lacks some, but not all reduction loops")

    def _operand(self, number: int, value: ir.Value, map_: ir.AffineMap, is_output: bool) -> Operand:
        is_read = bool(list(self.body.arguments[number].uses))
        if not isinstance(value.type, ir.MemRefType):
            if isinstance(value.type, ir.ShapedType):
                raise Unsupported(f"an operand of type {value.type}")
            return Operand(number, value, (), True, is_output, is_read)
        dims: list[int] = []
        for expr in map_.results:
            expr = expr.maybe_downcast()
            if isinstance(expr, ir.AffineDimExpr) and expr.position not in dims:
                dims.append(expr.position)
            elif isinstance(expr, ir.AffineConstantExpr) and expr.value == 0:
                dims.append(NO_LOOP)
            else:
                raise Unsupported(f"an indexing map that is no projection: {map_}")
        strides, _ = value.type.get_strides_and_offset()
        return Operand(number, value, tuple(dims), False, is_output, is_read, list(strides))

    def _static_size(self, loop: int) -> int | None:
        for operand in self.operands:
            for position, d in enumerate(operand.dims):
                if d == loop and not operand.value.type.is_dynamic_dim(position):
                    return operand.value.type.get_dim_size(position)
        if all(loop not in o.loops for o in self.operands):
            raise Unsupported(f"loop d{loop} whose size no operand tells")
        return None

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


def structured_of(generic: ir.Operation) -> Structured | None:
    """None where it is Unsupported."""
    try:
        return Structured(generic)
    except Unsupported:
        return None

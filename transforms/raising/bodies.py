"""The regions of structured ops: what one yields in an iteration, and which reduction one is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...dialects.build import is_float8
from ...dialects.mlir import ir
from ...dialects.tiling.structured import FLOAT_CASTS
from ..rewriting import terminator
from .expressions import OF_BITS, REAL, ROUND, Expr, scalar_type
from .indices import Index, Opaque, mixed_radix
from .loops import extents

if TYPE_CHECKING:
    from .tracing import Tracer

SUMS = {"arith.addf": "sum", "arith.addi": "count", "arith.andi": "all", "arith.ori": "any"}
MAXIMA = {"arith.maximumf", "arith.maxnumf"}


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
        if op.name == "arith.bitcast" and kind == REAL and isinstance(op.operands[0].type, ir.IntegerType):
            return make.op(OF_BITS, (self.value(op.operands[0]),), REAL, (("type", ir.TypeAttr.get(value.type)),))
        if isinstance(value.type, ir.ShapedType) or op.name == "arith.bitcast":
            raise Opaque(f"'{op.name}' in a region")
        if op.name == "arith.truncf" and is_float8(value.type):
            return make.op(ROUND, (self.value(op.operands[0]),), REAL, (("type", ir.TypeAttr.get(value.type)),))
        return make.op(op.name, tuple(self.value(v) for v in op.operands), kind, _attributes(op))

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


def _attributes(op: ir.Operation) -> tuple[tuple[str, ir.Attribute], ...]:
    """Those that say what is computed, by name. Fast-math flags do not: numbers are real here."""
    names = (name if isinstance(name, str) else name.name for name in op.attributes)
    return tuple((name, op.attributes[name]) for name in sorted(names) if name not in ("fastmath", "overflowFlags"))


def combiner(op: ir.Operation, number: int) -> tuple[str, ir.Value | None]:
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
    return not isinstance(value.owner, ir.Block) and value.owner.operation.name in FLOAT_CASTS

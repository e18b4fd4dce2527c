"""Rewrites the body of a loop over tiles that has no matmul for threads that have one element of the tile each.

Used by ``outline-kernels`` where parts of the keys are merged: such loops wait for memory alone. A tile would keep 64
rows and 4 warps for a few live rows, on few multiprocessors; a thread with one element has registers for many parts at
once, and blocks are small and many.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from ....dialects import build
from ....dialects.mlir import arith, gpu, ir
from ....dialects.tiling.structured import all_parallel, dim_position, indexing_maps, is_structured
from ...copying import copy_scalar_body
from ...rewriting import defining_op, only_if, ops_in
from ...slices import slice_offsets
from ..axes import Axes, Axis, kept_dims
from ..marks import IS_THERE
from .tile_body import TileBody

THREADS = 64  # of a block: small ones, for more multiprocessors


def is_pointwise(forall: ir.Operation) -> bool:
    """Whether an element of the results depends on the same element of all tiles, or of their rows, alone."""
    ops = [op for op in ops_in(forall) if is_structured(op)]
    plain = all(op.name == "linalg.generic" and all_parallel(op) for op in ops)
    return plain and not any(dim_position(e) is None for op in ops for m in indexing_maps(op) for e in m.results)


def output_axes(axes: Axes, stores: Sequence[ir.Operation]) -> list[Axis]:
    """The axes of the results' tiles that have more than an element, each once."""
    found: list[Axis] = []
    for store in sorted(stores, key=lambda op: -op.operands[0].type.rank):
        value = store.operands[0]
        for axis in (axes.of(value, d) for d in range(value.type.rank)):
            if axis.extent > 1 and not any(axis is other for other in found):
                found.append(axis)
    return found


@dataclass
class PointBody(TileBody):
    """`values` of tiles are the thread's element; `number` is which one of the tile's it is."""

    elements: list[Axis] = field(default_factory=list)
    number: ir.Value | None = None

    @property
    def blocks(self) -> int:
        """How many blocks share a tile."""
        return -(-math.prod(axis.extent for axis in self.elements) // THREADS)

    def tile_of_block(self, block: ir.Value) -> ir.Value:
        """The number of the tile that a block works on; settles the thread's element of it."""
        count = build.index(self.blocks)
        within = arith.muli(arith.remui(block, count), build.index(THREADS))
        self.number = arith.addi(within, gpu.ThreadIdOp(ir.Attribute.parse("#gpu<dim x>")).result)
        return arith.divui(block, count)

    def position(self, axis: Axis) -> ir.Value:
        """Where the thread's element is along an axis; the last one runs fastest."""
        place = next((i for i, other in enumerate(self.elements) if other is axis), None)
        if place is None:
            return build.index(0)
        inner = math.prod(other.extent for other in self.elements[place + 1 :])
        number = arith.divui(self.number, build.index(inner)) if inner > 1 else self.number
        return arith.remui(number, build.index(axis.extent)) if place else number

    def is_inside(self) -> ir.Value:
        """Whether the thread has an element at all."""
        inside = build.constant(ir.IntegerType.get_signless(1), 1)
        for number, axis in enumerate(self.elements):
            if number and axis.size == axis.extent:
                continue  # a remainder
            within = arith.cmpi(arith.CmpIPredicate.slt, self.position(axis), self.index(axis.size))
            inside = arith.andi(inside, within)
        return inside

    # Tiles.

    def tile(self, value: ir.Value) -> ir.Value:
        if value in self.values:
            return self.values[value]
        splat, op = self._splat_behind(value), defining_op(value)
        kind = value.type.element_type
        if splat is not None:
            return arith.ConstantOp(kind, splat).result
        if op is not None and op.name == "tensor.empty":
            return build.constant(kind, 0)
        memory = self.memory(value)
        places = [self.index(o) if isinstance(o, int) else o for o in memory.offsets]
        for d in range(value.type.rank):
            if self.axes.of(value, d).extent > 1:
                places[memory.dims[d]] = arith.addi(places[memory.dims[d]], self.position(self.axes.of(value, d)))
        there = {IS_THERE: ir.UnitAttr.get()}  # a thread without an element does nothing
        self.values[value] = ir.Operation.create("memref.load", [kind], [memory.memref, *places], there).result
        return self.values[value]

    def store(self, op: ir.Operation) -> None:
        value, target = op.operands[0], self.memory(op.operands[1])
        new, places = self.tile(value), [self.index(o) for o in slice_offsets(op)]
        own = [self.axes.of(value, d) for d in range(value.type.rank)]
        for d, axis in zip(kept_dims(op, value.type), own, strict=True):
            if axis.extent > 1:
                places[d] = arith.addi(places[d], self.position(axis))
        first = build.constant(ir.IntegerType.get_signless(1), 1)
        for axis in self.elements:
            if not any(axis is other for other in own):  # of a row, the thread of its first column stores
                zero = arith.cmpi(arith.CmpIPredicate.eq, self.position(axis), build.index(0))
                first = arith.andi(first, zero)
        with only_if(first):
            ir.Operation.create("memref.store", [], [new, target.memref, *places])

    def _generic(self, op: ir.Operation) -> None:
        old, first = op.regions[0].blocks[0], len(op.operands) - len(op.results)
        known: dict[ir.Value, ir.Value] = {}
        for number, (argument, operand) in enumerate(zip(old.arguments, op.operands, strict=True)):
            if number >= first and not list(argument.uses):
                continue
            known[argument] = self.tile(operand) if isinstance(operand.type, ir.ShapedType) else self.scalar(operand)

        def position(loop: int) -> ir.Value:
            return self.position(self.axes.of_loop(op, loop))

        yielded = copy_scalar_body(old, known, self.scalar, position, self._extracted)
        self.values.update(zip(op.results, yielded, strict=True))

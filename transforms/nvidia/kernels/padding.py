"""Padding of tiles: what a kernel's tile has beyond the elements that are valid. Used by ``outline-kernels``.

Loads give 0 there, stores leave it out. What else an op makes of it must not reach a result: reductions take the
neutral element in its place, matmuls 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ....dialects import build
from ....dialects.mlir import arith, ir, linalg
from ....dialects.tiling.structured import dim_position, indexing_maps, iterator_types
from ...passes import PassError
from ...rewriting import defining_op, ops_of
from ..axes import BATCH, COLUMN, Axis, rows_first
from ..reductions import NEUTRAL


@dataclass
class Padding:
    """Rows are padded to a multiple of `rows`, columns of `columns`. `index`: a size as a value of the kernel."""

    rows: int
    columns: int
    index: Callable[[ir.Value | int], ir.Value]
    # Tiles whose padding along an axis is known to be 0.
    zero_padded: set[tuple[ir.Value, int]] = field(default_factory=set)

    def padded(self, axis: Axis) -> int:
        multiple = self.columns if axis.role == COLUMN else self.rows
        return -(-axis.rows // multiple) * multiple

    def has_padding(self, axis: Axis) -> bool:
        return not isinstance(axis.size, int) or axis.size != self.padded(axis)

    def _within(self, loop: int, axis: Axis) -> ir.Value:
        """In the body of a generic: whether the element is no padding along `loop`."""
        position = linalg.IndexOp(loop).result
        return arith.cmpi(arith.CmpIPredicate.slt, position, self.index(axis.size))

    def left_out(
        self, op: ir.Operation, block: ir.Block, axes: Sequence[Axis], kept: Sequence[int], results: Sequence[ir.Value]
    ) -> None:
        """In `block`, the new body of `op`, makes the elements of padding neutral for the reductions of a generic."""
        kinds = iterator_types(op)
        loops = [d for d in kept if kinds[d] == "reduction" and self.has_padding(axes[d])]
        if not loops:
            return
        terminator = ops_of(block)[-1]
        maps = indexing_maps(op)[len(op.operands) - len(op.results) :]
        for number, m in enumerate(maps):
            if any(dim_position(e) in loops for e in m.results):
                continue
            combiner = defining_op(terminator.operands[number])
            accumulator = block.arguments[len(op.operands) - len(op.results) + number]
            if combiner is None or combiner.name not in NEUTRAL or accumulator not in combiner.operands:
                raise PassError(f"expects a reduction that ends in one of {', '.join(NEUTRAL)}", op)
            at = 1 if combiner.operands[0] == accumulator else 0
            element = combiner.operands[at]
            with ir.InsertionPoint(combiner), op.location:
                inside = self._within(kept.index(loops[0]), axes[loops[0]])
                neutral = build.constant(element.type, NEUTRAL[combiner.name])
                chosen = arith.select(inside, element, neutral)
            combiner.operands[at] = chosen
            for other, value in enumerate(terminator.operands):
                if value == element:  # padding may hold anything, so also this
                    terminator.operands[other] = chosen
                    if NEUTRAL[combiner.name] == 0.0:
                        self.zero_padded.add((results[other], id(axes[loops[0]])))

    def zeroed(self, block: ir.Block, axes: Sequence[Axis], kept: Sequence[int]) -> None:
        """Makes padding of a right operand of a matmul 0, as it is where that is loaded."""
        terminator = ops_of(block)[-1]
        with ir.InsertionPoint(terminator), terminator.location:
            for i, d in enumerate(kept):
                if self.has_padding(axes[d]):
                    inside = self._within(i, axes[d])
                    for number, value in enumerate(terminator.operands):
                        terminator.operands[number] = arith.select(inside, value, build.constant(value.type, 0.0))

    def made_zero(self, op: ir.Operation, operand: ir.Value, m: ir.AffineMap, axes: Sequence[Axis]) -> ir.Value:
        """The left operand of a contraction with 0 where its k loop is padding. What is loaded is 0 there already."""
        kinds = iterator_types(op)
        for position, expression in enumerate(m.results):
            loop = dim_position(expression)
            axis = axes[loop] if loop is not None else Axis()
            if loop is None or kinds[loop] == "parallel" or axis.role == BATCH or not self.has_padding(axis):
                continue
            if self.is_zero(operand, axis):
                continue
            places = [dim_position(e) for e in m.results]
            kept = rows_first((p, axes[d]) for p, d in enumerate(places) if d is not None)
            n = len(kept)
            identity = build.projection(n, range(n))
            at = kept.index(position)

            def select(x: ir.Value, _: ir.Value, at: int = at, axis: Axis = axis) -> ir.Value:
                return arith.select(self._within(at, axis), x, build.constant(x.type, 0.0))

            empty = build.empty(operand.type.shape, operand.type.element_type)
            (operand,) = build.generic([operand], [empty], [identity] * 2, [build.PARALLEL] * n, select)
        return operand

    def is_zero(self, value: ir.Value, axis: Axis) -> bool:
        """Through casts and products with what does not change 0."""
        op = defining_op(value)
        if op is None:
            return False
        if op.name == "tile.load" or (value, id(axis)) in self.zero_padded:
            return True
        if op.name != "linalg.generic" or len(op.results) != 1:
            return False
        block = op.regions[0].blocks[0]
        body = ops_of(block)
        if (
            len(body) == 2
            and body[0].name in ("arith.truncf", "arith.extf")
            and body[0].operands[0] == block.arguments[0]
        ):
            return self.is_zero(op.operands[0], axis)
        return False

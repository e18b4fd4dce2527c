"""The pass ``stage-operands``."""

from __future__ import annotations

from dataclasses import dataclass

from ...dialects.mlir import ir
from ...dialects.tile import ConvertLayoutOp, LoadOp, layout_of, with_layout
from ..attention import is_contraction
from ..passes import Pass, remark
from ..rewriting import ops_in, ops_of
from .bulk_copies import bulk_copies, bulk_copy


@dataclass(frozen=True)
class StageOperands(Pass):
    """Tiles that element-wise ops take from memory come through shared memory, ahead of use::

        %b = tile.load(%bias, %i, %j, …) : … -> tensor<128x128xbf16, "fragment">
        %t = linalg.generic … ins(%s, %b) …                                              { s · c + b }
      becomes
        %h = tile.load(%bias, %i, %j, …) : … -> tensor<128x128xbf16, "shared">
        %b = tile.convert_layout %h : … -> tensor<128x128xbf16, "fragment">
        %t = linalg.generic … ins(%s, %b) …

    From memory each thread would load its elements one by one, when it needs them. In shared memory they are where the
    keys are, by the copy engine, a tile ahead (``specialize-warps``), and matrices of 8 × 8 come to their threads with
    one instruction. For kernels all of whose other loads to shared memory that engine does, and tiles that it can copy.

    What it cannot copy (rows that are not aligned to 16 bytes) is loaded by each thread, but before the first matmul of
    the iteration, under which the loads are on their way.
    """

    def run(self, op: ir.Operation) -> None:
        for kernel in ops_in(op, "gpu.func"):
            if not bulk_copies(kernel):
                continue
            for load in ops_in(kernel, "tile.load"):
                if layout_of(load.results[0].type) == "fragment":
                    _stage(load, kernel)


def _stage(load: ir.Operation, kernel: ir.Operation) -> None:
    view, kind = load.opview, load.results[0].type
    with ir.InsertionPoint(load), load.location:
        staged = LoadOp(view.memory, view.indices, load.attributes["dims"], result=with_layout(kind, "shared"))
        converted = ConvertLayoutOp(staged.result, result=kind)
    if bulk_copy(staged.operation, kernel) is None:
        remark(load, "a tile that the copy engine cannot bring is loaded by each thread, element by element")
        converted.operation.erase()
        staged.operation.erase()
        _hoist(load)
        return
    load.results[0].replace_all_uses_with(converted.result)
    load.erase()


def _hoist(load: ir.Operation) -> None:
    """Moves a load, and what its place is computed from, before the first matmul of its block."""
    ops = ops_of(load.block)
    first = next((o for o in ops if is_contraction(o)), None)
    if first is None or ops.index(load) < ops.index(first):
        return
    moved = [load]
    for op in reversed(ops[ops.index(first) : ops.index(load)]):
        if any(v in moved_op.operands for v in op.results for moved_op in moved):
            if op == first or len(op.regions) or any(isinstance(v.type, ir.ShapedType) for v in op.results):
                return
            moved.append(op)
    for op in reversed(moved):
        op.move_before(first)

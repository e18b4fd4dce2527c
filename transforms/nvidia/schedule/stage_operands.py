"""The pass ``stage-operands``."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ....dialects import build
from ....dialects.mlir import ir
from ....dialects.tile import ConvertLayoutOp, LoadOp, RowShiftsOp, dims_attribute, dims_of, layout_of, with_layout
from ...attention import is_matmul
from ...linear import divisor
from ...passes import Pass, remark
from ...rewriting import ops_in, ops_of
from ..alignment import CHUNK
from ..architecture import TILE_MEMORY
from ..axes import DYNAMIC
from ..elements import byte_width
from .bulk_copies import ROWS, bulk_copies, copy_of
from .rings import rings_of


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

    Rows that are not aligned to 16 bytes, or columns that begin anywhere, are copied by threads beside the engine, as
    they stand in memory but for multiples of 16 bytes ("skewed"); those that compute find their elements by how far
    each row is shifted::

        %h = tile.load(%bias, %i, %j, …) : … -> tensor<128x128xbf16, "skewed">
        %s = tile.row_shifts(%bias, %i, 0) {dim = 0, aligned = 2} : … -> tensor<128xi32, "row">
        %b = tile.convert_layout %h at %s : … -> tensor<128x128xbf16, "fragment">

    Floats that change along columns alone, as biases of keys and, in derivatives, statistics of rows that are columns
    there, are the first row of a tile::

        %c = tile.load(%vector, %b, %j, …) : … -> tensor<64xf32, "column">
      becomes
        %h = tile.load(%vector, %b, %j, …) : … -> tensor<8x64xf32, "shared">       // one row is copied
        %c = tile.convert_layout %h : … -> tensor<64xf32, "column">

    What is not copied (keys that stand apart; tiles that shared memory does not hold beside those of matmuls) is loaded
    by each thread, but before the first matmul of the iteration, under which the loads are on their way.
    """

    def run(self, op: ir.Operation) -> None:
        for kernel in ops_in(op, "gpu.func"):
            if not bulk_copies(kernel):
                continue
            for load in ops_in(kernel, "tile.load"):
                layout = layout_of(load.results[0].type)
                if layout == "fragment":
                    _stage(load, kernel)
                elif layout == "column" and not _stage_column(load, kernel):
                    _hoist(load)


def _stage(load: ir.Operation, kernel: ir.Operation) -> None:
    kind = load.results[0].type
    reason = "that the copy engine cannot bring"
    for layout in ("shared", "skewed"):
        with ir.InsertionPoint(load), load.location:
            view = load.opview
            staged = LoadOp(view.memory, view.indices, load.attributes["dims"], result=with_layout(kind, layout))
            copies = bulk_copies(kernel)  # with this one
            if copies is not None and sum(ring.bytes for ring in rings_of(copies)) <= TILE_MEMORY:
                shifts = [_shifts(staged.operation)] if layout == "skewed" else []
                converted = ConvertLayoutOp(staged.result, shifts, result=kind)
                load.results[0].replace_all_uses_with(converted.result)
                load.erase()
                return
        staged.operation.erase()
        if copies is not None:
            reason = "that shared memory does not hold"
    remark(load, f"a tile {reason} is loaded by each thread, element by element")
    _hoist(load)


def _stage_column(load: ir.Operation, kernel: ir.Operation) -> bool:
    """Has the copy engine bring what changes along columns alone, as the first row of a tile of `ROWS`; whether it
    can."""
    view, kind = load.opview, load.results[0].type
    rank, dims = view.memory.type.rank, dims_of(view)
    element = kind.element_type
    if not isinstance(element, ir.FloatType) or element.width < 16 or load.parent.operation.name != "scf.for":
        return False
    if rank < 2 or dims != [rank - 1]:
        return False
    tile = ir.RankedTensorType.get([ROWS, *kind.shape], kind.element_type, ir.StringAttr.get("shared"))
    with ir.InsertionPoint(load), load.location:
        *offsets, size = view.indices
        along = dims_attribute([rank - 2, rank - 1])
        staged = LoadOp(view.memory, [*offsets, build.index(1), size], along, result=tile)
        converted = ConvertLayoutOp(staged.result, [], result=kind)
        if copy_of(staged.operation, kernel) is None:
            converted.operation.erase()
            staged.operation.erase()
            return False
    load.results[0].replace_all_uses_with(converted.result)
    load.erase()
    return True


def _shifts(load: ir.Operation) -> ir.Value:
    """How far rows of a tile are shifted: columns that begin at a multiple of 16 bytes, as mostly, do not tell."""
    view, kind = load.opview, load.results[0].type
    memory, width = view.memory.type, byte_width(kind.element_type)
    rank, last = memory.rank, memory.shape[-1]
    column = view.indices[rank - 1]
    if width * divisor(column) % CHUNK == 0:
        column = build.index(0)
    aligned = width if last == DYNAMIC else math.gcd(CHUNK // 2, width * last, width * divisor(column))
    offsets = [*view.indices[: rank - 1], column]
    rows = ir.RankedTensorType.get([kind.shape[0]], ir.IntegerType.get_signless(32), ir.StringAttr.get("row"))
    integer = ir.IntegerType.get_signless(64)
    dim, known = (ir.IntegerAttr.get(integer, n) for n in (dims_of(view)[0], aligned))
    return RowShiftsOp(view.memory, offsets, dim, known, result=rows).result


def _hoist(load: ir.Operation) -> None:
    """Moves a load, and what its place is computed from, before the first matmul of its block."""
    ops = ops_of(load.block)
    first = next((o for o in ops if is_matmul(o)), None)
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

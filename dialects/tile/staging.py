"""Tiles on their way through shared memory: ``tile.copy_async`` and its groups, ``tile.view``.

    %buffer = memref.alloc() : memref<2x128x64xf16, #gpu.address_space<workgroup>>      # two stages
    tile.copy_async(%m, %buffer, %stage, %b, %i, %c0, %n, %c64) {dims = [1, 2]} : …
    tile.commit_copies                                  # all copies since the last commit are one group
    tile.wait_copies {pending = 0 : i64}                # until at most 0 groups are under way; then gpu.barrier
    %t = tile.view %buffer[%stage] : … -> tensor<128x64xf16, "shared">

Every thread copies a part and waits for its own copies; after a barrier the whole tile is there.
"""

from collections.abc import Sequence
from typing import Any

from ..mlir import ext, ir
from ..verification import expect, verifier, verify_declared
from .dialect import (
    Tile,
    argument,
    arguments_from,
    expect_accesses,
    expect_arguments,
    expect_memory,
    expect_tile,
    layout_of,
)


def staged_tile(kind: ir.MemRefType, layout: str = "shared") -> ir.RankedTensorType:
    """The type of one stage of a buffer."""
    with ir.Location.unknown(kind.context):
        return ir.RankedTensorType.get(kind.shape[1:], kind.element_type, ir.StringAttr.get(layout))


def verify_copy(op: ir.OpView) -> None:
    expect_arguments(op, 2)
    expect_memory("the source", op.memory.type)
    expect_memory("the buffer", op.staged.type)
    expect_accesses(op, op.memory.type, staged_tile(op.staged.type), leading=1)


class CopyAsyncOp(Tile.Operation, name="copy_async"):
    """See the module. Indices: the stage, then those of `tile.load`."""

    source: ext.Operand[Any]
    buffer: ext.Operand[Any]
    places: Sequence[ext.Operand[Any]]
    dims: ir.ArrayAttr

    assembly_format = "`(` $source `,` $buffer `,` $places `)` attr-dict `:` functional-type"
    verify_invariants = staticmethod(verifier(verify_copy))
    memory = argument(0)
    staged = argument(1)
    indices = arguments_from(2)


def verify_store_shared(op: ir.OpView) -> None:
    expect_tile("the tile", op.tile.type)
    expect_memory("the buffer", op.buffer.type)
    stage, tile = staged_tile(op.buffer.type), op.tile.type
    expect(layout_of(tile) == "spread", f"expects a tile that is spread over the threads, but found {tile}")
    same = tile.shape == stage.shape and tile.element_type == stage.element_type
    expect(same, f"expects the shape and element type of one stage, {stage}, but found {tile}")


class StoreSharedOp(Tile.Operation, name="store_shared"):
    """Computes a tile into a stage of a buffer: it is there after a barrier."""

    tile: ext.Operand[Any]
    buffer: ext.Operand[Any]
    stage: ext.Operand[Any]

    assembly_format = "$tile `,` $buffer `[` $stage `]` attr-dict `:` functional-type"
    verify_invariants = staticmethod(verifier(verify_store_shared))


class CommitCopiesOp(Tile.Operation, name="commit_copies"):
    """See the module."""

    assembly_format = "attr-dict"
    verify_invariants = staticmethod(verify_declared)


class WaitCopiesOp(Tile.Operation, name="wait_copies"):
    """See the module."""

    pending: ir.IntegerAttr

    assembly_format = "attr-dict"
    verify_invariants = staticmethod(verify_declared)


def verify_wait_matmuls(op: ir.OpView) -> None:
    expect_tile("the value", op.value.type)
    expect(op.value.type == op.result.type, f"expects the value's type {op.value.type}, but found {op.result.type}")


class WaitMatmulsOp(Tile.Operation, name="wait_matmuls"):
    """The result of a matmul marked ``tile.async``, as soon as at most `pending` later ones are under way."""

    value: ext.Operand[Any]
    pending: ir.IntegerAttr
    result: ext.Result[Any]

    assembly_format = "$value attr-dict `:` functional-type"
    verify_invariants = staticmethod(verifier(verify_wait_matmuls))


def verify_view(op: ir.OpView) -> None:
    expect_memory("the buffer", op.buffer.type)
    expect_tile("the result", op.result.type)
    layout = layout_of(op.result.type)
    expect(layout in ("shared", "paired", "skewed"), f"expects a tile in shared memory, but found {op.result.type}")
    wanted = staged_tile(op.buffer.type, layout or "shared")
    expect(wanted == op.result.type, f"expects the type of one stage, {wanted}, but found {op.result.type}")


class ViewOp(Tile.Operation, name="view"):
    """See the module."""

    buffer: ext.Operand[Any]
    stage: ext.Operand[Any]
    result: ext.Result[Any]

    assembly_format = "$buffer `[` $stage `]` attr-dict `:` functional-type"
    verify_invariants = staticmethod(verifier(verify_view))

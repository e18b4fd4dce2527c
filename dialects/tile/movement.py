"""``tile.load``, ``tile.store``, ``tile.row_shifts``, ``tile.convert_layout``, ``tile.scale`` and ``tile.copy_piece``.

    %t = tile.load(%m, %b, %i, %c0, %n, %c64) {dims = [1, 2]}
           : (memref<4x1000x64xf16, strided<[?, ?, 1]>>, …) -> tensor<128x64xf16>
    tile.store(%t, %m, %b, %i, %c0, %n, %c64) {dims = [1, 2]} : …

The indices after the memref are an offset for each of its dimensions, then for each dimension of the tile how many
elements along it are valid. `dims` says which dimension of the memref each of the tile's runs along, -1: the tile
is the same all along it. Several dimensions of the memref can be joined to one of the tile, the outermost one first,
each with how many elements of it: ``dims = [[[1, 4], [2, 16]], 3]``, row r is r div 16 along dimension 1, and r mod 16
along dimension 2. A load reads 0 for what is not valid; a store leaves it alone.
"""

from collections.abc import Sequence
from typing import Any

from ..mlir import ext, ir
from ..verification import expect, verifier
from .dialect import (
    Tile,
    argument,
    arguments_from,
    expect_accesses,
    expect_arguments,
    expect_indices,
    expect_memory,
    expect_tile,
    layout_of,
)


def verify_load(op: ir.OpView) -> None:
    expect_arguments(op, 1)
    expect_memory("the source", op.memory.type)
    expect_tile("the result", op.result.type)
    expect_accesses(op, op.memory.type, op.result.type)


class LoadOp(Tile.Operation, name="load", traits=[ext.Pure]):
    """See the module. Pure: what a kernel loads from no thread of it stores to."""

    source: ext.Operand[Any]
    places: Sequence[ext.Operand[Any]]
    dims: ir.ArrayAttr
    result: ext.Result[Any]

    assembly_format = "`(` $source `,` $places `)` attr-dict `:` functional-type"
    verify_invariants = staticmethod(verifier(verify_load))
    memory = argument(0)
    indices = arguments_from(1)


def verify_store(op: ir.OpView) -> None:
    expect_arguments(op, 2)
    expect_tile("the value", op.tile.type)
    expect_memory("the target", op.memory.type)
    expect_accesses(op, op.memory.type, op.tile.type)


class StoreOp(Tile.Operation, name="store"):
    """See the module."""

    value: ext.Operand[Any]
    target: ext.Operand[Any]
    places: Sequence[ext.Operand[Any]]
    dims: ir.ArrayAttr

    assembly_format = "`(` $value `,` $target `,` $places `)` attr-dict `:` functional-type"
    verify_invariants = staticmethod(verifier(verify_store))
    tile = argument(0)
    memory = argument(1)
    indices = arguments_from(2)


def verify_row_shifts(op: ir.OpView) -> None:
    expect_arguments(op, 1)
    expect_memory("the source", op.memory.type)
    rank, dim, aligned = op.memory.type.rank, op.dim.value, op.aligned.value
    expect_indices(op, rank, " (offsets)")
    expect(0 <= dim < rank - 1, f"expects dim to be one of {rank} dimensions, and not the last, but found {dim}")
    expect(aligned in (1, 2, 4, 8), f"expects an alignment of 1, 2, 4 or 8 bytes, but found {aligned}")
    kind = op.result.type
    expect(
        isinstance(kind, ir.RankedTensorType) and kind.rank == 1 and _is_shifts(kind, kind.shape[0]),
        f"expects a tensor of i32 and layout row, but found {kind}",
    )


class RowShiftsOp(Tile.Operation, name="row_shifts", traits=[ext.Pure]):
    """By how many bytes rows of a memref, along its dimension `dim`, begin behind a multiple of 16 bytes::

        %s = tile.row_shifts (%m, %b, %i, %c0) {dim = 1 : i64, aligned = 2 : i64}
            : (memref<4x1000x63xf16, strided<[?, ?, 1]>>, index, index, index) -> (tensor<64xi32, "row">)

    They are known to be multiples of `aligned` bytes.
    """

    source: ext.Operand[Any]
    places: Sequence[ext.Operand[Any]]
    dim: ir.IntegerAttr
    aligned: ir.IntegerAttr
    result: ext.Result[Any]

    assembly_format = "`(` $source `,` $places `)` attr-dict `:` functional-type"
    verify_invariants = staticmethod(verifier(verify_row_shifts))
    memory = argument(0)
    indices = arguments_from(1)


def verify_convert_layout(op: ir.OpView) -> None:
    expect_tile("the value", op.value.type)
    expect_tile("the result", op.result.type)
    value, result = op.value.type, op.result.type
    is_first_row = layout_of(value) == "shared" and layout_of(result) == "column" and value.shape[1:] == result.shape
    expect(
        (value.shape == result.shape or is_first_row) and value.element_type == result.element_type,
        f"expects value and result to differ in their layout alone, but found {value} and {result}",
    )
    wanted, shifts = int(layout_of(value) == "skewed"), op.shifts
    expect(
        len(shifts) == wanted and all(_is_shifts(v.type, value.shape[0]) for v in shifts),
        f"expects {wanted} tensors of i32 and layout row, one for each row, but found {[str(v.type) for v in shifts]}",
    )


def _is_shifts(kind: ir.Type, rows: int) -> bool:
    known = isinstance(kind, ir.RankedTensorType) and str(kind.element_type) == "i32" and layout_of(kind) == "row"
    return known and kind.shape == [rows]


class ConvertLayoutOp(Tile.Operation, name="convert_layout", traits=[ext.Pure]):
    """The same tile in another layout; from "shared" to "column" the first row of a tile; from "skewed", by the shifts
    of its rows::

    %f = tile.convert_layout %t at %shifts
        : (tensor<64x128xbf16, "skewed">, tensor<64xi32, "row">) -> (tensor<64x128xbf16, "fragment">)
    """

    source: ext.Operand[Any]
    of_rows: Sequence[ext.Operand[Any]]
    result: ext.Result[Any]

    assembly_format = "$source ( `at` $of_rows^ )? attr-dict `:` functional-type"
    verify_invariants = staticmethod(verifier(verify_convert_layout))
    value = argument(0)
    shifts = arguments_from(1)


def verify_scale(op: ir.OpView) -> None:
    expect_tile("the value", op.value.type)
    expect(op.value.type == op.result.type, f"expects a result of type {op.value.type}, but found {op.result.type}")
    bits, layout = op.value.type.element_type.width, layout_of(op.value.type)
    fits = bits == 16 and layout in ("shared", "operand_a")
    expect(fits, f"expects a left operand of a matmul of 16 bits, but found {op.value.type}")


class ScaleOp(Tile.Operation, name="scale"):
    """A left operand of matmuls times 2 to the power of `exponent`. One in shared memory changes in its place, and is
    what it was no more; each warpgroup scales its own 64 rows, and waits for no other one."""

    value: ext.Operand[Any]
    exponent: ir.IntegerAttr
    result: ext.Result[Any]

    assembly_format = "$value attr-dict `:` functional-type"
    verify_invariants = staticmethod(verifier(verify_scale))


def verify_copy_piece(op: ir.OpView) -> None:
    expect_arguments(op, 2)
    expect_memory("the source", op.memory.type)
    expect_memory("the target", op.copy.type)
    memory, copy = op.memory.type, op.copy.type
    expect(
        memory.element_type == copy.element_type,
        f"expects source and target to have one element type, but found {memory.element_type} and {copy.element_type}",
    )
    expect_indices(op, memory.rank + copy.rank + 1, " (two places, how many are valid)")
    known = isinstance(memory.element_type, ir.FloatType | ir.IntegerType)
    expect(known, f"expects elements that are floats or integers, but found {memory.element_type}")
    least, aligned = max(memory.element_type.width // 8, 1), op.aligned.value
    expect(
        aligned in (1, 2, 4, 8, 16) and aligned >= least,
        f"expects an alignment of 1, 2, 4, 8 or 16 bytes, at least those of {memory.element_type}, but found {aligned}",
    )


class CopyPieceOp(Tile.Operation, name="copy_piece"):
    """What one thread does: 16 bytes of a row go to another memref, to a place that is a multiple of 16 bytes::

        tile.copy_piece (%m, %p, %i, %j, %i, %j, %left) {aligned = 2 : i64}
            : (memref<?x33xf16, strided<[?, 1]>>, memref<?x40xf16>, …) -> ()

    The indices are an offset for each dimension of the source, for each of the target, and how many elements are valid
    from there on, one at least: where they are fewer than fill 16 bytes, 0 follows, and no more is read. Both have
    dense rows; the source's place is a multiple of `aligned` bytes.
    """

    source: ext.Operand[Any]
    target: ext.Operand[Any]
    places: Sequence[ext.Operand[Any]]
    aligned: ir.IntegerAttr

    assembly_format = "`(` $source `,` $target `,` $places `)` attr-dict `:` functional-type"
    verify_invariants = staticmethod(verifier(verify_copy_piece))
    memory = argument(0)
    copy = argument(1)
    indices = arguments_from(2)

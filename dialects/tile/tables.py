"""Constants in shared memory, which take work from the units that kernels wait for.

    %t = memref.alloc() : memref<8192xi32, #gpu.address_space<workgroup>>
    tile.fill_exp2 %t : …                                  # by all threads; then comes gpu.barrier

    %p = tile.exp2(%x, %t) {bound = 44 : i64, share = 6 : i64} : …     # an element, in the body of a linalg.generic

A table has what makes 2^x of x in a few instructions: see transforms/nvidia/code/exponentials.py.

    %n = memref.alloc() : memref<1x16x64xf16, #gpu.address_space<workgroup>>
    tile.fill_ones %n : …                                  # the same

    %w = tile.append_ones(%v, %n) : (tensor<64x64xf16, "shared">, …) -> tensor<64x72xf16, "shared">
    %o = linalg.generic … ins(%p, %w) …                    # a matmul: columns 64 to 71 are sums of the rows of %p
    %r, %l = tile.split_sums %o : … -> tensor<128x64xf32, "fragment">, tensor<128xf32, "row">

Columns of ones make a matmul give the sums of its left operand's rows.
"""

from typing import Any

from ..mlir import ext, ir
from ..verification import expect, verifier
from .dialect import Tile, expect_memory, expect_tile, with_layout

EXP2_WORDS = 8192  # of the table
SHARES = 8
ONES = 8  # columns of ones: as few as a matmul's instruction can have more
ONE_ROWS, ONE_COLUMNS = 16, 64  # of a buffer of ones: what an instruction reads, in rows of 128 bytes


def expect_table(name: str, kind: ir.Type) -> None:
    expect_memory(name, kind)
    fits = kind.rank == 1 and kind.shape[0] == EXP2_WORDS and str(kind.element_type) == "i32"
    expect(fits, f"expects {name} to be a memref of {EXP2_WORDS} words of 32 bits, but found {kind}")


class FillExp2Op(Tile.Operation, name="fill_exp2"):
    """Makes the table of ``tile.exp2``. Then comes gpu.barrier."""

    table: ext.Operand[Any]

    assembly_format = "$table attr-dict `:` functional-type"
    verify_invariants = staticmethod(verifier(lambda op: expect_table("the table", op.table.type)))


def verify_exp2(op: ir.OpView) -> None:
    kind = op.operands[0].type
    expect(str(kind) == "f32", f"expects an element of f32, but found {kind}")
    expect_table("the table", op.operands[1].type)
    expect(op.results[0].type == kind, f"expects a result of type {kind}, but found {op.results[0].type}")
    share = op.share.value
    expect(1 <= share <= SHARES, f"expects a share from 1 to {SHARES}, but found {share}")


class Exp2Op(Tile.Operation, name="exp2", traits=[ext.Pure]):
    """2 to the power of an element: of `share` in eight elements of a thread by the table, of the others by the special
    unit. It is the sum of a number of its row and one that is within ±`bound`, if that is not negative."""

    element: ext.Operand[Any]
    table: ext.Operand[Any]
    share: ir.IntegerAttr
    bound: ir.IntegerAttr
    result: ext.Result[Any]

    assembly_format = "`(` $element `,` $table `)` attr-dict `:` functional-type"
    verify_invariants = staticmethod(verifier(verify_exp2))


def with_sums(kind: ir.RankedTensorType) -> ir.RankedTensorType:
    """The type of a tile with columns of ones, or of the sums that they give."""
    with ir.Location.unknown(kind.context):
        return ir.RankedTensorType.get([kind.shape[0], kind.shape[1] + ONES], kind.element_type, kind.encoding)


def expect_ones(name: str, kind: ir.Type) -> None:
    expect_memory(name, kind)
    fits = list(kind.shape) == [1, ONE_ROWS, ONE_COLUMNS] and str(kind.element_type) in ("f16", "bf16")
    expect(fits, f"expects {name} to be a memref<1x{ONE_ROWS}x{ONE_COLUMNS}> of f16 or bf16, but found {kind}")


class FillOnesOp(Tile.Operation, name="fill_ones"):
    """Makes the ones of ``tile.append_ones``. Then comes gpu.barrier."""

    ones: ext.Operand[Any]

    assembly_format = "$ones attr-dict `:` functional-type"
    verify_invariants = staticmethod(verifier(lambda op: expect_ones("the ones", op.ones.type)))


def verify_append_ones(op: ir.OpView) -> None:
    tile, ones = (v.type for v in op.operands)
    expect_tile("the tile", tile)
    expect_ones("the ones", ones)
    fits = list(tile.shape)[1:] == [ONE_COLUMNS] and tile.element_type == ones.element_type
    expect(fits, f"expects a tile of {ONE_COLUMNS} columns of {ones.element_type}, but found {tile}")
    wanted = with_sums(tile)
    expect(op.results[0].type == wanted, f"expects a result of type {wanted}, but found {op.results[0].type}")


class AppendOnesOp(Tile.Operation, name="append_ones", traits=[ext.Pure]):
    """A tile of k × n in shared memory, rows of n side by side, with columns of ones behind its own."""

    tile: ext.Operand[Any]
    ones: ext.Operand[Any]
    result: ext.Result[Any]

    assembly_format = "`(` $tile `,` $ones `)` attr-dict `:` functional-type"
    verify_invariants = staticmethod(verifier(verify_append_ones))


def verify_split_sums(op: ir.OpView) -> None:
    kind = op.operands[0].type
    expect_tile("the tile", kind)
    rest, sums = (r.type for r in op.results)
    expect_tile("the first result", rest)
    fits = rest.rank == 2 and with_sums(rest) == kind
    expect(fits, f"expects a first result with {ONES} columns less than {kind}, but found {rest}")
    with ir.Location.unknown(kind.context):
        wanted = with_layout(ir.RankedTensorType.get(list(kind.shape)[:1], kind.element_type), "row")
    expect(sums == wanted, f"expects a second result of type {wanted}, but found {sums}")


class SplitSumsOp(Tile.Operation, name="split_sums", traits=[ext.Pure]):
    """A matmul's columns by a tile's own, and what those by its ones are: the sums of the left operand's rows."""

    tile: ext.Operand[Any]
    result: ext.Result[Any]
    sums: ext.Result[Any]

    assembly_format = "$tile attr-dict `:` functional-type"
    verify_invariants = staticmethod(verifier(verify_split_sums))

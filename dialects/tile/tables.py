"""Functions of elements by tables in shared memory, beside the special unit.

    %t = memref.alloc() : memref<8192xi32, #gpu.address_space<workgroup>>
    tile.fill_exp2 %t : …                                  # by all threads; then comes gpu.barrier

    %p = tile.exp2(%x, %t) {bound = 44 : i64, share = 6 : i64} : …     # an element, in the body of a linalg.generic

A table has what makes 2^x of x in a few instructions: see transforms/nvidia/exponentials.py.
"""

from typing import Any

from ..mlir import ext, ir
from ..verification import expect, verifier
from .dialect import Tile, expect_memory

EXP2_WORDS = 8192  # of the table
SHARES = 8


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

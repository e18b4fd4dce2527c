"""``pair.view``, ``pair.pack``, ``pair.widen``, ``pair.exp2`` and ``pair.product``.

%w = pair.view %m : (memref<8x64xbf16, strided<[64, 1], offset: ?>>) -> (memref<8x32xi32, strided<[32, 1]>>)
%w = pair.pack %x, %y : (f32, f32) -> (i32)          # both rounded to bf16; %x is the lower half
%w = pair.widen %h {element = f8E4M3FN} : (i16) -> (i32)   # two floats of 8 bits, as bf16
%w = pair.exp2 %x, %y : (f32, f32) -> (i32)          # 2ˣ and 2ʸ as bf16, of numbers below 1
%p = pair.product %a, %b : (i32, i32) -> (f32)       # of the lower halves, plus that of the upper ones
"""

from typing import Any

from ..build import is_float8
from ..mlir import ext, ir
from ..verification import expect, verifier
from .dialect import Pair, expect_f32, expect_half, expect_word


def verify_view(op: ir.OpView) -> None:
    source, words = op.source.type, op.words.type
    for name, kind in (("the source", source), ("the result", words)):
        expect(isinstance(kind, ir.MemRefType), f"expects {name} to be a memref, but found {kind}")
    is_half = is_float8(source.element_type)
    expect(
        isinstance(source.element_type, ir.BF16Type) or is_half,
        f"expects a source of bf16 or floats of 8 bits, but found {source.element_type}",
    )
    (expect_half if is_half else expect_word)("the result's element", words.element_type)
    expect(
        source.rank >= 1 and not source.is_dynamic_dim(source.rank - 1) and source.shape[-1] % 2 == 0,
        f"expects a source with an even number of elements in its rows, but found {source}",
    )
    expect(
        list(words.shape) == [*source.shape[:-1], source.shape[-1] // 2],
        f"expects a result of the source's shape with half its last dimension, but found {words} for {source}",
    )


class ViewOp(Pair.Operation, name="view", traits=[ext.Pure]):
    """The same memory, word by word, of 16 bits where its elements have 8.

    Rows are contiguous, and an even number of elements apart.
    """

    source: ext.Operand[Any]
    words: ext.Result[Any]

    assembly_format = "$source attr-dict `:` functional-type"
    verify_invariants = staticmethod(verifier(verify_view))


def verify_pack(op: ir.OpView) -> None:
    expect_f32("the lower half", op.low.type)
    expect_f32("the upper half", op.high.type)
    expect_word("the result", op.word.type)


class PackOp(Pair.Operation, name="pack", traits=[ext.Pure]):
    """Two numbers, each rounded to bf16, as a word."""

    low: ext.Operand[Any]
    high: ext.Operand[Any]
    word: ext.Result[Any]

    assembly_format = "$low `,` $high attr-dict `:` functional-type"
    verify_invariants = staticmethod(verifier(verify_pack))


def verify_widen(op: ir.OpView) -> None:
    expect_half("the source", op.half.type)
    expect(is_float8(op.element.value), f"expects element to be a float of 8 bits, but found {op.element.value}")
    expect_word("the result", op.word.type)


class WidenOp(Pair.Operation, name="widen", traits=[ext.Pure]):
    """A word of two floats of 8 bits as one of bf16, which has all of their numbers."""

    element: ir.TypeAttr
    half: ext.Operand[Any]
    word: ext.Result[Any]

    assembly_format = "$half attr-dict `:` functional-type"
    verify_invariants = staticmethod(verifier(verify_widen))


class Exp2Op(Pair.Operation, name="exp2", traits=[ext.Pure]):
    """Powers of two of numbers below 1, as a word: to about bf16's accuracy, 0 where they are subnormal.

    What is no number gives NaN, or more than 2⁶⁴, so that of a sum that it is part of this can be told.
    """

    low: ext.Operand[Any]
    high: ext.Operand[Any]
    word: ext.Result[Any]

    assembly_format = "$low `,` $high attr-dict `:` functional-type"
    verify_invariants = staticmethod(verifier(verify_pack))


def verify_product(op: ir.OpView) -> None:
    expect_word("the left factor", op.left.type)
    expect_word("the right factor", op.right.type)
    expect_f32("the result", op.sum.type)


class ProductOp(Pair.Operation, name="product", traits=[ext.Pure]):
    """The sum of the products of two pairs, in f32."""

    left: ext.Operand[Any]
    right: ext.Operand[Any]
    sum: ext.Result[Any]

    assembly_format = "$left `,` $right attr-dict `:` functional-type"
    verify_invariants = staticmethod(verifier(verify_product))

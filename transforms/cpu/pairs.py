"""Pairs of bf16 in registers: what `pair.product` and `pair.pack` become on scalars and vectors.

AVX512-BF16 multiplies and adds the pairs of 4, 8 or 16 words in one instruction. Other numbers of words, scalars among
them, are taken apart.
"""

from ...dialects import build
from ...dialects.mlir import arith, ir, llvm, math, vector, x86

DOT_LANES = (4, 8, 16)
PACK, PACKED_LANES = "llvm.x86.avx512bf16.cvtne2ps2bf16.512", 16  # the second operand's numbers come first


def multiply_add(a: ir.Value, b: ir.Value, c: ir.Value | None = None) -> ir.Value:
    """c and the products of both halves of the words a and b, summed up; all three scalars, or vectors."""
    if c is None:
        c = number(like(a, ir.F32Type.get()), 0)
    if isinstance(c.type, ir.VectorType) and c.type.shape[0] in DOT_LANES:
        halves = ir.VectorType.get([2 * c.type.shape[0]], ir.BF16Type.get())
        return x86.avx512_dot(c, vector.bitcast(halves, a), vector.bitcast(halves, b))
    for low in (True, False):
        c = math.fma(half(a, low), half(b, low), c)
    return c


def half(words: ir.Value, low: bool) -> ir.Value:
    """One number of each word, in f32: bf16 is the upper half of it."""
    kind = like(words, ir.F32Type.get())
    if low:
        return arith.bitcast(kind, arith.shli(words, number(words.type, 16)))
    return arith.bitcast(kind, arith.andi(words, number(words.type, -(1 << 16))))


def pack(low: ir.Value, high: ir.Value) -> ir.Value:
    """f32 of the lower and of the upper half, rounded to bf16, as words."""
    bf16 = ir.BF16Type.get()
    stored = [_stored(x) for x in (low, high)]
    if isinstance(low.type, ir.VectorType) and all(x is not None for x in stored):
        return vector.bitcast(like(low, ir.IntegerType.get_signless(32)), vector.interleave(*stored))
    if isinstance(low.type, ir.VectorType) and low.type.shape[0] == PACKED_LANES:
        kind = ir.VectorType.get([2 * PACKED_LANES], bf16)
        both = llvm.call_intrinsic(kind, PACK, [high, low], [], [])
        order = [lane // 2 + PACKED_LANES * (lane % 2) for lane in range(2 * PACKED_LANES)]
        words = vector.ShuffleOp(both, both, order).result
        return vector.bitcast(like(low, ir.IntegerType.get_signless(32)), words)
    low, high = (arith.truncf(like(x, bf16), x) for x in (low, high))
    if isinstance(low.type, ir.VectorType):
        return vector.bitcast(like(low, ir.IntegerType.get_signless(32)), vector.interleave(low, high))
    i16, i32 = (ir.IntegerType.get_signless(n) for n in (16, 32))
    bits = [arith.extui(i32, arith.bitcast(i16, x)) for x in (low, high)]
    return arith.ori(bits[0], arith.shli(bits[1], number(i32, 16)))


def _stored(value: ir.Value) -> ir.Value | None:
    """What was loaded as bf16, and extended since."""
    op = None if isinstance(value.owner, ir.Block) else value.owner.operation
    if op is None or op.name != "arith.extf" or op.operands[0].type != like(value, ir.BF16Type.get()):
        return None
    return op.operands[0]


def is_pack(op: ir.Operation) -> bool:
    """True for the instruction that rounds the numbers of two vectors."""
    return op.name == "llvm.call_intrinsic" and ir.StringAttr(op.attributes["intrin"]).value == PACK


def number(kind: ir.Type, value: float) -> ir.Value:
    """A constant scalar, or one in every lane."""
    if not isinstance(kind, ir.VectorType):
        return build.constant(kind, value)
    make = ir.FloatAttr if build.is_float(kind.element_type) else ir.IntegerAttr
    splat = ir.DenseElementsAttr.get_splat(kind, make.get(kind.element_type, value))
    return arith.ConstantOp(kind, splat).result


def like(value: ir.Value, element: ir.Type) -> ir.Type:
    """The type of `value`, a scalar or vector, with other elements."""
    return ir.VectorType.get(value.type.shape, element) if isinstance(value.type, ir.VectorType) else element

"""Pairs of bf16 in registers: what `pair.product` and `pair.pack` become on scalars and vectors.

AVX512-BF16 multiplies and adds the pairs of 4, 8 or 16 words in one instruction. Other numbers of words, scalars among
them, are taken apart.
"""

from ...dialects import build, llvm_ops
from ...dialects.mlir import arith, ir, math, vector, x86
from ..rewriting import defining_op

DOT_LANES = (4, 8, 16)
PACK, PACKED_LANES = "llvm.x86.avx512bf16.cvtne2ps2bf16.512", 16  # the second operand's numbers come first


def multiply_add(a: ir.Value, b: ir.Value, c: ir.Value | None = None) -> ir.Value:
    """c and the products of both halves of the words a and b, summed up; all three scalars, or vectors."""
    if c is None:
        c = build.constant(build.like(a.type, ir.F32Type.get()), 0)
    if isinstance(c.type, ir.VectorType) and c.type.shape[0] in DOT_LANES:
        halves = ir.VectorType.get([2 * c.type.shape[0]], ir.BF16Type.get())
        return x86.avx512_dot(c, *(build.once("vector.bitcast", halves, words) for words in (a, b)))
    for low in (True, False):
        c = math.fma(half(a, low), half(b, low), c)
    return c


def half(words: ir.Value, low: bool) -> ir.Value:
    """One number of each word, in f32: bf16 is the upper half of it."""
    kind = build.like(words.type, ir.F32Type.get())
    if low:
        return arith.bitcast(kind, arith.shli(words, build.constant(words.type, 16)))
    return arith.bitcast(kind, arith.andi(words, build.constant(words.type, -(1 << 16))))


def pack(low: ir.Value, high: ir.Value) -> ir.Value:
    """f32 of the lower and of the upper half, rounded to bf16, as words."""
    bf16 = ir.BF16Type.get()
    first, second = (_stored(x) for x in (low, high))
    if first is not None and second is not None and first.type == second.type:
        return _as_words(vector.interleave(first, second))
    if isinstance(low.type, ir.VectorType) and low.type.shape[0] == PACKED_LANES:
        kind = ir.VectorType.get([2 * PACKED_LANES], bf16)
        both = llvm_ops.call_intrinsic(kind, PACK, [high, low])
        order = [lane // 2 + PACKED_LANES * (lane % 2) for lane in range(2 * PACKED_LANES)]
        words = vector.ShuffleOp(both, both, order).result
        return vector.bitcast(build.like(low.type, ir.IntegerType.get_signless(32)), words)
    low, high = (arith.truncf(build.like(x.type, bf16), x) for x in (low, high))
    if isinstance(low.type, ir.VectorType):
        return vector.bitcast(build.like(low.type, ir.IntegerType.get_signless(32)), vector.interleave(low, high))
    i16, i32 = (ir.IntegerType.get_signless(n) for n in (16, 32))
    bits = [arith.extui(i32, arith.bitcast(i16, x)) for x in (low, high)]
    return arith.ori(bits[0], arith.shli(bits[1], build.constant(i32, 16)))


def widen(halves: ir.Value, element: ir.Type) -> ir.Value:
    """Words of two floats of 8 bits as words of bf16."""
    if not isinstance(halves.type, ir.VectorType):
        one = vector.broadcast(ir.VectorType.get([1], halves.type), halves)
        return vector.extract(widen(one, element), [], [0])
    return _as_words(vector.bitcast(ir.VectorType.get([2 * halves.type.shape[0]], element), halves))


def _as_words(numbers: ir.Value) -> ir.Value:
    """Neighbours of bf16, or exactly extended to it, as words."""
    bf16, words = ir.BF16Type.get(), ir.VectorType.get([numbers.type.shape[0] // 2], ir.IntegerType.get_signless(32))
    if numbers.type.element_type != bf16:
        numbers = arith.extf(build.like(numbers.type, bf16), numbers)
    return vector.bitcast(words, numbers)


def _stored(value: ir.Value) -> ir.Value | None:
    """A vector that was loaded in a type whose numbers bf16 has exactly, and extended since."""
    op = defining_op(value)
    if op is None or op.name != "arith.extf" or not isinstance(value.type, ir.VectorType):
        return None
    source = op.operands[0]
    made = defining_op(source)
    is_computed = made is not None and made.name == "arith.truncf"
    return source if build.is_in_bf16(source.type.element_type) and not is_computed else None


def is_pack(op: ir.Operation) -> bool:
    """True for the instruction that rounds the numbers of two vectors."""
    return op.name == "llvm.call_intrinsic" and ir.StringAttr(op.attributes["intrin"]).value == PACK

"""Powers of two of numbers below 1 as pairs of bf16, in 16-bit integers: what `pair.exp2` becomes.

As t = 2 + (x + 127 − 24/256)/64 a number x from −126.9 to 1 stands in the bits of f32 as its bf16 power wants it: its
integer, in 7 bits, and its fraction are the mantissa of t. So the middle 16 bits of t are x in steps of 1/256, two
vectors of 16 numbers are one of 32 such integers, and what is left of an exponential is done to 32 at once::

    W    = bits 8 to 23 of t₀ and t₁, interleaved as pairs are
    word = (W + c[W/4] + 1)/2                    c: 24 + 256·(2ᶠ − 1 − f), in 64 parts of the fraction f of x

W is twice the word that is linear between powers of 2; the table has how much that is too large, less than 24, by which
t is smaller so that nothing is negative. The mean of two integers, rounded up, is one instruction.

That x is multiplied and shifted comes for free where it is a multiply-add, t = s·(c/64) + (k − m/64), which a product
that is to be rounded first is not (`scalar_body`). What is below −127 becomes the least t, whose word is subnormal, 0
to the instruction that multiplies pairs. Of no number W is at least 0xC000, and its power at least 2⁶⁵: who sums powers
up sees it of the sum (`pair_exponentials`). (W is at most 0xFF00, or the mean of NaN whose bits are all ones, such as
that of GPUs, would be 0.)
Of a multiply-add x is beyond 1, by rounding, only where scores are beyond 2²⁴, and 2 and more apart: up to 120 the word
is finite and below 2⁶⁴, some 2^(x/2), then.

The largest relative error is 5.7e-3, where that of rounding is 3.9e-3; the root of the mean square is 1.9e-3, that of
the exact power, rounded, 1.7e-3.
"""

from collections.abc import Callable

import numpy as np

from ...dialects import build, llvm_ops
from ...dialects.mlir import arith, ir, math, vector
from ..rewriting import defining_op
from . import pairs

LANES = 16
LEAST, STEPS = -127.0, 64.0  # t = 2 + (x − LEAST − SHIFT/UNITS)/STEPS
UNITS, PARTS = 256, 64  # of [0, 1): halves of a unit of bf16's mantissa; as many as two vectors have numbers of 16 bits
SHIFT = 24  # more than 2ᶠ is below 1 + f, in UNITS; a multiple of UNITS/PARTS, so that f = 0 is where a part begins
MOST = 0xFF00 - (1 << 16)  # of no number, as an integer with a sign
BELOW_NO_NUMBER = 2.0**64  # a sum of powers that is not has one of what is no number
LOOKUP = "llvm.x86.avx512.vpermi2var.hi.512"


def exp2(low: ir.Value, high: ir.Value) -> ir.Value:
    """2^low and 2^high as words of bf16; both below 1, scalars or vectors."""
    if not isinstance(low.type, ir.VectorType) or low.type.shape[0] != LANES:
        return pairs.pack(math.exp2(low), math.exp2(high))
    t = [_bytes(x) for x in (low, high)]
    middle = [4 * lane + 4 * LANES * which + byte for lane in range(LANES) for which in (0, 1) for byte in (1, 2)]
    kind = ir.VectorType.get([2 * LANES], ir.IntegerType.get_signless(16))
    linear = vector.bitcast(kind, vector.ShuffleOp(*t, middle).result)
    linear = arith.minui(linear, build.constant(kind, MOST))
    part = arith.shrui(linear, build.constant(kind, (UNITS // PARTS).bit_length() - 1))
    above = llvm_ops.call_intrinsic(kind, LOOKUP, [_table(kind, 0), part, _table(kind, 2 * LANES)])
    # As LLVM knows the mean of two integers, rounded up.
    different = arith.shrui(arith.xori(linear, above), build.constant(kind, 1))
    word = arith.subi(arith.ori(linear, above), different)
    return vector.bitcast(build.like(low.type, ir.IntegerType.get_signless(32)), word)


def _bytes(x: ir.Value) -> ir.Value:
    """The bits of t in bytes, the lowest ones first."""
    t = _scaled(x)
    least = build.constant(t.type, 2)
    t = arith.select(arith.cmpf(arith.CmpFPredicate.OGT, least, t), least, t)  # of no number, that
    return vector.bitcast(ir.VectorType.get([4 * LANES], ir.IntegerType.get_signless(8)), t)


def _scaled(x: ir.Value) -> ir.Value:
    """x/64 + k, in what x is computed by. A difference stays, as it is exact for large numbers that are equal."""
    shift = build.constant(x.type, 2 - (LEAST + SHIFT / UNITS) / STEPS)
    unit = build.constant(x.type, 1 / STEPS)
    made = defining_op(x)
    name, operands = ("", []) if made is None else (made.name, list(made.operands))
    if name == "math.fma":
        return math.fma(operands[0], arith.mulf(operands[1], unit), math.fma(operands[2], unit, shift))
    if name == "arith.mulf":
        return math.fma(operands[0], arith.mulf(operands[1], unit), shift)
    return math.fma(x, unit, shift)


def _table(kind: ir.VectorType, start: int) -> ir.Value:
    """As many parts of it as a vector has, from `start` on."""
    values = _TABLE[start : start + 2 * LANES]
    return arith.ConstantOp(kind, ir.DenseElementsAttr.get(values, type=kind)).result


_fractions = ((np.arange(PARTS) + 0.5) / PARTS + SHIFT / UNITS) % 1
_TABLE = np.rint(SHIFT + UNITS * (2.0**_fractions - 1 - _fractions)).astype(np.int16)

# What ops on pairs become.
PAIRED: dict[str, Callable[..., ir.Value]] = {
    "pair.product": pairs.multiply_add,
    "pair.pack": pairs.pack,
    "pair.exp2": exp2,
}

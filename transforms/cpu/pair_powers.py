"""Powers of two of numbers below 1 as pairs of bf16, in 16-bit integers: what `pair.exp2` becomes.

As t = 2 + (x + 127)/64 a number x from −127 to 1 stands in the bits of f32 as its bf16 power wants it: the lower half
of t is the fraction f of x, the upper half, after 2's exponent, its integer n + 127. So two vectors of 16 numbers are
one of 32 integers of 16 bits from there on, and what is left of an exponential is the mantissa, 2ᶠ − 1, of 32 at once::

    F, E = lower, upper halves of t₀ and t₁, interleaved as pairs are
    y    = F + σ[F/2048]·F + o[F/2048]           2ᶠ − 1 and half a unit of bf16, in 16 bits: linear in 32 parts
    word = (E << 7) | (y >> 9)                   n + 127 is the exponent

That x is multiplied and shifted comes for free where it is a multiply-add, t = s·(c/64) + (k − m/64), which a product
that is to be rounded first is not (`scalar_body`). What is below −127 becomes −127, whose power is subnormal, 0 to the
instruction that multiplies pairs. For no number t's exponent is all ones, and so is the word's: −∞ or NaN. Of a
multiply-add x is beyond 1, by rounding, only where scores are beyond 2²⁴, and 2 and more apart: up to 250 the word is
finite, some 2^(x/2), then.

The largest relative error is that of rounding, 2⁻⁸ (3.9e-3); in the mean over f, too, it is that of rounding the exact
power (1.7e-3, the root of the mean square).
"""

import numpy as np

from ...dialects import build, llvm_ops
from ...dialects.mlir import arith, ir, math, vector
from ..rewriting import defining_op
from . import pairs

LANES = 16
LEAST, STEPS = -127.0, 64.0  # t = 2 + (x − LEAST)/STEPS
PARTS = 32  # of [0, 1): as many as a vector has numbers of 16 bits
HALF = 256  # half a unit of bf16's mantissa, in 2^-16
NO_NUMBER = 0x3F80  # bits of E that are 0 in [2, 4)
PRODUCT, LOOKUP = "llvm.x86.avx512.pmulh.w.512", "llvm.x86.avx512.permvar.hi.512"


def exp2(low: ir.Value, high: ir.Value) -> ir.Value:
    """2^low and 2^high as words of bf16; both below 1, scalars or vectors."""
    if not isinstance(low.type, ir.VectorType) or low.type.shape[0] != LANES:
        return pairs.pack(math.exp2(low), math.exp2(high))
    t = [_halves(x) for x in (low, high)]
    f, e = (
        vector.ShuffleOp(*t, [lane // 2 * 2 + half + 2 * LANES * (lane % 2) for lane in range(2 * LANES)]).result
        for half in (0, 1)
    )
    part = arith.shrui(f, build.constant(f.type, 16 - PARTS.bit_length() + 1))
    slope, offset = (llvm_ops.call_intrinsic(f.type, LOOKUP, [_table(f.type, values), part]) for values in _TABLES)
    y = arith.addi(arith.addi(llvm_ops.call_intrinsic(f.type, PRODUCT, [f, slope]), f), offset)
    word = llvm_ops.funnel_shift_left(e, y, build.constant(f.type, 7))
    word = arith.ori(word, arith.andi(e, build.constant(f.type, NO_NUMBER)))
    return vector.bitcast(build.like(low.type, ir.IntegerType.get_signless(32)), word)


def _halves(x: ir.Value) -> ir.Value:
    """The bits of t in halves, the lower ones first."""
    t = _scaled(x)
    least = build.constant(t.type, 2)
    t = arith.select(arith.cmpf(arith.CmpFPredicate.OGT, least, t), least, t)  # of no number, that
    return vector.bitcast(ir.VectorType.get([2 * LANES], ir.IntegerType.get_signless(16)), t)


def _scaled(x: ir.Value) -> ir.Value:
    """x/64 + k, in what x is computed by. A difference stays, as it is exact for large numbers that are equal."""
    shift, unit = build.constant(x.type, 2 - LEAST / STEPS), build.constant(x.type, 1 / STEPS)
    made = defining_op(x)
    name, operands = ("", []) if made is None else (made.name, list(made.operands))
    if name == "math.fma":
        return math.fma(operands[0], arith.mulf(operands[1], unit), math.fma(operands[2], unit, shift))
    if name == "arith.mulf":
        return math.fma(operands[0], arith.mulf(operands[1], unit), shift)
    return math.fma(x, unit, shift)


def _table(kind: ir.VectorType, values: np.ndarray) -> ir.Value:
    return arith.ConstantOp(kind, ir.DenseElementsAttr.get(values, type=kind)).result


def _tables() -> tuple[np.ndarray, np.ndarray]:
    """Of each part: σ, by which F as a signed number is multiplied, and o.

    y must not reach 2¹⁶, as E has the integer already: in the last part it ends there, and not half a unit beyond it.
    """
    number = np.arange(PARTS)
    ends, middles = np.arange(PARTS + 1) / PARTS, (number + 0.5) / PARTS
    at_ends, at_middles = (2.0**f - 1 - f for f in (ends, middles))
    means = (at_ends[1:] + at_ends[:-1]) / 2
    slopes = np.rint(np.diff(at_ends) * PARTS * 2**16)
    slopes[-1] = np.rint(2**16 * ((1 - at_ends[-2] - ends[-2] - HALF / 2**16) * PARTS - 1))
    lines = (means + at_middles) / 2 * 2**16 - slopes * (middles - (number >= PARTS // 2))
    offsets = np.rint(lines + HALF + 0.5)  # the upper half of a product is rounded down
    offsets[-1] = -2
    return slopes.astype(np.int16), offsets.astype(np.int16)


_TABLES = _tables()

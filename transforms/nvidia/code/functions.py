"""Elementary functions on f32 registers: instructions that approximate, and what is made of them.

`exp2`, `log2`, `rsqrt` and `fast_tanh` are one instruction each (PTX ISA, ex2.approx, lg2.approx, rsqrt.approx,
tanh.approx), `divide` is a few. The others are polynomials on a reduced range, exponentials and logarithms. Bounds are
of absolute errors where nothing else is said; test/numeric/test_gpu_functions.py measures them:

| function | error | method |
| -------- | ----- | ------ |
| exp, exp2, sinh, cosh | relative 2^-21 at small arguments, of |x|·2^-24 in all | ex2 |
| log, log2, log10 | 2^-21, and relative 2^-21 away from 1 | lg2 |
| expm1, log1p, asinh, acosh, atanh | relative 2^-20 | `polynomials` (log1p, expm1), without cancellation |
| tanh | relative 2^-20, or 2^-11 | an odd polynomial below 5/8, 1 − 2/(1 + e^2x) above; or tanh.approx |
| sin, cos | 2^-22 for |x| ≤ 10^5 | sin r of x = hπ + r, π in two parts (Cody and Waite 1980) |
| tan | relative 2^-20 for |x| ≤ 10^5 | sin / cos, each reduced to its own zeros |
| atan, atan2, asin, acos | 2^-20 | atan of the smaller by the larger, as an odd polynomial |
| erf, erfc | 2^-21 | an odd polynomial below 1, 1 − 2^p(x) above |
| powf | relative 2^-20 · (1 + |y·log₂ x|) | 2^(y·log₂ |x|) with log₂ of relative precision |
| powf, fpowi by a constant | relative |n|·2^-23 | products; 1/2 and −1/2 are roots |
| cbrt | relative 2^-20 · (1 + |log₂ x|/4) | 2^(log₂ |x| / 3) |

Polynomials are interpolated at Chebyshev nodes, in z = x² where they are odd.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ....dialects.mlir import arith, ir
from ....dialects.mlir import math as mlir_math
from ... import polynomials
from ...polynomials import ERF, ERF_TAIL, MOST_PRODUCTS, Numbers
from .thread import asm, constant, create, f32, i32

PRODUCTS = "contract,reassoc"  # what products by constants may become

# sin(r) = r + r·z·p(z) for |r| ≤ π/2
SIN = (-0.16666665673, 0.0083332397043, -0.00019822372997, 2.6335731031e-06)
# tanh(x) = x + x·z·p(z) for |x| ≤ 5/8
TANH = (-0.33333328, 0.1333277, -0.053850908, 0.02099718, -0.006096714)
# atan(r) = r·p(z) for |r| ≤ 1
ATAN = (1.0, -0.33333036304, 0.19991871715, -0.14197798073, 0.10618370771, -0.074568547308, 0.042137622833,
        -0.015731249005, 0.0027662834618)  # fmt: skip

LINE, NEARLY_TWO = 0x7EF33000, 2.0012  # for reciprocals: together they leave errors below 2^-18.9

PI = (3.1415927410125732, -8.7422776573475858e-08)  # the nearest f32, and the rest


class OnGpu(Numbers):
    """f32 registers, for `polynomials`."""

    def __init__(self) -> None:
        super().__init__(f32())

    def divide(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return divide(a, b)


# Instructions.


def _approx(instruction: str) -> Callable[[ir.Value], ir.Value]:
    def emit(x: ir.Value) -> ir.Value:
        return asm(f"{instruction} $0, $1;", "=f,f", [x], [f32()], effects=False)[0]

    return emit


exp2, log2, fast_tanh, rsqrt, reciprocal = (
    _approx(f"{name}.f32") for name in ("ex2.approx.ftz", "lg2.approx", "tanh.approx", "rsqrt.approx", "rcp.approx.ftz")
)


def divide(a: ir.Value, b: ir.Value) -> ir.Value:
    """a / b within 2 ulp."""
    return asm("div.full.f32 $0, $1, $2;", "=f,f,f", [a, b], [f32()], effects=False)[0]


def divide_by_normal(a: ir.Value, b: ir.Value) -> ir.Value:
    """a / b within 2 ulp, where b is 2^-126 at least: one instruction and a product, for five that scale."""
    return create("arith.mulf", f32(), a, reciprocal(b), fastmath=ir.Attribute.parse(f"#arith.fastmath<{PRODUCTS}>"))


def divide_by_products(a: ir.Value, b: ir.Value) -> ir.Value:
    """a / b within 2^-18.9, where b is 2^-126 at least, without the special unit."""
    return create("arith.mulf", f32(), a, reciprocal_by_products(b))


def reciprocal_by_products(b: ir.Value) -> ir.Value:
    """1 / b: the bits of b taken from a number are those of a line between powers of 2, off by 1/16 of where 1 / b is
    highest and lowest, and two steps of Newton's y·(2 − b·y) square that. The first one's constant is a little larger,
    and the number such that its errors, which are all of one sign, become as large in both directions. Of more than
    2^125 it is 2^-125."""
    kept = create("arith.minimumf", f32(), b, constant(f32(), 2.0**125))
    line = create("arith.subi", i32(), constant(i32(), LINE), create("arith.bitcast", i32(), kept))
    y, minus_b = create("arith.bitcast", f32(), line), create("arith.negf", f32(), kept)
    for two in (NEARLY_TWO, 2.0):
        y = create("arith.mulf", f32(), y, create("math.fma", f32(), minus_b, y, constant(f32(), two)))
    return y


def times(x: ir.Value, factor: float) -> ir.Value:
    free = ir.Attribute.parse(f"#arith.fastmath<{PRODUCTS}>")
    return create("arith.mulf", f32(), x, constant(f32(), factor), fastmath=free)


# Exponentials and logarithms.


def exp(x: ir.Value) -> ir.Value:
    return exp2(times(x, math.log2(math.e)))


def log(x: ir.Value) -> ir.Value:
    return times(log2(x), math.log(2))


def log10(x: ir.Value) -> ir.Value:
    return times(log2(x), math.log10(2))


def expm1(x: ir.Value) -> ir.Value:
    return polynomials.expm1(OnGpu(), x)


def log1p(x: ir.Value) -> ir.Value:
    return polynomials.log1p(OnGpu(), x)


def tanh(x: ir.Value) -> ir.Value:
    n = OnGpu()
    z = arith.mulf(x, x)
    small = mlir_math.fma(arith.mulf(x, z), n.polynomial(z, TANH), x)
    power = exp2(times(x, 2 * math.log2(math.e)))
    large = arith.subf(n.number(1.0), divide(n.number(2.0), arith.addf(n.number(1.0), power)))
    return n.select("OLT", z, n.number(0.625**2), small, large)


def sinh(x: ir.Value) -> ir.Value:
    """(e + e/(e + 1))/2 of e = exp(|x|) − 1."""
    n = OnGpu()
    e = expm1(mlir_math.absf(x))
    rest = n.select("OEQ", e, n.number(math.inf), n.number(1.0), divide(e, arith.addf(e, n.number(1.0))))
    return mlir_math.copysign(times(arith.addf(e, rest), 0.5), x)


def cosh(x: ir.Value) -> ir.Value:
    n = OnGpu()
    e = exp(mlir_math.absf(x))
    return times(arith.addf(e, divide(n.number(1.0), e)), 0.5)


def asinh(x: ir.Value) -> ir.Value:
    """log(1 + a + a/(1/a + √(1 + 1/a²))) of a = |x|: no square of what is large."""
    n = OnGpu()
    a = mlir_math.absf(x)
    inverse = divide(n.number(1.0), a)
    root = mlir_math.sqrt(mlir_math.fma(inverse, inverse, n.number(1.0)))
    return mlir_math.copysign(log1p(arith.addf(a, divide(a, arith.addf(inverse, root)))), x)


def acosh(x: ir.Value) -> ir.Value:
    """log(1 + t + √t·√(t + 2)) of t = x − 1."""
    n = OnGpu()
    t = arith.subf(x, n.number(1.0))
    root = arith.mulf(mlir_math.sqrt(t), mlir_math.sqrt(arith.addf(t, n.number(2.0))))
    return log1p(arith.addf(t, root))


def atanh(x: ir.Value) -> ir.Value:
    """log(1 + 2a/(1 − a))/2 of a = |x|."""
    n = OnGpu()
    a = mlir_math.absf(x)
    ratio = divide(arith.addf(a, a), arith.subf(n.number(1.0), a))
    return mlir_math.copysign(times(log1p(ratio), 0.5), x)


# Angles.


def _sine(x: ir.Value, shift: float) -> ir.Value:
    """sin(x + shift·π), shift 0 or 1/2."""
    n = OnGpu()
    # Adding 1.5·2^23 rounds to an integer k and leaves it in the low bits; 1 more makes an odd one of an even one.
    magic = n.number(1.5 * 2**23 + 2 * shift)
    per_turn = n.number(1 / math.pi)
    t = mlir_math.fma(x, per_turn, magic)
    if shift:
        t = arith.addf(mlir_math.fma(x, per_turn, n.number(-shift)), magic)
    k = arith.subf(t, magic)
    h = arith.addf(k, n.number(shift)) if shift else k
    # The first product is exact, and nearly all of x is gone: what is left has no more bits than fit.
    r = mlir_math.fma(h, n.number(-PI[1]), mlir_math.fma(h, n.number(-PI[0]), x))
    # Far beyond there is no angle left, but a sine stays one.
    r = arith.minimumf(arith.maximumf(r, n.number(-2.0)), n.number(2.0))
    z = arith.mulf(r, r)
    sine = mlir_math.fma(arith.mulf(r, z), n.polynomial(z, SIN), r)
    return n.as_number(arith.xori(n.as_bits(sine), arith.shli(n.as_bits(t), n.integer(31))))


def sin(x: ir.Value) -> ir.Value:
    return _sine(x, 0)


def cos(x: ir.Value) -> ir.Value:
    return _sine(x, 0.5)


def tan(x: ir.Value) -> ir.Value:
    return divide(sin(x), cos(x))


def atan2(y: ir.Value, x: ir.Value) -> ir.Value:
    n = OnGpu()
    a, b, zero = mlir_math.absf(y), mlir_math.absf(x), n.number(0.0)
    small, large = arith.minimumf(a, b), arith.maximumf(a, b)
    quotient = divide(small, large)
    # 0/0 is an angle of 0 here, ∞/∞ one of π/4.
    quotient = n.select("OEQ", large, zero, zero, quotient)
    quotient = n.select("OEQ", small, n.number(math.inf), n.number(1.0), quotient)
    angle = arith.mulf(quotient, n.polynomial(arith.mulf(quotient, quotient), ATAN))
    angle = n.select("OGT", a, b, arith.subf(n.number(math.pi / 2), angle), angle)
    left = arith.cmpi(arith.CmpIPredicate.slt, n.as_bits(x), n.integer(0))  # −0 too
    angle = arith.select(left, arith.subf(n.number(math.pi), angle), angle)
    return mlir_math.copysign(angle, y)


def atan(x: ir.Value) -> ir.Value:
    return atan2(x, OnGpu().number(1.0))


def _other_leg(x: ir.Value) -> ir.Value:
    """√(1 − x²)"""
    n = OnGpu()
    one = n.number(1.0)
    return mlir_math.sqrt(arith.mulf(arith.subf(one, x), arith.addf(one, x)))


def asin(x: ir.Value) -> ir.Value:
    return atan2(x, _other_leg(x))


def acos(x: ir.Value) -> ir.Value:
    return atan2(_other_leg(x), x)


# The error function.


def erf(x: ir.Value) -> ir.Value:
    n = OnGpu()
    a = arith.minimumf(mlir_math.absf(x), n.number(4.0))
    near = arith.mulf(a, n.polynomial(arith.mulf(a, a), ERF))
    far = arith.subf(n.number(1.0), exp2(n.polynomial(a, ERF_TAIL)))
    return mlir_math.copysign(n.select("OLT", a, n.number(1.0), near, far), x)


def erfc(x: ir.Value) -> ir.Value:
    return arith.subf(OnGpu().number(1.0), erf(x))


# Powers.


def cbrt(x: ir.Value) -> ir.Value:
    return mlir_math.copysign(exp2(times(log2(mlir_math.absf(x)), 1 / 3)), x)


def is_simple_power(exponent: float) -> bool:
    """Whether it is a small integer or ±1/2."""
    return abs(exponent) == 0.5 or (float(exponent).is_integer() and abs(exponent) <= MOST_PRODUCTS)


def power(x: ir.Value, exponent: float) -> ir.Value:
    """x to a simple power."""
    n = OnGpu()
    if abs(exponent) == 0.5:
        # Of −0 it is 0, as that of 0: what is added makes it so.
        root = mlir_math.sqrt(arith.addf(x, n.number(0.0)))
        return root if exponent > 0 else divide(n.number(1.0), root)
    return polynomials.whole_power(n, x, int(exponent))


def powf(x: ir.Value, y: ir.Value) -> ir.Value:
    """As IEEE 754's pow: negative numbers have powers that are integers, of which odd ones are negative."""
    n = OnGpu()
    zero, one, infinity = (n.number(v) for v in (0.0, 1.0, math.inf))
    magnitude = mlir_math.absf(x)
    result = exp2(arith.mulf(y, polynomials.log2(n, magnitude)))
    result = n.select("OEQ", magnitude, one, n.select("OEQ", y, y, one, y), result)  # ±1 to ±∞
    half = arith.mulf(y, n.number(0.5))
    is_integer = arith.cmpf(arith.CmpFPredicate.OEQ, mlir_math.trunc(y), y)
    is_even = arith.cmpf(arith.CmpFPredicate.OEQ, mlir_math.trunc(half), half)
    negative = mlir_math.copysign(result, x)
    of_negative = arith.select(is_integer, arith.select(is_even, result, negative), n.number(math.nan))
    of_negative = n.select("OEQ", magnitude, infinity, arith.select(is_integer, of_negative, result), of_negative)
    of_negative = n.select("OEQ", magnitude, zero, arith.select(is_integer, of_negative, result), of_negative)
    is_negative = arith.cmpi(arith.CmpIPredicate.slt, n.as_bits(x), n.integer(0))
    result = arith.select(is_negative, of_negative, result)
    result = n.select("OEQ", y, zero, one, result)
    return n.select("OEQ", x, one, one, result)


# Remainders and integers.


def remf(x: ir.Value, y: ir.Value) -> ir.Value:
    return remainder(OnGpu(), x, y)


def remainder(n: Numbers, x: ir.Value, y: ir.Value) -> ir.Value:
    """x − y·trunc(x/y), exact for quotients below 2^22 (f64: 2^51): one rounded to the next integer is mended."""
    a, b, zero = mlir_math.absf(x), mlir_math.absf(y), n.number(0.0)
    quotient = mlir_math.trunc(n.divide(a, b))
    r = mlir_math.fma(arith.negf(quotient), b, a)
    r = n.select("OLT", r, zero, arith.addf(r, b), r)
    r = n.select("OGE", r, b, arith.subf(r, b), r)
    r = n.select("OLT", a, b, a, r)  # of an infinite divisor, too
    return mlir_math.copysign(r, x)


def rounded_quotient(op: str, a: ir.Value, b: ir.Value) -> ir.Value:
    """A quotient of integers, rounded down (floordivsi), or up (ceildivsi, ceildivui)."""
    signed, up = op.endswith("si"), "ceil" in op
    quotient, rest = (arith.divsi(a, b), arith.remsi(a, b)) if signed else (arith.divui(a, b), arith.remui(a, b))
    zero, one = constant(a.type, 0), constant(a.type, 1)
    inexact = arith.cmpi(arith.CmpIPredicate.ne, rest, zero)
    if signed:  # division rounds to 0: down where the signs are the same
        same = arith.cmpi(arith.CmpIPredicate.sge, arith.xori(a, b), zero)
        other = arith.cmpi(arith.CmpIPredicate.slt, arith.xori(a, b), zero)
        inexact = arith.andi(inexact, same if up else other)
    moved = arith.addi(quotient, one) if up else arith.subi(quotient, one)
    return arith.select(inexact, moved, quotient)


def ipowi(x: ir.Value, n: ir.Value) -> ir.Value:
    """x to the n-th of integers, by squaring; below 0, that of ±1 alone is not 0."""
    kind = ir.IntegerType(x.type)
    zero, one = constant(kind, 0), constant(kind, 1)
    result, square, left = one, x, n
    for _ in range(kind.width - 1):
        odd = arith.cmpi(arith.CmpIPredicate.ne, arith.andi(left, one), zero)
        result = arith.select(odd, arith.muli(result, square), result)
        square, left = arith.muli(square, square), arith.shrui(left, one)
    is_unit = arith.cmpi(arith.CmpIPredicate.ule, arith.addi(x, one), constant(kind, 2))  # −1, 0, 1; of 0 undefined
    is_negative = arith.cmpi(arith.CmpIPredicate.slt, n, zero)
    inverse = arith.select(is_unit, result, zero)
    return arith.select(is_negative, inverse, result)


# Kinds of numbers.


def isfinite(x: ir.Value) -> ir.Value:
    return arith.cmpf(arith.CmpFPredicate.OLT, mlir_math.absf(x), OnGpu().number(math.inf))


def isinf(x: ir.Value) -> ir.Value:
    return arith.cmpf(arith.CmpFPredicate.OEQ, mlir_math.absf(x), OnGpu().number(math.inf))


def isnan(x: ir.Value) -> ir.Value:
    return arith.cmpf(arith.CmpFPredicate.UNO, x, x)


def isnormal(x: ir.Value) -> ir.Value:
    large = arith.cmpf(arith.CmpFPredicate.OGE, mlir_math.absf(x), OnGpu().number(2.0**-126))
    return arith.andi(large, isfinite(x))


def clampf(x: ir.Value, low: ir.Value, high: ir.Value) -> ir.Value:
    return arith.minimumf(arith.maximumf(x, low), high)

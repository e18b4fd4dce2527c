"""Transcendental functions as arith and math.fma on scalars or vectors of f32 and f64.

Bounds are in units in the last place of the result, over all finite inputs whose result is normal, measured by
test/numeric/test_math.py. exp(0), exp2(0) are exactly 1, so that rescale factors do not compound; −inf gives 0,
overflow gives inf, NaN gives NaN. Results below 2^-125 (f32) and 2^-1021 (f64) are 0.

| function | f32 | f64 | method |
| -------- | --- | --- | ------ |
| exp      | 2   | 2   | x = n·ln2 + r, 2ⁿ·p(r), ln2 in two parts (Cody and Waite 1980) |
| exp2     | 3   | 2   | x = n + r |
| expm1    | 4   | 4   | 2ⁿ·(p(r) − 1) + (2ⁿ − 1) |
| log      | 2   | 2   | x = 2ⁿ·m, m in [√½, √2), 2·atanh((m − 1)/(m + 1)) as an odd series |
| log2     | 4   | 4   | log(x)·log2(e) |
| log1p    | 4   | 4   | log(1 + x)·x / ((1 + x) − 1) |
| tanh     | 4   | 4   | e / (e + 2), e = expm1(2x) |
| erf      | 3   | –   | x·p(x²) below 1, 1 − 2^p(x) above |
| sin, cos | 2   | –   | x = n·π/2 + r, in f64 (to |x| = 2^20, beyond it libm); r·p(r²), 1 − r²/2 + r⁴·p(r²) |
"""

from collections.abc import Callable, Sequence

import numpy as np

from ..dialects import build
from ..dialects.mlir import arith, ir, math, scf, vector

# (eˢ − 1 − s)/s² with s = r or r·ln 2, interpolated at Chebyshev nodes of |r| ≤ ln2/2 and |r| ≤ 1/2.
EXP = {
    32: (0.5, 0.16666576989698775, 0.041666554617204574, 0.008363179052722576, 0.001392618358771368),
    64: (
        0.5000000000000001,
        0.16666666666666669,
        0.041666666666624115,
        0.008333333333329963,
        0.0013888888917217787,
        0.00019841269863349749,
        2.4801521291054575e-05,
        2.7557268132044504e-06,
        2.762009040252903e-07,
        2.510050613512639e-08,
    ),
}
_EXP2 = {
    32: (0.24022650695910072, 0.05550381001841135, 0.00961810324267985, 0.0013381312102616258, 0.0001544489223531516),
    64: (
        0.24022650695910075,
        0.05550410866482158,
        0.009618129107618655,
        0.0013333558146423018,
        0.0001540353042480166,
        1.5252733821096159e-05,
        1.3215451615522706e-06,
        1.0178067098891503e-07,
        7.070981744620285e-09,
        4.4541345544803623e-10,
    ),
}
# erf(x) = x·p(x²) for x ≤ 1; 1 − 2^p(x) for 1 ≤ x ≤ 4, where it is 1 to the last place
ERF = (1.1283791065, -0.37612342834, 0.1128031686, -0.026715055108, 0.0049217618071, -0.00056480598869)
ERF_TAIL = (-0.0011049569584, -1.6243212223, -0.92208594084, -0.14900316298, 0.032611791044, -0.0049518365413,
            0.00045724347001, -1.9147970306e-05)  # fmt: skip
# Of r up to π/4: (sin(r) − r)/r³ and (cos(r) − 1 + r²/2)/r⁴, in powers of r² (Cephes, sinf.c, Moshier 1995).
SIN = (-1.6666654611e-1, 8.3321608736e-3, -1.9515295891e-4)
COS = (4.166664568298827e-2, -1.388731625493765e-3, 2.443315711809948e-5)
HALF_PI = (1.5707963267341256, 6.077100506506192e-11)  # π/2 = high + low, of which the first has 20 zeros at its end
LARGEST_ANGLE = 2.0**20
MOST_PRODUCTS = 64  # a constant power up to which is computed as products
# On an op: the narrow type that its result is rounded to, and whatever else is done with it is to sum it up.
ROUNDED = "rounded"
LIBM = "libm"  # on an op that is left to libm
# Arguments below which the result is 0.
LEAST_EXP = {32: -86.6, 64: -707.7}
LEAST_EXP2 = {32: -125.0, 64: -1021.0}


class Numbers:
    """Constants and operations of one type: f32 or f64, scalar or vector. narrow floats are widened to f32."""

    def __init__(self, kind: ir.Type):
        self.outer = kind
        shape = list(kind.shape) if isinstance(kind, ir.VectorType) else None
        element = kind.element_type if shape else kind
        self.is_narrow = build.is_narrow(element)
        self.element = ir.F32Type.get() if self.is_narrow else element
        self.width = self.element.width
        self.bits_element = ir.IntegerType.get_signless(self.width)

        def shaped(scalar: ir.Type) -> ir.Type:
            return ir.VectorType.get(shape, scalar) if shape else scalar

        self.kind, self.bits = shaped(self.element), shaped(self.bits_element)
        self.dtype = np.float32 if self.width == 32 else np.float64
        self.mantissa = 23 if self.width == 32 else 52
        self.bias = 127 if self.width == 32 else 1023

    def widen(self, x: ir.Value) -> ir.Value:
        return arith.extf(self.kind, x) if self.is_narrow else x

    def narrow(self, x: ir.Value) -> ir.Value:
        return arith.truncf(self.outer, x) if self.is_narrow else x

    def number(self, value: float) -> ir.Value:
        return build.constant(self.kind, float(self.dtype(value)))

    def integer(self, value: int) -> ir.Value:
        return build.constant(self.bits, value)

    def polynomial(self, x: ir.Value, coefficients: Sequence[float]) -> ir.Value:
        """Σ coefficients[i]·xⁱ by Horner's rule."""
        value = self.number(coefficients[-1])
        for c in reversed(coefficients[:-1]):
            value = math.fma(value, x, self.number(c))
        return value

    def as_bits(self, x: ir.Value) -> ir.Value:
        return arith.bitcast(self.bits, x)

    def as_number(self, x: ir.Value) -> ir.Value:
        return arith.bitcast(self.kind, x)

    def divide(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return arith.divf(a, b)

    def select(self, predicate: str, a: ir.Value, b: ir.Value, then: ir.Value, otherwise: ir.Value) -> ir.Value:
        """An ordered comparison, false for NaN: `otherwise` is what NaN gets."""
        return arith.select(arith.cmpf(getattr(arith.CmpFPredicate, predicate), a, b), then, otherwise)


def _split(n: Numbers, x: ir.Value, per_unit: float, more: int = -1) -> tuple[ir.Value, ir.Value]:
    """k = round(x·per_unit), and 2^(k + more) from bits.

    Adding 1.5·2^mantissa rounds to an integer and leaves it in the low bits; the exponent's bias is added along.
    """
    magic = n.number(1.5 * 2.0**n.mantissa + (n.bias + more))
    t = math.fma(x, n.number(per_unit), magic) if per_unit != 1.0 else arith.addf(x, magic)
    power = n.as_number(arith.shli(n.as_bits(t), n.integer(n.mantissa)))
    return arith.subf(t, magic), power


def _exponential(n: Numbers, x: ir.Value, limits: tuple[float, float], per_unit: float, reduce, series) -> ir.Value:
    low, high = (n.number(v) for v in limits)
    clamped = n.select("OGT", x, high, high, x)
    k, half_power = _split(n, clamped, per_unit)
    p = series(reduce(clamped, k))
    y = arith.mulf(arith.mulf(p, half_power), n.number(2.0))
    return n.select("OLT", x, low, n.number(0.0), y)


def ln2_parts(n: Numbers) -> tuple[float, float]:
    """ln 2 = high + low, where high has enough trailing zeros for k·high to be exact."""
    if n.width == 32:
        return 0.693359375, -2.12194440054690583e-4
    return 0.693145751953125, 1.42860682030941723212e-6


def _reduce_ln2(n: Numbers, x: ir.Value, k: ir.Value) -> ir.Value:
    high, low = ln2_parts(n)
    return math.fma(k, n.number(-low), math.fma(k, n.number(-high), x))


def exp(n: Numbers, x: ir.Value) -> ir.Value:
    limits = (LEAST_EXP[n.width], 89.0 if n.width == 32 else 710.0)

    def series(r: ir.Value) -> ir.Value:
        return n.polynomial(r, (1.0, 1.0, *EXP[n.width]))

    return _exponential(n, x, limits, np.log2(np.e), lambda v, k: _reduce_ln2(n, v, k), series)


def exp2(n: Numbers, x: ir.Value) -> ir.Value:
    limits = (LEAST_EXP2[n.width], 128.5 if n.width == 32 else 1024.5)

    def series(r: ir.Value) -> ir.Value:
        return n.polynomial(r, (1.0, float(np.log(2.0)), *_EXP2[n.width]))

    return _exponential(n, x, limits, 1.0, lambda v, k: arith.subf(v, k), series)


def exp2_of_not_positive(n: Numbers, x: ir.Value) -> ir.Value:
    """exp2 of what is known to be at most 0, but for rounding: it cannot overflow, and its power of two, at most 1, is
    made as it is, not as two times its half."""
    k, power = _split(n, x, 1.0, more=0)
    y = arith.mulf(n.polynomial(arith.subf(x, k), (1.0, float(np.log(2.0)), *_EXP2[n.width])), power)
    return n.select("OLT", x, n.number(LEAST_EXP2[n.width]), n.number(0.0), y)


def expm1(n: Numbers, x: ir.Value) -> ir.Value:
    low, high = (-17.5, 89.0) if n.width == 32 else (-38.0, 710.0)  # below, −1 is the nearest
    low_value, high_value = n.number(low), n.number(high)
    clamped = n.select("OGT", x, high_value, high_value, x)
    k, half_power = _split(n, clamped, np.log2(np.e))
    r = _reduce_ln2(n, clamped, k)
    squared = arith.mulf(r, r)
    p = math.fma(squared, n.polynomial(r, EXP[n.width]), r)  # eʳ − 1
    # 2ᵏ·(p + 1) − 1 = 2·(h·p + (h − ½)), h = 2^(k−1): exact for k = 0
    y = math.fma(p, half_power, arith.subf(half_power, n.number(0.5)))
    y = arith.mulf(y, n.number(2.0))
    return n.select("OLT", x, low_value, n.number(-1.0), y)


def log(n: Numbers, x: ir.Value) -> ir.Value:
    k, m = _mantissa(n, x)
    s = n.divide(arith.subf(m, n.number(1.0)), arith.addf(m, n.number(1.0)))
    z = arith.mulf(s, s)
    terms = 5 if n.width == 32 else 11  # |s| ≤ 0.1716
    tail = arith.mulf(z, n.polynomial(z, [2.0 / (2 * i + 3) for i in range(terms)]))
    high, low = ln2_parts(n)
    # log m = 2·s + s·tail; the large parts k·high + 2·s last
    small = math.fma(s, tail, arith.mulf(k, n.number(low)))
    y = arith.addf(math.fma(k, n.number(high), math.fma(s, n.number(2.0), small)), n.number(0.0))
    return _log_limits(n, x, y)


def log2(n: Numbers, x: ir.Value) -> ir.Value:
    return arith.mulf(log(n, x), n.number(1.0 / np.log(2.0)))


def log1p(n: Numbers, x: ir.Value) -> ir.Value:
    one = n.number(1.0)
    u = arith.addf(one, x)
    d = arith.subf(u, one)
    scaled = arith.mulf(log(n, u), n.divide(x, d))
    y = n.select("OEQ", u, one, x, scaled)
    infinity = n.number(np.inf)
    return n.select("OEQ", x, infinity, infinity, y)


def _mantissa(n: Numbers, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """x = 2ᵏ·m with m in [√½, √2); subnormals are scaled up first."""
    tiny = n.number(float(np.finfo(n.dtype).tiny))
    up = n.mantissa + 1
    is_small = arith.cmpf(arith.CmpFPredicate.OLT, x, tiny)
    x = arith.select(is_small, arith.mulf(x, n.number(2.0**up)), x)
    root = int(np.array(np.sqrt(0.5), n.dtype).view(f"i{n.width // 8}"))
    one = int(np.array(1.0, n.dtype).view(f"i{n.width // 8}"))
    shifted = arith.addi(n.as_bits(x), n.integer(one - root))
    exponent = arith.subi(arith.shrui(shifted, n.integer(n.mantissa)), n.integer(n.bias))
    m = n.as_number(arith.addi(arith.andi(shifted, n.integer((1 << n.mantissa) - 1)), n.integer(root)))
    k = arith.sitofp(n.kind, exponent)
    return arith.select(is_small, arith.subf(k, n.number(float(up))), k), m


def _log_limits(n: Numbers, x: ir.Value, y: ir.Value) -> ir.Value:
    zero, infinity = n.number(0.0), n.number(np.inf)
    y = n.select("OEQ", x, infinity, infinity, y)
    y = n.select("OEQ", x, zero, n.number(-np.inf), y)
    nan = n.number(np.nan)
    return arith.select(
        arith.cmpf(arith.CmpFPredicate.UGE, x, zero),
        arith.select(arith.cmpf(arith.CmpFPredicate.UNO, x, x), nan, y),
        nan,
    )


def tanh(n: Numbers, x: ir.Value) -> ir.Value:
    limit = 20.0  # beyond, 1 is the nearest
    magnitude = math.absf(x)
    magnitude = n.select("OGT", magnitude, n.number(limit), n.number(limit), magnitude)
    e = expm1(n, arith.mulf(magnitude, n.number(2.0)))
    return math.copysign(n.divide(e, arith.addf(e, n.number(2.0))), x)


def erf(n: Numbers, x: ir.Value) -> ir.Value:
    magnitude, one, limit = math.absf(x), n.number(1.0), n.number(4.0)
    a = n.select("OGT", magnitude, limit, limit, magnitude)
    near = arith.mulf(a, n.polynomial(arith.mulf(a, a), ERF))
    far = arith.subf(one, exp2_of_not_positive(n, n.polynomial(a, ERF_TAIL)))
    return math.copysign(n.select("OLT", a, one, near, far), x)


def sin(n: Numbers, x: ir.Value) -> ir.Value:
    return _at_an_angle(n, x, 0, math.sin)


def cos(n: Numbers, x: ir.Value) -> ir.Value:
    return _at_an_angle(n, x, 1, math.cos)


def _at_an_angle(n: Numbers, x: ir.Value, quarters: int, function: Callable) -> ir.Value:
    """sin(x + quarters·π/2), of f32; `function` is libm's, which reduces large angles as exactly as that takes."""
    is_small = arith.cmpf(arith.CmpFPredicate.OLE, math.absf(x), n.number(LARGEST_ANGLE))
    if isinstance(n.kind, ir.VectorType):
        is_small = vector.reduction(ir.IntegerType.get_signless(1), vector.CombiningKind.AND, is_small)
    branch = scf.IfOp(is_small, [n.kind], has_else=True)
    with ir.InsertionPoint(branch.then_block):
        scf.YieldOp([_reduced_angle(n, x, quarters)])
    with ir.InsertionPoint(branch.else_block):
        exact = function(x)
        exact.owner.attributes[LIBM] = ir.UnitAttr.get()
        scf.YieldOp([exact])
    return branch.results[0]


def _reduced_angle(n: Numbers, x: ir.Value, quarters: int) -> ir.Value:
    """In f64 what is left of an angle of f32 has all of its digits."""
    shape = list(n.kind.shape) if isinstance(n.kind, ir.VectorType) else None
    wide = Numbers(ir.VectorType.get(shape, ir.F64Type.get()) if shape else ir.F64Type.get())
    angle = arith.extf(wide.kind, x)
    magic = wide.number(1.5 * 2.0**wide.mantissa)
    shifted = math.fma(angle, wide.number(2 / np.pi), magic)  # the number of quarters, in its low bits
    k = arith.subf(shifted, magic)
    high, low = HALF_PI
    r = arith.truncf(n.kind, math.fma(k, wide.number(-low), math.fma(k, wide.number(-high), angle)))
    quadrant = arith.addi(arith.trunci(n.bits, wide.as_bits(shifted)), n.integer(quarters))
    square = arith.mulf(r, r)
    sine = math.fma(arith.mulf(square, r), n.polynomial(square, SIN), r)
    half = math.fma(square, n.number(-0.5), n.number(1.0))
    cosine = math.fma(arith.mulf(square, square), n.polynomial(square, COS), half)
    is_odd = arith.cmpi(arith.CmpIPredicate.ne, arith.andi(quadrant, n.integer(1)), n.integer(0))
    value = n.as_bits(arith.select(is_odd, cosine, sine))
    sign = arith.shli(arith.andi(quadrant, n.integer(2)), n.integer(30))
    return n.as_number(arith.xori(value, sign))


def whole_power(n: Numbers, x: ir.Value, exponent: int) -> ir.Value:
    """x to a power that is known, as products."""
    left, result, square = abs(exponent), None, x
    while left:
        if left % 2:
            result = square if result is None else arith.mulf(result, square)
        left //= 2
        square = arith.mulf(square, square) if left else square
    if result is None:
        return n.number(1.0)
    return result if exponent > 0 else n.divide(n.number(1.0), result)


def rsqrt(n: Numbers, x: ir.Value) -> ir.Value:
    return n.divide(n.number(1.0), math.sqrt(x))

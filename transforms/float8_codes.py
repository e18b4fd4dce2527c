"""Floats of 8 bits from f32 and f64 by integer arithmetic, on scalars and vectors.

Results are those of LLVM's APFloat: what is too large becomes ∞, or NaN where the type has no ∞.
"""

from __future__ import annotations

import numpy as np

from ..dialects.float8 import Float8
from ..dialects.mlir import arith, ir
from .polynomials import Numbers


def code_of(n: Numbers, x: ir.Value, kind: Float8) -> ir.Value:
    """The code, with its sign, of the number next to x, of two the even one; in an integer of x's width."""
    bits = n.as_bits(x)
    magnitude = arith.andi(bits, n.integer(~sign_mask(n)))
    exponent = exponent_bits(n, bits, kind)
    shift = n.mantissa - kind.mantissa
    unit = arith.addi(exponent, n.integer(shift << n.mantissa))
    sum_ = n.as_bits(arith.addf(n.as_number(magnitude), n.as_number(unit)))
    # What overflows on the way is larger than all codes.
    code = arith.addi(arith.subi(sum_, unit), arith.shrui(exponent, n.integer(shift)))
    code = arith.subi(code, n.integer((1 - kind.bias + n.bias) << kind.mantissa))
    code = arith.minui(code, n.integer(kind.infinity))
    if kind.has_infinities:
        code = n.select("ORD", x, x, code, n.integer(kind.nan))
    sign = arith.andi(arith.shrui(bits, n.integer(n.width - 8)), n.integer(0x80))
    if kind.has_one_zero:
        is_zero = arith.cmpi(arith.CmpIPredicate.eq, code, n.integer(0))
        sign = arith.select(is_zero, code, sign)
    return arith.ori(code, sign)


def exponent_bits(n: Numbers, bits: ir.Value, kind: Float8) -> ir.Value:
    """The bits of the power of two at or below |x|, but of the least normal number where x is below that."""
    exponent = arith.andi(bits, n.integer(bits_of(n, np.inf)))
    return arith.maxui(exponent, n.integer((1 - kind.bias + n.bias) << n.mantissa))


def sign_mask(n: Numbers) -> int:
    return -1 << (n.width - 1)


def bits_of(n: Numbers, value: float) -> int:
    return int(n.dtype(value).view(f"u{n.width // 8}"))

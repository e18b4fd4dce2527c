"""Floats of 8 bits from f32, rounded to nearest even, by integer arithmetic: any GPU has that, and too large numbers
become what the types have for them, NaN (e4m3fn) or infinity (e5m2), where PTX's conversions saturate."""

from __future__ import annotations

from ...dialects.float8 import FORMATS
from ...dialects.mlir import arith, ir
from .thread import create, f32, i32


def to_eight_bits(value: ir.Value, element: ir.Type) -> ir.Value:
    """The bits of a float of 8 bits, of type `element`, in an i32, for an f32."""
    form = FORMATS[str(element)]
    cut = 23 - form.mantissa
    bits = create("arith.bitcast", i32(), value)
    magnitude = arith.andi(bits, _integer(0x7FFFFFFF))
    odd = arith.andi(arith.shrui(magnitude, _integer(cut)), _integer(1))
    rounded = arith.addi(magnitude, arith.addi(odd, _integer((1 << (cut - 1)) - 1)))
    normal = arith.subi(arith.shrui(rounded, _integer(cut)), _integer((127 - form.bias) << form.mantissa))
    # Below the normal numbers steps are equal: those of f32 from this power of two on.
    power = 2.0 ** (23 + 1 - form.bias - form.mantissa)
    shifted = arith.addf(create("arith.bitcast", f32(), magnitude), arith.ConstantOp(f32(), power).result)
    base = create("arith.bitcast", i32(), arith.ConstantOp(f32(), power).result)
    small = arith.subi(create("arith.bitcast", i32(), shifted), base)
    least = _integer((127 + 1 - form.bias) << 23)
    found = arith.select(arith.cmpi(arith.CmpIPredicate.ult, magnitude, least), small, normal)
    found = _where_above(found, form.infinity - 1, found, form.infinity)
    found = _where_above(magnitude, 0x7F800000, found, form.nan)
    sign = arith.andi(arith.shrui(bits, _integer(24)), _integer(0x80))
    return arith.ori(found, sign)


def _where_above(value: ir.Value, limit: int, otherwise: ir.Value, result: int) -> ir.Value:
    above = arith.cmpi(arith.CmpIPredicate.sgt, value, _integer(limit))
    return arith.select(above, _integer(result), otherwise)


def _integer(value: int) -> ir.Value:
    return arith.ConstantOp(i32(), value).result

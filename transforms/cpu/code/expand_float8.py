"""The pass ``expand-float8``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ....dialects import llvm_ops
from ....dialects.build import element_of, is_float8, like
from ....dialects.float8 import Float8, float8
from ....dialects.mlir import arith, ir, math, vector
from ...float8_codes import bits_of, code_of, exponent_bits, sign_mask
from ...host import host_features
from ...limits import MOST_LANES
from ...passes import Pass, option
from ...polynomials import ROUNDED, Numbers
from ...rewriting import defining_op, ops_in
from .element_types import has_elements

TABLES = {"avx512vbmi", "avx512bw"}  # the features by which bytes are looked up in tables of 128
CONVERSIONS = ("arith.extf", "arith.truncf", "arith.bitcast", "arith.constant", "arith.select")
LOOKUP, BYTES = "llvm.x86.avx512.vpermi2var.qi.512", 64


@dataclass(frozen=True)
class ExpandFloat8(Pass):
    """Converts from and to floats of 8 bits by integer arithmetic, or tables: no CPU has instructions for them::

        %y = arith.truncf %x : f32 to f8E4M3FN
    becomes
        %e = max(bits of the exponent of %x, those of the least normal number)
        %t = arith.addf |%x|, 2^20·2^%e           # rounds to the nearest, of two to the even one: 3 bits are left
        %y = the low bits of %t, and those of %e  # at most the code of NaN; and the sign

        %y = arith.extf %x : vector<32xf8E4M3FN> to vector<32xbf16>
    becomes
        %b = vector.shuffle %x, … [0, 0, 1, 1, …] : vector<32xi8>, vector<32xi8>
        %y = lookups of %b in the upper and in the lower bytes of all numbers of bf16 that they are, and the sign

    Tables need AVX512-VBMI; without it, and for scalars, %x is f32 by shifts. Results are those of LLVM's APFloat: what
    is too large becomes ∞, or NaN where the type has no ∞. What is rounded to 8 bits and extended again stays f32::

        %r = arith.truncf %x : f32 to f8E4M3FN
        %y = arith.extf %r : f8E4M3FN to f32
    becomes
        %t = math.fma 2^%e, 2^20, |%x|
        %y = math.fma 2^%e, -2^20, %t             # NaN beyond the largest number; and the sign

    Other arithmetic on 8 bits, which only scalar loops still have, is that of f32, rounded.
    """

    tables: str = option("look numbers up (AVX512-VBMI): yes or no; empty = where the host can", "")

    def run(self, op: ir.Operation) -> None:
        if not has_elements(op, is_float8):
            return
        for old in ops_in(op, "arith.", "math."):
            if old.name not in CONVERSIONS and _has_float8(old):
                _in_f32(old)
        by_table = self.tables == "yes" or (not self.tables and host_features() >= TABLES)
        for old in ops_in(op, "arith.extf"):
            if is_float8(element_of(old.operands[0].type)):
                with ir.InsertionPoint(old), old.location:
                    new = _rounded(old) or _extended(old.operands[0], old.results[0].type, by_table)
                old.results[0].replace_all_uses_with(new)
                old.erase()
        for old in ops_in(op, "arith.truncf"):
            kind = float8(element_of(old.results[0].type))
            if kind is None:
                continue
            if list(old.results[0].uses):
                with ir.InsertionPoint(old), old.location:
                    old.results[0].replace_all_uses_with(_truncated(old.operands[0], kind, old.results[0].type))
            old.erase()


def _has_float8(op: ir.Operation) -> bool:
    return any(is_float8(element_of(v.type)) for v in (*op.operands, *op.results))


def _in_f32(old: ir.Operation) -> None:
    """Lets an op on floats of 8 bits compute in f32."""

    def wide(kind: ir.Type) -> ir.Type:
        return like(kind, ir.F32Type.get()) if is_float8(element_of(kind)) else kind

    with ir.InsertionPoint(old), old.location:
        operands = [_converted(v, wide(v.type)) if is_float8(element_of(v.type)) else v for v in old.operands]
        results = [wide(v.type) for v in old.results]
        attributes = {name: old.attributes[name] for name in old.attributes}
        new = ir.Operation.create(old.name, results=results, operands=operands, attributes=attributes)
        for before, after in zip(old.results, new.results, strict=True):
            before.replace_all_uses_with(after if after.type == before.type else _converted(after, before.type))
    old.erase()


def _truncated(x: ir.Value, kind: Float8, result: ir.Type) -> ir.Value:
    n = Numbers(x.type)
    byte = arith.trunci(like(x.type, ir.IntegerType.get_signless(8)), code_of(n, n.widen(x), kind))
    return arith.bitcast(result, byte)


def _rounded(extension: ir.Operation) -> ir.Value | None:
    """What was truncated right before, in its own type; None if nothing was."""
    made, kind = defining_op(extension.operands[0]), float8(element_of(extension.operands[0].type))
    if made is None or made.name != "arith.truncf" or kind is None:
        return None
    n = Numbers(made.operands[0].type)
    x = n.widen(made.operands[0])
    is_power = _note_power(made)
    bits = n.as_bits(x)
    magnitude = x if is_power else n.as_number(arith.andi(bits, n.integer(~sign_mask(n))))
    power = n.as_number(exponent_bits(n, bits, kind))
    scale = 2.0 ** (n.mantissa - kind.mantissa)
    result = math.fma(power, n.number(-scale), math.fma(power, n.number(scale), magnitude))
    # 0 · NaN and ∞ · ∞ are what they should be, and ∞ − ∞ is compared with as NaN.
    beyond = arith.mulf(magnitude, n.number(np.inf)) if kind.has_infinities else n.number(np.nan)
    result = n.select("OLE", result, n.number(kind.largest), result, beyond)
    if not is_power:
        sign = arith.andi(bits, n.integer(sign_mask(n)))
        if kind.has_one_zero:
            sign = n.select("OEQ", result, n.number(0.0), n.integer(0), sign)
        result = n.as_number(arith.ori(n.as_bits(result), sign))
    return _converted(result, extension.results[0].type)


def _note_power(truncation: ir.Operation) -> bool:
    """Whether a power is rounded, perhaps times a positive constant: it is never negative.

    One that is only rounded, and summed up, need not be computed to the last bit: `expand-math` is told.
    """
    chain, made = [truncation], defining_op(truncation.operands[0])
    if made is not None and made.name == "arith.mulf":
        for factor, other in (list(made.operands), list(made.operands)[::-1]):
            if (number := _splat(factor)) is not None and 0 < number < np.inf:
                chain, made = [truncation, made], defining_op(other)
                break
    if made is None or made.name not in ("math.exp", "math.exp2"):
        return False
    users = [use.owner.operation for link in (made, *chain[1:]) for use in link.results[0].uses]
    if all(user.name == "arith.addf" or user in chain for user in users):
        made.attributes[ROUNDED] = ir.TypeAttr.get(element_of(truncation.results[0].type))
    return True


def _splat(value: ir.Value) -> float | None:
    """The number that a constant is, or has in every lane."""
    made = defining_op(value)
    if made is None or made.name != "arith.constant":
        return None
    attribute = made.attributes["value"]
    if isinstance(attribute, ir.DenseElementsAttr):
        return attribute.get_splat_value().value if attribute.is_splat else None
    return attribute.value


def _extended(x: ir.Value, result: ir.Type, by_table: bool) -> ir.Value:
    element = element_of(result)
    is_row = isinstance(result, ir.VectorType) and len(result.shape) == 1
    is_looked_up = by_table and is_row and 16 <= result.shape[0] <= MOST_LANES  # an op for every 16 to 32
    if is_looked_up and isinstance(element, ir.BF16Type):
        return _looked_up(x, result)
    as_f32 = like(x.type, ir.F32Type.get())
    return _converted(_looked_up(x, as_f32) if is_looked_up else _shifted(x, as_f32), result)


def _shifted(x: ir.Value, result: ir.Type) -> ir.Value:
    """f32 by moving bits: a number next to 0 is the difference of a normal one and the least normal one."""
    kind = float8(element_of(x.type))
    assert kind is not None
    n = Numbers(result)
    code = arith.extui(n.bits, arith.bitcast(like(x.type, ir.IntegerType.get_signless(8)), x))
    magnitude = arith.andi(code, n.integer(0x7F))
    one = 1 << n.mantissa
    moved = arith.addi(
        arith.shli(magnitude, n.integer(n.mantissa - kind.mantissa)), n.integer((n.bias - kind.bias) * one)
    )
    small = arith.subf(n.as_number(arith.addi(moved, n.integer(one))), n.number(kind.least_normal))
    is_small = arith.cmpi(arith.CmpIPredicate.ult, magnitude, n.integer(1 << kind.mantissa))
    bits = arith.select(is_small, n.as_bits(small), moved)
    if kind.has_infinities:
        is_infinite = arith.cmpi(arith.CmpIPredicate.eq, magnitude, n.integer(kind.infinity))
        bits = arith.select(is_infinite, n.integer(bits_of(n, np.inf)), bits)
    bits = arith.ori(bits, arith.shli(arith.andi(code, n.integer(0x80)), n.integer(n.width - 8)))
    if kind.has_one_zero:
        is_nan = arith.cmpi(arith.CmpIPredicate.eq, code, n.integer(kind.nan))
    else:
        least = kind.infinity + 1 if kind.has_infinities else kind.nan
        is_nan = arith.cmpi(arith.CmpIPredicate.uge, magnitude, n.integer(least))
    return n.as_number(arith.select(is_nan, n.integer(bits_of(n, np.nan)), bits))


def _looked_up(x: ir.Value, result: ir.Type) -> ir.Value:
    """A vector of bf16 or f32 from tables of the two upper bytes of each number; f32 has two more, zeros."""
    kind = float8(element_of(x.type))
    assert kind is not None
    i8 = ir.IntegerType.get_signless(8)
    bytes_ = arith.bitcast(like(x.type, i8), x)
    lanes, width = result.shape[0], result.element_type.width // 8
    step = BYTES // width
    parts = []
    for start in range(0, lanes, step):
        places = [min(start + byte // width, lanes - 1) for byte in range(BYTES)]
        number = _bytes_of_numbers(vector.ShuffleOp(bytes_, bytes_, places).result, width, kind)
        parts.append(vector.bitcast(ir.VectorType.get([step], result.element_type), number))
    found = parts[0]
    for count, part in enumerate(parts[1:], 1):  # of as many each time, but for the last one
        order = list(range(count * step)) + [count * step + i for i in range(step)]
        if count > 1:
            part = vector.ShuffleOp(part, part, [min(i, step - 1) for i in range(count * step)]).result
        found = vector.ShuffleOp(found, part, order).result
    return found if found.type == result else vector.ShuffleOp(found, found, list(range(lanes))).result


def _bytes_of_numbers(codes: ir.Value, width: int, kind: Float8) -> ir.Value:
    """The bytes of numbers, `width` each; `codes` has that of each number in the places of all of its bytes."""
    numbers = np.array([_value(kind, code) for code in range(128)], np.float32).view(np.uint32) >> 16
    tables = [_constant(half) for part in (numbers & 0xFF, numbers >> 8) for half in (part[:64], part[64:])]
    low, high = (
        llvm_ops.call_intrinsic(codes.type, LOOKUP, [first, codes, second])
        for first, second in (tables[:2], tables[2:])
    )
    place = np.arange(BYTES) % width
    found = arith.select(_mask(place == width - 2), low, _constant(np.zeros(BYTES)))
    found = arith.select(_mask(place == width - 1), high, found)
    found = arith.ori(found, arith.andi(codes, _constant(np.where(place == width - 1, 0x80, 0))))
    if kind.has_one_zero:
        is_nan = arith.cmpi(arith.CmpIPredicate.eq, codes, _constant(np.full(BYTES, kind.nan)))
        nan = np.where(place == width - 1, 0x7F, np.where(place == width - 2, 0xC0, 0))
        found = arith.select(is_nan, _constant(nan), found)
    return found


def _value(kind: Float8, code: int) -> float:
    """What a code without its sign stands for."""
    if code < kind.infinity:
        return kind.number(code)
    return np.inf if kind.has_infinities and code == kind.infinity else np.nan


def _constant(numbers: np.ndarray) -> ir.Value:
    kind = ir.VectorType.get([BYTES], ir.IntegerType.get_signless(8))
    attribute = ir.DenseElementsAttr.get(numbers.astype(np.uint8).view(np.int8), type=kind)
    return arith.ConstantOp(kind, attribute).result


def _mask(lanes: np.ndarray) -> ir.Value:
    i1 = ir.IntegerType.get_signless(1)
    kind = ir.VectorType.get([len(lanes)], i1)
    values = [ir.IntegerAttr.get(i1, int(lane)) for lane in lanes]
    return arith.ConstantOp(kind, ir.DenseElementsAttr.get(values, kind)).result


def _converted(value: ir.Value, kind: ir.Type) -> ir.Value:
    """A number of f32 or f64 in another type."""
    if value.type == kind:
        return value
    is_wider = element_of(kind).width > element_of(value.type).width
    return (arith.extf if is_wider else arith.truncf)(kind, value)

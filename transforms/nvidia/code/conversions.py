"""Elements as they stand in memory, and as registers hold them."""

from __future__ import annotations

from ....dialects.float8 import FORMATS
from ....dialects.mlir import ir
from ...float8_codes import code_of
from ...polynomials import Numbers
from ..elements import EIGHT_BITS, byte_width
from .thread import EQ, compare, constant, create, f32, i1, i64, register_type, select, stored_type


def from_word(word: ir.Value, element: ir.Type) -> ir.Value:
    """An element, whose bits are the lowest of a word, as a register holds it."""
    width = byte_width(element)
    if width == 4:
        return create("arith.bitcast", f32(), word) if isinstance(element, ir.FloatType) else word
    narrow = create("arith.trunci", ir.IntegerType.get_signless(8 * width), word)
    if width == 2 and isinstance(element, ir.FloatType):
        narrow = create("arith.bitcast", element, narrow)
    return to_register(narrow, element)


def to_register(value: ir.Value, element: ir.Type) -> ir.Value:
    if str(element) == "i1":
        zero = constant(value.type, 0)
        return create("arith.cmpi", i1(), value, zero, predicate=ir.IntegerAttr.get(i64(), 1))
    if isinstance(element, ir.Float8E4M3FNType):
        return _from_e4m3(value)
    if isinstance(element, ir.Float8E5M2Type):
        return _from_e5m2(value)
    target = register_type(element)
    if value.type == target:
        return value
    return create("arith.trunci" if isinstance(element, ir.IndexType) else "arith.extf", target, value)


def _from_e4m3(bits: ir.Value) -> ir.Value:
    """A float of 8 bits, e4m3fn, as f32: its bits are those of an f16 that is 2^-8 as large; 0x7f is NaN."""
    half = ir.IntegerType.get_signless(16)
    word = create("arith.extui", half, bits)
    magnitude = create("arith.andi", half, word, constant(half, 0x7F))
    sign = create("arith.shli", half, create("arith.andi", half, word, constant(half, 0x80)), constant(half, 8))
    packed = create("arith.ori", half, sign, create("arith.shli", half, magnitude, constant(half, 7)))
    value = create("arith.extf", f32(), create("arith.bitcast", ir.F16Type.get(), packed))
    nan = compare(EQ, magnitude, constant(half, 0x7F))
    return select(nan, constant(f32(), float("nan")), create("arith.mulf", f32(), value, constant(f32(), 256.0)))


def _from_e5m2(bits: ir.Value) -> ir.Value:
    """A float of 8 bits, e5m2, as f32: its bits are the upper ones of an f16."""
    half = ir.IntegerType.get_signless(16)
    word = create("arith.shli", half, create("arith.extui", half, bits), constant(half, 8))
    return create("arith.extf", f32(), create("arith.bitcast", ir.F16Type.get(), word))


def eight_bits(value: ir.Value, element: ir.Type) -> ir.Value:
    """The bits of a float of 8 bits, of type `element`, in an i32, for an f32. PTX's conversions, which not all GPUs
    have, saturate; this gives what is too large NaN or ∞."""
    return code_of(Numbers(f32()), value, FORMATS[str(element)])


def to_memory(value: ir.Value, element: ir.Type) -> ir.Value:
    """What a register holds as it stands in memory."""
    stored = stored_type(element)
    if isinstance(element, EIGHT_BITS):
        return create("arith.trunci", stored, eight_bits(value, element))
    if stored == value.type:
        return value
    if isinstance(stored, ir.FloatType):
        return create("arith.truncf", stored, value)
    return create("arith.extsi" if isinstance(element, ir.IndexType) else "arith.extui", stored, value)

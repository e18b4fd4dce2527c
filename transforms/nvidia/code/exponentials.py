"""Emits 2^x by a table in shared memory: ``tile.fill_exp2``, ``tile.exp2``.

The special unit gives 16 exponentials in a clock, shared memory 32 words. x + 127 becomes the mantissa of a float t::

    bits of t:   e e e e e e e e e   n n n n n n n n   k k k k k k k k   r r r r r r r     n + 0.k r: x + 127
    2^x        = bits(table[k] + (bits(t) << 8))                         k picks 2^0.k, r goes on in a line from there

which are four instructions with the load, for two: t, a mask, the load, the sum. Where x may be anything, it is kept
between −127 and 128.25 by one more, y = saturated((128.25 − x) / 255.25), from which t is then made. What is below that
range, as −∞ is, gives 0, where the line of the first entry begins: rows without a key must have no sum. What is above
it, and NaN (whose saturation is 0), gives NaN: 255 stands in the exponent.

Each lane has its own copy of the 256 entries, in its own bank. The line, of slope 1, is off by 2^-10.7 of the result at
most, 2^-12.5 root mean square, 0 on the average; that results are then rounded to 16 bits is up to 2^-12 of f16, 2^-9
of bf16.
"""

from __future__ import annotations

import math
from typing import TypeAlias

from ....dialects.mlir import arith, ir
from ....dialects.mlir import math as mlir_math
from ....dialects.tile import EXP2_WORDS
from ..bounds import MOST
from .tables import fill_words
from .thread import Thread, add, asm, constant, create, div, f32, i32, mul

Factor: TypeAlias = "float | ir.Value"  # a constant, or a row's

LANES = 32
ENTRIES = EXP2_WORDS // LANES
MANTISSA = 1 << 23  # 1 in a float's mantissa; also of its exponent
BIAS = 127  # of exponents
MAGIC = 256.0 + BIAS  # t = x + MAGIC, a float of [256, 512) whose last bit is 2^-15
SPAN = 255.25  # of x where it is not: t = FIRST + (x − TOP) / 256, of [1, 2)
UNIT = 256  # of the table's words: what the last bit of t is in the result
ZERO = 19  # so many of them the first entry's line begins below 0
TOP = SPAN - BIAS + ZERO / (MANTISSA // ENTRIES)
FIRST = 1 + (TOP + BIAS) / ENTRIES


def fill(address: ir.Value, thread: Thread) -> None:
    """Writes the table: what makes the bits of 2^x of (bits(t) << 8), which is (x + 127) · 2²³ + 2³¹."""

    def word(number: ir.Value) -> ir.Value:
        entry = div(number, LANES)
        at = arith.mulf(arith.sitofp(f32(), entry), constant(f32(), 1 / ENTRIES))
        (power,) = asm("ex2.approx.ftz.f32 $0, $1;", "=f,f", [at], [f32()], effects=False)
        # The line begins so far below that it is right on the average.
        half = 0.5 / ENTRIES
        scaled, below = (1 + math.log(2) * half) * MANTISSA, (1 + half) * MANTISSA
        units = mlir_math.fma(power, constant(f32(), scaled / UNIT), constant(f32(), 0.5 - below / UNIT))
        above_one = mul(arith.fptosi(i32(), units), UNIT)
        line = create("arith.subi", i32(), above_one, mul(entry, MANTISSA // ENTRIES))
        return add(line, constant(i32(), -(1 << 31)))

    fill_words(address, EXP2_WORDS, word, thread)


def row_part(row: ir.Value | None, bound: float | None) -> ir.Value:
    """What t or y has of a row, where x is the sum of an element and a number of its row. The element is at most
    `bound`: then the row's number is kept within what that leaves, where exponentials are 0 beside others, or too large
    for all that is made of them."""
    row = constant(f32(), 0.0) if row is None else row
    if bound is None:
        return mlir_math.fma(row, constant(f32(), -1 / SPAN), constant(f32(), TOP / SPAN))
    left = MOST - bound
    kept = arith.maximumf(arith.minimumf(row, constant(f32(), left)), constant(f32(), -left))
    return arith.addf(kept, constant(f32(), MAGIC))


def of_elements(factor: Factor, times: float = 1.0) -> ir.Value:
    """A factor, times a number, as a value."""
    if isinstance(factor, ir.Value):
        return factor if times == 1 else arith.mulf(factor, constant(f32(), times))
    return constant(f32(), factor * times)


def look_up(
    element: ir.Value, factor: Factor, row: ir.Value, bounded: bool, address: ir.Value, thread: Thread
) -> ir.Value:
    """2^(factor · element + …); `row`: what `row_part` gives for the rest."""
    if bounded:
        t = mlir_math.fma(element, of_elements(factor), row)
    else:
        factors = [element, of_elements(factor, -1 / SPAN), row]
        (y,) = asm("fma.rn.sat.f32 $0, $1, $2, $3;", "=f,f,f,f", factors, [f32()], effects=False)
        t = mlir_math.fma(y, constant(f32(), -SPAN / ENTRIES), constant(f32(), FIRST))
    # The lane's place, then the address: the first becomes one instruction with the mask, the other part of the load.
    text = (
        "{ .reg .b32 a; and.b32 a, $1, 0x7f80; or.b32 a, a, $2; add.u32 a, a, $3; ld.shared.b32 a, [a]; "
        "mad.lo.s32 $0, $1, 256, a; }"
    )
    operands = [create("arith.bitcast", i32(), t), mul(thread.lane, 4), address]
    (found,) = asm(text, "=r,r,r,r", operands, [i32()], effects=False)
    return create("arith.bitcast", f32(), found)

"""Emits stores of tiles from registers to memory.

A thread's elements of a row stand in pairs, four threads (a quad) side by side: stored so, an instruction of a warp
writes 16 bytes to each of 8 rows. Where rows are aligned to 16 bytes, the quad first exchanges its pairs, each of which
is a word of 16-bit floats, and each thread writes 16 bytes, a quad 64 to a row: a quarter of the instructions, and of
the lines of memory that they touch.

    lane of a quad          0  1  2  3                0  1  2  3
    word 0 (columns 0-7)    a0 b0 c0 d0               a0 a1 a2 a3
    word 1 (columns 8-15)   a1 b1 c1 d1   becomes     b0 b1 b2 b3
    word 2 (columns 16-23)  a2 b2 c2 d2               c0 c1 c2 c3
    word 3 (columns 24-31)  a3 b3 c3 d3               d0 d1 d2 d3
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

from ....dialects.mlir import ir
from ....dialects.tile import layout_of
from ...passes import PassError
from ..elements import EIGHT_BITS
from .conversions import eight_bits
from .memory import Access, positions_of
from .spread import Spread
from .thread import (
    EQ,
    Registers,
    Thread,
    add,
    asm,
    at,
    compare,
    constant,
    create,
    div,
    i1,
    i32,
    less,
    mul,
    places,
    rem,
    select,
    shuffled,
)

PIECE = 8  # elements of two bytes that a thread stores at once
QUAD = 4


def store_registers(
    access: Access, tile: Registers, kind: ir.RankedTensorType, together: int, thread: Thread
) -> list[Callable[[], None]]:
    """A tile from registers to memory, where it is valid; several columns at once where they stand side by side. What
    emits a piece of it each.

    `together`: how many are valid together, at an address that is a multiple of their size.
    """
    layout, element = layout_of(kind), access.memory.element
    if layout not in ("fragment", "row"):
        raise PassError("only tiles of rows are stored to memory", None)
    _check_element(element)
    if layout == "fragment" and access.memory.bytes == 2 and together % PIECE == 0:
        return _pieces(access, tile, thread)
    width = 2 if layout == "fragment" and together % 2 == 0 else 1

    def store(first: int, place: tuple[int | None, int | None]) -> None:
        number, valid = access.element(positions_of(place, thread))
        if layout == "row":  # one thread of a quad
            lane = compare(EQ, thread.column, thread.zero)
            valid = lane if valid is None else create("arith.andi", i1(), valid, lane)
        _store(access.memory.address(number), tile.values[first : first + width], element, valid)

    own = places(layout, len(tile.values))
    return [functools.partial(store, e, own[e]) for e in range(0, len(own), width)]


def store_spread(access: Access, tile: Spread, kind: ir.RankedTensorType, thread: Thread) -> None:
    """A tile whose elements are computed when they are asked for, one a thread at a time."""
    _check_element(access.memory.element)
    columns = math.prod(kind.shape[1:])
    total = kind.shape[0] * columns
    for first in range(0, total, thread.threads):
        number = add(thread.number, first)
        positions = [div(number, columns), rem(number, columns)][: kind.rank]
        place, valid = access.element(positions)
        if total % thread.threads:
            exists = less(number, constant(i32(), total))
            valid = exists if valid is None else create("arith.andi", i1(), valid, exists)
        _store(access.memory.address(place), tile.elements(positions, None, 1), access.memory.element, valid)


def _check_element(element: ir.Type) -> None:
    if str(element) not in ("f16", "bf16", "f32") and not isinstance(element, EIGHT_BITS):
        raise PassError(f"results of type {element} are not stored by kernels: use f16, bf16 or f32", None)


def _pieces(access: Access, tile: Registers, thread: Thread) -> list[Callable[[], None]]:
    """A fragment, 16 bytes a thread: of 32 columns one row, of the last 16 columns half of them each of two rows."""
    lane = rem(thread.lane, QUAD)
    whole = tile.shape[1] // (QUAD * PIECE)

    def word(half: int, column: int) -> ir.Value:
        e = at("fragment", half, 2 * column)
        return _packed(tile.values[e : e + 2], str(access.memory.element))

    def store(group: int) -> None:
        for half in (0, 1):
            pieces = _exchanged([word(half, QUAD * group + i) for i in range(QUAD)], lane)
            column = add(mul(lane, PIECE), group * QUAD * PIECE)
            _store_piece(access, pieces, thread.place(0, half), column)

    def store_rest() -> None:
        pieces = _exchanged([word(half, QUAD * whole + i) for half in (0, 1) for i in (0, 1)], lane)
        row = add(thread.row, mul(create("arith.shrui", i32(), lane, constant(i32(), 1)), 8))
        _store_piece(access, pieces, row, add(mul(rem(lane, 2), PIECE), whole * QUAD * PIECE))

    rest = [store_rest] if tile.shape[1] % (QUAD * PIECE) else []
    return [*(functools.partial(store, group) for group in range(whole)), *rest]


def _exchanged(words: list[ir.Value], lane: ir.Value) -> list[ir.Value]:
    """Word i of thread `lane` of a quad: what was word `lane` of thread i. (Bit by bit of the two numbers.)"""
    words = list(words)
    for bit in (1, 2):
        upper = compare(EQ, create("arith.andi", i32(), lane, constant(i32(), bit)), constant(i32(), bit))
        for i in (i for i in range(QUAD) if not i & bit):
            low, high = words[i], words[i | bit]
            other = shuffled(select(upper, low, high), "bfly", bit)
            words[i], words[i | bit] = select(upper, other, low), select(upper, high, other)
    return words


def _store_piece(access: Access, words: Sequence[ir.Value], row: ir.Value, column: ir.Value) -> None:
    number, valid = access.element([row, column])
    _predicated("st.global.v4.b32", "{$2, $3, $4, $5}", access.memory.address(number), words, "r", valid)


def _packed(values: Sequence[ir.Value], element: str) -> ir.Value:
    """Two floats, rounded to 16 bits, in a word."""
    (word,) = asm(f"cvt.rn.{element}x2.f32 $0, $2, $1;", "=r,f,f", values, [i32()], effects=False)
    return word


def _store(address: ir.Value, values: Sequence[ir.Value], element: ir.Type, valid: ir.Value | None) -> None:
    name = str(element)
    if name == "f32":
        instruction = f"st.global{'.v2' if len(values) == 2 else ''}.f32"
        _predicated(instruction, "{$2, $3}" if len(values) == 2 else "$2", address, values, "f", valid)
    elif isinstance(element, EIGHT_BITS):
        bits = [eight_bits(value, element) for value in values]
        for upper in bits[1:]:
            bits = [create("arith.ori", i32(), bits[0], mul(upper, 256))]
        _predicated(f"st.global.b{8 * len(values)}", "$2", address, bits, "r", valid)
    elif len(values) == 2:
        _predicated("st.global.b32", "$2", address, [_packed(values, name)], "r", valid)
    else:
        half = ir.IntegerType.get_signless(16)
        operands = asm(f"cvt.rn.{name}.f32 $0, $1;", "=h,f", values, [half], effects=False)
        _predicated("st.global.b16", "$2", address, operands, "h", valid)


def _predicated(
    instruction: str, source: str, address: ir.Value, operands: Sequence[ir.Value], kind: str, valid: ir.Value | None
) -> None:
    """A store of operands in registers of a kind, where it is valid."""
    flag = create("arith.extui", i32(), valid) if valid is not None else constant(i32(), 1)
    asm(
        f"{{ .reg .pred p; setp.ne.b32 p, $1, 0; @p {instruction} [$0], {source}; }}",
        f"l,r,{','.join(kind * len(operands))}",
        [address, flag, *operands],
    )

"""Emits tiles of rows that are not aligned: copied 16 bytes a thread to the layout "skewed", and read as fragments.

In memory and in shared memory 16 bytes begin at a multiple of them; in both a row begins somewhere among the first of
them. What elements take to come to their threads depends on how rows are known to be aligned: two that a fragment has
side by side come at once from rows that are aligned to both.
"""

from __future__ import annotations

import functools
import math

from ....dialects.mlir import ir
from ...rewriting import make_for, only_if
from ..alignment import CHUNK
from ..architecture import ARRANGERS
from .fragments import Packed, Words
from .memory import GLOBAL, Access, Memory
from .synchronisation import Barriers
from .thread import (
    Registers,
    Skewed,
    Thread,
    add,
    asm,
    constant,
    create,
    div,
    f32,
    i32,
    i64,
    less,
    mul,
    permuted,
    places,
    pointer,
    rem,
    select,
    wide,
)

GROUP = 8  # rows that are copied at once: of elements of 2 bytes or more, those 8 on are shifted alike
AT_ONCE = 8  # groups of an iteration


def row_shifts(memory: Memory, offsets: list[ir.Value], dim: int, rows: int, thread: Thread) -> Registers:
    """Of the rows that a thread has of a fragment, how many bytes behind a multiple of 16 they begin."""
    start = _address(memory, memory.base(offsets))
    values: list[ir.Value] = []
    for half in (0, 1):
        if half and memory.bytes > 1:  # eight rows on, it is the same
            values.append(values[0])
            continue
        place = add(start, mul(mul(wide(thread.place(0, half)), memory.strides[dim]), memory.bytes))
        values.append(create("arith.andi", i32(), create("arith.trunci", i32(), place), constant(i32(), CHUNK - 1)))
    return Registers("row", (rows,), values)


def _address(memory: Memory, element: ir.Value) -> ir.Value:
    return add(create("llvm.ptrtoint", i64(), memory.pointer), mul(element, memory.bytes))


def copy_rows(access: Access, tile: Skewed, ready: Barriers, use: ir.Value, thread: Thread) -> None:
    """A tile from memory; what is not valid becomes 0, and is not read. The barrier for that use hears of the copies of
    each thread of the last warps.

    Of a row a thread has one piece of 16 bytes, or more, the same of all rows eight apart; from one to the next go two
    additions.
    """
    width, threads = tile.width, 32 * ARRANGERS
    pieces = tile.pitch // CHUNK
    each = -(-pieces // (threads // GROUP))
    lanes = -(-pieces // each)
    number = add(thread.number, threads - thread.threads)
    stride = access.stride(0)
    assert stride is not None, "rows of a tile are rows of memory"
    with only_if(less(number, constant(i32(), GROUP * lanes)) if GROUP * lanes < threads else None):
        row, piece = div(number, lanes), rem(number, lanes)
        step = mul(stride, width)
        start = add(_address(access.memory, access.base), mul(wide(row), step))
        step = mul(step, GROUP)
        target = add(tile.address, add(mul(row, tile.pitch), mul(piece, CHUNK)))
        pieces_of = [add(piece, i * lanes) for i in range(each)]
        counts = [] if width == 1 else _counts(access, start, pieces_of, width)
        # In a loop: else all addresses would be computed before the loop around it, and kept in registers.
        bounds = [constant(i32(), n) for n in (0, tile.shape[0], GROUP * AT_ONCE)]
        _, body = make_for(bounds, [start, target])
        first, start, target = body.arguments
        with ir.InsertionPoint(body):
            for group in range(AT_ONCE):
                found = counts or _counts(access, start, pieces_of, width)
                source = add(create("arith.andi", i64(), start, constant(i64(), -CHUNK)), wide(mul(piece, CHUNK)))
                at = add(add(row, first), GROUP * group)
                inside = None if access.is_full(0) else less(at, access.sizes[0])
                for i, count in enumerate(found):
                    valid = count if inside is None else select(inside, count, constant(i32(), 0))
                    further = i * lanes * CHUNK
                    exists = f"setp.gt.s32 p, {pieces - i * lanes}, $3; @p " if (i + 1) * lanes > pieces else ""
                    asm(
                        f"{{ .reg .pred p; {exists}cp.async.cg.shared.global "
                        f"[$0+{group * GROUP * tile.pitch + further}], [$1+{further}], {CHUNK}, $2; }}",
                        "r,l,r,r",
                        [target, create("llvm.inttoptr", pointer(GLOBAL), source), valid, piece],
                    )
                start = add(start, step)
            ir.Operation.create("scf.yield", [], [start, add(target, AT_ONCE * GROUP * tile.pitch)])
    asm(f"cp.async.mbarrier.arrive.noinc.shared::cta.b64 [$0+{ready.offset}];", "r", [ready.at(use)])


def _counts(access: Access, start: ir.Value, pieces: list[ir.Value], width: int) -> list[ir.Value]:
    """How many bytes of each piece of a row are valid."""
    shift = create("arith.andi", i32(), create("arith.trunci", i32(), start), constant(i32(), CHUNK - 1))
    columns = constant(i32(), access.shape[1]) if access.is_full(1) else access.sizes[1]
    end = add(shift, mul(columns, width))
    found = []
    for piece in pieces:
        left = create("arith.maxsi", i32(), add(end, mul(piece, -CHUNK)), constant(i32(), 0))
        found.append(create("arith.minsi", i32(), left, constant(i32(), CHUNK)))
    return found


def load_skewed(
    tile: Skewed, kind: ir.RankedTensorType, shifts: Registers, aligned: int, at_once: bool, thread: Thread
) -> Registers:
    """All elements of a tile that a thread has; `at_once`: they are used as they come, else kept two in a word."""
    words: Words = []
    loaded: list[ir.Value] = []
    width, element = tile.width, kind.element_type
    together = math.gcd(aligned, 2 * width) // width == 2
    row = add(tile.address, mul(add(mul(thread.warp, 16), div(thread.lane, 4)), tile.pitch))
    columns = [add(shift, mul(thread.column, width)) for shift in shifts.values]
    if 8 * width == CHUNK:
        turned = _Turned(row, columns[0], together)
        pairs = [turned.pair, turned.pair]
        if at_once and not together and isinstance(element, ir.BF16Type):
            pairs, element = [turned.floats, turned.floats], f32()
    else:
        load = _together if together else _at_once if at_once else _in_words
        pairs = [functools.partial(load, width, [(add(row, c), 0), (add(row, c), width)]) for c in columns]
    for half, column in places("fragment", Registers.count(kind))[::2]:
        assert half is not None and column is not None
        found = pairs[half](half * GROUP * tile.pitch + width * thread.distance(1, column))
        loaded += list(dict.fromkeys(word for word, _ in found))
        words += found
    return Registers("fragment", tuple(kind.shape), Packed(words, element), loaded=loaded)


Places = list[tuple[ir.Value, int]]  # addresses, and how many bytes behind them


class _Turned:
    """Reads pairs of elements of 2 bytes, eight columns at a time: as many bytes as a piece, but those of a shifted row
    stand in two. All lanes of a row read the first one, at their places modulo 16 bytes, so that no two of eight rows
    are in the same banks; those whose element is in the second one take what they read for the next columns."""

    def __init__(self, row: ir.Value, column: ir.Value, together: bool):
        ends = [column] if together else [column, add(column, 2)]
        inside = [create("arith.andi", i32(), end, constant(i32(), CHUNK - 1)) for end in ends]
        self._places: Places = [(add(row, place), 0) for place in inside]
        self._is_next = [less(constant(i32(), CHUNK - 1), end) for end in ends]
        self._words = functools.cache(functools.partial(_together if together else _in_words, 2, self._places))
        self._elements = functools.cache(functools.partial(_at_once, 2, self._places))

    def pair(self, offset: int) -> Words:
        low, high = self._is_next[0], self._is_next[-1]
        selector = add(_either(low, 0x54, 0x10), _either(high, 0x7600, 0x3200))
        (here, _), (there, _) = self._words(offset)[0], self._words(offset + CHUNK)[0]
        word = permuted(here, there, selector)
        return [(word, 0), (word, 16)]

    def floats(self, offset: int) -> Words:
        """Of bf16: each in a word, whose upper half it is; the other one is 0."""
        here, there = self._elements(offset), self._elements(offset + CHUNK)
        selectors = [_either(is_next, 0x5476, 0x1032) for is_next in self._is_next]
        return [(permuted(a, b, s), 0) for (a, _), (b, _), s in zip(here, there, selectors, strict=True)]


def _either(condition: ir.Value, one: int, other: int) -> ir.Value:
    return select(condition, constant(i32(), one), constant(i32(), other))


def _together(width: int, places: Places, offset: int) -> Words:
    """Two neighbours by one load; they are aligned to both."""
    place, behind = places[0]
    at = offset + behind
    if width == 4:
        found = asm(f"ld.shared.v2.b32 {{$0, $1}}, [$2+{at}];", "=r,=r,r", [place], [i32()] * 2)
        return [(word, 0) for word in found]
    word = _loaded(2 * width, place, at)
    return [(word, 0), (word, 8 * width)]


def _at_once(width: int, places: Places, offset: int) -> Words:
    """Two neighbours, each in a word of its own."""
    return [(_loaded(width, place, offset + behind), 0) for place, behind in places]


def _in_words(width: int, places: Places, offset: int) -> Words:
    """Two neighbours, in one word if they fit."""
    both = _at_once(width, places, offset)
    if width == 4:
        return both
    word = permuted(both[0][0], both[1][0], 0x5410 if width == 2 else 0x0040)
    return [(word, 0), (word, 8 * width)]


def _loaded(width: int, place: ir.Value, offset: int) -> ir.Value:
    load = f"[$1+{offset}];"
    if width == 4:
        return asm(f"ld.shared.b32 $0, {load}", "=r,r", [place], [i32()])[0]
    text = f"{{ .reg .b16 t; ld.shared.u{8 * width} t, {load} cvt.u32.u16 $0, t; }}"
    return asm(text, "=r,r", [place], [i32()])[0]

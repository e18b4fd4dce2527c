"""Emits tiles of rows that are not aligned: copied 16 bytes a thread to the layout "skewed", and read as fragments.

In memory and in shared memory 16 bytes begin at a multiple of them; in both a row begins somewhere among the first of
them. What elements take to come to their threads depends on how rows are known to be aligned: two that a fragment has
side by side come at once from rows that are aligned to both.
"""

from __future__ import annotations

import math

from ...dialects.mlir import ir
from ..rewriting import only_if
from .fragments import Packed, Words
from .memory import CHUNK, GLOBAL, Access, Memory
from .synchronisation import ARRANGERS, Barriers
from .thread import (
    Registers,
    Skewed,
    Thread,
    add,
    asm,
    constant,
    create,
    div,
    i32,
    i64,
    less,
    mul,
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
    stride = access.strides[0]
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
        kinds = [i64(), i32()]
        loop = ir.Operation.create("scf.for", kinds, [*bounds, start, target], regions=1)
        body = loop.regions[0].blocks.append(i32(), *kinds, arg_locs=[ir.Location.unknown()] * 3)
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
    width = tile.width
    pair = _load_pair(width, math.gcd(aligned, 2 * width) // width == 2, at_once)
    row = add(mul(thread.warp, 16), div(thread.lane, 4))
    starts = [
        add(add(tile.address, add(mul(row, tile.pitch), mul(thread.column, width))), shift) for shift in shifts.values
    ]
    for half, column in places("fragment", Registers.count(kind))[::2]:
        assert half is not None and column is not None
        found = pair(starts[half], half * GROUP * tile.pitch + width * 8 * (column // 2))
        loaded += list(dict.fromkeys(word for word, _ in found))
        words += found
    return Registers("fragment", tuple(kind.shape), Packed(words, kind.element_type), loaded=loaded)


def _load_pair(width: int, together: bool, at_once: bool):
    """What loads two neighbours from a place."""

    def load(place: ir.Value, offset: int) -> Words:
        first, second = f"[$1+{offset}]", f"[$1+{offset + width}]"
        if width == 4:
            if together:
                text = f"ld.shared.v2.b32 {{$0, $1}}, [$2+{offset}];"
                return [(word, 0) for word in asm(text, "=r,=r,r", [place], [i32()] * 2)]
            return [(asm(f"ld.shared.b32 $0, {at};", "=r,r", [place], [i32()])[0], 0) for at in (first, second)]
        bits = 8 * width
        if together:
            text = f"ld.shared.b32 $0, {first};" if width == 2 else _narrow(f"ld.shared.u16 t, {first};")
        elif at_once:
            return [
                (asm(_narrow(f"ld.shared.u{bits} t, {at};"), "=r,r", [place], [i32()])[0], 0) for at in (first, second)
            ]
        elif width == 2:
            loads = f"ld.shared.u16 a, {first}; ld.shared.u16 b, {second};"
            text = f"{{ .reg .b16 a, b; {loads} mov.b32 $0, {{a, b}}; }}"
        else:
            loads = f"ld.shared.u8 a, {first}; ld.shared.u8 b, {second};"
            wider = "cvt.u32.u16 c, a; cvt.u32.u16 d, b;"
            text = f"{{ .reg .b16 a, b; .reg .b32 c, d; {loads} {wider} prmt.b32 $0, c, d, 0x0040; }}"
        (word,) = asm(text, "=r,r", [place], [i32()])
        return [(word, 0), (word, bits)]

    return load


def _narrow(load: str) -> str:
    return f"{{ .reg .b16 t; {load} cvt.u32.u16 $0, t; }}"

"""Emits copies of 16 bytes by one thread, from rows at any address to aligned ones.

Where rows are aligned to 4 or 8 bytes, loads of as many make a piece. Else it comes from the two aligned pieces of 16
bytes that it lies in, whose bytes are shifted: a load for each element takes 1.1 (2 bytes) to 1.4 (1 byte) times as
long. Those pieces may have bytes of other rows, and of what lies between rows; at the ends of the array, where they
would have bytes that are none of it, elements are loaded one by one.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....dialects.mlir import ir
from ..alignment import CHUNK
from .memory import Memory
from .thread import add, asm, constant, create, i1, i32, i64, less, mul, select

WORDS = CHUNK // 4
SHIFTED = 2  # bytes that rows are aligned to, up to which two pieces are shifted


def copy_piece(
    source: Memory, target: Memory, at: Sequence[ir.Value], to: Sequence[ir.Value], left: ir.Value, aligned: int
) -> None:
    """16 bytes from the element `at` of the source, whose rows are `aligned` so, to the place `to`, of which so many
    elements are `left` in their row; 0 behind them."""
    start, out = source.address(source.base(at)), target.address(target.base(to))
    if aligned > SHIFTED:
        _by_parts(start, out, left, source.bytes, aligned)
        return
    first, begin, end = (_number(p) for p in (start, source.pointer, _behind(source)))
    lower = create("arith.andi", i64(), first, constant(i64(), -CHUNK))
    shift = create("arith.trunci", i32(), add(first, mul(lower, -1)))
    size = create("arith.minsi", i32(), mul(left, source.bytes), constant(i32(), CHUNK))
    spans = less(constant(i32(), CHUNK), add(shift, size))
    upper = add(lower, select(spans, constant(i64(), 2 * CHUNK), constant(i64(), CHUNK)))
    outside = create("arith.ori", i1(), less(lower, begin), less(end, upper))
    branch = ir.Operation.create("scf.if", [], [outside], regions=2)
    with ir.InsertionPoint(branch.regions[0].blocks.append()):
        _by_parts(start, out, left, source.bytes, aligned)
        ir.Operation.create("scf.yield")
    with ir.InsertionPoint(branch.regions[1].blocks.append()):
        _by_shift(lower, out, shift, size)
        ir.Operation.create("scf.yield")


def _number(address: ir.Value) -> ir.Value:
    return create("llvm.ptrtoint", i64(), address)


def _behind(memory: Memory) -> ir.Value:
    """The address behind the last element of an array. (Behind its first one where strides are negative: all its pieces
    are then taken to be at an end.)"""
    return memory.address(add(memory.base([add(size, -1) for size in memory.sizes]), 1))


def _by_shift(lower: ir.Value, out: ir.Value, shift: ir.Value, size: ir.Value) -> None:
    """`size` bytes, the first of them `shift` bytes behind `lower`, which is a multiple of 16."""
    lines = [
        ".reg .pred p;",
        ".reg .b32 n, x<8>;",
        "ld.global.nc.v4.b32 {x0, x1, x2, x3}, [$0];",
        *(f"mov.b32 x{i}, 0;" for i in range(WORDS, 2 * WORDS)),
        "add.s32 n, $2, $3;",
        f"setp.gt.s32 p, n, {CHUNK};",
        f"@p ld.global.nc.v4.b32 {{x4, x5, x6, x7}}, [$0+{CHUNK}];",
    ]
    for words, count in ((2, 6), (1, 5)):  # whole words, by the bits of their number
        lines += [f"and.b32 n, $2, {4 * words};", "setp.ne.s32 p, n, 0;"]
        lines += [f"selp.b32 x{i}, x{i + words}, x{i}, p;" for i in range(count)]
    lines.append("shl.b32 n, $2, 3;")
    lines += [f"shf.r.wrap.b32 x{i}, x{i}, x{i + 1}, n;" for i in range(WORDS)]  # by n mod 32 bits
    for i in range(WORDS):  # what is behind the row
        lines += [f"sub.s32 n, {4 * i + 4}, $3;", "max.s32 n, n, 0;", "shl.b32 n, n, 3;", "shr.u32 n, -1, n;"]
        lines.append(f"and.b32 x{i}, x{i}, n;")
    lines.append("st.global.v4.b32 [$1], {x0, x1, x2, x3};")
    asm(f"{{ {' '.join(lines)} }}", "l,l,r,r", [lower, out, shift, size])


# By how many bytes of memory: the kind of load, and how many words it makes; 0: a part of one.
_LOADS = {8: ("v2.b32", 2), 4: ("b32", 1), 2: ("b16", 0), 1: ("u8", 0)}


def _by_parts(start: ir.Value, out: ir.Value, left: ir.Value, width: int, aligned: int) -> None:
    """Loads as wide as the source is aligned, of valid elements alone: a row ends where one of them does."""
    load, words = _LOADS[aligned]
    part = "b16" if aligned == 2 else "b32"  # a register of v
    lines = [".reg .pred p;", ".reg .b32 w<4>;", f".reg .{part} v<{CHUNK}>;"]
    for number in range(CHUNK // aligned):
        names = [f"w{number * words + i}" for i in range(words)] or [f"v{number}"]
        target = names[0] if len(names) == 1 else f"{{{', '.join(names)}}}"
        loaded = f"ld.global.nc.{load} {target}, [$0+{number * aligned}];"
        if number:  # of the first part there is an element
            lines += [f"mov.{part} {name}, 0;" for name in names]
            lines.append(f"setp.gt.s32 p, $2, {number * aligned // width};")
        lines.append(f"@p {loaded}" if number else loaded)
    for i in range(WORDS):
        if aligned == 2:
            lines.append(f"mov.b32 w{i}, {{v{2 * i}, v{2 * i + 1}}};")
        elif aligned == 1:
            a, b, c, d = (f"v{4 * i + j}" for j in range(4))
            lines += [f"prmt.b32 {a}, {a}, {b}, 0x0040;", f"prmt.b32 {c}, {c}, {d}, 0x0040;"]
            lines.append(f"prmt.b32 w{i}, {a}, {c}, 0x5410;")
    lines.append("st.global.v4.b32 [$1], {w0, w1, w2, w3};")
    asm(f"{{ {' '.join(lines)} }}", "l,l,r", [start, out, left])

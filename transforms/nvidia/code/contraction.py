"""Emits matmuls: A in registers ("operand_a"), B in shared memory, the accumulator a fragment.

Hopper's wgmma reads B by a descriptor of its place in shared memory. Everywhere else mma.sync takes B from registers,
which ldmatrix fills. Layouts: PTX ISA, "Asynchronous warpgroup level matrix shared memory layout" and "Warp-level
matrix instructions".

Hopper cuts products of 8 bits off, each by itself, 13 bits or so below the largest one or the sum so far. What a tile
adds to a sum is therefore summed from zero, and added by the threads.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ....dialects.mlir import ir
from .thread import Registers, Shared, Thread, add, asm, constant, create, div, f32, i32, mul, places, rem

ELEMENTS = ("f16", "bf16", "f32")  # of operands
NAMES_OF_8_BITS = {"f8E4M3FN": "e4m3", "f8E5M2": "e5m2"}  # of wgmma's, too, and what PTX calls them
STEP = 32  # bytes of k that an instruction takes
SWIZZLES = {128: 1, 64: 2, 32: 3}  # of a descriptor, by the bytes of a row in shared memory
LEADING = 1 << 16  # where a descriptor's leading offset begins
BLOCKS_AT_ONCE = 4  # of eight columns, each a chain of products


def wgmma(
    a: Registers | Shared,
    b: Shared,
    k_dim: int,
    accumulator: Registers | None,
    n: int,
    elements: tuple[str, str],
    wait: bool,
    thread: Thread,
) -> list[ir.Value]:
    """accumulator + A·B of a warpgroup's 64 rows. `k_dim`: B's dimension that is summed over; operands of 8 bits have
    elements along it side by side in shared memory. `elements`: the types of A and B. A of parts (`in_parts`) has B's
    elements along `k_dim` once for each.

    Without `wait` the registers must not be touched until `wait_matmuls`.

    One block of assembly, so that nothing comes between the instructions and their registers.
    """
    k_major = b.inner == k_dim
    count = n // 2
    registers = [f"${i}" for i in range(count)]
    first_a = count * (1 if accumulator is None else 2)
    of_a = a.values if isinstance(a, Registers) else [_rows_descriptor(a, thread)]
    steps, of_b = a.shape[1] * b.width // STEP, _steps(b, k_dim)
    kind = f"m64n{n}k{STEP // b.width}.f32.{'.'.join(NAMES_OF_8_BITS.get(e, e) for e in elements)}"
    descriptor = f"${first_a + len(of_a)}"
    lines = ["{", ".reg .b32 a;", ".reg .b64 b, d, e;", ".reg .pred p;", "wgmma.fence.sync.aligned;"]
    lines.append(f"mov.b64 b, {{{descriptor}, {_form(b)}}};")
    orders = [] if isinstance(a, Registers) else [1 - a.inner]  # operands of 16 bits may have either
    orders = [*orders, int(not k_major)] if b.width == 2 else []
    for step in range(steps):
        lines.append(f"add.s64 d, b, {_descriptor_step(b, step % of_b, k_major)};")
        lines.append(f"setp.ne.b32 p, {0 if accumulator is None and step == 0 else 1}, 0;")
        if isinstance(a, Registers):
            operand = f"{{{', '.join(f'${first_a + 4 * step + i}' for i in range(4))}}}"
        else:
            lines.append(f"add.u32 a, ${first_a}, {_descriptor_step(a, step, a.inner == 1)};")
            lines.append(f"mov.b64 e, {{a, {_form(a)}}};")
            operand = "e"
        numbers = ", ".join(map(str, [1, 1, *orders]))
        lines.append(f"wgmma.mma_async.sync.aligned.{kind} {{{', '.join(registers)}}}, {operand}, d, p, {numbers};")
    lines.append("wgmma.commit_group.sync.aligned;")
    if wait:
        lines.append("wgmma.wait_group.sync.aligned 0;")
    lines.append("}")
    outputs = ["=f"] * count
    inputs = [] if accumulator is None else [str(i) for i in range(count)]
    inputs += ["r"] * (len(of_a) + 1)
    operands = [*([] if accumulator is None else accumulator.values), *of_a, _descriptor(b, k_major)]
    return asm("\n".join(lines), ",".join(outputs + inputs), operands, [f32()] * count)


def wait_matmuls(values: Sequence[ir.Value], pending: int) -> list[ir.Value]:
    """The registers of a matmul once at most `pending` later ones are under way."""
    constraints = ["=f"] * len(values) + [str(i) for i in range(len(values))]
    text = f"wgmma.wait_group.sync.aligned {pending};"
    return asm(text, ",".join(constraints), values, [f32()] * len(values))


def _descriptor(b: Shared, k_major: bool) -> ir.Value:
    """The lower half of the matrix descriptor of a tile whose rows are swizzled: 8 of them are a unit, the next is 8
    rows on. That of another stage is a sum: addresses in shared memory have 18 bits.

    K-major: the leading offset is not used. Else it is the distance of the next 64 columns, such as those of ones.
    """
    place = create("arith.shrui", i32(), b.first, constant(i32(), 4))
    if b.ones is not None:
        leading = create("arith.subi", i32(), create("arith.shrui", i32(), b.ones, constant(i32(), 4)), place)
        first = add(place, mul(leading, LEADING))
    else:
        first = create("arith.ori", i32(), place, constant(i32(), (1 if k_major else b.outer_size * 8) * LEADING))
    return first if b.stage is None else add(first, mul(b.stage, _moved(b, b.size // 16)))


def _moved(b: Shared, units: int) -> int:
    """What to add to a descriptor for a place so many units of 16 bytes on: all that a tile has moves, but for its
    ones, which come nearer."""
    return units if b.ones is None else units - units * LEADING


def _form(b: Shared) -> int:
    """The upper half."""
    form = b.line // 2 | SWIZZLES[b.line] << 30
    return form - (form >> 31 << 32)


def _rows_descriptor(a: Shared, thread: Thread) -> ir.Value:
    """The descriptor of a warpgroup's 64 rows of a tile: rows of 128 bytes, or where these are of columns, the elements
    that stand side by side in all of them."""
    size = a.line if a.inner == 1 else a.outer_size * a.line // 64
    return _descriptor(a.behind(mul(div(thread.warp, 4), 64 * size)), k_major=a.inner == 1)


def _descriptor_step(b: Shared, step: int, k_major: bool) -> int:
    """What to add to a descriptor for so many steps of k."""
    if not k_major:
        return _moved(b, step * 16 * 8)
    of_line = b.line // STEP
    return ((step // of_line) * b.outer_size * b.line + (step % of_line) * STEP) // 16


def mma_sync(
    a: Registers, b: Shared, k_dim: int, accumulator: Registers | None, n: int, element: str, thread: Thread
) -> list[ir.Value]:
    """accumulator + A·B of a warp's 16 rows; A may be of parts."""
    if accumulator is None:
        zero = constant(f32(), 0.0)
        values = [zero] * (n // 2)
    else:
        values = list(accumulator.values)
    of_b = _steps(b, k_dim)
    for step in range(of_b):
        operands = [a.values[i : i + 4] for i in range(4 * step, len(a.values), 4 * of_b)]
        for pair in range(n // 16):
            fragments = ldmatrix_b(b, k_dim, step, pair, thread)
            for half, operand in itertools.product((0, 1), operands):
                first = 4 * (2 * pair + half)
                values[first : first + 4] = asm(
                    f"mma.sync.aligned.m16n8k16.row.col.f32.{element}.{element}.f32 "
                    "{$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, {$10, $11, $12, $13};",
                    "=f,=f,=f,=f,r,r,r,r,r,r,0,1,2,3",
                    [*operand, *fragments[2 * half : 2 * half + 2], *values[first : first + 4]],
                    [f32()] * 4,
                    effects=False,
                )
    return values


def _steps(b: Shared, k_dim: int) -> int:
    """How many instructions B has elements for along `k_dim`."""
    return (b.inner_size if b.inner == k_dim else b.outer_size) * b.width // STEP


def mma_tf32(
    a: Registers, b: Shared, k_dim: int, accumulator: Registers | None, n: int, thread: Thread
) -> list[ir.Value]:
    """accumulator + A·B in f32, of a warp's 16 rows: each operand as the sum of two tf32, the product of the small
    parts left out, relative error 2^-21 (Markidis et al. 2018, "NVIDIA Tensor Core Programmability"). Tensor cores cut
    off what they accumulate; A·B by itself is rounded when it is added (Ootomo, Yokota 2022, "Recovering single
    precision accuracy from Tensor Cores").

    A is a fragment. Its thread has the columns 2t and 2t + 1 of eight where the instruction wants t and t + 4; since
    it sums over them, it may as well have them in that order, in B too.
    """
    group, pair = div(thread.lane, 4), mul(rem(thread.lane, 4), 2)
    values: list[ir.Value] = []
    for first in range(0, n // 8, BLOCKS_AT_ONCE):
        blocks = range(first, min(first + BLOCKS_AT_ONCE, n // 8))
        product = [[constant(f32(), 0.0)] * 4 for _ in blocks]
        for step in range(len(a.values) // 4):
            of_a = [_split(a.values[4 * step + i]) for i in (0, 2, 1, 3)]
            k = add(pair, 8 * step)
            for number, block in enumerate(blocks):
                of_b = [_split(x) for x in _load_pair(b, k_dim, k, add(group, 8 * block))]
                for part_a, part_b in ((1, 0), (0, 1), (0, 0)):
                    operands = [*(x[part_a] for x in of_a), *(x[part_b] for x in of_b)]
                    product[number] = asm(
                        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                        "{$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, {$10, $11, $12, $13};",
                        "=f,=f,=f,=f,r,r,r,r,r,r,0,1,2,3",
                        [*operands, *product[number]],
                        [f32()] * 4,
                        effects=False,
                    )
        values += [x for block in product for x in block]
    return values if accumulator is None else added(accumulator.values, values)


def added(values: Sequence[ir.Value], others: Sequence[ir.Value]) -> list[ir.Value]:
    return [create("arith.addf", f32(), a, b) for a, b in zip(values, others, strict=True)]


def _split(x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """x as a sum of two tf32, the large part first."""
    (large,) = asm("cvt.rna.tf32.f32 $0, $1;", "=r,f", [x], [i32()], effects=False)
    rest = create("arith.subf", f32(), x, create("arith.bitcast", f32(), large))
    (small,) = asm("cvt.rna.tf32.f32 $0, $1;", "=r,f", [rest], [i32()], effects=False)
    return large, small


def _load_pair(b: Shared, k_dim: int, k: ir.Value, n: ir.Value) -> list[ir.Value]:
    """B's elements (k, n) and (k + 1, n); k is even."""
    if b.inner == k_dim:
        return asm("ld.shared.v2.f32 {$0, $1}, [$2];", "=f,=f,r", [b.element(n, k)], [f32()] * 2)
    return [asm("ld.shared.f32 $0, [$1];", "=f,r", [b.element(add(k, i), n)], [f32()])[0] for i in (0, 1)]


def load_a(a: Shared, kind: ir.RankedTensorType, thread: Thread) -> list[ir.Value]:
    """A tile of f32 in shared memory as a fragment; rows are its dimension 0."""
    values = []
    for row, column in places("fragment", Registers.count(kind))[::2]:
        at = thread.place(0, row), thread.place(1, column)
        if a.inner == 1:
            values += asm("ld.shared.v2.f32 {$0, $1}, [$2];", "=f,=f,r", [a.element(*at)], [f32()] * 2)
        else:
            for i in (0, 1):
                address = a.element(add(at[1], i), at[0])
                values += asm("ld.shared.f32 $0, [$1];", "=f,r", [address], [f32()])
    return values


def ldmatrix_b(b: Shared, k_dim: int, step: int, pair: int, thread: Thread) -> list[ir.Value]:
    """B of 16 k and 16 n: two registers for the first 8 n, two for the others."""
    matrix, row = div(thread.lane, 8), rem(thread.lane, 8)
    k_half, n_half = mul(rem(matrix, 2), 8), mul(div(matrix, 2), 8)
    if b.inner == k_dim:
        address = b.piece(add(add(n_half, row), 16 * pair), add(k_half, 16 * step))
    else:
        address = b.piece(add(add(k_half, row), 16 * step), add(n_half, 16 * pair))
    return ldmatrix(address, transposed=b.inner != k_dim)


def ldmatrix_a(a: Shared, m_dim: int, step: int, thread: Thread) -> list[ir.Value]:
    """A of a warp's 16 rows and 32 bytes of k."""
    matrix, row = div(thread.lane, 8), rem(thread.lane, 8)
    m_half, k_half = mul(rem(matrix, 2), 8), add(mul(div(matrix, 2), a.per_piece), 2 * a.per_piece * step)
    first = add(mul(thread.warp, 16), m_half)
    if a.inner != m_dim:
        return ldmatrix(a.first_stage.piece(add(first, row), k_half), transposed=False, of=a)
    return ldmatrix(a.first_stage.piece(add(k_half, row), first), transposed=True, of=a)


def ldmatrix(address: ir.Value, transposed: bool, of: Shared | None = None) -> list[ir.Value]:
    """Four matrices of 8 × 8; the address of row r of matrix m comes from lane 8·m + r, in the first stage of a tile.

    The stage's offset, which all threads share, is part of the instruction. For that, LLVM must not see the sum, whose
    parts it knows to have no bit in common, nor ptxas a product (a shift), which it would put together with the sum.
    """
    kind = ".trans" if transposed else ""
    load = f"ldmatrix.sync.aligned.m8n8.x4{kind}.shared.b16 {{$0, $1, $2, $3}}"
    if of is None or of.stage is None:
        return asm(f"{load}, [$4];", "=r,=r,=r,=r,r", [address], [i32()] * 4)
    offset = f"neg.s32 a, $5; and.b32 a, a, {of.size};" if of.stages == 2 else f"mul.lo.u32 a, $5, {of.size};"
    text = f"{{ .reg .b32 a; {offset} add.u32 a, a, $4; {load}, [a]; }}"
    return asm(text, "=r,=r,=r,=r,r,r", [address, of.stage], [i32()] * 4)


def pack(fragment: Registers, element: str) -> Registers:
    """A fragment as the left operand of a matmul: its elements in order are those of the operand, two a register."""
    text = f"cvt.rn.{element}x2.f32 $0, $2, $1;"
    values = [
        asm(text, "=r,f,f", fragment.values[i : i + 2], [i32()], effects=False)[0]
        for i in range(0, len(fragment.values), 2)
    ]
    return Registers("operand_a", fragment.shape, values)


def in_parts(fragment: Registers) -> Registers:
    """A fragment of f32 as the left operand of a matmul with bf16: x as a sum of two bf16, relative error 2^-18, all
    large parts first. bf16 has f32's exponents, so that no number is too large or too small for it."""
    large = pack(fragment, "bf16")
    rests = []
    for word, first in zip(large.values, range(0, len(fragment.values), 2), strict=True):
        for x, text in zip(
            fragment.values[first:], ("shl.b32 $0, $1, 16;", "and.b32 $0, $1, 0xffff0000;"), strict=False
        ):
            (rounded,) = asm(text, "=f,r", [word], [f32()], effects=False)
            rests.append(create("arith.subf", f32(), x, rounded))
    small = pack(Registers(fragment.layout, fragment.shape, rests), "bf16")
    rows, columns = fragment.shape
    return Registers("operand_a", (rows, 2 * columns), [*large.values, *small.values])


def pack_pairs(fragment: Registers, element: str, some_are_equal: bool) -> Registers:
    """A fragment as the left operand "paired_a", four elements a register. Of 16 columns a thread has a pair in the
    first eight and one in the others; the operand wants four side by side, and takes these. What is too large becomes
    the largest number.

    `some_are_equal`: of columns that are known to be padding. Where two halves of words are, ptxas 12.8 takes another
    register for one (13.0 does not): three more instructions keep it from putting halves together itself.
    """
    convert = f"cvt.rn.satfinite.{NAMES_OF_8_BITS[element]}x2.f32"
    join = "mov.b32 $0, {a, b};"
    if some_are_equal:
        join = "{ .reg .b32 c, d; cvt.u32.u16 c, a; cvt.u32.u16 d, b; prmt.b32 $0, c, d, 0x5410; }"
    text = f"{{ .reg .b16 a, b; {convert} a, $2, $1; {convert} b, $4, $3; {join} }}"
    values = []
    for first in range(0, len(fragment.values), 8):
        for row in (0, 2):
            four = [fragment.values[first + row + i] for i in (0, 1, 4, 5)]
            values += asm(text, "=r,f,f,f,f", four, [i32()], effects=False)
    return Registers("paired_a", fragment.shape, values)

"""What one thread of a kernel holds, and how it says so in IR.

Tiles with a layout become lists of scalars. Rows of a tile are spread over warps, 16 a warp; of the 16 × 8 pieces that
the tensor cores accumulate, thread `lane` has the rows lane/4 and lane/4 + 8, and the columns 2·(lane mod 4) and the
next one. (PTX ISA, "Matrix fragments for mma.m16n8k16" and "wgmma.mma_async.m64nNk16".)

    element 4·j + r of a fragment:  row 16·warp + lane/4 + 8·(r/2),  column 8·j + 2·(lane mod 4) + r mod 2
    element h of a row vector:      row 16·warp + lane/4 + 8·h, the same in the four threads of a quad
    element 2·j + b of a column vector:                              column 8·j + 2·(lane mod 4) + b

Floats of 16 bits are f32 in registers: they are rounded where they go to memory, or to the tensor cores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ....dialects.build import constant
from ....dialects.mlir import ir
from ....dialects.tile import layout_of
from ..elements import NARROW, byte_width
from ..shared_layouts import line_bytes, shared_bytes, skewed_bytes

if TYPE_CHECKING:
    from .positions import Linear


def i32() -> ir.Type:
    return ir.IntegerType.get_signless(32)


def i64() -> ir.Type:
    return ir.IntegerType.get_signless(64)


def i1() -> ir.Type:
    return ir.IntegerType.get_signless(1)


def f32() -> ir.Type:
    return ir.F32Type.get()


def pointer(space: int) -> ir.Type:
    return ir.Type.parse(f"!llvm.ptr<{space}>" if space else "!llvm.ptr")


def register_type(kind: ir.Type) -> ir.Type:
    """What a scalar is in registers: narrow floats are f32, an index is i32."""
    if isinstance(kind, NARROW):
        return f32()
    return i32() if isinstance(kind, ir.IndexType) else kind


def stored_type(kind: ir.Type) -> ir.Type:
    """What a scalar is in memory: a flag or a float of 8 bits is a byte, an index is i64."""
    if isinstance(kind, ir.IndexType):
        return i64()
    return ir.IntegerType.get_signless(8) if byte_width(kind) == 1 else kind


def create(name: str, kind: ir.Type, /, *operands: ir.Value, **attributes: ir.Attribute) -> ir.Value:
    return ir.Operation.create(name, [kind], list(operands), attributes).result


def compare(predicate: int, a: ir.Value, b: ir.Value) -> ir.Value:
    return create("arith.cmpi", i1(), a, b, predicate=ir.IntegerAttr.get(i64(), predicate))


EQ, SLT = 0, 2  # arith's predicates "equal" and "signed less than"


def less(a: ir.Value, b: ir.Value) -> ir.Value:
    return compare(SLT, a, b)


def select(condition: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
    return create("arith.select", a.type, condition, a, b)


def add(a: ir.Value, b: ir.Value | int) -> ir.Value:
    if isinstance(b, int):
        return a if b == 0 else add(a, constant(a.type, b))
    return create("arith.addi", a.type, a, b)


def mul(a: ir.Value, b: ir.Value | int) -> ir.Value:
    return create("arith.muli", a.type, a, constant(a.type, b) if isinstance(b, int) else b)


def div(a: ir.Value, b: int) -> ir.Value:
    return create("arith.divui", a.type, a, constant(a.type, b))


def rem(a: ir.Value, b: int) -> ir.Value:
    return create("arith.remui", a.type, a, constant(a.type, b))


def xor(a: ir.Value, b: ir.Value) -> ir.Value:
    return create("arith.xori", a.type, a, b)


def wide(value: ir.Value) -> ir.Value:
    """An i32 as i64."""
    return create("arith.extsi", i64(), value)


def asm(
    text: str, constraints: str, operands: Sequence[ir.Value], results: Sequence[ir.Type] = (), effects: bool = True
) -> list[ir.Value]:
    """PTX; with `effects` it keeps its place among the other ops that have some, and is convergent."""
    if effects:
        constraints = ",".join(filter(None, (constraints, "~{memory}")))
    attributes: dict[str, ir.Attribute] = {
        "asm_string": ir.StringAttr.get(text),
        "constraints": ir.StringAttr.get(constraints),
    }
    if effects:
        attributes["has_side_effects"] = ir.UnitAttr.get()
    if len(results) < 2:
        return list(ir.Operation.create("llvm.inline_asm", list(results), list(operands), attributes).results)
    struct = ir.Type.parse(f"!llvm.struct<({', '.join(map(str, results))})>")
    packed = create("llvm.inline_asm", struct, *operands, **attributes)
    return [
        create("llvm.extractvalue", kind, packed, position=ir.DenseI64ArrayAttr.get([i]))
        for i, kind in enumerate(results)
    ]


def permuted(one: ir.Value, other: ir.Value, selector: ir.Value | int) -> ir.Value:
    """Four of the eight bytes of two words, the first the lowest digit of `selector`."""
    if isinstance(selector, int):
        text, operands = f"prmt.b32 $0, $1, $2, {selector:#x};", [one, other]
    else:
        text, operands = "prmt.b32 $0, $1, $2, $3;", [one, other, selector]
    return asm(text, "=r" + ",r" * len(operands), operands, [i32()], effects=False)[0]


def _halves(value: ir.Value) -> tuple[ir.Value, ir.Value]:
    """The lower and upper 32 bits."""
    high = create("llvm.lshr", value.type, value, constant(value.type, 32))
    return create("llvm.trunc", i32(), value), create("llvm.trunc", i32(), high)


def shuffled(value: ir.Value, kind: str, operand: int) -> ir.Value:
    """The value of another thread of the warp: "idx", of that lane; "bfly", whose lane differs in those bits; "up", so
    many lanes before."""
    if value.type == ir.IntegerType.get_signless(64):
        halves = [shuffled(half, kind, operand) for half in _halves(value)]
        low, high = (create("llvm.zext", value.type, half) for half in halves)
        return create("llvm.or", value.type, create("llvm.shl", value.type, high, constant(value.type, 32)), low)
    attribute = ir.Attribute.parse(f"#nvvm<shfl_kind {kind}>")
    mask, clamp = constant(i32(), -1), constant(i32(), 0 if kind == "up" else 31)
    return create("nvvm.shfl.sync", value.type, mask, value, constant(i32(), operand), clamp, kind=attribute)


@dataclass
class Registers:
    """A tile in the registers of a thread, in one of the layouts of the module's docstring.

    `linear`: what the values are made of where that is another tile: what reads the tile may take that instead, and the
    values may turn out not to be needed. `loaded`: one word of what each load brought. `start`:
    what is to be added to a matmul's result, once that is there.
    """

    layout: str
    shape: tuple[int, ...]
    values: list[ir.Value]
    linear: Linear | None = None
    loaded: list[ir.Value] | None = None
    start: list[ir.Value] | None = None

    @staticmethod
    def count(kind: ir.RankedTensorType) -> int:
        """How many scalars a thread has of a tile of that type."""
        layout = layout_of(kind)
        if layout == "fragment":
            return kind.shape[1] // 2
        if layout in ("operand_a", "paired_a"):
            return kind.shape[1] * kind.element_type.width // 64
        if layout == "column":
            return kind.shape[0] // 4
        return {"row": 2, "row_part": 2, None: 1}[layout]


@dataclass
class Shared:
    """A tile in shared memory: a stage of a buffer that begins at `first`. `inner`: the dimension whose elements stand
    side by side, in rows of 128 bytes.

    Element (o, i), o along the other dimension, of 2 bytes is at
    ``(i / 64)·outer·128 + o·128 + (((i mod 64) / 8) ^ (o mod 8))·16 + 2·(i mod 8)``; `width`: its bytes, 1, 2 or 4.
    Few elements of one byte have shorter rows (`line_bytes`), of which as many take part as make up 128 bytes.
    `ones`: where columns of ones are that belong to the tile, behind it in memory.
    """

    first: ir.Value
    shape: tuple[int, ...]
    inner: int
    width: int = 2
    stages: int = 1
    stage: ir.Value | None = None
    ones: ir.Value | None = None

    def at(self, stage: ir.Value) -> Shared:
        """The tile of a stage of the buffer whose first one this is."""
        return replace(self, stage=stage if self.stages > 1 else None)

    @property
    def first_stage(self) -> Shared:
        return replace(self, stage=None)

    def behind(self, offset: ir.Value) -> Shared:
        """A tile of the same form, so many bytes behind."""
        return replace(self, first=add(self.first, offset))

    @property
    def size(self) -> int:
        """In bytes."""
        return shared_bytes(self.outer_size, self.inner_size, self.width)

    @property
    def address(self) -> ir.Value:
        return self.first if self.stage is None else add(self.first, mul(self.stage, self.size))

    @property
    def outer_size(self) -> int:
        return self.shape[1 - self.inner]

    @property
    def inner_size(self) -> int:
        return self.shape[self.inner]

    @property
    def per_piece(self) -> int:
        """Elements in 16 bytes, which stay together."""
        return 16 // self.width

    @property
    def line(self) -> int:
        """Bytes of a row."""
        return line_bytes(self.inner_size, self.width)

    def piece(self, outer: ir.Value, inner: ir.Value) -> ir.Value:
        """The address of the 16 bytes that (outer, inner) is in."""
        columns = self.line // self.width
        block = mul(div(inner, columns), self.outer_size * self.line)
        swizzle = rem(div(outer, 128 // self.line), self.line // 16)
        column = xor(div(rem(inner, columns), self.per_piece), swizzle)
        return add(add(add(self.address, block), mul(outer, self.line)), mul(column, 16))

    def element(self, outer: ir.Value, inner: ir.Value) -> ir.Value:
        """The address of an element."""
        return add(self.piece(outer, inner), mul(rem(inner, self.per_piece), self.width))


@dataclass
class Skewed:
    """A tile in shared memory whose rows begin where they do in memory, but for multiples of 16 bytes: element (r, c)
    is ``r·pitch + shift + c·width`` bytes behind the first one, the row's shift being 0 to 15. The pitch is an odd
    number of times 16 bytes: these, of eight rows, are in different banks."""

    first: ir.Value
    shape: tuple[int, ...]
    width: int
    stages: int = 1
    stage: ir.Value | None = None

    def at(self, stage: ir.Value) -> Skewed:
        """The tile of a stage of the buffer whose first one this is."""
        return replace(self, stage=stage if self.stages > 1 else None)

    @property
    def size(self) -> int:
        return skewed_bytes(self.shape[0], self.shape[1], self.width)

    @property
    def pitch(self) -> int:
        return self.size // self.shape[0]

    @property
    def address(self) -> ir.Value:
        return self.first if self.stage is None else add(self.first, mul(self.stage, self.size))


@dataclass
class Thread:
    """The thread's numbers, made once at the kernel's start."""

    threads: int
    number: ir.Value
    lane: ir.Value
    warp: ir.Value
    row: ir.Value  # of its first row in a tile
    column: ir.Value  # of its first column
    zero: ir.Value
    cache: dict[tuple, ir.Value] = field(default_factory=dict)

    @staticmethod
    def make(threads: int) -> Thread:
        number = create("nvvm.read.ptx.sreg.tid.x", i32())
        # From one lane, so that it is known to be the same in all of them.
        lane, warp = rem(number, 32), shuffled(div(number, 32), "idx", 0)
        row = add(mul(warp, 16), div(lane, 4))
        return Thread(threads, number, lane, warp, row, mul(rem(lane, 4), 2), constant(i32(), 0))

    def place(self, axis: int, number: int) -> ir.Value:
        """The row (axis 0) of half `number`, or the column (axis 1) of a column vector's element `number`."""
        return add(self.row if axis == 0 else self.column, self.distance(axis, number))

    @staticmethod
    def distance(axis: int, number: int) -> int:
        """How far that row or column is from the thread's first one."""
        return 8 * number if axis == 0 else 8 * (number // 2) + number % 2


def places(layout: str | None, count: int) -> list[tuple[int | None, int | None]]:
    """For every scalar of a tile in registers, which of the thread's rows and columns it belongs to."""
    if layout == "fragment":
        return [((e % 4) // 2, 2 * (e // 4) + e % 2) for e in range(count)]
    if layout in ("row", "row_part"):
        return [(e, None) for e in range(count)]
    if layout == "column":
        return [(None, e) for e in range(count)]
    return [(None, None)] * count


def at(layout: str | None, row: int | None, column: int | None) -> int:
    """The number of the scalar at a place: the inverse of `places`."""
    if layout == "fragment":
        assert row is not None and column is not None
        return 4 * (column // 2) + 2 * row + column % 2
    found = {"row": row, "row_part": row, "column": column, None: 0}[layout]
    assert found is not None
    return found

"""Memory as kernels see it, and where in it a thread's part of a tile is; loads of tiles into registers."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from ....dialects import build
from ....dialects.mlir import ir
from ....dialects.tile import Joined, layout_of, parts_of
from ..elements import byte_width
from .conversions import from_word, to_memory, to_register
from .thread import (
    Registers,
    Thread,
    add,
    asm,
    constant,
    create,
    div,
    i1,
    i32,
    i64,
    less,
    mul,
    places,
    pointer,
    rem,
    select,
    stored_type,
    wide,
)

GLOBAL, SHARED = 1, 3


@dataclass
class Memory:
    """An argument of a kernel that is memory: its first element, a stride (i64) and a size (i32) per dimension."""

    kind: ir.MemRefType
    pointer: ir.Value
    strides: list[ir.Value]
    sizes: list[ir.Value]

    def load(self, indices: Sequence[ir.Value], is_there: bool = False) -> ir.Value:
        """An element. Unless it `is_there`, indices beyond the sizes, which padding may have, read the nearest one."""
        inside = []
        for index, size in zip(indices, self.sizes, strict=True) if not is_there else ():
            last = create("arith.maxsi", i32(), add(size, -1), constant(i32(), 0))
            inside.append(create("arith.minsi", i32(), create("arith.maxsi", i32(), index, constant(i32(), 0)), last))
        place = self.base(inside or indices)
        return to_register(create("llvm.load", self.stored, self.address(place)), self.element)

    def load_piece(self, indices: Sequence[ir.Value], count: int) -> list[ir.Value]:
        """Elements side by side, all of which there are, at an address that is a multiple of their size."""
        kind = ir.VectorType.get([count], self.stored)
        aligned = ir.IntegerAttr.get(i64(), count * self.bytes)
        piece = create("llvm.load", kind, self.address(self.base(indices)), alignment=aligned)
        numbers = [constant(i32(), i) for i in range(count)]
        return [to_register(create("llvm.extractelement", self.stored, piece, i), self.element) for i in numbers]

    def store_piece(self, values: Sequence[ir.Value], indices: Sequence[ir.Value]) -> None:
        """The same, to memory."""
        kind = ir.VectorType.get([len(values)], self.stored)
        piece = create("llvm.mlir.undef", kind)
        for i, value in enumerate(values):
            piece = create("llvm.insertelement", kind, piece, to_memory(value, self.element), constant(i32(), i))
        aligned = ir.IntegerAttr.get(i64(), len(values) * self.bytes)
        address = self.address(self.base(indices))
        ir.Operation.create("llvm.store", [], [piece, address], {"alignment": aligned})

    def base(self, offsets: Sequence[ir.Value]) -> ir.Value:
        """The number of the element at the offsets (i32)."""
        terms = [mul(wide(o), s) for o, s in zip(offsets, self.strides, strict=True)]
        return functools.reduce(add, terms) if terms else constant(i64(), 0)

    @property
    def element(self) -> ir.Type:
        return self.kind.element_type

    @property
    def bytes(self) -> int:
        return byte_width(self.element)

    @property
    def stored(self) -> ir.Type:
        """The element type as it stands in memory."""
        return stored_type(self.element)

    def address(self, element: ir.Value) -> ir.Value:
        return create(
            "llvm.getelementptr",
            pointer(GLOBAL),
            self.pointer,
            element,
            rawConstantIndices=ir.DenseI32ArrayAttr.get([-(2**31)]),
            elem_type=ir.TypeAttr.get(self.stored),
        )


@dataclass
class Access:
    """Where a tile is in memory, for one thread. `sizes`: valid elements along each dimension of the tile."""

    memory: Memory
    base: ir.Value
    dims: Sequence[int | Joined]  # `tile.load`
    sizes: list[ir.Value]
    shape: list[int]

    @staticmethod
    def of(memory: Memory, indices: Sequence[ir.Value], dims: Sequence[int | Joined], shape: Sequence[int]) -> Access:
        rank = memory.kind.rank
        return Access(memory, memory.base(indices[:rank]), dims, list(indices[rank:]), list(shape))

    def stride(self, dim: int) -> ir.Value | None:
        """How far apart elements along a dimension of the tile are; None: the tile is the same all along, or that
        changes."""
        along = self.dims[dim]
        return self.memory.strides[along] if isinstance(along, int) and along >= 0 else None

    def is_joined(self, dim: int) -> bool:
        return not isinstance(self.dims[dim], int)

    def place(self, positions: Sequence[ir.Value]) -> ir.Value:
        """The number of the tile's element at `positions` (i32)."""
        place = self.base
        for position, along in zip(positions, self.dims, strict=True):
            left = position
            for number, (dim, count) in reversed(list(enumerate(parts_of(along)))):
                at = rem(left, count) if number else left
                left = div(left, count) if number else left
                if dim >= 0:
                    place = add(place, mul(wide(at), self.memory.strides[dim]))
        return place

    def is_full(self, dim: int) -> bool:
        """Whether it is known that all elements along a dimension are valid; or, where they are all the same one, not
        known that some are not: padding of rows may be what rows are, that of columns that are summed over not."""
        size = build.constant_value(self.sizes[dim])
        return self.dims[dim] == -1 if size is None else size >= self.shape[dim]

    def element(self, positions: Sequence[ir.Value]) -> tuple[ir.Value, ir.Value | None]:
        """The number of the tile's element at `positions` (i32), and whether it is valid (None: surely)."""
        valid = functools.reduce(_both, (self.inside(d, position) for d, position in enumerate(positions)), None)
        return self.place(positions), valid

    def inside(self, dim: int, position: ir.Value) -> ir.Value | None:
        """Whether a position along a dimension is valid (None: surely)."""
        return None if self.is_full(dim) else less(position, self.sizes[dim])


def _both(a: ir.Value | None, b: ir.Value | None) -> ir.Value | None:
    """What holds if both do; None of two stands for what surely does."""
    return b if a is None else a if b is None else create("arith.andi", i1(), a, b)


def positions_of(place: tuple[int | None, int | None], thread: Thread) -> list[ir.Value]:
    """The row and the column of one of a thread's elements; the tile of a row, or of a column, has one of them."""
    row, column = place
    found = []
    if row is not None:
        found.append(thread.place(0, row))
    if column is not None:
        found.append(thread.place(1, column))
    return found


def load_registers(access: Access, kind: ir.RankedTensorType, thread: Thread, aligned: int = 0) -> Registers:
    """A tile from memory into registers, element by element; 0 where it is not valid.

    `aligned`: at what multiples of bytes dense rows begin, and end.
    """
    layout = layout_of(kind)
    if layout in ("fragment", "column") and _is_dense(access, kind.rank - 1) and (access.memory.bytes, 1) in _LOADS:
        return Registers(layout, tuple(kind.shape), _load_rows(access, kind, thread, aligned))
    values = []
    for place in places(layout, Registers.count(kind)):
        number, valid = access.element(positions_of(place, thread))
        # The base may itself be invalid: then nothing of the tile is, and element 0 of the tensor is read.
        if valid is not None:
            number = select(valid, number, constant(i64(), 0))
        stored = access.memory.stored
        loaded = create("llvm.load", stored, access.memory.address(number))
        value = to_register(loaded, access.memory.element)
        if valid is not None:
            value = select(valid, value, constant(value.type, 0))
        values.append(value)
    return Registers(layout or "", tuple(kind.shape), values)


def _is_dense(access: Access, dim: int) -> bool:
    """Whether elements along a dimension of a tile stand side by side."""
    stride = access.stride(dim)
    return stride is not None and build.constant_value(stride) == 1


# By the bytes of an element, and how many are side by side: registers, their zeros, the load, and words of elements.
_LOADS = {
    (1, 1): (".b16 v", "mov.b16 v, 0;", "u8 v", "cvt.u32.u16 $0, v;"),
    (2, 1): (".b16 v", "mov.b16 v, 0;", "b16 v", "cvt.u32.u16 $0, v;"),
    (4, 1): (".b32 v", "mov.b32 v, 0;", "b32 v", "mov.b32 $0, v;"),
    (1, 2): (".b16 v", "mov.b16 v, 0;", "u16 v", "cvt.u32.u16 $1, v; and.b32 $0, $1, 255; shr.u32 $1, $1, 8;"),
    (2, 2): (".b32 v", "mov.b32 v, 0;", "b32 v", "and.b32 $0, v, 65535; shr.u32 $1, v, 16;"),
    (4, 2): (".b32 l, h", "mov.b32 l, 0; mov.b32 h, 0;", "v2.b32 {l, h}", "mov.b32 $0, l; mov.b32 $1, h;"),
}


def _load_rows(access: Access, kind: ir.RankedTensorType, thread: Thread, aligned: int) -> list[ir.Value]:
    """A fragment of rows that are dense, or what is the same for all of its rows: one address for each row, and a
    predicate for what may not be valid. The two elements side by side that a thread has are one load, where rows have
    whole pairs."""
    element, width = access.memory.element, access.memory.bytes
    count = 2 if aligned >= 2 * width else 1
    registers, zeros, load, words = _LOADS[width, count]
    layout, columns = layout_of(kind), kind.rank - 1
    addresses, rows = {}, {}
    for half in dict.fromkeys(half for half, _ in places(layout, Registers.count(kind))):
        number, _ = access.element(positions_of((half, 0), thread))
        addresses[half] = access.memory.address(number)
        rows[half] = None if half is None else access.inside(0, thread.place(0, half))
    values = []
    for half, column in places(layout, Registers.count(kind))[::count]:
        assert column is not None
        insides = [access.inside(columns, thread.place(1, column + i)) for i in range(count)]
        valid = _both(rows[half], insides[0])
        flag = constant(i32(), 1) if valid is None else create("arith.extui", i32(), valid)
        offset = (8 * (column // 2) + column % 2) * width
        # With effects, so that it stays where it is: before a matmul, say, that it shall overlap with.
        loaded = asm(
            f"{{ .reg .pred p; .reg {registers}; setp.ne.b32 p, ${count + 1}, 0; {zeros} "
            f"@p ld.global.nc.{load}, [${count}+{offset}]; {words} }}",
            ",".join(["=r"] * count + ["l", "r"]),
            [addresses[half], flag],
            [i32()] * count,
        )
        for word, inside in zip(loaded, [None, *insides[1:]], strict=True):
            values.append(from_word(word if inside is None else select(inside, word, constant(i32(), 0)), element))
    return values


def store_element(memory: Memory, value: ir.Value, indices: Sequence[ir.Value]) -> None:
    """One element, of any type."""
    value = to_memory(value, memory.element)
    ir.Operation.create("llvm.store", [], [value, memory.address(memory.base(indices))])

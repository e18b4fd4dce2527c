"""Emits what moves tiles: loads and stores between memory and registers, copies from memory to shared memory."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...dialects import build
from ...dialects.float8 import FORMATS
from ...dialects.mlir import ir
from ...dialects.tile import layout_of
from ..float8_codes import code_of
from ..polynomials import Numbers
from .thread import (
    EIGHT_BITS,
    EQ,
    Registers,
    Shared,
    Thread,
    add,
    asm,
    compare,
    constant,
    create,
    div,
    f32,
    i1,
    i32,
    i64,
    less,
    mul,
    places,
    pointer,
    register_type,
    rem,
    select,
    wide,
)

GLOBAL, SHARED = 1, 3
CHUNK = 16  # bytes that a thread copies to shared memory at a time, if memory is aligned so


def byte_width(element: ir.Type) -> int:
    """How many bytes an element takes in memory."""
    return max(element.width // 8, 1)


def are_aligned(kind: ir.RankedTensorType | ir.MemRefType) -> bool:
    """Whether rows of what is dense are known to begin at multiples of 16 bytes."""
    last = kind.shape[-1]
    return last != ir.ShapedType.get_dynamic_size() and last * byte_width(kind.element_type) % CHUNK == 0


@dataclass
class Memory:
    """An argument of a kernel that is memory: its first element, a stride (i64) and a size (i32) per dimension."""

    kind: ir.MemRefType
    pointer: ir.Value
    strides: list[ir.Value]
    sizes: list[ir.Value]

    def load(self, indices: Sequence[ir.Value]) -> ir.Value:
        """An element; indices beyond the sizes, which padding may have, read the nearest one."""
        inside = []
        for index, size in zip(indices, self.sizes, strict=True):
            last = create("arith.maxsi", i32(), add(size, -1), constant(i32(), 0))
            inside.append(create("arith.minsi", i32(), create("arith.maxsi", i32(), index, constant(i32(), 0)), last))
        return to_register(create("llvm.load", self.stored, self.address(self.base(inside))), self.element)

    def base(self, offsets: Sequence[ir.Value]) -> ir.Value:
        """The number of the element at the offsets (i32)."""
        terms = [mul(wide(o), s) for o, s in zip(offsets, self.strides, strict=True)]
        return _total(terms)

    @property
    def element(self) -> ir.Type:
        return self.kind.element_type

    @property
    def bytes(self) -> int:
        return byte_width(self.element)

    @property
    def stored(self) -> ir.Type:
        """The element type as it stands in memory."""
        return ir.IntegerType.get_signless(8) if self.bytes == 1 else self.element

    def address(self, element: ir.Value) -> ir.Value:
        return create(
            "llvm.getelementptr",
            pointer(GLOBAL),
            self.pointer,
            element,
            rawConstantIndices=ir.DenseI32ArrayAttr.get([-(2**31)]),
            elem_type=ir.TypeAttr.get(self.stored),
        )


def _total(terms: Sequence[ir.Value]) -> ir.Value:
    if not terms:
        return constant(i64(), 0)
    total = terms[0]
    for term in terms[1:]:
        total = add(total, term)
    return total


@dataclass
class Access:
    """Where a tile is in memory, for one thread. `sizes`: valid elements along each dimension of the tile."""

    memory: Memory
    base: ir.Value
    strides: list[ir.Value | None]  # per dimension of the tile; None: the tile is the same all along
    sizes: list[ir.Value]
    shape: list[int]
    start: ir.Value | None = None  # the tile's first index along the memory's last dimension

    @staticmethod
    def of(memory: Memory, indices: Sequence[ir.Value], dims: Sequence[int], shape: Sequence[int]) -> Access:
        rank = memory.kind.rank
        strides = [memory.strides[d] if d >= 0 else None for d in dims]
        start = indices[rank - 1] if rank else None
        return Access(memory, memory.base(indices[:rank]), strides, list(indices[rank:]), list(shape), start)

    def is_full(self, dim: int) -> bool:
        """Whether it is known that all elements along a dimension are valid."""
        size = build.constant_value(self.sizes[dim])
        return self.strides[dim] is None or (size is not None and size >= self.shape[dim])

    def element(self, positions: Sequence[ir.Value]) -> tuple[ir.Value, ir.Value | None]:
        """The number of the tile's element at `positions` (i32), and whether it is valid (None: surely)."""
        place, valid = self.base, None
        for d, (position, stride) in enumerate(zip(positions, self.strides, strict=True)):
            if stride is not None:
                place = add(place, mul(wide(position), stride))
            if not self.is_full(d):
                inside = less(position, self.sizes[d])
                valid = inside if valid is None else create("arith.andi", i1(), valid, inside)
        return place, valid


def positions_of(layout: str | None, place: tuple[int | None, int | None], thread: Thread) -> list[ir.Value]:
    row, column = place
    found = []
    if row is not None:
        found.append(thread.place(0, row))
    if column is not None:
        found.append(thread.place(1, column))
    return found


def load_registers(access: Access, kind: ir.RankedTensorType, thread: Thread) -> Registers:
    """A tile from memory into registers, element by element; 0 where it is not valid."""
    layout = layout_of(kind)
    if layout == "fragment" and _is_dense(access, 1) and access.memory.bytes in _LOADS:
        return Registers(layout, tuple(kind.shape), _load_rows(access, kind, thread))
    values = []
    for place in places(layout, Registers.count(kind)):
        number, valid = access.element(positions_of(layout, place, thread))
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
    stride = access.strides[dim]
    return stride is not None and build.constant_value(stride) == 1


# By the bytes of an element: the kind of load, what it goes to, and how that becomes a word.
_LOADS = {1: ("u8", "b16", "cvt.u32.u16"), 2: ("b16", "b16", "cvt.u32.u16"), 4: ("b32", "b32", "mov.b32")}


def _load_rows(access: Access, kind: ir.RankedTensorType, thread: Thread) -> list[ir.Value]:
    """A fragment of rows that are dense: one address for each, and a predicate for what may not be valid."""
    element, width = access.memory.element, access.memory.bytes
    load, stored, word = _LOADS[width]
    addresses, rows = [], []
    for half in (0, 1):
        number, _ = access.element([thread.place(0, half), thread.place(1, 0)])
        addresses.append(access.memory.address(number))
        rows.append(None if access.is_full(0) else less(thread.place(0, half), access.sizes[0]))
    values = []
    for half, column in places("fragment", Registers.count(kind)):
        assert half is not None and column is not None
        valid = rows[half]
        if not access.is_full(1):
            inside = less(thread.place(1, column), access.sizes[1])
            valid = inside if valid is None else create("arith.andi", i1(), valid, inside)
        flag = constant(i32(), 1) if valid is None else create("arith.extui", i32(), valid)
        offset = (8 * (column // 2) + column % 2) * width
        # With effects, so that it stays where it is: before a matmul, say, that it shall overlap with.
        (loaded,) = asm(
            f"{{ .reg .pred p; .reg .{stored} v; setp.ne.b32 p, $2, 0; mov.{stored} v, 0; "
            f"@p ld.global.nc.{load} v, [$1+{offset}]; {word} $0, v; }}",
            "=r,l,r",
            [addresses[half], flag],
            [i32()],
        )
        values.append(from_word(loaded, element))
    return values


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
    return value if value.type == target else create("arith.extf", target, value)


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


def store_element(memory: Memory, value: ir.Value, indices: Sequence[ir.Value]) -> None:
    """One element, of any type."""
    if isinstance(memory.element, EIGHT_BITS):
        value = create("arith.trunci", memory.stored, eight_bits(value, memory.element))
    elif memory.stored != value.type:
        narrow = isinstance(memory.stored, ir.FloatType)
        value = create("arith.truncf" if narrow else "arith.extui", memory.stored, value)
    ir.Operation.create("llvm.store", [], [value, memory.address(memory.base(indices))])


def copy_to_shared(access: Access, tile: Shared, thread: Thread, vector_bytes: int) -> None:
    """Asynchronous copies of 16 bytes a thread; what is not valid becomes 0.

    `vector_bytes`: how memory is aligned along the inner dimension; below 16, a piece of 16 bytes takes several copies.
    """
    outer, inner = 1 - tile.inner, tile.inner
    per_row = tile.inner_size // tile.per_piece
    total = tile.outer_size * per_row
    size = access.memory.bytes
    contiguous = vector_bytes if access.strides[inner] is not None else size
    lanes = 1 << (per_row - 1).bit_length()  # threads for a row; the last of them have nothing to do
    step = thread.threads // lanes
    if step % 8 == 0 and tile.outer_size % step == 0:
        with only_if(less(rem(thread.number, lanes), constant(i32(), per_row)) if lanes != per_row else None):
            _copy_columns(access, tile, thread, lanes, contiguous)
        return
    for first in range(0, total, thread.threads):
        number = add(thread.number, first)
        row, column = div(number, per_row), mul(rem(number, per_row), tile.per_piece)
        target = tile.piece(row, column)
        beyond = total - first < thread.threads
        with only_if(less(number, constant(i32(), total)) if beyond else None):
            _copy_piece(access, outer, inner, row, column, target, contiguous)


@contextlib.contextmanager
def only_if(condition: ir.Value | None) -> Iterator[None]:
    """What is emitted within the block runs where `condition` holds."""
    if condition is None:
        yield
        return
    branch = ir.Operation.create("scf.if", [], [condition], regions=2)
    with ir.InsertionPoint(branch.regions[0].blocks.append()):
        yield
        ir.Operation.create("scf.yield")


def _copy_columns(access: Access, tile: Shared, thread: Thread, lanes: int, vector_bytes: int) -> None:
    """As above, where a thread's pieces are one below the other: an address follows from the one before.

    (One by one, the parts of them that no iteration changes would be kept in registers across the loop.)
    """
    step = thread.threads // lanes
    row, column = div(thread.number, lanes), mul(rem(thread.number, lanes), tile.per_piece)
    target, place = tile.piece(row, column), None
    stride = access.strides[1 - tile.inner]
    delta = None if stride is None else mul(stride, step)
    for number in range(tile.outer_size // step):
        if place is None:
            place = _place(access, tile.inner, row, column)
        elif delta is not None:
            place = add(place, delta)
        at = add(row, number * step)
        below = add(target, number * step * 128)
        _copy_piece(access, 1 - tile.inner, tile.inner, at, column, below, vector_bytes, place)


def _place(access: Access, inner: int, row: ir.Value, column: ir.Value) -> ir.Value:
    """The number of the element at (row, column), column along the dimension `inner`."""
    place = access.base
    for position, stride in zip([row, column] if inner == 1 else [column, row], access.strides, strict=True):
        if stride is not None:
            place = add(place, mul(wide(position), stride))
    return place


def _copy_piece(access: Access, outer: int, inner: int, row, column, target, vector_bytes: int, first=None) -> None:
    """16 bytes of shared memory, from (row, column) of the tile on, where the element's number is `first`."""
    elements = vector_bytes // access.memory.bytes
    for part in range(CHUNK // vector_bytes):
        at = add(column, part * elements)
        place = first if first is not None and part == 0 else _place(access, inner, row, at)
        count = constant(i32(), vector_bytes)
        if not access.is_full(inner):
            left = mul(add(access.sizes[inner], mul(at, -1)), access.memory.bytes)
            left = create("arith.maxsi", i32(), left, constant(i32(), 0))
            count = create("arith.minsi", i32(), left, count)
        if not access.is_full(outer):
            count = select(less(row, access.sizes[outer]), count, constant(i32(), 0))
        if not (access.is_full(inner) and access.is_full(outer)):
            # Nothing is read through an address when no byte is valid; it is kept within the tensor all the same.
            some = create("arith.cmpi", i1(), count, constant(i32(), 0), predicate=ir.IntegerAttr.get(i64(), 1))
            place = select(some, place, constant(i64(), 0))
        address = access.memory.address(place)
        _copy_part(address, add(target, part * vector_bytes), count, vector_bytes)


def _copy_part(address: ir.Value, target: ir.Value, count: ir.Value, vector_bytes: int) -> None:
    if vector_bytes >= 4:
        cache = "cg" if vector_bytes == CHUNK else "ca"
        text = f"cp.async.{cache}.shared.global [$0], [$1], {vector_bytes}, $2;"
        asm(text, "r,l,r", [target, address, count])
        return
    asm(
        "{ .reg .pred p; .reg .b16 v; setp.ne.b32 p, $2, 0; mov.b16 v, 0; "
        "@p ld.global.b16 v, [$1]; st.shared.b16 [$0], v; }",
        "r,l,r",
        [target, address, count],
    )

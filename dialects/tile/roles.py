"""Warps with roles: some bring tiles to shared memory, others compute on them.

    %map   = tile.tensor_map(%m, %sizes…) {box = [1, 128, 64]} : …           # host: where a tile is cut from
    %ready = memref.alloc() : memref<2xi64, #gpu.address_space<workgroup>>   # a barrier for each stage of a buffer
    tile.init_barriers %ready {arrivals = 1 : i64}

    %w = tile.warp : index
    tile.set_registers {count = 24 : i64}                                    # of this warpgroup, from here on
    tile.wait_barrier %free[%n] {behind = 1 : i64}
    tile.copy_bulk(%map, %buffer, %ready, %n, %b, %i, %c0) {dims = [1, 2]}   # by one thread, all of a tile

    tile.arrange %t, %buffer[%stage] {inner = 0 : i64}                       # warps between both: 8-bit operands
    tile.copy_rows(%m, %buffer, %ready, %n, %i, %c0, %rows, %columns) {dims = [0, 1]}   # … rows that are not aligned

    tile.wait_barrier %ready[%n] {behind = 0 : i64}
    …
    tile.arrive %free[%n]                                                    # a warp is done with it

`n` numbers the uses of a buffer: use n has stage n mod stages, and is the barrier's phase n / stages. A wait is until
that phase is complete, or the one `behind` before it. (PTX ISA, "mbarrier", "cp.async.bulk.tensor", "setmaxnreg".)

Warpgroups that compute take turns, so that one has the tensor cores while others do what stands between matmuls:
`tile.start_turns`, then `tile.take_turn` and `tile.pass_turn`, each the same number of times in all of them.

A number that one warp has, as that of the tile that comes next, which it takes from memory that blocks share, it tells
the others (`tile.share`, before warps have roles):

    tile.wait_barrier %free[%n] {behind = 1 : i64}           tile.wait_barrier %ready[%n] {behind = 0 : i64}
    %t = tile.take %numbers[%n]                              %t = tile.told %slots[%n]
    tile.tell %t, %slots[%n]                                 tile.arrive %free[%n]
    tile.arrive %ready[%n]
"""

import re
from collections.abc import Sequence
from typing import Any

from ..mlir import ext, ir
from ..verification import expect, verifier, verify_declared
from .dialect import (
    Tile,
    argument,
    arguments_from,
    dims_of,
    expect_accesses,
    expect_arguments,
    expect_indices,
    expect_memory,
    expect_tile,
    layout_of,
    parts_of,
)
from .staging import staged_tile

MAP_TYPE = "!nvgpu.tensormap.descriptor"


def is_tensor_map(kind: ir.Type) -> bool:
    return str(kind).startswith(MAP_TYPE)


def tensor_map_type(rows: int, columns: int, element: ir.Type) -> ir.Type:
    """The type of a map from which boxes of rows × columns are copied, in the permutation of the layout "shared"."""
    swizzle = columns * max(element.width // 8, 1)
    return ir.Type.parse(
        f"{MAP_TYPE}<tensor = memref<{rows}x{columns}x{element}, 3>, swizzle = swizzle_{swizzle}b, "
        "l2promo = l2promo_128b, oob = zero, interleave = none>"
    )


def box_rows(kind: ir.Type) -> int:
    """The rows of boxes of such a map."""
    found = re.search(r"tensor = memref<(\d+)x", str(kind))
    assert found, "a tensor map's type tells its boxes"
    return int(found[1])


def expect_barriers(name: str, kind: ir.Type) -> None:
    fits = isinstance(kind, ir.MemRefType) and kind.rank == 1 and kind.has_static_shape
    expect(
        fits and str(kind.element_type) == "i64", f"expects {name} to be a memref of 64-bit barriers, but found {kind}"
    )


verify_barriers = verifier(lambda op: expect_barriers("the operand", op.barriers.type))


def verify_tensor_map(op: ir.OpView) -> None:
    expect_arguments(op, 1)
    expect_memory("the source", op.memory.type)
    rank, sizes, box = op.memory.type.rank, len(op.sizes), len(op.box)
    expect(sizes == rank and box == rank, f"expects {rank} sizes and box sizes, but found {sizes} and {box}")
    expect(rank <= 5, f"expects a memref of at most 5 dimensions, but found {rank}")
    expect(is_tensor_map(op.result.type), f"expects a {MAP_TYPE}, but found {op.result.type}")


class TensorMapOp(Tile.Operation, name="tensor_map", traits=[ext.Pure]):
    """See the module. What is beyond the sizes, one per dimension, is 0."""

    source: ext.Operand[Any]
    extents: Sequence[ext.Operand[Any]]
    box: ir.ArrayAttr
    result: ext.Result[Any]

    assembly_format = "`(` $source `,` $extents `)` attr-dict `:` functional-type"
    verify_invariants = staticmethod(verifier(verify_tensor_map))
    memory = argument(0)
    sizes = arguments_from(1)


class WarpOp(Tile.Operation, name="warp", traits=[ext.Pure]):
    """The number of the thread's warp in its block."""

    result: ext.Result[Any]

    assembly_format = "attr-dict `:` type(results)"
    verify_invariants = staticmethod(verify_declared)


def verify_set_registers(op: ir.OpView) -> None:
    count = op.count.value
    expect(24 <= count <= 256 and count % 8 == 0, f"expects a multiple of 8 from 24 to 256, but found {count}")


class SetRegistersOp(Tile.Operation, name="set_registers"):
    """See the module."""

    count: ir.IntegerAttr

    assembly_format = "attr-dict"
    verify_invariants = staticmethod(verifier(verify_set_registers))


class InitBarriersOp(Tile.Operation, name="init_barriers"):
    """See the module; a phase is complete after so many arrivals, and the bytes of copies. Then comes gpu.barrier."""

    barriers: ext.Operand[Any]
    arrivals: ir.IntegerAttr

    assembly_format = "$barriers attr-dict `:` functional-type"
    verify_invariants = staticmethod(verify_barriers)


class WaitBarrierOp(Tile.Operation, name="wait_barrier"):
    """See the module."""

    barriers: ext.Operand[Any]
    use: ext.Operand[Any]
    behind: ir.IntegerAttr

    assembly_format = "$barriers `[` $use `]` attr-dict `:` functional-type"
    verify_invariants = staticmethod(verify_barriers)


class ArriveOp(Tile.Operation, name="arrive"):
    """See the module."""

    barriers: ext.Operand[Any]
    use: ext.Operand[Any]

    assembly_format = "$barriers `[` $use `]` attr-dict `:` functional-type"
    verify_invariants = staticmethod(verify_barriers)


def verify_copy_bulk(op: ir.OpView) -> None:
    expect_arguments(op, 4)
    expect(is_tensor_map(op.map.type), f"expects a {MAP_TYPE}, but found {op.map.type}")
    expect_memory("the buffer", op.staged.type)
    expect_barriers("the barriers", op.ready.type)
    rank, dims = len(op.indices), dims_of(op)
    expect_indices(op, rank)
    tile = staged_tile(op.staged.type)
    parts = [d for along in dims for d, _ in parts_of(along)]
    known = len(dims) == tile.rank == 2 and all(0 <= d < rank for d in parts)
    expect(
        known and rank - 1 in dims,
        f"expects dims to name the last one of {rank} dimensions, and another one or several, but found {dims}",
    )


class CopyBulkOp(Tile.Operation, name="copy_bulk"):
    """See the module. Indices: an offset for each dimension of what was mapped."""

    source: ext.Operand[Any]
    buffer: ext.Operand[Any]
    barriers: ext.Operand[Any]
    number: ext.Operand[Any]
    places: Sequence[ext.Operand[Any]]
    dims: ir.ArrayAttr

    assembly_format = "`(` $source `,` $buffer `,` $barriers `,` $number `,` $places `)` attr-dict `:` functional-type"
    verify_invariants = staticmethod(verifier(verify_copy_bulk))
    map = argument(0)
    staged = argument(1)
    ready = argument(2)
    use = argument(3)
    indices = arguments_from(4)


def verify_copy_rows(op: ir.OpView) -> None:
    expect_arguments(op, 4)
    expect_memory("the source", op.memory.type)
    expect_memory("the buffer", op.staged.type)
    expect_barriers("the barriers", op.ready.type)
    expect_accesses(op, op.memory.type, staged_tile(op.staged.type, "skewed"))
    rank, dims = op.memory.type.rank, dims_of(op)
    fits = len(dims) == 2 and dims[1] == rank - 1 and isinstance(dims[0], int) and 0 <= dims[0] < rank - 1
    expect(fits, f"expects dims to name one of {rank} dimensions, then the last, but found {dims}")
    rows = op.staged.type.shape[1]
    expect(rows % 64 == 0, f"expects tiles of 64 rows, 128, …, but found {rows}")


class CopyRowsOp(Tile.Operation, name="copy_rows"):
    """A tile to a stage of a buffer, in the layout "skewed", 16 bytes a thread, by the warps of the last warpgroup but
    its first; all their threads arrive at the barrier as their copies do. Indices: those of `tile.load`."""

    source: ext.Operand[Any]
    buffer: ext.Operand[Any]
    barriers: ext.Operand[Any]
    number: ext.Operand[Any]
    places: Sequence[ext.Operand[Any]]
    dims: ir.ArrayAttr

    assembly_format = "`(` $source `,` $buffer `,` $barriers `,` $number `,` $places `)` attr-dict `:` functional-type"
    verify_invariants = staticmethod(verifier(verify_copy_rows))
    memory = argument(0)
    staged = argument(1)
    ready = argument(2)
    use = argument(3)
    indices = arguments_from(4)


def verify_arrange(op: ir.OpView) -> None:
    expect_tile("the tile", op.tile.type)
    expect_memory("the buffer", op.buffer.type)
    expect(layout_of(op.tile.type) == "shared", f"expects a tile in shared memory, but found {op.tile.type}")
    wanted = staged_tile(op.buffer.type)
    expect(wanted == op.tile.type, f"expects the type of one stage, {wanted}, but found {op.tile.type}")
    expect(op.tile.type.element_type.width == 8, f"expects elements of 8 bits, but found {op.tile.type}")
    expect(op.inner.value in (0, 1), f"expects inner to be a dimension of the tile, but found {op.inner.value}")


class ArrangeOp(Tile.Operation, name="arrange"):
    """Puts a tile into a stage of a buffer in the layout "paired", the dimension `inner` side by side: transposed where
    it was not. By the warps of the last warpgroup but its first, which then may arrive at a barrier of matmuls."""

    tile: ext.Operand[Any]
    buffer: ext.Operand[Any]
    stage: ext.Operand[Any]
    inner: ir.IntegerAttr

    assembly_format = "$tile `,` $buffer `[` $stage `]` attr-dict `:` functional-type"
    verify_invariants = staticmethod(verifier(verify_arrange))


class SettleOp(Tile.Operation, name="settle"):
    """Waits until a tile that comes from shared memory is in its registers; only then may its place be written again.

    (Arriving at a barrier does not wait for loads under way: the copy engine would overwrite what they have not read.)
    """

    value: ext.Operand[Any]

    assembly_format = "$value attr-dict `:` functional-type"
    verify_invariants = staticmethod(verifier(lambda op: expect_tile("the operand", op.value.type)))


class StartTurnsOp(Tile.Operation, name="start_turns"):
    """The first of so many warpgroups has the first turn."""

    warpgroups: ir.IntegerAttr

    assembly_format = "attr-dict"
    verify_invariants = staticmethod(verify_declared)


class TakeTurnOp(Tile.Operation, name="take_turn"):
    """Waits until the warpgroup before passes its turn."""

    warpgroups: ir.IntegerAttr

    assembly_format = "attr-dict"
    verify_invariants = staticmethod(verify_declared)


class PassTurnOp(Tile.Operation, name="pass_turn"):
    """Lets the next warpgroup have its turn."""

    warpgroups: ir.IntegerAttr

    assembly_format = "attr-dict"
    verify_invariants = staticmethod(verify_declared)


def verify_any(op: ir.OpView) -> None:
    expect_tile("the operand", op.value.type)
    expect(str(op.value.type.element_type) == "i1", f"expects a tile of i1, but found {op.value.type}")


class AnyOp(Tile.Operation, name="any", traits=[ext.Pure]):
    """Whether any element of a tile is true, the same in all threads of a block."""

    value: ext.Operand[Any]
    result: ext.Result[Any]

    assembly_format = "$value attr-dict `:` functional-type"
    verify_invariants = staticmethod(verifier(verify_any))


class AnyOfWarpOp(Tile.Operation, name="any_of_warp", traits=[ext.Pure]):
    """Whether any element of a tile is true in the rows that the thread's warp has."""

    value: ext.Operand[Any]
    result: ext.Result[Any]

    assembly_format = "$value attr-dict `:` functional-type"
    verify_invariants = staticmethod(verifier(verify_any))


def expect_flags(name: str, kind: ir.Type) -> None:
    fits = isinstance(kind, ir.MemRefType) and kind.rank == 1 and kind.has_static_shape
    expect(fits and str(kind.element_type) == "i32", f"expects {name} to be a memref of 32-bit words, but found {kind}")


def verify_raise(op: ir.OpView) -> None:
    expect_tile("the tile", op.value.type)
    expect_flags("the flags", op.flags.type)


class RaiseOp(Tile.Operation, name="raise"):
    """Sets flag n mod size, in shared memory, if any element of a tile is true."""

    value: ext.Operand[Any]
    flags: ext.Operand[Any]
    number: ext.Operand[Any]

    assembly_format = "$value `,` $flags `[` $number `]` attr-dict `:` functional-type"
    verify_invariants = staticmethod(verifier(verify_raise))


class RaisedOp(Tile.Operation, name="raised"):
    """Whether flag n mod size is set."""

    flags: ext.Operand[Any]
    number: ext.Operand[Any]
    result: ext.Result[Any]

    assembly_format = "$flags `[` $number `]` attr-dict `:` functional-type"
    verify_invariants = staticmethod(verifier(lambda op: expect_flags("the flags", op.flags.type)))


class InitFlagsOp(Tile.Operation, name="init_flags"):
    """Clears all flags. Then comes gpu.barrier."""

    flags: ext.Operand[Any]

    assembly_format = "$flags attr-dict `:` functional-type"
    verify_invariants = staticmethod(verifier(lambda op: expect_flags("the operand", op.flags.type)))


def expect_numbers(name: str, kind: ir.Type) -> None:
    fits = isinstance(kind, ir.MemRefType) and kind.rank == 1 and str(kind.element_type) == "i32"
    expect(fits, f"expects {name} to be a memref of 32-bit numbers of one dimension, but found {kind}")


class TakeOp(Tile.Operation, name="take"):
    """The first of `numbers`, in memory that all blocks share, which it adds 1 to: no two of them get the same. One
    number, its n-th, for all threads of a block; where warps have roles, for those of one warp."""

    numbers: ext.Operand[Any]
    use: ext.Operand[Any]
    result: ext.Result[Any]

    assembly_format = "$numbers `[` $use `]` attr-dict `:` functional-type"
    verify_invariants = staticmethod(verifier(lambda op: expect_numbers("the operand", op.numbers.type)))


class ShareOp(Tile.Operation, name="share"):
    """The n-th number that warps share: where they have roles, that of one of them, which others need not compute."""

    number: ext.Operand[Any]
    use: ext.Operand[Any]
    result: ext.Result[Any]

    assembly_format = "$number `[` $use `]` attr-dict `:` functional-type"
    verify_invariants = staticmethod(verify_declared)


verify_told = verifier(lambda op: expect_flags("the numbers", op.numbers.type))


class TellOp(Tile.Operation, name="tell"):
    """A warp's number becomes number `use` mod size of those in shared memory, for other warps."""

    number: ext.Operand[Any]
    numbers: ext.Operand[Any]
    use: ext.Operand[Any]

    assembly_format = "$number `,` $numbers `[` $use `]` attr-dict `:` functional-type"
    verify_invariants = staticmethod(verify_told)


class ToldOp(Tile.Operation, name="told"):
    """That number, which is there before anything that follows."""

    numbers: ext.Operand[Any]
    use: ext.Operand[Any]
    result: ext.Result[Any]

    assembly_format = "$numbers `[` $use `]` attr-dict `:` functional-type"
    verify_invariants = staticmethod(verify_told)


class MeetOp(Tile.Operation, name="meet"):
    """All warps that compute, and the one that copies, wait for one another."""

    assembly_format = "attr-dict"
    verify_invariants = staticmethod(verify_declared)

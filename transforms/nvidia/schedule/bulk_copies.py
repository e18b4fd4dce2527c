"""Which loads to shared memory Hopper's copy engine can do, a tile with one instruction, and from which tensor map.

The engine cuts boxes out of an array in memory: rows aligned to 16 bytes, the last dimension dense, at most five of
them; a box begins at a multiple of 16 bytes of a row; what is beyond the array's sizes becomes 0. A load fits if what
it says to be valid ends where such an array does; of joined dimensions, if it is all of the tile, and in their order
in memory, in which a box is written.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

from ....dialects import build
from ....dialects.mlir import ir
from ....dialects.tile import Joined, dims_of, layout_of, parts_of
from ....dialects.tiling import Index
from ...attention import is_matmul
from ...graph import depends_on
from ...linear import divisor, linear, minima
from ...rewriting import for_body, ops_in
from ..alignment import CHUNK, are_aligned, has_dense_rows
from ..elements import EIGHT_BITS, byte_width
from ..marks import ALIGNED
from ..shared_layouts import line_bytes

LARGEST_BOX = 256
ROWS = 8  # of a box, a multiple of these: shared memory's permutation repeats


def is_staged(op: ir.Operation) -> bool:
    """Whether `op` loads a tile to shared memory."""
    return op.name == "tile.load" and layout_of(op.results[0].type) in ("shared", "paired", "skewed")


@dataclass(frozen=True)
class BulkCopy:
    """A load as a box of `memory`. `ends`: per dimension how far the array goes; None: as far as the memory does.
    `rows`: so many of the tile's rows are copied, and what the others are is left open."""

    memory: ir.Value
    dims: tuple[int | Joined, ...]
    kind: ir.RankedTensorType
    ends: tuple[ir.Value | int | None, ...]
    rows: int

    @property
    def inner(self) -> int:
        """The dimension of the tile whose elements stand side by side."""
        return self.dims.index(self.memory.type.rank - 1)

    @property
    def line(self) -> int:
        """Elements of a row in shared memory."""
        width = byte_width(self.kind.element_type)
        return line_bytes(self.kind.shape[self.inner], width) // width

    @property
    def box(self) -> list[int]:
        sizes = [1] * self.memory.type.rank
        for d, size in parts_of(self.dims[1 - self.inner], self.rows):
            sizes[d] = size
        sizes[-1] = self.line
        return sizes


@dataclass(frozen=True)
class RowCopy:
    """A load that threads do beside the engine, of rows that are not aligned ("skewed")."""

    memory: ir.Value
    dims: tuple[int, ...]
    kind: ir.RankedTensorType


Copy: TypeAlias = "BulkCopy | RowCopy"


def bulk_copies(kernel: ir.Operation) -> dict[ir.Operation, Copy] | None:
    """All loads of a kernel to shared memory, as copies of the engine, or of threads beside it; None if one of them is
    neither."""
    found: dict[ir.Operation, Copy] = {}
    if any(layout_of(op.results[0].type) == "shared" for op in ops_in(kernel, "tile.convert_layout")):
        return None  # computed by all threads
    for load in ops_in(kernel, "tile.load"):
        if is_staged(load):
            copy = copy_of(load, kernel)
            if copy is None:
                return None
            found[load] = copy
    return found


def bulk_copy(load: ir.Operation, kernel: ir.Operation) -> BulkCopy | None:
    """A load to shared memory as a copy of the engine; None if it is none."""
    view, kind = load.opview, load.results[0].type
    memory = view.memory
    shape, rank, dims = memory.type.shape, memory.type.rank, dims_of(view)
    parts = [d for along in dims for d, _ in parts_of(along)]
    width = byte_width(kind.element_type)
    fits = (
        memory in kernel.regions[0].blocks[0].arguments
        and 2 <= rank <= 5
        and has_dense_rows(memory.type)
        and _has_aligned_rows(memory, kernel)
        and (kind.element_type.width == 16 or isinstance(kind.element_type, EIGHT_BITS) or _goes_to_registers(load))
        and width <= 4
        and divisor(view.indices[rank - 1]) * width % CHUNK == 0
        and kind.rank == 2
        and rank - 1 in dims
        and len(set(parts)) == len(parts)
        and -1 not in parts
        and kind.shape[1 - dims.index(rank - 1)] <= LARGEST_BOX
        and kind.shape[1 - dims.index(rank - 1)] % ROWS == 0
    )
    if not fits:
        return None
    ends: list[ir.Value | int | None] = [None] * rank
    is_vector = is_read_as_column(load)
    for d, extent, size in zip(dims, kind.shape, view.indices[rank:], strict=True):
        if not isinstance(d, int):
            order = [dim for dim, _ in d]
            if order != sorted(order) or not build.constant_value(size) == extent == math.prod(n for _, n in d):
                return None
            continue
        end = None if is_vector and d != rank - 1 else _end(view.indices[d], size, extent, shape[d], kernel)
        if end is False:
            return None
        ends[d] = end  # type: ignore[assignment]
    return BulkCopy(memory, tuple(dims), kind, tuple(ends), _rows(load, 1 - dims.index(rank - 1)))


def _rows(load: ir.Operation, dim: int) -> int:
    """How many lines of a tile, along that dimension of it, are copied: the engine takes longer for one that is beyond
    the array than for one that is there. Rows of a matmul that stands alone, which go to nothing but their results,
    and are not stored, need not be zeros; what is summed over must be."""
    view, rows = load.opview, load.results[0].type.shape[dim]
    if is_read_as_column(load):
        return 1
    known = build.constant_value(view.indices[view.memory.type.rank + dim])
    if dim or known is None or not is_streamed(load):
        return rows
    return min(rows, -(-known // ROWS) * ROWS)


def copy_of(load: ir.Operation, kernel: ir.Operation) -> Copy | None:
    """A load to shared memory as the copy that its layout asks for; None if that cannot do it."""
    return (row_copy if layout_of(load.results[0].type) == "skewed" else bulk_copy)(load, kernel)


def row_copy(load: ir.Operation, kernel: ir.Operation) -> RowCopy | None:
    """A load to shared memory as one of rows that are not aligned; None if it is none."""
    view, kind = load.opview, load.results[0].type
    memory, dims = view.memory, [d for d in dims_of(view) if isinstance(d, int)]
    rank, width = memory.type.rank, byte_width(kind.element_type)
    fits = (
        memory in kernel.regions[0].blocks[0].arguments
        and rank >= 2
        and has_dense_rows(memory.type)
        and width <= 4
        and len(dims) == kind.rank == 2
        and dims[1] == rank - 1
        and dims[0] not in (-1, rank - 1)
        and kind.shape[0] % 64 == 0
        and is_read_by_threads(load)
    )
    return RowCopy(memory, tuple(dims), kind) if fits else None


def _has_aligned_rows(memory: ir.Value, kernel: ir.Operation) -> bool:
    if ALIGNED in kernel.attributes and memory.arg_number in list(ir.DenseI64ArrayAttr(kernel.attributes[ALIGNED])):
        return True
    return are_aligned(memory.type)


def is_read_by_threads(load: ir.Operation) -> bool:
    """Whether a tile in shared memory goes to registers, element by element, and to no matmul."""
    return _goes_to(load, "fragment")


def is_read_as_column(load: ir.Operation) -> bool:
    """Whether the first row alone of a tile in shared memory goes to registers, as what is the same for all rows."""
    return any(True for _ in load.results[0].uses) and _goes_to(load, "column")


def _goes_to(load: ir.Operation, layout: str) -> bool:
    users = [use.owner.operation for use in load.results[0].uses]
    return all(o.name == "tile.convert_layout" and layout_of(o.results[0].type) == layout for o in users)


def _goes_to_registers(load: ir.Operation) -> bool:
    return is_read_by_threads(load) or is_read_as_column(load)


def _end(offset: ir.Value, size: ir.Value, extent: int, memory: int, kernel: ir.Operation):
    """Where an array ends of which `size` elements are valid from `offset` on, as far as a tile of `extent` goes: a
    number, an argument of the kernel, or None for anywhere beyond; False if that is not the same in all tiles."""
    forms = minima(size)
    left = [f for f in forms if f.static is None or f.static < extent]
    if not left:
        return None
    if len(left) != 1:
        return False
    end = left[0] + linear(offset)
    if end.static is not None:
        return None if end.static == memory else end.static
    arguments = [a for a in kernel.regions[0].blocks[0].arguments if end == Index.of(a)]
    return arguments[0] if arguments else False


def is_streamed(load: ir.Operation) -> bool:
    """Whether a loop goes along the columns of what it loads, for a matmul that it adds up, as that of a matmul that
    stands alone does."""
    loop, (*_, columns) = load.parent.operation, dims_of(load.opview)
    if loop.name != "scf.for":
        return False
    variable, *carried = for_body(loop).arguments
    users = [u.owner.operation for u in load.results[0].uses if u.operand_number == 0]
    if not any(is_matmul(u) and u.operands[-1] in carried for u in users):
        return False
    return isinstance(columns, int) and depends_on(load.opview.indices[columns], variable)

"""The dialect ``tile``: what a GPU's block of threads does with tiles of memory.

Memory is a memref, a tile is a tensor of static shape. At first a tile has no layout; then its type says by an encoding
where its elements are (`layouts`): ``tensor<128x64xf32, "fragment">``. Elements of a tile beyond the valid sizes are
padding: 0 where they were loaded, and whatever an op makes of padding elsewhere.
"""

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

from ..mlir import ext, ir, memref
from ..verification import expect


class Tile(ext.Dialect, name="tile"):
    """Movement of tiles between memory, shared memory and registers."""


def argument(position: int) -> Any:
    """A property: the operand at `position`."""
    return property(lambda op: op.operation.operands[position])


def arguments_from(position: int) -> Any:
    """A property: the operands from `position` on."""
    return property(lambda op: list(op.operation.operands)[position:])


# Where the elements of a tile are. Rows belong to the matmuls' m loops, columns to their n or k loops.
LAYOUTS = {
    "fragment": "m × n: registers, as the tensor cores accumulate; 16 rows a warp, a quad of threads holds a row",
    "operand_a": "m × k: registers, as the tensor cores take the left operand; 16-bit, or f32 as in a fragment",
    "paired_a": "m × k of 8 bits: as operand_a, of 16 columns in the order 0 1 8 9 2 3 10 11 …: a thread has its own",
    "row": "m: registers, an element per row, the same in all threads of a quad",
    "row_part": "m: registers, parts of an element per row, which add up to it over the quad's threads",
    "column": "n: registers, the elements of the columns that a thread has in a fragment",
    "spread": "n × k or k × n, computed: elements are made where they are stored to shared memory, 16 bytes a thread",
    "shared": "shared memory, rows of 128 bytes with their 16-byte pieces permuted, free of bank conflicts",
    "skewed": "m × n: shared memory, each row as far from a multiple of 16 bytes as it is in memory",
    "paired": "n × k or k × n of 8 bits: as shared, k side by side, of 16 in the order 0 1 8 9 2 3 10 11 4 5 12 13 …",
}


def layout_of(kind: ir.Type) -> str | None:
    """The layout of a tile's type; None if it has none yet."""
    if not isinstance(kind, ir.RankedTensorType) or kind.encoding is None:
        return None
    return ir.StringAttr(kind.encoding).value


def with_layout(kind: ir.RankedTensorType, layout: str | None) -> ir.RankedTensorType:
    """The type of the same tile in another layout."""
    encoding = None if layout is None else ir.StringAttr.get(layout)
    return ir.RankedTensorType.get(kind.shape, kind.element_type, encoding)


def expect_tile(name: str, kind: ir.Type) -> None:
    """Checks that `kind` is a tile's type: a tensor of static shape, of a known layout or of none."""
    expect(
        isinstance(kind, ir.RankedTensorType) and kind.has_static_shape,
        f"expects {name} to be a tensor of static shape, but found {kind}",
    )
    encoding = ir.RankedTensorType(kind).encoding
    known = encoding is None or (isinstance(encoding, ir.StringAttr) and ir.StringAttr(encoding).value in LAYOUTS)
    expect(known, f"expects the layout of {name} to be one of {', '.join(LAYOUTS)}, but found {encoding}")


def expect_memory(name: str, kind: ir.Type) -> None:
    expect(isinstance(kind, ir.MemRefType), f"expects {name} to be a memref, but found {kind}")


def shared_buffer(shape: Sequence[int], element: ir.Type) -> ir.Value:
    """Memory that a block's threads share, allocated at the insertion point."""
    space = ir.Attribute.parse("#gpu.address_space<workgroup>")
    return memref.AllocOp(ir.MemRefType.get(shape, element, memory_space=space), [], []).result


Joined: TypeAlias = tuple[tuple[int, int], ...]  # dimensions of a memref, and how many elements of each


def dims_of(op: ir.OpView) -> list[int | Joined]:
    """The dimension of the memref that each of the tile's runs along, or several, outermost first; -1: none."""
    return [ir.IntegerAttr(d).value if isinstance(d, ir.IntegerAttr) else _joined(d, op) for d in op.dims]


def parts_of(dim: int | Joined, extent: int = 1) -> Joined:
    """The dimensions that one of a tile runs along, with how many elements of each: a single one has its `extent`."""
    return ((dim, extent),) if isinstance(dim, int) else dim


def _joined(found: ir.Attribute, op: ir.OpView) -> Joined:
    pairs = [list(p) if isinstance(p, ir.ArrayAttr) else [] for p in (found if isinstance(found, ir.ArrayAttr) else ())]
    known = all(len(p) == 2 and all(isinstance(n, ir.IntegerAttr) for n in p) for p in pairs)
    expect(
        len(pairs) > 1 and known,
        f"expects dims to be integers, or arrays of pairs [dimension, elements], but found {op.dims}",
    )
    return tuple((ir.IntegerAttr(d).value, ir.IntegerAttr(n).value) for d, n in pairs)


def dims_attribute(dims: Sequence[int | Joined]) -> ir.ArrayAttr:
    """What `dims_of` reads."""
    integer = ir.IntegerType.get_signless(64)

    def attribute(value: int | tuple) -> ir.Attribute:
        if isinstance(value, int):
            return ir.IntegerAttr.get(integer, value)
        return ir.ArrayAttr.get([attribute(part) for part in value])

    return ir.ArrayAttr.get([attribute(d) for d in dims])


def expect_indices(op: ir.OpView, wanted: int, which: str = "") -> None:
    """Checks that `op.indices` are so many; `which` says of a wrong number what they are."""
    found = len(op.indices)
    expect(found == wanted, f"expects {wanted} indices{which}, but found {found}")
    for index in op.indices:
        expect(isinstance(index.type, ir.IndexType), f"expects indices of type index, but found {index.type}")


def expect_accesses(op: ir.OpView, memory: ir.MemRefType, tile: ir.RankedTensorType, leading: int = 0) -> None:
    """Checks the indices of an op that moves a tile: `leading` ones, an offset per dimension of the memref, and a size
    per dimension of the tile."""
    dims = dims_of(op)
    which = f" ({leading} before {memory.rank} offsets and {tile.rank} sizes)"
    expect_indices(op, leading + memory.rank + tile.rank, which)
    parts = list(map(parts_of, dims))
    expect(
        len(dims) == tile.rank and all(-1 <= d < memory.rank for joined in parts for d, _ in joined),
        f"expects dims to give a dimension of the memref (or -1) for each of the tile's {tile.rank}, but found {dims}",
    )
    expect(
        memory.element_type == tile.element_type,
        f"expects memref and tile to have one element type, but found {memory.element_type} and {tile.element_type}",
    )

    for extent, joined in zip(tile.shape, parts, strict=True):
        count = math.prod(n for _, n in joined)
        expect(
            all(n > 0 for _, n in joined) and count <= extent,
            f"expects joined dimensions to have one to {extent} elements, as the tile has, but found {count}",
        )


def expect_arguments(op: ir.OpView, least: int) -> None:
    found = len(op.operation.operands)
    expect(found >= least, f"expects at least {least} operands, but found {found}")

"""Emits tiles that are computed on their way from memory to shared memory: casts, scales, gathers of keys and values.

Nothing of such a tile is kept in registers: a `Spread` gives some elements in a row when it is asked for them. The
store asks, thread by thread, for pieces of 16 bytes; linalg.generic asks its operands for what it needs; loads read
memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ....dialects.mlir import ir
from ....dialects.tiling.structured import dim_position, indexing_maps
from ...rewriting import ops_of
from .conversions import to_register
from .memory import Access
from .scalars import emit_scalar
from .thread import Shared, Thread, add, asm, constant, create, div, i32, i64, less, mul, rem, select

# The elements from the positions on, along a dimension of the tile; None: it has no such dimension, and one element.
Elements = Callable[[Sequence[ir.Value], "int | None", int], list[ir.Value]]


@dataclass
class Spread:
    """A tile of which any elements can be computed. `inner`: its dimension that stands side by side in memory."""

    elements: Elements
    inner: int = 1


def loaded(access: Access, element: ir.Type, aligned: int, innermost: int | None) -> Spread:
    """A tile in memory. `aligned`: bytes that rows are; `innermost`: the dimension along which elements are dense."""

    def elements(positions: Sequence[ir.Value], along: int | None, count: int) -> list[ir.Value]:
        count = 1 if along is None else count
        is_dense = along is not None and along == innermost and access.is_full(along)
        vector = max(1, min(count, aligned // access.memory.bytes)) if is_dense else 1
        found = []
        for first in range(0, count, vector):
            found += _loaded(access, element, _moved(positions, along, first), vector)
        return found

    return Spread(elements, 1 if innermost is None else innermost)


def _moved(positions: Sequence[ir.Value], along: int | None, distance: int) -> list[ir.Value]:
    return [add(p, distance) if d == along else p for d, p in enumerate(positions)]


def _loaded(access: Access, element: ir.Type, positions: Sequence[ir.Value], count: int) -> list[ir.Value]:
    """So many elements side by side, of which all are valid or none; 0 where they are not."""
    number, valid = access.element(positions)
    if valid is not None:
        number = select(valid, number, constant(i64(), 0))
    memory, address = access.memory, access.memory.address(number)
    if count == 1:
        stored = iter([create("llvm.load", memory.stored, address)])
    else:
        alignment = ir.IntegerAttr.get(i64(), count * memory.bytes)
        vector = create("llvm.load", ir.VectorType.get([count], memory.stored), address, alignment=alignment)
        stored = (create("llvm.extractelement", memory.stored, vector, constant(i32(), i)) for i in range(count))
    values = (to_register(x, element) for x in stored)
    return [v if valid is None else select(valid, v, constant(v.type, 0)) for v in values]


def constant_tile(value: ir.Value) -> Spread:
    return Spread(lambda positions, along, count: [value] * (1 if along is None else count))


def computed(op: ir.Operation, operands: Sequence[Spread | ir.Value], outer: Callable[[ir.Value], ir.Value]) -> Spread:
    """The result of a linalg.generic without reductions."""
    body = op.regions[0].blocks[0]
    maps = indexing_maps(op)
    loops = [dim_position(e) for e in maps[-1].results]

    def elements(positions: Sequence[ir.Value], along: int | None, count: int) -> list[ir.Value]:
        at = dict(zip(loops, positions, strict=True))
        moving = None if along is None else loops[along]
        count = 1 if along is None else count
        read: dict[ir.Value, list[ir.Value]] = {}
        for argument, operand, m in zip(body.arguments, operands, maps, strict=True):
            if isinstance(operand, Spread):
                dims = [dim_position(e) for e in m.results]
                mine = dims.index(moving) if moving in dims else None
                found = operand.elements([at[d] for d in dims], mine, count)
                read[argument] = found if mine is not None else found * count
            else:
                read[argument] = [operand] * count
        return [_evaluated(body, {a: v[i] for a, v in read.items()}, at, moving, i, outer) for i in range(count)]

    inner = next((o.inner for o in operands if isinstance(o, Spread)), 1)
    return Spread(elements, inner)


def _evaluated(body: ir.Block, values: dict, at: dict, moving: int | None, distance: int, outer) -> ir.Value:
    """What the body yields for the element that is `distance` on from the positions, along the loop `moving`."""
    *ops, terminator = ops_of(body)
    for op in ops:
        if op.name == "linalg.index":
            loop = ir.IntegerAttr(op.attributes["dim"]).value
            results = [add(at[loop], distance) if loop == moving else at[loop]]
        else:
            results = emit_scalar(op, [values[v] if v in values else outer(v) for v in op.operands])
        values.update(zip(op.results, results, strict=True))
    (yielded,) = terminator.operands
    return values[yielded] if yielded in values else outer(yielded)


def store_shared(source: Spread, tile: Shared, element: ir.Type, thread: Thread) -> None:
    """All elements to shared memory, 16 bytes a thread at a time.

    Threads that are left over make the last piece, too, and do not store it. A branch around them, in a loop with
    queries in registers, made ptxas (13.0) put something else into these, which it took for unused behind the branch.
    """
    per_row = tile.inner_size // tile.per_piece
    total = tile.outer_size * per_row
    for first in range(0, total, thread.threads):
        number = add(thread.number, first)
        exists = create("arith.extui", i32(), less(number, constant(i32(), total)))
        number = create("arith.minsi", i32(), number, constant(i32(), total - 1))
        outer, inner = div(number, per_row), mul(rem(number, per_row), tile.per_piece)
        positions = [outer, inner] if tile.inner == 1 else [inner, outer]
        values = source.elements(positions, tile.inner, tile.per_piece)
        if tile.width == 2:
            text = f"cvt.rn.{element}x2.f32 $0, $2, $1;"
            words = [asm(text, "=r,f,f", values[i : i + 2], [i32()], effects=False)[0] for i in range(0, 8, 2)]
        else:
            words = [create("arith.bitcast", i32(), v) for v in values]
        text = "{ .reg .pred p; setp.ne.b32 p, $5, 0; @p st.shared.v4.b32 [$0], {$1, $2, $3, $4}; }"
        asm(text, "r,r,r,r,r,r", [tile.piece(outer, inner), *words, exists])

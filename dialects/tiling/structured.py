"""Tiling of every structured op by its indexing maps: linalg's, named or generic, and those of our own dialect.

An op of ours is structured if its class has ``indexing_maps()``, one affine map per operand from loops to operand
dimensions; the outs operands are the last ones, one per result. ``tiled(view, operands)`` may override how its tile is
built from the sliced operands.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

from ..mlir import ir, linalg
from .index import Index, Range, Tile, TileBuilder, Untileable
from .interface import Tiling

# They have regions or maps that say something else than loops over operands.
_UNSTRUCTURED = {"linalg.softmax", "linalg.index", "linalg.yield", "linalg.pack", "linalg.unpack"}
FLOAT_CASTS = ("arith.extf", "arith.truncf")


def is_structured(op: ir.Operation) -> bool:
    if op.name.startswith("linalg."):
        on_tensors = bool(op.results) and all(isinstance(r.type, ir.RankedTensorType) for r in op.results)
        return on_tensors and op.name not in _UNSTRUCTURED and not op.name.startswith("linalg.winograd")
    return hasattr(op.opview, "indexing_maps")


# What attributes say of loops. Most passes ask it of every op, and most ops have one of a few such attributes.
_known: ContextVar[dict[tuple[Callable, ir.Attribute], Any] | None] = ContextVar("_known", default=None)


@contextlib.contextmanager
def reading_once() -> Iterator[None]:
    """Within the block, each attribute that tells of loops is read once, and kept, with its context."""
    token = _known.set({})
    try:
        yield
    finally:
        _known.reset(token)


def once(read: Callable[[ir.Attribute], Any], attribute: ir.Attribute) -> Any:
    """What `read` makes of an attribute; the reader of it is not to change it."""
    known = _known.get()
    if known is None:
        return read(attribute)
    if (read, attribute) not in known:
        known[read, attribute] = read(attribute)
    return known[read, attribute]


def indexing_maps(op: ir.Operation) -> list[ir.AffineMap]:
    """One map per operand, from the loops to the operand's dimensions."""
    if "indexing_maps" in op.attributes:
        return list(once(_maps, op.attributes["indexing_maps"]))
    if op.name.startswith("linalg."):
        return _maps(linalg.get_indexing_maps(op))
    return op.opview.indexing_maps()


def _maps(found: Iterable[ir.Attribute]) -> list[ir.AffineMap]:
    return [m if isinstance(m, ir.AffineMap) else ir.AffineMapAttr(m).value for m in found]


def operand_loops(op: ir.Operation) -> list[list[int | None]]:
    """For each operand, the loop that each of its dimensions is indexed by; None for one that is no loop alone."""
    if "indexing_maps" in op.attributes:
        return [list(loops) for loops in once(_loops, op.attributes["indexing_maps"])]
    return [[dim_position(e) for e in m.results] for m in indexing_maps(op)]


def _loops(found: ir.ArrayAttr) -> list[list[int | None]]:
    return [[dim_position(e) for e in m.results] for m in _maps(found)]


def iterator_types(op: ir.Operation) -> list[str]:
    """A loop that an output's map uses is parallel; linalg.generic says it of every loop itself."""
    if "iterator_types" in op.attributes:
        return list(once(_kinds, op.attributes["iterator_types"]))
    maps = indexing_maps(op)
    used = {d for m in maps[len(maps) - len(op.results) :] for e in m.results if (d := dim_position(e)) is not None}
    return ["parallel" if d in used else "reduction" for d in range(maps[0].n_dims)]


def _kinds(found: ir.ArrayAttr) -> list[str]:
    parallel = ir.Attribute.parse("#linalg.iterator_type<parallel>", found.context)
    return ["parallel" if kind == parallel else "reduction" for kind in found]


def reduces(op: ir.Operation) -> bool:
    """Whether an op is structured, and has reduction loops."""
    return is_structured(op) and "reduction" in iterator_types(op)


def sole_combiner(op: ir.Operation, number: int) -> ir.Operation | None:
    """What puts an element together with result `number`, where that is all that the result is for."""
    block = op.regions[0].blocks[0]
    value = list(block.operations)[-1].operation.operands[number]
    if isinstance(value.owner, ir.Block):
        return None
    combiner = value.owner.operation
    result = block.arguments[len(op.operands) - len(op.results) + number]
    alone = [use.owner.operation for use in result.uses] == [combiner]
    return combiner if alone and len(list(value.uses)) == 1 else None


def all_parallel(op: ir.Operation) -> bool:
    """Whether an op is structured, and has no reduction loops."""
    return is_structured(op) and "reduction" not in iterator_types(op)


def body_names(op: ir.Operation, *but: str) -> list[str]:
    """The names of what the body of a structured op computes, but these, in order."""
    names = [inner.operation.name for inner in op.regions[0].blocks[0].operations] if len(op.regions) else []
    return [name for name in names[:-1] if name not in but]


def moved_operand(op: ir.Operation) -> int | None:
    """The operand whose elements are those of the (first) result, as they are: all that is done is to move them."""
    block = op.regions[0].blocks[0]
    value = block.operations[len(block.operations) - 1].operation.operands[0]
    return value.arg_number if isinstance(value.owner, ir.Block) and value.owner == block else None


def moves_first(op: ir.Operation) -> bool:
    """Whether all that a structured op does is to put its first operand's elements in their places."""
    return moved_operand(op) == 0


def dim_position(expression: ir.AffineExpr) -> int | None:
    """3 for the expression d3, None for any other."""
    return expression.position if isinstance(expression, ir.AffineDimExpr) else None


def loops_in(m: ir.AffineMap) -> set[int]:
    """The loops that a map uses."""
    found, pending = set(), list(m.results)
    while pending:
        e = pending.pop()
        if isinstance(e, ir.AffineBinaryExpr):
            pending += [e.lhs, e.rhs]
        elif (d := dim_position(e)) is not None:
            found.add(d)
    return found


def on_loops(m: ir.AffineMap, loops: Sequence[int]) -> ir.AffineMap:
    """A map that uses none but these loops, as one from them, in this order."""
    places = {d: i for i, d in enumerate(loops)}
    renamed = ir.AffineMap.get(len(loops), 0, [ir.AffineExpr.get_dim(places.get(d, 0)) for d in range(m.n_dims)])
    return ir.AffineMap.get(len(loops), 0, [e.compose(renamed) for e in m.results])


def is_direct(expression: ir.AffineExpr) -> bool:
    """Whether an index is that of a loop, or a constant, as where one element stands for all of a dimension."""
    return isinstance(expression, ir.AffineDimExpr | ir.AffineConstantExpr)


class StructuredTiling(Tiling):
    def __init__(self, op: ir.Operation):
        super().__init__(op)
        self.maps = indexing_maps(op)
        self.first_init = len(op.operands) - len(op.results)

    def iterator_types(self) -> list[str]:
        return iterator_types(self.op)

    def domain(self, builder: TileBuilder) -> list[Index]:
        """Of several sizes, none of them static, a result's comes first: tiles have to cover all of it."""
        extents: list[Index | None] = [None] * self.maps[0].n_dims
        operands = list(zip(self.op.operands, self.maps, strict=True))
        for operand, m in (*operands[self.first_init :], *operands[: self.first_init]):
            for d, expression in enumerate(m.results):
                loop = dim_position(expression)
                extent = None if loop is None else extents[loop]
                if loop is None or (extent is not None and extent.static is not None):
                    continue
                if extent is None or operand.type.shape[d] != ir.ShapedType.get_dynamic_size():
                    extents[loop] = builder.dim(operand, d)
        if any(e is None for e in extents):
            raise Untileable(f"no operand of '{self.op.name}' gives the extent of loop {extents.index(None)}")
        return [e for e in extents if e is not None]

    def domain_tile(self, builder: TileBuilder, result: int, tile: Tile) -> Tile:
        ranges: list[Range | None] = [None] * self.maps[0].n_dims
        shape = self.op.results[result].type.shape
        for r, expression, size in zip(tile, self.maps[self.first_init + result].results, shape, strict=True):
            loop = dim_position(expression)
            if isinstance(expression, ir.AffineConstantExpr) and size == 1:
                continue
            if loop is None or ranges[loop] is not None:
                raise Untileable(f"the output of '{self.op.name}' is not indexed by loops alone")
            ranges[loop] = r
        if any(r is None for r in ranges):
            ranges = [r or Range.everything(e) for r, e in zip(ranges, self.domain(builder), strict=True)]
        return tuple(r for r in ranges if r is not None)

    def result_tile(self, builder: TileBuilder, result: int, tile: Tile) -> Tile:
        return self.operand_tile(builder, self.first_init + result, tile)

    def operand_tile(self, builder: TileBuilder, number: int, tile: Tile) -> Tile:
        """The part of operand `number` that the domain's `tile` touches."""
        operand = self.op.operands[number]
        return tuple(
            _image(builder, expression, tile, operand, d) for d, expression in enumerate(self.maps[number].results)
        )

    def tile(self, builder: TileBuilder, tile: Tile, operand: Callable[[int, Tile], ir.Value]) -> list[ir.Value]:
        operands = [
            operand(i, self.operand_tile(builder, i, tile)) if _is_tensor(self.op.operands[i]) else self.op.operands[i]
            for i in range(len(self.maps))
        ]
        tiled = getattr(self.op.opview, "tiled", None)
        if tiled is not None:
            return tiled(tile, operands)
        clone = clone_with(self.op, operands, [v.type for v in operands[self.first_init :]])
        _shift_indices(builder, clone, tile)
        return list(clone.results)


def clone_with(op: ir.Operation, operands: list[ir.Value], results: list[ir.Type]) -> ir.Operation:
    """A copy of `op`, regions and attributes included, with other operands and result types."""
    clone = op.clone()
    for i, v in enumerate(operands):
        clone.operands[i] = v
    for result, kind in zip(clone.results, results, strict=True):
        result.set_type(kind)
    return clone.operation


def _image(builder: TileBuilder, expression: ir.AffineExpr, tile: Tile, operand: ir.Value, d: int) -> Range:
    """What a box of loops touches along one operand dimension: a window such as d0·2 + d1 gives its hull."""
    loop = dim_position(expression)
    if loop is not None:
        r = tile[loop]
        # The operand's own extent: its type may say less, or more, than the loop's.
        return Range.everything(builder.dim(operand, d), r.loops) if r.full else r
    if isinstance(expression, ir.AffineConstantExpr):
        return Range(Index(expression.value), Index(1))
    coefficients, const = sum_of_loops(expression)
    if all(tile[loop].full for loop in coefficients):
        return Range.everything(builder.dim(operand, d))
    offset, size = Index(const), Index(1)
    for loop, coefficient in coefficients.items():
        offset = offset + tile[loop].offset.scaled(coefficient)
        size = size + (tile[loop].size - 1).scaled(coefficient)
    return Range(offset, size)


def sum_of_loops(expression: ir.AffineExpr) -> tuple[dict[int, int], int]:
    """Coefficients by loop, and the constant, of an expression with non-negative coefficients; Untileable of others."""
    loop = dim_position(expression)
    if loop is not None:
        return {loop: 1}, 0
    if isinstance(expression, ir.AffineConstantExpr):
        return {}, expression.value
    if isinstance(expression, ir.AffineAddExpr):
        (left, a), (right, b) = sum_of_loops(expression.lhs), sum_of_loops(expression.rhs)
        return {k: left.get(k, 0) + right.get(k, 0) for k in {**left, **right}}, a + b
    if isinstance(expression, ir.AffineMulExpr):
        (left, a), (right, b) = sum_of_loops(expression.lhs), sum_of_loops(expression.rhs)
        (scaled, factor) = (left, b) if not right else (right, a)
        if factor >= 0 and not (left and right):
            return {k: c * factor for k, c in scaled.items()}, a * b
    raise Untileable(f"an operand is indexed by {expression}, which is not a sum of loops")


def _shift_indices(builder: TileBuilder, clone: ir.Operation, tile: Tile) -> None:
    """``linalg.index`` in the body of a tile counts from the tile's first element: adds the tile's offset to it."""
    found: list[ir.Operation] = []

    def collect(op: ir.Operation) -> ir.WalkResult:
        if op.name == "linalg.index":
            found.append(op.operation)
        return ir.WalkResult.ADVANCE

    clone.walk(collect)
    for op in found:
        offset = tile[ir.IntegerAttr(op.attributes["dim"]).value].offset
        if offset != Index(0):
            with ir.InsertionPoint.after(op):
                shifted = ir.Operation.create("arith.addi", [ir.IndexType.get()], [op.result, builder.value(offset)])
            op.result.replace_all_uses_except(shifted.result, shifted)


def _is_tensor(value: ir.Value) -> bool:
    return isinstance(value.type, ir.RankedTensorType)

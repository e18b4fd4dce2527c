"""Tiling of the tensor dialect's ops that stand between the matmuls: reshapes, slices, pads, casts, empty tensors.

The iteration domain of each is the shape of its result; every loop is parallel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from ..mlir import ir
from .index import Index, Range, Tile, TileBuilder, Untileable, is_full, kept_dims, static_shape
from .interface import Tiling, register

Slicer = Callable[[int, Tile], ir.Value]


def reassociation(op: ir.Operation) -> list[list[int]]:
    """Of a reshape: for each dimension of its narrow side those of its wide one."""
    return [[ir.IntegerAttr(d).value for d in group] for group in op.attributes["reassociation"]]


@register("tensor.empty")
class EmptyTiling(Tiling):
    def tile(self, builder: TileBuilder, tile: Tile, operand: Slicer) -> list[ir.Value]:
        kind = self.op.results[0].type
        return [builder.empty([r.size for r in tile], kind.element_type)]


@register("tensor.cast")
class CastTiling(Tiling):
    def tile(self, builder: TileBuilder, tile: Tile, operand: Slicer) -> list[ir.Value]:
        source = self.op.operands[0]
        full = builder.everything(source)
        return [operand(0, tuple(f if r.full else r for r, f in zip(tile, full, strict=True)))]


@register("tensor.expand_shape")
class ExpandShapeTiling(Tiling):
    """``[[0], [1, 2]] : tensor<4x512> into tensor<4x8x64>``: a tile of heads is a contiguous run of the 512."""

    def tile(self, builder: TileBuilder, tile: Tile, operand: Slicer) -> list[ir.Value]:
        groups = reassociation(self.op)
        source = self.op.operands[0]
        ranges = [self._collapsed(builder, [tile[d] for d in g], g, source, i) for i, g in enumerate(groups)]
        kind = self.op.results[0].type
        sizes = [r.size for r in tile]
        static, dynamic = builder.mixed(sizes)
        op = ir.Operation.create(
            "tensor.expand_shape",
            [ir.RankedTensorType.get(static_shape(sizes), kind.element_type)],
            [operand(0, tuple(ranges)), *dynamic],
            {
                "reassociation": self.op.attributes["reassociation"],
                "static_output_shape": ir.DenseI64ArrayAttr.get(static),
            },
        )
        return list(op.results)

    def _collapsed(
        self, builder: TileBuilder, ranges: Sequence[Range], dims: Sequence[int], source: ir.Value, d: int
    ) -> Range:
        """One range of the source for the ranges of one group; they must be one contiguous run of it."""
        if len(ranges) == 1 and not ranges[0].full:
            return ranges[0]
        loops = frozenset[int]().union(*(r.loops for r in ranges))
        if is_full(ranges):
            return Range.everything(builder.dim(source, d), loops)
        partial = next(i for i in reversed(range(len(ranges))) if not ranges[i].full)
        for r in ranges[:partial]:
            if r.size.static != 1:
                raise Untileable("a tile of the expanded dimensions is not contiguous in the collapsed one")
        extents = [builder.dim(self.op.results[0], d) for d in dims]
        offset, stride = Index(0), Index(1)
        size = Index(1)
        for i in reversed(range(len(ranges))):
            offset = offset + builder.product(ranges[i].offset, stride)
            if i >= partial:
                size = builder.product(size, ranges[i].size)
            stride = builder.product(stride, extents[i])
        whole = partial == 0 and ranges[0].whole
        return Range(offset, size, whole=whole or all(r.whole for r in ranges), loops=loops)


@register("tensor.collapse_shape")
class CollapseShapeTiling(Tiling):
    """``[[0], [1, 2]] : tensor<4x8x64> into tensor<4x512>``: a tile of the 512 is whole rows of 64, or part of one."""

    def tile(self, builder: TileBuilder, tile: Tile, operand: Slicer) -> list[ir.Value]:
        source = self.op.operands[0]
        ranges: list[Range] = []
        if not tile:  # one element, whose reassociation names no dimension
            ranges = [Range.everything(Index(1))] * source.type.rank
        for r, dims in zip(tile, reassociation(self.op), strict=True):
            ranges += self._expanded(builder, r, [builder.dim(source, d) for d in dims])
        kind = self.op.results[0].type
        op = ir.Operation.create(
            "tensor.collapse_shape",
            [ir.RankedTensorType.get(static_shape(r.size for r in tile), kind.element_type)],
            [operand(0, tuple(ranges))],
            {"reassociation": self.op.attributes["reassociation"]},
        )
        return list(op.results)

    def _expanded(self, builder: TileBuilder, r: Range, extents: Sequence[Index]) -> list[Range]:
        """The ranges of the source's dimensions, outer to inner, that make up the range `r` of their product."""
        if r.full:
            return [Range.everything(e, r.loops) for e in extents]
        if len(extents) == 1:
            return [r]
        if extents[0].static == 1:
            return [Range.everything(extents[0], r.loops), *self._expanded(builder, r, extents[1:])]
        inner = [e.static for e in extents[1:]]
        if any(e is None for e in inner):
            raise Untileable("a tile of a collapsed dimension cannot be split over inner dimensions of dynamic extent")
        row = prod(e for e in inner if e is not None)
        if r.offset.divisible_by(row) and r.size.divisible_by(row):
            outer = Range(r.offset.divided(row), r.size.divided(row), whole=r.whole, loops=r.loops)
            return [outer, *(Range.everything(e, r.loops) for e in extents[1:])]
        steps = [c for _, c in r.offset.terms] + [r.offset.const]
        size = r.size.static
        if size is None or row % size or any(step % size for step in steps):
            raise Untileable(f"a tile of {size or 'dynamic'} elements does not divide rows of {row}")
        outer = Range(builder.floor_divided(r.offset, row), Index(1), whole=r.whole, loops=r.loops)
        rest = Range(builder.remainder(r.offset, row), r.size, whole=r.whole, loops=r.loops)
        return [outer, *self._expanded(builder, rest, extents[1:])]


@register("tensor.extract_slice")
class ExtractSliceTiling(Tiling):
    """A slice of a slice: offsets add up. Along a stride single elements are tiles."""

    def tile(self, builder: TileBuilder, tile: Tile, operand: Slicer) -> list[ir.Value]:
        view = self.op.opview
        source, strides = view.source, list(view.static_strides)
        offsets = _mixed(view.static_offsets, view.offsets)
        sizes = _mixed(view.static_sizes, view.sizes)
        kept = kept_dims([s.static for s in sizes], list(self.op.results[0].type.shape))
        ranges, of = [], iter(tile)
        for d in range(source.type.rank):
            if d in kept:
                r = next(of)
                if strides[d] != 1 and (r.size != Index(1) or strides[d] == ir.ShapedType.get_dynamic_size()):
                    raise Untileable("a strided tensor.extract_slice stays whole")
                covers = offsets[d] == Index(0) and sizes[d] == builder.dim(source, d)
                offset = offsets[d] + r.offset.scaled(strides[d])
                ranges.append(Range(offset, r.size, r.full and covers, r.whole and covers, r.loops))
            else:
                ranges.append(Range(offsets[d], Index(1)))
        sliced = operand(0, tuple(ranges))
        if len(kept) == source.type.rank:
            return [sliced]
        local = [Range.everything(r.size) for r in ranges]
        shape = static_shape(ranges[d].size for d in sorted(kept))
        return [builder.slice(sliced, tuple(local), shape)]


@register("tensor.insert_slice")
class InsertSliceTiling(Tiling):
    """Tiled along dimensions that the inserted slice spans; the others stay whole."""

    def tile(self, builder: TileBuilder, tile: Tile, operand: Slicer) -> list[ir.Value]:
        view = self.op.opview
        source, dest = view.source, view.dest
        offsets, sizes = _mixed(view.static_offsets, view.offsets), _mixed(view.static_sizes, view.sizes)
        if any(s != 1 for s in view.static_strides) or source.type.rank != dest.type.rank:
            raise Untileable("a strided or rank-reducing tensor.insert_slice stays whole")
        of_source, placed = [], []
        for d, r in enumerate(tile):
            if r.full:
                of_source.append(Range.everything(builder.dim(source, d)))
                placed.append(Range(offsets[d], sizes[d]))
            elif offsets[d] == Index(0) and sizes[d] == builder.dim(dest, d):
                of_source.append(r)
                placed.append(Range.everything(r.size))
            else:
                raise Untileable("tensor.insert_slice is tiled along a dimension that its source does not span")
        return [builder.insert(operand(0, tuple(of_source)), operand(1, tile), tuple(placed))]


@register("tensor.pad")
class PadTiling(Tiling):
    """A tile of a padded tensor: what it holds of the source, padded by the rest (possibly nothing, possibly all)."""

    def tile(self, builder: TileBuilder, tile: Tile, operand: Slicer) -> list[ir.Value]:
        view = self.op.opview
        source = view.source
        lows = _mixed(view.static_low, view.low)
        ranges, low, high = [], [], []
        for d, r in enumerate(tile):
            extent = builder.dim(source, d)
            if r.full:
                ranges.append(Range.everything(extent))
                low.append(lows[d])
                high.append(r.size - lows[d] - extent)
                continue
            start = builder.minimum(builder.maximum(r.offset - lows[d], Index(0)), extent)
            end = builder.minimum(builder.maximum(r.offset + r.size - lows[d], Index(0)), extent)
            before = builder.minimum(builder.maximum(lows[d] - r.offset, Index(0)), r.size)
            ranges.append(Range(start, end - start))
            low.append(before)
            high.append(r.size - before - (end - start))
        kind = self.op.results[0].type
        static_low, dynamic_low = builder.mixed(low)
        static_high, dynamic_high = builder.mixed(high)
        sliced = operand(0, tuple(ranges))
        op = ir.Operation.create(
            "tensor.pad",
            [ir.RankedTensorType.get(static_shape(r.size for r in tile), kind.element_type)],
            [sliced, *dynamic_low, *dynamic_high],
            {
                "static_low": ir.DenseI64ArrayAttr.get(static_low),
                "static_high": ir.DenseI64ArrayAttr.get(static_high),
                "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, len(dynamic_low), len(dynamic_high)]),
            },
            regions=1,
        )
        self._clone_body(builder, op, tile)
        return list(op.results)

    def _clone_body(self, builder: TileBuilder, op: ir.Operation, tile: Tile) -> None:
        """The padding value may depend on the position, which counts from the tile's first element."""
        old = self.op.regions[0].blocks[0]
        new = op.regions[0].blocks.append(*(a.type for a in old.arguments), arg_locs=[op.location] * len(old.arguments))
        mapping: dict[ir.Value, ir.Value] = {}
        with ir.InsertionPoint(new):
            for argument, fresh, r in zip(old.arguments, new.arguments, tile, strict=True):
                used = any(True for _ in argument.uses)
                shifted = used and r.offset != Index(0)
                mapping[argument] = (
                    ir.Operation.create("arith.addi", [ir.IndexType.get()], [fresh, builder.value(r.offset)]).result
                    if shifted
                    else fresh
                )
            for inner in old.operations:
                clone = inner.operation.clone()
                for i, v in enumerate(clone.operands):
                    if v in mapping:
                        clone.operands[i] = mapping[v]
                mapping.update(zip(inner.operation.results, clone.operation.results, strict=True))


def _mixed(static: Sequence[int], dynamic: Sequence[ir.Value]) -> list[Index]:
    """Static entries with the dynamic operands filled in."""
    values = iter(dynamic)
    return [Index.of(next(values) if s == ir.ShapedType.get_dynamic_size() else s) for s in static]

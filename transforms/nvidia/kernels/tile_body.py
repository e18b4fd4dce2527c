"""Rewrites the body of a loop over tiles: memrefs with loads and stores for tensors in memory, tiles of static shape.

Used by ``outline-kernels``, whose docstring shows the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ....dialects import build
from ....dialects.mlir import arith, ir, linalg
from ....dialects.tile import Joined, LoadOp, StoreOp, dims_attribute
from ....dialects.tiling.structured import dim_position, indexing_maps, is_structured, iterator_types, moves_first
from ...attention import is_matmul
from ...copying import copy_scalar_body
from ...passes import PassError
from ...reshapes import RESHAPES
from ...rewriting import defining_op, for_body, for_inits, make_for, ops_in, ops_of, through
from ...slices import slice_offsets
from ...splats import filled_with
from ..axes import BATCH, COLUMN, Axes, Axis, kept_dims, reshaped_dims, rows_first
from .padding import Padding

COLUMNS = 16  # of 16 bits: the tensor cores' k
NO_ROW = "a tile's only row, or column, is none behind a reshape: not lowered for GPUs"


@dataclass(frozen=True)
class Memory:
    """A tensor that lives in memory: which part of a memref. `dims`: the memref's dimension behind each of its own; -1:
    none, it has one element."""

    memref: ir.Value
    offsets: tuple[ir.Value | int, ...]
    dims: tuple[int, ...]

    @staticmethod
    def whole(memref: ir.Value) -> Memory:
        rank = memref.type.rank
        return Memory(memref, (0,) * rank, tuple(range(rank)))


@dataclass
class TileBody:
    """Emits at the insertion point. `values` and `memories` map what was to what is."""

    axes: Axes
    rows: int
    values: dict[ir.Value, ir.Value] = field(default_factory=dict)
    memories: dict[ir.Value, Memory] = field(default_factory=dict)

    def __post_init__(self) -> None:
        eight_bits = any(v.type.element_type.width == 8 for op in self._contractions() for v in list(op.operands)[:2])
        self.padding = Padding(self.rows, 2 * COLUMNS if eight_bits else COLUMNS, self.index)

    def _contractions(self) -> list[ir.Operation]:
        return [op for op in ops_in(self.axes.forall) if is_matmul(op)]

    # Scalars.

    def index(self, value: ir.Value | int) -> ir.Value:
        return build.index(value) if isinstance(value, int) else self.scalar(value)

    def scalar(self, value: ir.Value) -> ir.Value:
        """The new value of a scalar; constants are copied to where they are used."""
        if value not in self.values:
            op = defining_op(value)
            if op is None or op.name != "arith.constant":
                raise PassError("a tensor is read as a whole here, and by tiles in a loop: not lowered for GPUs", op)
            return op.clone().results[0]
        return self.values[value]

    def _sum(self, a: ir.Value | int, b: ir.Value | int) -> ir.Value | int:
        """a + b for an `a` of the kernel and a `b` of the loop's body."""
        if isinstance(a, int) and isinstance(b, int):
            return a + b  # no op, which would stand where it is asked for first
        if isinstance(b, int) and b == 0:
            return a
        b = self.index(b)
        return b if a == 0 else arith.addi(a if isinstance(a, ir.Value) else build.index(a), b)

    # Axes.

    def _kept(self, value: ir.Value) -> list[int]:
        """The dimensions of a tile that are rows or columns, rows first: where they stand in memory is up to loads. Of
        axes that are joined, one stands for all."""
        return rows_first(enumerate(self._axes(value)))

    def _axes(self, value: ir.Value) -> list[Axis]:
        return [self.axes.of(value, d) for d in range(value.type.rank)]

    def _size(self, axis: Axis) -> ir.Value:
        """How many elements are valid along what an axis is joined to."""
        outer, inner = axis.parts[0].size, math.prod(part.extent for part in axis.parts[1:])
        if isinstance(outer, int):
            return self.index(outer * inner)
        return arith.muli(self.index(outer), build.index(inner)) if inner != 1 else self.index(outer)

    @staticmethod
    def _behind(axes: Sequence[Axis], dims: Sequence[int], kept: Sequence[int]) -> list[int | Joined]:
        """Of the `kept` ones of a tile's axes, the dimension of memory, given one for each axis; -1: none."""

        def of(part: Axis) -> int:
            return next((dim for axis, dim in zip(axes, dims, strict=True) if axis is part), -1)

        return [tuple((of(p), p.extent) for p in axes[d].joined) if axes[d].joined else dims[d] for d in kept]

    def _tile_type(self, value: ir.Value) -> ir.RankedTensorType:
        shape = [self.padding.padded(self.axes.of(value, d)) for d in self._kept(value)]
        return ir.RankedTensorType.get(shape, value.type.element_type)

    # Memory.

    def memory(self, value: ir.Value) -> Memory:
        if value in self.memories:
            return self.memories[value]
        op = defining_op(value)
        if op is None or op.name not in ("tensor.extract_slice", *RESHAPES):
            raise PassError("this tensor is used in a loop over tiles, but is no argument, slice or result", op)
        base = self.memory(op.operands[0])
        if op.name in RESHAPES:
            dims = tuple(-1 if d is None else base.dims[d] for d in reshaped_dims(op))
            self.memories[value] = Memory(base.memref, base.offsets, dims)
            return self.memories[value]
        offsets = list(base.offsets)
        for d, offset in zip(base.dims, slice_offsets(op), strict=True):
            if d >= 0:
                offsets[d] = self._sum(offsets[d], offset)
        dims = tuple(base.dims[d] for d in kept_dims(op, value.type))
        self.memories[value] = Memory(base.memref, tuple(offsets), dims)
        return self.memories[value]

    def tile(self, value: ir.Value) -> ir.Value:
        """The tile that `value` is, loaded where it is in memory."""
        if value in self.values:
            return self.values[value]
        splat = self._splat_behind(value)
        if splat is not None:
            kind = self._tile_type(value)
            dense = ir.DenseElementsAttr.get_splat(kind, splat)
            return arith.ConstantOp(kind, dense).result
        op = defining_op(value)
        if op is not None and op.name == "tensor.empty":
            return build.empty(self._tile_type(value).shape, value.type.element_type)
        init = self._init_behind(value)
        made = defining_op(init) if init is not None else None
        if init is not None and (made is None or made.name != "tensor.empty"):
            raise PassError("a result of the loop starts from values of a tensor, which its memory does not hold", op)
        memory = self.memory(value)
        self.values[value] = self._load(memory, value, memory.dims)
        return self.values[value]

    def _load(self, memory: Memory, value: ir.Value, dims: Sequence[int]) -> ir.Value:
        """The tile that `value` is. `dims`: the memref's dimension behind each of its own; -1: none."""
        kept, axes = self._kept(value), self._axes(value)
        places = [self.index(o) if isinstance(o, int) else o for o in memory.offsets]
        places += [self._size(axes[d]) for d in kept]
        behind = dims_attribute(self._behind(axes, dims, kept))
        return LoadOp(memory.memref, places, behind, result=self._tile_type(value)).result

    def _splat_behind(self, value: ir.Value) -> ir.Attribute | None:
        """The constant that a tensor is filled with, seen through slices and reshapes."""
        init = self._init_behind(value)
        return filled_with(through(value, "tensor.extract_slice", *RESHAPES) if init is None else init)

    def _init_behind(self, value: ir.Value) -> ir.Value | None:
        """What a shared output starts as, of which `value` is a slice; None for other tensors."""
        value, arguments = through(value, "tensor.extract_slice"), list(self.axes.forall.regions[0].blocks[0].arguments)
        inits = list(self.axes.forall.operands)
        return inits[len(inits) - len(arguments) + arguments.index(value)] if value in arguments else None

    # Ops.

    def ops(self, ops: Sequence[ir.Operation]) -> None:
        for op in ops:
            with op.location:
                self._op(op)

    def _op(self, op: ir.Operation) -> None:
        results = list(op.results)
        if op.name == "scf.for":
            self._for(op)
        elif op.name == "tensor.extract_slice":
            if not self.axes.is_memory(op.operands[0]):
                self._whole(op, op.operands[0], results[0])
        elif op.name == "tensor.insert_slice":
            self._whole(op, op.operands[0], results[0], op.operands[0])
        elif op.name in RESHAPES:
            if not self.axes.is_memory(op.operands[0]):
                self.values[results[0]] = self.tile(op.operands[0])
        elif op.name == "tensor.empty" or (op.name == "linalg.generic" and filled_with(results[0]) is not None):
            pass  # where they are used
        elif op.name == "linalg.generic":
            self._generic(op)
        elif is_structured(op):
            raise PassError(f"expects linalg.generic, but found '{op.name}': run linalg-generalize-named-ops", op)
        elif op.name == "tensor.dim" and not self.axes.is_memory(op.operands[0]):
            axis = self.axes.of(op.operands[0], build.constant_value(op.operands[1]))
            self.values[results[0]] = self.index(axis.size)
        elif op.name == "tensor.extract":
            self.values[results[0]] = self._extracted(op, self.scalar)
        elif len(op.regions) or any(isinstance(v.type, ir.ShapedType) for v in (*results, *op.operands)):
            raise PassError(f"'{op.name}' on tiles is not lowered for GPUs yet", op)
        else:
            operands = [self.scalar(v) for v in op.operands]
            clone = op.clone()
            for i, v in enumerate(operands):
                clone.operation.operands[i] = v
            self.values.update(zip(results, clone.operation.results, strict=True))

    def _whole(self, op: ir.Operation, value: ir.Value, result: ir.Value, source: ir.Value | None = None) -> None:
        """A slice of a tile must be all of it."""
        full = value if source is None else op.operands[1]
        zero = all(isinstance(o, int) and o == 0 for o in slice_offsets(op))
        part = result if source is None else value  # which has the axes of the tile, and so its shape
        if (
            not zero
            or self._tile_type(value).shape != self._tile_type(result).shape
            or part.type.shape != full.type.shape
        ):
            raise PassError(
                "a part of a tile is taken: tiles of tiles are not lowered for GPUs; where it stands in a "
                "loop of the graph, make a batch dimension of that",
                op,
            )
        self.values[result] = self.tile(value)

    def _for(self, op: ir.Operation) -> None:
        inits = [self.tile(v) if isinstance(v.type, ir.ShapedType) else self.scalar(v) for v in for_inits(op)]
        bounds = [self.scalar(v) for v in list(op.operands)[:3]]
        loop, block = make_for(bounds, inits)
        old = for_body(op)
        self.values.update(zip(old.arguments, block.arguments, strict=True))
        outer = dict(self.values)
        with ir.InsertionPoint(block):
            self.ops(ops_of(old)[:-1])
            yielded = ops_of(old)[-1].operands
            values = [self.tile(v) if isinstance(v.type, ir.ShapedType) else self.scalar(v) for v in yielded]
            ir.Operation.create("scf.yield", [], values)
        self.values = outer  # what was loaded in the loop is not seen behind it
        self.values.update(zip(op.results, loop.results, strict=True))

    def store(self, op: ir.Operation) -> None:
        """A parallel_insert_slice."""
        value, target = op.operands[0], self.memory(op.operands[1])
        new = self.tile(value)
        offsets = [self.index(o) for o in slice_offsets(op)]
        axes, kept = self._axes(value), self._kept(value)
        if new.type.rank != len(kept):
            raise PassError(NO_ROW, op)
        kind = new.type.element_type
        if not isinstance(kind, ir.FloatType) or kind.width > 32:
            way_out = "convert them before (of f64, to f32), or compile for the CPU"
            raise PassError(f"tiles of {kind} are no results: {way_out}", op)
        sizes = [self._size(axes[d]) for d in kept]
        dims = dims_attribute(self._behind(axes, kept_dims(op, value.type), kept))
        StoreOp(new, target.memref, [*offsets, *sizes], dims)

    # Structured ops.

    def _generic(self, op: ir.Operation) -> None:
        maps, kinds = indexing_maps(op), iterator_types(op)
        axes = [self.axes.of_loop(op, d) for d in range(len(kinds))]
        kept = rows_first(enumerate(axes))
        if self._moved(op, maps):
            return
        operands = [self._operand(op, i) for i in range(len(op.operands))]
        if is_matmul(op):
            operands[0] = self.padding.made_zero(op, operands[0], maps[0], axes)
        results = [self._tile_type(v) for v in op.results]
        new_maps = [self._map(m, axes, kept, v) for m, v in zip(maps, op.operands, strict=True)]
        for value, m in zip(operands, new_maps, strict=True):
            if isinstance(value.type, ir.RankedTensorType) and value.type.rank != len(m.results):
                raise PassError(NO_ROW, op)
        new = ir.Operation.create(
            "linalg.generic",
            results,
            operands,
            {
                "indexing_maps": build.map_array(new_maps),
                "iterator_types": ir.ArrayAttr.get([op.attributes["iterator_types"][d] for d in kept]),
                "operandSegmentSizes": op.attributes["operandSegmentSizes"],
            },
            regions=1,
        )
        old = op.regions[0].blocks[0]
        scalars = [a.type for a in old.arguments]
        block = new.regions[0].blocks.append(*scalars, arg_locs=[op.location] * len(scalars))
        self._scalar_body(old, block, axes, kept)
        if not is_matmul(op):
            self.padding.left_out(op, block, axes, kept, list(new.results))
            if len(kept) == 2 and all(axes[d].role == COLUMN for d in kept):
                self.padding.zeroed(block, axes, kept)
        self.values.update(zip(op.results, new.results, strict=True))

    def _operand(self, op: ir.Operation, number: int) -> ir.Value:
        value = op.operands[number]
        if not isinstance(value.type, ir.ShapedType):
            return self.scalar(value)
        written = number >= len(op.operands) - len(op.results)
        if not written and value not in self.values and not self._kept(value) and self.axes.is_memory(value):
            if (splat := self._splat_behind(value)) is not None:
                return arith.ConstantOp(value.type.element_type, splat).result
            memory = self.memory(value)
            places = [self.index(o) if isinstance(o, int) else o for o in memory.offsets]
            return ir.Operation.create("memref.load", [value.type.element_type], [memory.memref, *places]).result
        if written and not list(op.regions[0].blocks[0].arguments[number].uses):
            return build.empty(self._tile_type(value).shape, value.type.element_type)
        return self.tile(value)

    def _map(self, old: ir.AffineMap, axes: Sequence[Axis], kept: list[int], operand: ir.Value) -> ir.AffineMap:
        loops = [None if (d := dim_position(e)) is None else _loop_of(d, axes, kept) for e in old.results]
        for d, loop in enumerate(loops):
            if loop is None and self.axes.of(operand, d).role != BATCH:
                raise PassError("a row or column is read at a fixed place: not lowered for GPUs", defining_op(operand))
        tile = self._kept(operand) if loops else []
        return ir.AffineMap.get(len(kept), 0, [ir.AffineExpr.get_dim(loops[d]) for d in tile])

    def _scalar_body(self, old: ir.Block, block: ir.Block, axes: Sequence[Axis], kept: list[int]) -> None:
        """Copies the body of a generic; indices along dropped loops are 0."""

        def index(loop: int) -> ir.Value:
            place = _loop_of(loop, axes, kept)
            if place is None:
                return build.index(0)
            found, axis = linalg.IndexOp(place).result, axes[loop]
            if axis.inner > 1:
                found = arith.divui(found, build.index(axis.inner))
            return arith.remui(found, build.index(axis.extent)) if axis is not axis.parts[0] else found

        inner = dict(zip(old.arguments, block.arguments, strict=True))
        with ir.InsertionPoint(block):
            # Loads read the nearest element where there is none, so that both sides of a branch can be computed.
            linalg.YieldOp(copy_scalar_body(old, inner, self.scalar, index, self._extracted, branches=False))

    def _extracted(self, op: ir.Operation, here: Callable[[ir.Value], ir.Value]) -> ir.Value:
        """An element of a tensor in memory."""
        source, *indices = op.operands
        if (splat := self._splat_behind(source)) is not None:
            return arith.ConstantOp(source.type.element_type, splat).result
        memory = self.memory(source)
        places = [self.index(o) if isinstance(o, int) else o for o in memory.offsets]
        for d, index in zip(memory.dims, indices, strict=True):
            if d < 0:
                continue
            found = here(index)
            places[d] = found if build.constant_value(places[d]) == 0 else arith.addi(places[d], found)
        return ir.Operation.create("memref.load", [op.results[0].type], [memory.memref, *places]).result

    def _moved(self, op: ir.Operation, maps: Sequence[ir.AffineMap]) -> bool:
        """A transposition or broadcast of a tile in memory is a load with other dimensions."""
        source = op.operands[0]
        if len(op.operands) != 2 or not moves_first(op) or not self._kept(op.results[0]):
            return False  # a single element is no tile
        if not isinstance(source.type, ir.ShapedType) or source in self.values or not self.axes.is_memory(source):
            loaded = defining_op(self.values[source]) if source in self.values else None
            if loaded is None or loaded.name != "tile.load" or source not in self.memories:
                return False
        places = [dim_position(e) for e in maps[0].results]
        memory, result = self.memory(source), op.results[0]
        targets = [dim_position(e) for e in maps[1].results]
        dims = [memory.dims[places.index(d)] if d in places else -1 for d in targets]
        self.values[result] = self._load(memory, result, dims)
        return True


def _loop_of(loop: int, axes: Sequence[Axis], kept: Sequence[int]) -> int | None:
    """Which one of the loops that are kept a loop is, or is a part of; None: none, it has one iteration."""
    parts = axes[loop].parts
    return next((i for i, d in enumerate(kept) if any(axes[d] is part for part in parts)), None)

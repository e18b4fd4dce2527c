"""The pass ``outline-kernels``."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from ....dialects import build
from ....dialects.mlir import arith, gpu, ir
from ....dialects.tiling.tensor_ops import reassociation
from ...copying import copy_needed
from ...passes import Pass, PassError, option, remark
from ...products import is_product, product
from ...reshapes import RESHAPES, only_units
from ...rewriting import Values, defining_op, erase_dead, functions_of, is_constant, is_inside, only_if, ops_in, ops_of
from ...slices import Size, forall_bounds, is_iteration_number, mixed, slice_offsets, slice_sizes
from ...splats import filled_with
from ..axes import Axes
from ..constants import constant_memory, own_constants
from ..launching import STRIDED, kernel_module, launch, memory_type, new_kernel, read_buffer, strided, to_tensor
from ..marks import ALIGNED, BLOCK_THREADS, COPY
from ..own_rows import axes_of, own_rows
from .lifted_views import lift_views
from .one_block import beside_loops, between_matmuls, check_order, everything, is_one_tile, merges, one_block
from .point_body import THREADS, PointBody, is_pointwise, output_axes
from .reshaped_results import allocated, expanded, only_collapse
from .tile_body import Memory, TileBody

Way: TypeAlias = "Callable[[ir.Operation], list[list[ir.Operation]]]"  # of `one_block.py`


@dataclass(frozen=True)
class OutlineKernels(Pass):
    """Makes a kernel of every outermost scf.forall; its tiles get static shapes::

        %r = scf.forall (%i) = (0) to (%n) step (128) shared_outs(%o = %init) -> (tensor<?x64xf16>) {
          %m = affine.min (128, %n − %i)
          %q = tensor.extract_slice %arg0[%i, 0] [%m, 64] [1, 1] : …
          …
          scf.forall.in_parallel { tensor.parallel_insert_slice %t into %o[%i, 0] [%m, 64] [1, 1] }
        }
    becomes
        %blocks = ⌈%n / 128⌉
        %in = bufferization.to_buffer %arg0
        %out = memref.alloc(%n) : memref<?x64xf16>
        gpu.launch_func @kernels::@attention_0 blocks in (%blocks, 1, 1) … args(%in, %out, %n)
        %r = bufferization.to_tensor %out
      and in gpu.module @kernels
        gpu.func @attention_0(%in: memref<?x64xf16, strided<[?, 1]>>, %out: …, %n: index) kernel {
          %b = gpu.block_id x
          %i = arith.muli %b, %c128
          %q = tile.load(%in, %i, %c0, %m, %c64) : … -> tensor<128x64xf16>
          …
          tile.store(%t, %out, %i, %c0, %m, %c64)

    Dimensions of one element that are no row or column are dropped; rows come first, whatever the order in memory.
    Where heads and their queries are rows, one dimension of a tile is both (`dims = [[[1, 4], [2, 16]], 3]` of a load).
    Rows are padded to `rows`, columns to 16. Padding never reaches a result: what reduces over it takes the neutral
    element in its place, stores leave it out. Where no loop is left, since one tile is all there is, the function's
    body becomes a kernel of one block, if it suits a tile; else what stands between its matmuls, without what stands
    around them. So does what merges parts of a single tile's keys. Loops without a matmul (parts of the keys are
    merged) become kernels whose threads have an element of the tile each::

        scf.forall (%i) = (0) to (%n) step (128) … { %x = scf.for %p … { … } ; … parallel_insert_slice … }
    becomes
        gpu.launch_func @kernels::@attention_1 blocks in (%blocks · ⌈128 · 64 / 64⌉, 1, 1) …
      and in gpu.module @kernels
        gpu.func @attention_1(…) kernel attributes {tile.threads = 64} {
          %element = (%b mod 128) · 64 + thread
          scf.if inside { %x = scf.for %p … { … memref.load … } ; … memref.store … }
    """

    rows: int = option("rows of tiles are padded to a multiple of this", 64)
    any_strides: bool = option("take arrays of any strides, not of dense rows alone", False)

    def run(self, op: ir.Operation) -> None:
        for function in functions_of(op):
            ways: list[Way] = [beside_loops, apart, self._suiting, merges]
            if not _loops(function) and is_one_tile(function):
                ways = [everything, between_matmuls, functools.partial(between_matmuls, sums=False), *ways]
            tried: list[list[list[int]]] = []
            for way in ways:
                parts = _numbers(way(function), function)
                if not parts or parts in tried:
                    continue
                tried.append(parts)
                try:
                    self._outlined_copy(function, parts)
                except PassError as reason:
                    remark(function, f"no tile for one block: {reason.message}")
                    continue
                function.erase()
                break
            else:
                self._outline(function, _loops(function))

    def _outline(self, function: ir.Operation, foralls: list[ir.Operation]) -> None:
        name = ir.StringAttr(function.attributes["sym_name"]).value
        for number, forall in enumerate(foralls):
            lift_views(forall)
            _Outliner(forall, kernel_module(function), f"{name}_{number}", self).run()
        erase_dead(function.regions[0].blocks[0])  # tensors that only the loops used

    def _outlined_copy(self, function: ir.Operation, parts: list[list[int]], alone: bool = False) -> ir.Operation:
        """A copy of a function, before it, in which these parts, numbers of ops, are loops of their own, and all loops
        are kernels; if they are to be `alone`, these loops, whose kernels are taken away again. Raises PassError where
        they do not suit kernels; nothing is left of it then."""
        with ir.InsertionPoint(function):
            copy = function.clone().operation
        ops = ops_of(copy.regions[0].blocks[0])
        try:
            with _taken_back(copy, always=alone):
                foralls = [forall for part in parts for forall in one_block([ops[number] for number in part])]
                if not foralls:
                    raise PassError("its results have no sizes that are known", function)
                check_order(copy)
                self._outline(copy, foralls if alone else _loops(copy))
        except PassError:
            copy.erase()
            raise
        return copy

    def _suiting(self, function: ir.Operation) -> list[list[ir.Operation]]:
        """Of what `apart` finds, what kernels can be made of, if there is other, too."""
        found = apart(function)
        parts = zip(found, _numbers(found, function), strict=True)
        return [ops for ops, numbers in parts if len(found) > 1 and self._suits(function, numbers)]

    def _suits(self, function: ir.Operation, part: list[int]) -> bool:
        try:
            self._outlined_copy(function, [part], alone=True).erase()
        except PassError:
            return False
        return True


def _numbers(parts: list[list[ir.Operation]], function: ir.Operation) -> list[list[int]]:
    """Which ops of a function they are."""
    place = {op: number for number, op in enumerate(ops_of(function.regions[0].blocks[0]))}
    return [[place[op] for op in part] for part in parts]


def apart(function: ir.Operation) -> list[list[ir.Operation]]:
    """What `beside_loops` finds, each matmul by itself."""
    return beside_loops(function, together=False)


@contextlib.contextmanager
def _taken_back(function: ir.Operation, always: bool = False) -> Iterator[None]:
    """Takes away the kernels of a function that are made within, where one cannot be made, or its tiles have no layouts
    (``assign-layouts``); or `always`."""
    module, undo = kernel_module(function), True
    before = set(ops_of(module.regions[0].blocks[0]))

    def made() -> list[ir.Operation]:
        return [op for op in ops_of(module.regions[0].blocks[0]) if op not in before]

    try:
        yield
        for kernel in made():
            if kernel.name == "gpu.func" and BLOCK_THREADS not in kernel.attributes:
                Axes(kernel)
        undo = always
    finally:
        if undo:
            for op in made():
                op.erase()
            if not before:
                module.erase()


def _loops(function: ir.Operation) -> list[ir.Operation]:
    """Its loops over tiles."""
    return [o for o in ops_of(function.regions[0].blocks[0]) if o.name == "scf.forall"]


def _read_numbers(forall: ir.Operation) -> None:
    """Lets ops of the loop that read a filled tensor without dimensions read the number."""
    for generic in ops_in(forall, "linalg.generic"):
        for number, value in enumerate(list(generic.operands)[: -len(generic.results)]):
            if not isinstance(value.type, ir.RankedTensorType) or value.type.rank:
                continue
            if (splat := filled_with(value)) is not None and not is_inside(defining_op(value), forall):
                with ir.InsertionPoint(generic), generic.location:
                    generic.operands[number] = arith.ConstantOp(value.type.element_type, splat).result


class _Outliner:
    def __init__(self, forall: ir.Operation, module: ir.Operation, name: str, options: OutlineKernels):
        self.forall, self.module, self.name = forall, module, name
        own_constants(forall)  # tiles of equal sizes may be rows here and columns there
        _read_numbers(forall)
        own_rows(forall)
        pointwise = is_pointwise(forall)
        self.axes = axes_of(forall, roles=not pointwise)
        self.rows = options.rows
        self.constants: list[ir.Value] = []
        self.last_stride = STRIDED if options.any_strides else 1
        self.body = forall.regions[0].blocks[0]
        count = len(forall.results)
        self.outputs = list(self.body.arguments)[len(self.body.arguments) - count :]
        self.inductions = list(self.body.arguments)[: len(self.body.arguments) - count]
        self.stores = ops_of(ops_of(self.body)[-1].regions[0].blocks[0])
        self.tile_body = TileBody(self.axes, self.rows)
        if pointwise:
            self.tile_body = PointBody(self.axes, self.rows, elements=output_axes(self.axes, self.stores))

    def run(self) -> None:
        self._sink_loaded_scalars()
        lower, upper, step = forall_bounds(self.forall)
        self._check_coverage(lower, upper, step)
        tensors, scalars = self._captured()
        host = ir.InsertionPoint(self.forall)
        with host, self.forall.location:
            kinds = [memory_type(v.type, self.last_stride) for v in (*tensors, *self.outputs)]
            self._kernel(kinds, tensors, scalars, lower, upper, step)
            self._launch(tensors, scalars, lower, upper, step)
        remark(self.forall, f"outlined as kernel {self.name}")
        self.forall.erase()

    # What the loop is.

    def _check_coverage(self, lower: list, upper: list, step: list) -> None:
        """Every element of the outputs is written by a block: they start as memory that holds nothing."""
        shared = list(self.forall.operands)[len(self.forall.operands) - len(self.outputs) :]
        for store in self.stores:
            target = store.operands[1]
            init = shared[self.outputs.index(target)]
            offsets, sizes = slice_offsets(store), slice_sizes(store)
            for d, extent in enumerate(_sizes(init)):
                covered = offsets[d] == 0 and is_product(sizes[d], extent)
                for loop, induction in enumerate(self.inductions):
                    if offsets[d] == induction:
                        covered = lower[loop] == 0 and is_product(upper[loop], extent)
                    elif is_iteration_number(offsets[d], induction, step[loop]) and isinstance(upper[loop], int):
                        covered = lower[loop] == 0 and is_product(-(-upper[loop] // step[loop]), extent)
                if not covered:
                    raise PassError("the tiles of a result do not cover all of it, which kernels rely on", store)
        if len(self.stores) != len(self.outputs):
            raise PassError("expects one parallel_insert_slice for each result of the loop", self.forall)

    def _captured(self) -> tuple[list[ir.Value], list[ir.Value]]:
        """Tensors in memory and scalars that are no constants which the body reads and that are older than the loop."""
        tensors: list[ir.Value] = []
        scalars: list[ir.Value] = []
        inside = ops_in(self.forall)
        own = set(inside)
        used = [v for op in inside for v in op.operands] + list(self.forall.operands)[: -len(self.outputs) or None]
        for value in used:
            op = defining_op(value)
            if (op in own and op is not None) or (is_constant(value) and not isinstance(value.type, ir.ShapedType)):
                continue
            if op is None and value.owner.owner.operation != self._function():
                continue
            if isinstance(value.type, ir.RankedTensorType):
                value = self._base(value, scalars)
                op = defining_op(value)
                if is_constant(value):
                    self.constants += [value] if value not in self.constants else []
                elif filled_with(value) is None and value not in tensors and (op is None or op.name != "tensor.empty"):
                    tensors.append(value)
            elif value not in scalars:
                scalars.append(value)
        return tensors, scalars

    def _base(self, value: ir.Value, scalars: list[ir.Value]) -> ir.Value:
        """The tensor that `value` is a slice of: the kernel takes it whole, and where the slice begins."""
        op = defining_op(value)
        while op is not None and op.name in ("tensor.extract_slice", *RESHAPES):
            for offset in slice_offsets(op) if op.name == "tensor.extract_slice" else ():
                known = isinstance(offset, int) or build.constant_value(offset) is not None
                if not known and offset not in scalars:
                    scalars.append(offset)
            if op.name in RESHAPES and not only_units(op):
                break  # another view of the same memory, which the host makes
            value = op.operands[0]
            op = defining_op(value)
        return value

    def _sink_loaded_scalars(self) -> None:
        """Scalars that come from elements of tensors are read by the kernel: the host has no such memory at hand."""
        known: Values = {}
        first = ir.InsertionPoint(ops_of(self.body)[0])  # behind what was put there before: one may need another
        for op in ops_in(self.forall):
            if op.block.owner.operation == self.forall and op.name == "scf.forall.in_parallel":
                continue
            for number, value in enumerate(op.operands):
                if not isinstance(value.type, ir.ShapedType) and self._is_loaded(value):
                    with first:
                        op.operands[number] = copy_needed(value, known, _makes_number)

    def _is_loaded(self, value: ir.Value) -> bool:
        op = defining_op(value)
        if op is None or is_inside(op, self.forall):
            return False
        return op.name == "tensor.extract" or any(
            self._is_loaded(v) for v in op.operands if not isinstance(v.type, ir.ShapedType)
        )

    def _function(self) -> ir.Operation:
        parent = self.forall.parent
        while parent.operation.name != "func.func":
            parent = parent.operation.parent
        return parent.operation

    # The kernel.

    def _kernel(self, kinds, tensors, scalars, lower, upper, step) -> None:
        copies = [i for i, v in enumerate(tensors) if (op := defining_op(v)) is not None and COPY in op.attributes]
        attributes = {ALIGNED: ir.DenseI64ArrayAttr.get(copies)} if copies else {}
        block = new_kernel(self.module, self.name, [*kinds, *(s.type for s in scalars)], attributes)
        kernel = block.owner.operation
        with ir.InsertionPoint(block):
            body = self.tile_body
            places = list(block.arguments)
            for value, memory in zip((*tensors, *self.outputs), places, strict=False):
                body.memories[value] = Memory.whole(memory)
            body.values.update(zip(scalars, places[len(kinds) :], strict=True))
            for number, value in enumerate(self.constants):
                memory = constant_memory(value, self.module, f"{self.name}_constant_{number}")
                body.memories[value] = Memory.whole(memory)
            ops = ops_of(self.body)[:-1]
            number = gpu.BlockIdOp(ir.Attribute.parse("#gpu<dim x>")).result
            if isinstance(body, PointBody):
                kernel.attributes[BLOCK_THREADS] = build.i64_attribute(THREADS)
                self._grid(body, body.tile_of_block(number), lower, upper, step)
                body.ops([op for op in ops if _is_scalar(op)])  # sizes of tiles among them
                with only_if(body.is_inside()):
                    self._tiles(body, [op for op in ops if not _is_scalar(op)])
            else:
                self._grid(body, number, lower, upper, step)
                self._tiles(body, ops)
            ir.Operation.create("gpu.return")

    def _tiles(self, body: TileBody, ops: list[ir.Operation]) -> None:
        body.ops(ops)
        for store in self.stores:
            body.store(store)

    def _grid(self, body: TileBody, block: ir.Value, lower, upper, step) -> None:
        """The induction variables from the number of the block; the last one runs fastest, that of tiles backwards.

        Blocks start in the order of their numbers: under a causal mask the last rows, which have most to do, go first.
        """
        tiled = [d for d, size in enumerate(step) if not isinstance(size, int) or size > 1]
        last = tiled[-1] if tiled else len(self.inductions) - 1
        for d in reversed(range(len(self.inductions))):
            number = block
            if d or d == last:
                count = _block_count(*(body.index(v) for v in (lower[d], upper[d], step[d])))
                number = _arith("remui", block, count) if d else block
                block = _arith("divui", block, count) if d else block
                if d == last:
                    number = _arith("subi", _arith("subi", count, build.index(1)), number)
            place = _arith("addi", _arith("muli", number, body.index(step[d])), body.index(lower[d]))
            body.values[self.inductions[d]] = place

    # The host.

    def _launch(self, tensors, scalars, lower, upper, step) -> None:
        shared = list(self.forall.operands)[len(self.forall.operands) - len(self.outputs) :]
        buffers = [read_buffer(value, self.last_stride) for value in tensors]
        owned: list[tuple[ir.Value, ir.Operation | None]] = []
        for init, kind in zip(shared, (v.type for v in self.outputs), strict=True):
            reshape = only_collapse(self.forall.results[len(owned)])
            sizes = [product(of) for of in _sizes(init)]
            new = allocated(sizes, kind, reshape)
            owned.append((new, reshape))
            if reshape is not None:
                new = expanded(new, kind, sizes, reshape)
            buffers.append(strided(new, self.last_stride))
        values = [[v if isinstance(v, ir.Value) else build.index(v) for v in part] for part in (lower, upper, step)]
        blocks = build.index(self.tile_body.blocks if isinstance(self.tile_body, PointBody) else 1)
        for bounds in zip(*values, strict=True):
            blocks = _arith("muli", blocks, _block_count(*bounds))
        launch(self.module, self.name, blocks, [*buffers, *scalars])
        for result, (buffer, reshape) in zip(self.forall.results, owned, strict=True):
            old = result if reshape is None else reshape.results[0]
            old.replace_all_uses_with(to_tensor(buffer, old.type))
            if reshape is not None:
                reshape.erase()


def _makes_number(op: ir.Operation) -> bool:
    return not isinstance(op.results[0].type, ir.ShapedType)


def _is_scalar(op: ir.Operation) -> bool:
    return not len(op.regions) and not any(isinstance(v.type, ir.ShapedType) for v in op.results)


def _arith(name: str, a: ir.Value, b: ir.Value) -> ir.Value:
    return ir.Operation.create(f"arith.{name}", [a.type], [a, b]).result


def _block_count(lower: ir.Value, upper: ir.Value, step: ir.Value) -> ir.Value:
    """⌈(upper − lower) / step⌉"""
    rounded = _arith("subi", _arith("addi", _arith("subi", upper, lower), step), build.index(1))
    return _arith("divui", rounded, step)


def _sizes(value: ir.Value) -> list[list[Size]]:
    """Of each dimension of a tensor that is made outside of the loop, numbers whose product is its size."""
    op = defining_op(value)
    while op is not None and op.name.startswith("linalg.") and op.results:
        value = op.operands[len(op.operands) - len(op.results) + list(op.results).index(value)]
        op = defining_op(value)
    if op is not None and op.name == "tensor.collapse_shape":  # as of a matmul's loops that became one
        sizes = _sizes(op.operands[0])
        return [[size for d in group for size in sizes[d]] for group in reassociation(op)]
    dynamic = iter(op.operands) if op is not None and op.name == "tensor.empty" else None
    if dynamic is None and not value.type.has_static_shape:
        raise PassError("a result with dynamic sizes must start from a tensor.empty, maybe filled", op)
    return [[size] for size in (value.type.shape if dynamic is None else mixed(dynamic, value.type.shape))]

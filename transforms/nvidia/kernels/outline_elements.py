"""The pass ``outline-elements``."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ....dialects import build
from ....dialects.mlir import arith, gpu, ir, memref
from ....dialects.tiling.structured import dim_position
from ...donated import donated_arguments, tell_of_vain_ones
from ...extents import size_value
from ...graph import ancestor_in
from ...online.before_loops import SMALL
from ...passes import Pass, PassError, option, warn, warn_slow
from ...rewriting import (
    defining_op,
    erase_dead,
    functions_of,
    is_inside,
    make_for,
    only_if,
    ops_in,
    ops_of,
    through,
)
from ...slices import slice_offsets
from ...splats import filled_with, is_constant_tensor, repeated_number
from ..architecture import WARP
from ..axes import DYNAMIC, is_first
from ..constants import constant_memory
from ..launching import (
    allocate,
    block_number,
    ceil_div,
    kernel_module,
    launch,
    memory_type,
    new_kernel,
    read_buffer,
    strided,
    thread_number,
    thread_of_block,
    to_tensor,
)
from ..marks import BLOCK_THREADS
from .column_lanes import column_lanes
from .donated_writes import PUT
from .element_body import ElementBody
from .element_pieces import OPEN, element_pieces
from .producer_body import thread_count
from .row_lanes import row_lanes
from .same_rows import SameRows

SLOW_STEPS = 1 << 24  # of a region, beyond which a user is told that a thread for each element is slow
MOST_TOGETHER = 8  # sums of a launch: what they add up is kept until then


@dataclass(frozen=True)
class OutlineElements(Pass):
    """Makes a kernel of every linalg.generic that is left outside of loops over tiles, with a thread for each element::

        %r = linalg.generic {iterator_types = ["parallel", "reduction"]} ins(%a) outs(%init) -> tensor<?xi32> { … }
      becomes
        %out = memref.alloc(%n) : memref<?xi32>
        gpu.launch_func @f_kernels::@f_elements_0 blocks in (⌈%n / 256⌉, 1, 1) … args(%a, %out, %n, %k)
      and in gpu.module @f_kernels
        gpu.func @f_elements_0(…) kernel {
          %i = 256·block + thread
          scf.if %i < %n {
            %x = scf.for %j = 0 to %k iter_args(%x0 = %init) { … %a[%i, %j] … }
            memref.store %x, %out[%i]
          }

    For what stands around attention and is small: where sequences start, a bias made of a table, a sum. A matmul works
    too, and slowly, which is told.

    Sums over rows of 64 bytes or more, as of a norm of queries, have several threads a row (`row_lanes.py`), here 4::

          %i, %lane = %number / 4, %number mod 4
          %part = scf.if %i < %n {
            %v = vector.load %a[%i, 8·%lane] : vector<8xf16>
            %w = vector.load %a[%i, 8·%lane + 32] : vector<8xf16>
            0.0 + %v[0] + %v[1] … + %w[7]
          } else { 0.0 }
          %x = gpu.subgroup_reduce add %part cluster(size = 4)
          scf.if %i < %n and %lane == 0 { memref.store %init + %x, %out[%i] }

    So have running sums along rows (`scan_lanes.py`), and sums over columns, of which a block has some
    (`column_lanes.py`). Of more elements than there are threads on a GPU each has several (`element_pieces.py`).
    Constants that are returned are copied.

    Sums that stand together, as of queries and of keys, are one launch: the first blocks are of the first one. So is
    what ``donated-writes`` puts into arguments, as into caches of keys and of values: a thread for each element that
    is put writes that, to memory of the caller.

    And so are ops on whole tiles that go over the same rows, as what tiles are and how many are before each
    (`same_rows.py`): a block has a row of all of them, one op after the other::

        gpu.launch_func @f_kernels::@f_elements_0 blocks in (%rows, 1, 1) … args(%a, %states, %counts, %rows)
      and in gpu.module @f_kernels
        gpu.func @f_elements_0(…) kernel attributes {tile.threads = 256} {
          %row = gpu.block_id x
          … memref.store %x, %states[%row, %j]
          gpu.barrier
          … memref.load %states[%row, %k] …
    """

    any_strides: bool = option("take arrays of any strides, not of dense rows alone", False)
    threads: int = option("threads of a block", 256)

    def run(self, op: ir.Operation) -> None:
        for function in functions_of(op):
            _copy_constants(function)
            name = ir.StringAttr(function.attributes["sym_name"]).value
            left = [o for block in function.regions[0].blocks for o in ops_of(block) if _is_left(o)]
            donated = donated_arguments(function) if len(function.regions[0].blocks) else []
            parts = [_Part(o, self.any_strides) for o in left]
            for number, group in enumerate(_groups(parts)):
                _outline(group, kernel_module(function), f"{name}_elements_{number}", self.threads)
            if left:
                erase_dead(function.regions[0].blocks[0])
            if donated:
                tell_of_vain_ones(function, donated)


def _copy_constants(function: ir.Operation) -> None:
    """Results that are constants become copies of these: no memory of a GPU holds them until kernels have written
    it."""
    for end in ops_in(function, "func.return"):
        for number, value in enumerate(end.operands):
            if is_constant_tensor(value) and 0 not in value.type.shape:
                identity = build.projection(value.type.rank, range(value.type.rank))
                with ir.InsertionPoint(end), end.location:
                    empty = build.empty(value.type.shape, value.type.element_type)
                    iterators = [build.PARALLEL] * value.type.rank
                    (copy,) = build.generic([value], [empty], [identity] * 2, iterators, lambda x, _: x)
                end.operands[number] = copy


def _is_left(op: ir.Operation) -> bool:
    if op.name != "linalg.generic" or not any(list(v.uses) for v in op.results):
        return False
    if len(op.results) == 1 and filled_with(op.results[0]) is not None:  # others see what it is filled with
        return any(use.owner.operation.name != "linalg.generic" for use in op.results[0].uses)
    return True


def _groups(parts: list[_Part]) -> list[list[_Part]]:
    """What becomes a kernel: an op; or sums over rows, or what is put into arguments, no result of which is read before
    the last of them; or ops that go over the same rows."""
    groups: list[list[_Part]] = []
    for part in parts:
        last = groups[-1] if groups else []
        has_room = len(last) < MOST_TOGETHER or part.put is not None
        is_one_more = has_room and all(_go_together(p, part) for p in last)
        if last and (is_one_more or _follows(part, last)):
            last.append(part)
        else:
            groups.append([part])
    return groups


def _follows(part: _Part, others: list[_Part]) -> bool:
    """Whether blocks that have the rows of others can go on with that one."""
    ops = [p.op for p in (*others, part)]
    is_read = all(_is_read_behind(p.op, part.op, besides=ops) for p in others)
    return is_read and not any(p.put for p in (*others, part)) and SameRows.of(ops) is not None


def _go_together(part: _Part, other: _Part) -> bool:
    if part.put is not None and other.put is not None:
        is_apart = part.put.results[0] != other.put.operands[2]  # not one after the other into the same argument
        return is_apart and _is_read_behind(part.put, other.op)
    is_sum = part.lanes is not None and other.lanes is not None and part.put is other.put is None
    return is_sum and part.own_block == other.own_block and _is_read_behind(part.op, other.op)


def _is_read_behind(op: ir.Operation, other: ir.Operation, besides: Collection[ir.Operation] = ()) -> bool:
    users = [ancestor_in(use.owner, op.block) for result in op.results for use in result.uses]
    behind = (user in besides or (user is not None and other.is_before_in_block(user)) for user in users)
    return op.block == other.block and all(behind)


def _outline(parts: list[_Part], module: ir.Operation, name: str, threads: int) -> None:
    """One kernel of some ops, and its launch where the last of them stands."""
    last, rows = parts[-1].op, SameRows.of([part.op for part in parts]) if len(parts) > 1 else None
    own = parts[0].own_block if rows is None else rows.threads
    threads = own or threads
    with last.location, ir.InsertionPoint(last):
        for part in parts:
            part.prepare([] if rows is None else parts[0].sizes[: rows.rank])
        made = {} if rows is None else {v: m for p in parts for v, m in zip(p.op.results, p.memory, strict=True)}
        tensors = [v for v in dict.fromkeys(v for part in parts for v in part.tensors) if v not in made]
        scalars = list(dict.fromkeys(v for part in parts for v in part.scalars))
        memory = [v for part in parts for v in part.memory]
        dense = {v for part in parts for v in part.read_by_pieces()}
        buffers = [read_buffer(v, 1) if v in dense else read_buffer(v) for v in tensors]
        written = [v for part in parts for v in part.written()]
        arguments = [*buffers, *written, *scalars]
        block = new_kernel(module, name, [v.type for v in arguments])
        places = dict(zip([*tensors, *memory, *scalars], block.arguments, strict=True))
        places |= {v: places[m] for v, m in made.items()}
        with ir.InsertionPoint(block):
            _give(parts, places, module, name)
            if own is not None:
                block.owner.operation.attributes[BLOCK_THREADS] = build.i64_attribute(own)
            if rows is None:
                _emit(parts, threads)
            else:
                _emit_rows(parts, rows)
            ir.Operation.create("gpu.return")
        blocks = build.index(0)
        for part in parts:
            blocks = arith.addi(blocks, ceil_div(part.threads(build.as_index), threads))
        if rows is not None:
            blocks = thread_count(parts[0].sizes[: rows.rank], 1)
        launch(module, name, blocks, arguments)
        for part in parts:
            if part.put is not None:
                part.put.results[0].replace_all_uses_with(part.put.operands[2])
                part.put.erase()
            else:
                for result, written_to in zip(part.op.results, part.memory, strict=True):
                    result.replace_all_uses_with(to_tensor(written_to, result.type))
    for part in reversed(parts):
        part.op.erase()


def _give(parts: list[_Part], places: dict[ir.Value, ir.Value], module: ir.Operation, name: str) -> None:
    """Tells what computes the `parts` which values of the kernel those of the host are, `places` and constants."""
    for i, value in enumerate(dict.fromkeys(v for part in parts for v in part.constants)):
        if (same := repeated_number(value)) is not None:
            places[value] = arith.ConstantOp(value.type.element_type, same).result
        else:
            places[value] = constant_memory(value, module, f"{name}_constant_{i}")
    for part in parts:
        part.values, part.outputs = places, [places[v] for v in part.memory]


def _emit(parts: list[_Part], threads: int) -> None:
    """Of one after the other, each in blocks of its own."""
    first = block_number()
    for part in parts:
        with part.op.location:
            # Numbers are negative in blocks of those before.
            number, total = thread_number(threads, first), part.threads()
            part.emit(number, arith.cmpi(arith.CmpIPredicate.ult, number, total))
            if part is not parts[-1]:
                first = arith.subi(first, ceil_div(total, threads))


def _emit_rows(parts: list[_Part], rows: SameRows) -> None:
    """Of one after the other, all in the block that has the row."""
    _, at = build.digits(block_number(), [parts[0].of_kernel(s) for s in parts[0].sizes[: rows.rank]])
    thread = thread_of_block()
    for part in parts:
        if part is not parts[0]:
            gpu.BarrierOp()
        with part.op.location:
            part.lanes = rows.lanes(part.op)
            part.rows = dict(enumerate(at))
            total = part.threads()
            _, block = make_for([build.index(0), total, build.index(rows.threads)])  # all threads, to reductions
            with ir.InsertionPoint(block):
                number = arith.addi(block.arguments[0], thread)
                part.emit(number, arith.cmpi(arith.CmpIPredicate.ult, number, total))
                ir.Operation.create("scf.yield", [], [])


class _Part(ElementBody):
    """An op, on the host: what the kernel is given. `put`: what puts its results into an argument, which the kernel
    does in that memory."""

    def __init__(self, op: ir.Operation, any_strides: bool):
        super().__init__(op, row_lanes(op, any_strides) or column_lanes(op, any_strides))
        users = [use.owner.operation for result in op.results for use in result.uses]
        self.put = next((user for user in users if user.name == PUT), None)
        if self.put is not None and (set(users) != {self.put} or list(op.results) != list(self.put.operands)[:2]):
            raise PassError("elements that are put into an argument, and their places, have one op to themselves", op)
        if self.put is None:
            self.pieces = element_pieces(op, any_strides)

    @property
    def own_block(self) -> int | None:
        """The threads of a block, where all of them share a sum; None: as many as others have."""
        return self.lanes.lanes if self.lanes is not None and self.lanes.lanes > WARP else None

    def prepare(self, rows: Sequence[ir.Value | int]) -> None:
        """`rows`: the sizes of the first loops, which are those of another op, too."""
        self.constants: dict[ir.Value, None] = {}  # tensors
        self.sizes = [*rows, *(self._size(d) for d in range(len(rows), len(self.kinds)))]
        steps = math.prod(s if isinstance(s, int) else OPEN for s in self.sizes)
        if steps > SLOW_STEPS and self.lanes is self.pieces is None and SMALL not in self.op.attributes:
            if_open = f", if open sizes are {OPEN}," if any(isinstance(s, ir.Value) for s in self.sizes) else ""
            tell = warn_slow if self.reduced else warn
            tell(self.op, f"{steps} steps{if_open} outside of attention run with a thread for each element: slow")
        if self.put is None:
            self.memory = [self._allocated(number) for number in range(len(self.op.results))]
        else:
            target = self.put.operands[2]
            kind = memory_type(target.type)
            self.memory = [ir.Operation.create("bufferization.to_buffer", [kind], [target]).result]
        captured = self._captured()
        self.tensors = [v for v in captured if isinstance(v.type, ir.RankedTensorType)]
        self.scalars = [v for v in captured if v not in self.tensors]
        self.scalars += [s for s in self.sizes if isinstance(s, ir.Value) and s not in self.scalars]

    def _size(self, loop: int) -> ir.Value | int:
        for value, m in zip(self.op.operands, self.maps, strict=True):
            for d, expression in enumerate(m.results):
                if dim_position(expression) == loop:
                    return _dim(value, d)
        raise PassError("a loop that no operand runs along has no size", self.op)

    def _allocated(self, number: int) -> ir.Value:
        kind, m = self.op.results[number].type, self.maps[self.first_init + number]
        sizes = [1 if is_first(e) else self.sizes[dim_position(e)] for e in m.results]
        found = [DYNAMIC if isinstance(s, ir.Value) else s for s in sizes]
        if found != kind.shape:
            raise PassError(f"a result of type {kind} has sizes {found}", self.op)
        return allocate(kind, sizes)

    def _captured(self) -> list[ir.Value]:
        """What the kernel reads: tensors whole where a slice is read, and scalars that are no constants."""
        found: dict[ir.Value, None] = {}
        for number, value in enumerate(self.op.operands):
            if number < self.first_init or self.is_read(number):
                self._capture(value, found)
        for value in [v for o in ops_in(self.op) for v in o.operands]:
            owner = value.owner
            outer = owner.owner if isinstance(owner, ir.Block) else owner
            if outer.operation != self.op and not is_inside(outer, self.op):
                self._capture(value, found)
        return list(found)

    def _finish(self, results: list[int], values: list[ir.Value], at: dict[int, ir.Value]) -> None:
        if self.put is None:
            super()._finish(results, values, at)
            return
        (value, number), (memory,) = values, self.outputs
        is_put = arith.cmpi(arith.CmpIPredicate.sge, number, build.constant(number.type, 0))
        with only_if(is_put):
            sizes = [memref.DimOp(memory, build.index(d)).result for d in range(1, memory.type.rank)]
            first, places = build.digits(arith.index_cast(ir.IndexType.get(), number), sizes)
            memref.store(value, memory, [first, *places])

    def _capture(self, value: ir.Value, found: dict[ir.Value, None]) -> None:
        if build.constant_value(value) is not None:
            return
        op = defining_op(value)
        while isinstance(value.type, ir.ShapedType) and op is not None and op.name == "tensor.extract_slice":
            for offset in slice_offsets(op):
                if isinstance(offset, ir.Value):
                    self._capture(offset, found)
            value = op.operands[0]
            op = defining_op(value)
        is_given = is_constant_tensor(value) or filled_with(value) is not None
        (self.constants if is_given else found)[value] = None

    def written(self) -> list[ir.Value]:
        """The memory of the results, as the kernel takes it."""
        if self.put is not None:
            return self.memory
        return [strided(v) if self.pieces is None else strided(v, 1) for v in self.memory]

    def read_by_pieces(self) -> set[ir.Value]:
        """Tensors whose rows have to be dense, and aligned as dense ones are."""
        by = self.pieces or self.lanes
        along = by.along if by is not None and by.width > 1 else ()
        return {through(self.op.operands[number], "tensor.extract_slice") for number in along}


def _dim(value: ir.Value, d: int) -> ir.Value | int:
    if value.type.shape[d] != DYNAMIC:
        return value.type.shape[d]
    if filled_with(value) is not None:
        return size_value(value, d)  # no one fills it for its size
    return ir.Operation.create("tensor.dim", [ir.IndexType.get()], [value, build.index(d)]).result

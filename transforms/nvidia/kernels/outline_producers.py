"""The pass ``outline-producers``."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ....dialects import build
from ....dialects.mlir import arith, ir
from ...extents import known_sizes
from ...graph import ancestor_in
from ...passes import Pass, option, remark
from ...reshapes import RESHAPES, VIEWS
from ...rewriting import (
    defining_op,
    erase_dead,
    erase_if_unused,
    functions_of,
    is_inside,
    ops_in,
    ops_of,
    terminator,
    through,
)
from ...splats import filled_with
from ..alignment import CHUNK
from ..architecture import MULTIPROCESSORS
from ..axes import DYNAMIC
from ..elements import byte_width
from ..launching import allocate, block_number, ceil_div, kernel_module, launch, strided, to_tensor, update_type
from .lanes import NotInLanes
from .one_block import is_of_tiles
from .producer_body import KernelArguments, ProducerBody, is_elementwise, sums_few, thread_count

COPIED = ("f16", "bf16", "f32", "i8", "i16", "i32", "i64", "f8E4M3FN", "f8E5M2", "i1")


@dataclass(frozen=True)
class OutlineProducers(Pass):
    """Makes one kernel of all that is computed, element by element, for loops over tiles to read::

        %h = tensor.concat dim(1) (generic { negf } %q[…, 32…]), %q[…, …32]
        %r = linalg.generic … ins(%q, %h, %cos, %sin) { q·cos + h·sin }         // a rotary embedding
        %b = linalg.generic … ins(%k, %bias) { addf }
        %o = scf.forall … { … tensor.extract_slice %r[…] … tensor.extract_slice %b[…] … }
      becomes
        %m, %n = memref.alloc() …
        gpu.launch_func @f_kernels::@f_producers_0 … args(%q, %cos, %sin, %m, %k, %bias, %n)
      and in gpu.module @f_kernels
        gpu.func @f_producers_0(…) kernel {
          %p = 256·block + thread
          scf.if %p < 4096·8 {
            %i, %j = %p / 8, %p mod 8                        // eight elements of row i: columns 8·j and on
            %x = vector.load %q[%i, 8·%j] : vector<8xf16>
            %y = scf.if %j < 4 { -%q[%i, 8·%j + 32] } else { %q[%i, 8·%j − 32] }
            …
            vector.store %z, %m[%i, 8·%j]
          }
          …                                                 // of %b, by the blocks that follow
        }

    A thread computes 16 bytes of a row, from its arguments to the result: through element-wise ops, reshapes, slices
    and tensors that are put together, whatever their order, and some elements twice. What depends on sums, or on other
    loops, reads their results. `results` does the same for what the function returns. What cannot be computed so is
    left to ``outline-elements``, an op a kernel.
    """

    any_strides: bool = option("take arrays of any strides, not of dense rows alone", False)
    threads: int = option("threads of a block", 256)
    multiprocessors: int = option(
        "as many blocks are made, at least, by fewer elements for each thread", MULTIPROCESSORS
    )
    results: bool = option("not of what loops read, but of what the function returns", False)

    def run(self, op: ir.Operation) -> None:
        for function in functions_of(op):
            block, number = function.regions[0].blocks[0], 0
            readers = [terminator(block)] if self.results else [o for o in ops_of(block) if o.name == "scf.forall"]
            for reader in readers:
                wanted = _returned(reader) if self.results else _producers(reader)
                if wanted:
                    with reader.location:
                        kernel = self._kernel(function, reader, number)
                        number += kernel.run(wanted)
            if number:
                erase_dead(block)

    def _kernel(self, function: ir.Operation, reader: ir.Operation, number: int) -> _Kernel:
        name = ir.StringAttr(function.attributes["sym_name"]).value
        name = f"{name}_results" if self.results else f"{name}_producers_{number}"
        few = self.multiprocessors * self.threads
        return _Kernel(reader, kernel_module(function), name, self.threads, self.any_strides, few=few)


def _producers(forall: ir.Operation) -> list[ir.Value]:
    """Tensors that a loop reads and that are computed before it, element by element."""
    found: dict[ir.Value, None] = {}
    for op in ops_in(forall):
        for value in op.operands:
            if isinstance(value.type, ir.RankedTensorType) and _is_computed(value, forall):
                found[_read_by_all(value, forall)] = None
    return list(found)


def _read_by_all(value: ir.Value, forall: ir.Operation) -> ir.Value:
    """What it is a view of, where others behind the loop read that, too."""
    base = through(value, *RESHAPES)
    if base == value or not _is_computed(base, forall):
        return value
    return base if any(_is_behind(user, forall) for user in _readers(base, value)) else value


def _readers(value: ir.Value, but: ir.Value) -> Iterator[ir.Operation]:
    """Ops that read a tensor, or a view of it, but for those that read a certain one."""
    for use in value.uses if value != but else ():
        if use.owner.name in RESHAPES:
            yield from _readers(use.owner.results[0], but)
        else:
            yield use.owner.operation


def _returned(end: ir.Operation) -> list[ir.Value]:
    """Tensors that a function returns and that are computed element by element, but for those that another op needs in
    memory."""
    found: dict[ir.Value, None] = {}
    for value in end.operands:
        if isinstance(value.type, ir.RankedTensorType) and (_is_computed(value, end) or _is_summed(value, end)):
            users = (use.owner.operation for use in through(value, *VIEWS).uses)
            alone = all(u == end or u.name in (*VIEWS, "tensor.concat") or is_elementwise(u) for u in users)
            if alone and not is_of_tiles(value, end.block):
                found[value] = None
    return list(found)


def _is_computed(value: ir.Value, reader: ir.Operation) -> bool:
    op = defining_op(value)
    if op is None or op.block != reader.block or is_inside(op, reader) or not _is_known(value.type):
        return False
    op = defining_op(through(value, *VIEWS))
    if op is None or op.block != reader.block:
        return False
    return op.name == "tensor.concat" or (is_elementwise(op) and filled_with(op.results[0]) is None)


def _is_summed(value: ir.Value, reader: ir.Operation) -> bool:
    op = defining_op(through(value, *VIEWS))
    return op is not None and op.block == reader.block and _is_known(value.type) and sums_few(op)


def _is_known(kind: ir.RankedTensorType) -> bool:
    return str(kind.element_type) in COPIED and kind.rank > 0 and kind.shape[-1] != DYNAMIC


class _Kernel(KernelArguments):
    """One for all producers of a loop."""

    def __init__(self, *of_all: Any, few: int):
        super().__init__(*of_all)
        self.few = few  # threads

    def run(self, wanted: list[ir.Value]) -> int:
        """Says how many kernels there are then: none where nothing can be computed so."""
        self.kernel = self.block.owner.operation
        done: list[tuple[ir.Value, ir.Value, ir.Value]] = []  # with its memory, and its number of threads
        with ir.InsertionPoint(self.block):
            first = block_number()
            end = ir.Operation.create("gpu.return")
        for value in wanted:
            with ir.InsertionPoint(self.reader), value.owner.operation.location:
                sizes = known_sizes(value)
                memory = allocate(value.type, sizes)
                target = strided(memory, 1)
            lanes = self._lanes(value, sizes)
            while lanes and (value.type.shape[-1] % lanes or not self._emit(value, target, sizes, lanes, first, end)):
                lanes //= 2
            if not lanes:
                for op in (defining_op(target), defining_op(memory)):
                    erase_if_unused(op)
                continue
            with ir.InsertionPoint(self.reader):
                threads = thread_count(sizes, lanes)
                done.append((value, memory, threads))
            with ir.InsertionPoint(end):
                inside = thread_count([self.place(s) if isinstance(s, ir.Value) else s for s in sizes], lanes)
                first = arith.subi(first, ceil_div(inside, self.threads))
        if not done:
            self.kernel.erase()
            return 0
        update_type(self.kernel)
        with ir.InsertionPoint(self.reader):
            blocks = build.index(0)
            for _, _, threads in done:
                blocks = arith.addi(blocks, ceil_div(threads, self.threads))
            launch(self.module, self.name, blocks, self.arguments)
            for value, memory, _ in done:
                when = "" if self.reader.name == "func.return" else ", before the loops,"
                remark(value.owner.operation, f"computed once{when} in kernel {self.name}")
                _read_from(value, to_tensor(memory, value.type), self.reader)
        return 1

    def _lanes(self, value: ir.Value, sizes: list[ir.Value | int]) -> int:
        """How many elements a thread computes: 16 bytes, or less where there are few."""
        lanes = max(1, CHUNK // max(2, byte_width(value.type.element_type)))
        while lanes > 2 and all(isinstance(s, int) for s in sizes) and math.prod(sizes) // lanes < self.few:
            lanes //= 2
        return lanes

    def _emit(self, value, target, sizes, lanes, first, end) -> bool:
        """What computes one tensor, so many elements a thread; False if that cannot be."""
        known, places = len(self.arguments), dict(self.places)
        with ir.InsertionPoint(end), value.owner.operation.location:
            blocks = (self.block, self.module.regions[0].blocks[0])  # the second one has constants in memory
            before = {op for block in blocks for op in ops_of(block)}
            try:
                ProducerBody(self, lanes).compute(value, target, sizes, first)
                return True
            except NotInLanes:
                for op in (o for block in blocks for o in reversed(ops_of(block)) if o not in before):
                    op.erase()
                self.places = places
                for number in reversed(range(known, len(self.arguments))):
                    self.block.erase_argument(number)
                del self.arguments[known:]
                return False


def _read_from(value: ir.Value, tensor: ir.Value, reader: ir.Operation) -> None:
    """The reader, and those behind it, read `tensor` in the place of a value, and views of it in that of its views."""
    for use in list(value.uses):
        user = use.owner.operation
        if _is_behind(user, reader):
            user.operands[use.operand_number] = tensor
        elif user.name in RESHAPES and user.block == reader.block:
            with user.location:
                view = user.clone().operation
            view.operands[0] = tensor
            _read_from(user.results[0], view.results[0], reader)
            erase_if_unused(view)


def _is_behind(op: ir.Operation, forall: ir.Operation) -> bool:
    """Whether an op is the loop, or stands in it or behind it."""
    op = ancestor_in(op, forall.block)
    return op == forall or forall.is_before_in_block(op)

"""The pass ``outline-rows``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ....dialects import build
from ....dialects.mlir import ir
from ...extents import size_value
from ...passes import Pass, option, remark
from ...rewriting import defining_op, erase_dead, erase_if_unused, functions_of, ops_of
from ..alignment import CHUNK
from ..architecture import MULTIPROCESSORS
from ..elements import byte_width
from ..launching import allocate, ceil_div, kernel_module, launch, strided, to_tensor, update_type
from ..marks import BLOCK_THREADS
from .lanes import NotInLanes
from .outline_producers import COPIED
from .producer_body import KernelArguments, thread_count
from .row_body import RowBody, Sharing
from .row_groups import COLUMN, RowGroup, row_groups


@dataclass(frozen=True)
class OutlineRows(Pass):
    """Makes one kernel of what is computed on the same rows, sums over them among it, such as a softmax or a norm::

        %s = linalg.generic { sum of x } ins(%x : tensor<4096x1024xf16>) outs(%zeros : tensor<4096xf32>)
        %y = linalg.generic … ins(%x, %s, %weight) { (x − s / 1024) · weight } -> tensor<4096x1024xf16>
      becomes
        %m = memref.alloc()
        gpu.launch_func @f_kernels::@f_rows_0 blocks in (4096, …) … args(%x, %weight, %m)
      and in gpu.module @f_kernels
        gpu.func @f_rows_0(…) kernel attributes {tile.threads = 64} {
          %v = vector.load %x[%row, 8·%thread]                  // elements of the row that the thread keeps,
          %w = vector.load %x[%row, 8·%thread + 512]            // all of which are loaded before they are added up
          %part = %v[0] + … + %w[7]
          %s = gpu.all_reduce add %part
          …
          vector.store %y0, %m[%row, 8·%thread]
        }

    Rows of up to 32 pieces are shared by threads of a warp (`gpu.subgroup_reduce`), longer ones by a block. Of those of
    more than 32 elements for each of 1024 threads none is kept: they are read in a loop for each sum, and the result.
    """

    any_strides: bool = option("take arrays of any strides, not of dense rows alone", False)
    multiprocessors: int = option("how many the GPU has: rows that do not fill them have more threads", MULTIPROCESSORS)

    def run(self, op: ir.Operation) -> None:
        for function in functions_of(op):
            name = ir.StringAttr(function.attributes["sym_name"]).value
            number = 0
            for block in function.regions[0].blocks:
                erase_dead(block)  # what no one reads is no reader
                for group in row_groups(block):
                    with group.first.location:
                        number += self._outlined(group, kernel_module(function), f"{name}_rows_{number}")

    def _outlined(self, group: RowGroup, module: ir.Operation, name: str) -> bool:
        """Makes a kernel of a group, and says whether that can be."""
        if any(str(v.type.element_type) not in COPIED for v in group.results):
            return False
        with ir.InsertionPoint(group.reader):
            sizes = _sizes(group.first.results[0])
            rows = [sizes[d] for d in group.row_dims]
            memory = {v: allocate(v.type, _sizes(v)) for v in group.results}
            targets = {v: strided(m, 1) for v, m in memory.items()}
        for sharing in self._ways(group, rows):
            kernel = KernelArguments(group.reader, module, name, sharing.block, self.any_strides)
            if _is_emitted(kernel, RowBody(kernel, group, sharing), rows, targets):
                break
        else:
            for op in (defining_op(v) for v in (*targets.values(), *memory.values())):
                erase_if_unused(op)
            return False
        with ir.InsertionPoint(group.reader):
            launch(module, name, ceil_div(thread_count(rows, 1), sharing.rows), kernel.arguments)
            tensors = {v: to_tensor(m, v.type) for v, m in memory.items()}
        for value in tensors:
            remark(value.owner.operation, f"computed with its sums, in kernel {name}")
        _replace(group, tensors)
        return True

    def _ways(self, group: RowGroup, rows: Sequence[ir.Value | int]) -> Iterator[Sharing]:
        """How threads can share rows: with the widest pieces first, of 16 bytes of what is written."""
        known = [s for s in rows if isinstance(s, int)]
        count = math.prod(known) if len(known) == len(rows) else None
        widths = [byte_width(v.type.element_type) for v in group.results if COLUMN in group.axes[v]]
        lanes = CHUNK // max(2, min(widths, default=2))
        while lanes:
            if math.gcd(lanes, *group.extents) == lanes:
                yield Sharing.choose(group.extents, count, lanes, self.multiprocessors)
            lanes //= 2


def _sizes(value: ir.Value) -> list[ir.Value | int]:
    """The sizes of what a member makes, without a use of it: it will be gone."""
    shape = enumerate(value.type.shape)
    return [size_value(value, d) if value.type.is_dynamic_dim(d) else size for d, size in shape]


def _is_emitted(
    kernel: KernelArguments, body: RowBody, rows: Sequence[ir.Value | int], targets: Mapping[ir.Value, ir.Value]
) -> bool:
    """Emits the kernel; leaves nothing of it where that cannot be, with pieces of so many elements."""
    blocks = (kernel.reader.block, kernel.module.regions[0].blocks[0])
    function = kernel.block.owner.operation
    before = {op for block in blocks for op in ops_of(block)} - {function}
    with ir.InsertionPoint(kernel.block):
        try:
            body.compute_rows(rows, targets)
        except NotInLanes:
            for op in (o for block in blocks for o in reversed(ops_of(block)) if o not in before):
                op.erase()
            return False
        ir.Operation.create("gpu.return")
    function.attributes[BLOCK_THREADS] = build.i64_attribute(kernel.threads)
    update_type(function)
    return True


def _replace(group: RowGroup, tensors: dict[ir.Value, ir.Value]) -> None:
    """What others read of a group is what its kernel has written, or views of that."""

    def read(value: ir.Value) -> ir.Value:
        if value not in tensors:
            view = defining_op(value)
            source = read(view.operands[0])
            with ir.InsertionPoint(group.reader):
                copy = view.clone().operation
            copy.operands[0] = source
            tensors[value] = copy.results[0]
        return tensors[value]

    made = {v: None for op in group.members for v in op.results} | dict.fromkeys(group.results)
    for value in made:
        for use in [u for u in value.uses if group.is_behind(u.owner.operation)]:
            use.owner.operation.operands[use.operand_number] = read(value)
    for op in reversed(group.members):
        op.erase()

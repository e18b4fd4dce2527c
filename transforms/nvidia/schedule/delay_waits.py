"""The pass ``delay-waits``."""

from __future__ import annotations

from dataclasses import dataclass

from ....dialects.mlir import ir
from ....dialects.tile import layout_of
from ...attention import is_matmul
from ...graph import dependents, operands_with_captures
from ...passes import Pass, remark
from ...rewriting import defining_op, for_body, ops_in, ops_of
from ..marks import ASYNC
from ..registers import consumer_registers, matmul_registers
from .asynchronous import awaited, beginnings, has_computed_right, is_carried, is_of_wgmma

SMALL_COLUMNS = 64  # of a sum
OTHER_REGISTERS = 16


@dataclass(frozen=True)
class DelayWaits(Pass):
    """In loops that sum up several matmuls, each one is waited for where its result is used first::

        scf.for … iter_args(%a0 = …, %b0 = …) {
          %s = matmul(%k, %q[%j])
          %p = exp2 of %s, …
          %a = matmul(%p, %g[%j]) + %a0
          %t = matmul(%v, %g[%j])
          %d = %p · (%t − …)
          %b = matmul(%d, %q[%j]) + %b0
          scf.yield %a, %b
      becomes
          %s = matmul(%k, %q[%j])          {tile.async}
          %t = matmul(%v, %g[%j])          {tile.async}
          %s1 = tile.wait_matmuls %s {pending = 1}
          %p = exp2 of %s1, …                              // while the second one runs
          %a = matmul(%p, %g[%j]) + %a0    {tile.async}
          %t1 = tile.wait_matmuls %t {pending = 1}
          %d = %p · (%t1 − …)                              // while the third one runs
          %b = matmul(%d, %q[%j]) + %b0    {tile.async}
          %a1 = tile.wait_matmuls %a {pending = 1}
          %b1 = tile.wait_matmuls %b {pending = 0}
          scf.yield %a1, %b1

    as in a derivative by keys and values (``fuse-siblings``). Matmuls that need no other one begin together. Results of
    two matmuls and the sums take most of a thread's registers: none are left for a matmul that runs an iteration late
    (``overlap-matmuls``, which leaves such loops alone).

    Where sums have 64 columns or fewer, the second one begins when the first one is there, so that another warpgroup's
    first one does not wait for it::

          %s = matmul(%k, %q[%j])          {tile.async}
          %s1 = tile.wait_matmuls %s {pending = 0}
          %t = matmul(%v, %g[%j])          {tile.async}
          %p = exp2 of %s1, …                              // while the second one runs

    and where registers hold them all that changes along columns is read while the first one runs.
    """

    def run(self, op: ir.Operation) -> None:
        for kernel in ops_in(op, "gpu.func"):
            for loop in ops_of(for_body(kernel)):
                matmuls = [o for o in ops_of(for_body(loop)) if is_matmul(o)] if loop.name == "scf.for" else []
                may_wait = all(is_of_wgmma(o) and not has_computed_right(o) for o in matmuls)
                sums = [o for o in matmuls if is_carried(o)]
                if may_wait and len(sums) > 1:
                    first = beginnings(for_body(loop))
                    _begin_together(first)
                    _read_columns_early(for_body(loop), matmuls)
                    small = all(o.results[0].type.shape[1] <= SMALL_COLUMNS for o in sums)
                    _wait_late(for_body(loop), first if small else [])
                    remark(loop, "each matmul of an iteration overlaps with what does not need it")


def _begin_together(first: list[ir.Operation]) -> None:
    """Moves what follows from one of these matmuls behind the last of them."""
    followers = set[ir.Operation]().union(*map(dependents, first)) - {*first}
    last = first[-1]
    for op in reversed(ops_of(last.block)[: ops_of(last.block).index(last)]):
        if op in followers:
            op.move_after(last)


def _read_columns_early(body: ir.Block, matmuls: list[ir.Operation]) -> None:
    """Moves what brings columns to registers behind the first op that does, where registers hold all of them."""
    reads = [o for o in ops_of(body) if o.name == "tile.convert_layout" and layout_of(o.results[0].type) == "column"]
    taken = matmul_registers(matmuls) + sum(read.results[0].type.shape[0] // 4 for read in reads) + OTHER_REGISTERS
    if taken > consumer_registers(-(-matmuls[0].results[0].type.shape[0] // 64)):
        return
    for read in reversed(reads[1:]):
        load = defining_op(read.operands[0])
        read.move_after(reads[0])
        if load is not None and load.block == body:
            load.move_after(reads[0])


def _wait_late(body: ir.Block, apart: list[ir.Operation]) -> None:
    """Of the matmuls that are to begin `apart` from one another each waits for the one before."""
    under_way: list[ir.Value] = []  # in the order in which they begin, and end
    pending: set[ir.Value] = set()  # those that were not waited for
    for op in ops_of(body):
        used = operands_with_captures(op)
        if op in apart[1:]:
            used += [one.results[0] for one in apart[: apart.index(op)]]
        for value in [value for value in under_way if value in pending and value in used]:
            pending.remove(value)
            with ir.InsertionPoint(op), op.location:
                there = awaited(value, len(under_way) - 1 - under_way.index(value))
            value.replace_all_uses_except(there, there.owner.operation)
        if is_matmul(op):
            op.attributes[ASYNC] = ir.UnitAttr.get()
            under_way.append(op.results[0])
            pending.add(op.results[0])

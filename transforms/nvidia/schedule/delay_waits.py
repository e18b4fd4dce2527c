"""The pass ``delay-waits``."""

from __future__ import annotations

from dataclasses import dataclass

from ....dialects.mlir import ir
from ...attention import is_matmul
from ...graph import dependents, operands_with_captures
from ...passes import Pass, remark
from ...rewriting import for_body, ops_in, ops_of
from ..marks import ASYNC
from .asynchronous import awaited, has_computed_right, is_carried, is_of_wgmma


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
    """

    def run(self, op: ir.Operation) -> None:
        for kernel in ops_in(op, "gpu.func"):
            for loop in ops_of(for_body(kernel)):
                matmuls = [o for o in ops_of(for_body(loop)) if is_matmul(o)] if loop.name == "scf.for" else []
                may_wait = all(is_of_wgmma(o) and not has_computed_right(o) for o in matmuls)
                if may_wait and sum(map(is_carried, matmuls)) > 1:
                    _begin_together(matmuls)
                    _wait_late(for_body(loop))
                    remark(loop, "each matmul of an iteration overlaps with what does not need it")


def _begin_together(matmuls: list[ir.Operation]) -> None:
    """Moves what follows from a matmul behind all those that need no other one."""
    followers = set[ir.Operation]().union(*(dependents(one) - {one} for one in matmuls))
    last = next(one for one in reversed(matmuls) if one not in followers)
    for op in reversed(ops_of(last.block)[: ops_of(last.block).index(last)]):
        if op in followers:
            op.move_after(last)


def _wait_late(body: ir.Block) -> None:
    under_way: list[ir.Value] = []  # in the order in which they begin, and end
    pending: set[ir.Value] = set()  # those that were not waited for
    for op in ops_of(body):
        used = operands_with_captures(op)
        for value in [value for value in under_way if value in pending and value in used]:
            pending.remove(value)
            with ir.InsertionPoint(op), op.location:
                there = awaited(value, len(under_way) - 1 - under_way.index(value))
            value.replace_all_uses_except(there, there.owner.operation)
        if is_matmul(op):
            op.attributes[ASYNC] = ir.UnitAttr.get()
            under_way.append(op.results[0])
            pending.add(op.results[0])

"""The pass ``delay-waits``."""

from __future__ import annotations

from dataclasses import dataclass

from ....dialects import build
from ....dialects.mlir import ir
from ....dialects.tile import WaitMatmulsOp
from ...attention import is_matmul
from ...graph import dependents, operands_with_captures
from ...passes import Pass, remark
from ...rewriting import defining_op, for_body, ops_in, ops_of
from ..marks import ASYNC


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
                if all(map(_may_wait, matmuls)) and sum(map(_is_carried, matmuls)) > 1:
                    _begin_together(matmuls)
                    _wait_late(for_body(loop))
                    remark(loop, "each matmul of an iteration overlaps with what does not need it")


def _may_wait(matmul: ir.Operation) -> bool:
    """Whether it is one of wgmma, and its right operand is not computed, for which there is one buffer."""
    right = defining_op(matmul.operands[1])
    is_computed = right is not None and right.name == "tile.convert_layout"
    return matmul.operands[0].type.element_type.width <= 16 and not is_computed


def _is_carried(matmul: ir.Operation) -> bool:
    """Whether the result of a matmul goes to the next iteration, and nowhere else."""
    users = [use.owner.operation for use in matmul.results[0].uses]
    return len(users) == 1 and users[0].name == "scf.yield"


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
                after = build.i64_attribute(len(under_way) - 1 - under_way.index(value))
                there = WaitMatmulsOp(value, after, result=value.type)
            for use in [use for use in value.uses if use.owner.operation != there.operation]:
                use.owner.operation.operands[use.operand_number] = there.result
        if is_matmul(op):
            op.attributes[ASYNC] = ir.UnitAttr.get()
            under_way.append(op.results[0])
            pending.add(op.results[0])

"""The pass ``reverse-keys``."""

from __future__ import annotations

from dataclasses import dataclass

from ....dialects import build
from ....dialects.mlir import arith, ir
from ....dialects.tiling.structured import iterator_types
from ...attention import is_matmul
from ...passes import Pass
from ...rewriting import for_body, ops_in, ops_of
from .bulk_copies import bulk_copies


@dataclass(frozen=True)
class ReverseKeys(Pass):
    """Loops over keys go from the last tile to the first::

        scf.for %j = %lower to %upper step %step {
          %k = tile.load(%arg1, %j, …)
          …
      becomes
        %last = %lower + (⌈(%upper − %lower) / %step⌉ − 1) · %step
        scf.for %i = %lower to %upper step %step {
          %j = %last + %lower − %i
          %k = tile.load(%arg1, %j, …)
          …

    Sums of exponentials are the same in any order. What differs is the first tile, whose maximum ``keep-maximum``
    keeps: under a causal mask the keys next to the query are the likeliest to matter, and with a bias that falls with
    their distance (ALiBi) they have the largest scores. For kernels whose loads the copy engine does, and loops of two
    matmuls in which scores depend on where a query is.
    """

    def run(self, op: ir.Operation) -> None:
        for kernel in ops_in(op, "gpu.func"):
            if bulk_copies(kernel):
                for loop in ops_in(kernel, "scf.for"):
                    matmuls = [o for o in ops_of(for_body(loop)) if is_matmul(o)]
                    if len(matmuls) == 2 and any(map(_is_of_rows, ops_in(loop, "linalg.index"))):
                        with loop.location:
                            _reverse(loop)


def _is_of_rows(index: ir.Operation) -> bool:
    """Whether it is the number of a row, in an op on tiles of scores."""
    return ir.IntegerAttr(index.attributes["dim"]).value == 0 and len(iterator_types(index.parent.operation)) == 2


def _reverse(loop: ir.Operation) -> None:
    lower, upper, step = list(loop.operands)[:3]
    with ir.InsertionPoint(loop):
        steps = arith.divui(arith.subi(arith.subi(upper, lower), build.index(1)), step)
        ends = arith.addi(arith.addi(lower, lower), arith.muli(steps, step))
    body = for_body(loop)
    induction = body.arguments[0]
    with ir.InsertionPoint.at_block_begin(body):
        reversed_ = arith.subi(ends, induction)
    induction.replace_all_uses_except(reversed_, [reversed_.owner.operation])

"""The pass ``divide-by-products``."""

from __future__ import annotations

from dataclasses import dataclass

from ....dialects import build
from ....dialects.mlir import ir
from ....dialects.tile import SHARES, DivideOp
from ...passes import Pass, remark
from ...rewriting import ops_in
from ..bounds import is_normal
from .bulk_copies import bulk_copies
from .special_unit import innermost_loop, load_of, quotients, special_ops

SHARE = 6  # of eight
LEAST_LOAD = 2  # of the special unit, where matmuls have 1


@dataclass(frozen=True)
class DivideByProducts(Pass):
    """Where the special unit takes much longer than matmuls, most quotients are computed by other units::

        scf.for … {
          %p = linalg.generic … ins(%s) { 1 / (1 + math.exp(−s)) }
      becomes
        scf.for … {
          %p = linalg.generic … ins(%s) { tile.divide(1, 1 + math.exp(−s)) {share = 6} }

    A sigmoid in place of a softmax takes that unit twice, for its exponential and its quotient: twice as long as the
    matmuls at head dimension 64. A reciprocal by products (``functions.reciprocal_by_products``) takes six instructions
    of units that wait. Of all eight, these would be what the others wait for. Measured on an H100 (docs/nvidia-log.md).

    For kernels whose loads the copy engine does, and divisors that are known to be no subnormal numbers, as 1 + exp(x).
    """

    def run(self, op: ir.Operation) -> None:
        for kernel in ops_in(op, "gpu.func"):
            loop = innermost_loop(kernel)
            if loop is None or not bulk_copies(kernel):
                continue
            if load_of(loop, len(special_ops(loop)) + len(quotients(loop))) < LEAST_LOAD:
                continue
            found = [o for o in quotients(kernel) if is_normal(o.operands[1])]
            for quotient in found:
                with ir.InsertionPoint(quotient), quotient.location:
                    new = DivideOp(*quotient.operands, build.i64_attribute(SHARE), result=quotient.results[0].type)
                quotient.results[0].replace_all_uses_with(new.result)
                quotient.erase()
            if found:
                remark(kernel, f"{SHARE} of {SHARES} quotients are computed by products")

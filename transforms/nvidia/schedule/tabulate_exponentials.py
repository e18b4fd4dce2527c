"""The pass ``tabulate-exponentials``."""

from __future__ import annotations

from dataclasses import dataclass

from ....dialects import build
from ....dialects.linalg_ext.softmax import NOT_POSITIVE
from ....dialects.mlir import ir
from ....dialects.tile import EXP2_WORDS, SHARES, Exp2Op, FillExp2Op, shared_buffer
from ...passes import Pass, remark
from ...rewriting import ops_in
from ..bounds import exponent_bound
from .bulk_copies import bulk_copies
from .special_unit import innermost_loop, load_of, matmuls, score_ops, special_ops

FEW_ROWS = 128  # of two warpgroups


@dataclass(frozen=True)
class TabulateExponentials(Pass):
    """Where the special unit takes longer than matmuls, some exponentials come from a table in shared memory::

        scf.for … {
          %p = linalg.generic … ins(%s, %m) { math.exp2(s − m) }
      becomes
        %t = memref.alloc() : memref<8192xi32, #gpu.address_space<workgroup>>
        tile.fill_exp2 %t
        scf.for … {
          %p = linalg.generic … ins(%s, %m) { tile.exp2(s − m, %t) {share = 2} }

    A score's exponential takes as long as its matmuls at head dimension 64, or, where scores go through a function of
    that unit too (a softcap), at 128. Below, other units have time for some of them; at 128 where two warpgroups
    compute. An exponential by the table takes three instructions more (``exponentials``), two where scores are known to
    be bounded, as behind a softcap; how many of eight was measured on an H200 (docs/nvidia-log.md).

    For kernels whose loads the copy engine does, exponentials of f32, in a softmax or of what is bounded, and matmuls
    of 16 bits, to which these are rounded. (Those of 8 bits have no registers for it.)
    """

    def run(self, op: ir.Operation) -> None:
        for kernel in ops_in(op, "gpu.func"):
            shares = table_shares(kernel)
            if shares is not None:
                _tabulate(kernel, shares)


@dataclass(frozen=True)
class Shares:
    """How many of eight exponentials come from a table: of what is bounded, and of what is not."""

    bounded: int
    other: int


def table_shares(kernel: ir.Operation) -> Shares | None:
    """None for kernels that are to have no table."""
    loop = innermost_loop(kernel)
    if loop is None or not bulk_copies(kernel) or any(_width(o) != 16 for o in matmuls(kernel)):
        return None
    special = special_ops(loop)
    exponentials = [o for o in special if is_exponential(o)]
    if not exponentials:
        return None
    rows = exponentials[0].block.owner.operation.results[0].type.shape[0]
    load = load_of(loop, len(special))
    if len(special) > len(exponentials):  # functions besides
        if load >= 2:
            return Shares(bounded=SHARES, other=6)
        if load >= 1 and rows <= FEW_ROWS:
            return Shares(bounded=SHARES, other=3)
    if load <= 1:
        return None
    return Shares(2, 2) if load < 2 else Shares(3, 3)


def is_exponential(op: ir.Operation) -> bool:
    """Whether a table can give what an op computes: f32, and not beyond its range, of which the table makes NaN. A
    sigmoid's, whose quotient is 0 where it is infinite, may be."""
    if op.name != "math.exp2" or not isinstance(op.results[0].type, ir.F32Type):
        return False
    return NOT_POSITIVE in op.attributes or exponent_bound(op) is not None


def _width(matmul: ir.Operation) -> int:
    """Of its elements, in bits."""
    return matmul.operands[0].type.element_type.width


def _tabulate(kernel: ir.Operation, shares: Shares) -> None:
    with ir.InsertionPoint.at_block_begin(kernel.regions[0].blocks[0]), kernel.location:
        table = shared_buffer([EXP2_WORDS], ir.IntegerType.get_signless(32))
        FillExp2Op(table)
    found = set()
    for op in score_ops(kernel):
        if is_exponential(op):
            bound = exponent_bound(op)
            share = shares.other if bound is None else shares.bounded
            found.add(share)
            with ir.InsertionPoint(op), op.location:
                numbers = build.i64_attribute(share), build.i64_attribute(-1 if bound is None else bound)
                new = Exp2Op(op.operands[0], table, *numbers, result=op.results[0].type)
            op.results[0].replace_all_uses_with(new.result)
            op.erase()
    remark(kernel, f"{' or '.join(map(str, sorted(found)))} of {SHARES} exponentials come from a table")

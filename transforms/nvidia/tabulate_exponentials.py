"""The pass ``tabulate-exponentials``."""

from __future__ import annotations

from dataclasses import dataclass

from ...dialects.mlir import ir
from ...dialects.tile import EXP2_WORDS, SHARES, Exp2Op, FillExp2Op, layout_of, shared_buffer
from ..attention import is_contraction
from ..passes import Pass, remark
from ..rewriting import ops_in, ops_of
from .bounds import exponent_bound
from .bulk_copies import bulk_copies
from .rings import i64

SPECIAL = ("math.exp", "math.tanh", "math.log", "math.rsqrt", "math.sqrt")  # and names that begin so
MULTIPLICATIONS_A_SPECIAL = 128  # that the tensor cores do meanwhile
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

    A multiprocessor's special unit gives 16 results in a clock, its tensor cores multiply 2048 pairs meanwhile: a
    score's exponential takes as long as its matmuls at head dimension 64, or, where scores go through a function of
    that unit too (a softcap), at 128. Below, other units have time for some of them; at 128 where two warpgroups
    compute. An exponential by the table takes three instructions more (``exponentials``), two where scores are known to
    be bounded, as behind a softcap; how many of eight was measured on an H200 (docs/nvidia-log.md).

    For kernels whose loads the copy engine does, exponentials of f32, and matmuls of 16 bits, to which these are
    rounded. (Those of 8 bits have no registers for it.)
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
    loop = next((o for o in ops_in(kernel, "scf.for") if _is_innermost(o)), None)
    if loop is None or not bulk_copies(kernel) or any(_width(o) != 16 for o in _matmuls(kernel)):
        return None
    special = [o for o in score_ops(loop) if o.name.startswith(SPECIAL)]
    exponentials = [o for o in special if is_exponential(o)]
    if not exponentials or not _matmuls(loop):
        return None
    rows, keys = exponentials[0].block.owner.operation.results[0].type.shape
    multiplications = sum(_inner(o) * o.results[0].type.shape[1] for o in _matmuls(loop)) / keys
    load = len(special) * MULTIPLICATIONS_A_SPECIAL / multiplications
    if len(special) > len(exponentials):  # functions besides
        if load >= 2:
            return Shares(bounded=SHARES, other=6)
        if load >= 1 and rows <= FEW_ROWS:
            return Shares(bounded=SHARES, other=3)
    if load <= 1:
        return None
    return Shares(2, 2) if load < 2 else Shares(3, 3)


def is_exponential(op: ir.Operation) -> bool:
    """Whether a table can give what an op computes: its numbers are f32."""
    return op.name == "math.exp2" and isinstance(op.results[0].type, ir.F32Type)


def _matmuls(op: ir.Operation) -> list[ir.Operation]:
    return [o for o in ops_in(op, "linalg.generic") if is_contraction(o)]


def _width(matmul: ir.Operation) -> int:
    """Of its elements, in bits."""
    return matmul.operands[0].type.element_type.width


def _inner(matmul: ir.Operation) -> int:
    return matmul.operands[0].type.shape[1]


def _is_innermost(loop: ir.Operation) -> bool:
    """Of the loops with matmuls."""
    return bool(_matmuls(loop)) and not any(_matmuls(inner) for inner in ops_in(loop, "scf.for") if inner != loop)


def score_ops(op: ir.Operation) -> list[ir.Operation]:
    """What is computed within `op` for the elements of tiles that are like those of scores."""
    generics = [o for o in ops_in(op, "linalg.generic") if not is_contraction(o)]
    tiles = [o for o in generics if layout_of(o.results[0].type) == "fragment"]
    return [inner for tile in tiles for inner in ops_of(tile.regions[0].blocks[0])]


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
                numbers = i64(share), i64(-1 if bound is None else bound)
                new = Exp2Op(op.operands[0], table, *numbers, result=op.results[0].type)
            op.results[0].replace_all_uses_with(new.result)
            op.erase()
    remark(kernel, f"{' or '.join(map(str, sorted(found)))} of {SHARES} exponentials come from a table")

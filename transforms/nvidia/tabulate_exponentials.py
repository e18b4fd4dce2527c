"""The pass ``tabulate-exponentials``."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...dialects.build import constant_value
from ...dialects.mlir import ir
from ...dialects.tile import EXP2_WORDS, SHARES, Exp2Op, FillExp2Op, layout_of, shared_buffer
from ..attention import is_contraction
from ..passes import Pass, remark
from ..rewriting import defining_op, ops_in, ops_of
from .bulk_copies import bulk_copies
from .masking import yielded
from .rings import i64

SPECIAL = ("math.exp", "math.tanh", "math.log", "math.rsqrt", "math.sqrt")  # and names that begin so
MULTIPLICATIONS_A_SPECIAL = 128  # that the tensor cores do meanwhile
FEW_ROWS = 128  # of two warpgroups
MOST_BOUND = 63  # of |x| but for its row's number: twice that is in the range of exponents


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
            share = _share(kernel) if bulk_copies(kernel) else 0
            if share:
                _tabulate(kernel, share)
                remark(kernel, f"{share} of {SHARES} exponentials come from a table")


def _share(kernel: ir.Operation) -> int:
    loop = next((o for o in ops_in(kernel, "scf.for") if _is_innermost(o)), None)
    if loop is None or any(_width(o) != 16 for o in _matmuls(kernel)):
        return 0
    special = [o for o in _of_scores(loop) if o.name.startswith(SPECIAL)]
    exponentials = [o for o in special if _is_exponential(o)]
    if not exponentials:
        return 0
    rows, keys = exponentials[0].block.owner.operation.results[0].type.shape
    multiplications = sum(_inner(o) * o.results[0].type.shape[1] for o in _matmuls(loop)) / keys
    load = len(special) * MULTIPLICATIONS_A_SPECIAL / multiplications
    if len(special) > len(exponentials):  # functions besides
        if load >= 2:
            return SHARES if all(_bound(o) is not None for o in exponentials) else 6
        if load >= 1 and rows <= FEW_ROWS:
            return 3
    return 0 if load <= 1 else 2 if load < 2 else 3


def _is_exponential(op: ir.Operation) -> bool:
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


def _of_scores(op: ir.Operation) -> list[ir.Operation]:
    """What is computed within `op` for the elements of tiles that are like those of scores."""
    generics = [o for o in ops_in(op, "linalg.generic") if not is_contraction(o)]
    tiles = [o for o in generics if layout_of(o.results[0].type) == "fragment"]
    return [inner for tile in tiles for inner in ops_of(tile.regions[0].blocks[0])]


def _bound(exponential: ir.Operation) -> int | None:
    """How large an exponential's operand is at most, but for the number of its row that is subtracted at last."""
    value, factor = _without_factor(exponential.operands[0])
    difference = defining_op(value)
    if difference is not None and difference.name == "arith.subf" and _is_of_row(difference.operands[1]):
        value = difference.operands[0]
    found = factor * _bound_of(value)
    return math.ceil(found) if found <= MOST_BOUND else None


def _is_of_row(value: ir.Value) -> bool:
    """Whether a value of a body is the same for all elements of a row."""
    op = defining_op(value)
    if op is not None:
        return op.name != "linalg.index" and all(map(_is_of_row, op.operands))
    tile = _tile_of(value)
    return tile is None or layout_of(tile.type) in ("row", None)


def _tile_of(argument: ir.Value) -> ir.Value | None:
    """The operand of a linalg.generic whose element an argument of its body is; None for another op's argument."""
    op = argument.owner.owner.operation
    return op.operands[argument.arg_number] if op.name == "linalg.generic" else None


def _bound_of(value: ir.Value) -> float:
    """Of what is computed for each element of a tile."""
    value, factor = _without_factor(value)
    op = defining_op(value)
    if op is not None:
        return factor if op.name == "math.tanh" else math.inf
    tile = _tile_of(value)
    made = defining_op(tile) if tile is not None else None
    if made is None or made.name != "linalg.generic" or is_contraction(made) or len(made.results) != 1:
        return math.inf
    return factor * _bound_of(yielded(made))


def _without_factor(value: ir.Value) -> tuple[ir.Value, float]:
    """A value less what it is multiplied by, if that is a constant; and its size."""
    op = defining_op(value)
    for i in (0, 1) if op is not None and op.name == "arith.mulf" else ():
        factor = constant_value(op.operands[1 - i])
        if factor is not None:
            return op.operands[i], abs(factor)
    return value, 1.0


def _tabulate(kernel: ir.Operation, share: int) -> None:
    with ir.InsertionPoint.at_block_begin(kernel.regions[0].blocks[0]), kernel.location:
        table = shared_buffer([EXP2_WORDS], ir.IntegerType.get_signless(32))
        FillExp2Op(table)
    for op in _of_scores(kernel):
        if _is_exponential(op):
            bound = _bound(op)
            with ir.InsertionPoint(op), op.location:
                numbers = i64(share), i64(-1 if bound is None else bound)
                new = Exp2Op(op.operands[0], table, *numbers, result=op.results[0].type)
            op.results[0].replace_all_uses_with(new.result)
            op.erase()

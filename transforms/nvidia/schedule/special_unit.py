"""What a kernel's loop asks of the special unit, beside its matmuls.

A multiprocessor's special unit gives 16 results in a clock, exponentials, reciprocals, tanh; its tensor cores multiply
2048 pairs meanwhile.
"""

from __future__ import annotations

from ....dialects.build import constant_value
from ....dialects.mlir import ir
from ....dialects.tile import layout_of
from ...attention import is_matmul
from ...rewriting import ops_in, ops_of

SPECIAL = ("math.exp", "math.tanh", "math.log", "math.rsqrt", "math.sqrt")  # and names that begin so
MULTIPLICATIONS_A_SPECIAL = 128  # that the tensor cores do meanwhile


def innermost_loop(kernel: ir.Operation) -> ir.Operation | None:
    """The innermost of the loops with matmuls; None where there is none."""
    return next((o for o in ops_in(kernel, "scf.for") if _is_innermost(o)), None)


def special_ops(loop: ir.Operation) -> list[ir.Operation]:
    """What is computed for each score by the special unit, but for quotients."""
    return [o for o in score_ops(loop) if o.name.startswith(SPECIAL)]


def load_of(loop: ir.Operation, special: int) -> float:
    """How much longer than the loop's matmuls the special unit takes, for so many results a score."""
    products = matmuls(loop)
    keys = products[0].results[0].type.shape[1]
    multiplications = sum(_inner(o) * o.results[0].type.shape[1] for o in products) / keys
    return special * MULTIPLICATIONS_A_SPECIAL / multiplications


def score_ops(op: ir.Operation) -> list[ir.Operation]:
    """What is computed within `op` for the elements of tiles that are like those of scores."""
    generics = [o for o in ops_in(op, "linalg.generic") if not is_matmul(o)]
    tiles = [o for o in generics if layout_of(o.results[0].type) == "fragment"]
    return [inner for tile in tiles for inner in ops_of(tile.regions[0].blocks[0])]


def quotients(op: ir.Operation) -> list[ir.Operation]:
    """Those of them that divide numbers of f32, not halves, by something that is no constant."""
    found = (o for o in score_ops(op) if o.name == "arith.divf" and isinstance(o.results[0].type, ir.F32Type))
    return [o for o in found if constant_value(o.operands[1]) is None]


def matmuls(op: ir.Operation) -> list[ir.Operation]:
    return [o for o in ops_in(op, "linalg.generic") if is_matmul(o)]


def _inner(matmul: ir.Operation) -> int:
    return matmul.operands[0].type.shape[1]


def _is_innermost(loop: ir.Operation) -> bool:
    return bool(matmuls(loop)) and not any(matmuls(inner) for inner in ops_in(loop, "scf.for") if inner != loop)

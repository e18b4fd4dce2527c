"""The pass ``balance-functions``."""

from __future__ import annotations

from dataclasses import dataclass

from ...dialects.build import constant_value
from ...dialects.mlir import ir
from ...dialects.tile import layout_of
from ...dialects.tiling.structured import iterator_types
from ..attention import is_contraction
from ..passes import Pass, option, remark
from ..rewriting import ops_in
from .axes import for_body, ops_of
from .scalars import EIGHTHS, POLYNOMIAL

# A multiprocessor's rates in a clock: products and sums of the tensor cores, functions, instructions of a thread.
MATMUL, FUNCTIONS, INSTRUCTIONS = 4096, 16, 128
FUNCTION_OPS = ("math.exp", "math.exp2", "math.tanh", "math.log", "math.log2", "math.rsqrt", "math.sqrt")
POWERS = ("math.exp", "math.exp2")
FREE = ("linalg.yield", "linalg.index", "arith.constant")
POLYNOMIAL_INSTRUCTIONS = 10  # more than the function takes
DEGREES = {"bf16": 3, "f16": 4}  # by the type of matmuls' operands: relative errors of 1.0e-4 and 2.8e-6


@dataclass(frozen=True)
class BalanceFunctions(Pass):
    """Some powers of 2 become polynomials, where the unit for functions would take longer than the tensor cores::

        %y = math.tanh %x
        …
        %p = math.exp2 %z
      becomes
        %y = math.tanh %x
        …
        %p = math.exp2 %z {tile.polynomial = array<i64: 4, 3>}      // in 4 of 8 columns, of degree 3

    A multiprocessor computes 16 functions in a clock, and 4096 products and sums of 16-bit operands: scores that go
    through two functions at head dimension 128, or one at 64, take as long as their matmuls, and cannot be hidden
    behind them. A polynomial takes a dozen instructions, of which there are 128 in a clock. Of every eight columns as
    many take that way as makes the longer of both times shortest. (Cody and Waite 1980; FlashAttention-4 does so.)
    Where 16-bit operands of a matmul are what becomes of the powers: the polynomial is more exact than those.
    """

    ratio: float = option("least time of functions, in that of matmuls, at which some become polynomials", 0.9)
    eighths: int = option("of how many columns in 8; -1: as said above", -1)

    def run(self, op: ir.Operation) -> None:
        for kernel in ops_in(op, "gpu.func"):
            for loop in ops_in(kernel, "scf.for"):
                self._balance(loop)

    def _balance(self, loop: ir.Operation) -> None:
        ops = ops_of(for_body(loop))
        matmuls = [o for o in ops if is_contraction(o)]
        kinds = {str(o.operands[0].type.element_type) for o in matmuls}
        if not matmuls or not kinds <= set(DEGREES):
            return
        rows, columns = matmuls[0].results[0].type.shape
        on_scores = [o for o in ops if _is_on_tile(o, (rows, columns))]
        bodies = [inner for o in on_scores for inner in _of_elements(o)]
        functions = [o for o in bodies if o.name in FUNCTION_OPS or _is_division(o)]
        powers = [o for o in bodies if o.name in POWERS]
        others = len([o for o in bodies if o.name not in FREE])
        scores = rows * columns
        matmul = sum(_work(o) for o in matmuls) / MATMUL
        busy = scores * len(functions) / FUNCTIONS
        count = self.eighths
        if count < 0:
            if not powers or busy < self.ratio * matmul:
                return

            def longest(k: int) -> float:
                moved = k / EIGHTHS * len(powers) * scores
                return max(busy - moved / FUNCTIONS, (scores * others + moved * POLYNOMIAL_INSTRUCTIONS) / INSTRUCTIONS)

            count = min(range(EIGHTHS + 1), key=longest)
        if count:
            (degree,) = {DEGREES[kind] for kind in kinds}
            for power in powers:
                power.attributes[POLYNOMIAL] = ir.DenseI64ArrayAttr.get([count, degree])
            remark(
                loop, f"powers are polynomials in {count} of {EIGHTHS} columns: the tensor cores would wait for them"
            )


def _is_on_tile(op: ir.Operation, shape: tuple[int, int]) -> bool:
    """Whether `op` computes something for each element of a tile of the scores' shape."""
    if op.name != "linalg.generic" or is_contraction(op) or len(iterator_types(op)) != 2:
        return False
    tiles = [v.type for v in (*op.operands, *op.results) if layout_of(v.type) == "fragment"]
    return any(tuple(t.shape) == shape for t in tiles)


def _of_elements(op: ir.Operation) -> list[ir.Operation]:
    """The ops of a body that are computed for each element, and not once for a row."""
    block = op.regions[0].blocks[0]
    reached = {a for a, v in zip(block.arguments, op.operands, strict=True) if layout_of(v.type) == "fragment"}
    found = []
    for inner in ops_of(block):
        if any(v in reached for v in inner.operands):
            found.append(inner)
            reached.update(inner.results)
    return found


def _is_division(op: ir.Operation) -> bool:
    return op.name == "arith.divf" and constant_value(op.operands[1]) is None


def _work(matmul: ir.Operation) -> int:
    """Products and sums."""
    left, result = matmul.operands[0].type, matmul.results[0].type
    return 2 * left.shape[0] * left.shape[1] * result.shape[1]

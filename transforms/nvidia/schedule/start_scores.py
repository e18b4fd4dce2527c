"""The pass ``start-scores``."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ....dialects import build
from ....dialects.build import constant_value
from ....dialects.mlir import arith, ir
from ....dialects.tile import ScaleOp, layout_of
from ....dialects.tiling.structured import indexing_maps
from ...attention import is_matmul
from ...copying import without_inputs
from ...passes import Pass, remark
from ...rewriting import defining_op, ops_in, ops_of, single_use
from ..masking import modifies_first, yielded
from ..registers import adds
from .bulk_copies import bulk_copies

MOST_ROWS = 128  # of two warpgroups
MOST_EXPONENT, LEAST_EXPONENT = 0, -8  # of what left operands are multiplied by


@dataclass(frozen=True)
class StartScores(Pass):
    """A bias that comes from shared memory is what the matmul of scores adds to, instead of zeros::

        %s = matmul(%q, %k) + 0
        %b = tile.convert_layout %h : … "shared" -> "fragment"
        %t = linalg.generic … ins(%s, %b) { select(dead, −inf, 0.18 · s + extf(b)) }
      becomes
        %q1 = tile.scale %q {exponent = -3}                          // 0.18 = 2⁻³ · 1.44
        …
        %b = tile.convert_layout %h : … "shared" -> "fragment"
        %i = linalg.generic … ins(%b) { extf(b) · 0.69 }
        %s = matmul(%q1, %k) + %i
        %t = linalg.generic … ins(%s) { select(dead, −inf, 1.44 · s) }

    The tensor cores add for nothing, where a scale is a power of two. A mask stands next to the matmul, where a branch
    around it stands in no one's way (``join-loops``), and the bias is in registers that scores had, and are about to
    have again: a thread needs no others. Left operands times a power of two are what they were, but for their
    exponents; of f16, elements below 2⁻¹¹ may be off by 2⁻²⁵. The rest of the scale, at least 1, makes no bias larger.

    For kernels whose loads the copy engine does, matmuls of 16 bits, and scales below 2, where all matmuls that a left
    operand goes into are such; and where more than two warpgroups compute: they wait for nothing but instructions, of
    which there are fewer. Two have registers for the bias while both matmuls run; a matmul that waits for it is late.
    """

    def run(self, op: ir.Operation) -> None:
        for kernel in ops_in(op, "gpu.func"):
            if not bulk_copies(kernel):
                continue
            found = [s for inner in ops_in(kernel, "linalg.generic") if (s := _Sum.of(inner)) is not None]
            for left in dict.fromkeys(s.matmul.operands[0] for s in found):
                sums = [s for s in found if s.matmul.operands[0] == left]
                if len(sums) == len(list(left.uses)) and len({s.exponent for s in sums}) == 1:
                    scaled = _scaled(left, sums[0].exponent)
                    for each in sums:
                        each.rewrite(scaled)
                    remark(kernel, "the matmul of scores starts with a bias")


def _scaled(left: ir.Value, exponent: int) -> ir.Value:
    if not exponent:
        return left
    made = defining_op(left)
    following = ops_of(made.block)[ops_of(made.block).index(made) + 1]
    with ir.InsertionPoint(following), made.location:
        number = build.i64_attribute(exponent)
        return ScaleOp(left, number, result=left.type).result


@dataclass
class _Sum:
    """What `op` adds to the scores of `matmul`, element by element: `sum`, in its body, of them, times `product` if it
    is not None, and of the tile that `convert` brings."""

    op: ir.Operation
    sum: ir.Operation
    product: ir.Operation | None
    matmul: ir.Operation
    convert: ir.Operation

    @staticmethod
    def of(op: ir.Operation) -> _Sum | None:
        matmul = defining_op(op.operands[0]) if modifies_first(op) else None
        if matmul is None or not is_matmul(matmul) or adds(matmul) or not single_use(op.operands[0]):
            return None
        kind = matmul.operands[0].type
        if kind.element_type.width != 16 or kind.shape[0] <= MOST_ROWS or defining_op(matmul.operands[0]) is None:
            return None
        scores = op.regions[0].blocks[0].arguments[0]
        if not single_use(scores):
            return None
        (user,) = (use.owner.operation for use in scores.uses)
        product = user if user.name == "arith.mulf" else None
        element = scores if product is None else product.results[0]
        if not single_use(element):
            return None
        (sum_,) = (use.owner.operation for use in element.uses)
        convert = _bias(op, sum_, element, matmul) if sum_.name == "arith.addf" else None
        found = _Sum(op, sum_, product, matmul, convert) if convert is not None else None
        fits = found is not None and found.factor > 0 and LEAST_EXPONENT <= found.exponent <= MOST_EXPONENT
        return found if fits else None

    @property
    def factor(self) -> float:
        """What scores are multiplied by; 0 if that is no number."""
        numbers = [constant_value(v) for v in self.product.operands] if self.product is not None else [1.0]
        return next((n for n in numbers if isinstance(n, float)), 0.0)

    @property
    def exponent(self) -> int:
        return math.frexp(self.factor)[1] - 1

    def rewrite(self, left: ir.Value) -> None:
        rest = self.factor / 2.0**self.exponent
        self._bring()
        start = self._start(1 / rest)
        self.matmul.operands[0] = left
        self.matmul.operands[2] = start
        body = self.op.regions[0].blocks[0]
        element = body.arguments[0]
        if rest != 1:
            with ir.InsertionPoint(self.sum):
                element = arith.mulf(element, build.constant(element.type, rest))
        self.sum.results[0].replace_all_uses_with(element)
        self.sum.erase()
        if self.product is not None:
            self.product.erase()
        if yielded(self.op) == body.arguments[0]:
            self.op.results[0].replace_all_uses_with(self.matmul.results[0])
            self.op.erase()
            return
        number = list(self.op.operands).index(self.convert.results[0])
        for use in list(body.arguments[number].uses):
            use.owner.operation.erase()  # its widening
        without_inputs(self.op, [number])

    def _bring(self) -> None:
        """Has the bias come before the matmul."""
        ops = ops_of(self.matmul.block)
        moved = [self.convert]
        for op in reversed(ops[ops.index(self.matmul) : ops.index(self.convert)]):
            if any(v in list(later.operands) for v in op.results for later in moved):
                moved.append(op)
        for op in reversed(moved):
            op.move_before(self.matmul)

    def _start(self, factor: float) -> ir.Value:
        kind = self.matmul.results[0].type
        with ir.InsertionPoint(self.matmul), self.op.location:
            empty = ir.Operation.create("tensor.empty", [kind], []).result
            identity = ir.AffineMap.get_identity(2)

            def wide(x: ir.Value, start: ir.Value) -> ir.Value:
                x = x if x.type == start.type else arith.extf(start.type, x)
                return x if factor == 1 else arith.mulf(x, build.constant(x.type, factor))

            bias = self.convert.results[0]
            (start,) = build.generic([bias], [empty], [identity] * 2, [build.PARALLEL] * 2, wide)
        return start


def _bias(op: ir.Operation, sum_: ir.Operation, scores: ir.Value, matmul: ir.Operation) -> ir.Operation | None:
    """What brings the tile of floats that is added to `scores` from shared memory, for that alone."""
    (other,) = [v for v in sum_.operands if v != scores]
    widening = defining_op(other)
    element = widening.operands[0] if widening is not None and widening.name == "arith.extf" else other
    arguments = list(op.regions[0].blocks[0].arguments)
    if element not in arguments[1 : len(op.operands) - 1] or not single_use(element):
        return None
    number = arguments.index(element)
    convert = defining_op(op.operands[number])
    fits = (
        convert is not None
        and convert.name == "tile.convert_layout"
        and convert.block == matmul.block
        and layout_of(convert.operands[0].type) in ("shared", "skewed")
        and indexing_maps(op)[number] == indexing_maps(op)[-1]
        and single_use(convert.results[0])
    )
    return convert if fits else None

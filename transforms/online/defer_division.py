"""The pass ``defer-division``."""

from dataclasses import dataclass

from ...dialects import build
from ...dialects.linalg_ext import UnnormSoftmaxOp
from ...dialects.mlir import arith, ir
from ..passes import Pass, remark
from ..rewriting import ops_in
from .match_accumulation import Accumulation, Unsuited, accumulation_of


@dataclass(frozen=True)
class DeferDivision(Pass):
    """Divides by the sum of the exponentials once, after the loop over the tiles (FlashAttention-2, Dao 2023, §3.1)::

        %o, %m, %a = scf.for %k = … iter_args(%o0 = %zeros, %m0 = %minus_inf, %a0 = %zeros) {
          %p:4 = linalg_ext.softmax dimension(1) ins(%x) outs(%e, %m0, %a0, %f)
          %s   = rows of %o0 × %p#3
          %o1  = linalg.matmul ins(%p#0, %v) outs(%s)
          scf.yield %o1, %p#1, %p#2
        }
    becomes
        %o, %m, %a = scf.for … {
          %p:4 = linalg_ext.unnorm_softmax dimension(1) ins(%x) outs(%e, %m0, %a0, %f)
          …
        }
        %r = linalg.generic … ins(%a) outs(%o) { o / a, and 0 where a = 0: all of the row is masked }

    For that, o must be Σ a·(what it was), from o = 0 on; both softmaxes have the same m and a, so that whoever else
    uses these finds what they were. A softmax that sees its whole dimension at once is divided after the matmul, where
    that is fewer divisions. An accumulator in f16 stays normalised: the sum may exceed its range.
    """

    def run(self, op: ir.Operation) -> None:
        for softmax in ops_in(op, "linalg_ext.softmax"):
            try:
                found = accumulation_of(softmax)
                _check_worth(found)
            except Unsuited as reason:
                remark(softmax, f"'{softmax.name}' divides in every tile: {reason}")
            else:
                remark(softmax, "divides by the sum once per row, after all tiles")
                _defer(found)


def _check_worth(found: Accumulation) -> None:
    kind = found.final.type
    if isinstance(kind.element_type, ir.F16Type):
        raise Unsuited("the accumulator of the matmul is f16, whose range sums of exponentials may exceed")
    if not found.output:
        x = found.softmax.operands[0].type
        before = x.shape[found.softmax.opview.dimension.value]
        after = [s for d, s in enumerate(kind.shape) if d not in found.rows]
        if not x.is_dynamic_dim(found.softmax.opview.dimension.value) and len(after) == 1 and after[0] > before:
            raise Unsuited("the output of the matmul has more columns than the scores")


def _defer(found: Accumulation) -> None:
    softmax = found.softmax
    with ir.InsertionPoint(softmax), softmax.location:
        new = UnnormSoftmaxOp(
            softmax.attributes["dimension"],
            *softmax.operands,
            result=softmax.results[0].type,
            new_max=softmax.results[1].type,
            new_accum=softmax.results[2].type,
            new_scale=softmax.results[3].type,
        )
    output, accum, after = found.final, found.final_accum, found.outermost
    if accum == softmax.results[2]:
        accum = new.new_accum
    for name in softmax.attributes:
        new.operation.attributes[name] = softmax.attributes[name]
    for old, value in zip(softmax.results, new.operation.results, strict=True):
        old.replace_all_uses_with(value)
    softmax.erase()
    users = list(output.uses)
    with ir.InsertionPoint.after(after), after.location:
        divided = divide_rows(output, accum, found.rows)
    for use in users:
        use.owner.operation.operands[use.operand_number] = divided


def divide_rows(matrix: ir.Value, divisor: ir.Value, rows: list[int]) -> ir.Value:
    """matrix[i…] / divisor[i at rows], and 0 where the divisor is 0."""
    kind = matrix.type
    identity = build.projection(kind.rank, range(kind.rank))
    compute = build.compute_type(kind.element_type)
    zero, one = build.constant(compute, 0.0), build.constant(compute, 1.0)

    def on_element(a: ir.Value, o: ir.Value) -> ir.Value:
        a, o = build.convert(a, compute), build.convert(o, compute)
        empty = arith.cmpf(arith.CmpFPredicate.OEQ, a, zero)
        inverse = arith.select(empty, zero, arith.divf(one, a))  # of the row alone: computed once per row
        return build.convert(arith.mulf(o, inverse), kind.element_type)

    maps = [build.projection(kind.rank, rows), identity]
    (divided,) = build.generic([divisor], [matrix], maps, [build.PARALLEL] * kind.rank, on_element)
    return divided

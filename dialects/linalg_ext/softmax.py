"""``linalg_ext.softmax``: one step of online softmax, normalised in every step.

    m      = max(m0, rowmax(x))
    a      = a0·exp(m0 − m) + rowsum(exp(x − m))
    scale  = a0·exp(m0 − m) / a
    result = exp(x − m) / a

With the initial statistics m0 = −inf and a0 = 0 over the whole dimension, `result` is softmax(x). Over tiles, the
output of attention follows as O = diag(scale)·O + result·V, and needs no epilogue (Milakov and Gimelshein, "Online
normalizer calculation for softmax", 2018). A row that is masked so far (m = −inf) has result 0 and scale 0.

With the attribute `exp2` each exp is a power of two: x and m are in units of ln 2.
"""

from typing import Any

import numpy as np

from .. import build
from ..mlir import arith, ext, ir, math
from ..reference.arrays import take
from ..reference.softmax import softmax_step
from ..tiling.interface import OnlineReduction
from ..verification import expect, verifier
from .dialect import LinalgExt, expect_results_like, expect_shape, expect_tensors

EXP2 = "exp2"
NOT_POSITIVE = "linalg_ext.not_positive"  # on an exponential: what is known of its argument, but for rounding
SOFTMAX_INITS = ("output", "max", "accum", "scale")
SOFTMAX_FORMAT = (
    "attr-dict `dimension` `(` $dimension `)` `ins` `(` $input `:` type($input) `)` "
    "`outs` `(` $output `,` $max `,` $accum `,` $scale `:` type($output, $max, $accum, $scale) `)` "
    "(`:` type(results)^)?"
)


def verify_softmax(op: ir.OpView) -> None:
    """The invariants of `softmax` and `unnorm_softmax`: shapes, element types and the dimension."""
    operands = {"input": op.input, "output": op.output, "max": op.max, "accum": op.accum, "scale": op.scale}
    expect_tensors(operands)
    x = op.input.type
    d = op.dimension.value
    expect(0 <= d < x.rank, f"expects dimension in [0, {x.rank}), the rank of its input, but found {d}")
    expect_shape("output", op.output.type, x.shape, "the shape of the input")
    expect(
        op.output.type.element_type == x.element_type,
        f"expects output to have the input's element type {x.element_type}, but found {op.output.type.element_type}",
    )
    row_shape = [s for i, s in enumerate(x.shape) if i != d]
    row_type = op.max.type.element_type
    narrow = build.is_narrow(x.element_type)
    expect(
        row_type == x.element_type or (narrow and isinstance(row_type, ir.F32Type)),
        f"expects statistics of the input's element type {x.element_type}"
        f"{' or f32' if narrow else ''}, but found {row_type}",
    )
    for name in ("max", "accum", "scale"):
        kind = operands[name].type
        expect_shape(name, kind, row_shape, f"the input's shape without dimension {d}")
        expect(
            kind.element_type == row_type,
            f"expects max, accum and scale to share one element type, but found {row_type} and {kind.element_type}",
        )
    expect_results_like(op, [op.output, op.max, op.accum, op.scale])


def decompose_statistics(op: ir.OpView) -> tuple[ir.Value, ir.Value, ir.Value, ir.Value, ir.Value]:
    """Emits what both softmaxes share, in three ops; returns (p, total, m, b, alpha).

        t              = rowmax(x)
        m, b, alpha    = max(m0, t), a0·alpha, exp(m0 − m)     # one op on rows
        p, l           = exp(x − m), rowsum(p)                 # one pass over the tile

    The statistics are updated where they stand, and b is overwritten by a = b + l when it was read for the last time.
    p takes the place of x if nothing else needs x: a tile less in the cache.

    Everything is in the compute type (f32 for f16 and bf16). exp(d) is exp2(d·log2 e), which is what hardware has: d is
    never positive, so that rounding the product costs at most 0.4 units in the last place of 1, the largest
    exponential. Where m = −inf, 0 is subtracted in its place, so that a row that is masked so far gives exp(−inf) = 0
    and not NaN; the test is per row, not per element.
    """
    x, d = op.input, op.dimension.value
    n = x.type.rank
    rows = [i for i in range(n) if i != d]
    compute = build.compute_type(x.type.element_type)
    identity, row_map = build.projection(n, range(n)), build.projection(n, rows)
    iterators = [build.REDUCTION if i == d else build.PARALLEL for i in range(n)]
    sizes = build.mixed_sizes(x)
    row_sizes = [sizes[i] for i in rows]
    in_place = x.type.element_type == compute and may_overwrite(x, op.output)
    log2_e = None if EXP2 in op.attributes else build.constant(compute, float(np.log2(np.e)))

    def exp(d: ir.Value) -> ir.Value:
        return math.exp2(d if log2_e is None else arith.mulf(d, log2_e))

    infinity = build.constant(compute, float("-inf"))
    zero = build.constant(compute, 0.0)

    def shift(m: ir.Value) -> ir.Value:
        return arith.select(arith.cmpf(arith.CmpFPredicate.OEQ, m, infinity), zero, m)

    (t,) = build.generic(
        [x],
        [build.fill(infinity, build.empty(row_sizes, compute))],
        [identity, row_map],
        iterators,
        lambda xi, ti: arith.maxnumf(build.convert(xi, compute), ti),
    )

    def on_rows(ti: ir.Value, m0: ir.Value, a0: ir.Value, _: ir.Value) -> list[ir.Value]:
        m = arith.maxnumf(m0, ti)
        alpha = exp(arith.subf(m0, shift(m)))
        return [m, arith.mulf(a0, alpha), alpha]

    m0, a0 = (build.convert_elements(v, compute) for v in (op.max, op.accum))
    row_identity = build.projection(n - 1, range(n - 1))
    m, b, alpha = build.generic(
        [t], [m0, a0, build.empty(row_sizes, compute)], [row_identity] * 4, [build.PARALLEL] * (n - 1), on_rows
    )

    def exponential(xi: ir.Value, mi: ir.Value, li: ir.Value) -> list[ir.Value]:
        p = exp(arith.subf(build.convert(xi, compute), shift(mi)))
        p.owner.operation.attributes[NOT_POSITIVE] = ir.UnitAttr.get()
        return [p, arith.addf(li, p)]

    sums = build.fill(zero, build.empty(row_sizes, compute))
    if in_place:
        p, total = build.generic(
            [m], [x, sums], [row_map, identity, row_map], iterators, lambda mi, xi, li: exponential(xi, mi, li)
        )
    else:
        p, total = build.generic(
            [x, m],
            [build.empty(sizes, compute), sums],
            [identity, row_map, identity, row_map],
            iterators,
            lambda xi, mi, _, li: exponential(xi, mi, li),
        )
    return p, total, m, b, alpha


def may_overwrite(value: ir.Value, output: ir.Value) -> bool:
    """True if `value` is computed for this op alone, and `output` is no place that the result has to go to."""
    if isinstance(value.owner, ir.Block) or isinstance(output.owner, ir.Block):
        return False
    is_result = value.owner.operation.name.startswith("linalg.")
    return is_result and len(list(value.uses)) <= 1 and output.owner.operation.name == "tensor.empty"


class OnlineSoftmax(LinalgExt.Operation):
    """What `softmax` and `unnorm_softmax` share: all but the formulas.

    `input`, `output` and `result` have one shape; the statistics have it without `dimension`.
    """

    dimension: ir.IntegerAttr
    input: ext.Operand[Any]
    output: ext.Operand[Any]
    max: ext.Operand[Any]
    accum: ext.Operand[Any]
    scale: ext.Operand[Any]
    result: ext.Result[Any]
    new_max: ext.Result[Any]
    new_accum: ext.Result[Any]
    new_scale: ext.Result[Any]

    inits = SOFTMAX_INITS
    assembly_format = SOFTMAX_FORMAT
    verify_invariants = staticmethod(verifier(verify_softmax))

    def indexing_maps(self) -> list[ir.AffineMap]:
        """One loop per dimension of the input; the statistics lack the reduced one."""
        loops, d = range(self.input.type.rank), self.dimension.value
        row = [i for i in loops if i != d]
        return [build.projection(len(loops), dims) for dims in (loops, loops, row, row, row)]

    def reference_step(self, operands: list[Any], normalise: bool) -> tuple[Any, ...]:
        """The values of the results; overwrites the input where nothing else needs it."""
        exp = np.exp2 if EXP2 in self.attributes else np.exp
        return softmax_step(take(operands, 0), operands[2], operands[3], self.dimension.value, normalise, exp)

    def online_reduction(self) -> OnlineReduction:
        """The running maximum and sum go from tile to tile; results are 0: result, 1: max, 2: accum, 3: scale."""
        return OnlineReduction(self.dimension.value, result=0, carried=((1, 2), (2, 3)), scale=3)


class SoftmaxOp(OnlineSoftmax, name="softmax", traits=[ext.Pure]):
    """See the module."""

    @staticmethod
    def reference(op: Any, operands: list[Any]) -> tuple[Any, ...]:
        return op.reference_step(operands, normalise=True)

    def decompose(self) -> list[ir.Value]:
        """Emits linalg ops that compute the four results; see `decompose_statistics`.

        To it come an op on rows, a = b + l, 1/a (0 where a = 0: all masked) and scale = b/a, and one on the tile, p/a.
        """
        p, total, m, b, _ = decompose_statistics(self)
        n, d = self.input.type.rank, self.dimension.value
        compute = p.type.element_type
        zero, one = build.constant(compute, 0.0), build.constant(compute, 1.0)

        def on_rows(li: ir.Value, bi: ir.Value, *_: ir.Value) -> list[ir.Value]:
            ai = arith.addf(bi, li)
            empty_row = arith.cmpf(arith.CmpFPredicate.OEQ, ai, zero)
            inverse = arith.select(empty_row, zero, arith.divf(one, ai))
            return [ai, arith.mulf(bi, inverse), inverse]

        row_identity = build.projection(n - 1, range(n - 1))
        row_sizes = build.mixed_sizes(total)
        a, scale, inverse = build.generic(
            [total],
            [b, build.empty(row_sizes, compute), build.empty(row_sizes, compute)],
            [row_identity] * 4,
            [build.PARALLEL] * (n - 1),
            on_rows,
        )
        element = self.output.type.element_type
        identity, row_map = build.projection(n, range(n)), build.projection(n, [i for i in range(n) if i != d])
        if may_overwrite(p, self.output) and element == compute:
            (result,) = build.generic([inverse], [p], [row_map, identity], [build.PARALLEL] * n, arith.mulf)
        else:
            (result,) = build.generic(
                [p, inverse],
                [self.output],
                [identity, row_map, identity],
                [build.PARALLEL] * n,
                lambda pi, inv, _: build.convert(arith.mulf(pi, inv), element),
            )
        row_element = self.max.type.element_type
        return [result, *(build.convert_elements(v, row_element) for v in (m, a, scale))]

"""Sums over each row of probabilities times another product, which the derivative of a softmax has.

    Σ_k p[i, k]·(Σ_c g[i, c]·v[k, c])   is   Σ_c g[i, c]·(Σ_k p[i, k]·v[k, c])

The former takes probabilities and products of all pairs of queries and keys; the latter an attention, and a sum over
each row of its output. Exponentials that something else divides, 1 / l² in the derivative of e / l, are l times
probabilities.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...dialects.mlir import arith, ir
from ..graph import erase_with_producers
from .contraction import Contraction, contraction_at
from .emission import Emitter, Unreadable
from .expressions import REAL, Expr
from .indices import Index, SplitNeeded, Var
from .matching import MAX_SPLITS, match_attention, split_variables, variables_of
from .normalised import is_normalised, is_sum_of_exponentials
from .quotients import Keys, NearMiss, Quotient, varies, without
from .tensors import contract, counted_by, shaped
from .tracing import Tracer


@dataclass(frozen=True)
class _RowSum:
    """`around` times Σ_k Π `weights`·`product`."""

    k: Keys
    weights: Sequence[Expr]
    product: Contraction
    around: Quotient


def over_outputs(op: ir.Operation) -> tuple[ir.Value, ir.Operation] | None:
    """What `op` gives, as a sum over the output of an attention, and where that ends, emitted before it; None if `op`
    is no such sum."""
    at = variables_of(op.results[0])
    for _ in range(MAX_SPLITS):
        tracer = Tracer()
        element = tracer.make.element(op.results[0], at)
        tracer.may_split(element.vars)
        try:
            found = _row_sum(tracer, element)
            if found is None:
                return None
            with ir.InsertionPoint(op), op.location:
                value, end = _emitted(tracer, op, at, found)
        except SplitNeeded as split:
            at = split_variables(at, split)
        except (Unreadable, RecursionError):  # hundreds of scalar ops in a row
            return None
        else:
            try:
                is_attention = match_attention(end) is not None
            except NearMiss:
                is_attention = False
            if is_attention:
                return value, end
            erase_with_producers(value.owner.operation)
            return None
    return None


def _row_sum(tracer: Tracer, element: Expr) -> _RowSum | None:
    reduction = tracer.reduction(element)
    if element.type != REAL or reduction is None or reduction.kind != "sum" or len(reduction.loops) != 1:
        return None
    if tracer.expand(reduction.init).number != 0:
        return None
    k = (Var(reduction.extent(reduction.loops[0])),)
    make = tracer.make
    one = make.const(1.0)
    weights: list[Expr] = []
    around = Quotient()
    products: list[Contraction] = []
    pending = [(reduction.body([Index.of(v) for v in k]), False)]
    while pending:
        factor, divides = pending.pop()
        stepped: Expr | None = factor
        if factor.kind == "element":
            factor = tracer.origin(factor)
            product = contraction_at(tracer, factor)
            if product is not None and not divides and _is_of_rows(tracer, product, k):
                products.append(product)
                continue
            stepped = tracer.step(factor)
        if stepped is not None and stepped.name in ("arith.mulf", "arith.divf"):
            first, second = stepped.args
            pending += [(first, divides), (second, divides ^ (stepped.name == "arith.divf"))]
        elif stepped is not None and stepped.name == "arith.negf":
            around.num.append(make.const(-1.0))
            pending.append((stepped.args[0], divides))
        elif stepped is not None and not divides and (chosen := _chosen_or_zero(tracer, stepped)) is not None:
            pending += [(part, False) for part in chosen]
        elif stepped is not None and stepped is not factor and stepped.kind == "element":  # a cast
            pending.append((stepped, divides))
        elif varies(factor, k):  # as it is stored: constants are rounded there
            weights.append(make.op("arith.divf", (one, factor)) if divides else factor)
        else:
            (around.den if divides else around.num).append(tracer.expand(factor))
    pairs = frozenset[Var]().union(*(w.vars for w in weights))
    if len(products) != 1 or not products[0].element.vars <= pairs:  # values by a projection have columns of their own
        return None
    if not any(is_normalised(tracer, n, k) for w in weights for n in tracer.expand(w).nodes()):
        total = next((d for d in around.den if is_sum_of_exponentials(tracer, d, k)), None)
        if total is None:
            return None
        around = Quotient(around.num, without(around.den, [total]))
        weights.append(make.op("arith.divf", (one, total)))
    return _RowSum(k, weights, products[0], around)


def _is_of_rows(tracer: Tracer, product: Contraction, k: Keys) -> bool:
    """Whether one operand is the same for all keys."""
    varying = [varies(e, k) for e in (product.lhs, product.rhs)]
    return tracer.expand(product.init).number == 0 and varying.count(True) == 1


def _chosen_or_zero(tracer: Tracer, expr: Expr) -> tuple[Expr, Expr] | None:
    """x and the condition as a number, 0 or 1, where `expr` is x or 0."""
    if expr.name != "arith.select" or expr.type != REAL:
        return None
    condition, then, otherwise = expr.args
    if tracer.expand(otherwise).number == 0:
        return then, tracer.make.op("arith.uitofp", (condition,))
    if tracer.expand(then).number == 0:
        return otherwise, tracer.make.op("arith.uitofp", (tracer.make.negation(condition),))
    return None


def _emitted(
    tracer: Tracer, op: ir.Operation, at: tuple[Index, ...], row_sum: _RowSum
) -> tuple[ir.Value, ir.Operation]:
    make, result, k, product = tracer.make, op.results[0], row_sum.k, row_sum.product
    groups = [counted_by(i, s) for i, s in zip(at, result.type.shape, strict=True)]
    out = [v for group in groups for v in group]
    given, values = (product.rhs, product.lhs) if varies(product.lhs, k) else (product.lhs, product.rhs)
    emit = Emitter(tracer, ir.F64Type.get() if str(result.type.element_type) == "f64" else ir.F32Type.get())
    accesses = [emit.element_access(e) for e in (given, values)]
    for found in accesses:
        emit.know_sizes(found)
    (g, g_vars), (v, v_vars) = map(emit.load, accesses)
    p = functools.reduce(make.mul, row_sum.weights)
    rows = [u for u in out if u in p.vars]
    dims = [*(u for u in out if u in rows or u in v_vars), *(u for u in product.loops if u in v_vars)]
    kind = str(emit.compute)
    probabilities = emit.elementwise(p, [*rows, *k], v.type.element_type)
    output = contract(emit, probabilities, [*rows, *k], v, v_vars, dims, k, kind)
    total = contract(emit, output.results[0], dims, g, g_vars, out, product.loops, kind)
    value = make.element(total.results[0], tuple(Index.of(u) for u in out))
    for factor in (*map(tracer.expand, product.factors), *row_sum.around.num):
        value = make.mul(value, factor)
    for divisor in row_sum.around.den:
        value = make.op("arith.divf", (value, _unless_zero(tracer, divisor)))
    return shaped(emit.elementwise(value, out, result.type.element_type), groups, result.type), output


def _unless_zero(tracer: Tracer, divisor: Expr) -> Expr:
    """The divisor, ∞ for 0: of rows that are masked as a whole, whose output is 0."""
    make = tracer.make
    is_zero = make.compared(arith.CmpFPredicate.OEQ, divisor, make.const(0.0))
    return make.op("arith.select", (is_zero, make.const(math.inf), divisor))

"""Attention without a softmax: values are multiplied by what is made of each score by itself.

    Σ_k σ(s − log n)·v      Σ_k max(s, 0)²/n·v      Σ_k γ^(i−k)·s·v for k ≤ i, else 0

What divides may be made of the sum of the weights: a further column of the output (own_sums.py). Where it is an
attention, and not two layers of a perceptron or a product of matrices, ``transforms/attention.py`` says; what follows
from an attention, as its derivative does, is one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from ...dialects.mlir import ir
from ..attention import MOST_COLUMNS
from .contraction import Operand, peel
from .expressions import ROUND, Expr
from .indices import Var
from .inner import inner_softmax
from .matmuls import SecondMatmul, Weights, computed_from, first_matmuls, matmuls_beside
from .normalised import nodes_through
from .own_sums import OwnSum, own_sums
from .quotients import Keys, Quotient, quotient, varies, without
from .softmax import Softmax
from .tracing import Tracer


def match_unnormalised(second: SecondMatmul, weights: Expr) -> Weights | None:
    """What `second` multiplies values by, if it is made element by element of the scores."""
    tracer, product, k, around = second.tracer, second.product, second.k, second.around
    matmuls = first_matmuls(tracer, nodes_through(tracer, [tracer.expand(weights)]), k)
    values = product.rhs if weights is product.lhs else product.lhs
    columns = values.vars - weights.vars
    whole = tracer.expand(weights)
    expr, *taken = _without_uniform(whole, k)
    outside = [*around.num, *(tracer.expand(f) for f in product.factors)], around.den
    num, den = ([*inside, *others] for inside, others in zip(taken, outside, strict=True))
    nodes = dict.fromkeys(nodes_through(tracer, [expr]))
    if any(n.name == ROUND for n in nodes):
        return None
    follows = tracer.reads_given(expr)
    unknown = 1 if follows else math.inf
    for first in matmuls:
        scores, queries, keys = first
        beside = matmuls_beside(tracer, first, nodes, k)
        is_computed = computed_from(scores, *(m.scores for m in beside))
        batch = frozenset.intersection(*map(_own_vars, (queries, keys, peel(tracer, values)))) - {*scores.loops, *k}
        small = max(_size(scores.loops, unknown), _size(columns, unknown)) <= MOST_COLUMNS
        if scores.element not in nodes or not small or _is_multiple(expr, scores.element):
            continue
        if not batch and not follows:
            continue
        own_sum, divisors = _own_sum(tracer, Quotient([expr, *num], den), k, is_computed)
        inner = inner_softmax(tracer, expr, scores.element, k, is_computed) if is_computed(expr) else None
        given = expr if inner is None else inner.without(tracer, expr)
        if not any(map(is_computed, [given, *num, *divisors])):
            if own_sum is None and isinstance(weights.payload[0].type.element_type, ir.F16Type):
                expr, (num, divisors) = whole, outside  # 65504 is not far: rounded are the weights as they are written
            softmax = Softmax(expr, tuple(num), tuple(divisors), own_sum=own_sum, is_plain=True, inner=inner)
            return Weights(softmax, first, beside=beside)
    return None


def _own_sum(
    tracer: Tracer, q: Quotient, k: Keys, is_computed: Callable[[Expr], bool]
) -> tuple[OwnSum | None, list[Expr]]:
    """The divisor that is made of the sum of what it divides, and the other ones."""
    parts = [quotient(tracer, e) for e in q.num]
    flat = Quotient([f for p in parts for f in p.num], [*q.den, *(f for p in parts for f in p.den)])
    for _, own in own_sums(tracer, flat, k, is_computed):
        if own.divisor in q.den:
            return own, without(q.den, [own.divisor])
    return None, q.den


def _without_uniform(expr: Expr, k: Keys) -> tuple[Expr, list[Expr], list[Expr]]:
    """`expr` without factors and divisors that are the same for all keys, and these."""
    num: list[Expr] = []
    den: list[Expr] = []
    while expr.name in ("arith.mulf", "arith.divf"):
        first, second = expr.args
        if not varies(second, k):
            (num if expr.name == "arith.mulf" else den).append(second)
            expr = first
        elif expr.name == "arith.mulf" and not varies(first, k):
            num.append(first)
            expr = second
        else:
            break
    return expr, num, den


def _is_multiple(expr: Expr, scores: Expr) -> bool:
    """Whether `expr` is the scores times what is the same for all of them."""
    while expr is not scores:
        inner = [a for a in expr.args if scores in set(a.nodes())]
        uniform = all(not a.vars for a in expr.args if a not in inner)
        if expr.name not in ("arith.mulf", "arith.divf", "arith.negf") or len(inner) != 1 or not uniform:
            return False
        expr = inner[0]
    return True


def _own_vars(operand: Operand) -> frozenset[Var]:
    """What its elements differ along: not what it is repeated along."""
    return frozenset.intersection(*(e.vars for e, _ in operand.choices))


def _size(loops: Iterable[Var], unknown: float) -> float:
    return math.prod(unknown if v.extent is None else v.extent for v in loops)

"""The two matmuls of an attention: the second, in which it ends, and candidates for the first, which makes scores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...dialects.build import element_of
from ...dialects.mlir import ir
from ...dialects.tiling.structured import body_names, reduces
from ..graph import ops_on_way
from ..rewriting import defining_op
from .contraction import Contraction, Operand, contraction_at, peel
from .expressions import REAL, ROUND, Expr
from .quotients import Keys, Quotient, quotient, varies, without
from .rounding import Rounding
from .softmax import Softmax
from .tracing import Tracer

HALVES = (ir.F16Type, ir.BF16Type)
SUMS = {"arith.addf", "arith.mulf"}


@dataclass(frozen=True)
class SecondMatmul:
    """`product` sums weights times values over the keys; `around`: what its result is multiplied and divided by."""

    tracer: Tracer
    product: Contraction
    around: Quotient

    @property
    def k(self) -> Keys:
        return self.product.loops

    @property
    def operands(self) -> Iterator[tuple[Expr, Expr]]:
        """What may be weights and values, which both differ from key to key."""
        lhs, rhs = self.product.lhs, self.product.rhs
        if all(v in lhs.vars and v in rhs.vars for v in self.k):
            yield from ((lhs, rhs), (rhs, lhs))


class FirstMatmul(NamedTuple):
    """The product of `queries` and `keys`."""

    scores: Contraction
    queries: Operand
    keys: Operand


class Weights(NamedTuple):
    """What values are multiplied by: `softmax` of an expression of the scores that `first` makes; 8 bits of it, where
    there is a `rounding`. `beside` are other products of queries and keys in it."""

    softmax: Softmax
    first: FirstMatmul
    rounding: Rounding | None = None
    beside: tuple[FirstMatmul, ...] = ()


def second_matmul(tracer: Tracer, element: Expr, parts: Sequence[int]) -> SecondMatmul | None:
    """The one that `element` is the result of, as it is or divided; `parts`: see `contraction_at`."""
    if element.type != REAL:
        return None
    product, around = contraction_at(tracer, element, parts), Quotient()
    if product is None:
        # An element-wise op that ends it: the division after the second matmul.
        expanded = tracer.expand(element)
        whole = quotient(tracer, expanded.args[0] if expanded.name == ROUND else expanded)
        for factor in whole.num:
            product = product or (contraction_at(tracer, factor, parts) if factor.kind == "element" else None)
        if product is None or [*whole.num, *whole.den].count(product.element) != 1:  # a square, say
            return None
        around = Quotient(without(whole.num, [product.element]), whole.den, whole.tested)
    k = product.loops
    several = len(k) != 1 and (not k or any(v.extent is None for v in k))
    if several or (around.den and tracer.expand(product.init).number != 0):
        return None
    return SecondMatmul(tracer, product, around)


def first_matmuls(tracer: Tracer, nodes: Iterable[Expr], k: Keys) -> list[FirstMatmul]:
    """Those among the elements `nodes`, with most dimensions first; of these the ones with most of the queries: a bias
    may be a product of keys and one vector, with as many where there is one query."""
    found = []
    for node in dict.fromkeys(nodes):
        if node.kind != "element" or not all(v in node.vars for v in k) or node.type != REAL:
            continue
        contraction = contraction_at(tracer, node)
        if contraction is None or not contraction.loops:
            continue
        has_k = [varies(e, k) for e in (contraction.lhs, contraction.rhs)]
        reduced = all(set(contraction.loops) <= e.vars for e in (contraction.lhs, contraction.rhs))
        if has_k.count(True) == 1 and reduced:
            queries, keys = contraction.lhs, contraction.rhs
            if has_k[0]:
                queries, keys = keys, queries
            first = FirstMatmul(contraction, peel(tracer, queries), peel(tracer, keys))
            own = min(len(choice.vars) for choice, _ in first.queries.choices)  # others may repeat a vector
            found.append(((len(contraction.element.vars), own), first))
    return [first for _, first in sorted(found, key=lambda pair: pair[0], reverse=True)]


def matmuls_beside(tracer: Tracer, first: FirstMatmul, nodes: Iterable[Expr], k: Keys) -> tuple[FirstMatmul, ...]:
    """The others among the elements `nodes` that have a product for each query and key of a head, as `first` has."""
    element = first.scores.element
    found = (m for m in first_matmuls(tracer, nodes, k) if m.scores.element.vars == element.vars)
    return tuple(m for m in found if m.scores.element is not element)


def computed_from(*products: Contraction) -> Callable[[Expr], bool]:
    """Whether an expression has an element that is computed from scores, and not by itself from one of them."""
    return lambda e: any(_ways(scores, e) for scores in products)


def chosen_from(scores: Contraction) -> Callable[[Expr], bool]:
    """Whether an expression is one of the scores, or made of such a one, as their maximum."""

    def is_choice(op: ir.Operation) -> bool:
        return reduces(op) and not SUMS & set(body_names(op))

    return lambda e: scores.element not in set(e.nodes()) and any(map(is_choice, _ways(scores, e)))


def rounded_from(scores: Contraction) -> Callable[[Expr], bool]:
    """Whether an expression has an element that is computed from scores that are halves, or become ones on the way."""
    return lambda e: any(isinstance(element_of(r.type), HALVES) for op in _ways(scores, e) for r in op.results)


def _ways(scores: Contraction, e: Expr) -> set[ir.Operation]:
    given = scores.reduction.tracer.given
    tensors = {n.payload[0] for n in e.nodes() if n.kind == "element" and n is not scores.element}
    makers = {maker for t in tensors if t not in given and (maker := defining_op(t)) is not None}
    return ops_on_way(scores.reduction.op, makers, given=given.kinds)

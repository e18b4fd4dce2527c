"""Softmax inside of what values are multiplied by: weights that are any function of probabilities.

    Σ_k clamp(1.2·p − 0.1, 0, 1)·v      Σ_k p²·v      Σ_k select(p > t, p, 0)·v      where p = softmax(s)

No running sum can be corrected for them, since the function of a probability is not known before the sum of all
exponentials is. With that sum l and the maximum m, of a first loop over the keys, a probability is made of its score
alone, exp(s − m) / l, and what is left is an attention without a softmax (unnormalised.py), whose scores are computed
once more in its own loop.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace

from .expressions import Expr
from .normalised import is_normalised
from .quotients import Keys, NearMiss, quotient
from .softmax import Softmax, match_softmax
from .tracing import Tracer


@dataclass(frozen=True)
class Inner:
    """`found` has the expressions that are softmaxes, of the same scores, and which; `sum_of` is one of them."""

    found: tuple[tuple[Expr, Softmax], ...]

    @property
    def sum_of(self) -> Softmax:
        return self.found[0][1]

    def replaced(self, tracer: Tracer, expr: Expr, by: Callable[[Softmax], Expr]) -> Expr:
        """`expr` with what `by` gives in place of each softmax."""
        softmaxes = dict(self.found)
        return tracer.make.rewritten(expr, lambda n: by(softmaxes[n]) if n in softmaxes else None)

    def rewritten(self, by: Callable[[Expr], Expr]) -> Inner:
        """Of expressions that `by` rewrites."""
        return Inner(tuple((by(e), replace(softmax, scores=by(softmax.scores))) for e, softmax in self.found))

    def without(self, tracer: Tracer, expr: Expr) -> Expr:
        """`expr` of scores in place of their softmaxes."""
        return self.replaced(tracer, expr, lambda softmax: softmax.scores)


def inner_softmax(
    tracer: Tracer, weights: Expr, scores: Expr, k: Keys, is_computed: Callable[[Expr], bool]
) -> Inner | None:
    """The softmaxes of `scores` along `k` that `weights` are a function of, the outermost ones; None if there are
    none, or of different scores."""
    found: dict[Expr, Softmax] = {}

    def visit(node: Expr) -> None:
        if node in seen:
            return
        seen.add(node)
        softmax = _softmax_at(tracer, node, k, is_computed)
        if softmax is not None and scores in set(softmax.scores.nodes()):
            found[node] = softmax
        else:
            for arg in node.args:
                visit(arg)

    seen: set[Expr] = set()
    visit(weights)
    same = {(s.scores, s.beside, s.least) for s in found.values()}
    return Inner(tuple(found.items())) if len(same) == 1 else None


def _softmax_at(tracer: Tracer, node: Expr, k: Keys, is_computed: Callable[[Expr], bool]) -> Softmax | None:
    if not is_normalised(tracer, node, k):
        return None
    with contextlib.suppress(NearMiss):
        found = match_softmax(tracer, quotient(tracer, node), k, is_computed)
        if found is not None and found.own_sum is None and found.undivided is None and not found.weights:
            return found
    return None

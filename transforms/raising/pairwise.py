"""What follows from an attention for each query and key, and sums of it: derivatives by what scores are made of.

    Σ_b p·(g·v − r), where p = exp(q·k − m)/l, for each head, query and key        by a bias
    Σ_bqk p·(g·v − r)·(q·k), for each head                                          by a temperature

There is no second matmul. Where queries or keys are summed over, those go first that a tile of scores has along its
rows; the sum over what is left is an op of its own.
"""

from __future__ import annotations

from collections.abc import Callable

from ...dialects.mlir import ir
from .expressions import REAL, Expr
from .given import Given
from .indices import Index, SplitNeeded, Var
from .matching import MAX_SPLITS, Match, Sum, split_variables, variables_of
from .matmuls import FirstMatmul, computed_from, first_matmuls
from .normalised import nodes_through
from .softmax import Softmax
from .tracing import Tracer


def match_pairwise(op: ir.Operation, given: Given) -> Match | None:
    """The sum that `op` is of what there is for each query and key, which is computed from what is `given`; None if it
    is none."""
    return _with_splits(op, given, _sum) if given.kinds else None


def match_whole(op: ir.Operation, given: Given) -> Match | None:
    """The result of `op` as one that there is for each query and key; None if that is not what it is."""
    return _with_splits(op, given, _whole)


def _with_splits(op: ir.Operation, given: Given, total: Callable[[Tracer, Expr], Sum | None]) -> Match | None:
    at = variables_of(op.results[0])
    for _ in range(MAX_SPLITS):
        try:
            tracer = Tracer(given)
            element = tracer.make.element(op.results[0], at)
            tracer.may_split(element.vars)
            found = total(tracer, element) if element.type == REAL else None
            return None if found is None else _match(tracer, at, found)
        except SplitNeeded as split:
            at = split_variables(at, split)
    return None


def _match(tracer: Tracer, at: tuple[Index, ...], total: Sum) -> Match | None:
    element = total.element
    nodes = nodes_through(tracer, [total.of])
    kept = sorted(element.vars, key=lambda v: _place(at, v), reverse=True)
    for key in (*reversed(total.loops), *kept):
        matmuls = [m for m in first_matmuls(tracer, nodes, (key,)) if m.scores.element.vars == total.of.vars]
        if not matmuls or not _are_own(matmuls[0], key, total.of.vars if key in total.loops else element.vars):
            continue
        first, *beside = matmuls
        if any(map(computed_from(*(m.scores for m in matmuls)), [total.of])):
            return None
        weights = Softmax(total.of, (), (), is_plain=True)
        return Match(tracer, element.payload[0], at, (key,), weights, first, total, element, None, beside=tuple(beside))
    return None


def _whole(tracer: Tracer, element: Expr) -> Sum:
    return Sum(element, (), tracer.expand(element), tracer.make.const(0.0))


def _sum(tracer: Tracer, element: Expr) -> Sum | None:
    """The element as a sum of what follows from what is given."""
    reduction = tracer.reduction(element)
    if reduction is None or reduction.kind != "sum":
        return None
    loops = [Var(reduction.extent(d)) for d in reduction.loops]
    body = reduction.body([Index() if v.extent == 1 else Index.of(v) for v in loops])
    of, init = tracer.expand(body), tracer.expand(reduction.init)
    return Sum(element, tuple(v for v in loops if v.extent != 1), of, init) if tracer.reads_given(of) else None


def _are_own(first: FirstMatmul, key: Var, rows: frozenset[Var]) -> bool:
    """Whether keys alone differ along `key`, and queries alone along some of the `rows`."""
    queries, keys = (operand.element.vars - {*first.scores.loops} for operand in (first.queries, first.keys))
    return keys - queries == {key} and bool(queries - keys) and queries - keys <= rows


def _place(at: tuple[Index, ...], var: Var) -> int:
    return max(d for d, index in enumerate(at) if var in index.vars)

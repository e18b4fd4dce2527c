"""What follows from an attention for each query and key, and sums of it: derivatives by what scores are made of.

    Σ_b p·(g·v − r), where p = exp(q·k − m)/l, for each head, query and key        by a bias
    Σ_bqk p·(g·v − r)·(q·k), for each head                                          by a temperature

There is no second matmul. Where queries or keys are summed over, those go first that a tile of scores has along its
rows; the sum over what is left is an op of its own.
"""

from __future__ import annotations

from ...dialects.mlir import ir
from ...dialects.tiling.structured import all_parallel
from .expressions import REAL, Expr
from .given import Given
from .indices import Index, SplitNeeded, Var
from .matching import MAX_SPLITS, Match, Sum, split_variables, variables_of
from .matmuls import FirstMatmul, computed_from, first_matmuls
from .normalised import nodes_through
from .softmax import Softmax
from .tracing import Tracer


def match_pairwise(op: ir.Operation, given: Given) -> Match | None:
    """What `op` has for each query and key, computed from what is `given`; None if that is not what it has."""
    at = variables_of(op.results[0])
    for _ in range(MAX_SPLITS):
        try:
            return _match(op, at, given)
        except SplitNeeded as split:
            at = split_variables(at, split)
    return None


def _match(op: ir.Operation, at: tuple[Index, ...], given: Given) -> Match | None:
    tracer = Tracer(given)
    element = tracer.make.element(op.results[0], at)
    tracer.splittable = element.vars
    total = _sum(tracer, element)
    if total is None or not tracer.reads_given(total.of):
        return None
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
        return Match(tracer, op.results[0], at, (key,), weights, first, total, element, None, beside=tuple(beside))
    return None


def _sum(tracer: Tracer, element: Expr) -> Sum | None:
    """The element as a sum of what is looked into."""
    if element.type != REAL:
        return None
    if all_parallel(element.payload[0].owner.operation):
        return Sum(element, (), tracer.expand(element), tracer.make.const(0.0))
    reduction = tracer.reduction(element)
    if reduction is None or reduction.kind != "sum":
        return None
    loops = [Var(reduction.extent(d)) for d in reduction.loops]
    body = reduction.body([Index() if v.extent == 1 else Index.of(v) for v in loops])
    return Sum(element, tuple(v for v in loops if v.extent != 1), tracer.expand(body), tracer.expand(reduction.init))


def _are_own(first: FirstMatmul, key: Var, rows: frozenset[Var]) -> bool:
    """Whether keys alone differ along `key`, and queries alone along some of the `rows`."""
    queries, keys = (operand.element.vars - {*first.scores.loops} for operand in (first.queries, first.keys))
    return keys - queries == {key} and bool(queries - keys) and queries - keys <= rows


def _place(at: tuple[Index, ...], var: Var) -> int:
    return max(d for d, index in enumerate(at) if var in index.vars)

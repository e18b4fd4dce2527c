"""Derivatives by keys and values that heads of a group share: sums over queries and heads, one after the other.

    Σ_gq ds[g, q, k]·x[g, q, d]   is   Σ_g (Σ_q ds[g, q, k]·x[g, q, d])

The inner sum is an attention of each head, whose masks are those of its queries and keys, and whose products are read
as they stand; as one sum, heads and queries would have to be one dimension (joining.py), and be copied to become one.
"""

from __future__ import annotations

import functools
import itertools
import math

from ...dialects import build
from ...dialects.mlir import arith, ir
from ...dialects.tiling.structured import iterator_types
from .contraction import Contraction
from .emission import Emitter, Unreadable
from .expressions import Expr
from .indices import Index, Var
from .matching import Match
from .tensors import contract, counted_by, shaped

MOST_HEADS = 128
FEW_HEADS = 16  # which are added up where the sum is read
FEWEST_QUERIES = 128  # fewer do not fill a tile


def is_of_several(op: ir.Operation) -> bool:
    """Whether an op sums over several dimensions."""
    return op.name == "linalg.generic" and iterator_types(op).count("reduction") > 1


def over_heads(match: Match) -> tuple[ir.Value, ir.Operation] | None:
    """What the op of a match gives, as a sum over heads, and the sums over queries, emitted before it; None if it is
    no such sum."""
    product, softmax = match.product, match.softmax
    query = max(match.k, key=lambda v: v.extent or 0)
    heads = [v for v in match.k if v is not query]
    if not heads or _count(heads) > MOST_HEADS or (query.extent or 0) < FEWEST_QUERIES:
        return None
    if not isinstance(product, Contraction) or product.element.payload[0] != match.result or product.factors:
        return None
    if not softmax.is_plain or softmax.own_sum is not None or softmax.inner is not None or match.rounding is not None:
        return None
    if match.tracer.expand(product.init).number != 0:
        return None
    op = match.result.owner.operation
    try:
        with ir.InsertionPoint(op), op.location:
            return _emitted(match, product, query, heads)
    except Unreadable:
        return None


def _emitted(match: Match, product: Contraction, query: Var, heads: list[Var]) -> tuple[ir.Value, ir.Operation]:
    kind = match.result.type
    groups = [counted_by(i, s) for i, s in zip(match.at, kind.shape, strict=True)]
    out = [v for group in groups for v in group]
    values = product.rhs if match.probabilities is product.lhs else product.lhs
    emit = Emitter(match.tracer, build.compute_type(kind.element_type))
    accesses = [emit.element_access(e) for e in (match.probabilities, values)]
    for found in accesses:
        emit.know_sizes(found)
    (p, p_vars), (v, v_vars) = map(emit.load, accesses)
    rows = [u for u in p_vars if u in out]
    dims = [*rows, *(u for u in out if u not in rows)]  # columns side by side, whatever the result has
    each = contract(emit, p, p_vars, v, v_vars, [*heads, *dims], [query], str(emit.compute))
    total = _sum(emit, each.results[0], heads, dims)
    return shaped(emit.elementwise(total, out, kind.element_type), groups, kind), each


def _sum(emit: Emitter, of_each: ir.Value, heads: list[Var], dims: list[Var]) -> Expr:
    """The sum over heads of a tensor of `heads` and `dims`."""
    make, at = emit.tracer.make, tuple(map(Index.of, dims))
    if _count(heads) <= FEW_HEADS:
        places = itertools.product(*(range(v.extent or 0) for v in heads))
        return functools.reduce(make.add, (make.element(of_each, (*(Index((), i) for i in p), *at)) for p in places))
    loops = [*dims, *heads]
    zero = build.fill(build.constant(emit.compute, 0.0), emit.empty(dims, emit.compute))
    maps = [build.projection(len(loops), [loops.index(v) for v in used]) for used in ([*heads, *dims], dims)]
    iterators = [build.PARALLEL] * len(dims) + [build.REDUCTION] * len(heads)
    (total,) = build.generic([of_each], [zero], maps, iterators, lambda x, y: arith.addf(x, y))
    return make.element(total, at)


def _count(heads: list[Var]) -> int:
    return math.prod(v.extent or 0 for v in heads)

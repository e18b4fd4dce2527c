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
from .indices import Index
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
    key = max(match.k, key=lambda v: v.extent or 0)
    heads = [v for v in match.k if v is not key]
    count, queries = math.prod(v.extent or 0 for v in heads), key.extent or 0
    if not heads or count > MOST_HEADS or queries < FEWEST_QUERIES:
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
            return _emitted(match, product, [key], heads)
    except Unreadable:
        return None


def _emitted(match: Match, product: Contraction, queries: list, heads: list) -> tuple[ir.Value, ir.Operation]:
    make, kind = match.tracer.make, match.result.type
    groups = [counted_by(i, s) for i, s in zip(match.at, kind.shape, strict=True)]
    out = [v for group in groups for v in group]
    values = product.rhs if match.probabilities is product.lhs else product.lhs
    emit = Emitter(match.tracer, build.compute_type(kind.element_type))
    accesses = [emit.element_access(e) for e in (match.probabilities, values)]
    for found in accesses:
        emit.know_sizes(found)
    (p, p_vars), (v, v_vars) = map(emit.load, accesses)
    rows = [u for u in p_vars if u in out]
    of_each = [*heads, *rows, *(u for u in out if u not in rows)]  # columns side by side, whatever the output has
    each = contract(emit, p, p_vars, v, v_vars, of_each, queries, str(emit.compute))
    at = tuple(Index.of(u) for u in of_each[len(heads) :])
    if math.prod(v.extent or 0 for v in heads) <= FEW_HEADS:
        places = itertools.product(*(range(v.extent or 0) for v in heads))
        terms = [make.element(each.results[0], (*(Index((), i) for i in place), *at)) for place in places]
        value = functools.reduce(make.add, terms)
    else:
        dims = [*of_each[len(heads) :], *heads]
        zero = build.fill(build.constant(emit.compute, 0.0), emit.empty(dims[: len(at)], emit.compute))
        maps = [build.projection(len(dims), [dims.index(v) for v in used]) for used in (of_each, dims[: len(at)])]
        iterators = [build.PARALLEL] * len(at) + [build.REDUCTION] * len(heads)
        (total,) = build.generic([each.results[0]], [zero], maps, iterators, lambda x, y: arith.addf(x, y))
        value = make.element(total, at)
    return shaped(emit.elementwise(value, out, kind.element_type), groups, kind), each

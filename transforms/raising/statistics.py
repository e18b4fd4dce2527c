"""Statistics of the rows of scores that are needed besides the output: their maxima, and sums of their exponentials.

Whoever returns a log-sum-exp, m + log Σ exp(s − m), or the maximum and the sum themselves, needs two reductions of the
scores. The online softmax has both in the end, so these stand in for what the reductions gave; what is computed from
them (the log, the sum, a guard for masked rows) stays as it is. How a sum was shifted does not matter:
Σ exp(s − c) = a·exp(m − c), and where c is m itself, it is a. A maximum that scores are compared with (which of them
are the largest?) stays what it is, for the online softmax computes scores anew, and they may be rounded otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

from ...dialects.mlir import ir
from ...dialects.tiling.structured import reduces
from ..graph import depends_on, in_order, users_of
from .expressions import REAL, Expr
from .indices import Index, Opaque, SplitNeeded, Var, mixed_radix
from .loops import extents
from .matching import Match
from .quotients import Keys, along_k
from .softmax import same_but_shift, tests_for_masked
from .tracing import Tracer

MAX, ACCUM = 1, 2  # results of linalg_ext.softmax
NEUTRAL = {"max": -math.inf, "sum": 0, "all": 1, "any": 0}
REDUCED_TESTS = {"all": "masked", "any": "live"}


@dataclass(frozen=True)
class Statistic:
    """What `value` at the indices `at`, over the variables of the match, is for a row of scores s.

    `kind`: "max", m; "sum", Σ exp(s − m); "plain sum", Σ exp(s); "masked", whether all s = −∞;
    "live", whether any is not.
    """

    value: ir.Value
    at: tuple[Index, ...]
    kind: str


def row_statistics(match: Match) -> list[Statistic]:
    """Those results of ops that depend on the scores which the online softmax can give as well."""
    match.tracer.may_split(frozenset())
    aliases = dict(match.tracer.aliases)  # what is looked at may stand behind the attention: no place to read from
    found = []
    scores = match.scores.reduction.op
    readers = _readers(scores)
    for op in in_order(readers, scores.block):
        for value in _row_values(op):
            try:
                statistic = _statistic(match, value)
            except (SplitNeeded, Opaque):
                continue
            if statistic is not None and not (statistic.kind == "max" and _is_compared(value, readers)):
                found.append(statistic)
    match.tracer.aliases = aliases
    return found


def _readers(scores: ir.Operation) -> set[ir.Operation]:
    """The ops that read the scores, or what is computed of each by itself: what reduces them ends the way, since no
    statistic is seen through it, and all layers of a model follow from the first one's scores."""
    found: set[ir.Operation] = set()
    pending = [scores]
    while pending:
        new = [user for user in users_of(pending.pop()) if user not in found]
        found.update(new)
        pending += [user for user in new if not _row_values(user)]
    return found


def _is_compared(maximum: ir.Value, readers: Collection[ir.Operation]) -> bool:
    """Whether one of the `readers` of scores compares them with what is made of the row's maximum."""
    rows, pending = {maximum}, [maximum]
    while pending:
        for use in pending.pop().uses:
            op = use.owner.operation
            if op not in readers:
                new = [result for result in op.results if result not in rows]
                rows.update(new)
                pending += new
            elif op.name == "linalg.generic" and _compares(op, rows):
                return True
    return False


def _compares(op: ir.Operation, rows: Collection[ir.Value]) -> bool:
    """Whether the body of `op` compares elements of `rows` with those of another operand."""
    block = op.regions[0].blocks[0]
    arguments: tuple[list[ir.Value], list[ir.Value]] = ([], [])
    for operand, argument in zip(op.operands, block.arguments, strict=True):
        arguments[operand in rows].append(argument)
    comparisons = [inner.operation for inner in block.operations if inner.operation.name == "arith.cmpf"]
    sides = [pair for c in comparisons for pair in (list(c.operands), list(c.operands)[::-1])]
    return any(all(map(_depends, pair, arguments)) for pair in sides)


def _depends(value: ir.Value, arguments: Collection[ir.Value]) -> bool:
    return any(depends_on(value, argument) for argument in arguments)


def _row_values(op: ir.Operation) -> list[ir.Value]:
    """Results of an op that may be statistics."""
    if op.name == "linalg_ext.softmax":
        return [op.results[i] for i in (MAX, ACCUM)]
    if not reduces(op):
        return []
    return list(op.results)


def _statistic(match: Match, value: ir.Value) -> Statistic | None:
    tracer = match.tracer
    at = tuple(Index() if size == 1 else Index.of(Var(size)) for size in extents(value))
    body = _reduced(tracer, value, at, match.k)
    where = _unified(match, body, at) if body is not None else None
    if where is None or not all(_is_whole(i, size) for i, size in zip(where, extents(value), strict=True)):
        return None
    body = _reduced(tracer, value, where, match.k)
    op = value.owner.operation
    if op.name == "linalg_ext.softmax":
        is_its = body is match.softmax.scores
        return Statistic(value, where, "sum" if value == op.results[ACCUM] else "max") if is_its else None
    reduction = tracer.reduction(tracer.make.element(value, where))
    assert reduction is not None and body is not None
    if tracer.expand(reduction.init).number != NEUTRAL[reduction.kind]:
        return None
    kind = _kind(match, reduction.kind, body)
    return None if kind is None else Statistic(value, where, kind)


def _kind(match: Match, reduction: str, body: Expr) -> str | None:
    """What a reduction of `body` along the keys is for the scores."""
    scores = match.softmax.scores
    if reduction == "max":
        return "max" if body is scores else None
    if reduction in ("all", "any"):
        return REDUCED_TESTS[reduction] if tests_for_masked(body, scores, reduction == "all") else None
    shift = same_but_shift(match.tracer, body, scores)
    if shift is None:
        return None
    if shift.number == 0:
        return "plain sum"
    return "sum" if _is_maximum(match, shift) else None


def _reduced(tracer: Tracer, value: ir.Value, at: tuple[Index, ...], k: Keys) -> Expr | None:
    """What is reduced along k for the element of `value`; for a softmax, what it is applied to."""
    op = value.owner.operation
    if op.name == "linalg_ext.softmax":
        if len(k) != 1:
            return None
        dimension = ir.IntegerAttr(op.attributes["dimension"]).value
        indices = [*at[:dimension], Index.of(k[0]), *at[dimension:]]
        return tracer.expand(tracer.make.element(op.operands[0], tuple(indices)))
    reduction = tracer.reduction(tracer.make.element(value, at))
    if reduction is None or reduction.kind not in NEUTRAL or not reduction.loops:
        return None
    return along_k(tracer, reduction, k)


def _is_whole(index: Index, size: int | None) -> bool:
    """Whether the index goes through all of a dimension, not through the rows of every other head."""
    if not index.terms:
        return size == 1 and not index.constant
    return (index.single is not None and size is None) or mixed_radix(index, size) is not None


def _unified(match: Match, body: Expr, at: tuple[Index, ...]) -> tuple[Index, ...] | None:
    """`at` in the variables of the match, by where `body` reads the scores."""
    tensor, wanted = match.scores.element.payload
    for node in body.nodes():
        if node.kind != "element" or node.payload[0] != tensor:
            continue
        known: dict[Var, Index] = {}
        for own, other in zip(node.payload[1], wanted, strict=True):
            if not _unify(own, other, known):
                return None
        if not {v for index in at for v in index.vars} <= set(known):
            return None
        return tuple(_substituted(index, known) for index in at)
    return None


def _unify(own: Index, other: Index, known: dict[Var, Index]) -> bool:
    """Finds what each variable of `own` is in those of `other`, where both count through one dimension; whether it can.

    4·b + h and 4·b' + 2·j + g, where h < 4, j < 2, g < 2: b is b', h is 2·j + g.
    """
    if own.single is not None:
        known[own.single] = other
        return True
    if own.constant != other.constant:
        return False
    left = dict(other.terms)
    for v, step in own.terms:
        end = step + 1 if v.extent is None else step * v.extent
        part = Index()
        for inner in [w for w, c in left.items() if step <= c < end and c % step == 0]:
            part = part.plus(Index.of(inner), left.pop(inner) // step)
        largest = part.bounds()[1]
        if not part.terms or (part.single is None and (largest is None or v.extent is None or largest >= v.extent)):
            return False
        known[v] = part
    return not left


def _substituted(index: Index, known: dict[Var, Index]) -> Index:
    result = Index((), index.constant)
    for v, c in index.terms:
        result = result.plus(known[v], c)
    return result


def _is_maximum(match: Match, shift: Expr) -> bool:
    """Whether `shift` is the maximum of the row, but for rows that are wholly masked, which weigh nothing anyway."""
    if shift.name == "arith.select":
        return any(_is_maximum(match, arm) for arm in shift.args[1:]) and any(
            arm.number is not None for arm in shift.args[1:]
        )
    if shift.kind != "element" or shift.type != REAL:
        return False
    reduction = match.tracer.reduction(shift)
    return (
        reduction is not None
        and reduction.kind == "max"
        and along_k(match.tracer, reduction, match.k) is match.softmax.scores
    )

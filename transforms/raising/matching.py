"""The attention that an op ends: a sum over k of softmax(scores)·values, where the scores hold a sum over d."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ...dialects.mlir import ir
from ...dialects.tiling.structured import reduces
from ..linear import DYNAMIC
from ..reshapes import RESHAPES
from ..rewriting import defining_op
from .candidates import ADDITIVE, Followers
from .contraction import Contraction, Operand, contraction_at, peel
from .expressions import EXPONENTIALS, REAL, Expr
from .given import Given
from .indices import Index, SplitNeeded, Var
from .loops import extents
from .matmuls import (
    FirstMatmul,
    SecondMatmul,
    Weights,
    chosen_from,
    computed_from,
    first_matmuls,
    matmuls_beside,
    rounded_from,
    second_matmul,
)
from .normalised import is_normalised, is_sum_of_exponentials, nodes_through, softmax_of
from .quotients import Keys, NearMiss, Quotient, quotient, varies
from .rounding import Rounding, split_rounding
from .softmax import Softmax, match_softmax
from .tracing import Tracer
from .unnormalised import match_unnormalised

MAX_SPLITS = 24
SPLITS = ("batch", "output", "keys")  # which variables may be split, each with those before it, too
STRAIGHT = ("arith.addf", "arith.subf", "arith.negf", "arith.mulf", "arith.divf", "arith.select")
ON_TENSORS = ("arith.", "math.")  # dialects whose ops on tensors are not looked into
HIDING = (
    "tensor.insert_slice",
    "tensor.concat",
    "tensor.pad",
    "tensor.scatter",
    "tensor.gather",
    "scf.",
    "func.call",
)  # neither
MERGING = (*RESHAPES, "tensor.reshape")
RESHAPED = "a reshape that merges several open sizes, or makes several of one,"
ANOTHER_MATMUL = "its result goes through another matmul in between"
FIXED = "; fix all of them but one, keep them apart, or merge them before the first matmul"
WAYS_OUT = {
    "tensor.insert_slice": "; a select by index or mask would not",
    "func.call": "; --inline-calls=every=1 before shows it",
}


@dataclass(frozen=True)
class Sum:
    """init + Σ `of` over `loops`, which may be none."""

    element: Expr
    loops: tuple[Var, ...]
    of: Expr
    init: Expr


@dataclass(frozen=True)
class Match:
    """What `result` is, at the indices `at`: softmax of an expression of `scores`, or, where it `is_plain`, the
    expression itself, times `values`, summed over `k`; `tested`: 0 where that is no number. Without `values` it is the
    expression, summed over the loops of the `product`, which are not the keys' (pairwise.py)."""

    tracer: Tracer
    result: ir.Value
    at: tuple[Index, ...]
    k: Keys
    softmax: Softmax
    first: FirstMatmul
    product: Contraction | Sum
    probabilities: Expr  # the element of the second matmul's operand, as it was
    values: Operand | None
    rounding: Rounding | None = None
    tested: bool = False
    beside: tuple[FirstMatmul, ...] = ()  # other products of queries and keys in that expression

    @property
    def scores(self) -> Contraction:
        return self.first.scores

    @property
    def follows(self) -> bool:
        """Whether it has no softmax, and is computed of what is given, an attention's."""
        return self.softmax.is_plain and self.tracer.reads_given(self.softmax.scores)


def match_attention(
    op: ir.Operation, normalised: bool = True, given: Given | None = None, followers: Followers | None = None
) -> Match | None:
    """The attention whose result is that of `op`, or None. NearMiss if it looks like one and is none.

    Without `normalised`: one that has no softmax; it may be computed from what is `given`, though that is computed from
    its scores. `followers`: what follows from exponentials; what does not is not looked into for a softmax.
    """
    missed: NearMiss | None = None
    others = {*SPLITS}
    for splits in SPLITS:
        if splits not in others:  # it would find what the one before found
            continue
        others.clear()
        try:
            found = _Attempt(op, normalised, splits, variables_of(op.results[0]), given, followers, others).splitting()
        except NearMiss as miss:
            missed = missed or miss
            continue
        if found is not None:
            return found
    if missed is not None:
        raise missed
    return None


class _KeysSplit(Exception):
    """The variable of the keys must become several, of the extents `parts`, that count through them together."""

    def __init__(self, parts: tuple[int, ...]):
        super().__init__(parts)
        self.parts = parts

    @staticmethod
    def of(k: Keys, split: SplitNeeded) -> _KeysSplit:
        """Where one of the variables `k` is to be split once more."""
        extents_ = [v.extent or 1 for v in k]
        i = k.index(split.var)
        extents_[i : i + 1] = [extents_[i] // split.inner, split.inner]
        return _KeysSplit(tuple(extents_))


@dataclass(frozen=True)
class _Attempt:
    """At the attention whose result is the element `at` of that of `op`, with a softmax or without (`normalised`).

    `splits` says which variables reshapes may split: those that both operands of the second matmul have ("batch"), all
    of the output ("output"), or those of the keys as well ("keys"), as in an image whose scores are [.., height,
    width]: then these become several, of the extents `parts`. Those of `SPLITS` that would split more are put into
    `others`.
    """

    op: ir.Operation
    normalised: bool
    splits: str
    at: tuple[Index, ...]
    given: Given | None
    followers: Followers | None
    others: set[str]
    parts: tuple[int, ...] = ()

    def splitting(self) -> Match | None:
        """With variables split wherever a reshape asks for it."""
        attempt = self
        for _ in range(MAX_SPLITS):
            try:
                return attempt.match()
            except _KeysSplit as split:
                attempt = replace(attempt, parts=split.parts)
            except SplitNeeded as split:
                attempt = replace(attempt, at=split_variables(attempt.at, split))
        return None

    def match(self) -> Match | None:
        tracer = Tracer(self.given, self.followers)
        element = tracer.make.element(self.op.results[0], self.at)
        second = second_matmul(tracer, element, self.parts)
        if second is None:
            return None
        tracer.may_split(self._splittable(self.splits, second, element))
        try:
            return self._match(second)
        finally:
            more = SPLITS[SPLITS.index(self.splits) + 1 :]
            self.others.update(s for s in more if tracer.unsplit & self._splittable(s, second, element))

    def _match(self, second: SecondMatmul) -> Match | None:
        tracer = second.tracer
        match_weights = match_normalised if self.normalised else match_unnormalised
        missed: NearMiss | None = None
        for weights, values in second.operands:
            if tracer.has_no_softmax(weights) and not second.product.factors:
                continue
            try:
                found = match_weights(second, weights)
            except NearMiss as miss:
                missed = missed or miss
                continue
            except SplitNeeded as split:
                if split.var not in second.k:
                    raise
                raise _KeysSplit.of(second.k, split) from None
            if found is not None and not _is_of_pairs(values, found.first):
                return Match(
                    tracer,
                    self.op.results[0],
                    self.at,
                    second.k,
                    found.softmax,
                    found.first,
                    second.product,
                    weights,
                    peel(tracer, values),
                    found.rounding,
                    second.around.tested,
                    found.beside,
                )
        if missed is not None:
            raise missed
        return None

    @staticmethod
    def _splittable(splits: str, second: SecondMatmul, element: Expr) -> frozenset[Var]:
        k, both = second.k, second.product.lhs.vars & second.product.rhs.vars
        found = (both if splits == "batch" else element.vars) - set(k)
        return found | set(k) if splits == "keys" and all(v.extent is not None for v in k) else found


def _is_of_pairs(values: Expr, first: FirstMatmul) -> bool:
    """Whether there is a value for each query and key, and no columns of them: a sum over pairs (pairwise.py)."""
    scores = first.scores.element.vars
    own = first.queries.element.vars - first.keys.element.vars - {*first.scores.loops}
    return bool(own) and own <= values.vars <= scores


def variables_of(value: ir.Value) -> tuple[Index, ...]:
    """A variable for each dimension of a tensor, but those of one element."""
    return tuple(Index() if size == 1 else Index.of(Var(size)) for size in extents(value))


def split_variables(at: tuple[Index, ...], split: SplitNeeded) -> tuple[Index, ...]:
    """The indices with the variable that must become two replaced by these."""
    outer = Var(None if split.var.extent is None else split.var.extent // split.inner)
    replacement = Index.of(outer).scaled(split.inner).plus(Index.of(Var(split.inner)))
    return tuple(_substituted(i, split.var, replacement) for i in at)


def _substituted(index: Index, var: Var, replacement: Index) -> Index:
    result = Index((), index.constant)
    for v, c in index.terms:
        result = result.plus(replacement if v is var else Index.of(v), c)
    return result


def match_normalised(second: SecondMatmul, probabilities: Expr) -> Weights | None:
    """What `second` multiplies values by, if it is a softmax; NearMiss if it looks like one and is none."""
    try:
        return _match_quotient(second, probabilities)
    except NearMiss as miss:  # unless logarithms, of weights of keys, belong to the scores
        k, tracer = second.k, second.tracer
        if not any(n.name == "math.log" and varies(n, k) for n in tracer.expand(probabilities).nodes()):
            raise
        with contextlib.suppress(NearMiss):
            return _match_quotient(second, probabilities, logs=k)
        raise miss from None


def _match_quotient(second: SecondMatmul, probabilities: Expr, logs: Keys = ()) -> Weights | None:
    """`logs`: see `quotient`."""
    tracer, k, around = second.tracer, second.k, second.around
    q, rounding = split_rounding(tracer, quotient(tracer, tracer.expand(probabilities), logs), k)
    factors = [tracer.expand(f) for f in second.product.factors]
    tested = q.tested
    q = Quotient([*q.num, *around.num, *factors], [*q.den, *around.den], tested or around.tested)
    inside = [n for f in [*q.num, *q.den] for n in f.nodes()]
    softmaxes = [n for n in inside if softmax_of(n) is not None]
    if not softmaxes and not q.den and not any(n.name in EXPONENTIALS for n in inside):
        _require_no_matmul(tracer, q, k)
        _require_no_hidden_softmax(tracer, q)
        return None
    seen = nodes_through(tracer, q.num)
    for first in first_matmuls(tracer, seen, k):
        is_computed = computed_from(first.scores)
        softmax = match_softmax(tracer, q, k, is_computed, logs)
        if softmax is not None and first.scores.element in set(softmax.scores.nodes()):
            _require_own_sums(softmax, first.scores)
            _require_one_rounding(softmax, first.scores, is_computed)
            if rounding is not None:
                rounding.check(softmax)
            nodes = (node for expr in (softmax.scores, *softmax.weights) for node in expr.nodes())
            beside = matmuls_beside(tracer, first, nodes, k)
            return Weights(replace(softmax, tested=tested), first, rounding, beside)
    _require_factors(tracer, q, k)
    if softmaxes or any(is_sum_of_exponentials(tracer, d, k) for d in q.den):
        _require_visible(seen, k)
    return None


def _require_one_rounding(softmax: Softmax, scores: Contraction, is_computed: Callable[[Expr], bool]) -> None:
    """NearMiss if scores are compared with what is computed from them, such as the least of those that are kept, or if
    a function is taken of their differences to one of them. They would be computed once more in the loop, in another
    order, and equal ones differ in their last digits."""
    is_chosen = chosen_from(scores)
    for node in softmax.scores.nodes():
        if node.name == "arith.cmpf" and scores.element in set(node.nodes()) and any(map(is_computed, node.args)):
            raise NearMiss("its scores are compared with what is computed from all of them, such as the k-th largest")
    for node in dict.fromkeys(n for function in _functions(softmax.scores) for n in function.nodes()):
        if node.name in ADDITIVE and scores.element in set(node.nodes()) and any(map(is_chosen, node.args)):
            raise NearMiss("its scores are a function of their differences to one of them, such as the largest")


def _functions(expr: Expr) -> list[Expr]:
    """The outermost functions in an expression. What is added or chosen outside of them, softmax takes as it takes
    scores: it is off by no more than their own rounding."""
    found, pending, seen = [], [expr], {expr}
    while pending:
        node = pending.pop()
        if node.name in STRAIGHT:
            pending += [arg for arg in node.args if arg not in seen]
            seen.update(node.args)
        elif node.kind == "op" and node.name not in EXPONENTIALS:  # of which `_require_own_sums` tells
            found.append(node)
    return found


def _require_own_sums(softmax: Softmax, scores: Contraction) -> None:
    """NearMiss if scores are probabilities of the same scores, whose maximum and sum are those of halves. In the loop
    they would be computed once more, unrounded, and an exponential of the difference be far from a part of that sum."""
    is_rounded = rounded_from(scores)
    for node in softmax.scores.nodes():
        if node.kind == "op" and node.name in EXPONENTIALS and is_rounded(node) and scores.element in set(node.nodes()):
            raise NearMiss("its scores are probabilities whose own scores were rounded before their maximum was taken")


def _require_factors(tracer: Tracer, q: Quotient, k: Keys) -> None:
    """NearMiss if something else than factors is done to a softmax along `k`."""
    for factor in q.num:
        if factor.kind == "op" and any(is_normalised(tracer, n, k) for n in factor.nodes()):
            name = "arith.select" if factor.name == "arith.uitofp" else factor.name  # see quotients.py
            allowed = "no term of it is an attention" if name in ADDITIVE else "only factors may come in between"
            raise NearMiss(f"its result goes through '{name}', and {allowed}")
    _require_no_matmul(tracer, q, k)


def _require_no_matmul(tracer: Tracer, q: Quotient, k: Keys) -> None:
    """NearMiss if a softmax along `k` goes through a matmul first, as talking heads do."""
    for factor in q.num:
        product = contraction_at(tracer, factor) if factor.kind == "element" and varies(factor, k) else None
        sides = (product.lhs, product.rhs) if product is not None else ()
        for e in (e for e in sides if not tracer.has_no_softmax(e)):
            if any(varies(n, k) and is_normalised(tracer, n, k) for n in tracer.expand(e).nodes()):
                raise NearMiss(ANOTHER_MATMUL)


def _require_no_hidden_softmax(tracer: Tracer, q: Quotient) -> None:
    """NearMiss if a reshape that cannot be taken apart stands between a softmax and the second matmul."""
    for factor in q.num:
        op = defining_op(factor.payload[0]) if factor.kind == "element" else None
        if op is not None and _is_open_reshape(op):
            at = variables_of(op.operands[0])
            whole = quotient(tracer, tracer.expand(tracer.make.element(op.operands[0], at)))
            each = [(v,) for index in at for v in index.vars]
            if any(is_sum_of_exponentials(tracer, d, k) for d in whole.den for k in each):
                raise NearMiss(f"{RESHAPED} hides it from the second matmul{FIXED}")


def _is_open_reshape(op: ir.Operation) -> bool:
    shapes = (*op.operands[0].type.shape, *op.results[0].type.shape) if op.name in MERGING else ()
    return DYNAMIC in shapes


def _require_visible(seen: Sequence[Expr], k: Keys) -> None:
    """NearMiss if something that is not looked into gives what a softmax is of."""
    for node in seen:
        op = defining_op(node.payload[0]) if node.kind == "element" and varies(node, k) else None
        if op is None:
            continue
        if op.name.startswith(ON_TENSORS):
            raise NearMiss(f"'{op.name}' on tensors hides what it is of; convert-elementwise-to-linalg before shows it")
        if node.type != REAL and reduces(op) and len(op.operands) == 3:
            raise NearMiss("its scores are summed as integers; convert queries and keys to floats before")
        if _is_open_reshape(op):
            raise NearMiss(f"{RESHAPED} hides what it is of{FIXED}")
        if op.name.startswith(HIDING):
            way = WAYS_OUT.get(op.name, "")
            raise NearMiss(f"'{op.name}' hides what it is of{way}")


def is_sum(op: ir.Operation) -> bool:
    """Whether `op` may be the second matmul: structured, with one result of floats and a loop that reduces."""
    return reduces(op) and len(op.results) == 1 and isinstance(op.results[0].type.element_type, ir.FloatType)

"""The attention that an op ends: a sum over k of softmax(scores)·values, where the scores hold a sum over d."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...dialects.mlir import ir
from ...dialects.tiling.structured import is_structured, iterator_types
from ..graph import dependents
from ..linear import DYNAMIC
from ..reshapes import RESHAPES
from ..rewriting import defining_op
from .contraction import Contraction, Operand, contraction_at, peel
from .expressions import REAL, ROUND, Expr
from .indices import Index, SplitNeeded, Var
from .loops import extents
from .normalised import is_normalised, is_sum_of_exponentials, softmax_of
from .quotients import Keys, NearMiss, Quotient, quotient, varies
from .relative import EXPONENTIALS
from .rounding import Rounding, split_rounding
from .softmax import Softmax, match_softmax
from .tracing import Tracer
from .unnormalised import match_unnormalised

MAX_SPLITS = 24
ADDITIVE = ("arith.addf", "arith.subf")
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
RESHAPED = "a reshape that merges several open sizes, or makes several of one,"
FIXED = "; fix all of them but one, or keep them apart"
WAYS_OUT = {
    "tensor.insert_slice": "; a select by index or mask would not",
    "func.call": "; --inline-calls=every=1 before shows it",
}


@dataclass(frozen=True)
class Match:
    """What `result` is, at the indices `at`: softmax of an expression of `scores`, or, where it `is_plain`, the
    expression itself, times `values`, summed over `k`."""

    tracer: Tracer
    result: ir.Value
    at: tuple[Index, ...]
    k: Keys
    softmax: Softmax
    scores: Contraction
    queries: Operand
    keys: Operand
    product: Contraction
    probabilities: Expr  # the element of the second matmul's operand, as it was
    values: Operand
    rounding: Rounding | None = None


def match_attention(op: ir.Operation, normalised: bool = True) -> Match | None:
    """The attention whose result is that of `op`, or None. NearMiss if it looks like one and is none.

    Without `normalised`: one that has no softmax.
    """
    missed: NearMiss | None = None
    for splits in ("batch", "output", "keys"):
        try:
            found = _match_with(op, splits, normalised)
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


def _match_with(op: ir.Operation, splits: str, normalised: bool) -> Match | None:
    """Tries with variables of the output's dimensions, split wherever a reshape asks for it.

    `splits` says which variables may be: those that both operands of the second matmul have ("batch"), all of the
    output ("output"), or those of the keys as well ("keys"), as in an image whose scores are [.., height, width].
    """
    at = variables_of(op.results[0])
    parts: tuple[int, ...] = ()
    for _ in range(MAX_SPLITS):
        try:
            return _match(Tracer(), op, at, splits, parts, normalised)
        except _KeysSplit as split:
            parts = split.parts
        except SplitNeeded as split:
            at = split_variables(at, split)
    return None


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


def _match(
    tracer: Tracer, op: ir.Operation, at: tuple[Index, ...], splits: str, parts: tuple[int, ...], normalised: bool
) -> Match | None:
    element = tracer.make.element(op.results[0], at)
    if element.type != REAL:
        return None
    product = contraction_at(tracer, element, parts)
    around = Quotient()
    if product is None:
        # An element-wise op that ends it: the division after the second matmul.
        expanded = tracer.expand(element)
        whole = quotient(tracer, expanded.args[0] if expanded.name == ROUND else expanded)
        for factor in whole.num:
            product = product or (contraction_at(tracer, factor, parts) if factor.kind == "element" else None)
        if product is None:
            return None
        around = Quotient([f for f in whole.num if f is not product.element], whole.den, whole.tested)
    k = product.loops
    several = len(k) != 1 and (not k or any(v.extent is None for v in k))
    if several or (around.den and tracer.expand(product.init).number != 0):
        return None
    both = product.lhs.vars & product.rhs.vars
    tracer.splittable = (both if splits == "batch" else element.vars) - set(k)
    if splits == "keys" and all(v.extent is not None for v in k):
        tracer.splittable |= set(k)
    missed: NearMiss | None = None
    for probabilities, values in ((product.lhs, product.rhs), (product.rhs, product.lhs)):
        if not all(v in probabilities.vars and v in values.vars for v in k):
            continue
        try:
            if normalised:
                found = _match_operands(tracer, product, k, around, probabilities)
            else:
                matmuls = _contractions(tracer, list(tracer.expand(probabilities).nodes()), k)
                found = match_unnormalised(tracer, product, k, around, probabilities, matmuls)
        except NearMiss as miss:
            missed = missed or miss
            continue
        except SplitNeeded as split:
            if split.var not in k:
                raise
            extents_ = [v.extent or 1 for v in k]
            i = k.index(split.var)
            extents_[i : i + 1] = [extents_[i] // split.inner, split.inner]
            raise _KeysSplit(tuple(extents_)) from None
        if found is not None:
            softmax, scores, queries, keys, rounding = found
            value = peel(tracer, values)
            return Match(
                tracer, op.results[0], at, k, softmax, scores, queries, keys, product, probabilities, value, rounding
            )
    if missed is not None:
        raise missed
    return None


def _match_operands(
    tracer: Tracer, product: Contraction, k: Keys, around: Quotient, probabilities: Expr
) -> tuple[Softmax, Contraction, Operand, Operand, Rounding | None] | None:
    try:
        return _match_quotient(tracer, product, k, around, probabilities, ())
    except NearMiss as miss:  # unless logarithms, of weights of keys, belong to the scores
        if not any(n.name == "math.log" and varies(n, k) for n in tracer.expand(probabilities).nodes()):
            raise
        with contextlib.suppress(NearMiss):
            return _match_quotient(tracer, product, k, around, probabilities, k)
        raise miss from None


def _match_quotient(
    tracer: Tracer, product: Contraction, k: Keys, around: Quotient, probabilities: Expr, logs: Keys
) -> tuple[Softmax, Contraction, Operand, Operand, Rounding | None] | None:
    q, rounding = split_rounding(tracer, quotient(tracer, tracer.expand(probabilities), logs), k)
    factors = [tracer.expand(f) for f in product.factors]
    q = Quotient([*q.num, *around.num, *factors], [*q.den, *around.den], q.tested or around.tested)
    inside = [n for f in [*q.num, *q.den] for n in f.nodes()]
    softmaxes = [n for n in inside if softmax_of(n) is not None]
    if not softmaxes and not q.den and not any(n.name in EXPONENTIALS for n in inside):
        _require_no_matmul(tracer, q, k)
        _require_no_hidden_softmax(tracer, q)
        return None
    seen = [n for f in q.num for n in f.nodes()]
    for element in softmaxes:
        tensor, indices = element.payload
        seen += tracer.expand(tracer.make.element(defining_op(tensor).operands[0], indices)).nodes()
    for scores, queries, keys in _contractions(tracer, seen, k):
        dependent = dependents(scores.reduction.op)

        def is_computed(e: Expr, scores=scores, dependent=dependent) -> bool:
            return any(
                n.kind == "element" and n is not scores.element and defining_op(n.payload[0]) in dependent
                for n in e.nodes()
            )

        softmax = match_softmax(tracer, q, k, is_computed, logs)
        if softmax is not None and scores.element in set(softmax.scores.nodes()):
            _require_one_rounding(softmax, scores, is_computed)
            if rounding is not None:
                rounding.check(softmax)
            return softmax, scores, queries, keys, rounding
    _require_factors(tracer, q, k)
    if softmaxes or any(is_sum_of_exponentials(tracer, d, k) for d in q.den):
        _require_visible(seen, k)
    return None


def _require_one_rounding(softmax: Softmax, scores: Contraction, is_computed: Callable[[Expr], bool]) -> None:
    """NearMiss if scores are compared with what is computed from them, such as the least of those that are kept. They
    would be computed once more in the loop, in another order, and equal ones differ in their last digits."""
    for node in softmax.scores.nodes():
        if node.kind == "op" and node.name == "arith.cmpf":
            others = [a for a in node.args if is_computed(a)]
            if others and scores.element in {n for a in node.args for n in a.nodes()}:
                raise NearMiss(
                    "its scores are compared with what is computed from all of them, such as the k-th largest"
                )


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
        for e in (product.lhs, product.rhs) if product is not None else ():
            if any(is_normalised(tracer, n, k) for n in tracer.expand(e).nodes()):
                raise NearMiss("its result goes through another matmul in between")


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
    return op.name in RESHAPES and DYNAMIC in (*op.operands[0].type.shape, *op.results[0].type.shape)


def _require_visible(seen: Sequence[Expr], k: Keys) -> None:
    """NearMiss if something that is not looked into gives what a softmax is of."""
    for node in seen:
        op = defining_op(node.payload[0]) if node.kind == "element" and varies(node, k) else None
        if op is None:
            continue
        if op.name.startswith(ON_TENSORS):
            raise NearMiss(f"'{op.name}' on tensors hides what it is of; convert-elementwise-to-linalg before shows it")
        if node.type != REAL and is_structured(op) and "reduction" in iterator_types(op) and len(op.operands) == 3:
            raise NearMiss("its scores are summed as integers; convert queries and keys to floats before")
        if _is_open_reshape(op):
            raise NearMiss(f"{RESHAPED} hides what it is of{FIXED}")
        if op.name.startswith(HIDING):
            way = WAYS_OUT.get(op.name, "")
            raise NearMiss(f"'{op.name}' hides what it is of{way}")


def _contractions(tracer: Tracer, nodes: list[Expr], k: Keys) -> list[tuple[Contraction, Operand, Operand]]:
    """The first matmuls among the elements `nodes`, those with most dimensions first: with queries and keys."""
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
            found.append((contraction, peel(tracer, queries), peel(tracer, keys)))
    return sorted(found, key=lambda c: -len(c[0].element.vars))


def is_sum(op: ir.Operation) -> bool:
    """Whether `op` may be the second matmul: structured, with one result of floats and a loop that reduces."""
    return (
        is_structured(op)
        and len(op.results) == 1
        and isinstance(op.results[0].type.element_type, ir.FloatType)
        and "reduction" in iterator_types(op)
    )

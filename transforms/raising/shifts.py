"""Derivatives that go back through the maximum which scores are relative to in a softmax written by hand.

    e = exp(s − m)      x = (a + c)·e                  the derivative by s, were m constant
                        y = x + [s = m]·(−Σ_k x)/n     with what goes through m: to the n largest scores, or to one

Softmax is the same whatever m is: Σ_k x is 0, as c is −(Σ_k a·e) / l, where l = Σ_k e. Where that is seen, y is x. The
sum in c may be one over the output of the attention, Σ_d g·(Σ_k e·v) for Σ_k e·(Σ_d g·v), where that is divided by l
behind the second matmul.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from ...dialects.mlir import ir
from ...dialects.tiling.structured import all_parallel, body_names
from ..rewriting import defining_op
from .expressions import EXPONENTIALS, Expr
from .indices import Index, Var
from .matching import variables_of
from .quotients import Keys, Quotient, along_k, is_mask, quotient, summed, varies, without
from .tracing import Tracer

Factors = tuple[float, Counter[Expr]]  # a number times powers of what is no sum


def may_go_through_maximum(op: ir.Operation) -> bool:
    """Whether an op adds to a tensor what has a condition as a factor, or is a choice."""
    if op.name != "linalg.generic" or not all_parallel(op) or body_names(op) != ["arith.addf"]:
        return False
    return any(_has_condition(defining_op(v)) for v in list(op.operands)[:2])


def _has_condition(product: ir.Operation | None) -> bool:
    if product is None or product.name != "linalg.generic" or not all_parallel(product):
        return False
    if "arith.select" in body_names(product):
        return True
    makers = [product, *map(defining_op, product.operands)]
    named = [body_names(o) for o in makers if o is not None and o.name == "linalg.generic"]
    return "arith.mulf" in body_names(product) and any("arith.uitofp" in names for names in named)


def without_maximum(op: ir.Operation) -> ir.Value | None:
    """Which of its operands the result of `op` is, as what is added to it through a maximum is 0; None if it is not."""
    tracer = Tracer()
    at = variables_of(op.results[0])
    whole = tracer.step(tracer.make.element(op.results[0], at))
    if whole is None or whole.name != "arith.addf" or any(a.kind != "element" for a in whole.args):
        return None
    for x, through in (whole.args, whole.args[::-1]):
        inside = tracer.expand(x)
        k = _keys(tracer, inside, tracer.expand(through))
        if k is not None and _sums_to_zero(tracer, inside, k):
            return next((v for v in op.operands if v == x.payload[0] and v.type == op.results[0].type), None)
    return None


def _keys(tracer: Tracer, x: Expr, through: Expr) -> Keys | None:
    """The keys k, if x is a multiple of exp(s − m), m of each row, and `through` is −Σ_k x for some keys, shared by all
    of these where it is divided by their number."""
    relative = [f.args[0] for f in quotient(tracer, x).num if f.name in EXPONENTIALS and f.args[0].name == "arith.subf"]
    k = tuple(frozenset[Var]().union(*(s.vars - m.vars for s, m in (e.args for e in relative))))
    if len(relative) != 1 or len(k) != 1:
        return None
    q = quotient(tracer, through)
    masks = [f for f in q.num if is_mask(f)]
    if not masks or not all(_counts(tracer, count, masks, k) for count in q.den):
        return None
    number, sums = _numbers(without(q.num, masks))
    body = _summed(tracer, sums[0], k) if len(sums) == 1 else None
    return k if body is not None and number * body[0] == -1 and body[1] is x else None


def _counts(tracer: Tracer, count: Expr, masks: Sequence[Expr], k: Keys) -> bool:
    """Whether `count` is Σ_k c for one of the masks c, counted in floats or in integers."""
    body = summed(tracer, count, k)
    if body is not None:
        return body in masks
    whole = count.args[0] if count.name in ("arith.sitofp", "arith.uitofp") else count
    reduction = tracer.reduction(whole) if whole.kind == "element" else None
    if reduction is None or reduction.kind != "count" or tracer.expand(reduction.init).number != 0:
        return False
    body = along_k(tracer, reduction, k)
    return body is not None and body.name == "arith.extui" and any(body.args[0] is mask.args[0] for mask in masks)


def _numbers(factors: Sequence[Expr]) -> tuple[float, list[Expr]]:
    """The product of those that are numbers, and the others."""
    return math.prod(f.number for f in factors if f.number is not None), [f for f in factors if f.number is None]


def _summed(tracer: Tracer, total: Expr, k: Keys) -> tuple[float, Expr] | None:
    """(c, x) where `total` is c·Σ_k x, also as a sum over a dimension of one element of that."""
    number = 1.0
    while total.kind == "element":
        body = summed(tracer, total, k)
        if body is not None:
            sign = -1.0 if body.name == "arith.negf" else 1.0
            return number * sign, body.args[0] if sign < 0 else body
        total = _of_one(tracer, total)
        if total.name == "arith.negf":
            number, total = -number, total.args[0]
    return None


def _of_one(tracer: Tracer, total: Expr) -> Expr:
    """What a sum over dimensions of one element is of; a constant for anything else."""
    reduction = tracer.reduction(total)
    if reduction is None or reduction.kind != "sum" or any(reduction.extent(d) != 1 for d in reduction.loops):
        return tracer.make.const(0.0)
    return tracer.expand(reduction.body([Index()] * len(reduction.loops)))


def _sums_to_zero(tracer: Tracer, x: Expr, k: Keys) -> bool:
    """Whether Σ_k x is 0: x is (a + c)·e with Σ_k a·e = −c·l."""
    q = quotient(tracer, x)
    varying = [f for f in q.num if varies(f, k)]
    exponentials = [f for f in varying if f.name in EXPONENTIALS]
    if len(varying) != 2 or len(exponentials) != 1 or any(varies(d, k) for d in q.den):
        return False
    (e,) = exponentials
    (total,) = without(varying, [e])
    if total.name not in ("arith.addf", "arith.subf"):
        return False
    for a, c in (total.args, total.args[::-1]):
        if varies(c, k) or not varies(a, k):
            continue
        sign = 1.0 if total.name == "arith.subf" else -1.0  # a − c, c − a: Σ_k a·e = c·l
        for l in _sums_of(tracer, [a, c], e, k):
            bound = _Bound(k, l)
            ours = [*_opened(tracer, [e, a], bound, frozenset(k))]
            theirs = _opened(tracer, [l, c], bound, frozenset())
            if any(one[1] == other[1] and one[0] == sign * other[0] for other in theirs for one in ours):
                return True
    return False


def _sums_of(tracer: Tracer, exprs: Sequence[Expr], e: Expr, k: Keys) -> Iterator[Expr]:
    """Elements that are Σ_k e, of which one is a divisor somewhere in the expressions or what they sum."""
    pending, seen = list(exprs), set[Expr]()
    while pending:
        for node in pending.pop().nodes():
            if node.kind != "element" or node in seen:
                continue
            seen.add(node)
            if summed(tracer, node, k) is e:
                yield node
            elif (reduction := tracer.reduction(node)) is not None and reduction.kind == "sum" and len(seen) < 64:
                loops = [Index() if reduction.extent(d) == 1 else Index.of(Var(None)) for d in reduction.loops]
                pending.append(tracer.expand(reduction.body(loops)))


class _Bound:
    """The variables that sums are over, by their size: the keys, and others; `whole` is a sum that stays one."""

    def __init__(self, k: Keys, whole: Expr):
        self.k, self.whole, self.others = k, whole, dict[int | None, list[Var]]()

    def choices(self, extent: int | None, used: frozenset[Var]) -> list[Var]:
        """Those that a sum may be over, beside others of the same product that are over those `used`."""
        others = self.others.setdefault(extent, [])
        if all(v in used for v in others):
            others.append(Var(extent))
        free = next(v for v in others if v not in used)
        return [*(v for v in self.k if v.extent == extent and v not in used), free]


def _opened(tracer: Tracer, factors: Sequence[Expr], bound: _Bound, used: frozenset[Var]) -> Iterator[Factors]:
    """The product of `factors` with all sums among them opened, in each way in which what these are over may be the
    bound variables, each but those that are `used` for one of them."""
    parts = [quotient(tracer, f, bound.k) for f in factors]
    q = Quotient([f for p in parts for f in p.num], [f for p in parts for f in p.den])
    common = [f for f in q.num if f in q.den]
    num, den = without(q.num, common), without(q.den, common)
    for total in num:
        reduction = tracer.reduction(total) if total.kind == "element" and total is not bound.whole else None
        if reduction is None or reduction.kind != "sum" or tracer.expand(reduction.init).number != 0:
            continue
        extents = [reduction.extent(d) for d in reduction.loops]
        if sum(e != 1 for e in extents) > 1:
            continue
        (extent,) = [e for e in extents if e != 1] or [1]
        for var in [None] if extent == 1 else bound.choices(extent, used):
            at = Index() if var is None else Index.of(var)
            body = tracer.expand(reduction.body([Index() if e == 1 else at for e in extents]))
            inverse = [tracer.make.op("arith.divf", (tracer.make.const(1.0), d)) for d in den]
            rest = [*without(num, [total]), body, *inverse]
            yield from _opened(tracer, rest, bound, used if var is None else used | {var})
        return
    number, others = _numbers(num)
    powers = Counter(others)
    powers.subtract(den)
    yield number, Counter({f: n for f, n in powers.items() if n})

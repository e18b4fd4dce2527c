"""Sums of probabilities: the second matmul is linear, so that each term of them may have one of its own.

    (softmax(s₁) − λ·softmax(s₂))·V   is   softmax(s₁)·V − (λ·softmax(s₂))·V       (differential attention)
    (softmax(s) + w)·V                     softmax(s)·V + w·V
    (p + p·w)·V                            (p·(1 + w))·V

Terms of one softmax stay together, as do all that are none, or of which no attention comes. What the latter do not vary
along is no dimension of their product: for a constant it is a sum of values.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from ...dialects import build
from ...dialects.mlir import ir
from ..graph import erase_with_producers
from .contraction import Contraction, contraction_at
from .emission import Emitter, Unreadable
from .expressions import REAL, Expr
from .indices import Index, SplitNeeded, Var
from .matching import ADDITIVE, MAX_SPLITS, Match, match_attention, split_variables, variables_of
from .normalised import is_normalised
from .quotients import Keys, NearMiss, varies
from .tensors import contract, counted_by, shaped
from .tracing import Tracer


@dataclass(frozen=True)
class Distributed:
    """Attentions, each the result of an op of its own, and `value`, what they and the rest sum up to."""

    matches: list[Match]
    value: ir.Value


@dataclass(frozen=True)
class Sum:
    """Σ coefficient·softmax + `rest`; `is_sum` tells whether anything was added up."""

    terms: dict[Expr, Expr]  # the coefficient of each softmax
    rest: Expr | None
    is_sum: bool = False


def distributed(op: ir.Operation) -> Distributed | None:
    """What `op` is as a sum, emitted before it; None if it sums no products with a sum of probabilities."""
    at = variables_of(op.results[0])
    for _ in range(MAX_SPLITS):
        tracer = Tracer()
        element = tracer.make.element(op.results[0], at)
        if element.type != REAL:
            return None
        tracer.may_split(element.vars)
        try:
            product = contraction_at(tracer, element)
            found = _sum_of_probabilities(tracer, product) if product is not None else None
            if product is None or found is None:
                return None
            with ir.InsertionPoint(op), op.location:
                return _Distribution(tracer, op, at, product, *found).emitted()
        except SplitNeeded as split:
            at = split_variables(at, split)
        except Unreadable:
            return None
    return None


def _sum_of_probabilities(tracer: Tracer, product: Contraction) -> tuple[Sum, Expr, Expr] | None:
    """The sum that one operand of the products is, that operand, and the values."""
    k = product.loops
    for probabilities, values in ((product.lhs, product.rhs), (product.rhs, product.lhs)):
        if not k or not all(v in probabilities.vars and v in values.vars for v in k):
            continue
        found = _Terms(tracer, k).of(probabilities)
        if found.terms and found.is_sum:
            return found, probabilities, values
    return None


class _Terms:
    """Takes an expression apart into softmaxes along k with coefficients, and the rest.

    Softmaxes are elements of tensors where there are such, not looked into: what is computed once stays so.
    """

    def __init__(self, tracer: Tracer, k: Keys):
        self.tracer, self.make, self.k = tracer, tracer.make, k
        self.one = tracer.make.const(1.0)
        self.holds_one = functools.cache(self._holds_one)
        self.of = functools.cache(self._of)

    def _holds_one(self, e: Expr) -> bool:
        return any(is_normalised(self.tracer, n, self.k) for n in self.tracer.expand(e).nodes())

    def _of(self, e: Expr) -> Sum:
        expanded = self.tracer.expand(e)
        if not self.holds_one(e):
            return Sum({}, expanded if len(expanded.vars) < len(e.vars) else e)
        if e.kind == "element":
            e = self.tracer.origin(e)  # of what is stored in several layouts, or in parts
            stepped = self.tracer.step(e)
            inner = self.of(stepped) if stepped is not None else Sum({e: self.one}, None)
            return Sum({e: self.one}, None) if list(inner.terms.values()) == [self.one] and not inner.is_sum else inner
        found: Sum | None = None
        if e.name in ADDITIVE:
            first, second = (self.of(a) for a in e.args)
            return self._plus(first, self._negated(second) if e.name == "arith.subf" else second)
        if e.name == "arith.negf":
            return self._negated(self.of(e.args[0]))
        if e.name == "arith.mulf":
            for factor, other in (e.args, e.args[::-1]):
                if not self.holds_one(factor):
                    found = self._scaled(self.of(other), functools.partial(self.make.mul, self.tracer.expand(factor)))
        elif e.name == "arith.divf" and not is_normalised(self.tracer, expanded, self.k):
            if not self.holds_one(e.args[1]):
                divisor = self.tracer.expand(e.args[1])
                found = self._scaled(self.of(e.args[0]), lambda x: self.make.op(e.name, (x, divisor)))
        elif e.name == "arith.select" and not self.holds_one(e.args[0]):
            condition, zero = self.tracer.expand(e.args[0]), self.make.const(0.0)
            found = self._plus(
                self._scaled(self.of(e.args[1]), lambda x: self.make.op(e.name, (condition, x, zero))),
                self._scaled(self.of(e.args[2]), lambda x: self.make.op(e.name, (condition, zero, x))),
            )
        # A reciprocal of a sum is no softmax: what it is multiplied by belongs to it.
        if found is None or not all(varies(softmax, self.k) for softmax in found.terms):
            return Sum({e: self.one}, None)
        return found

    def _scaled(self, given: Sum, by: Callable[[Expr], Expr]) -> Sum:
        rest = None if given.rest is None else by(given.rest)
        return Sum({softmax: by(c) for softmax, c in given.terms.items()}, rest, given.is_sum)

    def _negated(self, given: Sum) -> Sum:
        return self._scaled(given, lambda x: self.make.mul(x, self.make.const(-1.0)))

    def _plus(self, a: Sum, b: Sum) -> Sum:
        terms = dict(a.terms)
        for softmax, c in b.terms.items():
            terms[softmax] = self.make.add(terms[softmax], c) if softmax in terms else c
        rests = [s.rest for s in (a, b) if s.rest is not None and s.rest.number != 0]
        is_sum = a.is_sum or b.is_sum or len(a.terms) + len(b.terms) + len(rests) > 1
        return Sum(terms, functools.reduce(self.make.add, rests) if rests else None, is_sum)


class _Distribution:
    def __init__(
        self,
        tracer: Tracer,
        op: ir.Operation,
        at: tuple[Index, ...],
        product: Contraction,
        found: Sum,
        probabilities: Expr,
        values: Expr,
    ):
        self.tracer, self.make, self.product, self.found = tracer, tracer.make, product, found
        self.result = op.results[0]
        self.groups = [counted_by(i, s) for i, s in zip(at, self.result.type.shape, strict=True)]
        self.out = [v for group in self.groups for v in group]
        self.element, self.stored = self.result.type.element_type, probabilities.payload[0].type.element_type
        wide = "f64" in (str(self.element), str(self.stored))
        self.emit = Emitter(tracer, ir.F64Type.get() if wide else ir.F32Type.get())
        for operand in (probabilities, values):
            self.emit.know_sizes(self.emit.element_access(operand))
        self.values = self.emit.load(self.emit.element_access(values))

    def emitted(self) -> Distributed | None:
        """None if none of the terms is an attention."""
        matches: list[Match] = []
        left: list[ir.Operation] = []
        total, rest = self.tracer.expand(self.product.init), self.found.rest
        for softmax, coefficient in self.found.terms.items():
            term = self.make.mul(softmax, coefficient)
            op, element = self._product(term)
            match = _attention(op)
            if match is not None:
                matches.append(match)
                total = self.make.add(total, element)
            else:
                left.append(op)
                rest = term if rest is None else self.make.add(rest, term)
        value: ir.Value | None = None
        if matches:
            if rest is not None:
                total = self.make.add(total, self._product(rest)[1])
            value = shaped(self.emit.elementwise(total, self.out, self.element), self.groups, self.result.type)
        for op in left:  # now that no one asks for what they share any more
            erase_with_producers(op)
        return None if value is None else Distributed(matches, value)

    def _product(self, term: Expr) -> tuple[ir.Operation, Expr]:
        """Σ term·values over the keys, over what the two vary along; its element, times what all products have."""
        k = self.product.loops
        dims = [v for v in (*self.out, *k) if v in term.vars or v in k]
        tensor = self._tensor(term, dims)
        values, values_vars = self.values
        left = [v for v in self.out if v in dims or v in values_vars]
        op = contract(self.emit, tensor, dims, values, values_vars, left, k, str(self.element))
        element = self.make.element(op.results[0], tuple(Index.of(v) for v in left))
        return op, functools.reduce(self.make.mul, map(self.tracer.expand, self.product.factors), element)

    def _tensor(self, term: Expr, dims: list[Var]) -> ir.Value:
        if term.kind == "element":
            found = self.emit.element_access(term)
            if found.dims == tuple((v,) for v in dims) and found.plain:
                return build.convert_elements(found.tensor, self.stored)
        return self.emit.elementwise(term, dims, self.stored)


def _attention(op: ir.Operation) -> Match | None:
    try:
        return match_attention(op)
    except NearMiss:
        return None

"""The attention in its normal form, in place of the op that ends it::

%s   = linalg.generic  // Q·Kᵀ over [batch…, m, k, d]: products summed
%x   = linalg.generic  // what stands between: element-wise, in f32 for narrow floats
%p:4 = linalg_ext.softmax dimension(…) ins(%x) outs(…, %minus_inf, %zero, …)
%pc  = linalg.generic  // the cast to the second matmul's type, if there is one, or to 8 bits, with a scale; weights
%o   = linalg.generic  // P·V over [batch…, m, n, k]
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence

from ...dialects import build
from ...dialects.linalg_ext import SoftmaxOp
from ...dialects.mlir import arith, ir
from ..attention import ATTENTION
from ..slices import insert
from .emission import Access, Unreadable, with_unit
from .expressions import REAL, Expr
from .given_rows import by_rows
from .indices import Index, Var
from .inner import Inner
from .joining import joined
from .matching import Match
from .own_sums import OwnSum
from .pairwise_result import Pairwise
from .quotients import is_mask
from .relative import Relative
from .scores import Scores
from .sinks import Beside
from .softmax import Softmax
from .statistics import Statistic
from .tensors import contract, counted_by, shaped

SMALLEST_BITS = {"f32": 150, "f64": 1075}  # 2 to minus that is rounded to 0
LOWEST_MASK = {"f32": -(2.0**127), "f64": -(2.0**1023)}  # of which log2(e) times is a number


def rebuild(match: Match, statistics: Sequence[Statistic] = ()) -> tuple[ir.Value, ir.Operation, list[ir.Value]]:
    """Emits the attention before the op that ends it; returns its value, of that op's type, the second matmul, and what
    stands for the statistics."""
    op = match.result.owner.operation
    with ir.InsertionPoint(op), op.location:
        if match.values is None:
            return *Pairwise(by_rows(match)).value(), []
        attention = _Attention(joined(by_rows(match)), match.follows)
        value, root = attention.value()
        return value, root, [attention.statistic(s) for s in statistics]


class _Attention(Scores):
    """Emits it, by way of its scores."""

    def __init__(self, match: Match, follows: bool):
        super().__init__(match)
        self.follows = follows
        self.product_element = match.product.element.payload[0].type.element_type
        self.share: tuple[Expr, ...] = ()

    def value(self) -> tuple[ir.Value, ir.Operation]:
        """What the attention is, and its second matmul."""
        match = self.match
        (queries, query_factors), (keys, key_factors) = self.factors(match.first)
        values, value_factors = self._choose(match.values, "values")
        self.emit.know_sizes(values)
        self.value_element = values.tensor.type.element_type
        queries, keys, values = self._with_units(queries, keys, values)
        self._check(queries, keys, values)
        self.of_queries, self.of_keys = frozenset(queries.vars) - frozenset(keys.vars), frozenset({self.k})
        factors = [*query_factors, *key_factors]
        x = match.softmax.scores
        if match.softmax.inner is not None:
            self._emit_products(queries, keys, factors)
            x = self._with_probabilities(x, match.softmax.inner, keys)
        self._emit_products(queries, keys, factors)
        p = self._weights(self._modified(x))
        output, root = self._output(p, values)
        if self.follows:
            root.attributes[ATTENTION] = ir.UnitAttr.get()
        output = self._finished(output, value_factors)
        return shaped(output, self.out_groups, match.result.type), root

    def _with_units(self, queries: Access, keys: Access, values: Access) -> tuple[Access, Access, Access]:
        """The three with dimensions of one element where a single query, key, column or number of a head has none; the
        output, too. Says what `rows` are: the dimensions of scores but the keys'."""
        scores = self.match.scores
        rows = [v for v in self.out if v in self.match.softmax.scores.vars]
        if not set(queries.vars).difference(keys.vars, values.vars, scores.loops):  # rows of both matmuls
            query = Var(1)
            queries = with_unit(queries, query)
            self._return_unit(query, rows)
            rows.append(query)
        if not set(values.vars) - {*rows, self.k}:
            column = Var(1)
            values = with_unit(values, column)
            self._return_unit(column, self.out)
        if self.k.extent == 1:
            keys, values = (found if self.k in found.vars else with_unit(found, self.k) for found in (keys, values))
        self.rows = self._ordered(rows, queries, keys)
        return queries, keys, values

    def _weights(self, x: ir.Value) -> ir.Value:
        """Emits what values are multiplied by: the softmax of `x`, with weights, or `x` itself."""
        if self.match.softmax.is_plain:
            element = self._element_of_probabilities()
            if self.match.softmax.own_sum is not None and isinstance(element, ir.F16Type):
                element = ir.F32Type.get()  # before they are divided by their sum, they may be beyond the range of f16
            return build.convert_elements(x, element)
        softmax = self._softmax(x)
        self.share = self._shares(self.match.softmax)
        weights = [self._of_products(w) for w in self.match.softmax.weights]
        return self._rounded(softmax.result, [self._hoisted(w) for w in weights])

    def _rounded(self, p: ir.Value, weights: Sequence[Expr]) -> ir.Value:
        """The probabilities as the second matmul has them, with weights; of 8 bits, with the factors that they are
        rounded with."""
        rounding = self.match.rounding
        element = rounding.element if rounding is not None else self._element_of_probabilities()
        factors = [*weights, *(rounding.factors if rounding is not None else ())]
        if not factors and rounding is None:
            return build.convert_elements(p, element)
        dims = [*self.rows, self.k]
        scaled = self.make.element(p, tuple(Index.of(v) for v in dims))
        for factor in factors:
            if not is_mask(factor):
                scaled = self.make.mul(scaled, factor)
        for mask in filter(is_mask, factors):
            scaled = self.make.op("arith.select", (mask.args[0], scaled, self.make.const(0.0)))
        return self.emit.elementwise(scaled, dims, element)

    def _element_of_probabilities(self) -> ir.Type:
        """What they are multiplied as: that of values, if that is what they were rounded to before both were widened;
        else as they were."""
        tracer, element = self.tracer, self.match.probabilities
        while isinstance(found := element.payload[0].type.element_type, ir.FloatType):
            if found == self.value_element:
                return found
            inner = tracer.step(tracer.origin(element))
            if inner is None or inner.kind != "element" or _is_rounded(inner, found):
                break
            element = inner
        return self.match.probabilities.payload[0].type.element_type

    def _return_unit(self, unit: Var, rows: Sequence[Var]) -> None:
        """Gives the output the dimension of a single query or column: one of its own of size 1, else a part of the one
        of `rows` before it."""
        last = max((i for i, g in enumerate(self.out_groups) if not g), default=None)
        if last is None:
            last = max((i for i, g in enumerate(self.out_groups) if set(g) & set(rows)), default=0)
        group = self.out_groups[last]
        self.out_groups[last] = [*(v for v in group if v in rows), unit, *(v for v in group if v not in rows)]
        self.out = [v for g in self.out_groups for v in g]

    def _check(self, queries: Access, keys: Access, values: Access) -> None:
        """Unreadable if a dimension of one of them is not where it belongs."""
        match = self.match
        known = {*self.rows, self.k}
        if not all(e.vars <= known for e in (match.softmax.scores, *match.softmax.weights)):
            raise Unreadable("the scores have a dimension that the output lacks")
        if not {*queries.vars, *keys.vars} <= {*known, *match.scores.loops}:
            raise Unreadable("queries or keys have a dimension that the scores lack")
        if not set(values.vars) <= {*self.out, self.k} or not set(self.out) <= {*self.rows, *values.vars}:
            raise Unreadable("the values' dimensions are not those of the output")

    def _with_probabilities(self, x: Expr, inner: Inner, keys: Access) -> Expr:
        """Emits a first attention, of values that are 1, for the maximum m and the sum l of exponentials of each row;
        `x` with exp(y − m)·(1 / l) in place of softmax(y). Not exp(y − (m + log l)): where all keys of a row have a
        low finite number, log l is nothing beside it. Where all is masked the output is 0, and so are both factors."""
        make, at = self.make, tuple(Index.of(v) for v in self.rows)
        element = self._element_of_probabilities()
        softmax = self._softmax(self._emitted(self._without_lower_masks(inner.sum_of.scores)))
        shares = self._shares(inner.sum_of)
        column = Var(128 // element.width)  # as many as fill 16 bytes, to which rows are aligned then
        of_values = [*(v for v in self.rows if v in keys.vars), self.k, column]
        ones = build.fill(build.constant(element, 1.0), self.emit.empty(of_values, element))
        p = build.convert_elements(softmax.result, element)
        kind, dims = str(self.product_element), [*self.rows, column]
        root = contract(self.emit, p, [*self.rows, self.k], ones, of_values, dims, [self.k], kind)
        live = self._compared(arith.CmpFPredicate.UNE, make.element(root.result, (*at, Index())), 0.0)
        share = make.op("arith.divf", (make.const(1.0), make.element(self.sum, at)))
        highest, share = (
            make.element(self.emit.elementwise(found, self.rows, self.compute), at)
            for found in (
                make.op("arith.select", (live, number, make.const(0.0)))
                for number in (make.element(self.maximum, at), share)
            )
        )

        def probability(of: Softmax) -> Expr:
            exponential = make.op("math.exp", (make.op("arith.subf", (self._without_lower_masks(of.scores), highest)),))
            return self._quotient(exponential, [share, *of.num, *shares], of.den)

        return inner.replaced(self.tracer, x, probability)

    def _without_lower_masks(self, scores: Expr) -> Expr:
        """The scores with masks' numbers that the maximum of powers of 2 is none of (exp-to-exp2) replaced by one that
        is: both loops compute the same."""
        lowest = LOWEST_MASK[str(self.compute)]

        def moderate(node: Expr) -> Expr | None:
            is_lower = node.kind == "const" and node.type == REAL and -math.inf < node.number < lowest
            return self.make.const(lowest) if is_lower else None

        return self.make.rewritten(scores, moderate)

    def _shares(self, softmax: Softmax) -> tuple[Expr, ...]:
        """What the keys have of the sum with what is beside them: l / (l + Σ c·exp(y − m)), a factor per row."""
        make = self.make
        share: tuple[Expr, ...] = ()
        at = tuple(Index.of(v) for v in self.rows)
        highest, own = make.element(self.maximum, at), make.element(self.sum, at)

        def amount(beside: Beside) -> Expr:
            if beside.to is not None:
                return make.mul(of_maximum(beside.to, beside.to.factor), beside.factor)
            if beside.score is None:
                return beside.factor
            return make.mul(make.op("math.exp", (make.op("arith.subf", (beside.score, highest)),)), beside.factor)

        def of_maximum(to: Relative, expr: Expr) -> Expr:
            return make.rewritten(expr, lambda n: highest if n is to.maximum else None)

        if softmax.undivided is not None:
            share = (make.op("arith.divf", (own, amount(softmax.undivided))),)
        if softmax.guarded is not None:
            # By the logarithm of what they would be: few exponentials are exact that are about as small as can be.
            to, score = softmax.guarded.to, softmax.guarded.score
            away = of_maximum(to, to.factor.args[0]) if to else make.op("arith.subf", (score, highest))
            away = make.op("arith.subf", (away, make.op("math.log", (own,))))
            is_there = self._compared(arith.CmpFPredicate.OLT, away, SMALLEST_BITS[str(self.compute)] * math.log(2))
            found = self.emit.elementwise(make.op("arith.uitofp", (is_there,)), self.rows, self.compute)
            share = (make.element(found, at),)
        if not softmax.beside and softmax.least is None:
            return share
        total = functools.reduce(make.add, map(amount, softmax.beside), own)
        if softmax.least is not None:
            total = make.op("arith.maximumf", (total, amount(softmax.least)))
        if not total.vars <= set(self.rows):
            raise Unreadable("what is added to the sum of its exponentials has a dimension that the scores lack")
        found = self.emit.elementwise(make.op("arith.divf", (own, total)), self.rows, self.compute)
        return (make.element(found, at),)

    def _compared(self, how: arith.CmpFPredicate, expr: Expr, other: Expr | float) -> Expr:
        return self.make.compared(how, expr, other if isinstance(other, Expr) else self.make.const(other))

    def _zero_unless_number(self, tested: Expr, expr: Expr) -> Expr:
        is_number = self._compared(arith.CmpFPredicate.OEQ, tested, tested)
        return self.make.op("arith.select", (is_number, expr, self.make.const(0.0)))

    def _softmax(self, x: ir.Value) -> SoftmaxOp:
        """Emits the softmax of `x`, whose maximum and sum statistics of rows are."""
        element, rows = x.type.element_type, self.rows
        start, accumulated, scale = (self.emit.empty(rows, element) for _ in range(3))
        lowest = build.fill(build.constant(element, -math.inf), start)
        zeros = build.fill(build.constant(element, 0.0), accumulated)
        output = self.emit.empty([*rows, self.k], element)
        found = SoftmaxOp(
            build.i64_attribute(len(rows)),
            x,
            output,
            lowest,
            zeros,
            scale,
            result=output.type,
            new_max=lowest.type,
            new_accum=zeros.type,
            new_scale=scale.type,
        )
        self.maximum, self.sum = found.new_max, found.new_accum
        return found

    def _output(self, p: ir.Value, values: Access) -> tuple[ir.Value, ir.Operation]:
        """Emits the second matmul; its result, and itself."""
        v, v_vars = self.emit.load(values)
        self.stored = list(self.out)
        if self.match.softmax.own_sum is not None:
            column = next(u for u in reversed(v_vars) if u in self.out and u not in self.rows)
            v, wide = self._with_ones(v, v_vars, column)
            v_vars = tuple(wide if u is column else u for u in v_vars)
            self.stored = [wide if u is column else u for u in self.out]
        root = contract(self.emit, p, [*self.rows, self.k], v, v_vars, self.stored, [self.k], str(self.product_element))
        return root.result, root

    def _with_ones(self, v: ir.Value, v_vars: Sequence[Var], column: Var) -> tuple[ir.Value, Var]:
        """Values with one more column, of ones, and the variable of all columns; with as many as leave rows aligned to
        16 bytes, where they are."""
        if column.extent is None:
            raise Unreadable("its sum would be a further column of values, of which the number is open")
        aligned = 128 // v.type.element_type.width
        wide = Var(column.extent + (1 if column.extent % aligned else aligned))
        whole = self.emit.empty([wide if u is column else u for u in v_vars], v.type.element_type)
        ones = build.fill(build.constant(v.type.element_type, 1.0), whole)
        rank = len(v_vars)
        return insert(v, ones, [0] * rank, [self.emit.size(u) for u in v_vars], [1] * rank), wide

    def _finished(self, output: ir.Value, value_factors: Sequence[Expr]) -> ir.Value:
        """Times what was taken out of softmax and values, plus what the second matmul added to, in the op's type."""
        softmax = self.match.softmax
        stored = self.make.element(output, tuple(Index.of(v) for v in self.out))
        result = self._quotient(stored, [*softmax.num, *self.share], softmax.den)
        if softmax.own_sum is not None:
            result = self.make.op("arith.divf", (result, self._divisor(output, softmax.own_sum)))
        if softmax.tested:
            total = self.make.element(self.sum, tuple(Index.of(v) for v in self.rows))
            result = self._zero_unless_number(total, result)
        result = self._quotient(result, [self.tracer.expand(f) for f in value_factors], ())
        result = self.make.add(self.tracer.expand(self.match.product.init), result)
        if self.match.tested:
            result = self._zero_unless_number(result, result)
        if result is stored:
            return build.convert_elements(output, self.element)
        return self.emit.elementwise(result, self.out, self.element)

    def _divisor(self, output: ir.Value, own: OwnSum) -> Expr:
        """What is made of the sum of what is multiplied by values, the last column of the output."""
        softmax, pairs = self.match.softmax, zip(self.stored, self.out, strict=True)
        at = tuple(Index.of(v) if v is u else Index((), (v.extent or 0) - 1) for v, u in pairs)
        total = self._quotient(self.make.element(output, at), [*softmax.num, *self.share], softmax.den)
        total = self._quotient(total, own.more.den, own.more.num)
        return self.make.rewritten(own.divisor, lambda n: total if n is own.sum else None)

    def _quotient(self, expr: Expr, factors: Iterable[Expr], divisors: Iterable[Expr]) -> Expr:
        for factor in factors:
            expr = self.make.mul(expr, factor)
        for divisor in divisors:
            expr = self.make.op("arith.divf", (expr, divisor))
        return expr

    def statistic(self, wanted: Statistic) -> ir.Value:
        """A statistic of the softmax, as the tensor that it stands for."""
        groups = [counted_by(i, s) for i, s in zip(wanted.at, wanted.value.type.shape, strict=True)]
        at = tuple(Index.of(v) if v in self.match.softmax.scores.vars else Index() for v in self.rows)
        maximum, total = self.make.element(self.maximum, at), self.make.element(self.sum, at)
        if wanted.kind in ("masked", "live"):
            equal = arith.CmpFPredicate.OEQ if wanted.kind == "masked" else arith.CmpFPredicate.UNE
            result = self._compared(equal, maximum, -math.inf)
        elif wanted.kind == "plain sum":
            result = self.make.mul(total, self.make.op("math.exp", (maximum,)))
        else:
            result = total if wanted.kind == "sum" else maximum
        dims = [v for group in groups for v in group]
        value = self.emit.elementwise(result, dims, wanted.value.type.element_type)
        return shaped(value, groups, wanted.value.type)


def _is_rounded(source: Expr, element: ir.FloatType) -> bool:
    """Whether what is made of `source` by a cast to that type is less exact."""
    kind = source.payload[0].type.element_type
    return not isinstance(kind, ir.FloatType) or kind.width > element.width

"""What there is for each query and key, or a sum of it, in place of the op that it is the result of::

%s = linalg.generic  // Q·Kᵀ over [batch…, m, k, d]: products summed; others beside it
%x = linalg.generic  // what is made of them: element-wise, in f32 for narrow floats
%r = linalg.generic  // the sum of %x over k, or over some of [batch…], or %x itself
%t = linalg.generic  // the sum over what is left
"""

from __future__ import annotations

from collections.abc import Sequence

from ...dialects import build
from ...dialects.mlir import arith, ir
from ..pairwise import PAIRWISE
from .emission import Unreadable
from .indices import Index, Var
from .scores import Scores
from .tensors import shaped


class Pairwise(Scores):
    """Emits it, by way of the scores."""

    def value(self) -> tuple[ir.Value, ir.Operation]:
        """What the result is, and the op that sums."""
        match, product = self.match, self.match.product
        (queries, query_factors), (keys, key_factors) = self.factors(match.first)
        known = {*product.loops, *self.out}
        if not {*queries.vars, *keys.vars} <= {*known, *match.scores.loops}:
            raise Unreadable("queries or keys have a dimension that the scores lack")
        self.rows = self._ordered([v for v in (*product.loops, *self.out) if v is not self.k], queries, keys)
        self.of_queries, self.of_keys = frozenset(queries.vars) - frozenset(keys.vars), frozenset({self.k})
        self._emit_products(queries, keys, [*query_factors, *key_factors])
        x = self._modified(match.softmax.scores)
        dims = [*self.rows, self.k]
        if self.k in product.loops:
            total, left = self._sum(x, dims, self.rows), self.rows
        elif product.loops:
            total, left = self._sum(x, dims, self.out), self.out
        else:
            total, left = self._as_it_is(x, dims), self.out
        root = total.owner.operation
        root.attributes[PAIRWISE] = ir.UnitAttr.get()
        if set(left) != set(self.out):
            total, left = self._sum(total, left, self.out), self.out
        return shaped(self._finished(total, left), self.out_groups, match.result.type), root

    def _as_it_is(self, x: ir.Value, dims: Sequence[Var]) -> ir.Value:
        """`x` in the order of the result's dimensions, and of its type."""
        maps = [build.projection(len(dims), [dims.index(v) for v in used]) for used in (dims, self.out)]
        result = self.emit.empty(self.out, self.element)
        iterators = [build.PARALLEL] * len(dims)
        (value,) = build.generic([x], [result], maps, iterators, lambda x, _: build.convert(x, self.element))
        return value

    def _sum(self, x: ir.Value, dims: Sequence[Var], kept: Sequence[Var]) -> ir.Value:
        """The sum of `x`, which has the dimensions `dims`, over all but those that are `kept`."""
        zeros = build.fill(build.constant(self.compute, 0.0), self.emit.empty(kept, self.compute))
        maps = [build.projection(len(dims), [dims.index(v) for v in used]) for used in (dims, kept)]
        iterators = [build.PARALLEL if v in kept else build.REDUCTION for v in dims]
        (value,) = build.generic([x], [zeros], maps, iterators, lambda x, total: arith.addf(total, x))
        return value

    def _finished(self, total: ir.Value, dims: Sequence[Var]) -> ir.Value:
        """The sum with what it adds to, in the result's type and order of dimensions."""
        init = self.tracer.expand(self.match.product.init)
        if init.number == 0 and list(dims) == self.out:
            return build.convert_elements(total, self.element)
        stored = self.make.element(total, tuple(Index.of(v) for v in dims))
        return self.emit.elementwise(self.make.add(init, stored), self.out, self.element)

"""Keys that are counted through by several variables, as the pixels of an image are, made one dimension.

    softmax over (x, y) of Σ q[t, d]·k[x, y, d] + b[t, x, y] + r[t, y]
  becomes
    softmax over j = x·9 + y of Σ q[t, d]·k'[j, d] + b'[t, j] + r'[t, j],  where r'[t, j] = r[t, j mod 9]

k' and b' are k and b with their dimensions collapsed. What is read at x or y alone, or where the two do not lie side by
side, is read by computed indices.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

from ...dialects import build
from ...dialects.mlir import ir, tensor
from ..reshapes import join_dims
from .contraction import Operand
from .emission import Region, Unreadable
from .expressions import Expr
from .indices import Index, Var, combined, mixed_radix, strides
from .loops import extents
from .matmuls import FirstMatmul

if TYPE_CHECKING:
    from .matching import Match


def joined(match: Match) -> Match:
    """The match with one variable for its keys. Emits reshapes; Unreadable if dimensions do not lie side by side."""
    if len(match.k) == 1:
        return match
    return _Joining(match).match()


class _Joining:
    def __init__(self, match: Match):
        self.given = match
        self.tracer, self.make = match.tracer, match.tracer.make
        self.parts = match.k
        self.strides = [s or 1 for s in strides([v.extent for v in self.parts])]
        self.key = Var(math.prod(v.extent or 1 for v in self.parts))
        self.of_queries = match.first.queries.element.vars - match.first.keys.element.vars
        self.reshaped: dict[tuple[ir.Value, int], ir.Value] = {}

    def match(self) -> Match:
        given, softmax = self.given, self.given.softmax
        products = [given.first, *given.beside]
        stand_ins = {p.scores.element: self._stand_in(p.scores.element) for p in products}

        def rewritten(e: Expr) -> Expr:
            return self.make.rewritten(e, lambda n: stand_ins[n] if n in stand_ins else self._replaced(n))

        def of_one(product: FirstMatmul) -> FirstMatmul:
            scores = dataclasses.replace(product.scores, element=stand_ins[product.scores.element])
            return FirstMatmul(scores, product.queries, self._operand(product.keys))

        return dataclasses.replace(
            given,
            k=(self.key,),
            softmax=dataclasses.replace(
                softmax,
                scores=rewritten(softmax.scores),
                weights=tuple(map(rewritten, softmax.weights)),
                inner=softmax.inner and softmax.inner.rewritten(rewritten),
            ),
            first=of_one(given.first),
            beside=tuple(map(of_one, given.beside)),
            values=self._operand(given.values),
        )

    def _stand_in(self, score: Expr) -> Expr:
        """For an element that is computed anew, and never read."""
        tensor_, indices = score.payload
        whole = [Index.of(self.key) if self._leads(i) else self._without(i) for i in indices]
        return self.make.element(tensor_, tuple(whole))

    def _leads(self, index: Index) -> bool:
        """Whether the index is the first of the variables, or all of them together."""
        return index.single is self.parts[0] or index == combined(self.parts)

    def _without(self, index: Index) -> Index:
        return Index(tuple((v, c) for v, c in index.terms if v not in self.parts), index.constant)

    def _replaced(self, node: Expr) -> Expr | None:
        if not any(v in node.vars for v in self.parts):
            return node
        if node.kind == "element":
            for alias in reversed(self.tracer.aliases.get(node, [node])):
                found = self._element(alias)
                if found is not None:
                    return found
            found = self._spread(node)
            if found is None and not node.vars & self.of_queries:
                found = self._moved(node)
            if found is not None:
                return found
            raise Unreadable("softmax is over several dimensions, which do not lie side by side in what is read")
        return self._index(node.payload) if node.kind == "index" else None

    def _spread(self, element: Expr) -> Expr | None:
        """The element of a new tensor at the new variable, for one that is read at some of the variables::

        %wide = linalg.generic outs(%empty : tensor<4x63xf32>) { %r[t, j mod 9] }   // of %r : tensor<4x9xf32>

        None where another variable stands in the same dimension, or the variables stand in several.
        """
        for alias in reversed(self.tracer.aliases.get(element, [element])):
            value, indices = alias.payload
            at = [d for d, i in enumerate(indices) if not i.vars.isdisjoint(self.parts)]
            others = [(i, size) for d, (i, size) in enumerate(zip(indices, extents(value), strict=True)) if d not in at]
            if any(mixed_radix(i, size) is None for i, size in others):
                continue  # not a whole dimension
            if len(at) == 1 and not self._without(indices[at[0]]).terms:
                wide = self._gathered(value, at[0], self._index(indices[at[0]]))
                return self.make.element(
                    wide, tuple(Index.of(self.key) if d in at else i for d, i in enumerate(indices))
                )
        return None

    def _gathered(self, value: ir.Value, dimension: int, index: Expr) -> ir.Value:
        """`value` with `dimension` as long as there are keys, read at `index`, a formula of the new variable."""
        dims = [self.key if d == dimension else Var(s) for d, s in enumerate(extents(value))]
        sizes = [tensor.dim(value, build.index(d)) if v.extent is None else v.extent for d, v in enumerate(dims)]
        element = value.type.element_type

        def body(_: ir.Value) -> ir.Value:
            region = Region(element, {}, dims)
            places = [region.value(index if v is self.key else self.make.index(Index.of(v))) for v in dims]
            return tensor.extract(value, places)

        everywhere = build.projection(len(dims), range(len(dims)))
        return build.generic([], [build.empty(sizes, element)], [everywhere], [build.PARALLEL] * len(dims), body)[0]

    def _index(self, index: Index) -> Expr:
        """The variables of keys in an index as quotients and remainders of the new one."""
        kind = ir.IndexType.get()
        key = self.make.index(Index.of(self.key))
        total = self.make.index(self._without(index))
        for var, coefficient in index.terms:
            if var not in self.parts:
                continue
            stride = self.strides[self.parts.index(var)]
            part = self.make.op("arith.divsi", (key, self.make.const(stride, kind)), kind) if stride > 1 else key
            if var is not self.parts[0]:
                part = self.make.op("arith.remsi", (part, self.make.const(var.extent or 1, kind)), kind)
            scaled = self.make.op("arith.muli", (part, self.make.const(coefficient, kind)), kind)
            total = self.make.op("arith.addi", (total, scaled), kind)
        return total

    def _operand(self, operand: Operand) -> Operand:
        choices = [(self._element(e), factors) for e, factors in operand.choices]
        kept = tuple((e, factors) for e, factors in choices if e is not None)
        if not kept:
            moved = ((self._moved(e), factors) for e, factors in reversed(operand.choices))
            kept = tuple(next(([(e, factors)] for e, factors in moved if e is not None), []))
        if not kept:
            raise Unreadable("softmax is over several dimensions, which do not lie side by side in keys or values")
        return Operand(kept)

    def _element(self, element: Expr) -> Expr | None:
        """The element at the new variable, of the same tensor or of a reshaped one; None if there is none."""
        value, indices = element.payload
        first = next((d for d, i in enumerate(indices) if i.single is self.parts[0]), None)
        if first is not None and [i.single for i in indices[first : first + len(self.parts)]] == list(self.parts):
            rest = [*indices[:first], *indices[first + len(self.parts) :]]
            if any(v in i.vars for i in rest for v in self.parts):
                return None
            rest.insert(first, Index.of(self.key))
            return self.make.element(self._collapsed(value, first), tuple(rest))
        together = [self._together(i) for i in indices]
        if None in together:
            return None
        return self.make.element(value, tuple(i for i in together if i is not None))

    def _moved(self, element: Expr) -> Expr | None:
        """The element at the new variable of a copy that has the dimensions of the variables side by side, as of
        queries [t, head, group, d] that share keys; None where they are no dimensions of their own."""
        value, indices = element.payload
        own = [next((d for d, i in enumerate(indices) if i.single is v), None) for v in self.parts]
        rest = [d for d in range(len(indices)) if d not in own]
        if None in own or any(v in indices[d].vars for d in rest for v in self.parts):
            return None
        last = sum(d < max(d for d in own if d is not None) for d in rest)
        order = [*rest[:last], *(d for d in own if d is not None), *rest[last:]]
        sizes, rank = build.mixed_sizes(value), len(order)
        maps = [build.projection(rank, [order.index(d) for d in range(rank)]), build.projection(rank, range(rank))]
        empty = build.empty([sizes[d] for d in order], value.type.element_type)
        (copy,) = build.generic([value], [empty], maps, [build.PARALLEL] * rank, lambda x, _: x)
        return self._element(self.make.element(copy, tuple(indices[d] for d in order)))

    def _together(self, index: Index) -> Index | None:
        """An index in which all of the variables make up the new one; None if they do not."""
        known = dict(index.terms)
        present = [known.get(v, 0) for v in self.parts]
        if not any(present):
            return index
        unit = present[-1]
        if present != [unit * s for s in self.strides]:
            return None
        return self._without(index).plus(Index.of(self.key), unit)

    def _collapsed(self, value: ir.Value, first: int) -> ir.Value:
        if (value, first) not in self.reshaped:
            self.reshaped[value, first] = join_dims(value, first, len(self.parts))
        return self.reshaped[value, first]

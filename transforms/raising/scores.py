"""The scores of an attention, and what is made of them element by element::

%s = linalg.generic  // Q·Kᵀ over [batch…, m, k, d]: products summed; others beside it
%x = linalg.generic  // what stands between: element-wise, in f32 for narrow floats
"""

from __future__ import annotations

from collections.abc import Sequence

from ...dialects.mlir import ir
from .contraction import Contraction, Operand
from .dead_weights import zeros_outside
from .emission import Access, Emitter, Unreadable, best_access, with_unit
from .expressions import REAL, Expr
from .indices import Index, Var
from .lines import with_powers_of_2
from .masks import masks_outside
from .matching import Match
from .matmuls import FirstMatmul
from .tensors import contract, counted_by


class Scores:
    """Emits them for a match, at the current insertion point. `rows` are the dimensions that they have but `k`, the
    keys', in their order; `out` those of the result of the match."""

    rows: list[Var]
    of_queries: frozenset[Var]
    of_keys: frozenset[Var]

    def __init__(self, match: Match):
        self.match = match
        (self.k,) = match.k
        self.tracer = match.tracer
        self.make = match.tracer.make
        self.element = match.result.type.element_type
        self.out_groups = [counted_by(i, s) for i, s in zip(match.at, match.result.type.shape, strict=True)]
        self.out = [v for group in self.out_groups for v in group]
        kinds = {self._kind(e) for e in self._elements(match.softmax.scores)}
        self.compute = ir.F64Type.get() if "f64" in kinds else ir.F32Type.get()
        self.emit = Emitter(self.tracer, self.compute)
        self.products: dict[Expr, Expr] = {}  # elements of the products in terms of those that were emitted last

    def _elements(self, expr: Expr) -> list[Expr]:
        return [n for n in expr.nodes() if n.kind == "element" and n.type == REAL]

    @staticmethod
    def _kind(element: Expr) -> str:
        return str(element.payload[0].type.element_type)

    def _modified(self, x: Expr) -> ir.Value:
        """Emits what stands between the scores and softmax, or between them and the second matmul."""
        if self.match.softmax.is_plain:
            x = zeros_outside(self.make, x, self.match.scores.element)
            if self.match.values is not None:  # else it may be what is returned
                x = with_powers_of_2(self.make, x)
        return self._emitted(x)

    def _emitted(self, x: Expr) -> ir.Value:
        """Emits an expression of the scores, computed from those that were emitted."""
        x = self._of_products(masks_outside(self.make, x, self.products.keys()))
        x = self._hoisted(masks_outside(self.make, x))  # factors of products may be masks, too
        dims = [*self.rows, self.k]
        if x.kind == "element" and self.emit.element_access(x).dims == tuple((v,) for v in dims):
            return x.payload[0]
        return self.emit.elementwise(x, dims, self.compute)

    def factors(self, product: FirstMatmul) -> list[tuple[Access, tuple[Expr, ...]]]:
        """Queries and keys of a product as tensors to read, and the factors that these lack."""
        found = [self._choose(operand, role) for operand, role in zip(product[1:], ("queries", "keys"), strict=True)]
        for operand, _ in found:
            self.emit.know_sizes(operand)
        # Reshapes on the way to what is read may have lost loops of one element.
        for unit in [v for v in product.scores.loops if v.extent == 1]:
            found = [(o if unit in o.vars else with_unit(o, unit), lacking) for o, lacking in found]
        return found

    def _choose(self, operand: Operand, role: str) -> tuple[Access, tuple[Expr, ...]]:
        """The tensor to read, and the factors that it lacks."""
        stages = list(dict.fromkeys(factors for _, factors in operand.choices))
        for factors in reversed(stages):
            found = best_access([e for e, lacking in operand.choices if lacking == factors])
            if found is not None:
                return found, factors
        raise Unreadable(f"a reshape of the {role} cannot be taken apart")

    @staticmethod
    def _ordered(rows: list[Var], queries: Access, keys: Access) -> list[Var]:
        """Batch dimensions first, queries' own last and the longest of these at the end, wherever the output has it."""
        own = [v for v in rows if v in queries.vars and v not in keys.vars]
        longest = max(own, key=lambda v: (v.extent is None, v.extent or 0), default=None)
        return sorted(rows, key=lambda v: (v in own) + (v is longest))

    def _hoisted(self, expr: Expr) -> Expr:
        """What varies with queries alone, or with keys alone, computed before the big pair of dimensions."""
        return self.emit.hoisted(expr, self.of_queries, self.of_keys)

    def _emit_product(self, product: Contraction, queries: Access, keys: Access, factors: Sequence[Expr]) -> None:
        """Emits a product of queries and keys, which lack the factors."""
        q, q_vars = self.emit.load(queries)
        k, k_vars = self.emit.load(keys)
        dims = [v for v in (*self.rows, self.k) if v in q_vars or v in k_vars]
        s = contract(self.emit, q, q_vars, k, k_vars, dims, product.loops, self._kind(product.element)).result
        scaled = self.make.element(s, tuple(Index.of(v) for v in dims))
        for factor in (*product.factors, *factors):
            scaled = self.make.mul(scaled, self.tracer.expand(factor))
        self.products[product.element] = self.make.add(self.tracer.expand(product.init), scaled)

    def _emit_products(self, queries: Access, keys: Access, factors: Sequence[Expr]) -> None:
        """Emits the first one, whose queries and keys lack the factors, and those beside it, in the order of loops that
        they have; each may have been another one."""
        self._emit_product(self.match.scores, queries, keys, factors)
        for product in self.match.beside:
            (of_queries, query_factors), (of_keys, key_factors) = self.factors(product)
            self._emit_product(product.scores, of_queries, of_keys, [*query_factors, *key_factors])

    def _of_products(self, expr: Expr) -> Expr:
        """`expr` in terms of the products that were emitted."""
        return self.make.rewritten(expr, self.products.get)

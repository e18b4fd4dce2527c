"""Whether an element is a sum of products of two tensors: Σ_d a[…, d]·b[…, d], whatever op computes it.

What does not vary along d is a factor of the sum and is taken out of it, so that a scale on Q, on K or on both becomes
one on the scores. A widening cast of an operand is left to the contraction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...dialects.mlir import ir
from .expressions import REAL, Expr
from .indices import Index, Var, combined
from .tracing import Reduction, Tracer


@dataclass(frozen=True)
class Operand:
    """One factor of the products: a tensor's element, and what it has been freed from.

    `choices` are elements equal to it up to `factors`, best last: (element, factors that it lacks).
    """

    choices: tuple[tuple[Expr, tuple[Expr, ...]], ...]

    @property
    def element(self) -> Expr:
        return self.choices[-1][0]


@dataclass(frozen=True)
class Contraction:
    """init + Σ lhs·rhs·Π factors over `loops`."""

    element: Expr
    reduction: Reduction
    loops: tuple[Var, ...]
    lhs: Expr  # not looked into
    rhs: Expr
    factors: tuple[Expr, ...]

    @property
    def init(self) -> Expr:
        return self.reduction.init


def contraction_at(tracer: Tracer, element: Expr, parts: Sequence[int] = ()) -> Contraction | None:
    """The contraction that computes `element`, over new variables; None if there is none.

    Loops of one element are left out, but the last one of a sum that has no others (a head size of 1, a single key).
    Where `parts` are given, the loop that is left becomes as many, of these extents, that count through it together.
    """
    reduction = tracer.reduction(element)
    if reduction is None or reduction.kind != "sum" or element.type != REAL or not reduction.loops:
        return None
    loops = tuple(Var(reduction.extent(d)) for d in reduction.loops)
    kept = [v for v in loops if v.extent != 1] or loops[-1:]
    indices = [Index.of(v) if v in kept else Index() for v in loops]
    if parts and len(kept) == 1:
        split = [Var(extent) for extent in parts]
        indices = [combined(split) if v in kept else Index() for v in loops]
        kept = split
    factors: list[Expr] = []
    tensors: list[Expr] = []
    pending = [reduction.body(indices)]
    while pending:
        factor = pending.pop()
        if factor.name == "arith.mulf":
            pending += factor.args
        elif factor.kind == "element":
            # A product that was stored and summed later is looked into.
            alone = not tensors and not pending
            stepped = tracer.step(tracer.origin(factor)) if alone else None
            if stepped is not None and stepped.name == "arith.mulf":
                pending.append(stepped)
            else:
                tensors.append(factor)
        elif factor.kind in ("const", "scalar"):
            factors.append(factor)
        else:
            return None
    if len(tensors) != 2:
        return None
    return Contraction(element, reduction, tuple(kept), tensors[0], tensors[1], tuple(factors))


def peel(tracer: Tracer, element: Expr) -> Operand:
    """The tensor behind an operand of a contraction, without factors that are the same everywhere."""
    choices: list[tuple[Expr, tuple[Expr, ...]]] = []
    factors: tuple[Expr, ...] = ()
    while True:
        origin = tracer.origin(element)
        choices += [(alias, factors) for alias in tracer.aliases.get(origin, [origin])]
        stepped = tracer.step(origin)
        if stepped is None:
            return Operand(tuple(choices))
        inner: list[Expr] = []
        uniform: list[Expr] = []
        pending = [stepped]
        while pending:
            node = pending.pop()
            filled = tracer.step(tracer.origin(node)) if node.kind == "element" else None
            if filled is not None and not filled.vars:  # a constant or a fill
                uniform.append(tracer.expand(filled))
            elif node.name == "arith.mulf":
                pending += node.args
            elif node.vars:
                inner.append(node)
            else:
                uniform.append(tracer.expand(node))
        if len(inner) != 1 or inner[0].kind != "element" or _is_narrowed(inner[0], origin):
            return Operand(tuple(choices))
        element, factors = inner[0], (*factors, *uniform)


def _is_narrowed(source: Expr, element: Expr) -> bool:
    """Whether `element` was rounded from `source`: then it is the smaller tensor, made once, and it is read."""
    widths = [ir.FloatType(e.payload[0].type.element_type).width for e in (source, element) if e.type == REAL]
    return len(widths) != 2 or widths[0] > widths[1]

"""Where in an expression exponentials are divided by their sum along the keys: what a softmax may be made of."""

from __future__ import annotations

from collections.abc import Iterable

from ...dialects.mlir import ir
from ..rewriting import defining_op
from .expressions import EXPONENTIALS, Expr
from .quotients import Keys, quotient
from .sinks import sums
from .tracing import Tracer


def softmax_of(node: Expr) -> ir.Operation | None:
    """The softmax one of whose probabilities `node` is: no element of its other results, the statistics of rows."""
    op = defining_op(node.payload[0]) if node.kind == "element" else None
    if op is None or op.name not in ("linalg.softmax", "linalg_ext.softmax") or node.payload[0] != op.results[0]:
        return None
    return op


def nodes_through(tracer: Tracer, exprs: Iterable[Expr]) -> list[Expr]:
    """The nodes of expressions, and of what softmaxes among them are of."""
    found = [n for e in exprs for n in e.nodes()]
    for node in list(found):
        op = softmax_of(node)
        if op is not None:
            found += tracer.expand(tracer.make.element(op.operands[0], node.payload[1])).nodes()
    return found


def is_normalised(tracer: Tracer, node: Expr, k: Keys) -> bool:
    """Whether it is a softmax along `k`, or a sum of exponentials divides there."""
    op = softmax_of(node)
    if op is not None:
        return not node.payload[1][ir.IntegerAttr(op.attributes["dimension"]).value].vars.isdisjoint(k)
    if node.name == "math.exp":  # exp(s − log Σ exp(s))
        return any(is_sum_of_exponentials(tracer, d, k) for d in quotient(tracer, node).den)
    return node.name == "arith.divf" and is_sum_of_exponentials(tracer, node.args[1], k)


def is_sum_of_exponentials(tracer: Tracer, divisor: Expr, k: Keys) -> bool:
    return any(n.name in EXPONENTIALS for body, _ in sums(tracer, divisor, k) for n in body.nodes())

"""Scores of which a multiple is taken, or to which others are added, where the program had subtracted a maximum before.

    exp(s)² / Σ exp(s)²  is  softmax(2·s)      softmax((s − max s)·1.7)  is  softmax(s·1.7)

Masks are numbers next to the end of the range, too, as −3.4e38: twice that is −∞, and a row that is masked as a whole
would have no key any more, where s − max s is 0 for each. So what is below −2¹⁰⁰, where only masks are, comes closer to
it first. The order stays, and numbers there are so far apart that exponentials of differences are 0 or 1. ::

    s                         becomes   max(s, s·2⁻²⁰ − 2¹⁰⁰·(1 − 2⁻²⁰))
    select(c, q·k, −3.4e38)             select(c, q·k, −3.2e32)
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

from ..online.score_masks import FAR
from .expressions import REAL, Expr
from .tracing import Tracer

CLOSER = 2.0**-20
LINEAR = ("arith.addf", "arith.subf", "arith.mulf", "arith.divf", "arith.negf", "arith.select")


def brought_closer(tracer: Tracer, scores: Expr) -> Expr:
    """The scores, such that products with usual factors and sums of a few are numbers where these are."""
    make = tracer.make
    if scores.number is not None:
        if not -math.inf < scores.number < FAR or scores in tracer.closer:
            return scores
        closer = make.const(scores.number * CLOSER + FAR * (1 - CLOSER))
        tracer.closer.add(closer)
        return closer
    if scores.name == "arith.select":
        condition, then, otherwise = scores.args
        return make.op(scores.name, (condition, brought_closer(tracer, then), brought_closer(tracer, otherwise)))
    if not _may_be_low(tracer)(scores):
        return scores
    closer = make.add(make.mul(scores, make.const(CLOSER)), make.const(FAR * (1 - CLOSER)))
    return make.op("arith.maximumf", (scores, closer))


def _may_be_low(tracer: Tracer) -> Callable[[Expr], bool]:
    """Whether a mask's number may be in what is given: from a constant, or from memory, but from no product of
    matrices, or function."""

    @functools.cache
    def may_be(node: Expr) -> bool:
        if node.type != REAL:
            return False
        if node.kind == "const":
            return -FAR < abs(node.number) < math.inf and node not in tracer.closer
        if node.kind == "op":
            return node.name in LINEAR and any(map(may_be, node.args))
        return node.kind != "element" or tracer.reduction(node) is None

    return may_be

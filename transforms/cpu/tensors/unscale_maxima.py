"""The pass ``unscale-maxima``."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from ....dialects import build
from ....dialects.build import constant_value
from ....dialects.mlir import arith, ir
from ...passes import Pass
from ...rewriting import carried_number, defining_op, erase_if_unused, for_body, ops_in, ops_of, terminator
from ..initial_values import filled_with, is_fill
from ..marks import ROUNDED_FIRST
from .scales import MAXIMA, scale_of_maxima, scaled_value

WITHOUT_SCALE = (0.0, math.inf, -math.inf)  # times a positive number they are what they are


@dataclass(frozen=True)
class UnscaleMaxima(Pass):
    """Lets a running maximum be of scores before they are scaled: the difference is what is multiplied::

        %r = scf.for … iter_args(%m0 = −∞) {
          %n = linalg.generic … ins(%s) { max(s, n) }
          %t = linalg.generic … ins(%n) { n · 0.18 }
          %m, %f = linalg.generic … ins(%t) outs(%m0, …) { m = max(m0, t); yield m, exp2(m0 − m) }
          %p = linalg.generic … ins(%m) outs(%s) { exp2(s · 0.18 − m) }
          scf.yield %m
        }
    becomes
        %r = scf.for … iter_args(%m0 = −∞) {
          %n = linalg.generic … ins(%s) { max(s, n) }
          %m, %f = linalg.generic … ins(%n) outs(%m0, …) { m = max(m0, n); yield m, exp2((m0 − m) · 0.18) }
          %p = linalg.generic … ins(%m) outs(%s) { exp2((s − m) · 0.18) }
          scf.yield %m
        }

    A difference of scores is exact where they are equal, however large, as `sink-scales` wants it of rounded products,
    and one operation less: the product is part of what an exponential begins with. What else uses a maximum multiplies
    it. All loops that a maximum goes through must take part.
    """

    def run(self, op: ir.Operation) -> None:
        sources = [
            (generic, c) for generic in ops_in(op, "linalg.generic") if (c := scale_of_maxima(generic)) is not None
        ]
        while sources:
            source, factor = sources.pop()
            found = _Maxima(factor)
            if found.grow(source.results[0]) and found.scores:
                sources = [(other, c) for other, c in sources if other not in found.sources]
                found.rewrite()


@dataclass
class _Body:
    """What a generic does with maxima: which scalars are some, and differences of them, or of scores and them."""

    maxima: list[ir.Value] = field(default_factory=list)
    differences: list[ir.Operation] = field(default_factory=list)
    scores: list[ir.Operation] = field(default_factory=list)
    others: list[ir.Operation] = field(default_factory=list)
    wanted: list[ir.Value] = field(default_factory=list)  # tensors that must be maxima, too


class _Maxima:
    """All tensors that hold maxima times one factor, from one of them on, and the ops that use them."""

    def __init__(self, factor: float):
        self.factor = factor
        self.values: set[ir.Value] = set()
        self.sources: list[ir.Operation] = []
        self.generics: list[ir.Operation] = []

    @property
    def scores(self) -> bool:
        """True if there are exponentials of scores, of which each is one operation less."""
        return any(self._body(generic).scores for generic in self.generics)

    def grow(self, first: ir.Value) -> bool:
        """Finds them; False if there is one that must stay as it is."""
        pending = [first]
        while pending:
            while pending:
                value = pending.pop()
                if value not in self.values:
                    self.values.add(value)
                    joined = self._joined(value)
                    if joined is None:
                        return False
                    pending += joined
            for generic in self.generics:
                body = self._body(generic)
                end = terminator(generic.regions[0].blocks[0])
                for value, result in zip(end.operands, generic.results, strict=True):
                    if result in self.values and value not in body.maxima and not body.wanted:
                        return False
                    if value in body.maxima:
                        pending.append(result)
                pending += body.wanted
            pending = [value for value in pending if value not in self.values]
        return True

    def _joined(self, value: ir.Value) -> list[ir.Value] | None:
        """The tensors that are maxima if this one is; None if it cannot be one."""
        made = defining_op(value)
        if made is not None and made.name == "linalg.generic":
            if is_fill(made) and filled_with(made) in WITHOUT_SCALE:
                return []  # for whoever uses it
            if scale_of_maxima(made) == self.factor:
                self.sources.append(made)
            else:
                self._add(made)
            found = []
        else:
            loop = value.owner.owner.operation if made is None else made
            number = carried_number(value) if made is None else ir.OpResult(value).result_number
            if loop.name != "scf.for" or number is None:
                return None
            found = _tied(loop, number)
        for use in value.uses:
            user, number = use.owner.operation, use.operand_number
            if user.name == "linalg.generic":
                self._add(user)
            elif user.name == "scf.yield" and user.parent.operation.name == "scf.for":
                found += _tied(user.parent.operation, number)
            elif user.name == "scf.for" and number >= 3:
                found += _tied(user, number - 3)
            else:
                return None
        return found

    def _add(self, generic: ir.Operation) -> None:
        if generic not in self.generics:
            self.generics.append(generic)

    def _body(self, generic: ir.Operation) -> _Body:
        block, body = generic.regions[0].blocks[0], _Body()
        for argument, operand in zip(block.arguments, generic.operands, strict=True):
            if operand in self.values:
                body.maxima.append(argument)
        for op in ops_of(block)[:-1]:
            of_maxima = [v in body.maxima for v in op.operands]
            if op.name in MAXIMA and any(of_maxima):
                others = [v for v in op.operands if v not in body.maxima]
                body.wanted += [generic.operands[n] for v in others for n in _numbers(v, block)]
                if all(of_maxima) or not others:
                    body.maxima.append(op.results[0])
                elif not body.wanted:
                    body.others.append(op)
            elif op.name == "arith.select" and any(of_maxima) and all(map(body.maxima.__contains__, _scales(op))):
                body.maxima.append(op.results[0])
            elif op.name == "arith.subf" and all(of_maxima):
                body.differences.append(op)
            elif op.name == "arith.subf" and of_maxima[1] and self._is_score(op.operands[0]):
                body.scores.append(op)
            elif any(of_maxima) and not (op.name == "arith.cmpf" and all(map(body.maxima.__contains__, _scales(op)))):
                body.others.append(op)
        return body

    def _is_score(self, value: ir.Value) -> bool:
        scaled, made = scaled_value(value), defining_op(value)
        return scaled is not None and scaled[1] == self.factor and made is not None and ROUNDED_FIRST in made.attributes

    def rewrite(self) -> None:
        bodies = [self._body(generic) for generic in self.generics]
        for body in bodies:
            for op in body.others:
                with ir.InsertionPoint(op), op.location:
                    for number, operand in enumerate(list(op.operands)):
                        if operand in body.maxima:
                            op.operands[number] = self._times(operand)
            for op in [*body.differences, *body.scores]:
                score = scaled_value(op.operands[0]) if op in body.scores else None
                if score is not None:
                    product = defining_op(op.operands[0])
                    op.operands[0] = score[0]
                    erase_if_unused(product)
                uses = list(op.results[0].uses)
                with ir.InsertionPoint.after(op), op.location:
                    scaled = self._times(op.results[0])
                for use in uses:
                    use.owner.operation.operands[use.operand_number] = scaled
        for source in self.sources:
            source.results[0].replace_all_uses_with(source.operands[0])
            source.erase()

    def _times(self, value: ir.Value) -> ir.Value:
        return arith.mulf(value, build.constant(value.type, self.factor))


def _scales(op: ir.Operation) -> Iterator[ir.Value]:
    """What of a comparison, or choice, is not the same number whatever scale it has."""
    values = op.operands[1:] if op.name == "arith.select" else op.operands
    return (v for v in values if constant_value(v) not in WITHOUT_SCALE)


def _numbers(value: ir.Value, block: ir.Block) -> list[int]:
    """The operand that a block argument stands for."""
    return [ir.BlockArgument(value).arg_number] if value in list(block.arguments) else []


def _tied(loop: ir.Operation, number: int) -> list[ir.Value]:
    """What a loop carries under one number: before, within, at the end of an iteration, and after it."""
    body = for_body(loop)
    before, after = loop.operands[number + 3], loop.results[number]
    return [before, body.arguments[number + 1], terminator(body).operands[number], after]

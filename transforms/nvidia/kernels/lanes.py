"""Indices of the elements that a thread computes at once, side by side in a row of a result (``outline-producers``).

An index is Σ coefficient · atom + offset: the atoms are the same for all elements, of offsets there is one, or one for
each element. Reshapes divide indices; slices and tensors that are put together add to them::

    j = 8·p + (0, 1, …, 7)          the column, p the number of the piece
    j / 2, j mod 2                  4·p + (0, 0, 1, 1, 2, 2, 3, 3), (0, 1, 0, 1, 0, 1, 0, 1)
    j < 32                          p < 4, the same for all
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ....dialects import build
from ....dialects.mlir import arith, ir

T = TypeVar("T")


class NotInLanes(Exception):
    """What cannot be computed for so many elements at once."""


@dataclass(frozen=True)
class Atom:
    """A value from 0 up to, not including, `extent`; None: unknown."""

    value: ir.Value
    extent: int | None


@dataclass(frozen=True)
class Lanes:
    """An index. `offsets`: one, or one for each element."""

    terms: tuple[tuple[Atom, int], ...] = ()
    offsets: tuple[int, ...] = (0,)

    @property
    def varies(self) -> bool:
        return len(set(self.offsets)) > 1

    @property
    def step(self) -> int:
        """What the terms are a multiple of; 0: there are none."""
        return math.gcd(*(c for _, c in self.terms))

    @property
    def base(self) -> ir.Value:
        """The index without its offset."""
        total = None
        for atom, coefficient in self.terms:
            term = atom.value if coefficient == 1 else arith.muli(atom.value, build.index(coefficient))
            total = term if total is None else arith.addi(total, term)
        return build.index(0) if total is None else total

    def at(self, offset: int) -> ir.Value:
        if not self.terms:
            return build.index(offset)
        return arith.addi(self.base, build.index(offset)) if offset else self.base

    def scaled(self, by: int) -> Lanes:
        return Lanes(tuple((a, c * by) for a, c in self.terms), tuple(o * by for o in self.offsets))

    def plus(self, other: Lanes) -> Lanes:
        terms = dict(self.terms)
        for atom, coefficient in other.terms:
            terms[atom] = terms.get(atom, 0) + coefficient
        count = max(len(self.offsets), len(other.offsets))
        pairs = zip(spread(self.offsets, count), spread(other.offsets, count), strict=True)
        offsets = [a + b for a, b in pairs]
        return Lanes(tuple((a, c) for a, c in terms.items() if c), tuple(offsets))

    def divided(self, by: int) -> tuple[Lanes, Lanes]:
        """Quotient and remainder."""
        whole = tuple((a, c // by) for a, c in self.terms if c % by == 0)
        rest = [(a, c) for a, c in self.terms if c % by]
        if min(self.offsets) < 0:
            raise NotInLanes
        if not rest:
            return Lanes(whole, tuple(o // by for o in self.offsets)), Lanes((), tuple(o % by for o in self.offsets))
        most = _most(rest)
        if most is not None and most + max(self.offsets) < by:
            return Lanes(whole), Lanes(tuple(rest), self.offsets)
        step = math.gcd(by, *(c for _, c in rest))
        if max(self.offsets) >= step:
            if self.varies:
                raise NotInLanes
            step, offset = 1, self.offsets[0]
        else:
            offset = 0
        number = Lanes(tuple((a, c // step) for a, c in rest)).at(offset)
        extent = None if most is None else (most + offset) // step + 1
        count = by // step
        quotient = Atom(arith.divui(number, build.index(count)), None if extent is None else -(-extent // count))
        remainder = Atom(arith.remui(number, build.index(count)), count)
        left = (0,) if offset else self.offsets
        return Lanes((*whole, (quotient, 1))), Lanes(((remainder, step),), left)

    def below(self, bound: int) -> tuple[bool, ...] | ir.Value:
        """Whether it is below a bound: for each element, where that is known, or a value that is the same for all."""
        most = _most(self.terms)
        if not self.terms:
            return tuple(o < bound for o in self.offsets)
        if most is not None and most + max(self.offsets) < bound:
            return (True,) * len(self.offsets)
        if min(self.offsets) >= bound:
            return (False,) * len(self.offsets)
        if len({-(-(bound - o) // self.step) for o in self.offsets}) > 1:
            raise NotInLanes
        offset = self.offsets[0]
        return arith.cmpi(arith.CmpIPredicate.slt, self.base, build.index(bound - offset))


def linearised(indices: Iterable[Lanes], sizes: Iterable[int]) -> Lanes:
    """The number of an element of an array of `sizes`."""
    total = Lanes()
    for index, size in zip(indices, sizes, strict=True):
        total = total.scaled(size).plus(index)
    return total


def _most(terms: Iterable[tuple[Atom, int]]) -> int | None:
    """The largest sum of the terms."""
    total = 0
    for atom, coefficient in terms:
        if atom.extent is None:
            return None
        total += coefficient * (atom.extent - 1)
    return total


def spread(values: Sequence[T], count: int) -> Sequence[T]:
    """One for each element, where there may be one for all."""
    return list(values) * count if len(values) == 1 else values

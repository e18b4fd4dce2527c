"""Indices as linear forms of loop variables: Σ cᵢ·vᵢ + c.

``tensor.expand_shape`` sums indices up, b·8 + h; ``tensor.collapse_shape`` takes them apart again. A variable that must
be taken apart itself, as the loop of a ``batch_matmul`` over [b·h] must where its operand is [b, h], is reported by
``SplitNeeded``: whoever chose the variables replaces it with two and starts again.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

_serials = itertools.count()


@dataclass(frozen=True, eq=False)
class Var:
    """A loop: it runs from 0 to `extent`, None where that is dynamic."""

    extent: int | None
    serial: int = field(default_factory=lambda: next(_serials))

    def __repr__(self) -> str:
        return f"v{self.serial}<{'?' if self.extent is None else self.extent}>"


@dataclass(frozen=True)
class Index:
    """Σ coefficient·variable + constant; the terms are sorted by variable, none has coefficient 0."""

    terms: tuple[tuple[Var, int], ...] = ()
    constant: int = 0

    @staticmethod
    def of(var: Var) -> Index:
        return Index(((var, 1),))

    @property
    def vars(self) -> frozenset[Var]:
        return frozenset(v for v, _ in self.terms)

    @property
    def single(self) -> Var | None:
        """The variable that this index is, or None if it is anything else."""
        return self.terms[0][0] if not self.constant and len(self.terms) == 1 and self.terms[0][1] == 1 else None

    def bounds(self) -> tuple[int, int | None]:
        """The smallest and the largest value; None where that is dynamic. No coefficient is negative."""
        if any(v.extent is None for v, _ in self.terms):
            return self.constant, None
        return self.constant, self.constant + sum(c * ((v.extent or 1) - 1) for v, c in self.terms)

    def plus(self, other: Index, factor: int = 1) -> Index:
        sums = dict(self.terms)
        for v, c in other.terms:
            sums[v] = sums.get(v, 0) + c * factor
        terms = sorted(((v, c) for v, c in sums.items() if c), key=lambda t: t[0].serial)
        return Index(tuple(terms), self.constant + other.constant * factor)

    def scaled(self, factor: int) -> Index:
        return Index().plus(self, factor)


class Opaque(Exception):
    """An index that is no linear form of the variables: the tensor at hand is looked at as a whole."""


class SplitNeeded(Exception):
    """`var` must become outer·`inner` + a variable of extent `inner`."""

    def __init__(self, var: Var, inner: int):
        super().__init__(var, inner)
        self.var, self.inner = var, inner


def strides(sizes: Sequence[int | None]) -> list[int | None]:
    """The stride of each of a group of dimensions that are collapsed; None where it is dynamic."""
    result: list[int | None] = []
    stride: int | None = 1
    for size in reversed(sizes):
        result.append(stride)
        stride = None if stride is None or size is None else stride * size
    return result[::-1]


def linearize(indices: Sequence[Index], sizes: Sequence[int | None]) -> Index:
    """The index into dimensions of these sizes collapsed into one."""
    if len(indices) == 1:
        return indices[0]
    total = Index()
    for index, size, stride in zip(indices, sizes, strides(sizes), strict=True):
        if size == 1:
            continue
        if stride is None:
            # Dimensions of size 1 do not make it dynamic: [?, 1] and [1, ?] collapse to [?].
            raise Opaque("a collapsed dimension is dynamic")
        total = total.plus(index, stride)
    return total


def combined(parts: Sequence[Var]) -> Index:
    """The index that the variables count through together, the last one fastest."""
    return linearize([Index.of(v) for v in parts], [v.extent for v in parts])


def delinearize(index: Index, sizes: Sequence[int | None]) -> list[Index]:
    """The indices into dimensions of these sizes for an index into them collapsed."""
    if len(sizes) == 1:
        return [index]
    wide = [d for d, size in enumerate(sizes) if size != 1]
    result = [Index()] * len(sizes)
    if len(wide) == 1:
        result[wide[0]] = index
    if len(wide) <= 1:
        return result
    steps = strides([sizes[d] for d in wide])
    if None in steps:
        raise Opaque("an expanded dimension is dynamic")
    if 0 in steps:
        raise Opaque("an expanded dimension has no elements")
    steps = [s for s in steps if s is not None]
    rest = index.constant
    for position, d in enumerate(wide):
        result[d] = Index((), rest // steps[position])
        rest %= steps[position]
    for var, coefficient in index.terms:
        position = next(i for i, s in enumerate(steps) if s <= coefficient) if coefficient > 0 else None
        if position is None or coefficient % steps[position]:
            raise Opaque("an index steps over a dimension's end")
        if position > 0:
            room = steps[position - 1] // coefficient
            if steps[position - 1] % coefficient:
                raise Opaque("an index steps over a dimension's end")
            if var.extent is None or var.extent > room:
                if room == 1 or (var.extent is not None and var.extent % room):
                    raise Opaque("two reshapes of one dimension do not agree")
                raise SplitNeeded(var, room)
        result[wide[position]] = result[wide[position]].plus(Index(((var, coefficient // steps[position]),)))
    for d in wide[1:]:
        largest = result[d].constant + sum(c * ((v.extent or math.inf) - 1) for v, c in result[d].terms)
        if largest >= (sizes[d] or math.inf):
            raise Opaque("an index steps over a dimension's end")
    return result


def mixed_radix(index: Index, size: int | None) -> list[Var] | None:
    """The variables, outer to inner, that together count through a dimension of that size; None if they do not."""
    if index.constant:
        return None
    terms = sorted(index.terms, key=lambda t: -t[1])
    expected = strides([v.extent for v, _ in terms])
    if [c for _, c in terms] != expected:
        return None
    extents = [v.extent for v, _ in terms]
    known = [e for e in extents if e is not None]
    if len(known) == len(extents) and math.prod(known) != size:
        return None
    return [v for v, _ in terms]

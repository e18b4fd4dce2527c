"""Products of parameters, of which a part is tested, and a part of that is quick."""

import itertools
from collections.abc import Iterable, Sequence

import pytest

At = tuple[int, ...]


def crossed(first: Sequence, *others: Sequence) -> list:
    """Parameters: combinations in which each two values of two axes come together. Each of `first` with one of the
    others, in turn, is quick; the rest is slow."""
    quick = []
    for first_at in range(len(first)):
        turn, at = first_at, [first_at]
        for values in others:
            at.append(turn % len(values))
            turn //= len(values)
        quick.append(tuple(at))
    return _params((first, *others), quick, 2)


def pairwise(*axes: Sequence) -> list:
    """Parameters: combinations in which each three values of three axes come together. As many are quick as it takes to
    have each two values of two axes together."""
    return _params(axes, _together(axes, 2, []), 3)


def _together(axes: Sequence[Sequence], count: int, found: Iterable[At]) -> list[At]:
    """Where the values are of combinations, those `found` among them, in which each so many values of as many axes come
    together: of all the one that has most of what is missing, again and again."""
    ats = list(itertools.product(*(range(len(values)) for values in axes)))
    parts = {at: set(itertools.combinations(enumerate(at), min(count, len(axes)))) for at in ats}
    taken = list(found)
    missing = set().union(*parts.values()).difference(*(parts[at] for at in taken))
    while missing:
        best = max(ats, key=lambda at: len(missing & parts[at]))
        missing -= parts[best]
        taken.append(best)
    return taken


def _params(axes: Sequence[Sequence], quick: list[At], count: int) -> list:
    found = []
    for at in sorted(_together(axes, count, quick)):
        values = [axis[i] for axis, i in zip(axes, at, strict=True)]
        marks = () if at in quick else pytest.mark.slow
        found.append(pytest.param(*values, id="-".join(map(str, values)), marks=marks))
    return found

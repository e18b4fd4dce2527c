"""Products of parameters, of which a part is quick."""

import itertools
from collections.abc import Sequence

import pytest


def crossed(first: Sequence, *others: Sequence) -> list:
    """Parameters: all combinations. Each of `first` with one of the others, in turn, is quick; the rest is slow."""
    quick = set()
    for first_at in range(len(first)):
        turn, at = first_at, [first_at]
        for values in others:
            at.append(turn % len(values))
            turn //= len(values)
        quick.add(tuple(at))
    return _params((first, *others), quick)


def pairwise(*axes: Sequence) -> list:
    """Parameters: all combinations. As many are quick as it takes to have each two values of two axes together."""
    ats = list(itertools.product(*(range(len(values)) for values in axes)))
    missing = {pair for at in ats for pair in itertools.combinations(enumerate(at), 2)}
    quick = set()
    while missing:
        best = max(ats, key=lambda at: len(missing.intersection(itertools.combinations(enumerate(at), 2))))
        missing.difference_update(itertools.combinations(enumerate(best), 2))
        quick.add(best)
    return _params(axes, quick)


def _params(axes: Sequence[Sequence], quick: set[tuple[int, ...]]) -> list:
    found = []
    for at in itertools.product(*(range(len(values)) for values in axes)):
        values = [axis[i] for axis, i in zip(axes, at, strict=True)]
        marks = () if at in quick else pytest.mark.slow
        found.append(pytest.param(*values, id="-".join(map(str, values)), marks=marks))
    return found

"""Products of parameters, of which a part is quick."""

import itertools
from collections.abc import Sequence

import pytest


def crossed(first: Sequence, *others: Sequence) -> list:
    """Parameters: all combinations. Each of `first` with one of the others, in turn, is quick; the rest is slow."""
    found = []
    for at in itertools.product(*(range(len(values)) for values in (first, *others))):
        turn, is_quick = at[0], True
        for values, i in zip(others, at[1:], strict=True):
            is_quick &= turn % len(values) == i
            turn //= len(values)
        values = [axis[i] for axis, i in zip((first, *others), at, strict=True)]
        found.append(pytest.param(*values, id="-".join(map(str, values)), marks=() if is_quick else pytest.mark.slow))
    return found

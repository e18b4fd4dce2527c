"""Symbolic sizes, as dynamo has them, written by sizes that are at hand: sums of multiples of these and a number."""

from collections.abc import Iterable, Sequence
from typing import Any

import sympy
import torch


def dimensions(values: Iterable[tuple[Any, Any]]) -> dict[Any, tuple[Any, int]]:
    """Where each symbolic size is found: as (key, dimension) of the first of `values`, (key, tensor), that has it."""
    found: dict[Any, tuple[Any, int]] = {}
    for key, value in values:
        for d, size in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
            if not isinstance(size, int):
                found.setdefault(size.node.expr, (key, d))
    return found


def combination(wanted: Any, known: Sequence[Any]) -> list[int] | None:
    """The whole numbers by which `known` and 1, the last, are to be multiplied for their sum to be `wanted`: with
    s + 1 known, s is 1·(s + 1) − 1·1. None where there are none."""
    for i, one in enumerate(known):  # one size and a number are most often enough, and the least to compute
        if (wanted - one).is_Integer:
            return [*(int(k == i) for k in range(len(known))), int(wanted - one)]
    # What sums are made of, symbols and products alike, are the unknowns of linear equations.
    sums = [one.as_coefficients_dict() for one in (*known, sympy.S.One)]
    target = wanted.as_coefficients_dict()
    terms = sorted({term for one in (*sums, target) for term in one}, key=str)
    matrix = sympy.Matrix([[one.get(term, 0) for one in sums] for term in terms])
    try:
        solution, free = matrix.gauss_jordan_solve(sympy.Matrix([target.get(term, 0) for term in terms]))
    except ValueError:  # no solution
        return None
    factors = solution.subs(dict.fromkeys(free, 0))
    return [int(factor) for factor in factors] if all(factor.is_Integer for factor in factors) else None

"""aten.einsum of open sizes as one product of matrices, which rows, columns and sums are merged for such that they can
be told apart again.

    bgrnd,bgmd->bgrnm      [b, g, n·r, d] × [b, g, d, m], where n is open and r known

torch merges them in the order of the letters: r·n is what an index of r and n has no known stride in.
"""

import math
import string
from collections.abc import Sequence
from typing import Any

import torch


def einsum(equation: str, operands: Sequence[torch.Tensor], path: Any = None) -> Any:
    """As matmul, if one of two operands has an open size, and no letter is repeated or summed in one operand alone."""
    inputs, arrow, out = equation.replace(" ", "").partition("->")
    terms = inputs.split(",")
    if not arrow or len(operands) != 2 or len(terms) != 2:
        return NotImplemented
    others = [x.dim() - len(term.replace("...", "")) for x, term in zip(operands, terms, strict=True) if "." in term]
    if len(set(others)) > 1:  # they are broadcast
        return NotImplemented
    dots = string.digits[: others[0]] if others else ""
    *terms, out = (term.replace("...", dots) for term in (*terms, out))
    if any(len(set(term)) != len(term) for term in (*terms, out)):
        return NotImplemented
    x, y = operands
    sizes = dict(zip(terms[1], y.shape, strict=True)) | dict(zip(terms[0], x.shape, strict=True))
    if all(isinstance(size, int) for size in sizes.values()):
        return NotImplemented
    both = [c for c in terms[0] if c in terms[1]]
    rows, columns = ([c for c in term if c not in both] for term in terms)
    summed = [c for c in both if c not in out]
    groups = [[c for c in both if c in out], rows, columns, summed]
    is_broadcast = any((x.shape[terms[0].index(c)] == 1) != (y.shape[terms[1].index(c)] == 1) for c in both)
    if not summed or is_broadcast or any(c not in out for c in (*rows, *columns)):
        return NotImplemented
    for group in groups:
        group.sort(key=lambda c: isinstance(sizes[c], int))  # open ones first, so that strides are known
    batch = groups[0]

    def matrix(value: torch.Tensor, term: str, first: list[str], second: list[str]) -> torch.Tensor:
        moved = value.permute([term.index(c) for c in (*batch, *first, *second)])
        return _merged(moved, len(batch), [len(first), len(second)])

    product = matrix(x, terms[0], rows, summed) @ matrix(y, terms[1], summed, columns)
    letters = [*batch, *rows, *columns]
    return product.reshape([sizes[c] for c in letters]).permute([letters.index(c) for c in out])


def _merged(x: torch.Tensor, first: int, counts: Sequence[int]) -> torch.Tensor:
    """`x` with its dimensions from `first` on merged, so many each time."""
    shape = list(x.shape[:first])
    for count in counts:
        shape.append(math.prod(x.shape[first : first + count]))
        first += count
    return x if len(shape) == x.dim() else x.reshape(shape)

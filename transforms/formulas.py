"""Index values as plain data, for whoever explains or draws a schedule after the IR is gone.

A formula is a number, or a list that starts with what it is::

    ["dim", 0, 1]              dimension 1 of the function's argument 0
    ["argument", 2]            the value of the function's argument 2, a number or a tensor of one
    ["loop", 64]               the induction variable of a loop around, by its step
    ["add", a, b], ["sub", …], ["mul", …], ["floordiv", …], ["ceildiv", …], ["mod", …], ["min", …], ["max", …]
    ["lt", a, b], ["le", …], ["eq", …], ["ne", …]; ["select", condition, a, b]
    ["unknown"]                whatever else

`index_formulas` makes them of IR; `evaluated` gives its number back, where all that it is made of is known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Formula: TypeAlias = int | list
UNKNOWN: Formula = ["unknown"]

_FOLDED: dict[str, Callable[..., int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b,
    "ceildiv": lambda a, b: -(-a // b),
    "mod": lambda a, b: a % b,
    "min": min,
    "max": max,
    "lt": lambda a, b: int(a < b),
    "le": lambda a, b: int(a <= b),
    "eq": lambda a, b: int(a == b),
    "ne": lambda a, b: int(a != b),
    "select": lambda condition, a, b: a if condition else b,
}


def evaluated(found: Formula, leaf: Callable[[list], int | None]) -> int | None:
    """The number that a formula is; `leaf` says what a dimension or loop is, or None."""
    if isinstance(found, int):
        return found
    if found[0] not in _FOLDED:
        return leaf(found)
    parts = [evaluated(one, leaf) for one in found[1:]]
    known = [part for part in parts if part is not None]
    if len(known) != len(parts) or (found[0] in ("floordiv", "ceildiv", "mod") and known[1] <= 0):
        return None
    return _FOLDED[found[0]](*known)


def loops_in(found: Formula) -> list[int]:
    """The steps of the loops that a formula depends on."""
    return [leaf[1] for leaf in leaves(found) if leaf[0] == "loop"]


def leaves(found: Formula) -> list[list]:
    """What a formula is made of: dimensions, arguments, loops, what is unknown."""
    if isinstance(found, int):
        return []
    return [leaf for part in found[1:] for leaf in leaves(part)] if found[0] in _FOLDED else [found]

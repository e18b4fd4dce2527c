"""What the ops compute: an evaluator in numpy that is independent of every pass of the compiler.

Every float is computed in float64, whatever its declared type, and no cast rounds: the result is the exact one that
kernels are compared with. Integers, `index` and i1 are computed in their own types; constants are read exactly::

    results = evaluate(module, [q, k, v], entry="attention")

| file           | job                                                                                |
| -------------- | ---------------------------------------------------------------------------------- |
| interface.py   | op name → rule; to give an op a meaning, add a rule in the file of its dialect      |
| evaluator.py   | runs a function: a plan per block, values freed at their last use                   |
| arrays.py      | types and constants as numpy arrays; which arrays may be overwritten                |
| iteration.py   | indexing maps: an operand seen over an iteration space, without a copy              |
| contraction.py | sums of products at BLAS speed, and the count of their floating-point operations    |
| softmax.py     | one step of (online) softmax                                                        |
| arith.py …     | the rules of a dialect                                                             |

The semantics of our own ops stand with the ops, as the method ``reference`` of their classes.
"""

from collections.abc import Sequence
from typing import Any

__all__ = ["evaluate"]


def evaluate(module: Any, arguments: Sequence[Any], entry: str | None = None, round_values: bool = False) -> list[Any]:
    """The results of function `entry` of `module` on numpy `arguments`; see `evaluator.evaluate`."""
    from .evaluator import evaluate as run

    return run(module, arguments, entry, round_values)

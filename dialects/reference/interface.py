"""The interface of the evaluator: which function gives an op its meaning.

A rule looks at an op once and returns what it computes, a function from the values of the operands to those of the
results; the evaluator calls it as often as the op runs::

    @rule("tensor.dim")
    def dim(op, frame):
        return lambda operands: [np.int64(operands[0].shape[operands[1]])]

`operands` is a list which the function owns: what it removes from it (see ``arrays.take``) it may overwrite.
The rules of dialect ``d`` are in the file ``d.py``, imported when the first op of ``d`` is met.
"""

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

from ..mlir import ir

Meaning = Callable[[list[Any]], Sequence[Any]]
Rule = Callable[[Any, Any], Meaning]

_rules: dict[str, Rule] = {}
_imported: set[str] = set()


class EvaluationError(Exception):
    """An op cannot be evaluated: `message` says why, `location` where."""

    def __init__(self, message: str, op: Any = None):
        self.message = message
        self.location: ir.Location | None = None if op is None else op.operation.location
        super().__init__(message if op is None else f"{message} ({self.location})")


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Registers the decorated function as the rule of the ops called `names`."""

    def register(function: Rule) -> Rule:
        for name in names:
            _rules[name] = function
        return function

    return register


def meaning(op: ir.OpView, frame: Any) -> Meaning:
    """What `op` computes, within `frame` (the running function, which evaluates regions)."""
    name = op.operation.name
    found = _lookup(name)
    if found is None and hasattr(type(op), "reference"):
        found = own_rule
    if found is None:
        from .linalg import structured_rule

        found = structured_rule(op)
    if found is None:
        raise EvaluationError(f"the reference evaluation has no meaning for the op '{name}'", op)
    return found(op, frame)


def own_rule(op: Any, frame: Any) -> Meaning:
    """The rule of an op of ours, whose class has a method ``reference``."""
    return lambda operands: type(op).reference(op, operands)


def _lookup(name: str) -> Rule | None:
    dialect = name.partition(".")[0]
    if dialect not in _imported:
        if importlib.util.find_spec(f"{__package__}.{dialect}") is not None:
            importlib.import_module(f"{__package__}.{dialect}")
        _imported.add(dialect)  # by now: another thread that asks meanwhile waits for the import
    return _rules.get(name)

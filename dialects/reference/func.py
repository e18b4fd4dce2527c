"""Calls."""

from typing import Any

from ..mlir import ir
from .interface import EvaluationError, Meaning, rule


@rule("func.call")
def call_(op: Any, frame: Any) -> Meaning:
    from .evaluator import call

    name = op.callee.value
    top = op.operation
    while top.parent is not None:
        top = top.parent
    symbols = ir.SymbolTable(top)
    callee = symbols[name] if name in symbols else None  # noqa: SIM401 (it has no get)
    if callee is None or not callee.regions[0].blocks:
        raise EvaluationError(f"calls '{name}', which has no body here", op)
    return lambda operands: call(callee, operands, frame.round_values)

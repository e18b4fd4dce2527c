"""Runs a function on numpy arrays.

A block is planned once: a step per op, holding what the op computes, where its operands and results are kept, and
which values die there, so that their memory is free (or reused) from that step on.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..mlir import ir
from . import arrays
from .interface import EvaluationError, Meaning, meaning

Region = Callable[[list[Any]], list[Any]]


def evaluate(
    module: ir.Module | ir.Operation, arguments: Sequence[Any], entry: str | None = None, round_values: bool = False
) -> list[np.ndarray]:
    """The results of the function `entry` (by default the only one with a body) of `module` on `arguments`.

    Floats are computed and returned in float64. With `round_values` every op's result is rounded to its declared
    type, as a naive execution would.
    """
    function = find_function(module, entry)
    with function.operation.context, np.errstate(all="ignore"):
        results = call(function, list(arguments), round_values)
    return [np.asarray(result) for result in results]


def find_function(module: ir.Module | ir.Operation, entry: str | None = None) -> ir.OpView:
    """The function `entry` of `module`; without a name the only public function that has a body."""
    top = module.operation.opview
    if top.operation.name == "func.func":
        return top
    functions = [op for op in top.body.operations if op.operation.name == "func.func" and op.regions[0].blocks]
    names = [op.name.value for op in functions]
    if entry is not None:
        if entry not in names:
            raise EvaluationError(f"no function '{entry}' with a body; there are: {', '.join(names) or 'none'}", top)
        return functions[names.index(entry)]
    public = [op for op in functions if _is_public(op)] if len(functions) > 1 else functions
    if len(public) != 1:
        reason = (
            f"which of the functions {', '.join(names)} is meant? name the entry" if names else "there is no function"
        )
        raise EvaluationError(reason, top)
    return public[0]


def _is_public(function: ir.OpView) -> bool:
    attributes = function.operation.attributes
    return "sym_visibility" not in attributes or attributes["sym_visibility"].value == "public"


def call(function: ir.OpView, arguments: list[Any], round_values: bool) -> list[Any]:
    """The results of a ``func.func``."""
    kinds = function.type.inputs
    if len(arguments) != len(kinds):
        raise EvaluationError(f"expects {len(kinds)} arguments, but found {len(arguments)}", function)
    values = []
    for i, kind in enumerate(kinds):
        values.append(_argument(i, arguments[i], kind, function))
    arguments.clear()
    return Frame(round_values).region(function.regions[0])(values)


def _argument(i: int, argument: Any, kind: ir.Type, function: ir.OpView) -> Any:
    try:
        value = np.asarray(argument).astype(arrays.value_dtype(kind), copy=False)
    except TypeError as error:
        raise EvaluationError(f"argument {i}: {error}", function) from error
    if not isinstance(kind, ir.RankedTensorType):
        return value[()]
    expected = [kind.get_dim_size(d) if not kind.is_dynamic_dim(d) else None for d in range(kind.rank)]
    if value.ndim != kind.rank or any(e not in (None, s) for e, s in zip(expected, value.shape, strict=True)):
        raise EvaluationError(f"argument {i}: expects {kind}, but found an array of shape {value.shape}", function)
    return value


@dataclasses.dataclass(slots=True)
class Step:
    """An op of a block: `operands` and `results` are slots; `dying` die before the op runs, `dead` after it; `rounded`
    are results that are rounded, and to what: an op may run a million times, and to ask for its types takes longer."""

    op: ir.OpView
    meaning: Meaning
    operands: list[int]
    results: list[int]
    dying: list[int]
    dead: list[int]
    rounded: list[tuple[int, np.dtype]]


class Frame:
    """One activation of a function: the values of its SSA names, whatever region they are in."""

    def __init__(self, round_values: bool = False):
        self.round_values = round_values
        self.slots: dict[ir.Value, int] = {}
        self.values: list[Any] = []
        self.indices: list[Callable[[int], np.ndarray]] = []  # of the linalg ops being evaluated: their linalg.index

    def slot(self, value: ir.Value) -> int:
        found = self.slots.get(value)
        if found is None:
            found = self.slots[value] = len(self.values)
            self.values.append(None)
        return found

    def region(self, region: ir.Region, wanted: Sequence[ir.Value] | None = None) -> Region:
        """Evaluates a region of one block: from the values of its arguments to its terminator's operands, or to those
        of `wanted`, for which only the ops that they need are run."""
        if len(region.blocks) != 1:
            raise EvaluationError("the reference evaluation knows regions of one block only", region.owner)
        block = region.blocks[0]
        ops = list(block.operations)
        if wanted is None:
            terminator = ops.pop()
            wanted = list(terminator.operation.operands)
        else:
            ops = _needed(ops, wanted)
        outputs = [self.slot(value) for value in wanted]
        parameters = [self.slot(argument) for argument in block.arguments]
        local = set(parameters)
        for op in ops:
            local.update(self.slot(result) for result in op.operation.results)
        live = set(outputs)
        steps: list[Step] = []
        for op in reversed(ops):
            steps.append(self._step(op, local, live))
        steps.reverse()
        unused = [s for s in parameters if s not in live]
        leaving = sorted(local.intersection(outputs))
        values = self.values

        def run(arguments: list[Any]) -> list[Any]:
            for s, argument in zip(parameters, arguments, strict=True):
                values[s] = argument
            argument = None
            arguments.clear()
            for s in unused:
                values[s] = None
            try:
                for step in steps:  # may be millions, of which each call of a function would be a good part
                    operands = [values[s] for s in step.operands]
                    for s in step.dying:
                        values[s] = None
                    results = step.meaning(operands)
                    if step.rounded:
                        results = list(results)
                        for i, dtype in step.rounded:
                            arrays.round_in_place(results, i, dtype)
                    for i, s in enumerate(step.results):
                        values[s] = results[i]
                    for s in step.dead:
                        values[s] = None
                    del operands, results  # else their memory is not free for the next one
            except (TypeError, ValueError, IndexError, ArithmeticError, MemoryError) as error:
                raise EvaluationError(f"'{step.op.operation.name}' cannot be evaluated: {error}", step.op) from error
            results = [values[s] for s in outputs]
            for s in leaving:
                values[s] = None
            return results

        return run

    def _step(self, op: ir.OpView, local: set[int], live: set[int]) -> Step:
        """Plans `op`, given the slots that are `live` after it; makes them those live before it."""
        operands = [self.slot(value) for value in op.operation.operands]
        results = [self.slot(value) for value in op.operation.results]
        inner = {self.slot(value) for value in _captured(op)}
        dead = [s for s in results if s not in live] + [s for s in inner if s in local and s not in live]
        dying = [s for s in dict.fromkeys(operands) if s in local and s not in live and s not in inner]
        live.update(operands, inner)
        try:
            return Step(op, meaning(op, self), operands, results, dying, dead, self._rounded(op))
        except TypeError as error:
            raise EvaluationError(f"'{op.operation.name}': {error}", op) from error

    def _rounded(self, op: ir.OpView) -> list[tuple[int, np.dtype]]:
        kinds = [result.type for result in op.operation.results] if self.round_values else []
        return [(i, arrays.storage_dtype(kind)) for i, kind in enumerate(kinds) if arrays.is_rounded(kind)]


def _needed(ops: list[ir.OpView], wanted: Sequence[ir.Value]) -> list[ir.OpView]:
    """Those of a block's `ops` that the `wanted` values depend on."""
    needed = set(wanted)
    kept = []
    for op in reversed(ops):
        if any(result in needed for result in op.operation.results):
            kept.append(op)
            needed.update(op.operation.operands)
            needed.update(_captured(op))
    return kept[::-1]


def _captured(op: ir.OpView) -> list[ir.Value]:
    """The values that the ops in `op`'s regions use (those defined in the regions among them)."""
    found: list[ir.Value] = []
    for region in op.operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                found.extend(inner.operation.operands)
                found.extend(_captured(inner))
    return found

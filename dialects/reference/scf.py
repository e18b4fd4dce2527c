"""Loops and branches."""

import functools
import itertools
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from .interface import EvaluationError, Meaning, rule
from .tensor import Slices, mixed, write

Region: TypeAlias = Callable[[list[Any]], list[Any]]


@rule("scf.for")
def for_(op: Any, frame: Any) -> Meaning:
    return functools.partial(iterated, frame.region(op.operation.regions[0]))


def iterated(body: Region, operands: list[Any]) -> list[Any]:
    """What a loop carries in the end; `operands`: its bounds and step, and what it carries first."""
    lower, upper, step = (int(x) for x in operands[:3])
    if step <= 0:
        raise ValueError(f"expects a positive step, but found {step}")
    carried = operands[3:]
    operands.clear()
    for i in range(lower, upper, step):
        arguments = [np.int64(i), *carried]
        carried.clear()
        carried = body(arguments)
    return carried


@rule("scf.forall")
def forall(op: Any, frame: Any) -> Meaning:
    """Every point reads the outputs as they were before the loop; its slices are inserted into the results."""
    region = op.operation.regions[0]
    block = region.blocks[0]
    rank = len(list(op.operation.attributes["staticLowerBound"]))
    inserts = list(list(block.operations)[-1].regions[0].blocks[0].operations)
    for insert in inserts:
        if insert.operation.name != "tensor.parallel_insert_slice":
            raise EvaluationError(f"'{insert.operation.name}' in the terminator of scf.forall is not known", insert)
    shared = list(block.arguments)[rank:]
    outputs = [shared.index(insert.operation.operands[1]) for insert in inserts]
    slices = [Slices(insert, 2) for insert in inserts]
    counts = [len(insert.operation.operands) for insert in inserts]
    body = frame.region(region, [value for insert in inserts for value in insert.operation.operands])
    bounds = [list(op.operation.attributes[f"static{name}"]) for name in ("LowerBound", "UpperBound", "Step")]

    def run(operands: list[Any]) -> list[Any]:
        dynamic = iter(operands)
        lower, upper, step = (mixed(bound, dynamic) for bound in bounds)
        inits = list(dynamic)
        results = [np.array(init) for init in inits]
        for point in itertools.product(*map(range, lower, upper, step)):
            values = iter(body([*map(np.int64, point), *inits]))
            for output, where, count in zip(outputs, slices, counts, strict=True):
                operands_of_insert = [next(values) for _ in range(count)]
                write(results[output], where.index(operands_of_insert, results[output].shape), operands_of_insert[0])
        return results

    return run


@rule("scf.if")
def if_(op: Any, frame: Any) -> Meaning:
    branches = [frame.region(region) if region.blocks else lambda arguments: [] for region in op.operation.regions]
    return functools.partial(chosen, branches)


def chosen(branches: list[Region], operands: list[Any]) -> list[Any]:
    """What a branch gives; `operands`: its condition."""
    (condition,) = operands
    if np.ndim(condition) == 0:
        return branches[0 if condition else 1]([])
    # In the body of a linalg op a condition is an array: regions are pure there, so both sides are evaluated.
    return [np.where(condition, a, b) for a, b in zip(branches[0]([]), branches[1]([]), strict=True)]


@rule("scf.while")
def while_(op: Any, frame: Any) -> Meaning:
    before, after = (frame.region(region) for region in op.operation.regions)

    def run(operands: list[Any]) -> list[Any]:
        while True:
            proceed, *values = before(operands)
            if not proceed:
                return values
            operands = after(values)

    return run


@rule("scf.parallel")
def parallel(op: Any, frame: Any) -> Meaning:
    region = op.operation.regions[0]
    rank = len(region.blocks[0].arguments)
    reduce = list(region.blocks[0].operations)[-1].operation
    body = frame.region(region, list(reduce.operands))
    combines = [frame.region(r) for r in reduce.regions]

    def run(operands: list[Any]) -> list[Any]:
        lower, upper, step = ([int(x) for x in operands[k * rank : (k + 1) * rank]] for k in range(3))
        carried = operands[3 * rank :]
        for point in itertools.product(*map(range, lower, upper, step)):
            values = body(list(map(np.int64, point)))
            carried = [combine([a, b])[0] for combine, a, b in zip(combines, carried, values, strict=True)]
        return carried

    return run


@rule("scf.execute_region")
def execute_region(op: Any, frame: Any) -> Meaning:
    body = frame.region(op.operation.regions[0])
    return lambda operands: body([])

"""Index arithmetic by affine maps, and affine loops."""

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from ..mlir import ir
from .interface import Meaning, rule
from .iteration import affine


def map_function(map: ir.AffineMap) -> Callable[[list[Any]], list[Any]]:
    """An affine map as a function of its operands, dimensions first."""
    results = [affine(expr) for expr in map.results]
    dims = map.n_dims
    return lambda operands: [result(operands[:dims], operands[dims:]) for result in results]


@rule("affine.apply")
def apply(op: Any, frame: Any) -> Meaning:
    function = map_function(op.operation.attributes["map"].value)
    return lambda operands: [np.int64(x) if np.ndim(x) == 0 else x for x in function(operands)]


@rule("affine.min", "affine.max")
def bound(op: Any, frame: Any) -> Meaning:
    function = map_function(op.operation.attributes["map"].value)
    combine = np.minimum if op.operation.name == "affine.min" else np.maximum
    return lambda operands: [reduce(combine, map(np.int64, function(operands)))]


@rule("affine.for")
def for_(op: Any, frame: Any) -> Meaning:
    attributes = op.operation.attributes
    lower_map, upper_map = (attributes[name].value for name in ("lowerBoundMap", "upperBoundMap"))
    lower, upper = map_function(lower_map), map_function(upper_map)
    step = attributes["step"].value
    lower_inputs, upper_inputs = lower_map.n_inputs, upper_map.n_inputs
    body = frame.region(op.operation.regions[0])

    def run(operands: list[Any]) -> list[Any]:
        first = max(lower(operands[:lower_inputs]))
        last = min(upper(operands[lower_inputs : lower_inputs + upper_inputs]))
        carried = operands[lower_inputs + upper_inputs :]
        operands.clear()
        for i in range(int(first), int(last), step):
            arguments = [np.int64(i), *carried]
            carried.clear()
            carried = body(arguments)
        return carried

    return run

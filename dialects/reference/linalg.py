"""Every linalg structured op, by one mechanism: indexing maps, iterator types and the body.

The operands are seen over the iteration space (see iteration.py) and the body is evaluated on whole arrays. An output
that misses a loop is a reduction: where the body combines it as ``acc ⊕ x`` and nothing else looks at it, x is reduced
by numpy, or contracted by a matmul if it is a sum of products; else the missing loops run one point after the other.
"""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..mlir import ir, linalg
from . import arrays
from .contraction import contract
from .interface import EvaluationError, Meaning, Rule, rule
from .iteration import Access, iota, loop_sizes
from .softmax import softmax_step

_COMBINERS: dict[str, np.ufunc] = {
    "arith.addf": np.add,
    "arith.addi": np.add,
    "arith.mulf": np.multiply,
    "arith.muli": np.multiply,
    "arith.maximumf": np.maximum,
    "arith.minimumf": np.minimum,
    "arith.maxnumf": np.fmax,
    "arith.minnumf": np.fmin,
    "arith.maxsi": np.maximum,
    "arith.minsi": np.minimum,
    "arith.andi": np.bitwise_and,
    "arith.ori": np.bitwise_or,
    "arith.xori": np.bitwise_xor,
}


def structured_rule(op: ir.OpView) -> Rule | None:
    """The rule of linalg structured ops, None for any other op."""
    return Structured if linalg.get_indexing_maps(op.operation) is not None else None


@rule("linalg.index")
def index(op: Any, frame: Any) -> Meaning:
    dim = op.operation.attributes["dim"].value
    return lambda operands: [frame.indices[-1](dim)]


@rule("linalg.softmax")
def softmax(op: Any, frame: Any) -> Meaning:
    axis = op.operation.attributes["dimension"].value
    return lambda operands: softmax_step(arrays.take(operands, 0), -math.inf, 0.0, axis, normalise=True)[:1]


@dataclasses.dataclass(frozen=True)
class Reduction:
    """``acc ⊕ x``: `terms` are x, or the two factors of x where it is summed (a contraction)."""

    combine: np.ufunc
    terms: list[ir.Value]


class Structured:
    """The meaning of one structured op; see the module."""

    def __init__(self, op: ir.OpView, frame: Any):
        self.frame = frame
        self.accesses = [Access(attribute.value) for attribute in linalg.get_indexing_maps(op.operation)]
        outputs = len(op.operation.results)
        if outputs == 0:
            raise EvaluationError(f"'{op.operation.name}' works on buffers; expects tensors", op)
        self.inputs = len(self.accesses) - outputs
        if any(None in access.terms for access in self.accesses[self.inputs :]):
            raise EvaluationError(f"'{op.operation.name}' has an output whose indexing map is not linear", op)
        self.loops = self.accesses[0].loops
        self.missing = [sorted(set(range(self.loops)) - access.dims) for access in self.accesses[self.inputs :]]
        region = op.operation.regions[0]
        block = region.blocks[0]
        running = [block.arguments[self.inputs + i] for i in range(outputs) if self.missing[i]]
        yielded = list(list(block.operations)[-1].operation.operands)
        self.reductions = [_reduction(yielded[i], running) if self.missing[i] else None for i in range(outputs)]
        self.vectorised = all(r is not None or not self.missing[i] for i, r in enumerate(self.reductions))
        self.terms = [r.terms if r else [yielded[i]] for i, r in enumerate(self.reductions)]
        wanted = [term for terms in self.terms for term in terms] if self.vectorised else yielded
        if self.vectorised and _depends(wanted, running, block):
            self.vectorised, wanted = False, yielded
        self.body = frame.region(region, wanted)
        used = _reached(wanted, block)
        self.reads = [argument in used for argument in block.arguments]

    def __call__(self, operands: list[Any]) -> list[Any]:
        sizes = loop_sizes(self.accesses, [np.shape(x) for x in operands])
        self.frame.indices.append(lambda dim: iota(sizes, dim))
        try:
            return self._whole(operands, sizes) if self.vectorised else self._in_order(operands, sizes)
        finally:
            self.frame.indices.pop()

    def _whole(self, operands: list[Any], sizes: list[int]) -> list[Any]:
        inits = [
            operands[self.inputs + o] if self.missing[o] or not self.accesses[self.inputs + o].is_projection else None
            for o in range(len(self.missing))
        ]
        views: list[Any] = []
        for i, access in enumerate(self.accesses):
            views.append(access.view(operands[i], sizes) if self.reads[i] else None)
            operands[i] = None
        values = iter(self.body(views))
        results: list[Any] = []
        for o, access in enumerate(self.accesses[self.inputs :]):
            reduction = self.reductions[o]
            if reduction is None:
                value = next(values)
            else:
                terms = [_over_loops(next(values), self.loops) for _ in reduction.terms]
                init = access.view(inits[o], sizes)
                value = _reduce(reduction.combine, terms, init, self.missing[o], sizes)
                del init, terms
            value = _over_loops(value, self.loops)
            if access.is_projection:
                results.append(access.restore(value, sizes))
            else:
                results.append(np.array(inits[o]))
                access.view(results[-1], sizes)[...] = value
            del value
        return results

    def _in_order(self, operands: list[Any], sizes: list[int]) -> list[Any]:
        results = [arrays.take(operands, i) for i in range(self.inputs, len(operands))]
        spaces = [
            _over_loops(access.view(x, sizes), self.loops)
            for access, x in zip(self.accesses, operands[: self.inputs] + results, strict=True)
        ]
        serial = sorted({d for missing in self.missing for d in missing})
        for point in itertools.product(*(range(sizes[d]) for d in serial)):
            at = dict(zip(serial, point, strict=True))
            where = [
                tuple(
                    slice(at[d], at[d] + 1) if d in at and d in access.dims else slice(None) for d in range(self.loops)
                )
                for access in self.accesses
            ]
            self.frame.indices[-1] = lambda d, at=at: np.full((1,) * self.loops, at[d]) if d in at else iota(sizes, d)
            parts = [space[w] for space, w in zip(spaces, where, strict=True)]
            for o, value in enumerate(self.body([part.copy() for part in parts])):
                spaces[self.inputs + o][where[self.inputs + o]] = value
        return results


def _over_loops(value: Any, loops: int) -> np.ndarray:
    """A scalar as an array over the iteration space; other values unchanged."""
    return np.reshape(value, (1,) * loops) if np.ndim(value) == 0 else value


def _reduce(
    combine: np.ufunc, terms: list[np.ndarray], init: np.ndarray, missing: Sequence[int], sizes: Sequence[int]
) -> np.ndarray:
    """`init` combined with the reduction of `terms` (x, or two factors of it) over the `missing` loops."""
    if any(sizes[d] == 0 for d in missing):
        return init
    if len(terms) == 2:
        x, y = terms
        return arrays.apply(np.add, [contract(x, y, missing, sizes), init])
    (x,) = terms
    if combine in (np.add, np.multiply, np.bitwise_xor):
        x = np.broadcast_to(x, [sizes[d] if d in missing else x.shape[d] for d in range(len(sizes))])
    if x.dtype == np.bool_ and combine in (np.add, np.multiply):
        combine = np.logical_xor if combine is np.add else np.logical_and
    return combine(combine.reduce(x, axis=tuple(missing), keepdims=True), init)


def _reduction(value: ir.Value, running: list[ir.Value]) -> Reduction | None:
    """How the body combines an accumulator to yield `value`, None where it is no known reduction."""
    if isinstance(value, ir.BlockArgument):
        return None
    op = value.owner
    name = op.name
    operands = list(op.operands)
    if name == "math.fma" and operands[2] in running:
        return Reduction(np.add, operands[:2])
    combine = _COMBINERS.get(name)
    if combine is None or sum(operand in running for operand in operands) != 1:
        return None
    (x,) = (operand for operand in operands if operand not in running)
    factors = None if isinstance(x, ir.BlockArgument) else x.owner
    is_bits = str(x.type) == "i1"
    if combine is np.add and factors is not None and factors.name in ("arith.mulf", "arith.muli") and not is_bits:
        return Reduction(combine, list(factors.operands))
    return Reduction(combine, [x])


def _reached(values: list[ir.Value], block: ir.Block) -> set[ir.Value]:
    """The values in `block` that `values` depend on, themselves included."""
    from .evaluator import _captured, _needed

    reached = set(values)
    for op in _needed(list(block.operations), values):
        reached.update(op.operation.operands)
        reached.update(_captured(op))
    return reached


def _depends(values: list[ir.Value], on: list[ir.Value], block: ir.Block) -> bool:
    return not _reached(values, block).isdisjoint(on)

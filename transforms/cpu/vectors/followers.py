"""Reductions that follow a contraction in its loops: a row's maximum is taken of scores that are still in registers.

    linalg.generic {S[k, q] += …} outs(%s)                          # before a register tile of S is stored …
    linalg.generic {m[q] = max(m[q], S[k, q])} ins(%s) outs(%m)     # … it is combined with %m

Scores are not read once more for it, from the L2 cache where a tile of them fills the L1 cache, and what is done with
them takes other pipes than the products of the next register tile.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from ....dialects import build
from ....dialects.mlir import ir
from ...rewriting import ops_of
from ..initial_values import ALLOCATIONS, find_fills, is_arithmetic, is_fill, origin_of
from ..memory import VIEWS
from ..structured import NO_LOOP, Operand, Structured, structured_of
from .combiners import combiner
from .operand_access import OperandAccess, buffer
from .register_tile import Key, Offsets, RegisterTile
from .scalar_body import BodyEvaluator
from .schedule import Schedule


def follower(op: Structured, schedule: Schedule) -> Structured | None:
    """The reduction of nothing but the result of a contraction that comes next, along loops that are not the lanes'."""
    if len(op.outputs) != 1 or not op.is_accumulator(op.outputs[0]) or build.is_narrow(op.outputs[0].element):
        return None
    (result,) = op.outputs
    following, before = _next(op.op)
    found = structured_of(following) if following is not None else None
    if found is None or len(found.operands) != 2 or len(found.outputs) != 1:
        return None
    source, out = found.operands
    if source.value != result.value or not out.is_read or not found.is_accumulator(out) or combiner(found, out) is None:
        return None
    loops = _loops(found, op)  # of all that it goes over, where it counts along none
    if len(loops) < found.n_loops or any(inner.name == "linalg.index" for inner in found.body_ops):
        return None
    # ``share-scratch`` lets it be where an operand is, which is read no more once the contraction is done.
    if any(origin_of(out.value) == origin_of(operand.value) for operand in op.operands):
        return None
    is_same = all((a == NO_LOOP) == (b == NO_LOOP) for a, b in zip(source.dims, result.dims, strict=True))
    if not is_same or schedule.vector_loop not in {loops[d] for d in out.loops}:
        return None
    fills = list(find_fills(found).values())
    return found if fills and all(other in fills for other in before) else None


def _next(op: ir.Operation) -> tuple[ir.Operation | None, list[ir.Operation]]:
    """The next generic op that is no fill, and the fills before it, if nothing else before it may touch memory."""
    operations = ops_of(op.block)
    fills = []
    for other in operations[operations.index(op) + 1 :]:
        if is_fill(other):
            fills.append(other)
        elif other.name == "linalg.generic":
            return other, fills
        elif not _is_apart(other):
            break
    return None, []


def _is_apart(op: ir.Operation) -> bool:
    return op.name in (*VIEWS, *ALLOCATIONS, "memref.dim") or is_arithmetic(op)


def _loops(found: Structured, op: Structured) -> dict[int, int]:
    """The contraction's loops by those of the op that follows it."""
    return dict(zip(found.operands[0].dims, op.outputs[0].dims, strict=True))


class Followed:
    """A contraction's register tile, with what follows it."""

    def __init__(self, op: Structured, found: Structured, tile: RegisterTile, access: OperandAccess, lanes: int):
        source, out = found.operands
        loops = _loops(found, op)
        self.result, self.tile, self.access = op.outputs[0], tile, access
        dims = tuple(loops.get(d, NO_LOOP) for d in out.dims)
        self.out: Operand = dataclasses.replace(out, number=len(access.buffers), dims=dims)
        access.buffers[self.out.number] = buffer(self.out)
        # What an accumulator starts from is a constant, and what it becomes a number then.
        self.evaluator = BodyEvaluator(found, lanes, [found.body.arguments[out.number]])
        self.numbers = source.number, out.number

    def emit(self, values: Mapping[Key, ir.Value]) -> None:
        """Combines the results in registers, by operand and unroll offsets, with what they are reduced to."""
        every = sorted(self.result.loops)
        for offsets in self.tile.offsets(sorted(self.out.loops)):
            at = self.tile.at(self.out.loops, offsets)
            total = self.access.load(self.out, at)
            for point in self.tile.offsets(every):
                if all(point[every.index(d)] == offset for d, offset in at.items()):
                    total = self._combined(values[self.result.number, point], total)
            self.access.store(self.out, total, at)

    def _combined(self, value: ir.Value, total: ir.Value) -> ir.Value:
        source, out = self.numbers
        (result,) = self.evaluator.evaluate({source: value, out: total}, (), _no_index)
        return result


def _no_index(d: int, point: Offsets) -> ir.Value:
    raise AssertionError("a plain reduction has no index")

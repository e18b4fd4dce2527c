"""The pass ``round-shared``."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from ....dialects.build import element_of, i64_attribute
from ....dialects.mlir import ir
from ...attention import is_contraction
from ...graph import ancestor_in, operands_with_captures
from ...passes import Pass
from ...reshapes import VIEWS
from ...rewriting import ancestors, defining_op, functions_of, ops_in, terminator
from ..elements import NARROW
from ..marks import ROUNDED

MOVES = (*VIEWS, "tensor.concat", "tensor.pad")  # of elements as they are
CHOICES = ("arith.select", "arith.maximumf", "arith.minimumf", "arith.maxnumf", "arith.minnumf", "arith.negf")


@dataclass(frozen=True)
class RoundShared(Pass):
    """Around the loops over tiles, marks what is to be rounded in registers, too, as several ops read it, or what is
    computed from it::

        %s = linalg.generic … ins(%q, %b) { addf : bf16 } -> tensor<64x64xbf16>
        %m = linalg.generic … ins(%s) { maximumf : bf16 } -> tensor<64xbf16>
        %e = linalg.generic … ins(%s, %m) { subf ; exp : bf16 }
      becomes
        %s = linalg.generic … ins(%q, %b) { addf {tile.rounded = 1} : bf16 } -> tensor<64x64xbf16>
        …

    Floats of 16 bits are f32 in registers, rounded where they leave them. So a value that one kernel stores, and
    another one computes again where it reads it, would be two numbers, and the exponential of a score less itself
    not 1. Which kernels there are is not known yet; ``drop-roundings`` drops marks that were not needed. What stands in
    loops is computed there alone, but for their results.
    """

    def run(self, op: ir.Operation) -> None:
        numbers = itertools.count(1)
        for function in functions_of(op):
            found = [o for o in ops_in(function, "linalg.generic", "scf.forall") if not _is_in_loops(o)]
            pending = [v for o in found for v in o.results if _is_shared(v)]
            seen = set(pending)
            while pending:
                makers = _makers(pending.pop(), numbers)
                read = dict.fromkeys(v for o in makers for v in operands_with_captures(o))
                pending += [v for v in read if v not in seen and _is_outside(v)]
                seen.update(read)


def _is_in_loops(op: ir.Operation) -> bool:
    return any(a.name == "scf.forall" for a in ancestors(op))


def _is_outside(value: ir.Value) -> bool:
    op = defining_op(value)
    return isinstance(value.type, ir.RankedTensorType) and op is not None and not _is_in_loops(op)


def _is_shared(value: ir.Value) -> bool:
    block = defining_op(value).block
    return len({ancestor_in(use.owner, block) for use in value.uses}) > 1


def _makers(value: ir.Value, numbers: Iterator[int]) -> list[ir.Operation]:
    """The op that makes a value, marked so that this is rounded; none where what it reads was rounded already, or is
    not read again."""
    op = defining_op(value)
    if op.name in MOVES:
        return [op]
    if op.name == "scf.forall":
        _mark_result_of_loops(op, value, numbers)
    elif op.name == "linalg.generic" and not is_contraction(op):
        _mark_results(op, numbers)
        return [op]
    return []


def _mark_result_of_loops(loops: ir.Operation, result: ir.Value, numbers: Iterator[int]) -> None:
    """Where the loops make a tile of the result last."""
    shared = list(loops.regions[0].blocks[0].arguments)[-len(loops.results) :][result.result_number]
    for use in shared.uses:
        insert = use.owner.operation
        if insert.name == "tensor.parallel_insert_slice" and insert.operands[1] == shared:
            maker = defining_op(insert.operands[0])
            if maker is not None and maker.name == "linalg.generic" and not is_contraction(maker):
                _mark_results(maker, numbers)


def _mark_results(op: ir.Operation, numbers: Iterator[int]) -> None:
    for value in terminator(op.regions[0].blocks[0]).operands:
        _mark(value, numbers)


def _mark(value: ir.Value, numbers: Iterator[int]) -> None:
    """Marks the op that a number comes from, if it may have to be rounded."""
    op = defining_op(value)
    if op is None or not isinstance(element_of(value.type), NARROW):
        return
    if op.name in CHOICES:
        for operand in op.operands:
            _mark(operand, numbers)
    elif op.name == "scf.if":
        for region in op.regions:
            _mark(terminator(region.blocks[0]).operands[list(op.results).index(value)], numbers)
    elif op.name.startswith(("arith.", "math.")) and op.name != "arith.constant" and ROUNDED not in op.attributes:
        with op.context:
            op.attributes[ROUNDED] = i64_attribute(next(numbers))

"""Loops, one in the other, that write to a tensor which they carry, and what of them the body of a linalg.generic can
compute; used by ``donated-writes`` and ``scatters-to-linalg``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ....dialects import build
from ....dialects.mlir import ir
from ...rewriting import defining_op, for_body, for_inits, is_made_inside, single_use, terminator
from ...slices import Size

SIZE = "tensor.dim"
_SCALAR = ("arith.", "math.", "tensor.extract", SIZE)


@dataclass
class WriteLoops:
    """`value`: what an iteration of the innermost one gives; of no loop, the result of the writer itself."""

    value: ir.Value
    counts: list[Size] = field(default_factory=list)  # of the iterations of each loop
    inductions: list[ir.Value] = field(default_factory=list)
    carried: list[ir.Value] = field(default_factory=list)  # what the loops have written, by loop


def write_loops(writer: ir.Operation) -> WriteLoops | None:
    """The loops that `writer` is the outermost one of, which count from 0 on; None for others."""
    found, loop = WriteLoops(writer.results[0]), writer
    while loop.name == "scf.for":
        lower, upper, step = list(loop.operands)[:3]
        if (build.constant_value(lower), build.constant_value(step)) != (0, 1) or is_made_inside(upper, writer):
            return None
        if found.carried and (for_inits(loop) != found.carried[-1:] or not single_use(found.carried[-1])):
            return None
        body, number = for_body(loop), build.constant_value(upper)
        found.counts.append(upper if number is None else number)
        found.inductions.append(body.arguments[0])
        found.carried.append(body.arguments[1])
        (found.value,) = terminator(body).operands
        inner = defining_op(found.value)
        if inner is None or not is_made_inside(found.value, writer):
            break
        loop = inner
    return found


def can_be_copied(op: ir.Operation, writer: ir.Operation, states: Sequence[ir.Value]) -> bool:
    """Whether an op of a writer computes a number of numbers, of tensors from outside, and of sizes of what is written,
    of which `states` are the tensor that it is before, between and after writes."""
    if len(op.regions) or not op.name.startswith(_SCALAR) or isinstance(op.results[0].type, ir.ShapedType):
        return False
    tensors = [v for v in op.operands if isinstance(v.type, ir.ShapedType)]
    return all((op.name == SIZE if v in states else not is_made_inside(v, writer)) for v in tensors)

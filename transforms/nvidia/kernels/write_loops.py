"""Loops, one in the other, that write to a tensor which they carry; used by ``donated-writes`` and
``scatters-to-linalg``."""

from __future__ import annotations

from dataclasses import dataclass, field

from ....dialects import build
from ....dialects.mlir import ir
from ...rewriting import defining_op, for_body, for_inits, is_made_inside, single_use, terminator
from ...slices import Size


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

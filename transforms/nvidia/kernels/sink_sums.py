"""The pass ``sink-sums``."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ....dialects.mlir import ir
from ...graph import PLACE, dependants_before, move_users_after, users_of
from ...passes import Pass, option
from ...reshapes import VIEWS, readers
from ...rewriting import functions_of, ops_of, terminator, through
from .column_lanes import column_lanes
from .donated_writes import PUT

MOVED = (*VIEWS, "linalg.generic")  # what may read a sum, and moves with it


@dataclass(frozen=True)
class SinkSums(Pass):
    """Around the loops over tiles, a sum over columns moves behind the loops that read what it reads, or what is made
    of that::

        %x = linalg.generic … -> tensor<2048x512xbf16>
        %s = linalg.generic { s + x } ins(%x) -> tensor<512xf32>        // the gradient of a bias
        %y = scf.forall … { … tensor.extract_slice %x[…] … }            // that of its weight
      becomes
        %x = linalg.generic … -> tensor<2048x512xbf16>
        %y = scf.forall … { … tensor.extract_slice %x[…] … }
        %s = linalg.generic { s + x } ins(%x) -> tensor<512xf32>

    ``outline-rows`` and ``outline-producers`` make kernels of what is computed before such a loop, whose results those
    behind them read. Who reads it before has to compute it once more.
    """

    any_strides: bool = option("take arrays of any strides, not of dense rows alone", False)

    def run(self, op: ir.Operation) -> None:
        for function in functions_of(op):
            for block in function.regions[0].blocks:
                sums = [o for o in ops_of(block) if o.name == "linalg.generic" and column_lanes(o, self.any_strides)]
                for one in reversed(sums):
                    _sink(one, set(sums))


def _sink(one: ir.Operation, sums: Collection[ir.Operation]) -> None:
    end = terminator(one.block)
    place = one
    for value in one.operands:
        for user in readers(through(value, *VIEWS), one.block) if isinstance(value.type, ir.RankedTensorType) else ():
            if user.name == PUT:
                return  # it overwrites what is summed
            last = _wanted_by(user, sums)
            if last is not None and last != end and place.is_before_in_block(last):
                place = last
    moved = dependants_before([one], place)
    if all(op.name in MOVED and place not in users_of(op) for op in moved):
        move_users_after([one], place)


def _wanted_by(op: ir.Operation, sums: Collection[ir.Operation]) -> ir.Operation | None:
    """The loop that first needs an op, or is it; or the last op on the way there. None of a sum of columns."""
    if op in sums:
        return None
    while op.name != "scf.forall":
        later = [user for result in op.results for user in readers(result, op.block) if user not in sums]
        if not later:
            break
        op = min(later, key=PLACE)
    return op

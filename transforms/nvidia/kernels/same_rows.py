"""Which ops a block can compute one after the other, since they go over the same rows; used by ``outline-elements``.

    %states = linalg.generic … -> tensor<2x64x32xi32>                      // of 2 × 64 rows 32 elements
    %counts = linalg.generic … ins(%states) -> tensor<2x64x32xi32>         // of the elements of its row
    %list = linalg.generic … ins(%counts) -> tensor<2x64x32xi32>

What one op makes the next one reads in its own row alone, so that its threads wait for those of their block: not for a
launch, which takes longer than what is computed there. That is so for ops on whole tiles (`SMALL`), of few elements.
Others of the same rows come along, where all threads of a block have something to do.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from ....dialects.build import constant_value
from ....dialects.mlir import ir
from ....dialects.tiling import Index
from ....dialects.tiling.structured import dim_position, indexing_maps, iterator_types
from ...extents import extent, static_extents
from ...graph import ancestor_in
from ...linear import linear
from ...online.before_loops import SMALL
from ...rewriting import defining_op
from .row_lanes import RowLanes, row_lanes

MOST_STEPS = 1 << 14  # of an op in a row, beyond which it is worth a launch that spreads them
STEPS = 16  # of a thread of a block, about: more threads, and each one only begins
FEWEST_THREADS, MOST_THREADS = 128, 1024


@dataclass(frozen=True)
class SameRows:
    """The first `rank` loops of each of the `ops` are those over rows."""

    ops: tuple[ir.Operation, ...]
    rank: int

    @staticmethod
    def of(ops: Sequence[ir.Operation]) -> SameRows | None:
        """None where these, in their order, have no rows in common, or more to do than a block should."""
        if any(SMALL not in op.attributes for op in ops) or any(op.block != ops[0].block for op in ops):
            return None
        shared = [[n for maker in ops[:i] if (n := _shared(maker, op)) is not None] for i, op in enumerate(ops)]
        parallel = [iterator_types(op).count("parallel") for op in ops]
        rank = min([*itertools.chain(*shared), max(parallel) - 1])
        found = SameRows(tuple(ops), rank)
        is_one = rank >= 0 and all(n - rank in (0, 1) for n in parallel) and all(map(found._has_rows, ops))
        if not is_one or max(map(found._steps, ops)) > MOST_STEPS:
            return None
        apart = [op for op, reads in zip(ops[1:], shared[1:], strict=True) if not reads]
        return found if all(found._steps(op) >= FEWEST_THREADS for op in apart) else None

    @property
    def threads(self) -> int:
        """Of a block."""
        wanted = max(map(self._steps, self.ops)) // STEPS
        return FEWEST_THREADS if wanted < FEWEST_THREADS else min(MOST_THREADS, 1 << wanted.bit_length() - 1)

    def lanes(self, op: ir.Operation) -> RowLanes | None:
        """How the threads of a block share the elements of an op: all have something to do."""
        return row_lanes(op, any_strides=True, threads=self.threads // self._inner(op, "parallel"))

    def _has_rows(self, op: ir.Operation) -> bool:
        """Whether its first loops are over the rows of what the first op makes, one of its results beside the other."""
        first = len(op.operands) - len(op.results)
        written = indexing_maps(op)[first:]
        places = [[dim_position(e) for e in m.results[: self.rank]] for m in written]
        own, others = ([extent(o.results[0], d) for d in range(self.rank)] for o in (op, self.ops[0]))
        is_parallel = iterator_types(op)[: self.rank] == ["parallel"] * self.rank
        return is_parallel and all(p == list(range(self.rank)) for p in places) and None not in own and own == others

    def _inner(self, op: ir.Operation, *kinds: str) -> int:
        """The product of the extents of loops of such kinds within a row, or more than a block should have."""
        loops = list(zip(static_extents(op), iterator_types(op), strict=True))[self.rank :]
        return math.prod(n if n is not None else MOST_STEPS + 1 for n, kind in loops if kind in kinds)

    def _steps(self, op: ir.Operation) -> int:
        return self._inner(op, "parallel", "reduction")


def _shared(maker: ir.Operation, reader: ir.Operation) -> int | None:
    """How many of its first loops `reader` is in, wherever it reads what `maker` has made, which is at the same place
    of as many dimensions; None where it reads nothing of that."""
    found = []
    for result in maker.results:
        for use in result.uses:
            user = use.owner.operation
            if user == reader:
                at = [dim_position(e) for e in indexing_maps(reader)[use.operand_number].results]
            elif user.name == "tensor.extract" and ancestor_in(user, reader.block) == reader:
                at = [_loop(v, reader) for v in list(user.operands)[1:]]
            else:
                continue
            found.append(next((d for d, loop in enumerate(at) if loop != d), len(at)))
    return min(found, default=None)


def _loop(value: ir.Value, op: ir.Operation) -> int | None:
    """The loop of `op` that a number in its body is the index of: itself, or as the number of the tile of so many
    elements, which is that of the last one at most."""

    def leaf(number: ir.Value) -> Index | None:
        maker = defining_op(number)
        if maker is None or maker.name not in ("arith.divui", "arith.minui"):
            return None
        form, constant = linear(maker.operands[0], leaf), constant_value(maker.operands[1])
        if constant is None:
            return None
        if maker.name == "arith.divui":
            return form.divided(constant) if form.divisible_by(constant) else None
        loop = _index_of(form, op)
        size = static_extents(op)[loop] if loop is not None else None
        return form if size is not None and size <= constant + 1 else None

    return _index_of(linear(value, leaf), op)


def _index_of(form: Index, op: ir.Operation) -> int | None:
    index = defining_op(form.terms[0][0]) if form.is_value else None
    is_own = index is not None and index.name == "linalg.index" and index.block == op.regions[0].blocks[0]
    return ir.IntegerAttr(index.attributes["dim"]).value if is_own else None

"""The loop over tiles of keys of one accumulation, and how much there is to do in it."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...dialects import build
from ...dialects.mlir import arith, ir
from ..extents import known_sizes
from ..open_queries import FEW_BLOCKS
from ..rewriting import carried_init, defining_op, is_made_inside, ops_in
from ..slices import Size, forall_bounds, known_index, slice_parts
from .match_accumulation import Unsuited, filled_with
from .modified_scores import ModifiedScores, carried_states

FEWEST_TILES = 2  # of a part: below, merging costs what it gains
FIRST = (0.0, -math.inf, 0.0)  # what output, maximum and sum start from


@dataclass(frozen=True)
class KeyLoop:
    """The loop over tiles of keys of one accumulation, inside of `holder`, a scf.forall, or of none.

    `rows[d]`: the dimension of the output that dimension d of the statistics is. `positions`: of output, maximum and
    sum among the loop's results; of the output alone without a softmax. `place`: where the loop's tile lies in the
    whole output: offsets, sizes, and that output.
    """

    scores: ModifiedScores
    rows: list[int]
    loop: ir.Operation
    holder: ir.Operation | None
    positions: tuple[int, ...]
    place: tuple[list[Size], list[Size], ir.Value]

    @staticmethod
    def of(scores: ModifiedScores) -> KeyLoop:
        rows, carried = carried_states(scores)
        if any(len(levels) != 1 for levels in carried) or len({levels[0].loop for levels in carried}) != 1:
            raise Unsuited("output and statistics are not carried by one loop, over keys, in parallel ones")
        states = [level for (level,) in carried]
        output, *statistics = states
        loop = output.loop
        if len(loop.results) != len(states) or any(state.offsets is not None for state in states):
            raise Unsuited("the loop over keys carries more than a tile of the output and its statistics")
        if not all(filled_with(state.init, first) for state, first in zip(statistics, FIRST[1:], strict=False)):
            raise Unsuited("the statistics do not start from −∞ and 0")
        if not isinstance(build.constant_value(loop.operands[2]), int):
            raise Unsuited("the step of the loop over keys is no constant")
        parent = loop.parent.operation
        if parent.name not in ("scf.forall", "func.func"):
            raise Unsuited(f"the loop over keys stands in '{parent.name}'")
        holder = parent if parent.name == "scf.forall" else None
        positions = tuple(state.position for state in states)
        return KeyLoop(scores, rows, loop, holder, positions, _place(output.init, holder))

    @property
    def blocks(self) -> int | None:
        """How many blocks there are without splitting keys; None if that is not known."""
        counts = self._counts()
        return None if None in counts else math.prod(counts)

    @property
    def fewest_blocks(self) -> int:
        """How many there are at least, if there are any."""
        return math.prod(count or 1 for count in self._counts())

    @property
    def has_few_blocks(self) -> bool:
        """Whether there are hardly more than `fewest_blocks`."""
        return any(FEW_BLOCKS in op.attributes for op in ops_in(self.loop))

    def _counts(self) -> list[int | None]:
        """The numbers of iterations of the loops over blocks; None for what is not known."""
        if self.holder is None:
            return []
        counts: list[int | None] = []
        for low, high, step in zip(*forall_bounds(self.holder), strict=True):
            known = all(isinstance(v, int) for v in (low, high, step))
            counts.append(-(-(high - low) // step) if known else None)
        return counts

    def parts_for(self, tasks: int) -> ir.Value:
        """How many parts give so many tasks, computed before the loops over blocks."""
        with ir.InsertionPoint(self.holder or self.loop), self.loop.location:
            counts = [_iterations(*b) for b in zip(*forall_bounds(self.holder), strict=True)] if self.holder else []
            known = math.prod(n for n in counts if isinstance(n, int))
            blocks = functools.reduce(arith.muli, [n for n in counts if not isinstance(n, int)], build.index(known))
            parts = arith.divui(build.index(tasks), arith.maxsi(blocks, build.index(1)))
            bounds = [known_index(v) for v in list(self.loop.operands)[:3]]
            if all(isinstance(v, int) or self._is_outside(v) for v in bounds):
                tiles = build.as_index(_iterations(*bounds))
                parts = arith.minsi(parts, arith.divui(tiles, build.index(FEWEST_TILES)))
            return arith.maxsi(parts, build.index(1))

    def _is_outside(self, value: ir.Value) -> bool:
        """Whether a value that the loop over keys uses is there before the loop over blocks."""
        return self.holder is None or not is_made_inside(value, self.holder)

    @property
    def tiles(self) -> int | None:
        """How many tiles of keys there are; None if that is not known."""
        low, high, step = (build.constant_value(v) for v in list(self.loop.operands)[:3])
        return -(-(high - low) // step) if isinstance(low, int) and isinstance(high, int) else None

    @property
    def step(self) -> int:
        """How many keys a tile has."""
        return build.constant_value(self.loop.operands[2])

    def tile(self, number: int, values: Sequence[Size]) -> list[Size]:
        """Of offsets or sizes along the output's dimensions those of the output (0), or of a statistic (1, 2)."""
        return list(values) if number == 0 else [values[d] for d in self.rows]


def _iterations(low: Size, high: Size, step: Size) -> Size:
    """How many a loop has; in arithmetic of numbers that are not negative, which the host of a GPU does."""
    if not isinstance(step, int):
        raise Unsuited("a loop around the one over keys has a step that is no constant")
    if isinstance(low, int) and isinstance(high, int):
        return max(0, -(-(high - low) // step))
    end = build.as_index(high)
    span = arith.maxsi(end if low == 0 else arith.subi(end, build.as_index(low)), build.index(0))
    return span if step == 1 else arith.divui(arith.addi(span, build.index(step - 1)), build.index(step))


def _place(init: ir.Value, holder: ir.Operation | None) -> tuple[list[Size], list[Size], ir.Value]:
    """Where the tile that the output starts from lies, and in which tensor from before all loops."""
    if holder is None:
        return [0] * init.type.rank, known_sizes(init), init
    read = defining_op(init)
    argument = read.operands[0] if read is not None and read.name == "tensor.extract_slice" else init
    if not isinstance(argument.owner, ir.Block) or argument.owner.owner.operation != holder:
        raise Unsuited("the output's tile is no part of what the parallel loop writes")
    whole = carried_init(argument)
    if read is None or argument == init:
        return [0] * init.type.rank, known_sizes(whole), whole
    offsets, sizes, strides = slice_parts(read)
    if any(s != 1 for s in strides) or whole.type.rank != init.type.rank:
        raise Unsuited("the output's tile is a slice with strides, or of fewer dimensions")
    return offsets, sizes, whole

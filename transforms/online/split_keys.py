"""The pass ``split-keys``."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from ...dialects import build
from ...dialects.linalg_ext.softmax import EXP2
from ...dialects.mlir import arith, ir, scf
from ..extents import known_sizes
from ..graph import operands_with_captures
from ..limits import MOST_PARTS
from ..open_queries import FEW_BLOCKS
from ..passes import Pass, PassError, option, remark
from ..rewriting import carried_init, copy_op, defining_op, is_made_inside, ops_in
from ..slices import Size, extract, forall_bounds, insert_parallel, known_index, slice_parts
from .mark_few_rows import FEW_ROWS
from .match_accumulation import MAX, Level, Unsuited, accumulation_of, carried_levels, filled_with
from .merge_parts import merged
from .modified_scores import ModifiedScores, modified_scores_in

TASKS = 2  # per worker, where keys are split: what one takes longer the next one makes up for
FEWEST_TILES = 2  # of a part: below, merging costs what it gains
KEYS_OF_A_MERGE = 768  # which a busy block goes through meanwhile (measured on an H200)
FIRST = (0.0, -math.inf, 0.0)  # what output, maximum and sum start from


@dataclass(frozen=True)
class SplitKeys(Pass):
    """Lets several workers share the keys of one block of queries, and merges what they found::

        %r = scf.forall (%i) = … shared_outs(%out = %zeros) {
          %o0 = tensor.extract_slice %out[%i, 0] [4, 128] [1, 1]
          %o, %m, %a = scf.for %k = 0 to %n step 64 iter_args(%o1 = %o0, %m1 = %minus_inf, %a1 = %zero) {
            … unnorm_softmax, matmul …
          }
          %d = linalg.generic … { o / a }
          scf.forall.in_parallel { tensor.parallel_insert_slice %d into %out[%i, 0] [4, 128] [1, 1] }
        }
    becomes, with parts=8
        %p:3 = scf.forall (%i, %p) = (0, 0) to (…, 8) … shared_outs(%po = %e : tensor<8x…x128xf32>, %pm = …, %pa = …) {
          %end = affine.apply (%p) -> ((⌈%n / 64⌉ − %p) ceildiv 8 · 64)
          %o, %m, %a = scf.for %t = 0 to %end step 64 iter_args(zeros, −∞, zeros) {
            %k = affine.apply (%t, %p) -> (%t · 8 + %p · 64)                         // every eighth tile
            …
          }
          scf.forall.in_parallel { %o into %po[%p, %i, 0], %m into %pm[%p, %i], %a into %pa[%p, %i] }
        }
        %r = scf.forall (%i) = … shared_outs(%out = %zeros) {
          %o, %m, %a = scf.for %p = 0 to 8 step 1 iter_args(…) { … merge-parts … }
          %d = linalg.generic … { o / a }                                             // as before
          …

    Parts take turns with the tiles, so that a mask (a window, the length of a cache) leaves each about as much to do;
    a part that has none, or only masked ones, has m = −∞, a = 0 and weighs nothing. Without a softmax there is nothing
    but the output, and parts are added. What `mark-few-rows` says of the loop is then said of both.

    How many parts there are, unless given: none where the loop nest has as many blocks as there are `workers`, or where
    the number of blocks is not known; blocks of less than `few_rows` rows (decoding), which cost little to merge, are
    then taken to be as few as can be. Else as many as give a worker two tasks, of at least two tiles, or somewhat fewer
    if that divides the tiles evenly. Blocks of `busy_rows` rows and more compute all the time: as many parts as workers
    would be idle without, and none where that saves a block less time than it takes to merge.

    Of blocks that are said to be few, however many that is, the number of parts is computed before the loops, from the
    sizes of that call. Then an iteration's tile begins at a multiple of its counter that is known at run time only::

        %n_p = arith.maxsi(arith.minsi(264 / blocks, tiles / 2), 1)
        …
            %turn = arith.muli %t, %n_p
            %k = affine.apply (%turn, %p) -> (%turn + %p · 64)
    """

    parts: int = option("how many parts; 1 = not split, 0 = chosen by the number of workers", 0)
    workers: int = option("threads or multiprocessors that share the work", 1)
    few_rows: int = option("blocks of fewer rows, by dimension, are split also where their number is not known", 0)
    busy_rows: int = option("blocks of so many rows get a task a worker, and short ones are not split; 0: none do", 0)
    together: int = option("at most so many parts are read at once where they are merged", 2)

    def run(self, op: ir.Operation) -> None:
        if not 0 <= self.parts <= MOST_PARTS or self.workers < 1:
            problem = f"parts must be 0 to {MOST_PARTS} and workers 1 or more"
            raise PassError(f"{problem}, but are {self.parts}, {self.workers}", op)
        if self.parts == 1 or (self.parts == 0 and self.workers == 1):
            return
        for scores in modified_scores_in(op):
            if scores.consumer.name == "linalg_ext.softmax":  # divided in every tile
                continue
            try:
                keys = KeyLoop.of(scores)
                parts = self.parts or self._chosen(keys)
                if parts != 1:
                    keys.split(parts, self.together)
            except Unsuited as reason:
                remark(scores.consumer, f"keys are not split over workers: {reason}")
            else:
                if parts != 1:
                    count = f"{parts} parts" if isinstance(parts, int) else "as many parts as workers have time for"
                    how = "merged by their maxima and sums" if scores.is_softmax else "whose outputs are added"
                    message = f"keys are split into {count}, {how}"
                    remark(scores.consumer, message, kind="split-keys", parts=parts if isinstance(parts, int) else None)

    def _chosen(self, keys: KeyLoop) -> Size:
        blocks, tiles, is_known = keys.blocks, keys.tiles, keys.blocks is not None
        if blocks is None and (keys.has_few_blocks or keys.scores.has_fewer_rows(self.few_rows)):
            blocks = keys.fewest_blocks
        if blocks is None:
            raise Unsuited("the number of blocks is known at run time only (give parts to split them anyway)")
        if blocks >= self.workers:
            return 1
        if keys.has_few_blocks and not is_known:
            return keys.parts_for(TASKS * self.workers)
        busy = self.busy_rows and is_known and keys.scores.most_rows >= self.busy_rows
        most = (1 if busy else TASKS) * self.workers // blocks
        if tiles is None:
            return most
        most = max(min(most, tiles // FEWEST_TILES), 1)
        if busy and (tiles - tiles // most) * keys.step < KEYS_OF_A_MERGE:
            return 1
        even = [n for n in range(most, most * 2 // 3, -1) if tiles % n == 0]
        return even[0] if even else most


@dataclass(frozen=True)
class KeyLoop:
    """The loop over tiles of keys of one accumulation, inside of `holder`, a scf.forall, or of none.

    `rows[d]`: the dimension of the output that dimension d of the statistics is. `positions`: of output, maximum and
    sum among the loop's results; of the output alone without a softmax. `place`: where the loop's tile lies in the
    whole output: offsets and sizes, and the sizes of the whole.
    """

    scores: ModifiedScores
    rows: list[int]
    loop: ir.Operation
    holder: ir.Operation | None
    positions: tuple[int, ...]
    place: tuple[list[Size], list[Size], ir.Value]

    @staticmethod
    def of(scores: ModifiedScores) -> KeyLoop:
        rows, levels = _carried(scores)
        if any(len(one) != 1 for one in levels) or len({one[0].loop for one in levels}) != 1:
            raise Unsuited("output and statistics are not carried by one loop, over keys, in parallel ones")
        states = [level for (level,) in levels]
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

    def split(self, parts: Size, together: int) -> None:
        anchor = self.holder or self.loop
        with ir.InsertionPoint(anchor), self.loop.location:
            partial = self._parts(parts)
        with ir.InsertionPoint(self.loop), self.loop.location:
            slices = [(value, *self._slice(i)) for i, value in enumerate(partial)]
            inits = [self.loop.operands[3 + position] for position in self.positions]
            exp2 = EXP2 in self.scores.consumer.attributes
            results = merged(parts, together, inits, slices, self.rows, exp2)
        for position, value in zip(self.positions, results, strict=True):
            self.loop.results[position].replace_all_uses_with(value)
        self.loop.erase()

    def _slice(self, number: int, place: tuple | None = None) -> tuple[list[Size], list[Size]]:
        """Offsets and sizes of the tile in the output (0), or in the statistics (1, 2)."""
        offsets, sizes, _ = place or self.place
        dims = range(len(offsets)) if number == 0 else self.rows
        return [offsets[d] for d in dims], [sizes[d] for d in dims]

    def _parts(self, parts: Size) -> list[ir.Value]:
        """Emits the loop over blocks and parts; what it returns has a dimension more, of parts."""
        whole = known_sizes(self.place[2])
        empties = []
        for number, position in enumerate(self.positions):
            dims = range(len(whole)) if number == 0 else self.rows
            element = self.loop.operands[3 + position].type.element_type
            empties.append(build.empty([parts, *(whole[d] for d in dims)], element))
        bounds = forall_bounds(self.holder) if self.holder is not None else ([], [], [])
        lower, upper, step = ([*own, more] for own, more in zip(bounds, (0, parts, 1), strict=True))
        forall = scf.ForallOp(lower, upper, step, empties)
        if self.holder is not None and FEW_ROWS in self.holder.attributes:
            forall.operation.attributes[FEW_ROWS] = self.holder.attributes[FEW_ROWS]
        terminator = forall.terminator()
        *inductions, part = forall.induction_variables
        with ir.InsertionPoint(terminator.operation):
            copies = _Copies(self._outside(inductions))
            place = self._copied_place(copies)
            results = self._loop(copies, part, parts, list(forall.inner_iter_args), place)
        with ir.InsertionPoint(terminator.block):
            for i, (value, shared) in enumerate(zip(results, forall.inner_iter_args, strict=True)):
                offsets, sizes = self._slice(i, place)
                insert_parallel(value, shared, [part, *offsets], [1, *sizes])
        return list(forall.operation.results)

    def _outside(self, inductions: list[ir.Value]) -> dict[ir.Value, ir.Value]:
        """What stands for the arguments of the loop over blocks: its own counters, and what its results start from."""
        if self.holder is None:
            return {}
        arguments = list(self.holder.regions[0].blocks[0].arguments)
        count = len(self.holder.results)
        shared = list(self.holder.operands)[len(self.holder.operands) - count :]
        return dict(zip(arguments, [*inductions, *shared], strict=True))

    def _copied_place(self, copies: _Copies) -> tuple[list[Size], list[Size], ir.Value]:
        offsets, sizes, whole = self.place
        copy = [[v if isinstance(v, int) else copies.value(v) for v in part] for part in (offsets, sizes)]
        return copy[0], copy[1], whole

    def _loop(
        self, copies: _Copies, part: ir.Value, parts: Size, shared: list[ir.Value], place: tuple
    ) -> list[ir.Value]:
        """The loop over the tiles of `part`."""
        lower, upper = (copies.value(v) for v in list(self.loop.operands)[:2])
        inits = list(self.loop.operands)[3:]
        for i, (position, out, first) in enumerate(zip(self.positions, shared, FIRST, strict=False)):
            kind = self.loop.operands[3 + position].type
            offsets, sizes = self._slice(i, place)
            tile = extract(kind, out, [part, *offsets], [1, *sizes], [1] * (1 + len(offsets)))
            inits[position] = build.fill(build.constant(kind.element_type, first), tile)
        loop = copies.loop(self.loop, inits)
        size = build.constant_value(self.loop.operands[2])
        with ir.InsertionPoint(loop):
            loop.operands[0] = build.index(0)
            loop.operands[1] = self._end(lower, upper, size, part, parts)
        counter = loop.regions[0].blocks[0].arguments[0]
        with ir.InsertionPoint.at_block_begin(counter.owner):
            t, p, low = (ir.AffineExpr.get_dim(d) for d in range(3))
            # Affine ops multiply by numbers only.
            is_known = isinstance(parts, int)
            turn, t = (counter, t * parts) if is_known else (arith.muli(counter, parts), t)
            key = _apply(t + p * size + low, [turn, part, lower])
        counter.replace_all_uses_except(key, [v.owner.operation for v in (turn, key) if v != counter])
        return [loop.results[position] for position in self.positions]

    def _end(self, lower: ir.Value, upper: ir.Value, size: int, part: ir.Value, parts: Size) -> ir.Value:
        p, low, high = (ir.AffineExpr.get_dim(d) for d in range(3))
        tiles = ir.AffineExpr.get_ceil_div(high - low, size)
        if not isinstance(parts, int):
            others = _apply(tiles - p - 1, [part, lower, upper])  # that come after the part's first one, if it has one
            own = arith.divui(arith.addi(others, parts), parts)
            return arith.muli(own, build.index(size))
        if self.tiles is not None and self.tiles % parts == 0:
            return build.index(self.tiles // parts * size)
        return _apply(ir.AffineExpr.get_ceil_div(tiles - p, parts) * size, [part, lower, upper])


def _carried(scores: ModifiedScores) -> tuple[list[int], list[list[Level]]]:
    """The rows of the statistics, and through which loops output, maximum and sum are carried."""
    consumer = scores.consumer
    if not scores.is_softmax:
        return [], [carried_levels(consumer.operands[2], consumer.results[0])]
    found = accumulation_of(consumer)
    maximum = carried_levels(consumer.operands[1 + MAX], consumer.results[MAX])
    return found.rows, [found.output, maximum, found.accum]


def _iterations(low: Size, high: Size, step: Size) -> Size:
    """How many a loop has; in arithmetic of numbers that are not negative, which the host of a GPU does."""
    if not isinstance(step, int):
        raise Unsuited("a loop around the one over keys has a step that is no constant")
    if isinstance(low, int) and isinstance(high, int):
        return max(0, -(-(high - low) // step))
    end = build.as_index(high)
    span = arith.maxsi(end if low == 0 else arith.subi(end, build.as_index(low)), build.index(0))
    return span if step == 1 else arith.divui(arith.addi(span, build.index(step - 1)), build.index(step))


class _Copies:
    """Copies of ops of a block at another place, each made when it is first asked for."""

    def __init__(self, known: dict[ir.Value, ir.Value]):
        self.known = known
        self.blocks = {v.owner for v in known if isinstance(v.owner, ir.Block)}

    def value(self, value: ir.Value) -> ir.Value:
        if value in self.known:
            return self.known[value]
        op = defining_op(value)
        if op is None or op.block not in self.blocks:
            return value  # from outside
        self._copy(op)
        return self.known[value]

    def _copy(self, op: ir.Operation) -> ir.Operation:
        for operand in operands_with_captures(op):
            self.value(operand)
        return copy_op(op, self.known)

    def loop(self, op: ir.Operation, inits: list[ir.Value]) -> ir.Operation:
        """A copy of a scf.for that starts from `inits`."""
        self.known.update(zip(list(op.operands)[3:], inits, strict=True))
        return self._copy(op)


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


def _apply(expression: ir.AffineExpr, operands: list[ir.Value]) -> ir.Value:
    map_ = ir.AffineMapAttr.get(ir.AffineMap.get(len(operands), 0, [expression]))
    return ir.Operation.create("affine.apply", [ir.IndexType.get()], operands, {"map": map_}).result

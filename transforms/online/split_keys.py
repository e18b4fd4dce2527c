"""The pass ``split-keys``."""

from __future__ import annotations

from dataclasses import dataclass

from ...dialects import build
from ...dialects.linalg_ext.softmax import EXP2
from ...dialects.mlir import arith, ir, scf
from ..extents import known_sizes
from ..graph import operands_with_captures
from ..limits import MOST_PARTS
from ..passes import Pass, PassError, option, remark
from ..rewriting import copy_op, defining_op
from ..slices import Size, extract, forall_bounds, insert_parallel
from .key_loop import FEWEST_TILES, FIRST, KeyLoop
from .mark_few_rows import mark_as
from .match_accumulation import Unsuited
from .merge_parts import merged
from .modified_scores import modified_scores_in

TASKS = 2  # per worker, where keys are split: what one takes longer the next one makes up for
KEYS_OF_A_MERGE = 768  # which a busy block goes through meanwhile (measured on an H200)


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
                    _Split(keys, parts).replace(self.together)
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


class _Split:
    """The loop over keys as one over `parts` of them, and one that merges what these gave."""

    def __init__(self, keys: KeyLoop, parts: Size):
        self.keys, self.loop, self.holder, self.parts = keys, keys.loop, keys.holder, parts

    def replace(self, together: int) -> None:
        """Merges so many parts at once."""
        keys = self.keys
        with ir.InsertionPoint(self.holder or self.loop), self.loop.location:
            partial = self._partial()
        with ir.InsertionPoint(self.loop), self.loop.location:
            offsets, sizes, _ = keys.place
            slices = [(value, keys.tile(i, offsets), keys.tile(i, sizes)) for i, value in enumerate(partial)]
            inits = [self.loop.operands[3 + position] for position in keys.positions]
            exp2 = EXP2 in keys.scores.consumer.attributes
            results = merged(self.parts, together, inits, slices, keys.rows, exp2)
        for position, value in zip(keys.positions, results, strict=True):
            self.loop.results[position].replace_all_uses_with(value)
        self.loop.erase()

    def _partial(self) -> list[ir.Value]:
        """Emits the loop over blocks and parts; what it returns has a dimension more, of parts."""
        keys = self.keys
        whole = known_sizes(keys.place[2])
        empties = []
        for number, position in enumerate(keys.positions):
            element = self.loop.operands[3 + position].type.element_type
            empties.append(build.empty([self.parts, *keys.tile(number, whole)], element))
        bounds = forall_bounds(self.holder) if self.holder is not None else ([], [], [])
        lower, upper, step = ([*own, more] for own, more in zip(bounds, (0, self.parts, 1), strict=True))
        forall = scf.ForallOp(lower, upper, step, empties)
        if self.holder is not None:
            mark_as(self.holder, forall.operation)
        terminator = forall.terminator()
        *inductions, part = forall.induction_variables
        shared = list(forall.inner_iter_args)
        with ir.InsertionPoint(terminator.operation):
            copies = _Copies(self._outside(inductions))
            offsets, sizes = (
                [v if isinstance(v, int) else copies.value(v) for v in values] for values in keys.place[:2]
            )
            places = [([part, *keys.tile(i, offsets)], [1, *keys.tile(i, sizes)]) for i in range(len(keys.positions))]
            results = self._loop(copies, part, shared, places)
        with ir.InsertionPoint(terminator.block):
            for value, into, place in zip(results, shared, places, strict=True):
                insert_parallel(value, into, *place)
        return list(forall.operation.results)

    def _outside(self, inductions: list[ir.Value]) -> dict[ir.Value, ir.Value]:
        """What stands for the arguments of the loop over blocks: its own counters, and what its results start from."""
        if self.holder is None:
            return {}
        arguments = list(self.holder.regions[0].blocks[0].arguments)
        count = len(self.holder.results)
        shared = list(self.holder.operands)[len(self.holder.operands) - count :]
        return dict(zip(arguments, [*inductions, *shared], strict=True))

    def _loop(
        self, copies: _Copies, part: ir.Value, shared: list[ir.Value], places: list[tuple[list[Size], list[Size]]]
    ) -> list[ir.Value]:
        """The loop over the tiles of `part`, which has these `places` in what all parts share."""
        lower, upper = (copies.value(v) for v in list(self.loop.operands)[:2])
        inits = list(self.loop.operands)[3:]
        for position, out, place, first in zip(self.keys.positions, shared, places, FIRST, strict=False):
            kind = self.loop.operands[3 + position].type
            tile = extract(kind, out, *place, [1] * len(place[0]))
            inits[position] = build.fill(build.constant(kind.element_type, first), tile)
        loop = copies.loop(self.loop, inits)
        size = build.constant_value(self.loop.operands[2])
        with ir.InsertionPoint(loop):
            loop.operands[0] = build.index(0)
            loop.operands[1] = self._end(lower, upper, size, part)
        counter = loop.regions[0].blocks[0].arguments[0]
        with ir.InsertionPoint.at_block_begin(counter.owner):
            t, p, low = (ir.AffineExpr.get_dim(d) for d in range(3))
            # Affine ops multiply by numbers only.
            is_known = isinstance(self.parts, int)
            turn, t = (counter, t * self.parts) if is_known else (arith.muli(counter, self.parts), t)
            key = _apply(t + p * size + low, [turn, part, lower])
        counter.replace_all_uses_except(key, [v.owner.operation for v in (turn, key) if v != counter])
        return [loop.results[position] for position in self.keys.positions]

    def _end(self, lower: ir.Value, upper: ir.Value, size: int, part: ir.Value) -> ir.Value:
        """Where a counter ends that goes through the tiles of a part by this size, from 0 on."""
        parts, tiles_of_all = self.parts, self.keys.tiles
        p, low, high = (ir.AffineExpr.get_dim(d) for d in range(3))
        tiles = ir.AffineExpr.get_ceil_div(high - low, size)
        if not isinstance(parts, int):
            others = _apply(tiles - p - 1, [part, lower, upper])  # that come after the part's first one, if it has one
            own = arith.divui(arith.addi(others, parts), parts)
            return arith.muli(own, build.index(size))
        if tiles_of_all is not None and tiles_of_all % parts == 0:
            return build.index(tiles_of_all // parts * size)
        return _apply(ir.AffineExpr.get_ceil_div(tiles - p, parts) * size, [part, lower, upper])


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


def _apply(expression: ir.AffineExpr, operands: list[ir.Value]) -> ir.Value:
    map_ = ir.AffineMapAttr.get(ir.AffineMap.get(len(operands), 0, [expression]))
    return ir.Operation.create("affine.apply", [ir.IndexType.get()], operands, {"map": map_}).result

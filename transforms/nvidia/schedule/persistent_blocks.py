"""The pass ``persistent-blocks``."""

from __future__ import annotations

from dataclasses import dataclass

from ....dialects import build
from ....dialects.mlir import arith, gpu, ir
from ....dialects.tile import InitFlagsOp, MeetOp, RaisedOp, RaiseOp, shared_buffer
from ...copying import copy_needed
from ...passes import Pass, option
from ...rewriting import Values, copy_op, make_for, ops_in, ops_of
from ..architecture import MULTIPROCESSORS
from ..launching import launches_of, relaunch, update_type
from .bulk_copies import bulk_copies
from .keep_maximum import KEPT, RETRY

FLAGS = 256  # tiles of a block that share one are done again together


@dataclass(frozen=True)
class PersistentBlocks(Pass):
    """As many blocks as the GPU has multiprocessors, each of which goes on to other tiles when it is done with one::

        gpu.func @kernel(…) {
          %b = gpu.block_id x
          …                                       // the tile of block %b
      becomes
        gpu.func @kernel(…, %tiles: index) {
          %first = gpu.block_id x
          %blocks = gpu.grid_dim x
          scf.for %b = %first to %tiles step %blocks {
            …

    Where loop bounds depend on the number of a tile among its neighbours (along a dimension of the grid, of extent n: a
    causal mask), a block takes the tiles i and n − 1 − i, one after the other: every such pair is the same work. (Not
    where there are known to be no more tiles than multiprocessors.) For kernels whose loads the copy engine does: it
    brings the first operands of a tile while the one before is finished.

    Tiles that must be computed again (``keep-maximum``) come after all others, so that no one waits to hear of it::

        scf.for %b … { …; tile.raise %bad, %flags[%n] }      // n: how many tiles the block has done
        tile.meet
        scf.for %b … { %again = tile.raised %flags[%n]; scf.if %again {…} }
    """

    multiprocessors: int = option("how many the GPU has, each of which runs one block", MULTIPROCESSORS)

    def run(self, op: ir.Operation) -> None:
        for kernel in ops_in(op, "gpu.func"):
            if bulk_copies(kernel):
                with kernel.location:
                    _Kernel(kernel, self.multiprocessors).run()


@dataclass
class _Rows:
    """`value` is a tile's number along a dimension of the grid, `count` how many there are; None along the outermost,
    which has what the others leave. `inner`: the sizes of those that run faster."""

    value: ir.Value
    count: ir.Value | None
    inner: list[ir.Value]


class _Kernel:
    def __init__(self, kernel: ir.Operation, multiprocessors: int):
        self.kernel, self.multiprocessors = kernel, multiprocessors
        self.block = kernel.regions[0].blocks[0]

    def run(self) -> None:
        number = self._number()
        body = [o for o in ops_of(self.block)[:-1] if o.name not in KEPT]
        retries = [o for o in body if RETRY in o.attributes]
        with ir.InsertionPoint(ops_of(self.block)[-1]):
            row = None if self._has_one_tile_a_block() else self._balanced(number)
            tiles = self._pass_tiles()
            blocks = gpu.GridDimOp(ir.Attribute.parse("#gpu<dim x>")).result
            flags = _flags() if retries else None
            for retry in [False, True] if retries else [False]:
                if retry:
                    MeetOp()
                block, tile, count = self._loop(number, row, tiles, blocks)
                with ir.InsertionPoint(ops_of(block)[-1]):
                    self._body(body, {number: tile}, flags, count, retry)
        for op in reversed(body):
            op.erase()

    def _number(self) -> ir.Value:
        """The number of a block; where there is but one tile, no op of the kernel has it."""
        found = [o for o in ops_of(self.block) if o.name == "gpu.block_id"]
        if found:
            (number,) = found
            return number.results[0]
        with ir.InsertionPoint.at_block_begin(self.block):
            return gpu.BlockIdOp(ir.Attribute.parse("#gpu<dim x>")).result

    @staticmethod
    def _body(body: list[ir.Operation], values: Values, flags: ir.Value | None, count: ir.Value, retry: bool) -> None:
        """One tile, but for what is done again; or that alone."""
        for op in body:
            tiles = any(isinstance(v.type, ir.RankedTensorType) for v in (*op.operands, *op.results))
            if op.name == "tile.any":
                if retry:
                    raised = RaisedOp(flags, count, result=op.results[0].type).result
                    values[op.results[0]] = raised
                else:
                    RaiseOp(values[op.operands[0]], flags, count)
            elif retry == (RETRY in op.attributes) or (retry and not tiles and not len(op.regions)):
                copy_op(op, values)

    def _loop(self, number: ir.Value, row: _Rows | None, tiles: ir.Value, blocks: ir.Value):
        """The body of a loop over a block's tiles, the tile's number, and how many came before."""
        if row is not None:
            return self._pairs(number, row, tiles, blocks)
        block = _for(number, tiles, blocks)
        with ir.InsertionPoint(ops_of(block)[-1]):
            count = arith.divui(arith.subi(block.arguments[0], number), blocks)
        return block, block.arguments[0], count

    def _has_one_tile_a_block(self) -> bool:
        counts = [build.constant_value(launch.operands[0]) for launch in launches_of(self.kernel)]
        return all(isinstance(count, int) and count <= self.multiprocessors for count in counts)

    def _pass_tiles(self) -> ir.Value:
        """The number of tiles as a parameter; the launches get as many blocks as there are multiprocessors."""
        tiles = self.block.add_argument(ir.IndexType.get(), self.kernel.location)
        update_type(self.kernel)
        for launch in launches_of(self.kernel):
            with ir.InsertionPoint(launch), launch.location:
                count = launch.operands[0]
                fewer = arith.minsi(count, build.index(self.multiprocessors))
                relaunch(launch, [fewer, *list(launch.operands)[1:], count])
        return tiles

    def _balanced(self, number: ir.Value) -> _Rows | None:
        """A tile's number among its neighbours, if loop bounds depend on it."""
        found = [rows for rows in self._numbers(number, []) if self._has_bounds_of(rows)]
        found = [rows for rows in found if rows.count is not None] or found
        return found[0] if len(found) == 1 else None

    def _numbers(self, number: ir.Value, inner: list[ir.Value]) -> list[_Rows]:
        """What a tile's number is taken apart into, dimension by dimension of the grid, from the innermost on."""
        found: list[_Rows] = []
        users = [u.owner.operation for u in number.uses if u.owner.operation.block == self.block]
        parts = [op for op in users if op.name in ("arith.remui", "arith.divui") and op.operands[0] == number]
        for op in parts:
            if op.name == "arith.remui":
                found.append(_Rows(op.results[0], op.operands[1], inner))
            else:
                found += self._numbers(op.results[0], [*inner, op.operands[1]])
        return found if parts else [_Rows(number, None, inner)]

    def _has_bounds_of(self, rows: _Rows) -> bool:
        reached = {rows.value}
        for op in ops_of(self.block):
            if rows.count is None and op.name == "memref.load":
                continue  # the length of a sequence: the outermost dimension is that of the batch
            if any(v in reached for v in op.operands):
                reached.update(op.results)
        loops = [o for o in ops_of(self.block) if o.name in ("scf.for", "scf.if") and RETRY not in o.attributes]
        bounds = [v for o in loops for v in list(o.operands)[: 3 if o.name == "scf.for" else 1]]
        return any(v in reached for v in bounds)

    def _known(self, value: ir.Value, values: Values) -> ir.Value:
        """A value that is the same for all tiles, computed before their loop."""
        return copy_needed(value, values, lambda op: op.block == self.block and op.name not in KEPT)

    def _pairs(self, number: ir.Value, rows: _Rows, tiles: ir.Value, blocks: ir.Value):
        values: Values = {}
        inner = build.index(1)
        for size in rows.inner:
            inner = arith.muli(inner, self._known(size, values))
        count = arith.divui(tiles, inner) if rows.count is None else self._known(rows.count, values)
        half = arith.divui(arith.addi(count, build.index(1)), build.index(2))
        pairs = arith.muli(arith.divui(tiles, count), half)
        outer = _for(number, pairs, blocks)
        with ir.InsertionPoint(ops_of(outer)[-1]):
            pair = outer.arguments[0]
            place, pair_of_place = arith.remui(pair, inner), arith.divui(pair, inner)
            first = arith.remui(pair_of_place, half)
            start = arith.muli(arith.divui(pair_of_place, half), count)
            second = arith.subi(arith.subi(count, build.index(1)), first)
            single = arith.cmpi(arith.CmpIPredicate.eq, first, second)
            members = arith.select(single, build.index(1), build.index(2))
            round_ = arith.divui(arith.subi(pair, number), blocks)
            both = _for(build.index(0), members, build.index(1))
            with ir.InsertionPoint(ops_of(both)[-1]):
                is_first = arith.cmpi(arith.CmpIPredicate.eq, both.arguments[0], build.index(0))
                row = arith.addi(start, arith.select(is_first, first, second))
                tile = arith.addi(arith.muli(row, inner), place)
                before = arith.addi(arith.muli(round_, build.index(2)), both.arguments[0])
        return both, tile, before


def _flags() -> ir.Value:
    """Flags in shared memory, all down."""
    flags = shared_buffer([FLAGS], ir.IntegerType.get_signless(32))
    InitFlagsOp(flags)
    return flags


def _for(lower: ir.Value, upper: ir.Value, step: ir.Value) -> ir.Block:
    """The body of a new loop that carries nothing."""
    _, block = make_for([lower, upper, step])
    with ir.InsertionPoint(block):
        ir.Operation.create("scf.yield", [], [])
    return block

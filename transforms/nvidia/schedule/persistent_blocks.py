"""The pass ``persistent-blocks``."""

from __future__ import annotations

from dataclasses import dataclass

from ....dialects import build
from ....dialects.mlir import arith, ir
from ....dialects.tile import InitFlagsOp, MeetOp, RaisedOp, RaiseOp, shared_buffer
from ...passes import Pass, option
from ...rewriting import Values, copy_op, ops_in, ops_of
from ..architecture import MULTIPROCESSORS
from ..launching import block_number, launches_of, relaunch, update_type
from .bulk_copies import Copy, bulk_copies
from .dealt_tiles import AsDealt
from .keep_maximum import KEPT, RETRY
from .panels import InPanels
from .taken_tiles import AsTaken, is_data
from .tile_orders import InPairs, InTurn, TileOrder, rows_of

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
    causal mask), a block takes the tiles i and n − 1 − i, one after the other: every such pair is the same work. The
    last ones are dealt as single tiles, if all sizes are known (dealt_tiles.py). Where bounds are data, blocks take
    tiles as they are done with others (taken_tiles.py). Where all are the same work, as in a matmul, they may go by
    panels of columns (panels.py). (None of these where there are known to be no more tiles than multiprocessors.) For
    kernels whose loads the copy engine does: it brings the first operands of a tile while the one before is finished.

    Tiles that must be computed again (``keep-maximum``) come after all others, so that no one waits to hear of it::

        scf.for %b … { …; tile.raise %bad, %flags[%n] }      // n: how many tiles the block has done
        tile.meet
        scf.for %b … { %again = tile.raised %flags[%n]; scf.if %again {…} }
    """

    multiprocessors: int = option("how many the GPU has, each of which runs one block", MULTIPROCESSORS)

    def run(self, op: ir.Operation) -> None:
        for kernel in ops_in(op, "gpu.func"):
            if copies := bulk_copies(kernel):
                with kernel.location:
                    _Kernel(kernel, copies, self.multiprocessors).run()


class _Kernel:
    def __init__(self, kernel: ir.Operation, copies: dict[ir.Operation, Copy], multiprocessors: int):
        self.kernel, self.copies, self.multiprocessors = kernel, copies, multiprocessors
        self.block = kernel.regions[0].blocks[0]
        self.counts = [build.constant_value(launch.operands[0]) for launch in launches_of(kernel)]  # of tiles

    def run(self) -> None:
        number = self._number()
        body = [o for o in ops_of(self.block)[:-1] if o.name not in KEPT]
        retries = [o for o in body if RETRY in o.attributes]
        with ir.InsertionPoint(ops_of(self.block)[-1]):
            order = self._order(number)
            flags = _flags() if retries else None
            for retry in [False, True] if retries else [False]:
                if retry:
                    MeetOp()

                def emit(tile: ir.Value, count: ir.Value, retry: bool = retry) -> None:
                    self._body(body, {number: tile}, flags, count, retry)

                order.loop(emit, retry)
        for op in reversed(body):
            op.erase()

    def _number(self) -> ir.Value:
        """The number of a block; where there is but one tile, no op of the kernel has it."""
        found = [o for o in ops_of(self.block) if o.name == "gpu.block_id"]
        if found:
            (number,) = found
            return number.results[0]
        with ir.InsertionPoint.at_block_begin(self.block):
            return block_number()

    def _order(self, number: ir.Value) -> TileOrder:
        if self._has_one_tile_a_block():
            return InTurn(number, self._pass_tiles())
        if is_data(number):
            return AsTaken.of(number, self._pass_tiles(), self.multiprocessors)
        rows, tiles = rows_of(number), self._pass_tiles()
        known = self.counts[0] if len(set(self.counts)) == 1 else None
        if rows is None:
            return InPanels.of(number, tiles, known, self.copies, self.multiprocessors) or InTurn(number, tiles)
        dealt = None if known is None else AsDealt.of(number, tiles, rows, known, self.multiprocessors)
        return dealt or InPairs(number, tiles, rows)

    def _has_one_tile_a_block(self) -> bool:
        return all(isinstance(count, int) and count <= self.multiprocessors for count in self.counts)

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


def _flags() -> ir.Value:
    """Flags in shared memory, all down."""
    flags = shared_buffer([FLAGS], ir.IntegerType.get_signless(32))
    InitFlagsOp(flags)
    return flags

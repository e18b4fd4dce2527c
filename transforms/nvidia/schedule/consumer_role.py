"""What the warps that compute do of a kernel's ops."""

from __future__ import annotations

from ....dialects import build
from ....dialects.mlir import arith, ir
from ....dialects.tile import ArriveOp, PassTurnOp, SettleOp, TakeTurnOp, ViewOp, WaitBarrierOp, layout_of
from ...attention import is_matmul
from ...graph import dependents
from ...rewriting import copy_op, defining_op, for_body, is_inside, make_for, ops_in, ops_of
from ..architecture import ROWS, WARPS
from ..marks import ASYNC, EACH_THREAD
from .own_keys import OwnKeys
from .own_masks import Interval, OwnMask
from .rings import Count, Ring, Told, last_readers
from .warp_roles import Role


class Consumer(Role):
    """The warps that compute: a load is a wait, and after the last op that reads the tile, its stage is free, in a
    branch behind the loop that does.

    `few_registers`: a thread cannot have all of a tile that goes to registers at once.

    `own_keys`: where masks leave the rows of a warpgroup fewer tiles of keys than those of the block (own_keys.py), it
    has a loop of its own over these, and takes no turns. For the other tiles it waits, and leaves them::

                                                          scf.for %i = 0 to %before step 1 {
                                                            tile.wait_barrier %ready[%n + %i]
                                                            tile.arrive %free[%n + %i]
                                                          }
        scf.if %lower < %upper {                          scf.if %lower < %upper {
          scf.for %j = %lower + 64 to %upper step 64  →     scf.for %j = %own_lower + 64 to %own_upper step 64
        }                                                 }
                                                          scf.for %i = 0 to %behind step 1 { … }
    """

    def __init__(
        self,
        rings: list[Ring],
        told: Told | None,
        warp: ir.Value,
        own_keys: list[OwnKeys],
        turns: int,
        long_turns: bool,
        few_registers: bool,
    ):
        super().__init__(rings, told)
        self.warp = warp
        self.own_keys = {own.branch: own for own in own_keys}
        self.own_rows: Interval | None = None  # where warpgroups have tiles of keys of their own
        self.few_registers = few_registers
        self.warpgroups = turns  # that take turns
        self.long_turns = long_turns
        self.releases: dict[ir.Operation | ir.Block, list[tuple[Ring, ir.Value, list[ir.Value]]]] = {}
        self.uses: dict[ir.Value, tuple[Ring, ir.Value]] = {}  # tiles, by what they were in the kernel
        self.turns: list[ir.Operation] = []  # the first and the last op of a turn

    def carried(self, values: list[ir.Value]) -> list[ir.Value]:
        return values

    def load(self, op: ir.Operation, ring: Ring, use: ir.Value) -> None:
        if ring.leader is None:
            WaitBarrierOp(ring.reading.ready, use, build.i64_attribute(0))
        self.values[op.results[0]] = ViewOp(ring.reading.buffer, ring.stage(use), result=op.results[0].type).result
        self.uses[op.results[0]] = (ring, use)
        if ring.leader is None:
            for place, needed in self._releases(op, ring):
                self.releases.setdefault(place, []).append((ring, use, needed))

    def _releases(self, load: ir.Operation, ring: Ring) -> list[tuple[ir.Operation | ir.Block, list[ir.Value]]]:
        """Where a load's stage is free, once some values are there, and those of the rings that follow this one."""
        if ring.followers:
            loads = [other for one in ring.followers for other in one.loads if other.block == load.block]
            return [_last_of([load, *loads])]
        places, needed = self._release(load)
        return [(place, [] if needed is None else [needed]) for place in places]

    def _release(self, load: ir.Operation) -> tuple[list[ir.Operation | ir.Block], ir.Value | None]:
        """Where a load's stage is free, once a value is there, if that is not None. What goes to registers is there
        before the stage is free: the tile itself, which all registers that it takes hold then; or, where a thread has
        few, what they have gone into, by the end of the iteration."""
        places = last_readers(load, load.block)
        reader = places[0]
        if isinstance(reader, ir.Block) or reader.name != "tile.convert_layout":
            return places, None
        loaded = reader.results[0]
        before = ops_of(reader.block)[: ops_of(reader.block).index(reader)]
        few = self.few_registers and any(map(is_matmul, before))  # else those that scores will have are free
        row = _row_of(loaded) if few and layout_of(loaded.type) == "fragment" else None
        if row is None:
            return places, loaded
        following = ops_of(reader.block)[ops_of(reader.block).index(defining_op(row)) :]
        waits = [o for o in following if o.name == "tile.wait_matmuls" and o.opview.pending.value == 0]
        return [(waits or following)[0]], row

    def _if(self, op: ir.Operation) -> None:
        own = self.own_keys.get(op)
        if own is None or not self._takes_each_tile(own):
            super()._if(op)
            return
        outer = self.values
        row = arith.muli(arith.divui(self.warp, build.index(WARPS)), build.index(ROWS))
        bounds = own.bounds(row, outer)
        before, behind = own.others(bounds, outer)
        self._leave(own, before)
        self.values = own.moved(bounds, outer)
        self.own_rows = Interval(row, arith.addi(row, build.index(ROWS - 1)))
        super()._if(op)
        self.own_rows = None
        self.values |= outer
        self._leave(own, behind)

    def _takes_each_tile(self, own: OwnKeys) -> bool:
        """Whether the rings of the branch have one tile for each of keys: by a load in the loop, and one around it."""
        loads = [(ring, load) for load, ring in self.ring_of.items() if is_inside(load, own.branch)]
        found = [(ring, load.block == for_body(own.loop)) for ring, load in loads]
        return all(found.count((ring, inner)) == 1 for ring in self._used(own.branch) for inner in (True, False))

    def _leave(self, own: OwnKeys, tiles: ir.Value) -> None:
        """Goes on by so many tiles of keys, of which nothing is read."""
        _, block = make_for([build.index(0), tiles, build.index(1)])
        rings = self._used(own.branch)
        with ir.InsertionPoint(block):
            for ring in (ring for ring in rings if self.rings[ring].leader is None):
                use = arith.addi(self.counts[ring].made(), block.arguments[0])
                WaitBarrierOp(self.rings[ring].reading.ready, use, build.i64_attribute(0))
                self._free(self.rings[ring], use)
            ir.Operation.create("scf.yield", [], [])
        further = {value: arith.addi(value, tiles) for value in {self.counts[ring].value for ring in rings}}
        for ring in rings:
            self.counts[ring] = Count(further[self.counts[ring].value], self.counts[ring].more)

    def before_body(self, ops: list[ir.Operation]) -> None:
        self.turns = turn(ops, self.long_turns) if self.warpgroups else []

    def plain(self, op: ir.Operation) -> None:
        if self.turns and op == self.turns[0]:
            TakeTurnOp(build.i64_attribute(self.warpgroups))
        if op.name == "tile.wait_matmuls" and op.opview.pending.value == 0:
            # The tile is there, or the matmul had not begun; but no instruction moves across a wait, such as what is
            # computed meanwhile and used after it.
            matmul = defining_op(op.operands[0])
            if _computes_between(matmul, op):
                ring, use = self.uses[matmul.operands[1]]
                WaitBarrierOp(ring.reading.ready, use, build.i64_attribute(0))
        copy = copy_op(op, self.values)
        if op.name == "scf.if" and self.own_rows is not None:
            self._mask_own(op, copy)
        if self.turns and op == self.turns[-1]:
            PassTurnOp(build.i64_attribute(self.warpgroups))

    def _mask_own(self, op: ir.Operation, copy: ir.Operation) -> None:
        """Warpgroups take a branch that masks a tile only where it changes scores of their rows."""
        mask = OwnMask.of(op, self.own_rows, self.value)
        with ir.InsertionPoint(copy):
            changes = mask.changes() if mask is not None else None
            if changes is not None:
                copy.operands[0] = arith.andi(copy.operands[0], changes)

    def behind(self, place: ir.Operation | ir.Block) -> None:
        for ring, use, needed in self.releases.pop(place, []):
            for value in needed:
                SettleOp(self.values[value])
            self._free(ring, use)

    @staticmethod
    def _free(ring: Ring, use: ir.Value) -> None:
        arrival = ArriveOp(ring.reading.free, use)
        if ring.is_skewed:
            arrival.operation.attributes[EACH_THREAD] = ir.UnitAttr.get()


def turn(ops: list[ir.Operation], is_long: bool) -> list[ir.Operation]:
    """The first and the last op of a turn, of the ops of a loop, in which a warpgroup begins its matmuls; none where
    there are no two, or the second one waits for the first."""
    begun = [o for o in ops if ASYNC in o.attributes]
    waits = [o for o in ops if o.name == "tile.wait_matmuls"]
    if len(begun) < 2 or any(ops.index(wait) < ops.index(begun[1]) for wait in waits):
        return []
    last = next((wait for wait in waits if wait.opview.pending.value == 1), None) if is_long else begun[1]
    return [begun[0], last] if last is not None else []


def _computes_between(first: ir.Operation, last: ir.Operation) -> bool:
    """Whether numbers are computed between two ops, the first of which may stand in another block."""
    ops = ops_of(last.block)
    between = ops[ops.index(first) if first in ops else 0 : ops.index(last)]
    return any(op.name in ("linalg.generic", "scf.if") and not is_matmul(op) for op in between)


def _last_of(loads: list[ir.Operation]) -> tuple[ir.Operation, list[ir.Value]]:
    """The last op of a block that reads one of these loads' tiles; and what must be in registers then, which a matmul
    that was waited for does not need."""
    readers = [reader for load in loads for reader in last_readers(load, load.block)]
    last = max(readers, key=ops_of(loads[0].block).index)
    done = defining_op(last.operands[0]) if last.name == "tile.wait_matmuls" else None
    copied = [reader for reader in readers if reader.name == "tile.convert_layout"]
    return last, [one.results[0] for one in copied if done is None or done not in dependents(one)]


def _row_of(tile: ir.Value) -> ir.Value | None:
    """The first value for each row that all elements of a tile go into, in its block, if there is one before loops:
    these need the stages that are free when it is there."""
    block, reached = defining_op(tile).block, {tile}
    for op in ops_of(block)[ops_of(block).index(defining_op(tile)) + 1 :]:
        inside = [op, *ops_in(op)]
        if any(v in reached for inner in inside for v in inner.operands):
            if any(inner.name == "scf.for" for inner in inside):
                return None
            rows = [v for v in op.results if layout_of(v.type) in ("row", "row_part")]
            if rows:
                return rows[0]
            reached.update(op.results)
    return None

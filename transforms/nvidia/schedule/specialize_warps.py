"""The pass ``specialize-warps``."""

from __future__ import annotations

from dataclasses import dataclass

from ....dialects import build
from ....dialects.mlir import arith, ir
from ....dialects.tile import EXP2_WORDS, ONE_COLUMNS, ONE_ROWS, SetRegistersOp, StartTurnsOp, WarpOp, layout_of
from ...passes import Pass, option, remark
from ...rewriting import for_body, ops_in, ops_of
from ..architecture import ARRANGERS, TILE_MEMORY
from ..launched_memory import given_before
from ..launching import control
from ..marks import ALL_WARPS, ASYNC, PRODUCERS
from ..registers import ARRANGER_REGISTERS, PRODUCER_REGISTERS, arranger_registers, consumer_registers
from .bulk_copies import Copy, bulk_copies, is_read_by_threads, is_streamed
from .consumer_role import Consumer, turn
from .own_keys import OwnKeys
from .rings import Ring, Told, is_right_operand, rings_of
from .shared_barriers import share_barriers
from .tensor_maps import pass_tensor_maps
from .warp_roles import Arranger, Producer, Taker

SMALL_COLUMNS = 64  # of the second matmul
SHARED_BY_ROLES = ("arith.constant", "memref.alloc", "tile.init_flags", "tile.fill_exp2")
SMALL_TILE = 4096  # bytes
STREAMED = 8  # stages, at most, of the operands of a matmul that stands alone
ONES_BYTES = 2 * ONE_ROWS * ONE_COLUMNS  # that ``row-sums-by-matmul`` may take


@dataclass(frozen=True)
class SpecializeWarps(Pass):
    """One warp brings all tiles to shared memory by Hopper's copy engine; the others do nothing but compute::

        scf.for %j = … {
          %k = tile.load(%arg1, %j, …) : … -> tensor<128x64xf16, "shared">
          %s = matmul(%q, %k)
          …
      becomes
        %buffer = memref.alloc() : memref<2x128x64xf16, #gpu.address_space<workgroup>>
        %ready, %free = memref.alloc() : memref<2xi64, #gpu.address_space<workgroup>>
        tile.init_barriers %ready {arrivals = 1}
        tile.init_barriers %free {arrivals = 8}                // warps that read
        %w = tile.warp
        scf.if %w < 8 {
          tile.set_registers {count = 240}
          scf.for %j = … iter_args(%n = …) {
            tile.wait_barrier %ready[%n]
            %k = tile.view %buffer[%n mod 2]
            %s = matmul(%q, %k)
            tile.arrive %free[%n]
            …
        } else {
          tile.set_registers {count = 24}
          scf.if %w == 8 {
            scf.for %j = … iter_args(%n = …) {
              tile.wait_barrier %free[%n] {behind = 1}
              tile.copy_bulk(%map, %buffer, %ready, %n, %j, …)
              …

    (Warp specialisation: FlashAttention-3, Shah et al. 2024, §3.1.) Both branches have the loops of the kernel, and
    number the uses of each buffer, with one count for all that are used equally often. Several of them may have the
    same barriers (shared_barriers.py). In loops whose matmuls overlap, warpgroups take turns: a turn is over when both
    matmuls are under way. Where they are small, and biases or masks come from shared memory meanwhile, one of two
    warpgroups keeps it until the first one is done: in step, both would read at once, and then wait for scores. Where
    the rows of a warpgroup have fewer tiles of keys than those of the block, it computes with these alone
    (consumer_role.py).
    Buffers for right operands of matmuls, which follow one another fast, have `stages` stages if there is room, others
    one: by default two, and three of tiles so small that copies of two take less time than it takes to wait for one, of
    8 bits, or copied by threads; four of both operands of a matmul that stands alone, which nothing else takes time
    beside; one more than the tiles that warpgroups may be apart, if that is more.
    Kernels with a load that the copy engine cannot do stay as they are.

    Right operands that are "paired" go on from where they were copied to another buffer: by three more warps beside the
    one that copies, which have loops of their own::

        scf.for %j = … iter_args(%n = …) {
          tile.wait_barrier %copied[%n]
          tile.wait_barrier %free[%n] {behind = 1}
          %v = tile.view %landing[%n mod 2]
          tile.arrange %v, %buffer[%n mod 2] {inner = 0}
          tile.arrive %ready[%n]
          tile.arrive %left[%n]

    The same warps copy what the engine cannot, rows that are not aligned ("skewed").

    Behind other kernels, what none of them can have written, such as weights, is copied by a warp of its own, which
    does not wait for them as all others do (``overlap-launches``): it comes while they are at work::

        scf.if %w < 4 {
          nvvm.griddepcontrol wait
          …
        } else {
          scf.if %w == 4 {
            nvvm.griddepcontrol wait
            scf.for %k = … { …; tile.copy_bulk(%inputs, …) }
          } else { scf.if %w == 5 {
            scf.for %k = … { …; tile.copy_bulk(%weights, …) }
          } }
    """

    stages: int = option("stages of buffers for right operands of matmuls (0: by the size of their tiles)", 0)
    turns: bool = option("whether warpgroups take turns", True)

    def run(self, op: ir.Operation) -> None:
        for kernel in ops_in(op, "gpu.func"):
            copies = bulk_copies(kernel)
            if copies:
                with kernel.location:
                    _Specializer(kernel, copies, self).run()


class _Specializer:
    def __init__(self, kernel: ir.Operation, copies: dict[ir.Operation, Copy], options):
        self.kernel, self.copies, self.options = kernel, copies, options
        self.block = kernel.regions[0].blocks[0]
        self.own_keys = [own for branch in ops_in(kernel, "scf.if") if (own := OwnKeys.of(branch)) is not None]

    def run(self) -> None:
        warpgroups = _rows(self.kernel) // 64
        maps = pass_tensor_maps(self.kernel, self.copies.values())
        rings = self._rings(maps)
        arranges = any(ring.is_paired or ring.is_skewed for ring in rings)
        ahead = [] if arranges else self._ahead(rings)
        behind = [ring for ring in rings if ring not in ahead]
        body = [o for o in ops_of(self.block)[:-1] if o.name not in SHARED_BY_ROLES]
        kept = ARRANGER_REGISTERS if arranges else PRODUCER_REGISTERS
        for meeting in ops_in(self.kernel, "tile.meet") if arranges else []:
            meeting.attributes[ALL_WARPS] = ir.UnitAttr.get()
        with ir.InsertionPoint(ops_of(self.block)[-1]):
            for ring in rings:
                ring.allocate(warpgroups)
            readers = 4 * warpgroups + (ARRANGERS if arranges else 1)
            told = Told.make(readers) if ops_in(self.kernel, "tile.share") else None
            ir.Operation.create("gpu.barrier")
            warp = WarpOp(result=ir.IndexType.get()).result
            computes = arith.cmpi(arith.CmpIPredicate.ult, warp, build.index(4 * warpgroups))
            roles = ir.Operation.create("scf.if", [], [computes], regions=2)
            with ir.InsertionPoint(roles.regions[0].blocks.append()):
                SetRegistersOp(build.i64_attribute(consumer_registers(warpgroups, kept)))
                if ahead:
                    control("wait")
                long = warpgroups == 2 and self._has_long_turns(rings)
                taking_turns = warpgroups if self._take_turns(warpgroups, long) else 0
                if taking_turns:
                    StartTurnsOp(build.i64_attribute(warpgroups))
                Consumer(rings, told, warp, self.own_keys, taking_turns, long, warpgroups > 2).start(body)
                ir.Operation.create("scf.yield")
            with ir.InsertionPoint(roles.regions[1].blocks.append()):
                SetRegistersOp(build.i64_attribute(arranger_registers(warpgroups) if arranges else PRODUCER_REGISTERS))
                one = _is_warp(warp, 4 * warpgroups)
                with ir.InsertionPoint(one.regions[0].blocks.append()):
                    if ahead and behind:
                        control("wait")
                    Producer(rings, told, behind or ahead, takes=arranges).start(body)
                    ir.Operation.create("scf.yield")
                if arranges or told or (ahead and behind):
                    with ir.InsertionPoint(one.regions[1].blocks.append()):
                        if arranges:
                            Arranger(rings, told).start(body)
                        else:
                            other = _is_warp(warp, 4 * warpgroups + 1)
                            with ir.InsertionPoint(other.regions[0].blocks.append()):
                                (Taker(told) if told else Producer(rings, own=ahead)).start(body)
                                ir.Operation.create("scf.yield")
                        ir.Operation.create("scf.yield")
                ir.Operation.create("scf.yield")
        for op in reversed(body):
            op.erase()
        self.kernel.attributes[PRODUCERS] = build.i64_attribute(1)
        keys = ", each with the keys of its own rows" if self.own_keys else ""
        remark(self.kernel, f"{warpgroups} warpgroups compute{keys}, a warp beside them copies by the copy engine")

    def _rings(self, maps: dict[Copy, ir.Value]) -> list[Ring]:
        rings = rings_of(self.copies, maps)
        apart = {load: own.apart for own in self.own_keys for load in ops_in(own.branch, "tile.load")}
        tables = len(ops_in(self.kernel, "tile.fill_exp2"))
        room = TILE_MEMORY - tables * (4 * EXP2_WORDS + ONES_BYTES)
        for ring in rings:
            for load in ring.loads:
                if load.parent.operation.name in ("scf.for", "scf.while") or is_right_operand(load):
                    tile = ring.bytes // ring.stages
                    deep = tile <= SMALL_TILE or ring.copy.kind.element_type.width == 8 or ring.is_skewed
                    wanted = max(3 if deep else 2, apart.get(load, 0) + 1)
                    ring.stages = max(1, min(self.options.stages or wanted, room // tile))
        self._stream(rings, room)
        deep = [r for r in rings if r.stages > 1]
        while deep and sum(r.bytes for r in rings) > room:
            # What goes to registers is read at once, and its place free for the next one when that is not waited for.
            first = [r for r in deep if not any(map(is_right_operand, r.loads))] or deep
            max(first, key=lambda r: r.bytes).stages -= 1
            deep = [r for r in deep if r.stages > 1]
        share_barriers(rings)
        return rings

    def _stream(self, rings: list[Ring], room: int) -> None:
        """Of what a matmul that stands alone adds up as many tiles are on their way as there is room for: in each
        iteration they are other ones, which come from memory."""
        loops = {load.parent.operation for load in self.copies if is_streamed(load)}
        streamed = [ring for ring in rings if any(load.parent.operation in loops for load in ring.loads)]
        if streamed:
            left = room - sum(ring.bytes // ring.stages for ring in rings if ring not in streamed)
            stages = min(STREAMED, left // sum(ring.bytes // ring.stages for ring in streamed))
            for ring in streamed:
                ring.stages = self.options.stages or max(1, stages)

    def _ahead(self, rings: list[Ring]) -> list[Ring]:
        """Those of memory that is there before other kernels, which come before this one, are done. None where what is
        copied depends on numbers from other memory, or where warps that copy meet the others, which wait."""
        given = given_before(self.kernel)
        numbers = [o for o in ops_in(self.kernel, "memref.load") if o.parent.operation.name != "linalg.generic"]
        if ops_in(self.kernel, "tile.meet", "tile.share") or any(o.operands[0] not in given for o in numbers):
            return []
        return [ring for ring in rings if ring.copy.memory in given]

    def _take_turns(self, warpgroups: int, long: bool) -> bool:
        """Not where warpgroups begin or end at other tiles of keys than others: they would wait (measured on an H200:
        up to 5% slower)."""
        loops = ops_in(self.kernel, "scf.for") if self.options.turns and warpgroups > 1 and not self.own_keys else []
        return any(turn(ops_of(for_body(loop)), long) for loop in loops)

    def _has_long_turns(self, rings: list[Ring]) -> bool:
        """Measured on an H200 with biases and masks: +3 to +15% at head dimension 64, −9 to −13% at 128; where four
        warpgroups compute, 0 to −25%."""
        second = [o for o in ops_in(self.kernel) if ASYNC in o.attributes][1:2]
        small = all(o.results[0].type.shape[1] <= SMALL_COLUMNS for o in second)
        return small and any(is_read_by_threads(load) for ring in rings for load in ring.loads)


def _is_warp(warp: ir.Value, number: int) -> ir.Operation:
    """A branch for that warp alone."""
    is_it = arith.cmpi(arith.CmpIPredicate.eq, warp, build.index(number))
    return ir.Operation.create("scf.if", [], [is_it], regions=2)


def _rows(kernel: ir.Operation) -> int:
    rows = {
        value.type.shape[0]
        for op in ops_in(kernel)
        for value in op.results
        if layout_of(value.type) in ("fragment", "row", "operand_a")
    }
    return max(rows)

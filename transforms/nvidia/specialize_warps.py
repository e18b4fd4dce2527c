"""The pass ``specialize-warps``."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...dialects import build
from ...dialects.mlir import arith, ir
from ...dialects.tile import (
    ArrangeOp,
    ArriveOp,
    CopyBulkOp,
    InitBarriersOp,
    PassTurnOp,
    SetRegistersOp,
    SettleOp,
    StartTurnsOp,
    TakeTurnOp,
    ViewOp,
    WaitBarrierOp,
    WarpOp,
    layout_of,
    shared_buffer,
    with_layout,
)
from ...dialects.tiling.structured import dim_position, indexing_maps
from ..attention import contraction_loops, is_contraction
from ..passes import Pass, PassError, option, remark
from ..rewriting import Values, ancestors, copy_op, defining_op, for_body, for_inits, ops_in, ops_of
from .architecture import HOPPER, architecture
from .bulk_copies import BulkCopy, bulk_copies, is_read_by_threads, is_staged
from .memory import byte_width
from .overlap_matmuls import ASYNC
from .registers import ARRANGER_REGISTERS, PRODUCER_REGISTERS, arranger_registers, consumer_registers
from .synchronisation import ALL_WARPS, ARRANGERS
from .tensor_maps import pass_tensor_maps
from .thread import Shared

PRODUCERS = "tile.producers"  # of a kernel: warpgroups besides those that have the tiles' rows
SMALL_COLUMNS = 64  # of the second matmul
SHARED_BY_ROLES = ("arith.constant", "memref.alloc", "tile.init_flags")
SMALL_TILE = 4096  # bytes
SHARED_MEMORY = architecture(HOPPER).shared_memory - 2048  # of a block, less what aligns it and the barriers


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
    number the uses of each buffer, with one count for all that are used equally often. In loops whose matmuls overlap,
    warpgroups take turns: a turn is over when both matmuls are under way. Where they are small, and biases or masks
    come from shared memory meanwhile, one of two warpgroups keeps it until the first one is done: in step, both would
    read at once, and then wait for scores.
    Buffers for right operands of matmuls, which follow one another fast, have `stages` stages if there is room, others
    one: by default two, and three of tiles so small that copies of two take less time than it takes to wait for one, or
    of 8 bits.
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
    """

    stages: int = option("stages of buffers for right operands of matmuls (0: by the size of their tiles)", 0)
    turns: bool = option("whether warpgroups take turns", True)

    def run(self, op: ir.Operation) -> None:
        for kernel in ops_in(op, "gpu.func"):
            copies = bulk_copies(kernel)
            if copies:
                with kernel.location:
                    _Specializer(kernel, op, copies, self).run()


@dataclass
class Stages:
    """A buffer and its barriers, one of each kind for each stage."""

    buffer: ir.Value
    ready: ir.Value
    free: ir.Value

    @staticmethod
    def make(count: int, kind: ir.RankedTensorType, writers: int, readers: int) -> Stages:
        """`writers`, `readers`: how many arrivals say that a tile is there, and that it was read."""
        buffer = shared_buffer([count, *kind.shape], kind.element_type)
        barrier = ir.IntegerType.get_signless(64)
        ready, free = shared_buffer([count], barrier), shared_buffer([count], barrier)
        InitBarriersOp(ready, _i64(writers))
        InitBarriersOp(free, _i64(readers))
        return Stages(buffer, ready, free)


@dataclass
class Ring:
    """What some loads of a tile go through: where copies of it land, and where it is read, which is the same but for
    tiles that are "paired"."""

    copy: BulkCopy
    map: ir.Value
    loads: list[ir.Operation] = field(default_factory=list)
    stages: int = 1
    landing: Stages | None = None
    reading: Stages | None = None

    @property
    def bytes(self) -> int:
        shape, inner = self.copy.kind.shape, self.copy.inner
        width = byte_width(self.copy.kind.element_type)
        found = Shared.bytes(shape[1 - inner], shape[inner], width)
        if self.is_paired:
            found += Shared.bytes(shape[1 - self.summed], shape[self.summed], width)
        return self.stages * found

    @property
    def is_paired(self) -> bool:
        return layout_of(self.copy.kind) == "paired"

    @property
    def summed(self) -> int:
        """The dimension of a right operand that its matmul sums over."""
        matmul = next(iter(self.loads[0].results[0].uses)).owner.operation
        loops = contraction_loops(matmul)
        assert loops is not None, "a matmul is a contraction"
        return [dim_position(e) for e in indexing_maps(matmul)[1].results].index(loops.k[0])

    def stage(self, use: ir.Value) -> ir.Value:
        return arith.remui(use, build.index(self.stages))


class _Specializer:
    def __init__(self, kernel: ir.Operation, top: ir.Operation, copies: dict[ir.Operation, BulkCopy], options):
        self.kernel, self.top, self.copies, self.options = kernel, top, copies, options
        self.block = kernel.regions[0].blocks[0]

    def run(self) -> None:
        warpgroups = _rows(self.kernel) // 64
        maps = pass_tensor_maps(self.kernel, self.top, self.copies)
        rings = self._rings(maps)
        arranges = any(ring.is_paired for ring in rings)
        body = [o for o in ops_of(self.block)[:-1] if o.name not in SHARED_BY_ROLES]
        kept = ARRANGER_REGISTERS if arranges else PRODUCER_REGISTERS
        for meeting in ops_in(self.kernel, "tile.meet") if arranges else []:
            meeting.attributes[ALL_WARPS] = ir.UnitAttr.get()
        with ir.InsertionPoint(ops_of(self.block)[-1]):
            for ring in rings:
                self._allocate(ring, warpgroups)
            ir.Operation.create("gpu.barrier")
            warp = WarpOp(result=ir.IndexType.get()).result
            computes = arith.cmpi(arith.CmpIPredicate.ult, warp, build.index(4 * warpgroups))
            roles = ir.Operation.create("scf.if", [], [computes], regions=2)
            with ir.InsertionPoint(roles.regions[0].blocks.append()):
                SetRegistersOp(_i64(consumer_registers(warpgroups, kept)))
                taking_turns = warpgroups if self.options.turns and warpgroups > 1 else 0
                if taking_turns:
                    StartTurnsOp(_i64(warpgroups))
                long = warpgroups == 2 and self._has_long_turns(rings)
                Consumer(rings, taking_turns, long, warpgroups > 2).start(body)
                ir.Operation.create("scf.yield")
            with ir.InsertionPoint(roles.regions[1].blocks.append()):
                SetRegistersOp(_i64(arranger_registers(warpgroups) if arranges else PRODUCER_REGISTERS))
                first = arith.cmpi(arith.CmpIPredicate.eq, warp, build.index(4 * warpgroups))
                one = ir.Operation.create("scf.if", [], [first], regions=2)
                with ir.InsertionPoint(one.regions[0].blocks.append()):
                    Producer(rings).start(body)
                    ir.Operation.create("scf.yield")
                if arranges:
                    with ir.InsertionPoint(one.regions[1].blocks.append()):
                        Arranger(rings).start(body)
                        ir.Operation.create("scf.yield")
                ir.Operation.create("scf.yield")
        for op in reversed(body):
            op.erase()
        self.kernel.attributes[PRODUCERS] = _i64(1)
        remark(self.kernel, f"{warpgroups} warpgroups compute, a warp beside them copies by the copy engine")

    def _rings(self, maps: dict[BulkCopy, ir.Value]) -> list[Ring]:
        rings: dict[BulkCopy, Ring] = {}
        for load, copy in self.copies.items():
            ring = rings.setdefault(copy, Ring(copy, maps[copy]))
            ring.loads.append(load)
            if load.parent.operation.name == "scf.for" or _right_operand(load):
                tile = ring.bytes // ring.stages
                wanted = 3 if tile <= SMALL_TILE or copy.kind.element_type.width == 8 else 2
                ring.stages = max(1, min(self.options.stages or wanted, SHARED_MEMORY // tile))
        deep = [r for r in rings.values() if r.stages > 1]
        while deep and sum(r.bytes for r in rings.values()) > SHARED_MEMORY:
            # What goes to registers is read at once, and its place free for the next one when that is not waited for.
            first = [r for r in deep if not any(map(_right_operand, r.loads))] or deep
            max(first, key=lambda r: r.bytes).stages -= 1
            deep = [r for r in deep if r.stages > 1]
        return list(rings.values())

    def _has_long_turns(self, rings: list[Ring]) -> bool:
        """Measured on an H200 with biases and masks: +3 to +15% at head dimension 64, −9 to −13% at 128; where four
        warpgroups compute, 0 to −25%."""
        second = [o for o in ops_in(self.kernel) if ASYNC in o.attributes][1:2]
        small = all(o.results[0].type.shape[1] <= SMALL_COLUMNS for o in second)
        return small and any(is_read_by_threads(load) for ring in rings for load in ring.loads)

    def _allocate(self, ring: Ring, warpgroups: int) -> None:
        kind, warps = ring.copy.kind, 4 * warpgroups
        ring.landing = Stages.make(ring.stages, kind, 1, ARRANGERS if ring.is_paired else warps)
        ring.reading = Stages.make(ring.stages, kind, ARRANGERS, warps) if ring.is_paired else ring.landing


def _right_operand(load: ir.Operation) -> bool:
    return any(is_contraction(u.owner.operation) and u.operand_number == 1 for u in load.results[0].uses)


def _rows(kernel: ir.Operation) -> int:
    rows = {
        value.type.shape[0]
        for op in ops_in(kernel)
        for value in op.results
        if layout_of(value.type) in ("fragment", "row", "operand_a")
    }
    return max(rows)


def _i64(value: int) -> ir.IntegerAttr:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)


@dataclass(frozen=True)
class Count:
    """How often a ring has been used: so much more than a value. Rings that go on together share it."""

    value: ir.Value
    more: int = 0

    def plus(self, more: int) -> Count:
        return Count(self.value, self.more + more)

    def made(self) -> ir.Value:
        return arith.addi(self.value, build.index(self.more)) if self.more else self.value


class Role:
    """Copies the kernel's ops for the warps of one role, and counts the uses of each ring."""

    def __init__(self, rings: list[Ring]):
        self.rings = rings
        self.ring_of = {load: i for i, ring in enumerate(rings) for load in ring.loads}
        self.values: Values = {}
        self.counts: dict[int, Count] = {}

    def start(self, ops: list[ir.Operation]) -> None:
        self.counts = dict.fromkeys(range(len(self.rings)), Count(build.index(0)))
        self.ops(ops)

    def ops(self, ops: list[ir.Operation]) -> None:
        for op in ops:
            with op.location:
                self.op(op)

    def op(self, op: ir.Operation) -> None:
        if is_staged(op):
            ring = self.ring_of[op]
            self.load(op, self.rings[ring], self.counts[ring].made())
            self.counts[ring] = self.counts[ring].plus(1)
        elif op.name == "scf.for" and self._used(op):
            self._for(op)
        elif op.name == "scf.if" and self._used(op):
            self._if(op)
        else:
            self.plain(op)
        self.behind(op)

    def _used(self, op: ir.Operation) -> list[int]:
        """The rings that are used inside of an op."""
        return sorted({self.ring_of[o] for o in ops_in(op, "tile.load") if o in self.ring_of})

    def _together(self, op: ir.Operation) -> list[list[int]]:
        """The rings that are used inside of a loop or branch, those together that one count does for: between what
        they have been used is a number that is known, and behind `op` the same."""
        groups: dict[tuple, list[int]] = {}
        for ring in self._used(op):
            groups.setdefault((self.counts[ring].value, self._uses(op, ring)), []).append(ring)
        return [sorted(group, key=lambda ring: self.counts[ring].more) for group in groups.values()]

    def _uses(self, op: ir.Operation, ring: int) -> tuple:
        """Where a ring is used in the blocks of an op: the same for two rings that are used equally often."""
        blocks = []
        for ops in (ops_of(block) for region in op.regions for block in region.blocks):
            inner = [(i, self._uses(o, ring)) for i, o in enumerate(ops) if ring in self._used(o)]
            blocks.append((sum(self.ring_of.get(o) == ring for o in ops), *inner))
        return tuple(blocks)

    def carried(self, values: list[ir.Value]) -> list[ir.Value]:
        """Which of a loop's or branch's values this role has."""
        raise NotImplementedError

    def load(self, op: ir.Operation, ring: Ring, use: ir.Value) -> None:
        raise NotImplementedError

    def plain(self, op: ir.Operation) -> None:
        raise NotImplementedError

    def behind(self, place: ir.Operation | ir.Block) -> None:
        """What comes after the copy of an op, or at the beginning of that of a branch's block."""

    def before_body(self, ops: list[ir.Operation]) -> None:
        """Looks at the ops of a loop before they are copied."""

    def _for(self, op: ir.Operation) -> None:
        together, body = self._together(op), for_body(op)
        kept = self.carried(list(op.results))
        numbers = [i for i, r in enumerate(op.results) if r in kept]
        inits = [self.value(for_inits(op)[i]) for i in numbers] + self._made(together)
        bounds = [self.value(v) for v in list(op.operands)[:3]]
        types = [v.type for v in inits]
        loop = ir.Operation.create("scf.for", types, [*bounds, *inits], regions=1)
        block = loop.regions[0].blocks.append(bounds[0].type, *types, arg_locs=[op.location] * (1 + len(types)))
        arguments = list(block.arguments)
        self.values[body.arguments[0]] = arguments[0]
        self.values.update(zip([body.arguments[1 + i] for i in numbers], arguments[1:], strict=False))
        self._continue(together, arguments[1 + len(numbers) :])
        with ir.InsertionPoint(block):
            self.before_body(ops_of(body))
            self.ops(ops_of(body)[:-1])
            yielded = [self.value(ops_of(body)[-1].operands[i]) for i in numbers]
            ir.Operation.create("scf.yield", [], [*yielded, *self._made(together)])
        self._results(op, numbers, together, list(loop.results))

    def _if(self, op: ir.Operation) -> None:
        together = self._together(op)
        kept = self.carried(list(op.results))
        numbers = [i for i, r in enumerate(op.results) if r in kept]
        types = [op.results[i].type for i in numbers] + [ir.IndexType.get()] * len(together)
        branch = ir.Operation.create("scf.if", types, [self.value(op.operands[0])], regions=2)
        before = dict(self.counts)
        for old, new in zip(op.regions, branch.regions, strict=True):
            self.counts = dict(before)
            with ir.InsertionPoint(new.blocks.append()):
                inner = ops_of(old.blocks[0]) if len(old.blocks) else []
                if inner:
                    self.behind(old.blocks[0])
                self.ops(inner[:-1])
                yielded = [self.value(inner[-1].operands[i]) for i in numbers]
                ir.Operation.create("scf.yield", [], [*yielded, *self._made(together)])
        self._results(op, numbers, together, list(branch.results))

    def _results(self, op: ir.Operation, numbers: list[int], together: list[list[int]], results: list) -> None:
        self.values.update(zip([op.results[i] for i in numbers], results, strict=False))
        self._continue(together, results[len(numbers) :])

    def _made(self, together: list[list[int]]) -> list[ir.Value]:
        """The count of the first ring of each group."""
        return [self.counts[group[0]].made() for group in together]

    def _continue(self, together: list[list[int]], values: list[ir.Value]) -> None:
        """Counts go on from that of the first ring of each group."""
        for group, value in zip(together, values, strict=True):
            first = self.counts[group[0]].more
            self.counts.update({ring: Count(value, self.counts[ring].more - first) for ring in group})

    def value(self, value: ir.Value) -> ir.Value:
        return self.values.get(value, value)


class Producer(Role):
    """The warp that copies: loads, and the scalars that say which."""

    def __init__(self, rings: list[Ring]):
        super().__init__(rings)
        self.left_out: set[ir.Value] = set()

    def ops(self, ops: list[ir.Operation]) -> None:
        """In their order; but a left operand, which waits until all matmuls of a tile have read the one before, comes
        after the next load, which waits for less."""
        late: list[ir.Operation] = []
        for op in ops:
            if is_staged(op) and self._waits_long(op):
                late.append(op)
                continue
            now, late = ([], late) if late and not self._used(op) and not is_staged(op) else (late, [])
            super().ops([op, *now] if is_staged(op) else [*now, op])
        super().ops(late)

    def _waits_long(self, load: ir.Operation) -> bool:
        ring = self.rings[self.ring_of[load]]
        to_registers = all(u.owner.operation.name == "tile.convert_layout" for u in load.results[0].uses)
        return ring.stages == 1 and not to_registers and not _right_operand(load)

    def carried(self, values: list[ir.Value]) -> list[ir.Value]:
        return [v for v in values if not isinstance(v.type, ir.ShapedType)]

    def load(self, op: ir.Operation, ring: Ring, use: ir.Value) -> None:
        WaitBarrierOp(ring.landing.free, use, _i64(1))
        offsets = [self.value(v) for v in op.opview.indices[: ring.copy.memory.type.rank]]
        CopyBulkOp(ring.map, ring.landing.buffer, ring.landing.ready, use, offsets, op.attributes["dims"])

    def plain(self, op: ir.Operation) -> None:
        tiles = any(isinstance(v.type, ir.ShapedType) for v in (*op.results, *op.operands))
        if op.name in ("tile.meet", "tile.raised") or (not tiles and op.results):
            copy_op(op, self.values)
        else:
            self.left_out.update(op.results)

    def value(self, value: ir.Value) -> ir.Value:
        if value in self.left_out:
            raise PassError("loads depend on this, which the warp that copies does not compute", defining_op(value))
        return super().value(value)


class Arranger(Producer):
    """The warps between that one and those that compute, for tiles that are "paired"."""

    def _waits_long(self, load: ir.Operation) -> bool:
        return False

    def load(self, op: ir.Operation, ring: Ring, use: ir.Value) -> None:
        if not ring.is_paired:
            return
        source, target = ring.landing, ring.reading
        WaitBarrierOp(source.ready, use, _i64(0))
        WaitBarrierOp(target.free, use, _i64(1))
        stage = ring.stage(use)
        tile = ViewOp(source.buffer, stage, result=with_layout(op.results[0].type, "shared")).result
        ArrangeOp(tile, target.buffer, stage, _i64(ring.summed))
        ArriveOp(target.ready, use)
        ArriveOp(source.free, use)


class Consumer(Role):
    """The warps that compute: a load is a wait, and after the last op that reads the tile, its stage is free, in a
    branch behind the loop that does.

    `few_registers`: a thread cannot have all of a tile that goes to registers at once."""

    def __init__(self, rings: list[Ring], turns: int, long_turns: bool, few_registers: bool):
        super().__init__(rings)
        self.few_registers = few_registers
        self.warpgroups = turns  # that take turns
        self.long_turns = long_turns
        self.releases: dict[ir.Operation | ir.Block, list[tuple[Ring, ir.Value, ir.Value | None]]] = {}
        self.uses: dict[ir.Value, tuple[Ring, ir.Value]] = {}  # tiles, by what they were in the kernel
        self.turns: list[ir.Operation] = []  # the first and the last op of a turn

    def carried(self, values: list[ir.Value]) -> list[ir.Value]:
        return values

    def load(self, op: ir.Operation, ring: Ring, use: ir.Value) -> None:
        WaitBarrierOp(ring.reading.ready, use, _i64(0))
        self.values[op.results[0]] = ViewOp(ring.reading.buffer, ring.stage(use), result=op.results[0].type).result
        self.uses[op.results[0]] = (ring, use)
        places, needed = self._release(op)
        for place in places:
            self.releases.setdefault(place, []).append((ring, use, needed))

    def _release(self, load: ir.Operation) -> tuple[list[ir.Operation | ir.Block], ir.Value | None]:
        """Where a load's stage is free, once a value is there, if that is not None. What goes to registers is there
        before the stage is free: the tile itself, which all registers that it takes hold then; or, where a thread has
        few, what they have gone into, by the end of the iteration."""
        places = _last_readers(load, load.block)
        reader = places[0]
        if isinstance(reader, ir.Block) or reader.name != "tile.convert_layout":
            return places, None
        loaded = reader.results[0]
        before = ops_of(reader.block)[: ops_of(reader.block).index(reader)]
        few = self.few_registers and any(map(is_contraction, before))  # else those that scores will have are free
        row = _row_of(loaded) if few and layout_of(loaded.type) == "fragment" else None
        if row is None:
            return places, loaded
        following = ops_of(reader.block)[ops_of(reader.block).index(defining_op(row)) :]
        waits = [o for o in following if o.name == "tile.wait_matmuls" and o.opview.pending.value == 0]
        return [(waits or following)[0]], row

    def before_body(self, ops: list[ir.Operation]) -> None:
        matmuls = [o for o in ops if ASYNC in o.attributes]
        waits = [o for o in ops if o.name == "tile.wait_matmuls" and o.opview.pending.value == 1]
        ends = waits if self.long_turns else matmuls[1:]
        self.turns = [matmuls[0], ends[0]] if len(matmuls) > 1 and ends and self.warpgroups else []

    def plain(self, op: ir.Operation) -> None:
        if self.turns and op == self.turns[0]:
            TakeTurnOp(_i64(self.warpgroups))
        if op.name == "tile.wait_matmuls" and op.opview.pending.value == 0:
            # The tile is there, or the matmul had not begun; but no instruction moves across a wait, such as what is
            # computed meanwhile and used after it.
            matmul = defining_op(op.operands[0])
            ring, use = self.uses[matmul.operands[1]]
            WaitBarrierOp(ring.reading.ready, use, _i64(0))
        copy_op(op, self.values)
        if self.turns and op == self.turns[-1]:
            PassTurnOp(_i64(self.warpgroups))

    def behind(self, place: ir.Operation | ir.Block) -> None:
        for ring, use, needed in self.releases.pop(place, []):
            if needed is not None:
                SettleOp(self.values[needed])
            ArriveOp(ring.reading.free, use)


def _row_of(tile: ir.Value) -> ir.Value | None:
    """The first value for each row that all elements of a tile go into, in its block, if there is one."""
    block, reached = defining_op(tile).block, {tile}
    for op in ops_of(block)[ops_of(block).index(defining_op(tile)) + 1 :]:
        if any(v in reached for inner in (op, *ops_in(op)) for v in inner.operands):
            rows = [v for v in op.results if layout_of(v.type) in ("row", "row_part")]
            if rows:
                return rows[0]
            reached.update(op.results)
    return None


def _last_readers(load: ir.Operation, block: ir.Block) -> list[ir.Operation | ir.Block]:
    """The op of a block after which a load's tile is read no more; of a branch, that of either way, or the way's block
    where none reads it."""
    users = [use.owner.operation for use in load.results[0].uses]
    users += [use.owner.operation for user in users if user.name == "tile.scale" for use in user.results[0].uses]
    ends = [next(iter(u.results[0].uses)).owner.operation if ASYNC in u.attributes else u for u in users]
    around = {op for end in ends for op in (end, *ancestors(end))}
    last = next((op for op in reversed(ops_of(block)) if op in around), None)
    if last is None:
        return [block]
    if last.name != "scf.if" or not all(len(region.blocks) for region in last.regions):
        return [last]
    return [place for region in last.regions for place in _last_readers(load, region.blocks[0])]

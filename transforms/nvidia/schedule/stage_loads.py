"""The pass ``stage-loads``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ....dialects import build
from ....dialects.mlir import arith, ir, scf
from ....dialects.tile import CommitCopiesOp, CopyAsyncOp, StoreSharedOp, ViewOp, WaitCopiesOp, layout_of, shared_buffer
from ...copying import copy_needed
from ...passes import Pass, PassError, option, remark
from ...rewriting import Values, defining_op, for_body, is_inside, only_if, ops_in, ops_of
from ..architecture import RESERVED
from ..axes import inner_dim
from ..elements import byte_width
from ..shared_layouts import shared_bytes

STAGES = 2


@dataclass(frozen=True)
class StageLoads(Pass):
    """Loads to shared memory become asynchronous copies; those in a loop run one iteration ahead of their use::

        scf.for %j = %lower to %upper step %step {
          %k = tile.load(%arg1, %j, …) : … -> tensor<64x64xf16, "shared">
          …
      becomes
        %buffer = memref.alloc() : memref<2x64x64xf16, #gpu.address_space<workgroup>>
        scf.if %lower < %upper { tile.copy_async(%arg1, %buffer, %c0, %lower, …) }
        tile.commit_copies
        scf.for %j = %lower to %upper step %step {
          tile.wait_copies {pending = 0}
          gpu.barrier                                   // the tile is there, and its other stage is read no more
          %stage = (%j − %lower) / %step mod 2
          %next = arith.addi %j, %step
          scf.if %next < %upper { tile.copy_async(%arg1, %buffer, 1 − %stage, %next, …) }
          tile.commit_copies
          %k = tile.view(%buffer, %stage)
          …

    A loop without an iteration copies nothing: its first tile's place may be beyond the array.

    Memory answers late, so tiles outside of loops are asked for early: those before a loop together with the loop's
    first ones, each to be waited for by itself (``pending``); those behind it in its last iteration, which has no next
    one to copy for. A tile that is computed on its way there has one stage, which ``tile.store_shared`` fills between
    two barriers. So has every tile of a kernel whose buffers would not fit in `shared-memory` otherwise: copies do not
    run ahead then, which is slower. A schedule: what is computed stays as it is.
    """

    shared_memory: int = option("bytes that a block may have; 0: as many as it takes", 0)

    def run(self, op: ir.Operation) -> None:
        for kernel in ops_in(op, "gpu.func"):
            stager = _Stager(kernel)
            if self.shared_memory and stager.bytes() + RESERVED > self.shared_memory:
                remark(kernel, "shared memory holds one stage of keys and values: copies do not run ahead")
                stager.stages = 1
            stager.run()


class _Stager:
    def __init__(self, kernel: ir.Operation):
        self.block = kernel.regions[0].blocks[0]
        self.kernel = kernel
        self.free: list[ir.Value] = []  # buffers of loops that are over
        self.started: dict[ir.Operation, list[ir.Value]] = {}  # of loops whose first copies are under way
        self.stages = STAGES  # of what loops load

    def bytes(self) -> int:
        """What all buffers take, when loops one after the other share theirs."""
        total, free = 0, Counter[tuple[ir.Type, int]]()
        for op in ops_in(self.kernel):
            if op.name == "scf.for":
                kinds = Counter((load.results[0].type, _bytes(load)) for load in _loads_of(op))
                total += sum(self.stages * size for _, size in (kinds - free).elements())
                free |= kinds
            elif _is_computed(op) or (_is_staged(op) and op.parent.name != "scf.for"):
                total += _bytes(op)
        return total

    def run(self) -> None:
        self._ops(self.block)
        for left in ops_in(self.kernel, "tile.load"):
            if _is_staged(left):
                raise PassError("a load to shared memory in a loop inside another one is not scheduled yet", left)

    def _ops(self, block: ir.Block) -> None:
        later = ops_of(block)
        while later:
            op, *later = later
            with op.location:
                if _is_computed(op):
                    self._computed(op)
                elif _is_staged(op):
                    later = self._at_top([op, *later])
                elif op.name == "scf.if":
                    for inner in (b for region in op.regions for b in region.blocks):
                        self._ops(inner)
                elif op.name == "scf.for":
                    for inner in filter(_is_computed, ops_of(for_body(op))):
                        self._computed(inner)
                    if _loads_of(op):
                        later = self._loop(op, later)

    def _buffer(self, kind: ir.RankedTensorType, stages: int) -> ir.Value:
        shape, element = [stages, *kind.shape], kind.element_type
        for buffer in self.free:
            if buffer.type.shape == shape and buffer.type.element_type == element:
                self.free.remove(buffer)
                return buffer
        with ir.InsertionPoint.at_block_begin(self.block):
            return shared_buffer(shape, element)

    def _at_top(self, ops: list[ir.Operation]) -> list[ir.Operation]:
        """Schedules the load that `ops` begin with, and those that can be copied at the same time; what is left."""
        loads, loop = _together(ops)
        if self.free or self.stages == 1:
            loop = None  # it waits for others that read the same buffers
        buffers, reused = self._buffers(loads, 1)
        values: Values = {}

        def here(value: ir.Value) -> ir.Value:
            return copy_needed(value, values, lambda op: op in ops)

        with ir.InsertionPoint(ops[0]):
            if reused:
                _wait()
            for load, buffer in zip(loads, buffers, strict=True):
                _copy(load, buffer, build.index(0), map(here, load.opview.indices))
                CommitCopiesOp()
            if loop is not None:
                self._start(loop, here)
        left, groups = [op for op in ops if op not in loads], len(loads) + (loop is not None)
        for number, (load, buffer) in enumerate(zip(loads, buffers, strict=True)):
            with ir.InsertionPoint(load):
                _wait(groups - 1 - number)
                _replace(load, buffer, build.index(0))
        return left

    def _computed(self, op: ir.Operation) -> None:
        """A tile that is computed on its way: between two barriers, with nothing else meanwhile."""
        kind = op.results[0].type
        buffer = self._buffer(kind, 1)
        with ir.InsertionPoint(op):
            stage = build.index(0)
            _barrier()  # no one reads the tile before it any more
            StoreSharedOp(op.operands[0], buffer, stage)
            _barrier()
            _replace(op, buffer, stage)

    def _buffers(self, loads: list[ir.Operation], stages: int) -> tuple[list[ir.Value], bool]:
        """A buffer for each; whether a loop before may still read one."""
        before = len(self.free)
        buffers = [self._buffer(load.results[0].type, stages) for load in loads]
        return buffers, len(self.free) < before

    def _start(self, loop: ir.Operation, here: Callable[[ir.Value], ir.Value]) -> None:
        """The copies for a loop's first iteration. `here`: what a value from before the loop is at this place."""
        self.started[loop], reused = self._buffers(_loads_of(loop), STAGES)
        if reused:
            _wait()
        lower, upper = here(loop.operands[0]), here(loop.operands[1])
        some = arith.cmpi(arith.CmpIPredicate.slt, lower, upper)  # else the first tile may be beyond the array
        with only_if(some):
            self._copies(loop, build.index(0), lower, here)
        CommitCopiesOp()

    def _loop(self, loop: ir.Operation, later: list[ir.Operation]) -> list[ir.Operation]:
        """Schedules a loop's loads, and those of `later` ops that can be copied in its last iteration; what is left."""
        behind = _together(later, [loop, *later])[0] if self.stages > 1 else []
        last, _ = self._buffers(behind, 1)
        stage = self._ahead(loop, behind, last, later) if self.stages > 1 else self._in_turn(loop)
        buffers = self.started.pop(loop)
        for load, buffer in zip(_loads_of(loop), buffers, strict=True):
            with ir.InsertionPoint(load):
                _replace(load, buffer, stage)
        left = [op for op in later if op not in behind]
        for load, buffer in zip(behind, last, strict=True):
            with ir.InsertionPoint(load):
                _wait()
                _replace(load, buffer, build.index(0))
        self.free += buffers
        return left

    def _in_turn(self, loop: ir.Operation) -> ir.Value:
        """Copies of each iteration at its start; the value is the stage that it reads."""
        body = for_body(loop)
        self.started[loop], _ = self._buffers(_loads_of(loop), 1)
        with ir.InsertionPoint.at_block_begin(body):
            stage = build.index(0)
            _barrier()  # no one reads the tiles before any more
            self._copies(loop, stage, body.arguments[0], lambda value: value)
            CommitCopiesOp()
            _wait()
        return stage

    def _ahead(
        self, loop: ir.Operation, behind: list[ir.Operation], last: list[ir.Value], later: list[ir.Operation]
    ) -> ir.Value:
        """The same, one iteration ahead; the last one copies to the buffers `last` for the loads `behind` the loop."""
        if loop not in self.started:
            with ir.InsertionPoint(loop):
                self._start(loop, lambda value: value)
        lower, upper, step = list(loop.operands)[:3]
        body = for_body(loop)
        induction = body.arguments[0]
        if behind:
            with ir.InsertionPoint(loop):
                none = arith.cmpi(arith.CmpIPredicate.sge, lower, upper)
                with only_if(none):
                    _copies_behind(behind, last, later)
                CommitCopiesOp()
        with ir.InsertionPoint.at_block_begin(body):
            _wait()
            two = build.index(STAGES)
            stage = arith.remui(arith.divui(arith.subi(induction, lower), step), two)
            following = arith.addi(induction, step)
            inside = arith.cmpi(arith.CmpIPredicate.slt, following, upper)
            branch = scf.IfOp(inside, has_else=bool(behind))
            with ir.InsertionPoint(branch.then_block):
                self._copies(loop, arith.subi(build.index(1), stage), following, lambda value: value)
                scf.YieldOp([])
            if behind:
                with ir.InsertionPoint(branch.else_block):
                    _copies_behind(behind, last, later)
                    scf.YieldOp([])
            CommitCopiesOp()
        return stage

    def _copies(
        self, loop: ir.Operation, stage: ir.Value, induction: ir.Value, here: Callable[[ir.Value], ir.Value]
    ) -> None:
        """The copies of the iteration whose induction variable is `induction`."""
        known = {for_body(loop).arguments[0]: induction}
        for load, buffer in zip(_loads_of(loop), self.started[loop], strict=True):
            _copy(load, buffer, stage, [_in_iteration(v, loop, known, here) for v in load.opview.indices])


def _together(
    ops: list[ir.Operation], moved: list[ir.Operation] | None = None
) -> tuple[list[ir.Operation], ir.Operation | None]:
    """The loads of `ops` up to the first loop or branch that has some too, and that loop, as far as their places can be
    computed before all of `moved` (by default, of `ops`)."""
    moved = moved or ops
    loads: list[ir.Operation] = []
    for op in ops:
        if op.name == "scf.for" and _loads_of(op):
            places = [*list(op.operands)[:2], *(v for load in _loads_of(op) for v in load.opview.indices)]
            return loads, op if all(_can_move(v, moved) for v in places) else None
        if op.name in ("scf.for", "scf.if") and ops_in(op, "tile.load"):
            break
        if _is_staged(op):
            if not all(_can_move(v, moved) for v in op.opview.indices):
                break
            loads.append(op)
    return loads, None


def _can_move(value: ir.Value, ops: list[ir.Operation]) -> bool:
    """Whether a number can be computed before `ops`; inside of a loop of theirs, in any iteration."""
    op = defining_op(value)
    if op is None or not any(op == other or is_inside(op, other) for other in ops):
        return True
    plain = not len(op.regions) and not any(isinstance(r.type, ir.ShapedType) for r in op.results)
    return plain and all(_can_move(v, ops) for v in op.operands)


def _copies_behind(loads: list[ir.Operation], buffers: list[ir.Value], later: list[ir.Operation]) -> None:
    """Copies of the loads of `later` ops, before them."""
    values: Values = {}
    for load, buffer in zip(loads, buffers, strict=True):
        places = [copy_needed(v, values, lambda op: op in later) for v in load.opview.indices]
        _copy(load, buffer, build.index(0), places)


def _loads_of(loop: ir.Operation) -> list[ir.Operation]:
    """The loads of a loop's body to shared memory."""
    return [op for op in ops_of(for_body(loop)) if _is_staged(op)]


def _is_computed(op: ir.Operation) -> bool:
    return op.name == "tile.convert_layout" and layout_of(op.results[0].type) == "shared"


def _bytes(op: ir.Operation) -> int:
    """What the tile that `op` makes takes in shared memory."""
    kind = op.results[0].type
    inner = inner_dim(op.operands[0] if _is_computed(op) else op.results[0])
    return shared_bytes(kind.shape[1 - inner], kind.shape[inner], byte_width(kind.element_type))


def _is_staged(op: ir.Operation) -> bool:
    return op.name == "tile.load" and layout_of(op.results[0].type) == "shared"


def _copy(load: ir.Operation, buffer: ir.Value, stage: ir.Value, indices: Iterable[ir.Value]) -> None:
    CopyAsyncOp(load.opview.memory, buffer, [stage, *indices], load.attributes["dims"])


def _replace(load: ir.Operation, buffer: ir.Value, stage: ir.Value) -> None:
    view = ViewOp(buffer, stage, result=load.results[0].type)
    load.results[0].replace_all_uses_with(view.result)
    load.erase()


def _wait(pending: int = 0) -> None:
    WaitCopiesOp(build.i64_attribute(pending))
    _barrier()


def _barrier() -> None:
    ir.Operation.create("gpu.barrier")


def _in_iteration(value: ir.Value, loop: ir.Operation, known: Values, here: Callable[[ir.Value], ir.Value]) -> ir.Value:
    """The value that an index of the loop's body has in another iteration: the ops that compute it, copied."""
    if value in known:
        return known[value]
    op = defining_op(value)
    if op is None or not is_inside(op, loop):
        if op is None and value.owner == for_body(loop):
            raise PassError("the place of a load depends on what the loop carries: not scheduled", loop)
        return here(value)
    operands = [_in_iteration(v, loop, known, here) for v in op.operands]
    clone = op.clone().operation
    for i, v in enumerate(operands):
        clone.operands[i] = v
    known.update(zip(op.results, clone.results, strict=True))
    return known[value]

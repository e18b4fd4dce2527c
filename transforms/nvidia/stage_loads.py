"""The pass ``stage-loads``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ...dialects import build
from ...dialects.mlir import arith, ir
from ...dialects.tile import CommitCopiesOp, CopyAsyncOp, StoreSharedOp, ViewOp, WaitCopiesOp, layout_of
from ..passes import Pass, PassError, option, remark
from ..rewriting import defining_op, is_inside, ops_in
from .axes import for_body, ops_of
from .memory import byte_width
from .spread import inner_dim
from .synchronisation import RESERVED
from .thread import Shared

STAGES = 2


@dataclass(frozen=True)
class StageLoads(Pass):
    """Loads to shared memory become asynchronous copies; those in a loop run one iteration ahead of their use::

        scf.for %j = %lower to %upper step %step {
          %k = tile.load(%arg1, %j, …) : … -> tensor<64x64xf16, "shared">
          …
      becomes
        %buffer = memref.alloc() : memref<2x64x64xf16, #gpu.address_space<workgroup>>
        tile.copy_async(%arg1, %buffer, %c0, %lower, …)
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

    A tile that is computed on its way there has one stage, which ``tile.store_shared`` fills between two barriers. So
    has every tile of a kernel whose buffers would not fit in `shared-memory` otherwise: copies do not run ahead then,
    which is slower. A schedule: what is computed stays as it is.
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
        self.stages = STAGES  # of what loops load

    def bytes(self) -> int:
        """What all buffers take, when loops one after the other share theirs."""
        total, free = 0, Counter[tuple[ir.Type, int]]()
        for op in ops_in(self.kernel):
            if op.name == "scf.for":
                loads = [o for o in ops_of(for_body(op)) if _is_staged(o)]
                kinds = Counter((load.results[0].type, _bytes(load)) for load in loads)
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
        for op in ops_of(block):
            if _is_computed(op):
                with op.location:
                    self._computed(op)
            elif _is_staged(op):
                with op.location:
                    self._at_top(op)
            elif op.name == "scf.if":
                for inner in (b for region in op.regions for b in region.blocks):
                    self._ops(inner)
            elif op.name == "scf.for":
                for inner in filter(_is_computed, ops_of(for_body(op))):
                    with inner.location:
                        self._computed(inner)
                loads = [inner for inner in ops_of(for_body(op)) if _is_staged(inner)]
                if loads:
                    with op.location:
                        self._loop(op, loads)

    def _buffer(self, kind: ir.RankedTensorType, stages: int) -> ir.Value:
        space = ir.Attribute.parse("#gpu.address_space<workgroup>")
        memref = ir.MemRefType.get([stages, *kind.shape], kind.element_type, memory_space=space)
        for buffer in self.free:
            if buffer.type == memref:
                self.free.remove(buffer)
                return buffer
        with ir.InsertionPoint.at_block_begin(self.block):
            segments = ir.DenseI32ArrayAttr.get([0, 0])
            return ir.Operation.create("memref.alloc", [memref], [], {"operandSegmentSizes": segments}).result

    def _at_top(self, load: ir.Operation) -> None:
        buffer = self._buffer(load.results[0].type, 1)
        with ir.InsertionPoint(load):
            _copy(load, buffer, build.index(0), load.opview.indices)
            CommitCopiesOp()
            _wait()
            _replace(load, buffer, build.index(0))

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

    def _loop(self, loop: ir.Operation, loads: list[ir.Operation]) -> None:
        reused = len(self.free)
        buffers = [self._buffer(load.results[0].type, self.stages) for load in loads]
        if len(self.free) < reused and self.stages > 1:
            with ir.InsertionPoint(loop):
                _wait()  # the loop before may still read them, or, without an iteration, be copying to them
        stage = (self._in_turn if self.stages == 1 else self._ahead)(loop, loads, buffers)
        for load, buffer in zip(loads, buffers, strict=True):
            with ir.InsertionPoint(load):
                _replace(load, buffer, stage)
        self.free += buffers

    def _in_turn(self, loop: ir.Operation, loads: list[ir.Operation], buffers: list[ir.Value]) -> ir.Value:
        """Copies of each iteration at its start; the value is the stage that it reads."""
        body = for_body(loop)
        with ir.InsertionPoint.at_block_begin(body):
            stage = build.index(0)
            _barrier()  # no one reads the tiles before any more
            self._copies(loop, loads, buffers, stage, body.arguments[0])
            CommitCopiesOp()
            _wait()
        return stage

    def _ahead(self, loop: ir.Operation, loads: list[ir.Operation], buffers: list[ir.Value]) -> ir.Value:
        """The same, one iteration ahead."""
        lower, upper, step = list(loop.operands)[:3]
        body = for_body(loop)
        induction = body.arguments[0]
        with ir.InsertionPoint(loop):
            self._copies(loop, loads, buffers, build.index(0), lower)
            CommitCopiesOp()
        with ir.InsertionPoint.at_block_begin(body):
            _wait()
            two = build.index(STAGES)
            stage = arith.remui(arith.divui(arith.subi(induction, lower), step), two)
            following = arith.addi(induction, step)
            inside = arith.cmpi(arith.CmpIPredicate.slt, following, upper)
            branch = ir.Operation.create("scf.if", [], [inside], regions=2)
            with ir.InsertionPoint(branch.regions[0].blocks.append()):
                self._copies(loop, loads, buffers, arith.subi(build.index(1), stage), following)
                ir.Operation.create("scf.yield")
            CommitCopiesOp()
        return stage

    def _copies(self, loop: ir.Operation, loads, buffers, stage: ir.Value, induction: ir.Value) -> None:
        """The copies of the iteration whose induction variable is `induction`."""
        known = {for_body(loop).arguments[0]: induction}
        for load, buffer in zip(loads, buffers, strict=True):
            _copy(load, buffer, stage, [_in_iteration(v, loop, known) for v in load.opview.indices])


def _is_computed(op: ir.Operation) -> bool:
    return op.name == "tile.convert_layout" and layout_of(op.results[0].type) == "shared"


def _bytes(op: ir.Operation) -> int:
    """What the tile that `op` makes takes in shared memory."""
    kind = op.results[0].type
    inner = inner_dim(op.operands[0] if _is_computed(op) else op.results[0])
    return Shared.bytes(kind.shape[1 - inner], kind.shape[inner], byte_width(kind.element_type))


def _is_staged(op: ir.Operation) -> bool:
    return op.name == "tile.load" and layout_of(op.results[0].type) == "shared"


def _copy(load: ir.Operation, buffer: ir.Value, stage: ir.Value, indices: Sequence[ir.Value]) -> None:
    CopyAsyncOp(load.opview.memory, buffer, [stage, *indices], load.attributes["dims"])


def _replace(load: ir.Operation, buffer: ir.Value, stage: ir.Value) -> None:
    view = ViewOp(buffer, stage, result=load.results[0].type)
    load.results[0].replace_all_uses_with(view.result)
    load.erase()


def _wait() -> None:
    WaitCopiesOp(ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 0))
    _barrier()


def _barrier() -> None:
    ir.Operation.create("gpu.barrier")


def _in_iteration(value: ir.Value, loop: ir.Operation, known: dict[ir.Value, ir.Value]) -> ir.Value:
    """The value that an index of the loop's body has in another iteration: the ops that compute it, copied."""
    if value in known:
        return known[value]
    op = defining_op(value)
    if op is None or not is_inside(op, loop):
        if op is None and value.owner == for_body(loop):
            raise PassError("the place of a load depends on what the loop carries: not scheduled", loop)
        return value
    operands = [_in_iteration(v, loop, known) for v in op.operands]
    clone = op.clone().operation
    for i, v in enumerate(operands):
        clone.operands[i] = v
    known.update(zip(op.results, clone.results, strict=True))
    return known[value]

"""What the warps of each role do of a kernel's ops: the one that copies, and those that arrange (those that compute:
consumer_role.py)."""

from __future__ import annotations

from collections.abc import Sequence

from ....dialects import build
from ....dialects.mlir import ir
from ....dialects.tile import ArrangeOp, ArriveOp, CopyBulkOp, CopyRowsOp, ViewOp, WaitBarrierOp, with_layout
from ...passes import PassError
from ...rewriting import Values, copy_op, defining_op, for_body, for_inits, make_for, make_while, ops_in, ops_of
from .bulk_copies import is_staged
from .rings import Count, Ring, Told, is_right_operand


class Role:
    """Copies the kernel's ops for the warps of one role, and counts the uses of each ring."""

    takes = False  # numbers, which it tells others

    def __init__(self, rings: list[Ring], told: Told | None = None):
        self.rings, self.told = rings, told
        self.ring_of = {load: i for i, ring in enumerate(rings) for load in ring.loads}
        self.values: Values = {}
        self.untold: set[ir.Value] = set()  # what another warp computes before it tells a number
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
        elif op.name == "scf.while":
            self._while(op)
        elif op.name == "tile.share":
            self.values[op.results[0]] = self.share(op)
        elif self._is_told(op):
            self.untold.update(op.results)
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

    def share(self, op: ir.Operation) -> ir.Value:
        """A number that one warp tells all others."""
        assert self.told is not None, "a kernel with such ops has numbers that are told"
        number, use = op.operands
        if not self.takes:
            return self.told.told(self.value(use))
        self.told.tell(self.value(number), self.value(use))
        return self.value(number)

    def _is_told(self, op: ir.Operation) -> bool:
        """Whether an op is part of what another warp computes, and tells."""
        return not self.takes and (op.name == "tile.take" or any(v in self.untold for v in op.operands))

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
        loop, block = make_for(bounds, inits)
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

    def _while(self, op: ir.Operation) -> None:
        """A loop over tiles, which carries numbers alone."""
        together = self._together(op)
        inits = [self.value(v) for v in op.operands] + self._made(together)
        loop, condition, body = make_while(inits)
        old_condition, old_body = (region.blocks[0] for region in op.regions)
        with ir.InsertionPoint(condition):
            arguments = list(condition.arguments)
            self.values.update(zip(old_condition.arguments, arguments, strict=False))
            *ops, end = ops_of(old_condition)
            self.ops(ops)
            counts = arguments[len(op.operands) :]
            ir.Operation.create("scf.condition", [], [*map(self.value, end.operands), *counts])
        with ir.InsertionPoint(body):
            arguments = list(body.arguments)
            self.values.update(zip(old_body.arguments, arguments, strict=False))
            self._continue(together, arguments[len(op.operands) :])
            *ops, end = ops_of(old_body)
            self.ops(ops)
            ir.Operation.create("scf.yield", [], [*map(self.value, end.operands), *self._made(together)])
        self._results(op, list(range(len(op.results))), together, list(loop.results))

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
    """A warp that copies: loads to `own` rings, by default all, and the scalars that say which. `takes`: it takes
    numbers, too, for want of a warp that does nothing else."""

    def __init__(
        self, rings: list[Ring], told: Told | None = None, own: Sequence[Ring] | None = None, takes: bool = False
    ):
        super().__init__(rings, told)
        self.takes = takes
        self.own = rings if own is None else own
        self.firsts = {ring.leader or ring: ring for ring in reversed(self.own)}  # of those that share barriers
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
        return ring.stages == 1 and not to_registers and not is_right_operand(load)

    def carried(self, values: list[ir.Value]) -> list[ir.Value]:
        return [v for v in values if not isinstance(v.type, ir.ShapedType)]

    def load(self, op: ir.Operation, ring: Ring, use: ir.Value) -> None:
        if ring.is_skewed or ring not in self.own:
            return
        if self.firsts[ring.leader or ring] is ring:
            WaitBarrierOp(ring.landing.free, use, build.i64_attribute(1))
        offsets = [self.value(v) for v in op.opview.indices[: ring.copy.memory.type.rank]]
        CopyBulkOp(ring.map, ring.landing.buffer, ring.landing.ready, use, offsets, op.attributes["dims"])

    def plain(self, op: ir.Operation) -> None:
        if op.name == "tile.take":
            assert self.told is not None, "a kernel with such ops has numbers that are told"
            self.told.wait(self.value(op.operands[1]))
        tiles = any(isinstance(v.type, ir.RankedTensorType) for v in (*op.results, *op.operands))
        if op.name in ("tile.meet", "tile.raised") or (not tiles and op.results):
            for operand in op.operands:
                self.value(operand)  # an error where it is left out
            copy_op(op, self.values)
        else:
            self.left_out.update(op.results)

    def value(self, value: ir.Value) -> ir.Value:
        if value in self.left_out:
            raise PassError("loads depend on this, which the warp that copies does not compute", defining_op(value))
        return super().value(value)


class Arranger(Producer):
    """The warps between that one and those that compute, for tiles that are "paired", or "skewed"."""

    def _waits_long(self, load: ir.Operation) -> bool:
        return False

    def load(self, op: ir.Operation, ring: Ring, use: ir.Value) -> None:
        if ring.is_skewed:
            WaitBarrierOp(ring.landing.free, use, build.i64_attribute(1))
            view = op.opview
            places = [self.value(v) for v in view.indices]
            CopyRowsOp(view.memory, ring.landing.buffer, ring.landing.ready, use, places, op.attributes["dims"])
        if not ring.is_paired:
            return
        source, target = ring.landing, ring.reading
        WaitBarrierOp(source.ready, use, build.i64_attribute(0))
        WaitBarrierOp(target.free, use, build.i64_attribute(1))
        stage = ring.stage(use)
        tile = ViewOp(source.buffer, stage, result=with_layout(op.results[0].type, "shared")).result
        ArrangeOp(tile, target.buffer, stage, build.i64_attribute(ring.summed))
        ArriveOp(target.ready, use)
        ArriveOp(source.free, use)


class Taker(Producer):
    """A warp that takes numbers, and tells the others."""

    def __init__(self, told: Told):
        super().__init__([], told, takes=True)

    def ops(self, ops: list[ir.Operation]) -> None:
        for op in ops:
            with op.location:
                if op.name == "scf.while" and ops_in(op, "tile.take"):
                    self._while(op)
                elif op.name == "tile.share":
                    self.values[op.results[0]] = self.share(op)
                elif len(op.regions) or op.name in ("tile.meet", "tile.raised"):
                    self.left_out.update(op.results)
                else:
                    self.plain(op)

"""Rings between warps with roles: a tile's buffer of some stages, their barriers, and how often they were used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from ....dialects import build
from ....dialects.mlir import arith, ir
from ....dialects.tile import ArriveOp, InitBarriersOp, TellOp, ToldOp, WaitBarrierOp, layout_of, shared_buffer
from ....dialects.tiling.structured import dim_position, indexing_maps
from ...attention import contraction_loops, is_matmul
from ...rewriting import ancestors, ops_of
from ..architecture import ARRANGERS, WARPS
from ..elements import byte_width
from ..marks import ASYNC
from ..shared_layouts import shared_bytes, skewed_bytes
from .bulk_copies import BulkCopy, Copy

TOLD = 1  # what a block has taken no other one can


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
        InitBarriersOp(ready, build.i64_attribute(writers))
        InitBarriersOp(free, build.i64_attribute(readers))
        return Stages(buffer, ready, free)


@dataclass(frozen=True)
class Told:
    """Numbers that one warp tells others, `TOLD` of them before the first one is read."""

    stages: Stages

    @staticmethod
    def make(readers: int) -> Told:
        number = ir.RankedTensorType.get([], ir.IntegerType.get_signless(32))
        return Told(Stages.make(TOLD, number, 1, readers))

    def wait(self, use: ir.Value) -> None:
        """Until there is room for the number."""
        WaitBarrierOp(self.stages.free, use, build.i64_attribute(1))

    def tell(self, number: ir.Value, use: ir.Value) -> None:
        TellOp(number, self.stages.buffer, use)
        ArriveOp(self.stages.ready, use)

    def told(self, use: ir.Value) -> ir.Value:
        WaitBarrierOp(self.stages.ready, use, build.i64_attribute(0))
        number = ToldOp(self.stages.buffer, use, result=ir.IndexType.get()).result
        ArriveOp(self.stages.free, use)
        return number


@dataclass(eq=False)
class Ring:
    """What some loads of a tile go through: where copies of it land, and where it is read, which is the same but for
    tiles that are "paired"."""

    copy: Copy
    map: ir.Value | None  # of what the engine copies
    loads: list[ir.Operation] = field(default_factory=list)
    stages: int = 1
    followers: list[Ring] = field(default_factory=list)  # which share this one's barriers (shared_barriers.py)
    leader: Ring | None = None
    landing: Stages | None = None
    reading: Stages | None = None

    @property
    def bytes(self) -> int:
        shape, width = self.copy.kind.shape, byte_width(self.copy.kind.element_type)
        if not isinstance(self.copy, BulkCopy):
            return self.stages * skewed_bytes(shape[0], shape[1], width)
        inner = self.copy.inner
        found = shared_bytes(shape[1 - inner], shape[inner], width)
        if self.is_paired:
            found += shared_bytes(shape[1 - self.summed], shape[self.summed], width)
        return self.stages * found

    @property
    def is_skewed(self) -> bool:
        return not isinstance(self.copy, BulkCopy)

    @property
    def is_paired(self) -> bool:
        return layout_of(self.copy.kind) == "paired"

    @property
    def summed(self) -> int:
        """The dimension of a right operand that its matmul sums over."""
        found = summed_dim(self.loads[0])
        assert found is not None, "what is arranged is a right operand"
        return found

    def allocate(self, warpgroups: int) -> None:
        """Makes its buffer and barriers, for so many warpgroups that read; those of a ring that follows another one
        after that one's."""
        kind, readers = self.copy.kind, WARPS * warpgroups
        if self.leader is not None:
            assert self.leader.landing is not None, "which comes first"
            buffer = shared_buffer([self.stages, *kind.shape], kind.element_type)
            self.landing = self.reading = replace(self.leader.landing, buffer=buffer)
        elif self.is_skewed:  # each thread for itself
            self.landing = self.reading = Stages.make(self.stages, kind, 32 * ARRANGERS, 32 * readers)
        elif self.is_paired:
            self.landing = Stages.make(self.stages, kind, 1, ARRANGERS)
            self.reading = Stages.make(self.stages, kind, ARRANGERS, readers)
        else:
            self.landing = self.reading = Stages.make(self.stages, kind, 1 + len(self.followers), readers)

    def stage(self, use: ir.Value) -> ir.Value:
        return arith.remui(use, build.index(self.stages))


def rings_of(copies: Mapping[ir.Operation, Copy], maps: Mapping[Copy, ir.Value] = MappingProxyType({})) -> list[Ring]:
    """What loads go through that are these copies, with a stage each. Keys and values that are parts of the same array
    have rings of their own: else they would wait for each other."""
    rings: dict[tuple[Copy, int | None], Ring] = {}
    for load, copy in copies.items():
        rings.setdefault((copy, summed_dim(load)), Ring(copy, maps.get(copy))).loads.append(load)
    return list(rings.values())


@dataclass(frozen=True)
class Count:
    """How often a ring has been used: so much more than a value. Rings that go on together share it."""

    value: ir.Value
    more: int = 0

    def plus(self, more: int) -> Count:
        return Count(self.value, self.more + more)

    def made(self) -> ir.Value:
        return arith.addi(self.value, build.index(self.more)) if self.more else self.value


def is_right_operand(load: ir.Operation) -> bool:
    return summed_dim(load) is not None


def summed_dim(load: ir.Operation) -> int | None:
    """The dimension of a right operand that its matmul sums over; None for what is no right operand."""
    for use in load.results[0].uses:
        matmul = use.owner.operation
        if use.operand_number == 1 and is_matmul(matmul):
            loops = contraction_loops(matmul)
            assert loops is not None, "a matmul is a contraction"
            return [dim_position(e) for e in indexing_maps(matmul)[1].results].index(loops.k[0])
    return None


def last_readers(load: ir.Operation, block: ir.Block) -> list[ir.Operation | ir.Block]:
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
    return [place for region in last.regions for place in last_readers(load, region.blocks[0])]

"""Rings between warps with roles: a tile's buffer of some stages, their barriers, and how often they were used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from ....dialects import build
from ....dialects.mlir import arith, ir
from ....dialects.tile import ArriveOp, InitBarriersOp, TellOp, ToldOp, WaitBarrierOp, layout_of, shared_buffer
from ....dialects.tiling.structured import dim_position, indexing_maps
from ...attention import contraction_loops, is_matmul
from ..elements import byte_width
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

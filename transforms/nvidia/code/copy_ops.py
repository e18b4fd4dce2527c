"""Emits the ops that move tiles between memory, shared memory and registers."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import ClassVar

from ....dialects.mlir import ir
from ....dialects.tile import Joined, box_rows, dims_of, layout_of
from ...linear import divisor, least_divisor
from ...passes import PassError
from ...rewriting import ancestors, defining_op
from ..alignment import has_dense_rows
from ..axes import DYNAMIC
from ..elements import byte_width
from ..marks import AS_STORED, PRODUCERS
from . import spread
from .async_copies import copy_to_shared
from .emitter import Emitter
from .memory import Access, Memory, load_registers
from .pieces import copy_piece
from .skewed import copy_rows, row_shifts
from .storing import store_registers, store_spread
from .synchronisation import Barriers, copy_bulk
from .thread import Shared, Skewed, asm, rem
from .values import Value


class CopyOps(Emitter):
    """Copies, loads and stores of tiles."""

    def _commit(self, op: ir.Operation) -> list[Value]:
        asm("cp.async.commit_group;", "", [])
        return []

    def _wait(self, op: ir.Operation) -> list[Value]:
        asm(f"cp.async.wait_group {op.opview.pending.value};", "", [])
        if self.hopper:  # the tensor cores read what these copies wrote
            asm("fence.proxy.async.shared::cta;", "", [])
        return []

    def _access(
        self, memory: ir.Value, indices: Sequence[ir.Value], dims: Sequence[int | Joined], shape: Sequence[int]
    ) -> Access:
        found = self.values[memory]
        assert isinstance(found, Memory), "memory is an argument"
        return Access.of(found, [self.scalar(v) for v in indices], dims, shape)

    def _dense(
        self, memory: ir.MemRefType, dims: Sequence[int | Joined], indices: Sequence[ir.Value]
    ) -> tuple[int, int | None]:
        """How rows of a tile in memory are aligned, in bytes, and along which dimension its elements are dense."""
        last, size = memory.rank - 1, byte_width(memory.element_type)
        if last not in dims or not has_dense_rows(memory):
            return size, None
        extent = memory.shape[-1]
        if extent == DYNAMIC:
            return size, dims.index(last)
        return math.gcd(self.vector_bytes, size * extent, size * divisor(indices[last])), dims.index(last)

    def _stage(self, buffer: ir.Value, stage: ir.Value) -> Shared:
        base = self.values[buffer]
        assert isinstance(base, Shared), "a buffer is shared memory"
        return base.at(stage)

    def _skewed(self, buffer: ir.Value, stage: ir.Value) -> Skewed:
        base = self.values[buffer]
        assert isinstance(base, Skewed), "a buffer of rows that are not aligned"
        return base.at(stage)

    def _barriers(self, value: ir.Value) -> Barriers:
        found = self.values[value]
        assert isinstance(found, Barriers), "barriers are shared memory"
        return found

    def _copy(self, op: ir.Operation) -> list[Value]:
        view = op.opview
        stage, *indices = view.indices
        tile = self._stage(view.staged, self.scalar(stage))
        access = self._access(view.memory, indices, dims_of(view), tile.shape)
        aligned, inner = self._dense(view.memory.type, dims_of(view), indices)
        copy_to_shared(access, tile, self.thread, aligned if inner == tile.inner else tile.width)
        return []

    def _copy_piece(self, op: ir.Operation) -> list[Value]:
        view = op.opview
        source, target = (self.values[v] for v in (view.memory, view.copy))
        assert isinstance(source, Memory) and isinstance(target, Memory)
        *places, left = (self.scalar(v) for v in view.indices)
        rank = source.kind.rank
        copy_piece(source, target, places[:rank], places[rank:], left, view.aligned.value)
        return []

    def _copy_bulk(self, op: ir.Operation) -> list[Value]:
        view = op.opview
        ready, use = self._barriers(view.ready), self.scalar(view.use)
        tile = self._stage(view.staged, rem(use, ready.stages))
        rows, offsets = box_rows(view.map.type), [self.scalar(v) for v in view.indices]
        copy_bulk(self.scalar(view.map), rows, tile, ready, use, offsets, self.thread)
        return []

    def _copy_rows(self, op: ir.Operation) -> list[Value]:
        view = op.opview
        ready, use = self._barriers(view.ready), self.scalar(view.use)
        tile = self._skewed(view.staged, rem(use, ready.stages))
        access = self._access(view.memory, view.indices, dims_of(view), tile.shape)
        copy_rows(access, tile, ready, use, self.thread)
        return []

    def _row_shifts(self, op: ir.Operation) -> list[Value]:
        view, memory = op.opview, self.values[op.operands[0]]
        assert isinstance(memory, Memory), "memory is an argument"
        offsets = [self.scalar(v) for v in view.indices]
        return [row_shifts(memory, offsets, view.dim.value, op.results[0].type.shape[0], self.thread)]

    def _view(self, op: ir.Operation) -> list[Value]:
        stage = self.scalar(op.operands[1])
        if layout_of(op.results[0].type) == "skewed":
            return [self._skewed(op.operands[0], stage)]
        return [self._stage(op.operands[0], stage)]

    def _load(self, op: ir.Operation) -> list[Value]:
        view, kind = op.opview, op.results[0].type
        if layout_of(kind) in ("shared", "skewed"):
            raise PassError("a load to shared memory is not scheduled: run stage-loads before", op)
        access = self._access(view.memory, view.indices, dims_of(view), kind.shape)
        aligned, inner = self._dense(view.memory.type, dims_of(view), view.indices)
        if layout_of(kind) == "spread":
            return [spread.loaded(access, kind.element_type, aligned, inner)]
        return [load_registers(access, kind, self.thread, aligned if inner == kind.rank - 1 else 0)]

    def _store_shared(self, op: ir.Operation) -> list[Value]:
        source = self.values[op.operands[0]]
        assert isinstance(source, spread.Spread), "what is stored to shared memory is spread"
        tile = self._stage(op.operands[1], self.scalar(op.operands[2]))
        spread.store_shared(source, tile, op.operands[0].type.element_type, self.thread)
        if self.hopper:
            asm("fence.proxy.async.shared::cta;", "", [])
        return []

    def _store(self, ops: Sequence[ir.Operation]) -> None:
        """Of several tiles whose elements are computed as they are stored, a piece of each in turn: what they have in
        common is in registers then, and no more."""
        in_turn = all(_is_as_stored(op.operands[0]) for op in ops)
        for together in [ops] if in_turn else [[op] for op in ops]:
            stores = []
            for op in together:
                with op.location:
                    stores.append(self._pieces_of(op))
            for step in itertools.zip_longest(*stores):
                for op, store in zip(together, step, strict=True):
                    with op.location:
                        if store is not None:
                            store()

    def _pieces_of(self, op: ir.Operation) -> list[Callable[[], None]]:
        """What stores a tile, piece by piece."""
        view = op.opview
        kind = view.tile.type
        access = self._access(view.memory, view.indices, dims_of(view), kind.shape)
        source = self.values[view.tile]
        if isinstance(source, spread.Spread):  # of keys or values that are computed on their way to shared memory
            if any(PRODUCERS in a.attributes for a in ancestors(op)):  # of its threads some do nothing but copy
                raise PassError("a result of keys or values is not stored beside the copy engine", op)
            return [functools.partial(store_spread, access, source, kind, self.thread)]
        aligned, inner = self._dense(view.memory.type, dims_of(view), view.indices)
        together = math.gcd(least_divisor(view.indices[-1]), aligned // access.memory.bytes) if inner == 1 else 1
        return store_registers(access, self.registers(view.tile), kind, together, self.thread)

    in_runs: ClassVar = {**Emitter.in_runs, "tile.store": _store}

    handlers: ClassVar = {
        **Emitter.handlers,
        "tile.copy_bulk": _copy_bulk,
        "tile.copy_rows": _copy_rows,
        "tile.row_shifts": _row_shifts,
        "tile.commit_copies": _commit,
        "tile.wait_copies": _wait,
        "tile.copy_async": _copy,
        "tile.copy_piece": _copy_piece,
        "tile.store_shared": _store_shared,
        "tile.view": _view,
        "tile.load": _load,
    }


def _is_as_stored(tile: ir.Value) -> bool:
    op = defining_op(tile)
    return op is not None and AS_STORED in op.attributes

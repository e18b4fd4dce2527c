"""Emits the ops of a kernel on tiles, one handler each, as what one thread does; used by ``tiles-to-nvvm``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from ....dialects.build import constant_value
from ....dialects.mlir import ir
from ....dialects.tile import layout_of
from ....dialects.tiling.structured import dim_position, indexing_maps
from ...attention import contraction_loops, is_matmul
from ...passes import PassError
from ...rewriting import defining_op, ops_in, ops_of
from ..architecture import ARRANGERS, MOST_COLUMNS
from ..constants import is_zero
from ..marks import ALL_WARPS, ASYNC, EACH_THREAD
from . import contraction, exponentials, spread, tables
from .arranging import arrange
from .copy_ops import CopyOps
from .elementwise import Elementwise, row_parts, whole_rows
from .fragments import load_first_row, load_fragment
from .memory import Memory
from .scaling import scale
from .skewed import load_skewed
from .synchronisation import Flags, any_of_warp, meet, pass_turn, set_registers, settle, start_turns, take, take_turn
from .thread import Registers, Shared, Skewed, at
from .values import Value


class TileOps(CopyOps):
    """What is computed with tiles, and how threads wait for each other."""

    def _scale(self, op: ir.Operation) -> list[Value]:
        tile = self.values[op.operands[0]]
        assert isinstance(tile, Registers | Shared), "what is scaled is a left operand"
        return [scale(tile, str(op.results[0].type.element_type), op.opview.exponent.value, self.thread)]

    def _arrange(self, op: ir.Operation) -> list[Value]:
        source = self.values[op.operands[0]]
        assert isinstance(source, Shared), "what is arranged is shared memory"
        target = self._stage(op.operands[1], self.scalar(op.operands[2]))
        arrange(source, target, ARRANGERS, self.thread)
        return []

    def _append_ones(self, op: ir.Operation) -> list[Value]:
        tile, ones = (self.values[v] for v in op.operands)
        assert isinstance(tile, Shared) and isinstance(ones, Shared), "what gets columns of ones is shared memory"
        return [replace(tile, ones=ones.first)]

    def _split_sums(self, op: ir.Operation) -> list[Value]:
        """All columns of sums are the same: each thread has its rows' sums."""
        tile, (rest, sums) = self.registers(op.operands[0]), (r.type for r in op.results)
        own = Registers.count(rest)
        rows = [tile.values[own + at("fragment", row, 0)] for row in (0, 1)]
        return [
            Registers("fragment", tuple(rest.shape), tile.values[:own]),
            Registers("row", tuple(sums.shape), rows),
        ]

    def _flags(self, value: ir.Value) -> Flags:
        found = self.values[value]
        assert isinstance(found, Flags), "flags are shared memory"
        return found

    def _take(self, op: ir.Operation) -> list[Value]:
        memory = self.values[op.operands[0]]
        assert isinstance(memory, Memory), "blocks share memory"
        return [take(memory.address(memory.base([self.thread.zero])), self.thread)]

    def _synchronise(self, op: ir.Operation) -> list[Value]:
        """What gives no value."""
        view, thread = op.opview, self.thread
        if op.name == "tile.set_registers":
            set_registers(view.count.value, thread)
        elif op.name == "tile.init_barriers":
            self._barriers(op.operands[0]).init(view.arrivals.value, thread)
        elif op.name == "tile.wait_barrier":
            self._barriers(op.operands[0]).wait(self.scalar(op.operands[1]), view.behind.value)
        elif op.name == "tile.init_flags":
            self._flags(op.operands[0]).init(thread)
        elif op.name == "tile.fill_exp2":
            exponentials.fill(self._flags(op.operands[0]).address, thread)
        elif op.name == "tile.fill_ones":
            ones = self.values[op.operands[0]]
            assert isinstance(ones, Shared), "ones are a tile"
            tables.fill_ones(ones, str(op.operands[0].type.element_type), thread)
        elif op.name == "tile.raise":
            self._flags(op.operands[1]).raise_(self.scalar(op.operands[2]), self.registers(op.operands[0]).values)
        elif op.name == "tile.tell":
            number, use = op.operands[0], op.operands[2]
            self._flags(op.operands[1]).tell(self.scalar(number), self.scalar(use), thread)
        elif op.name == "tile.meet":
            meet(thread, ALL_WARPS in op.attributes)
        elif op.name == "tile.settle":
            tile = self.registers(op.operands[0])
            settle(tile.loaded or tile.values)
        elif op.name == "tile.arrive":
            self._barriers(op.operands[0]).arrive(self.scalar(op.operands[1]), thread, EACH_THREAD in op.attributes)
        elif op.name == "tile.start_turns":
            start_turns(view.warpgroups.value, thread)
        elif op.name == "tile.take_turn":
            take_turn(thread)
        else:
            pass_turn(view.warpgroups.value, thread)
        return []

    def _convert(self, op: ir.Operation) -> list[Value]:
        source, kind = self.values[op.operands[0]], op.results[0].type
        layout, element = layout_of(kind), str(kind.element_type)
        if layout == "row":
            return [whole_rows(self.registers(op.operands[0]))]
        if layout == "row_part":
            return [row_parts(self.registers(op.operands[0]), self.thread)]
        if layout == "fragment" and isinstance(source, Skewed):
            shifts = defining_op(op.operands[1])
            aligned = shifts.opview.aligned.value if shifts is not None else source.width
            at_once = all(len(u.owner.operation.operands) == 2 for u in op.results[0].uses)
            return [load_skewed(source, kind, self.registers(op.operands[1]), aligned, at_once, self.thread)]
        if layout == "fragment" and isinstance(source, Shared):
            return [load_fragment(source, kind, self.thread)]
        if layout == "column" and isinstance(source, Shared):
            return [load_first_row(source, kind, self.thread)]
        if layout == "operand_a" and element == "f32":  # in place, as a fragment is
            if isinstance(source, Shared):
                values = contraction.load_a(source, kind, self.thread)
            else:
                values = list(self.registers(op.operands[0]).values)
            return [Registers("operand_a", tuple(kind.shape), values)]
        if layout == "operand_a" and isinstance(source, Shared):
            # Rows are dimension 0 of the tile.
            values = []
            for step in range(kind.shape[1] * source.width // contraction.STEP):
                values += contraction.ldmatrix_a(source, 0, step, self.thread)
            return [Registers("operand_a", tuple(kind.shape), values)]
        if layout == "operand_a" and isinstance(source, Registers) and element in ("f16", "bf16"):
            return [contraction.pack(source, element)]
        if layout == "paired_a" and isinstance(source, Registers):
            return [contraction.pack_pairs(source, element, _has_known_padding(op))]
        raise PassError(f"no way from {op.operands[0].type} to {kind}", op)

    def _generic(self, op: ir.Operation) -> list[Value]:
        if is_matmul(op):
            return [self._contraction(op)]
        if layout_of(op.results[0].type) == "spread":
            return [spread.computed(op, [v for _, v in self._found(op.operands)], self.values.__getitem__)]
        operands = [v if isinstance(v, Registers) else self.scalar(o) for o, v in self._found(op.operands)]
        return list(Elementwise(op, operands, self.thread, self.values.__getitem__).run())

    def _found(self, values: Sequence[ir.Value]) -> list[tuple[ir.Value, Value]]:
        return [(v, self.values[v]) for v in values]

    def _contraction(self, op: ir.Operation) -> Registers:
        a, b = (self.values[v] for v in list(op.operands)[:2])
        if not isinstance(a, Shared) or not self.hopper:
            a = self.registers(op.operands[0])
        if not isinstance(b, Shared):
            raise PassError("the right operand of a matmul must be in shared memory", op)
        loops = contraction_loops(op)
        assert loops is not None and len(loops.k) == 1, "tiles of a matmul have one k loop"
        k_dim = [dim_position(e) for e in indexing_maps(op)[1].results].index(loops.k[0])
        zero = defining_op(op.operands[2])
        fresh = zero is not None and zero.name == "arith.constant" and is_zero(zero)
        accumulator = None if fresh else self.registers(op.operands[2])
        kind = op.results[0].type
        element, other = (str(v.type.element_type) for v in list(op.operands)[:2])
        eight_bits = self.hopper and {element, other} <= set(contraction.NAMES_OF_8_BITS) and b.inner == k_dim
        if (element, other) == ("f32", "bf16"):
            a, element = contraction.in_parts(self.registers(op.operands[0])), other
        if not eight_bits and (element not in contraction.ELEMENTS or other != element):
            known = ", ".join(contraction.ELEMENTS)
            raise PassError(
                f"the operands of matmuls on tensor cores must be of one type among {known}, or f32 and bf16", op
            )
        n = kind.shape[1]
        if element == "f32":
            values = contraction.mma_tf32(self.registers(op.operands[0]), b, k_dim, accumulator, n, self.thread)
        elif self.hopper:
            if n > MOST_COLUMNS:
                most = f"Hopper's tensor cores take at most {MOST_COLUMNS}"
                raise PassError(
                    f"a matmul's tile has {n} columns, {most}: of values (head size) or keys (tile_sizes)", op
                )
            wait = ASYNC not in op.attributes
            start = accumulator.values if eight_bits and accumulator is not None else None
            inner = None if start else accumulator
            values = contraction.wgmma(a, b, k_dim, inner, n, (element, other), wait, self.thread)
            if start and wait:
                values = contraction.added(start, values)
            return Registers("fragment", tuple(kind.shape), values, start=None if wait else start)
        else:
            assert isinstance(a, Registers), "only Hopper takes left operands from shared memory"
            values = contraction.mma_sync(a, b, k_dim, accumulator, n, element, self.thread)
        return Registers("fragment", tuple(kind.shape), values)

    def _wait_matmuls(self, op: ir.Operation) -> list[Value]:
        tile = self.registers(op.operands[0])
        if not self.hopper:
            return [tile]
        values = contraction.wait_matmuls(tile.values, op.opview.pending.value)
        return [Registers(tile.layout, tile.shape, contraction.added(tile.start, values) if tile.start else values)]

    handlers: ClassVar = {
        **CopyOps.handlers,
        "tile.arrange": _arrange,
        "tile.scale": _scale,
        "tile.append_ones": _append_ones,
        "tile.split_sums": _split_sums,
        "tile.wait_matmuls": _wait_matmuls,
        "tile.convert_layout": _convert,
        "linalg.generic": _generic,
        "tile.any_of_warp": lambda self, op: [any_of_warp(self.registers(op.operands[0]).values)],
        "tile.raised": lambda self, op: [self._flags(op.operands[0]).raised(self.scalar(op.operands[1]))],
        "tile.told": lambda self, op: [self._flags(op.operands[0]).told(self.scalar(op.operands[1]), self.thread)],
        "tile.take": _take,
        **dict.fromkeys(
            (
                "tile.set_registers",
                "tile.init_barriers",
                "tile.wait_barrier",
                "tile.arrive",
                "tile.settle",
                "tile.init_flags",
                "tile.fill_exp2",
                "tile.fill_ones",
                "tile.raise",
                "tile.tell",
                "tile.meet",
                "tile.start_turns",
                "tile.take_turn",
                "tile.pass_turn",
            ),
            _synchronise,
        ),
    }


def _has_known_padding(op: ir.Operation) -> bool:
    """Whether anything in the kernel of `op` asks if an element's place is before or behind a known one."""
    while op.name != "gpu.func":
        op = op.parent.operation
    bodies = (ops_of(generic.regions[0].blocks[0]) for generic in ops_in(op, "linalg.generic"))
    compared = (o for body in bodies for o in body if o.name == "arith.cmpi")
    return any(constant_value(v) is not None for o in compared for v in o.operands)

"""Emits the ops of a kernel on tiles, one handler each, as what one thread does; used by ``tiles-to-nvvm``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from ...dialects.build import constant_value
from ...dialects.mlir import ir
from ...dialects.tile import Joined, dims_of, layout_of
from ...dialects.tiling.structured import dim_position, indexing_maps
from ..attention import contraction_loops, is_contraction
from ..linear import divisor
from ..passes import PassError
from ..rewriting import defining_op, for_body, make_for, ops_in, ops_of
from . import contraction, exponentials, spread, tables
from .arranging import arrange
from .async_copies import copy_to_shared
from .axes import DYNAMIC
from .elementwise import Elementwise, row_parts, whole_rows
from .fragments import load_fragment
from .memory import GLOBAL, Access, Memory, byte_width, load_registers, store_element
from .overlap_matmuls import ASYNC
from .pieces import copy_piece
from .scalars import emit_scalar
from .scaling import scale
from .skewed import copy_rows, load_skewed, row_shifts
from .storing import store_registers
from .synchronisation import (
    ALL_WARPS,
    ARRANGERS,
    EACH_THREAD,
    Barriers,
    Flags,
    any_of_warp,
    copy_bulk,
    meet,
    pass_turn,
    set_registers,
    settle,
    start_turns,
    take_turn,
)
from .thread import (
    Registers,
    Shared,
    Skewed,
    Thread,
    asm,
    at,
    constant,
    create,
    i32,
    i64,
    pointer,
    register_type,
    rem,
    shuffled,
)
from .values import Value, flat, has_dense_rows, is_zero, like, register_types


class Emitter:
    """Emits at the insertion point. `values`: what each value of the kernel has become."""

    def __init__(self, module: ir.Operation, thread: Thread, hopper: bool, vector_bytes: int):
        self.module, self.thread, self.hopper, self.vector_bytes = module, thread, hopper, vector_bytes
        self.values: dict[ir.Value, Value] = {}

    def ops(self, ops: Sequence[ir.Operation]) -> None:
        for op in ops:
            with op.location:
                self._op(op)

    def _op(self, op: ir.Operation) -> None:
        handler = HANDLERS.get(op.name)
        if handler is not None:
            results = handler(self, op)
        elif any(isinstance(v.type, ir.ShapedType) for v in (*op.operands, *op.results)):
            raise PassError(f"'{op.name}' on tiles is not lowered for GPUs", op)
        else:
            results = emit_scalar(op, [self.scalar(v) for v in op.operands])
        self.values.update(zip(op.results, results, strict=True))

    def scalar(self, value: ir.Value) -> ir.Value:
        found = self.values[value]
        assert isinstance(found, ir.Value), f"{value} is no scalar"
        return found

    def registers(self, value: ir.Value) -> Registers:
        found = self.values[value]
        if not isinstance(found, Registers):
            raise PassError("expects a tile in registers", defining_op(value))
        return found

    def _constant(self, op: ir.Operation) -> list[Value]:
        kind = op.results[0].type
        if not isinstance(kind, ir.RankedTensorType | ir.VectorType):
            return emit_scalar(op, [])
        splat = ir.DenseElementsAttr(op.attributes["value"]).get_splat_value()
        number = ir.FloatAttr(splat).value if isinstance(splat, ir.FloatAttr) else ir.IntegerAttr(splat).value
        value = constant(register_type(kind.element_type), number)
        if isinstance(kind, ir.VectorType):  # a piece of a row all of whose elements folded to one
            return [(value,) * kind.shape[0]]
        if layout_of(kind) == "spread":
            return [spread.constant_tile(value)]
        return [Registers(layout_of(kind) or "", tuple(kind.shape), [value] * Registers.count(kind))]

    def _empty(self, op: ir.Operation) -> list[Value]:
        kind = op.results[0].type
        value = constant(register_type(kind.element_type), 0)
        if layout_of(kind) == "spread":
            return [spread.constant_tile(value)]
        return [Registers(layout_of(kind) or "", tuple(kind.shape), [value] * Registers.count(kind))]

    def _for(self, op: ir.Operation) -> list[Value]:
        inits = [self.values[v] for v in list(op.operands)[3:]]
        scalars = [s for v in inits for s in flat(v)]
        bounds = [self.scalar(v) for v in list(op.operands)[:3]]
        if any(inner.name == "tile.wait_matmuls" for inner in ops_of(for_body(op))) and not _goes_round(op):
            # LLVM would make straight code of a loop that it sees to have one iteration, and ptxas would then not find
            # registers for two matmuls under way, and serialise them (C7511).
            bounds[2] = asm("mov.b32 $0, $1;", "=r,r", [bounds[2]], [i32()], effects=False)[0]
        loop, block = make_for(bounds, scalars)
        body = for_body(op)
        self.values[body.arguments[0]] = block.arguments[0]
        self.values.update(zip(list(body.arguments)[1:], like(inits, list(block.arguments)[1:]), strict=True))
        with ir.InsertionPoint(block):
            self.ops(ops_of(body)[:-1])
            yielded = [s for v in ops_of(body)[-1].operands for s in flat(self.values[v])]
            ir.Operation.create("scf.yield", [], yielded)
        return like(inits, list(loop.results))

    def _if(self, op: ir.Operation) -> list[Value]:
        kinds = [k for r in op.results for k in register_types(r.type)]
        branch = ir.Operation.create("scf.if", kinds, [self.scalar(op.operands[0])], regions=2)
        models: list[Value] = []
        for old, region in zip(op.regions, branch.regions, strict=True):
            for block in old.blocks:
                with ir.InsertionPoint(region.blocks.append()):
                    self.ops(ops_of(block)[:-1])
                    models = [self.values[v] for v in ops_of(block)[-1].operands]
                    ir.Operation.create("scf.yield", [], [s for v in models for s in flat(v)])
        return like(models, list(branch.results))

    def _get_global(self, op: ir.Operation) -> list[Value]:
        """The address of a constant, which becomes one of the LLVM dialect."""
        kind, symbol = ir.MemRefType(op.results[0].type), ir.FlatSymbolRefAttr(op.attributes["name"])
        for old in ops_in(self.module, "memref.global"):
            if ir.StringAttr(old.attributes["sym_name"]).value == symbol.value:
                array = str(kind.element_type)
                for size in reversed(kind.shape):
                    array = f"!llvm.array<{size} x {array}>"
                with ir.InsertionPoint(old):
                    attributes = {
                        "sym_name": old.attributes["sym_name"],
                        "global_type": ir.TypeAttr.get(ir.Type.parse(array)),
                        "alignment": ir.IntegerAttr.get(i64(), 16),
                        "linkage": ir.Attribute.parse("#llvm.linkage<internal>"),
                        "addr_space": ir.IntegerAttr.get(i32(), GLOBAL),
                        "constant": ir.UnitAttr.get(),
                        "value": old.attributes["initial_value"],
                    }
                    ir.Operation.create("llvm.mlir.global", [], [], attributes, regions=1)
                old.erase()
        pointer_to = create("llvm.mlir.addressof", pointer(GLOBAL), global_name=symbol)
        strides = [math.prod(kind.shape[d + 1 :]) for d in range(kind.rank)]
        sizes = [constant(i32(), s) for s in kind.shape]
        return [Memory(kind, pointer_to, [constant(i64(), s) for s in strides], sizes)]

    def _block_id(self, op: ir.Operation) -> list[Value]:
        return [create("nvvm.read.ptx.sreg.ctaid.x", i32())]

    def _thread_id(self, op: ir.Operation) -> list[Value]:
        return [self.thread.number]

    def _store_element(self, op: ir.Operation) -> list[Value]:
        memory = self.values[op.operands[1]]
        assert isinstance(memory, Memory)
        store_element(memory, self.scalar(op.operands[0]), [self.scalar(v) for v in list(op.operands)[2:]])
        return []

    def _load_piece(self, op: ir.Operation) -> list[Value]:
        memory = self.values[op.operands[0]]
        assert isinstance(memory, Memory)
        places = [self.scalar(v) for v in list(op.operands)[1:]]
        return [tuple(memory.load_piece(places, op.results[0].type.shape[0]))]

    def _store_piece(self, op: ir.Operation) -> list[Value]:
        memory = self.values[op.operands[1]]
        piece = self.values[op.operands[0]]
        assert isinstance(memory, Memory) and isinstance(piece, tuple)
        memory.store_piece(piece, [self.scalar(v) for v in list(op.operands)[2:]])
        return []

    def _extract(self, op: ir.Operation) -> list[Value]:
        (number,) = ir.DenseI64ArrayAttr(op.attributes["static_position"])
        piece = self.values[op.operands[0]]
        assert isinstance(piece, tuple)
        return [piece[number]]

    def _subgroup_reduce(self, op: ir.Operation) -> list[Value]:
        """Of so many neighbouring threads of a warp, all of which get the result."""
        kind = str(op.attributes["op"]).split()[-1].rstrip(">")
        combiner, lanes = REDUCTIONS[kind], ir.IntegerAttr(op.attributes["cluster_size"]).value
        value = self.scalar(op.operands[0])
        for bit in range(lanes.bit_length() - 1):
            value = create(combiner, value.type, value, shuffled(value, "bfly", 1 << bit))
        return [value]

    def _barrier(self, op: ir.Operation) -> list[Value]:
        asm("bar.sync 0;", "", [])
        return []

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

    def _stage(self, buffer: ir.Value, stage: ir.Value) -> Shared:
        base = self.values[buffer]
        assert isinstance(base, Shared), "a buffer is shared memory"
        return base.at(stage)

    def _skewed(self, buffer: ir.Value, stage: ir.Value) -> Skewed:
        base = self.values[buffer]
        assert isinstance(base, Skewed), "a buffer of rows that are not aligned"
        return base.at(stage)

    def _copy(self, op: ir.Operation) -> list[Value]:
        view = op.opview
        stage, *indices = view.indices
        tile = self._stage(view.staged, self.scalar(stage))
        access = self._access(view.memory, indices, dims_of(view), tile.shape)
        aligned, inner = self._dense(view.memory.type, dims_of(view), indices)
        copy_to_shared(access, tile, self.thread, aligned if inner == tile.inner else tile.width)
        return []

    def _scale(self, op: ir.Operation) -> list[Value]:
        tile = self.values[op.operands[0]]
        assert isinstance(tile, Registers | Shared), "what is scaled is a left operand"
        return [scale(tile, str(op.results[0].type.element_type), op.opview.exponent.value, self.thread)]

    def _copy_piece(self, op: ir.Operation) -> list[Value]:
        view = op.opview
        source, target = (self.values[v] for v in (view.memory, view.copy))
        assert isinstance(source, Memory) and isinstance(target, Memory)
        *places, left = (self.scalar(v) for v in view.indices)
        rank = source.kind.rank
        copy_piece(source, target, places[:rank], places[rank:], left, view.aligned.value)
        return []

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

    def _barriers(self, value: ir.Value) -> Barriers:
        found = self.values[value]
        assert isinstance(found, Barriers), "barriers are shared memory"
        return found

    def _flags(self, value: ir.Value) -> Flags:
        found = self.values[value]
        assert isinstance(found, Flags), "flags are shared memory"
        return found

    def _copy_bulk(self, op: ir.Operation) -> list[Value]:
        view = op.opview
        ready, use = self._barriers(view.ready), self.scalar(view.use)
        tile = self._stage(view.staged, rem(use, ready.stages))
        copy_bulk(self.scalar(view.map), tile, ready, use, [self.scalar(v) for v in view.indices], self.thread)
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
        if layout_of(kind) == "spread":
            aligned, inner = self._dense(view.memory.type, dims_of(view), view.indices)
            return [spread.loaded(access, kind.element_type, aligned, inner)]
        return [load_registers(access, kind, self.thread)]

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

    def _store_shared(self, op: ir.Operation) -> list[Value]:
        source = self.values[op.operands[0]]
        assert isinstance(source, spread.Spread), "what is stored to shared memory is spread"
        tile = self._stage(op.operands[1], self.scalar(op.operands[2]))
        spread.store_shared(source, tile, op.operands[0].type.element_type, self.thread)
        if self.hopper:
            asm("fence.proxy.async.shared::cta;", "", [])
        return []

    def _store(self, op: ir.Operation) -> list[Value]:
        view = op.opview
        kind = view.tile.type
        access = self._access(view.memory, view.indices, dims_of(view), kind.shape)
        aligned, _ = self._dense(view.memory.type, dims_of(view), view.indices)
        store_registers(access, self.registers(view.tile), kind, aligned, self.thread)
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
        if is_contraction(op):
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
        if not eight_bits and (element not in contraction.ELEMENTS or other != element):
            known = ", ".join(contraction.ELEMENTS)
            raise PassError(f"the operands of matmuls on tensor cores must be of one type among {known}", op)
        n = kind.shape[1]
        if element == "f32":
            values = contraction.mma_tf32(self.registers(op.operands[0]), b, k_dim, accumulator, n, self.thread)
        elif self.hopper:
            if n > contraction.MOST_COLUMNS:
                most = f"Hopper's tensor cores take at most {contraction.MOST_COLUMNS}"
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
            left = self.registers(op.operands[0])
            values = contraction.mma_sync(left, b, k_dim, accumulator, n, element, self.thread)
        return Registers("fragment", tuple(kind.shape), values)

    def _wait_matmuls(self, op: ir.Operation) -> list[Value]:
        tile = self.registers(op.operands[0])
        if not self.hopper:
            return [tile]
        values = contraction.wait_matmuls(tile.values, op.opview.pending.value)
        return [Registers(tile.layout, tile.shape, contraction.added(tile.start, values) if tile.start else values)]


def _has_known_padding(op: ir.Operation) -> bool:
    """Whether anything in the kernel of `op` asks if an element's place is before or behind a known one."""
    while op.name != "gpu.func":
        op = op.parent.operation
    bodies = (ops_of(generic.regions[0].blocks[0]) for generic in ops_in(op, "linalg.generic"))
    compared = (o for body in bodies for o in body if o.name == "arith.cmpi")
    return any(constant_value(v) is not None for o in compared for v in o.operands)


def _goes_round(loop: ir.Operation) -> bool:
    """Whether a loop is known to have more than one iteration."""
    lower, upper, step = (constant_value(v) for v in list(loop.operands)[:3])
    return None not in (lower, upper, step) and upper - lower > step


# Of gpu.subgroup_reduce, on floats.
REDUCTIONS = {
    "add": "arith.addf",
    "mul": "arith.mulf",
    **{kind: f"arith.{kind}" for kind in ("maximumf", "maxnumf", "minimumf", "minnumf")},
}

HANDLERS = {
    "arith.constant": Emitter._constant,
    "tensor.empty": Emitter._empty,
    "memref.alloc": lambda self, op: [self.values[op.results[0]]],
    "scf.for": Emitter._for,
    "scf.if": Emitter._if,
    "gpu.block_id": Emitter._block_id,
    "gpu.thread_id": Emitter._thread_id,
    "memref.store": Emitter._store_element,
    "vector.load": Emitter._load_piece,
    "vector.store": Emitter._store_piece,
    "vector.extract": Emitter._extract,
    "vector.from_elements": lambda self, op: [tuple(self.scalar(v) for v in op.operands)],
    "gpu.grid_dim": lambda self, op: [create("nvvm.read.ptx.sreg.nctaid.x", i32())],
    "tile.warp": lambda self, op: [self.thread.warp],
    "tile.copy_bulk": Emitter._copy_bulk,
    "tile.copy_rows": Emitter._copy_rows,
    "tile.row_shifts": Emitter._row_shifts,
    "tile.arrange": Emitter._arrange,
    "tile.scale": Emitter._scale,
    "tile.append_ones": Emitter._append_ones,
    "tile.split_sums": Emitter._split_sums,
    "tile.any_of_warp": lambda self, op: [any_of_warp(self.registers(op.operands[0]).values)],
    "tile.raised": lambda self, op: [self._flags(op.operands[0]).raised(self.scalar(op.operands[1]))],
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
            "tile.meet",
            "tile.start_turns",
            "tile.take_turn",
            "tile.pass_turn",
        ),
        Emitter._synchronise,
    ),
    "gpu.barrier": Emitter._barrier,
    "gpu.subgroup_reduce": Emitter._subgroup_reduce,
    "tile.commit_copies": Emitter._commit,
    "tile.wait_copies": Emitter._wait,
    "tile.copy_async": Emitter._copy,
    "tile.copy_piece": Emitter._copy_piece,
    "tile.store_shared": Emitter._store_shared,
    "tile.view": Emitter._view,
    "tile.wait_matmuls": Emitter._wait_matmuls,
    "memref.get_global": Emitter._get_global,
    "memref.load": lambda self, op: emit_scalar(op, [self.values[v] for v in op.operands]),
    "tile.load": Emitter._load,
    "tile.store": Emitter._store,
    "tile.convert_layout": Emitter._convert,
    "linalg.generic": Emitter._generic,
}

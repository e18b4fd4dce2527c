"""Emits the ops of a kernel, one handler each, as what one thread does: numbers, loops, and elements in memory."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from ....dialects.build import constant_value
from ....dialects.mlir import ir
from ....dialects.tile import layout_of
from ...passes import PassError
from ...rewriting import copy_op, defining_op, for_body, make_for, make_while, only_if, ops_in, ops_of
from ...splats import numbers_of
from ..architecture import WARP
from ..launching import CONTROL
from ..marks import BESIDE
from . import spread
from .memory import GLOBAL, SHARED, Memory, store_element
from .scalars import emit_scalar
from .thread import (
    Registers,
    Thread,
    add,
    asm,
    constant,
    create,
    i32,
    i64,
    less,
    mul,
    pointer,
    register_type,
    rem,
    shuffled,
)
from .values import Value, flat, like, register_types


class Emitter:
    """Emits at the insertion point. `values`: what each value of the kernel has become."""

    def __init__(self, module: ir.Operation, thread: Thread, hopper: bool, vector_bytes: int):
        self.module, self.thread, self.hopper, self.vector_bytes = module, thread, hopper, vector_bytes
        self.values: dict[ir.Value, Value] = {}

    def ops(self, ops: Sequence[ir.Operation]) -> None:
        for kind, run in itertools.groupby(ops, lambda op: (op.name, _beside(op)) if op.name in self.in_runs else None):
            if kind is not None:
                self.in_runs[kind[0]](self, list(run))
                continue
            for op in run:
                with op.location:
                    self._op(op)

    def _op(self, op: ir.Operation) -> None:
        handler = self.handlers.get(op.name)
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
        if isinstance(kind, ir.VectorType):  # a piece of a row all of whose elements are known
            return [tuple(constant(register_type(kind.element_type), n) for n in numbers_of(op))]
        splat = ir.DenseElementsAttr(op.attributes["value"]).get_splat_value()
        number = ir.FloatAttr(splat).value if isinstance(splat, ir.FloatAttr) else ir.IntegerAttr(splat).value
        value = constant(register_type(kind.element_type), number)
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
            # registers for two matmuls under way, and serialise them (C7511). It may see what the
            # step is a multiple of: what is made of upper bits of indices alone is computed once then.
            step = int(constant_value(op.operands[2]) or 0)
            power = step & -step or 1
            part = constant(i32(), step // power) if step else bounds[2]
            bounds[2] = mul(asm("mov.b32 $0, $1;", "=r,r", [part], [i32()], effects=False)[0], power)
        loop, block = make_for(bounds, scalars)
        body = for_body(op)
        self.values[body.arguments[0]] = block.arguments[0]
        self.values.update(zip(list(body.arguments)[1:], like(inits, list(block.arguments)[1:]), strict=True))
        with ir.InsertionPoint(block):
            self.ops(ops_of(body)[:-1])
            yielded = [s for v in ops_of(body)[-1].operands for s in flat(self.values[v])]
            ir.Operation.create("scf.yield", [], yielded)
        return like(inits, list(loop.results))

    def _while(self, op: ir.Operation) -> list[Value]:
        """Of numbers alone."""
        kinds = [register_type(r.type) for r in op.results]
        loop, condition, body = make_while([self.scalar(v) for v in op.operands], kinds)
        for old, new, end in zip(op.regions, (condition, body), ("scf.condition", "scf.yield"), strict=True):
            self.values.update(zip(old.blocks[0].arguments, new.arguments, strict=True))
            with ir.InsertionPoint(new):
                *ops, last = ops_of(old.blocks[0])
                self.ops(ops)
                ir.Operation.create(end, [], [self.scalar(v) for v in last.operands])
        return list(loop.results)

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
                array, value = str(kind.element_type), old.attributes["initial_value"]
                if not kind.rank:  # upstream translates elements of arrays alone
                    value = value.get_splat_value()
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
                        "value": value,
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
        """Of so many threads of a warp, neighbours or so far apart, all of which get the result."""
        lanes, apart = (ir.IntegerAttr(op.attributes[f"cluster_{name}"]).value for name in ("size", "stride"))
        return [_put_together(self.scalar(op.operands[0]), _combiner(op), lanes, apart)]

    def _all_reduce(self, ops: Sequence[ir.Operation]) -> None:
        """Of all threads of a block, or of every so many-th one: of each warp, whose results then go through shared
        memory of each op's own. Ops that stand one behind the other wait for each other once."""
        (first, *_), warps, beside = ops, self.thread.threads // WARP, _beside(ops[0])
        with first.location:
            values = [_put_together(self.scalar(op.operands[0]), _combiner(op), WARP // beside, beside) for op in ops]
            starts = [self._shared_array(warps * beside, value.type) for value in values]
            if first.parent.operation.name != "gpu.func":  # in a loop the parts before may not be read yet
                asm("bar.sync 0;", "", [])
            with only_if(less(self.thread.lane, constant(i32(), beside))):
                own = add(mul(self.thread.warp, beside), self.thread.lane)
                for value, start in zip(values, starts, strict=True):
                    ir.Operation.create("llvm.store", [], [value, _element_at(start, own, value.type)])
            asm("bar.sync 0;", "", [])
            count = min(warps * beside, WARP)  # that a warp reads at once
            own = rem(self.thread.lane, count)
            for op, value, start in zip(ops, values, starts, strict=True):
                kind = value.type
                places = [_element_at(start, add(own, n), kind) for n in range(0, warps * beside, count)]
                parts = [create("llvm.load", kind, place) for place in places]
                part = functools.reduce(functools.partial(create, _combiner(op), kind), parts)
                self.values[op.results[0]] = _put_together(part, _combiner(op), count // beside, beside)

    def _shared_array(self, count: int, element: ir.Type) -> ir.Value:
        """The address of so many elements in shared memory."""
        top = self.module.regions[0].blocks[0]
        symbol = f"parts_{sum(o.name == 'llvm.mlir.global' for o in ops_of(top))}"
        attributes = {
            "sym_name": ir.StringAttr.get(symbol),
            "global_type": ir.TypeAttr.get(ir.Type.parse(f"!llvm.array<{count} x {element}>")),
            "linkage": ir.Attribute.parse("#llvm.linkage<internal>"),
            "addr_space": ir.IntegerAttr.get(i32(), SHARED),
        }
        with ir.InsertionPoint.at_block_begin(top):
            ir.Operation.create("llvm.mlir.global", [], [], attributes, regions=1)
        return create("llvm.mlir.addressof", pointer(SHARED), global_name=ir.FlatSymbolRefAttr.get(symbol))

    def _shuffle(self, op: ir.Operation) -> list[Value]:
        """What another thread of the warp has, so far before; and whether there is one."""
        far = constant_value(op.operands[1])
        if "up" not in str(op.attributes["mode"]) or far is None or constant_value(op.operands[2]) != WARP:
            raise PassError("expects a shuffle of a whole warp, upwards, by a constant", op)
        is_first = less(self.thread.lane, constant(i32(), far))
        there = create("arith.xori", is_first.type, is_first, constant(is_first.type, 1))
        return [shuffled(self.scalar(op.operands[0]), "up", far), there]

    def _barrier(self, op: ir.Operation) -> list[Value]:
        asm("bar.sync 0;", "", [])
        return []

    def _control(self, op: ir.Operation) -> list[Value]:
        copy_op(op, {})
        return []

    # What emits ops of the same name that stand one behind the other, all of them together.
    in_runs: ClassVar[dict[str, Callable[[Any, list[ir.Operation]], None]]] = {"gpu.all_reduce": _all_reduce}
    # What emits an op of each name; of others, those on numbers alone are emitted as they are.
    handlers: ClassVar[dict[str, Callable[[Any, ir.Operation], list[Value]]]] = {
        "arith.constant": _constant,
        "tensor.empty": _empty,
        "scf.for": _for,
        "scf.if": _if,
        "scf.while": _while,
        "gpu.block_id": _block_id,
        "gpu.thread_id": _thread_id,
        "memref.store": _store_element,
        "vector.load": _load_piece,
        "vector.store": _store_piece,
        "vector.extract": _extract,
        "gpu.barrier": _barrier,
        CONTROL: _control,
        "gpu.shuffle": _shuffle,
        "gpu.subgroup_reduce": _subgroup_reduce,
        "memref.get_global": _get_global,
        "memref.alloc": lambda self, op: [self.values[op.results[0]]],
        "vector.from_elements": lambda self, op: [tuple(self.scalar(v) for v in op.operands)],
        "vector.broadcast": lambda self, op: [(self.scalar(op.operands[0]),) * op.results[0].type.shape[0]],
        "gpu.grid_dim": lambda self, op: [create("nvvm.read.ptx.sreg.nctaid.x", i32())],
        "tile.warp": lambda self, op: [self.thread.warp],
        "memref.load": lambda self, op: emit_scalar(op, [self.values[v] for v in op.operands]),
    }


def _goes_round(loop: ir.Operation) -> bool:
    """Whether a loop is known to have more than one iteration."""
    lower, upper, step = (constant_value(v) for v in list(loop.operands)[:3])
    return None not in (lower, upper, step) and upper - lower > step


def _combiner(op: ir.Operation) -> str:
    known = INTEGER_REDUCTIONS if isinstance(op.results[0].type, ir.IntegerType) else REDUCTIONS
    return known[str(op.attributes["op"]).split()[-1].rstrip(">")]


def _element_at(start: ir.Value, number: ir.Value, element: ir.Type) -> ir.Value:
    """The address of an element of an array in shared memory."""
    kind, places = ir.TypeAttr.get(element), ir.DenseI32ArrayAttr.get([-(2**31)])
    return create("llvm.getelementptr", pointer(SHARED), start, number, elem_type=kind, rawConstantIndices=places)


def _put_together(value: ir.Value, combiner: str, lanes: int, apart: int) -> ir.Value:
    """What so many threads of a warp have that are so far apart, powers of two, in each of them."""
    for bit in range(lanes.bit_length() - 1):
        value = create(combiner, value.type, value, shuffled(value, "bfly", apart << bit))
    return value


def _beside(op: ir.Operation) -> int:
    return ir.IntegerAttr(op.attributes[BESIDE]).value if BESIDE in op.attributes else 1


# Of reductions over threads.
INTEGER_REDUCTIONS = {"add": "arith.addi", **{kind: f"arith.{kind}" for kind in ("maxsi", "minsi")}}
REDUCTIONS = {
    "add": "arith.addf",
    "mul": "arith.mulf",
    **{kind: f"arith.{kind}" for kind in ("maximumf", "maxnumf", "minimumf", "minnumf")},
}

"""The pass ``host-copies``."""

from __future__ import annotations

from dataclasses import dataclass

from ....dialects import build
from ....dialects.mlir import ir
from ...passes import Pass, PassError
from ...rewriting import ops_in, ops_of
from ..alignment import has_dense_rows
from ..axes import DYNAMIC
from ..launching import relaunch

ENCODE = "mgpuTensorMapEncodeWords"  # of runtime.nvidia_host
ELEMENTS = ("f16", "bf16", "f32", "i1", "i8", "f8E4M3FN", "f8E5M2", "i16", "i32")
MAP_WORDS = 16  # of 8 bytes, in a tensor map


@dataclass(frozen=True)
class HostCopies(Pass):
    """Makes a function around launches work on arrays of the host: they are copied to the GPU, results back::

        %0 = bufferization.to_buffer %arg0 : tensor<?x64xf16> to memref<?x64xf16, strided<[?, 1]>>
        %1 = memref.alloc(%n) : memref<?x64xf16>
        gpu.launch_func @kernels::@attention_0 … args(%0, %1, %n)
        %2 = bufferization.to_tensor %1
      becomes
        %h = bufferization.to_buffer %arg0 : tensor<?x64xf16> to memref<?x64xf16>
        %0 = gpu.alloc(%dim) : memref<?x64xf16>
        gpu.memcpy %0, %h
        %1 = gpu.alloc(%n) : memref<?x64xf16>
        gpu.launch_func @kernels::@attention_0 … args(%p, %size, %stride, %p1, …)
        %r = memref.alloc(%n)
        gpu.memcpy %r, %1
        %2 = bufferization.to_tensor %r
        gpu.dealloc %0 …

    A launch passes what ``tiles-to-nvvm`` made a kernel's parameters: of a memref its pointer, sizes and strides.
    """

    def run(self, op: ir.Operation) -> None:
        for function in [o for o in ops_in(op, "func.func") if ops_in(o, "gpu.launch_func")]:
            owned: list[ir.Value] = []
            maps: dict[ir.Value, ir.Value] = {}
            for inner in ops_of(function.regions[0].blocks[0]):
                with ir.InsertionPoint(inner), inner.location:
                    if inner.name == "bufferization.to_buffer":
                        owned.append(_to_gpu(inner))
                    elif inner.name == "memref.alloc":
                        owned.append(_alloc("gpu.alloc", inner.results[0].type, list(inner.operands)))
                        inner.results[0].replace_all_uses_with(owned[-1])
                        inner.erase()
                    elif inner.name == "bufferization.to_tensor":
                        _to_host(inner)
                    elif inner.name == "tile.tensor_map":
                        maps[inner.results[0]] = _tensor_map(op, inner)
                    elif inner.name == "gpu.launch_func":
                        _launch(inner, maps)
                    elif inner.name == "func.return":
                        for value in owned:
                            ir.Operation.create("gpu.dealloc", [], [value])
            for value in maps:
                value.owner.erase()


def _sizes(value: ir.Value) -> list[ir.Value]:
    """The dynamic sizes of a memref."""
    return [
        ir.Operation.create("memref.dim", [ir.IndexType.get()], [value, build.index(d)]).result
        for d, size in enumerate(value.type.shape)
        if size == DYNAMIC
    ]


def _alloc(name: str, kind: ir.MemRefType, sizes: list[ir.Value]) -> ir.Value:
    counts = [0, len(sizes), 0] if name == "gpu.alloc" else [len(sizes), 0]
    segments = ir.DenseI32ArrayAttr.get(counts)
    return ir.Operation.create(name, [kind], sizes, {"operandSegmentSizes": segments}).results[0]


def _copy(target: ir.Value, source: ir.Value) -> None:
    ir.Operation.create("gpu.memcpy", [], [target, source])


def _to_gpu(op: ir.Operation) -> ir.Value:
    kind = op.results[0].type
    plain = ir.MemRefType.get(kind.shape, kind.element_type)
    host = ir.Operation.create("bufferization.to_buffer", [plain], list(op.operands), {"read_only": ir.UnitAttr.get()})
    owned = _alloc("gpu.alloc", plain, _sizes(host.result))
    _copy(owned, host.result)
    op.results[0].replace_all_uses_with(ir.Operation.create("memref.cast", [kind], [owned]).result)
    op.erase()
    return owned


def _to_host(op: ir.Operation) -> None:
    source = op.operands[0]
    host = _alloc("memref.alloc", source.type, _sizes(source))
    _copy(host, source)
    op.operands[0] = host


def _tensor_map(module: ir.Operation, op: ir.Operation) -> ir.Value:
    """A tensor map as the bytes that a kernel takes: the runtime makes it of address, type, sizes, strides, box."""
    integer, pointer = ir.IntegerType.get_signless(64), ir.Type.parse("!llvm.ptr")
    if not any(o.name == "llvm.func" and o.attributes["sym_name"] == ir.StringAttr.get(ENCODE) for o in _top(module)):
        with ir.InsertionPoint.at_block_begin(module.regions[0].blocks[0]):
            ir.InsertionPoint.current.insert(ir.Operation.parse(f"llvm.func @{ENCODE}(!llvm.ptr, !llvm.ptr)"))
    memory, *sizes = op.operands
    address, *rest = _words(memory)
    count = memory.type.rank
    strides = [*rest[len(rest) - (count - 1) :], build.constant(integer, 1)]
    words = [
        ir.Operation.create("llvm.ptrtoint", [integer], [address]).result,
        build.constant(integer, ELEMENTS.index(str(memory.type.element_type))),
        build.constant(integer, count),
        *(_cast(s, 64) for s in sizes),
        *strides,
        *(build.constant(integer, ir.IntegerAttr(b).value) for b in op.attributes["box"]),
    ]
    described = _room(len(words), pointer)
    for i, word in enumerate(words):
        place = ir.Operation.create(
            "llvm.getelementptr",
            [pointer],
            [described],
            {"rawConstantIndices": ir.DenseI32ArrayAttr.get([i]), "elem_type": ir.TypeAttr.get(integer)},
        ).result
        ir.Operation.create("llvm.store", [], [word, place])
    made = _room(MAP_WORDS, pointer)
    ir.Operation.create(
        "llvm.call",
        [],
        [made, described],
        {
            "callee": ir.FlatSymbolRefAttr.get(ENCODE),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([2, 0]),
            "op_bundle_sizes": ir.DenseI32ArrayAttr.get([]),
        },
    )
    return ir.Operation.create("llvm.load", [_array(MAP_WORDS)], [made]).result


def _top(module: ir.Operation) -> list[ir.Operation]:
    return ops_of(module.regions[0].blocks[0])


def _array(words: int) -> ir.Type:
    return ir.Type.parse(f"!llvm.array<{words} x i64>")


def _room(words: int, pointer: ir.Type) -> ir.Value:
    one = build.constant(ir.IntegerType.get_signless(64), 1)
    attributes = {
        "elem_type": ir.TypeAttr.get(_array(words)),
        "alignment": build.i64_attribute(64),
    }
    return ir.Operation.create("llvm.alloca", [pointer], [one], attributes).result


def _launch(op: ir.Operation, maps: dict[ir.Value, ir.Value]) -> None:
    """With a kernel's own parameters in place of memrefs and indices."""
    operands = list(op.operands)
    if sum(list(ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]))[:-2]) != 7:  # grid, block, shared memory
        raise PassError("a launch that does not say how much shared memory: run this pass after tiles-to-nvvm", op)
    parameters: list[ir.Value] = []
    for value in operands[7:]:
        if value in maps:
            parameters.append(maps[value])
        elif isinstance(value.type, ir.MemRefType):
            parameters += _words(value)
        else:
            parameters.append(_cast(value, 32) if isinstance(value.type, ir.IndexType) else value)
    relaunch(op, [*operands[:7], *parameters])


def _words(value: ir.Value) -> list[ir.Value]:
    index, kind = ir.IndexType.get(), ir.MemRefType(value.type)
    address = ir.Operation.create("memref.extract_aligned_pointer_as_index", [index], [value]).result
    pointer = ir.Operation.create("llvm.inttoptr", [ir.Type.parse("!llvm.ptr")], [_cast(address, 64)]).result
    base = ir.MemRefType.get([], kind.element_type)
    kinds = [base, *[index] * (1 + 2 * kind.rank)]
    strides = list(ir.Operation.create("memref.extract_strided_metadata", kinds, [value]).results)[2 + kind.rank :]
    count = kind.rank - has_dense_rows(kind)
    return [pointer, *(_cast(s, 32) for s in _sizes(value)), *(_cast(s, 64) for s in strides[:count])]


def _cast(value: ir.Value, width: int) -> ir.Value:
    return ir.Operation.create("arith.index_cast", [ir.IntegerType.get_signless(width)], [value]).result

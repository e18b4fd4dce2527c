"""The pass ``host-copies``."""

from __future__ import annotations

from dataclasses import dataclass

from ...dialects import build
from ...dialects.mlir import ir
from ..passes import Pass
from ..rewriting import ops_in
from .axes import DYNAMIC, ops_of
from .values import has_dense_rows


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
            owned = []
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
                    elif inner.name == "gpu.launch_func":
                        _launch(inner)
                    elif inner.name == "func.return":
                        for value in owned:
                            ir.Operation.create("gpu.dealloc", [], [value])


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


def _launch(op: ir.Operation) -> None:
    """With a kernel's own parameters in place of memrefs and indices."""
    operands = list(op.operands)
    parameters: list[ir.Value] = []
    for value in operands[7:]:
        if isinstance(value.type, ir.MemRefType):
            parameters += _words(value)
        else:
            parameters.append(_cast(value, 32) if isinstance(value.type, ir.IndexType) else value)
    segments = list(ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]))
    segments[-2] = len(parameters)
    attributes = {"kernel": op.attributes["kernel"], "operandSegmentSizes": ir.DenseI32ArrayAttr.get(segments)}
    ir.Operation.create("gpu.launch_func", [], [*operands[:7], *parameters], attributes)
    op.erase()


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

"""The pass ``lower-pair-views``."""

from dataclasses import dataclass

from ....dialects import build, llvm_ops
from ....dialects.mlir import arith, ir, memref
from ...passes import Pass
from ...rewriting import ops_in

DYNAMIC_STRIDE = ir.ShapedType.get_dynamic_stride_or_offset()


@dataclass(frozen=True)
class LowerPairViews(Pass):
    """Makes descriptors of the memory that is seen word by word::

        %w = pair.view %m : (memref<?x64xbf16, strided<[?, 1], offset: ?>>) -> (memref<?x32xi32, strided<[?, 1]>>)
    becomes
        %base, %offset, %sizes:2, %strides:2 = memref.extract_strided_metadata %m
        %pointer = llvm.inttoptr …                      # the aligned pointer of %m and 2·%offset
        %d = llvm.insertvalue …                         # of sizes and strides: %strides#0 / 2
        %w = builtin.unrealized_conversion_cast %d : !llvm.struct<…> to memref<?x32xi32, strided<[?, 1]>>

    No op of memref's changes the width of elements.
    """

    def run(self, op: ir.Operation) -> None:
        for view in ops_in(op, "pair.view"):
            with ir.InsertionPoint(view), view.location:
                words = _words(view.operands[0], view.results[0].type)
            view.results[0].replace_all_uses_with(words)
            view.erase()


def _words(source: ir.Value, kind: ir.MemRefType) -> ir.Value:
    rank = kind.rank
    i64 = ir.IntegerType.get_signless(64)
    pointer_type = ir.Type.parse("!llvm.ptr")
    descriptor_type = ir.Type.parse(f"!llvm.struct<(ptr, ptr, i64, array<{rank} x i64>, array<{rank} x i64>)>")

    def number(value: ir.Value | int) -> ir.Value:
        return build.constant(i64, value) if isinstance(value, int) else arith.index_cast(i64, value)

    meta = memref.ExtractStridedMetadataOp(source)
    offset, sizes, strides = meta.results[1], list(meta.results)[2 : 2 + rank], list(meta.results)[2 + rank :]
    start = memref.extract_aligned_pointer_as_index(source)
    width = source.type.element_type.width // 8
    address = number(arith.addi(start, arith.muli(offset, build.index(width))))
    pointer = llvm_ops.inttoptr(pointer_type, address)
    static, _ = kind.get_strides_and_offset()
    descriptor = llvm_ops.undef(descriptor_type)

    def insert(value: ir.Value, *at: int) -> None:
        nonlocal descriptor
        descriptor = llvm_ops.insertvalue(descriptor, value, at)

    insert(pointer, 0)
    insert(pointer, 1)
    insert(number(0), 2)
    for d in range(rank):
        insert(number(sizes[d] if kind.is_dynamic_dim(d) else kind.get_dim_size(d)), 3, d)
        halved = static[d] if static[d] != DYNAMIC_STRIDE else arith.divui(strides[d], build.index(2))
        insert(number(halved), 4, d)
    return ir.Operation.create("builtin.unrealized_conversion_cast", results=[kind], operands=[descriptor]).result

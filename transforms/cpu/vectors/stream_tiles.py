"""The pass ``stream-tiles``, and what marks the loads that it is for."""

from dataclasses import dataclass

from ....dialects import build, llvm_ops
from ....dialects.mlir import arith, ir, memref
from ...passes import Pass
from ...rewriting import ops_in
from ..matrix_unit import DEPTH, ROWS

STREAMED = "streamed"  # on a load of a tile: it is read once, and what is in the L1 cache is worth more
LOAD = "llvm.x86.tileloaddt164.internal"


@dataclass(frozen=True)
class StreamTiles(Pass):
    """Loads tiles that are read once by the instruction that leaves the L1 cache to others (TILELOADDT1)::

        %b = x86.amx.tile_load %panel[%n, %k], %stride {streamed} : memref<…> into !x86.amx.tile<16x32xbf16>
    becomes
        %pointer = llvm.inttoptr …                      # to the element at %n, %k
        %t = llvm.call_intrinsic "llvm.x86.tileloaddt164.internal"(16, 64, %pointer, 2·%stride)
        %b = builtin.unrealized_conversion_cast %t : !llvm.x86_amx to !x86.amx.tile<16x32xbf16>

    `matrix-contractions` marks them. Keys and values go by once per block of queries, from the L2 cache, and would push
    scores and probabilities out of L1, if these fit into it. MLIR has no op for the instruction.
    """

    def run(self, op: ir.Operation) -> None:
        for load in ops_in(op, "x86.amx.tile_load"):
            if STREAMED in load.attributes:
                with ir.InsertionPoint(load), load.location:
                    tile = _streamed(load)
                load.results[0].replace_all_uses_with(tile)
                load.erase()


def _streamed(load: ir.Operation) -> ir.Value:
    source, *subscripts, row = load.operands
    i16, i64 = (ir.IntegerType.get_signless(width) for width in (16, 64))
    rank, kind = source.type.rank, load.results[0].type
    meta = memref.ExtractStridedMetadataOp(source).results
    place = meta[1]
    for at, stride in zip(subscripts, meta[2 + rank :], strict=True):
        place = arith.addi(place, arith.muli(at, stride))
    width = source.type.element_type.width // 8
    start = memref.extract_aligned_pointer_as_index(source)
    address = arith.addi(start, arith.muli(place, build.index(width)))
    pointer = llvm_ops.inttoptr(ir.Type.parse("!llvm.ptr"), arith.index_cast(i64, address))
    stride = arith.index_cast(i64, arith.muli(row, build.index(width)))
    shape = [build.constant(i16, ROWS), build.constant(i16, DEPTH * width)]  # tiles of panels are whole
    tile = llvm_ops.call_intrinsic(ir.Type.parse("!llvm.x86_amx"), LOAD, [*shape, pointer, stride])
    return ir.Operation.create("builtin.unrealized_conversion_cast", results=[kind], operands=[tile]).result

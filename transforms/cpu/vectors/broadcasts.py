"""Elements that are broadcast: two neighbours by one load, or one by each multiply-add.

**By two.** A register tile of one vector has a load for each multiply-add, whose other factor is an element that is
broadcast from memory, and one for the vector: 17 loads beside 16 multiply-adds, where a core does two of each in a
cycle. Of two elements that stand side by side one load makes a vector in which they alternate; two permutations make
one of each::

    %0 = vector.load %k[%i, %j] : memref<64x64xf32>, vector<2xf32>
    %1 = … broadcast as 64 bits                                      a b a b …
    %2 = llvm.inline_asm "vmovsldup" %1                              a a a a …
    %3 = llvm.inline_asm "vmovshdup" %1                              b b b b …

Every second pair comes so; all other elements are still broadcast by the multiply-adds that use them. Loads of a step
are then 13 for 16. As shuffles of vectors LLVM would make two loads of it again.

**Anew.** A multiply-add can broadcast an element as it loads it, for one vector. In a register tile of several LLVM
broadcasts it beforehand, once, which costs nothing, unless vectors of f16 are converted beside, where those of 64
bytes are computed with by halves (AMD Zen 4): 16 multiply-adds, 4 conversions and 4 broadcasts then take 18.5 cycles,
the same with 16 loads that broadcast 16.4. So elements are loaded for each vector, and fences keep LLVM from loading
them once::

    %v0 = vector.load %v[%k, %n] : memref<32x128xf16>, vector<16xf16>
    %p0 = memref.load %p[%c0, %k] : memref<4x32xf32>
    …                                                                the other rows; a multiply-add of each
    llvm.inline_asm has_side_effects "", "~{memory}"
    %v1 = vector.load %v[%k, %n + 16]
    %p1 = memref.load %p[%c0, %k]
    …
"""

from ....dialects import llvm_ops
from ....dialects.mlir import ir, vector

BYTES, VECTOR_BYTES = 4, 64  # of an element, and of a vector
EVEN, ODD = "vmovsldup", "vmovshdup"  # these lanes and, in the places of the others, copies of them


def alternating(pair: ir.Value, lanes: int) -> tuple[ir.Value, ir.Value]:
    """Vectors of the first and of the second element of a vector of two."""
    f32, f64 = ir.F32Type.get(), ir.F64Type.get()
    both = vector.extract(vector.bitcast(ir.VectorType.get([1], f64), pair), [], [0])
    vectors = vector.broadcast(ir.VectorType.get([lanes // 2], f64), both)
    kind = ir.VectorType.get([lanes], pair.type.element_type)
    copies = (_asm(name, ir.VectorType.get([lanes], f32), vectors) for name in (EVEN, ODD))
    first, second = (x if x.type == kind else vector.bitcast(kind, x) for x in copies)
    return first, second


def _asm(name: str, kind: ir.Type, operand: ir.Value) -> ir.Value:
    return llvm_ops.inline_asm(kind, [operand], f"{name} $1, $0", "=v,v")

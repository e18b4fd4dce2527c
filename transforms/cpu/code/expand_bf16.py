"""The pass ``expand-bf16``."""

from dataclasses import dataclass

from ....dialects import build
from ....dialects.mlir import arith, ir
from ...host import host_features
from ...passes import Pass, option
from ...rewriting import ops_in
from .element_types import has_elements


@dataclass(frozen=True)
class ExpandBf16(Pass):
    """Rounds f32 to bf16 by integer arithmetic, where the CPU has no instruction for it::

        %y = arith.truncf %x : f32 to bf16
    becomes
        %bits = arith.bitcast %x : f32 to i32
        %odd  = (%bits >> 16) & 1
        %near = (%bits + 0x7FFF + %odd) >> 16                  # to the nearest, of two to the even one
        %nan  = (%bits >> 16) | 0x40                           # whose low bits may be all that tells it from ∞
        %y    = arith.bitcast (%x = %x ? %near : %nan) : i16 to bf16

    Code generation would call a function for each element, ``__truncsfbf2``, which the system's libraries may not have.
    For what else it rounds, such as elements that it moves one by one, the module gets that function.
    """

    vector_bytes: int = option("bytes of a vector: 64, 32 or 16; 0 = what the host has", 0)

    def run(self, op: ir.Operation) -> None:
        if "avx512_bf16" in host_features() and self.vector_bytes in (0, 64):
            return
        for old in ops_in(op, "arith.truncf"):
            value, kind = old.operands[0], old.results[0].type
            if build.element_of(kind) == ir.BF16Type.get(op.context) and build.element_of(value.type) == ir.F32Type.get(
                op.context
            ):
                with ir.InsertionPoint(old), old.location:
                    old.results[0].replace_all_uses_with(_rounded(value, kind))
                old.erase()
        if op.name == "builtin.module" and has_elements(op, lambda kind: isinstance(kind, ir.BF16Type)):
            _define(op)


# It returns its 16 bits at the bottom of the register that an f32 is returned in.
_FUNCTION = """
llvm.func @__truncsfbf2(%x: f32) -> f32 {
  %half = llvm.mlir.constant(16 : i32) : i32
  %one = llvm.mlir.constant(1 : i32) : i32
  %below = llvm.mlir.constant(32767 : i32) : i32
  %quiet = llvm.mlir.constant(64 : i32) : i32
  %bits = llvm.bitcast %x : f32 to i32
  %high = llvm.lshr %bits, %half : i32
  %odd = llvm.and %high, %one : i32
  %up = llvm.add %bits, %below : i32
  %sum = llvm.add %up, %odd : i32
  %near = llvm.lshr %sum, %half : i32
  %ordered = llvm.fcmp "ord" %x, %x : f32
  %nan = llvm.or %high, %quiet : i32
  %chosen = llvm.select %ordered, %near, %nan : i1, i32
  %result = llvm.bitcast %chosen : i32 to f32
  llvm.return %result : f32
}"""


def _define(module: ir.Operation) -> None:
    parsed = ir.Module.parse(_FUNCTION, module.context)
    module.regions[0].blocks[0].append(parsed.body.operations[0].operation.detach_from_parent())


def _rounded(x: ir.Value, kind: ir.Type) -> ir.Value:
    words = build.like(kind, ir.IntegerType.get_signless(32))

    def number(value: int) -> ir.Value:
        return build.constant(words, value)

    bits, half = arith.bitcast(words, x), number(16)
    high = arith.shrui(bits, half)
    odd = arith.andi(high, number(1))
    near = arith.shrui(arith.addi(arith.addi(bits, number(0x7FFF)), odd), half)
    ordered = arith.cmpf(arith.CmpFPredicate.ORD, x, x)
    chosen = arith.select(ordered, near, arith.ori(high, number(0x40)))
    return arith.bitcast(kind, arith.trunci(build.like(kind, ir.IntegerType.get_signless(16)), chosen))

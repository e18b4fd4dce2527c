"""The dialect ``pair``: two numbers of bf16 side by side in 32 bits, which CPUs multiply and add in one instruction.

A word holds neighbours along the sum of a contraction, the first one in its lower half. As words, factors are read,
broadcast and transposed like any other elements.
"""

from ..mlir import ext, ir
from ..verification import expect


class Pair(ext.Dialect, name="pair"):
    """What a CPU does with pairs of bf16 in words of i32."""


def expect_word(name: str, kind: ir.Type) -> None:
    expect(kind == ir.IntegerType.get_signless(32), f"expects {name} to be i32, two numbers of bf16, but found {kind}")


def expect_half(name: str, kind: ir.Type) -> None:
    is_half = kind == ir.IntegerType.get_signless(16)
    expect(is_half, f"expects {name} to be i16, two floats of 8 bits, but found {kind}")


def expect_f32(name: str, kind: ir.Type) -> None:
    expect(isinstance(kind, ir.F32Type), f"expects {name} to be f32, but found {kind}")

"""The floats of 8 bits: sign, exponent, mantissa, and which codes are no numbers.

Each of them is exactly a number of bf16, too.
"""

from __future__ import annotations

from dataclasses import dataclass

from .mlir import ir


@dataclass(frozen=True)
class Float8:
    """A format; `numpy` is what ml_dtypes calls it.

    Without `has_infinities` (the FN of its name) only one code of each sign, or with `has_one_zero` (UZ) one of all,
    the one that would be −0, is NaN; what is too large becomes NaN.
    """

    numpy: str
    mantissa: int
    bias: int
    has_infinities: bool = False
    has_one_zero: bool = False

    @property
    def infinity(self) -> int:
        """The code of ∞, or the first above the largest number."""
        return 0x7F & -1 << self.mantissa if self.has_infinities else 0x80 if self.has_one_zero else 0x7F

    @property
    def nan(self) -> int:
        """The code of a NaN."""
        return self.infinity | 1 << self.mantissa - 1 if self.has_infinities else self.infinity

    @property
    def least_normal(self) -> float:
        return 2.0 ** (1 - self.bias)

    @property
    def largest(self) -> float:
        """The largest finite number."""
        return self.number(self.infinity - 1)

    def number(self, code: int) -> float:
        """What a code of a finite number without its sign stands for."""
        exponent, fraction = divmod(code, 1 << self.mantissa)
        unit = 2.0 ** (max(exponent, 1) - self.bias - self.mantissa)
        return unit * (fraction + (1 << self.mantissa if exponent else 0))


FORMATS = {
    "f8E4M3FN": Float8("float8_e4m3fn", 3, 7),
    "f8E5M2": Float8("float8_e5m2", 2, 15, has_infinities=True),
    "f8E4M3FNUZ": Float8("float8_e4m3fnuz", 3, 8, has_one_zero=True),
    "f8E5M2FNUZ": Float8("float8_e5m2fnuz", 2, 16, has_one_zero=True),
    "f8E4M3B11FNUZ": Float8("float8_e4m3b11fnuz", 3, 11, has_one_zero=True),
    "f8E4M3": Float8("float8_e4m3", 3, 7, has_infinities=True),
    "f8E3M4": Float8("float8_e3m4", 4, 3, has_infinities=True),
}


def float8(kind: ir.Type) -> Float8 | None:
    """The format of a type; None if it is another type than these."""
    return FORMATS.get(str(kind)) if isinstance(kind, ir.FloatType) and kind.width == 8 else None

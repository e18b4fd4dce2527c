"""LLVM IR as the bindings write it, as llvmlite reads it: its LLVM has a release of its own.

Some releases do not read the newest way to write floating-point constants, which are rewritten to their bits.
"""

from __future__ import annotations

import functools
import re
import struct

import numpy as np

_SCALARS = {"half": np.float16, "float": np.float32, "double": np.float64}
_SPECIAL = {"+inf": "inf", "-inf": "-inf", "inf": "inf", "+qnan": "nan", "-qnan": "nan", "qnan": "nan"}
_LITERAL = re.compile(
    r"\b(half|bfloat|float|double) "
    r"([+-]?(?:inf|qnan)\b|[+-]?nan\(0x[0-9A-Fa-f]+\)|f0x[0-9A-Fa-f]+|[-+]?\d+\.\d*(?:e[-+]?\d+)?)"
)
_MAYBE = re.compile(r"\.\d|f0x|inf\b|nan\b")  # on a line with such a constant; most lines have none
# A constant in a place without its type: operands after the first one, and a phi's values.
_TYPED_LINE = re.compile(r"\b(half|bfloat|float|double)\b")
_UNTYPED = re.compile(r"(?<=[\s,\[(<])([+-]?(?:inf|qnan)\b|f0x[0-9A-Fa-f]+|[+-]?\d+\.\d+(?:e[-+]?\d+)?)(?=[\s,\])>]|$)")


def _bfloat() -> type:
    import ml_dtypes  # which a kernel that was compiled before does without

    return ml_dtypes.bfloat16


@functools.cache
def _bits(kind: str, literal: str) -> str:
    """A literal as the bits that LLVM of every release reads: 0x of the double, 0xH of half, 0xR of bfloat."""
    dtype = np.dtype(_SCALARS[kind] if kind in _SCALARS else _bfloat())
    if literal.startswith("f0x"):
        number = np.array(int(literal[3:], 16), dtype=f"u{dtype.itemsize}").view(dtype)
    else:
        text = "nan" if "nan(" in literal else _SPECIAL.get(literal, literal)
        number = np.array(float(text), dtype=np.float64).astype(dtype)
    if kind == "half":
        return f"0xH{int(number.view(np.uint16)):04X}"
    if kind == "bfloat":
        return f"0xR{int(number.view(np.uint16)):04X}"
    return f"0x{struct.unpack('<Q', struct.pack('<d', float(number)))[0]:016X}"


def _of_kind(kind: str, found: re.Match[str]) -> str:
    return _bits(kind, found[1])


def readable_literals(text: str) -> str:
    """LLVM IR with every floating-point constant as its bits."""
    lines = []
    for line in text.split("\n"):
        found = _TYPED_LINE.search(line) if _MAYBE.search(line) else None
        if found and not line.lstrip().startswith((";", "!", "declare")):
            # What stands in quotes is no IR: the text and the constraints of assembly.
            parts = line.split('"')
            for i in range(0, len(parts), 2):
                parts[i] = _LITERAL.sub(lambda m: f"{m[1]} {_bits(m[1], m[2])}", parts[i])
                parts[i] = _UNTYPED.sub(functools.partial(_of_kind, found[1]), parts[i])
            line = '"'.join(parts)
        lines.append(line)
    return "\n".join(lines)

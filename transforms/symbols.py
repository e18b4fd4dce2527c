"""Names that functions have in what is compiled: every linker, assembler and LLVM itself takes them as they are."""

import re
import zlib

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# What lowered code calls by name, of the C library and of MLIR's.
TAKEN = re.compile(
    "(a?(cos|sin|tan)h?|atan2|cbrt|ceil|copysign|erfc?|exp2?|expm1|fabs|floor|fma|fmod|log(10|1p|2)?|pow|round(even)?"
    "|rsqrt|sqrt|trunc)f?|aligned_alloc|free|malloc|mem(cpy|move|set|refCopy)"
)


def symbol_of(name: str) -> str:
    """The name of a function `name` in what is compiled: its own, or one that is made of it."""
    if IDENTIFIER.fullmatch(name) and not TAKEN.fullmatch(name):
        return name
    readable = re.sub("[^A-Za-z0-9_]", "_", name)
    return f"{'' if readable[:1].isalpha() else 'f_'}{readable}_{zlib.crc32(name.encode()):08x}"

"""The combiners of reductions that kernels know."""

from ...dialects.mlir import ir

MAXIMA = ("arith.maxnumf", "arith.maximumf")

# Those that a reduction may end in, with the constant that they leave alone.
NEUTRAL = {
    "arith.maxnumf": float("-inf"),
    "arith.maximumf": float("-inf"),
    "arith.minnumf": float("inf"),
    "arith.minimumf": float("inf"),
    "arith.addf": 0.0,
    "arith.mulf": 1.0,
}

# Of integers of 32 and 64 bits, which several threads can put together, too.
INTEGERS = ("arith.addi", "arith.maxsi", "arith.minsi")


def neutral(combiner: str, kind: ir.Type) -> float:
    """The number that a combiner leaves alone, of floats or of such integers."""
    if combiner not in INTEGERS:
        return NEUTRAL[combiner]
    greatest = (1 << (ir.IntegerType(kind).width - 1)) - 1
    return {"arith.addi": 0, "arith.maxsi": -greatest - 1, "arith.minsi": greatest}[combiner]

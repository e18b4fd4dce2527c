"""The combiners of reductions that kernels know."""

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

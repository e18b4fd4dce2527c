"""The combiners of reductions that kernels know, and what threads put together by them."""

from collections.abc import Sequence

from ...dialects import build
from ...dialects.mlir import ir
from .architecture import WARP
from .marks import BESIDE

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

# What gpu.subgroup_reduce calls the combiners that it has other names for.
KINDS = {"arith.addf": "add", "arith.addi": "add", "arith.mulf": "mul"}

# Of integers of 32 and 64 bits, which several threads can put together, too.
INTEGERS = ("arith.addi", "arith.maxsi", "arith.minsi")


def neutral(combiner: str, kind: ir.Type) -> float:
    """The number that a combiner leaves alone, of floats or of such integers."""
    if combiner not in INTEGERS:
        return NEUTRAL[combiner]
    greatest = (1 << (ir.IntegerType(kind).width - 1)) - 1
    return {"arith.addi": 0, "arith.maxsi": -greatest - 1, "arith.minsi": greatest}[combiner]


def neutrals(combiners: Sequence[ir.Operation]) -> list[ir.Value]:
    """Of each combiner the number that it leaves alone."""
    return [build.constant(c.results[0].type, neutral(c.name, c.results[0].type)) for c in combiners]


def put_together(part: ir.Value, combiner: str, threads: int, beside: int = 1) -> ir.Value:
    """What so many threads have, of a warp or all of a block, in each of them. They stand side by side, or, where
    `beside` of them have results of their own, that far apart."""
    if threads == 1:
        return part
    kind = KINDS.get(combiner, combiner.removeprefix("arith."))
    attributes: dict[str, ir.Attribute] = {"op": ir.Attribute.parse(f"#gpu<all_reduce_op {kind}>")}
    if threads * beside > WARP:
        attributes["uniform"] = ir.UnitAttr.get()
        if beside > 1:
            attributes[BESIDE] = build.i64_attribute(beside)
        return ir.Operation.create("gpu.all_reduce", [part.type], [part], attributes, regions=1).result
    i32 = ir.IntegerType.get_signless(32)
    attributes |= {"cluster_size": ir.IntegerAttr.get(i32, threads), "cluster_stride": ir.IntegerAttr.get(i32, beside)}
    return ir.Operation.create("gpu.subgroup_reduce", [part.type], [part], attributes).result

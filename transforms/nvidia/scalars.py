"""Scalar ops of a kernel, as ops on what a register holds: one emitter per op that is not itself.

``math.exp`` is ex2(x·log2 e): the GPU has an instruction for 2^x, and for tanh; their relative errors are 2^-22 and
2^-11 (PTX ISA, ex2.approx and tanh.approx). The latter is for kernels whose matmuls take 16-bit operands.

Products may become one with a sum (fma), and with other products by constants; what is divided by a constant is
multiplied by its reciprocal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ...dialects.build import constant_value
from ...dialects.mlir import ir
from ..passes import PassError
from .thread import NARROW, asm, constant, create, f32, register_type

KEPT = ("arith.", "math.absf", "math.fma", "math.floor", "math.ceil", "math.copysign", "math.sqrt")
FREEDOM = {"arith.mulf": "contract,reassoc", "arith.addf": "contract", "arith.subf": "contract"}
WIDTH_CHANGES = ("arith.extf", "arith.truncf", "arith.index_cast", "arith.index_castui")


def approx(instruction: str) -> Callable[[ir.Value], ir.Value]:
    def emit(x: ir.Value) -> ir.Value:
        return asm(f"{instruction} $0, $1;", "=f,f", [x], [f32()], effects=False)[0]

    return emit


exp2, log2, fast_tanh, rsqrt = (
    approx(f"{name}.f32") for name in ("ex2.approx.ftz", "lg2.approx", "tanh.approx", "rsqrt.approx")
)


def times(x: ir.Value, factor: float) -> ir.Value:
    free = ir.Attribute.parse(f"#arith.fastmath<{FREEDOM['arith.mulf']}>")
    return create("arith.mulf", f32(), x, constant(f32(), factor), fastmath=free)


def divide(a: ir.Value, b: ir.Value) -> ir.Value:
    """a / b within 2 ulp."""
    return asm("div.full.f32 $0, $1, $2;", "=f,f,f", [a, b], [f32()], effects=False)[0]


def tanh(op: ir.Operation, x: ir.Value) -> ir.Value:
    """One instruction where `op` may be approximated (2^-11, relative), else 1 − 2/(1 + e^2x) (2^-22, absolute)."""
    if "fastmath" in op.attributes and "afn" in str(op.attributes["fastmath"]):
        return fast_tanh(x)
    one = constant(f32(), 1.0)
    power = exp2(times(x, 2 * math.log2(math.e)))
    return create("arith.subf", f32(), one, divide(constant(f32(), 2.0), create("arith.addf", f32(), one, power)))


EMITTERS: dict[str, Callable[..., ir.Value]] = {
    "math.exp": lambda x: exp2(times(x, math.log2(math.e))),
    "math.exp2": exp2,
    "math.log": lambda x: times(log2(x), math.log(2)),
    "math.log2": log2,
    "math.rsqrt": rsqrt,
    "arith.divf": divide,
}


def emit_scalar(op: ir.Operation, operands: Sequence[Any]) -> list[ir.Value]:
    """The results of a scalar op on registers; a memref is a `memory.Memory`."""
    for value in (*op.operands, *op.results):
        if isinstance(value.type, ir.FloatType) and not isinstance(value.type, (*NARROW, ir.F32Type)):
            raise PassError(f"{value.type} is not computed with on GPUs: use f32, f16 or bf16", op)
    if op.name == "memref.load":
        memory, *indices = operands
        return [memory.load(indices)]
    if op.name in WIDTH_CHANGES:
        return [_resized(operands[0], register_type(op.results[0].type), signed="ui" not in op.name)]
    if op.name == "arith.constant":
        return [_constant(op)]
    if op.name == "math.tanh":
        return [tanh(op, *operands)]
    divisor = constant_value(op.operands[1]) if op.name == "arith.divf" else None
    if divisor and math.isfinite(divisor):
        return [times(operands[0], 1 / divisor)]
    if op.name in EMITTERS:
        return [EMITTERS[op.name](*operands)]
    if not op.name.startswith(KEPT) or len(op.regions):
        raise PassError(f"'{op.name}' on elements is not lowered for GPUs", op)
    attributes = {name: op.attributes[name] for name in op.attributes}
    if op.name in FREEDOM:
        attributes["fastmath"] = ir.Attribute.parse(f"#arith.fastmath<{FREEDOM[op.name]}>")
    kinds = [register_type(r.type) for r in op.results]
    return list(ir.Operation.create(op.name, kinds, list(operands), attributes).results)


def _resized(value: ir.Value, kind: ir.Type, signed: bool) -> ir.Value:
    if value.type == kind:
        return value
    wider = ir.IntegerType(kind).width > ir.IntegerType(value.type).width
    return create(f"arith.{('extsi' if signed else 'extui') if wider else 'trunci'}", kind, value)


def _constant(op: ir.Operation) -> ir.Value:
    kind, attribute = register_type(op.results[0].type), op.attributes["value"]
    if isinstance(attribute, ir.FloatAttr):
        return constant(kind, ir.FloatAttr(attribute).value)
    return constant(kind, ir.IntegerAttr(attribute).value)

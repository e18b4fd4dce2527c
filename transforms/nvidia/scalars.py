"""Scalar ops of a kernel, as ops on what a register holds: one emitter per op that is not itself.

Products may become one with a sum (fma), and with other products by constants; what is divided by a constant is
multiplied by its reciprocal. f64 has arithmetic, comparisons, roots, and the functions of `polynomials`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ...dialects.build import constant_value
from ...dialects.mlir import ir
from .. import polynomials
from ..passes import PassError
from . import functions
from .functions import PRODUCTS, times
from .memory import IS_THERE
from .thread import NARROW, constant, create, register_type

# What LLVM has instructions for, or makes of them.
KEPT = (
    *("arith.", "math.absf", "math.absi", "math.fma", "math.copysign", "math.sqrt"),
    *("math.floor", "math.ceil", "math.trunc", "math.round", "math.ctlz", "math.cttz", "math.ctpop"),
)
FREEDOM = {"arith.mulf": PRODUCTS, "arith.addf": "contract", "arith.subf": "contract"}
WIDTH_CHANGES = ("arith.extf", "arith.truncf", "arith.convertf", "arith.index_cast", "arith.index_castui")
ROUNDED_QUOTIENTS = ("arith.floordivsi", "arith.ceildivsi", "arith.ceildivui")

EMITTED = (
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
    *("sin", "cos", "tan", "asin", "acos", "atan", "atan2", "erf", "erfc", "rsqrt", "cbrt", "powf", "ipowi"),
    *("isfinite", "isinf", "isnan", "isnormal", "clampf"),
)
EMITTERS: dict[str, Callable[..., ir.Value]] = {
    **{f"math.{name}": getattr(functions, name) for name in EMITTED},
    "arith.divf": functions.divide,
    "arith.remf": functions.remf,
}
# Of f64, besides what is kept.
WIDE = {
    f"math.{name}": getattr(polynomials, name)
    for name in ("exp", "exp2", "expm1", "log", "log2", "log1p", "tanh", "rsqrt")
}


def emit_scalar(op: ir.Operation, operands: Sequence[Any]) -> list[ir.Value]:
    """The results of a scalar op on registers; a memref is a `memory.Memory`."""
    floats = [v.type for v in (*op.operands, *op.results) if isinstance(v.type, ir.FloatType)]
    for kind in floats:
        if not isinstance(kind, (*NARROW, ir.F32Type, ir.F64Type)):
            raise PassError(f"{kind} is not computed with on GPUs: use f32, f16 or bf16", op)
    if op.name == "memref.load":
        memory, *indices = operands
        return [memory.load(indices, IS_THERE in op.attributes)]
    if op.name in WIDTH_CHANGES:
        return [_resized(operands[0], register_type(op.results[0].type), signed="ui" not in op.name)]
    if op.name == "arith.constant":
        return [_constant(op)]
    if op.name == "arith.bitcast":
        return [_bits(operands[0], op.operands[0].type, op.results[0].type)]
    if op.name in ROUNDED_QUOTIENTS:
        return [functions.rounded_quotient(op.name, *operands)]
    if not any(isinstance(kind, ir.F64Type) for kind in floats):
        found = _of_constants(op, operands) or _emitted(op, operands)
        if found:
            return found
    elif op.name in WIDE:
        return [WIDE[op.name](polynomials.Numbers(op.results[0].type), operands[0])]
    if not op.name.startswith(KEPT) or len(op.regions) or op.name == "arith.remf":
        of = "f64" if op.name in EMITTERS else "elements"
        raise PassError(f"'{op.name}' on {of} is not lowered for GPUs", op)
    attributes = {name: op.attributes[name] for name in op.attributes}
    if op.name in FREEDOM:
        attributes["fastmath"] = ir.Attribute.parse(f"#arith.fastmath<{FREEDOM[op.name]}>")
    kinds = [register_type(r.type) for r in op.results]
    return list(ir.Operation.create(op.name, kinds, list(operands), attributes).results)


def _emitted(op: ir.Operation, operands: Sequence[ir.Value]) -> list[ir.Value]:
    if op.name == "math.tanh" and "fastmath" in op.attributes and "afn" in str(op.attributes["fastmath"]):
        return [functions.fast_tanh(*operands)]
    if op.name == "math.sincos":
        return [functions.sin(*operands), functions.cos(*operands)]
    if op.name == "math.fpowi":
        return [functions.powf(operands[0], create("arith.sitofp", operands[0].type, operands[1]))]
    return [EMITTERS[op.name](*operands)] if op.name in EMITTERS else []


def _of_constants(op: ir.Operation, operands: Sequence[ir.Value]) -> list[ir.Value]:
    """Quotients and powers with an operand that is a constant, where they are something simpler; [] for others."""
    known = [constant_value(v) for v in op.operands]
    if op.name == "arith.divf" and known[1] and math.isfinite(known[1]):
        return [times(operands[0], 1 / known[1])]
    if op.name in ("math.powf", "math.fpowi") and known[1] is not None:
        power = functions.power(operands[0], known[1])
        return [] if power is None else [power]
    if op.name == "math.powf" and known[0] is not None and 0 < known[0] < math.inf:
        return [functions.exp2(times(operands[1], math.log2(known[0])))]
    return []


def _resized(value: ir.Value, kind: ir.Type, signed: bool) -> ir.Value:
    if value.type == kind:
        return value
    wider = kind.width > value.type.width
    if isinstance(kind, ir.FloatType):
        return create("arith.extf" if wider else "arith.truncf", kind, value)
    return create(f"arith.{('extsi' if signed else 'extui') if wider else 'trunci'}", kind, value)


def _bits(value: ir.Value, old: ir.Type, new: ir.Type) -> ir.Value:
    """The bits of a scalar as another type; those of narrow floats are not what registers hold."""
    if isinstance(old, NARROW):
        value = create("arith.truncf", old, value)
    value = create("arith.bitcast", new, value)
    return create("arith.extf", register_type(new), value) if isinstance(new, NARROW) else value


def _constant(op: ir.Operation) -> ir.Value:
    kind, attribute = register_type(op.results[0].type), op.attributes["value"]
    if isinstance(attribute, ir.FloatAttr):
        return constant(kind, ir.FloatAttr(attribute).value)
    return constant(kind, ir.IntegerAttr(attribute).value)

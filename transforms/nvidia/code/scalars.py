"""Scalar ops of a kernel, as ops on what a register holds: one emitter per op that is not itself.

Products may become one with a sum (fma), and with other products by constants; what is divided by a constant is
multiplied by its reciprocal. f64 has arithmetic, comparisons, roots, and the functions of `polynomials`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from ....dialects.build import constant_value
from ....dialects.mlir import ir
from ... import polynomials
from ...passes import PassError
from ..bounds import is_normal
from ..elements import NARROW
from ..marks import IS_THERE, ROUNDED
from . import functions
from .conversions import to_memory, to_register
from .functions import PRODUCTS, times
from .thread import constant, create, register_type

Emit: TypeAlias = Callable[[Sequence[Any]], list[ir.Value]]

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
WIDE: dict[str, Callable[..., ir.Value]] = {
    f"math.{name}": getattr(polynomials, name)
    for name in ("exp", "exp2", "expm1", "log", "log2", "log1p", "tanh", "rsqrt")
} | {"arith.remf": functions.remainder}


def emit_scalar(op: ir.Operation, operands: Sequence[Any]) -> list[ir.Value]:
    """The results of a scalar op on registers; a memref is a `memory.Memory`."""
    return scalar_emitter(op)(operands)


def scalar_emitter(op: ir.Operation) -> Emit:
    """What emits the op for its operands in registers: once for each element of a tile that a thread has."""
    emit = _scalar_emitter(op)
    if ROUNDED not in op.attributes:
        return emit
    kind = op.results[0].type
    return lambda operands: [to_register(to_memory(v, kind), kind) for v in emit(operands)]


def _scalar_emitter(op: ir.Operation) -> Emit:
    floats = [v.type for v in (*op.operands, *op.results) if isinstance(v.type, ir.FloatType)]
    for kind in floats:
        if not isinstance(kind, (*NARROW, ir.F32Type, ir.F64Type)):
            raise PassError(f"{kind} is not computed with on GPUs: use f32, f16 or bf16", op)
    name, kinds = op.name, [r.type for r in op.results]
    if name == "memref.load":
        is_there = IS_THERE in op.attributes
        return lambda operands: [operands[0].load(operands[1:], is_there)]
    if name in WIDTH_CHANGES:
        wanted, signed = register_type(kinds[0]), "ui" not in name
        return lambda operands: [_resized(operands[0], wanted, signed)]
    if name == "arith.constant":
        return lambda _: [_constant(op)]
    if name == "arith.bitcast":
        old = op.operands[0].type
        return lambda operands: [_bits(operands[0], old, kinds[0])]
    if name in ROUNDED_QUOTIENTS:
        return lambda operands: [functions.rounded_quotient(name, *operands)]
    if not any(isinstance(kind, ir.F64Type) for kind in floats):
        found = _of_constants(op) or _emitted(op)
        if found is not None:
            return found
    elif name in WIDE:
        return lambda operands: [WIDE[name](polynomials.Numbers(kinds[0]), *operands)]
    if not name.startswith(KEPT) or len(op.regions):
        of = "f64" if name in EMITTERS else "elements"
        raise PassError(f"'{name}' on {of} is not lowered for GPUs", op)
    attributes = {one: op.attributes[one] for one in op.attributes}
    if name in FREEDOM:
        attributes["fastmath"] = ir.Attribute.parse(f"#arith.fastmath<{FREEDOM[name]}>")
    registers = [register_type(kind) for kind in kinds]
    return lambda operands: list(ir.Operation.create(name, registers, list(operands), attributes).results)


def _emitted(op: ir.Operation) -> Emit | None:
    if op.name == "math.tanh" and "fastmath" in op.attributes and "afn" in str(op.attributes["fastmath"]):
        return lambda operands: [functions.fast_tanh(*operands)]
    if op.name == "math.sincos":
        return lambda operands: [functions.sin(*operands), functions.cos(*operands)]
    if op.name == "math.fpowi":
        return lambda operands: [_integer_power(*operands)]
    emitter = EMITTERS.get(op.name)
    return None if emitter is None else lambda operands: [emitter(*operands)]


def _integer_power(x: ir.Value, n: ir.Value) -> ir.Value:
    return functions.powf(x, create("arith.sitofp", x.type, n))


def _of_constants(op: ir.Operation) -> Emit | None:
    """Quotients and powers with an operand that is a constant, where they are something simpler; None for others."""
    if op.name not in ("arith.divf", "math.powf", "math.fpowi"):
        return None
    left, right = (constant_value(v) for v in op.operands)
    if op.name == "arith.divf":
        if right and math.isfinite(right):
            return lambda operands: [times(operands[0], 1 / right)]
        return (lambda operands: [functions.divide_by_normal(*operands)]) if is_normal(op.operands[1]) else None
    if right is not None and functions.is_simple_power(right):
        return lambda operands: [functions.power(operands[0], right)]
    if op.name == "math.powf" and left is not None and 0 < left < math.inf:
        return lambda operands: [functions.exp2(times(operands[1], math.log2(left)))]
    return None


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

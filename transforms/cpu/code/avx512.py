"""exp, exp2 and tanh by instructions of AVX-512, on vectors of 512 bits, in the place of those of `polynomials`.

`vreduce` gives x − ⌊x⌋, `vscalef` p·2^⌊n⌋ with right limits, `vrange` the nearer to zero of two numbers, or the one
that is a number. No argument has to be clamped: half the instructions of the portable form. As there, what is next to
the subnormal numbers becomes 0: to multiply by these takes a hundred times as long.

    exp2(x) = p(x − ⌊x⌋)·2^⌊x⌋
    exp(x)  = p(r)·2^n,  n = round(x·log2(e)), r = x − n·ln2 in two parts, at most 1/2 (where n is infinite, r is NaN)
    tanh(x) = pᵢ(|x| − cᵢ) with the sign of x; f32, see `tanh_tables`
"""

from ....dialects import build, llvm_ops
from ....dialects.mlir import arith, ir, math
from ... import polynomials
from ...polynomials import EXP, LEAST_EXP, LEAST_EXP2, Numbers, ln2_parts
from ..target import host_features
from . import tanh_tables

WIDTH = 512
FEATURES = {"avx512f", "avx512dq"}

# (2ˣ − 1)/x on [0, 1): f32 with the least maximal error of 1 + x·p(x), 8e-8, which is 2.4 units in the last place when
# rounded; f64 interpolated at Chebyshev nodes (3e-17).
_EXP2 = {
    32: (0.6931512951850891, 0.24016444385051727, 0.05579991266131401, 0.009017029777169228, 0.0018671301659196615),
    64: (
        0.6931471805599453,
        0.24022650695909673,
        0.05550410866498067,
        0.009618129105151757,
        0.001333355834393728,
        0.00015403521219107733,
        1.5252998899728418e-05,
        1.3210583477765189e-06,
        1.0236023803275179e-07,
        6.634445866251414e-09,
        6.123092916826388e-10,
    ),
}
# (eˣ − 1)/x on |x| ≤ ln2/2; f32 with the least maximal error (9e-8).
_EXP = {
    32: (0.9999997019767761, 0.4999915063381195, 0.1666763573884964, 0.04189793020486832, 0.008290312252938747),
    64: (1.0, *EXP[64]),
}
# The same for f32 that is rounded right away, to 8 bits of bf16 or fewer (9e-5), to 11 of f16 (3e-6).
_ROUGH_EXP2 = {
    "bf16": (0.6951168179512024, 0.22764495015144348, 0.07706708461046219),
    "f16": (0.6930448412895203, 0.2412802129983902, 0.0522424653172493, 0.013426689431071281),
}
ROUND_DOWN, CURRENT_ROUNDING = 1, 4
SMALLER_MAGNITUDE = 6  # of two; the sign is that of the one that is taken


def has_exponentials(kind: ir.Type) -> bool:
    """True if the host has the instructions for vectors of this type."""
    if not isinstance(kind, ir.VectorType) or kind.rank != 1 or not host_features() >= FEATURES:
        return False
    element = build.compute_type(kind.element_type)
    return isinstance(element, ir.F32Type | ir.F64Type) and kind.shape[0] * element.width == WIDTH


def exp2(n: Numbers, x: ir.Value) -> ir.Value:
    return _exp2(n, x, _EXP2[n.width])


def rough_exp2(n: Numbers, x: ir.Value, kind: ir.Type) -> ir.Value:
    """For f32 that is rounded to the narrow `kind`."""
    return _exp2(n, x, _ROUGH_EXP2["f16" if isinstance(kind, ir.F16Type) else "bf16"])


def _exp2(n: Numbers, x: ir.Value, coefficients: tuple[float, ...]) -> ir.Value:
    """What would be subnormal is 0 before it comes about: Intel's `vscalef` takes 200 cycles for a vector with a
    finite result below the least normal number; LLVM makes the choice its mask."""
    rest = _call(n, "reduce", x, immediate=ROUND_DOWN)
    y = _call(n, "scalef", n.polynomial(rest, (1.0, *coefficients)), x)
    return n.select("OLT", x, n.number(LEAST_EXP2[n.width]), n.number(0.0), y)


def exp(n: Numbers, x: ir.Value) -> ir.Value:
    magic = n.number(1.5 * 2.0**n.mantissa)
    k = arith.subf(math.fma(x, n.number(1.4426950408889634), magic), magic)
    high, low = ln2_parts(n)
    rest = math.fma(k, n.number(-low), math.fma(k, n.number(-high), x))
    rest = _call(n, "range", rest, n.number(0.5), immediate=SMALLER_MAGNITUDE)
    y = _call(n, "scalef", n.polynomial(rest, (1.0, *_EXP[n.width])), k)
    return n.select("OLT", x, n.number(LEAST_EXP[n.width]), n.number(0.0), y)


def tanh(n: Numbers, x: ir.Value) -> ir.Value:
    return tanh_tables.tanh(n, x) if n.width == 32 else polynomials.tanh(n, x)


def _call(n: Numbers, name: str, *operands: ir.Value, immediate: int | None = None) -> ir.Value:
    """The intrinsic: operands, immediate, what masked lanes keep (there are none), mask, rounding."""
    i32, mask = ir.IntegerType.get_signless(32), ir.IntegerType.get_signless(WIDTH // n.width)
    arguments = list(operands)
    if immediate is not None:
        arguments.append(build.constant(i32, immediate))
    arguments += [operands[0], build.constant(mask, -1), build.constant(i32, CURRENT_ROUNDING)]
    suffix = "ps" if n.width == 32 else "pd"
    return llvm_ops.call_intrinsic(n.kind, f"llvm.x86.avx512.mask.{name}.{suffix}.{WIDTH}", arguments)

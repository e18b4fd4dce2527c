"""The pass ``expand-math``."""

import functools
from collections.abc import Callable
from dataclasses import dataclass

from ....dialects import build
from ....dialects.linalg_ext.softmax import NOT_POSITIVE
from ....dialects.mlir import arith, ir, math
from ... import polynomials
from ...passes import Pass, option
from ...polynomials import ROUNDED, Numbers
from ...rewriting import defining_op, ops_in
from ..pairs import is_pack
from . import avx512

EXPANSIONS: dict[str, Callable[[Numbers, ir.Value], ir.Value]] = {
    "math.exp": polynomials.exp,
    "math.exp2": polynomials.exp2,
    "math.expm1": polynomials.expm1,
    "math.log": polynomials.log,
    "math.log2": polynomials.log2,
    "math.log1p": polynomials.log1p,
    "math.tanh": polynomials.tanh,
    "math.rsqrt": polynomials.rsqrt,
    "math.erf": polynomials.erf,
    "math.sin": polynomials.sin,
    "math.cos": polynomials.cos,
}
NOT_OF_F64 = ("math.erf", "math.sin", "math.cos")

WIDE_EXPANSIONS: dict[str, Callable[[Numbers, ir.Value], ir.Value]] = {
    "math.exp": avx512.exp,
    "math.exp2": avx512.exp2,
    "math.tanh": avx512.tanh,
}


@dataclass(frozen=True)
class ExpandMath(Pass):
    """Replaces transcendental functions by polynomials that work on whole vectors::

        %y = math.exp2 %x : vector<16xf32>
    becomes
        %t = math.fma %x, … : vector<16xf32>     # the nearest integer, in the low bits
        …                                        # a polynomial of the rest, times a power of two made of bits

    On f32 and f64 (erf, sin and cos: of f32), scalars and vectors; narrow floats are computed in f32. Error bounds
    stand with each function in `polynomials`; where the host has AVX-512, exp, exp2 and tanh of whole registers are
    those of `avx512`. Whole powers are products. Other functions and types are left to libm, which is called per
    element.
    """

    portable: bool = option("only polynomials, whatever instructions the host has", default=False)

    def run(self, op: ir.Operation) -> None:
        for old in ops_in(op, "math.fpowi", *EXPANSIONS):
            if old.name == "math.fpowi":
                with ir.InsertionPoint(old), old.location:
                    new = _power(old)
                old.results[0].replace_all_uses_with(new)
                old.erase()
                continue
            expansion = EXPANSIONS[old.name]
            kind = old.results[0].type
            element = build.element_of(kind)
            wide = ir.F32Type if old.name in NOT_OF_F64 else ir.F32Type | ir.F64Type
            if polynomials.LIBM in old.attributes or not (build.is_narrow(element) or isinstance(element, wide)):
                continue
            with ir.InsertionPoint(old), old.location:
                numbers = Numbers(kind)
                if old.name == "math.exp2" and NOT_POSITIVE in old.attributes:
                    expansion = polynomials.exp2_of_not_positive
                if not self.portable and old.name in WIDE_EXPANSIONS and avx512.has_exponentials(kind):
                    expansion = WIDE_EXPANSIONS[old.name]
                    rounded = _rounded_to(old)
                    if old.name == "math.exp2" and rounded is not None:
                        expansion = functools.partial(avx512.rough_exp2, kind=rounded)
                new = numbers.narrow(expansion(numbers, numbers.widen(old.operands[0])))
            old.results[0].replace_all_uses_with(new)
            old.erase()


def _power(op: ir.Operation) -> ir.Value:
    """math.fpowi as products where the exponent is known and small, else as math.powf: LLVM's powi takes no vector of
    exponents."""
    x, exponent = op.operands
    numbers, known = Numbers(x.type), defining_op(exponent)
    value = known.attributes["value"] if known is not None and known.name == "arith.constant" else None
    if isinstance(value, ir.DenseElementsAttr) and value.is_splat:
        value = value.get_splat_value()
    if isinstance(value, ir.IntegerAttr) and abs(value.value) <= polynomials.MOST_PRODUCTS:
        return numbers.narrow(polynomials.whole_power(numbers, numbers.widen(x), value.value))
    return math.powf(x, arith.sitofp(x.type, exponent))


def _rounded_to(op: ir.Operation) -> ir.Type | None:
    """The narrow type that a vector of f32 is rounded to, if all else that is done with it is to sum it up."""
    if ROUNDED in op.attributes:
        return op.attributes[ROUNDED].value
    users = [use.owner.operation for use in op.results[0].uses]
    rounding = [user for user in users if user.name == "arith.truncf" or is_pack(user)]
    narrow = {user.results[0].type.element_type for user in rounding}
    only = all(user.name == "arith.addf" or user in rounding for user in users)
    return narrow.pop() if only and len(narrow) == 1 else None

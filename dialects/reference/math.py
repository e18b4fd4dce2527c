"""Mathematical functions, elementwise."""

import math
from typing import Any

import numpy as np

from .arith import elementwise, on_unsigned


def round_half_away(x: Any) -> Any:
    return np.copysign(np.floor(np.abs(x) + 0.5), x)


def power(x: Any, exponent: Any) -> Any:
    return np.power(np.asarray(x, np.float64), np.asarray(exponent, np.float64))


def integer_power(x: Any, exponent: Any) -> Any:
    """Rounded towards zero: a negative power is 0 but for those of 1 and −1."""
    inverse = np.where(np.abs(x) == 1, np.power(x, np.abs(exponent) % 2), np.zeros_like(x))
    return np.where(np.asarray(exponent) < 0, inverse, np.power(x, np.maximum(exponent, 0)))[()]


def by_element(function: Any) -> Any:
    """A function of Python's floats, applied to every element: for what numpy lacks."""
    return np.vectorize(function, otypes=[np.float64])


for _function in (
    *(np.exp, np.exp2, np.expm1, np.log, np.log2, np.log10, np.log1p, np.sqrt, np.cbrt),
    *(np.sin, np.cos, np.tan, np.sinh, np.cosh, np.tanh, np.floor, np.ceil, np.trunc),
    *(np.isnan, np.isinf, np.isfinite, np.copysign),
):
    elementwise(f"math.{_function.__name__}", _function)

for _name, _function in {
    "absf": np.absolute,
    "absi": np.absolute,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erf": by_element(math.erf),
    "erfc": by_element(math.erfc),
    "round": round_half_away,
    "roundeven": np.rint,
    "powf": power,
    "fpowi": power,
    "ipowi": integer_power,
    "fma": lambda a, b, c: a * b + c,
    "clampf": lambda x, low, high: np.minimum(np.maximum(x, low), high),
    "ctpop": on_unsigned(np.bitwise_count),
}.items():
    elementwise(f"math.{_name}", _function)

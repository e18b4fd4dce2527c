"""Scalar functions of kernels for GPUs, without one: the ops that they become, evaluated in f32 with instructions that
approximate as badly as the PTX ISA allows."""

import itertools
import math
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from attn_opt.dialects.assembly import parse_module
from attn_opt.dialects.mlir import ir
from attn_opt.transforms.nvidia.code.conversions import eight_bits, to_register
from attn_opt.transforms.nvidia.code.functions import divide_by_normal, divide_by_products
from attn_opt.transforms.nvidia.code.scalars import emit_scalar
from attn_opt.transforms.passes import PassError
from attn_opt.transforms.rewriting import ops_in
from harness import CONTEXT
from threads import Threads

F32, F64 = np.float32, np.float64


def flushed(x):
    return np.where(abs(x) < 2.0**-126, np.copysign(0, x), x)


def approximations(error: float) -> dict[str, Callable]:
    """Instructions of PTX, in double, with the largest error that they may have, in one direction."""
    return {
        "ex2.approx.ftz.f32": lambda x: flushed(np.exp2(flushed(x).astype(F64)) * (1 + error * 2.0**-22)),
        "lg2.approx.f32": lambda x: (y := np.log2(x.astype(F64))) + error * 2.0**-22 * np.fmin(np.fmax(abs(y), 1), 128),
        "rsqrt.approx.f32": lambda x: 1 / np.sqrt(x.astype(F64)) * (1 + error * 2.0**-22.9),
        "rcp.approx.ftz.f32": lambda x: flushed(1 / flushed(x).astype(F64) * (1 + error * 2.0**-23)),
        "div.full.f32": lambda a, b: a.astype(F64) / b * (1 + error * 2.0**-23),
    }


def evaluated(
    name: str, *arguments: np.ndarray | float, result: str = "", error: float = 0.0, emit: Callable = emit_scalar
) -> np.ndarray:
    """The op `name` of the arguments, as a thread computes it; a number is a constant of the first one's type. `emit`
    emits its results."""
    kinds = [str(a.dtype).replace("float", "f").replace("int", "i") for a in arguments if isinstance(a, np.ndarray)]
    kinds += [kinds[0]] * (len(arguments) - len(kinds))
    parameters, made, used = [], "", []
    for number, (argument, kind) in enumerate(zip(arguments, kinds, strict=True)):
        used.append(f"%x{number}")
        if isinstance(argument, np.ndarray):
            parameters.append(f"%x{number}: {kind}")
        else:
            made += f"%x{number} = arith.constant {argument} : {kind}\n"
    op = f'%r = "{name}"({", ".join(used)}) : ({", ".join(kinds)}) -> {result or kinds[0]}'
    with CONTEXT, np.errstate(all="ignore"):
        text = f"func.func @f({', '.join(parameters)}) {{\n{made}{op}\nreturn\n}}"
        module = parse_module(text, "test.mlir", CONTEXT)
        (op,) = ops_in(module.operation, name)
        threads = Threads(arguments[0].size, instructions=approximations(error))
        given = [a for a in arguments if isinstance(a, np.ndarray)]
        threads.values |= zip(op.block.arguments, given, strict=True)
        with ir.InsertionPoint(op), op.location:
            (found,) = emit(op, list(op.operands))
        threads.run(itertools.takewhile(lambda each: each.operation != op, op.block.operations), threads.all)
        return threads.values[found]


def spread(low: float, high: float) -> np.ndarray:
    """Evenly spaced ones, and ones close to zero; for ranges over many magnitudes evenly spaced exponents."""
    if 0 < low < high / 1e6:
        return np.geomspace(low, high, 40_001).astype(F32)
    near = np.geomspace(1e-12, max(abs(low), abs(high)), 10_001)
    near = np.concatenate([near, -near])
    return np.concatenate([np.linspace(low, high, 40_001), near[(near >= low) & (near <= high)]]).astype(F32)


vectorized = {name: np.vectorize(getattr(math, name), otypes=[F64]) for name in ("erf", "erfc")}

# function: (reference in double, range, absolute error, relative error), of which the larger is allowed
FUNCTIONS = {
    "exp": (np.exp, (-5, 5), 0, 2**-19.5),
    "exp2": (np.exp2, (-100, 100), 0, 2**-21),
    "expm1": (np.expm1, (-20, 80), 0, 2**-20),
    "log": (np.log, (1e-37, 1e38), 2**-21, 2**-21),
    "log2": (np.log2, (1e-37, 1e38), 2**-21, 2**-21),
    "log10": (np.log10, (1e-37, 1e38), 2**-21, 2**-21),
    "log1p": (np.log1p, (-0.999, 1e5), 0, 2**-20),
    "tanh": (np.tanh, (-30, 30), 0, 2**-20),
    "sinh": (np.sinh, (-10, 10), 0, 2**-20),
    "cosh": (np.cosh, (-5, 5), 0, 2**-19.5),
    "asinh": (np.arcsinh, (-1e6, 1e6), 0, 2**-20),
    "acosh": (np.arccosh, (1, 1e6), 0, 2**-20),
    "atanh": (np.arctanh, (-0.9999, 0.9999), 0, 2**-20),
    "sin": (np.sin, (-1e5, 1e5), 2**-22, 0),
    "cos": (np.cos, (-1e5, 1e5), 2**-22, 0),
    "tan": (np.tan, (-1.5, 1.5), 0, 2**-20),
    "atan": (np.arctan, (-100, 100), 2**-21, 2**-20),
    "asin": (np.arcsin, (-1, 1), 2**-20, 0),
    "acos": (np.arccos, (-1, 1), 2**-20, 0),
    "erf": (vectorized["erf"], (-5, 5), 2**-21, 0),
    "erfc": (vectorized["erfc"], (-5, 5), 2**-21, 0),
    "rsqrt": (lambda x: 1 / np.sqrt(x), (1e-37, 1e38), 0, 2**-21),
    "cbrt": (np.cbrt, (-1e3, 1e3), 0, 2**-18),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("error", [-1.0, 0.0, 1.0])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_error_bound(name, error):
    reference, around, absolute, relative = FUNCTIONS[name]
    x = spread(*around)
    expected = reference(x.astype(F64))
    found = evaluated(f"math.{name}", x, error=error).astype(F64)
    off = np.abs(found - expected) / np.maximum(absolute, relative * np.abs(expected) + 1e-45)
    worst = int(np.argmax(off))
    assert off[worst] <= 1, f"{name}({x[worst]}) = {found[worst]}, {off[worst]:.2f} times the bound off"


@pytest.mark.parametrize("error", [-1.0, 0.0, 1.0])
def test_quotients_by_what_is_not_subnormal(error):
    b = np.append(spread(2.0**-126, 2.0**126), F32(np.inf))
    a = np.random.default_rng(0).normal(size=b.shape).astype(F32)
    found = evaluated("arith.divf", a, b, error=error, emit=lambda _, operands: [divide_by_normal(*operands)])
    np.testing.assert_allclose(found.astype(F64), a.astype(F64) / b, rtol=2.0**-22, atol=2.0**-126)


def test_quotients_by_products():
    """Without the special unit: what is NaN stays so, and what is too large to divide by gives almost nothing."""
    b = np.append(spread(2.0**-126, 2.0**125), np.array([2.0**127, np.inf, np.nan], F32))
    a = np.random.default_rng(0).normal(size=b.shape).astype(F32)
    found = evaluated("arith.divf", a, b, emit=lambda _, operands: [divide_by_products(*operands)])
    np.testing.assert_allclose(found.astype(F64), a.astype(F64) / b, rtol=2.0**-18.9, atol=2.0**-122)


@pytest.mark.parametrize("element", ["f8E4M3FN", "f8E5M2"])
def test_floats_of_8_bits(element):
    """Every number that the type has, those half way to the next one and beside these, and others."""
    dtype = np.dtype({"f8E4M3FN": ml_dtypes.float8_e4m3fn, "f8E5M2": ml_dtypes.float8_e5m2}[element])
    numbers = np.sort(np.arange(256, dtype=np.uint8).view(dtype).astype(F32))
    numbers = numbers[np.isfinite(numbers)]
    half = np.append((numbers[1:] + numbers[:-1]) / 2, [464, 480, 61440, 65536]).astype(F32)
    around = [np.nextafter(half, -np.inf), half, np.nextafter(half, np.inf)]
    special = np.array([np.inf, -np.inf, np.nan, 1e-40, 3e38, -0.0], F32)
    x = np.concatenate([numbers, *around, special, np.geomspace(1e-12, 1e6, 10_001).astype(F32)])
    x = np.concatenate([x, -x])

    def emit(op, operands):
        return [eight_bits(*operands, ir.Type.parse(element))]

    found = evaluated("math.absf", x, emit=emit).astype(np.uint8).view(dtype)
    with np.errstate(all="ignore"):
        expected = x.astype(dtype)
    np.testing.assert_array_equal(found.astype(F32), expected.astype(F32))
    np.testing.assert_array_equal(np.signbit(found.astype(F32)), np.signbit(expected.astype(F32)))


@pytest.mark.parametrize("element", ["f8E4M3FN", "f8E5M2"])
def test_every_float_of_8_bits_in_a_register(element):
    codes = np.arange(256, dtype=np.uint8)
    dtype = {"f8E4M3FN": ml_dtypes.float8_e4m3fn, "f8E5M2": ml_dtypes.float8_e5m2}[element]

    def emit(op, operands):
        return [to_register(*operands, ir.Type.parse(element))]

    found = evaluated("math.absi", codes.view(np.int8), emit=emit)
    np.testing.assert_array_equal(found, codes.view(dtype).astype(F32))


def test_bits_and_bounds():
    x = SPECIAL[~np.isnan(SPECIAL)]
    np.testing.assert_array_equal(evaluated("arith.bitcast", x, result="i32"), x.view(np.int32))
    np.testing.assert_array_equal(evaluated("arith.bitcast", x.view(np.int32), result="f32"), x)
    np.testing.assert_array_equal(evaluated("math.clampf", x, -2.0, 2.5), np.clip(x, -2, 2.5))


inf, nan = np.inf, np.nan
LIMITS = {
    "exp": [(0, 1), (-inf, 0), (inf, inf)],
    "exp2": [(0, 1), (-inf, 0), (inf, inf), (3, 8)],
    "expm1": [(0, 0), (-inf, -1), (inf, inf)],
    "log": [(1, 0), (0, -inf), (inf, inf), (-1, nan)],
    "log1p": [(0, 0), (-1, -inf), (inf, inf), (-2, nan)],
    "tanh": [(0, 0), (inf, 1), (-inf, -1), (1e30, 1)],
    "sinh": [(0, 0), (inf, inf), (-inf, -inf), (100, inf)],
    "cosh": [(0, 1), (inf, inf), (-inf, inf)],
    "asinh": [(0, 0), (inf, inf), (-inf, -inf)],
    "acosh": [(1, 0), (inf, inf), (0.5, nan), (-inf, nan)],
    "atanh": [(0, 0), (1, inf), (-1, -inf), (2, nan), (inf, nan)],
    "sin": [(0, 0), (inf, nan)],
    "cos": [(0, 1), (-inf, nan)],
    "atan": [(0, 0), (inf, F32(np.pi / 2)), (-inf, -F32(np.pi / 2))],
    "asin": [(0, 0), (2, nan), (-inf, nan)],
    "acos": [(1, 0), (2, nan), (inf, nan)],
    "erf": [(0, 0), (inf, 1), (-inf, -1), (9, 1)],
    "cbrt": [(0, 0), (inf, inf), (-inf, -inf), (-8, -2)],
    "round": [(0.5, 1), (-2.5, -3), (inf, inf)],
    "roundeven": [(0.5, 0), (-2.5, -2), (1.5, 2)],
}


@pytest.mark.parametrize("name", LIMITS)
def test_limits(name):
    x = np.array([a for a, _ in LIMITS[name]] + [nan], F32)
    expected = np.array([b for _, b in LIMITS[name]] + [nan], F32)
    np.testing.assert_array_equal(evaluated(f"math.{name}", x), expected)


def test_angles_beyond_all_bounds_have_a_sine():
    x = np.array([1e9, -1e20, 3e38], F32)
    for name in ("sin", "cos"):
        assert np.all(np.abs(evaluated(f"math.{name}", x)) <= 1 + 2**-22)


SPECIAL = np.array([0.0, -0.0, 0.3, -0.3, 1, -1, 2, -2, 3, -3, 2.5, 100, -101, 1e30, -1e30, inf, -inf, nan], F32)


@pytest.mark.parametrize("name", ["powf", "atan2"])
def test_special_pairs(name):
    x, y = (v.reshape(-1) for v in np.meshgrid(SPECIAL, SPECIAL))
    with np.errstate(all="ignore"):
        expected = (np.power if name == "powf" else np.arctan2)(x.astype(F64), y).astype(F32)
    found = evaluated(f"math.{name}", x, y)
    np.testing.assert_allclose(found, expected, rtol=3e-4, atol=1e-6)
    both_zero = (found == 0) & (expected == 0)
    np.testing.assert_array_equal(np.signbit(found)[both_zero], np.signbit(expected)[both_zero])


@pytest.mark.parametrize("error", [-1.0, 1.0])
def test_powers(error):
    x, y = (v.reshape(-1) for v in np.meshgrid(np.geomspace(1e-3, 1e3, 300), np.linspace(-8, 8, 301)))
    x, y = x.astype(F32), y.astype(F32)
    expected = np.power(x.astype(F64), y)
    found = evaluated("math.powf", x, y, error=error)
    assert np.all(np.abs(found - expected) <= 2**-20 * (1 + abs(y * np.log2(x.astype(F64)))) * expected)


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0, 3.0, -1.0, -2.0, 7.0, 64.0, 65.0, 0.5, -0.5, 1.7, -2.5, 100.0])
def test_known_powers(exponent):
    x = np.concatenate([SPECIAL[~np.isneginf(SPECIAL)], np.linspace(-2, 2, 1001)]).astype(F32)
    with np.errstate(all="ignore"):
        expected = np.power(x.astype(F64), exponent).astype(F32)
    found = evaluated("math.powf", x, exponent)
    np.testing.assert_allclose(found, expected, rtol=1e-6 * max(abs(exponent), 3), atol=1e-37)


def test_powers_of_a_known_base():
    y = np.linspace(-10, 10, 1001).astype(F32)
    exp2 = evaluated("math.exp2", y)
    np.testing.assert_allclose(exp2, np.exp2(y.astype(F64)), rtol=1e-6)


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, -1, -3, 90])
def test_integer_powers(exponent):
    x = np.concatenate([SPECIAL, np.linspace(-3, 3, 301)]).astype(F32)
    with np.errstate(all="ignore"):
        expected = np.power(x.astype(F64), exponent).astype(F32)
    found = evaluated("math.fpowi", x, np.full(x.shape, exponent, np.int32))
    np.testing.assert_allclose(found, expected, rtol=3e-4, atol=1e-37)


def test_powers_of_integers():
    x, n = (v.reshape(-1).astype(np.int32) for v in np.meshgrid([1, -1, 2, -3, 10, 0], [0, 1, 2, 3, 9]))
    np.testing.assert_array_equal(evaluated("math.ipowi", x, n), x**n)
    x, n = np.array([1, -1, -1, 2, -7], np.int32), np.array([-3, -3, -4, -1, -2], np.int32)
    np.testing.assert_array_equal(evaluated("math.ipowi", x, n), [1, -1, 1, 0, 0])


@pytest.mark.parametrize("op", ["floordivsi", "ceildivsi"])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_rounded_quotients(op, dtype):
    a, b = (v.reshape(-1).astype(dtype) for v in np.meshgrid(np.arange(-20, 21), [-7, -4, -1, 1, 3, 8]))
    expected = np.floor(a / b) if op == "floordivsi" else np.ceil(a / b)
    np.testing.assert_array_equal(evaluated(f"arith.{op}", a, b), expected)


def test_rounded_quotients_without_sign():
    a, b = np.array([0, 1, 7, 8, 9, 2**31 - 1], np.int32), np.full(6, 8, np.int32)
    np.testing.assert_array_equal(evaluated("arith.ceildivui", a, b), -(-a.astype(int) // b))


@pytest.mark.parametrize("error", [-1.0, 0.0, 1.0])
def test_remainders(error):
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(-1000, 1000, 5000), rng.integers(-99, 99, 5000), SPECIAL]).astype(F32)
    y = np.concatenate([rng.uniform(-10, 10, 5000), rng.integers(1, 9, 5000), np.full(SPECIAL.shape, 3.0)]).astype(F32)
    keep = ~(abs(x) == 1e30)
    x, y = np.append(x[keep], [5, -5, inf]).astype(F32), np.append(y[keep], [inf, -inf, inf]).astype(F32)
    with np.errstate(all="ignore"):
        expected = np.fmod(x, y)
    np.testing.assert_array_equal(evaluated("arith.remf", x, y, error=error), expected)


def test_kinds_of_numbers():
    x = np.array([0, 1, -1e-40, 2**-126, inf, -inf, nan], F32)
    for name, expected in {
        "isfinite": np.isfinite(x),
        "isinf": np.isinf(x),
        "isnan": np.isnan(x),
        "isnormal": [False, True, False, True, False, False, False],
    }.items():
        np.testing.assert_array_equal(evaluated(f"math.{name}", x, result="i1"), expected)


def test_f64():
    x = np.linspace(-3, 3, 101)
    np.testing.assert_allclose(evaluated("math.tanh", x), np.tanh(x), rtol=1e-14)
    np.testing.assert_allclose(evaluated("arith.divf", x, 3.0), x / 3, rtol=1e-15)
    y = np.append(np.tile([0.75, -0.625], 50), inf)
    np.testing.assert_array_equal(evaluated("arith.remf", x * 1e9, y), np.fmod(x * 1e9, y))
    with pytest.raises(PassError, match=r"'math.sin' on f64 is not lowered for GPUs"):
        evaluated("math.sin", x)

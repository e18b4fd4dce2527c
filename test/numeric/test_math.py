"""The polynomials against numpy in extended precision: error bounds of `polynomials`, and the limits."""

import math

import numpy as np
import pytest
from attn_opt.transforms.cpu.code.avx512 import FEATURES
from attn_opt.transforms.host import host_features
from harness import kernel

DTYPES = {"f32": np.float32, "f64": np.float64}
SIZE = 40_000

# function: (reference in long double, ranges of arguments in f32, in f64, bound in ulp)
FUNCTIONS = {
    "math.exp": (np.exp, (-86, 88.7), (-707, 709.7), 2),
    "math.exp2": (np.exp2, (-124.9, 127.9), (-1020.9, 1023.9), 3),
    "math.expm1": (np.expm1, (-20, 88.7), (-40, 709.7), 4),
    "math.log": (np.log, (1e-37, 1e38), (1e-307, 1e308), 2),
    "math.log2": (np.log2, (1e-37, 1e38), (1e-307, 1e308), 4),
    "math.log1p": (np.log1p, (-0.999, 1e5), (-0.999, 1e5), 4),
    "math.tanh": (np.tanh, (-12, 12), (-22, 22), 4),
    "math.erf": (np.vectorize(math.erf), (-5, 5), (-7, 7), 3),
    "math.sin": (np.sin, (-60000, 60000), (-60000, 60000), 2),
    "math.cos": (np.cos, (-60000, 60000), (-60000, 60000), 2),
    "math.rsqrt": (lambda x: 1 / np.sqrt(x), (1e-37, 1e38), (1e-307, 1e308), 2),
}
LIMITS = {
    "math.exp": [(0.0, 1.0), (-0.0, 1.0), (-np.inf, 0.0), (np.inf, np.inf), (1e30, np.inf), (-1e30, 0.0)],
    "math.exp2": [(0.0, 1.0), (-0.0, 1.0), (-np.inf, 0.0), (np.inf, np.inf), (1e30, np.inf), (3.0, 8.0), (-1e30, 0)],
    "math.expm1": [(0.0, 0.0), (-np.inf, -1.0), (np.inf, np.inf), (-1e30, -1.0), (1e30, np.inf)],
    "math.log": [(1.0, 0.0), (0.0, -np.inf), (np.inf, np.inf), (-1.0, np.nan), (-np.inf, np.nan)],
    "math.log2": [(1.0, 0.0), (0.0, -np.inf), (np.inf, np.inf), (-1.0, np.nan)],
    "math.log1p": [(0.0, 0.0), (-1.0, -np.inf), (np.inf, np.inf), (-2.0, np.nan)],
    "math.tanh": [(0.0, 0.0), (np.inf, 1.0), (-np.inf, -1.0), (1e30, 1.0)],
    "math.erf": [(0.0, 0.0), (np.inf, 1.0), (-np.inf, -1.0), (1e30, 1.0), (-1e30, -1.0)],
    "math.sin": [(0.0, 0.0), (np.inf, np.nan), (-np.inf, np.nan)],
    "math.cos": [(0.0, 1.0), (-0.0, 1.0), (np.inf, np.nan), (-np.inf, np.nan)],
    "math.rsqrt": [(1.0, 1.0), (np.inf, 0.0), (-1.0, np.nan)],
}


def unary(op: str, kind: str, attributes: str = ""):
    return kernel(f"""
func.func @main(%x: tensor<?x{kind}>, %y: tensor<?x{kind}>) -> tensor<?x{kind}> {{
  %r = linalg.generic {{indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
                        iterator_types = ["parallel"]}}
    ins(%x : tensor<?x{kind}>) outs(%y : tensor<?x{kind}>) {{
    ^bb0(%a: {kind}, %b: {kind}):
      %z = {op} %a {attributes} : {kind}
      linalg.yield %z : {kind}
  }} -> tensor<?x{kind}>
  return %r : tensor<?x{kind}>
}}""")


def arguments(low: float, high: float, dtype) -> np.ndarray:
    """Evenly spaced ones, and ones close to zero; for ranges over many magnitudes evenly spaced exponents."""
    if low > 0:
        return np.geomspace(low, high, SIZE).astype(dtype)
    near = np.geomspace(1e-10, min(abs(low), high), SIZE // 4)
    return np.concatenate([np.linspace(low, high, SIZE), near, -near]).astype(dtype)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("op", list(FUNCTIONS))
def test_error_bound(op, kind):
    reference, in_f32, in_f64, bound = FUNCTIONS[op]
    x = arguments(*(in_f32 if kind == "f32" else in_f64), DTYPES[kind])
    expected = reference(x.astype(np.longdouble))
    found = unary(op, kind)(x, x)
    expected = np.asarray(expected, np.longdouble)
    ulp = np.spacing(np.abs(expected).astype(DTYPES[kind])).astype(np.longdouble)
    error = np.abs(found.astype(np.longdouble) - expected) / ulp
    worst = int(np.argmax(error))
    assert error[worst] <= bound, f"{op}({x[worst]}) = {found[worst]}, {float(error[worst]):.2f} ulp off"


@pytest.mark.sampled(2, 1)
@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("op", list(LIMITS))
def test_limits(op, kind):
    x = np.array([a for a, _ in LIMITS[op]] + [np.nan], DTYPES[kind])
    expected = np.array([b for _, b in LIMITS[op]] + [np.nan], DTYPES[kind])
    np.testing.assert_array_equal(unary(op, kind)(x, x), expected)


@pytest.mark.parametrize("op", ["math.sin", "math.cos"])
def test_angles_of_any_size(op):
    """Next to multiples of π/2, where few digits are left, and beyond what f64 reduces, alone and among others."""
    reference = FUNCTIONS[op][0]
    multiples = (np.arange(-700_000, 700_000, 7) * (np.pi / 2)).astype(np.float32)
    large = np.geomspace(1, 3e38, 999).astype(np.float32)
    mixed = np.where(np.arange(999) % 17 == 0, large, np.float32(0.5))
    for x in (multiples, np.nextafter(multiples, np.float32(0)), large, -large, mixed):
        expected = reference(x.astype(np.longdouble))
        error = np.abs(unary(op, "f32")(x, x).astype(np.longdouble) - expected)
        assert (error / np.spacing(np.abs(expected).astype(np.float32))).max() <= 2


@pytest.mark.skipif(not host_features() >= FEATURES, reason="this machine has no AVX-512")
def test_tanh_from_tables():
    """In each interval, and next to its ends; what is beyond the last one is 1."""
    ends = np.concatenate([np.arange(0, 4, 1 / 16), np.arange(4, 12, 1 / 4)])
    near = (ends[:, None] + np.linspace(-1e-5, 1e-5, 65)).ravel()
    x = np.concatenate([near, -near, np.linspace(-12, 12, 400_000), np.geomspace(1e-35, 1, 50_000)]).astype(np.float32)
    expected = np.tanh(x.astype(np.longdouble))
    found = unary("math.tanh", "f32")(x, x)
    error = np.abs(found.astype(np.longdouble) - expected) / np.spacing(np.abs(expected).astype(np.float32))
    assert error.max() <= 1.5
    assert np.abs(found).max() <= 1
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 10.0, -1e30, 1e-40] * 4, np.float32)
    right = np.array([0.0, -0.0, 1.0, -1.0, np.nan, 1.0, -1.0] * 4, np.float32)
    found = unary("math.tanh", "f32")(special, special).reshape(4, 8)
    np.testing.assert_array_equal(found[:, :7].ravel(), right)
    np.testing.assert_allclose(found[:, 7], 1e-40, rtol=1e-4)
    assert np.signbit(found[0, 1])


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_exp2_of_not_positive(kind):
    """But for rounding: a little more than 0 is allowed."""
    low = FUNCTIONS["math.exp2"][1 if kind == "f32" else 2][0]
    x = np.concatenate([arguments(low, 0.01, DTYPES[kind]), np.linspace(low, 8, 999, dtype=DTYPES[kind])])
    function = unary("math.exp2", kind, "{linalg_ext.not_positive}")
    expected = np.exp2(x.astype(np.longdouble))
    error = np.abs(function(x, x).astype(np.longdouble) - expected) / np.spacing(expected.astype(DTYPES[kind]))
    assert error.max() <= 3
    x = np.array([0.0, -0.0, -np.inf, -1e30, np.nan], DTYPES[kind])
    np.testing.assert_array_equal(function(x, x), np.array([1.0, 1.0, 0.0, 0.0, np.nan], DTYPES[kind]))


@pytest.mark.parametrize(
    ("op", "reference"), [("math.sin", np.sin), ("math.cbrt", np.cbrt), ("math.sqrt", np.sqrt), ("math.erf", None)]
)
@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_others_come_from_libm(op, reference, kind):
    import math

    x = np.linspace(0.1, 3, 37).astype(DTYPES[kind])
    expected = reference(x.astype(float)) if reference else np.array([math.erf(v) for v in x])
    np.testing.assert_allclose(unary(op, kind)(x, x), expected, rtol=1e-6 if kind == "f32" else 1e-14)


@pytest.mark.parametrize("exponent", [0, 1, 3, -1, -2, 65])
@pytest.mark.parametrize("kind", ["f16", "f32", "f64"])
def test_whole_powers(kind, exponent):
    x = np.concatenate([np.linspace(0.9, 1.1, 40), -np.linspace(0.9, 1.1, 40)]).astype(kind.replace("f", "float"))
    function = kernel(f"""
func.func @main(%x: tensor<?x{kind}>, %y: tensor<?x{kind}>) -> tensor<?x{kind}> {{
  %n = arith.constant {exponent} : i64
  %r = linalg.generic {{indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
                        iterator_types = ["parallel"]}}
    ins(%x : tensor<?x{kind}>) outs(%y : tensor<?x{kind}>) {{
    ^bb0(%a: {kind}, %b: {kind}):
      %z = math.fpowi %a, %n : {kind}, i64
      linalg.yield %z : {kind}
  }} -> tensor<?x{kind}>
  return %r : tensor<?x{kind}>
}}""")
    rtol = {"f16": 2e-3, "f32": 5e-6, "f64": 1e-13}[kind]
    np.testing.assert_allclose(function(x, x).astype(float), x.astype(float) ** exponent, rtol=rtol)


@pytest.mark.parametrize("op", ["math.exp", "math.tanh", "math.log", "math.erf"])
def test_half_is_computed_in_f32(op):
    x = np.linspace(0.01, 5, 300).astype(np.float16)
    reference = FUNCTIONS[op][0]
    np.testing.assert_allclose(unary(op, "f16")(x, x).astype(float), reference(x.astype(float)), rtol=1e-3, atol=1e-3)

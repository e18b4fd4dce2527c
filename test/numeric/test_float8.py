"""Floats of 8 bits on the CPU: conversions are those of ml_dtypes, bit by bit, and attention of them is float64's."""

import dataclasses
import functools

import ml_dtypes
import numpy as np
import pytest
from attn_opt.compiler import compile
from attn_opt.compiler.graphs import FLOAT8, Attention
from attn_opt.dialects.float8 import FORMATS
from attn_opt.transforms import host
from harness import fused, kernel, relative_error
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

WIDE = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
PAIRS = [(name, wide) for name in FORMATS for wide in WIDE if wide == "f32" or name == "f8E4M3FN"]
CODES = np.arange(256, dtype=np.uint8)
# By table where the host has the instructions, by shifts.
WAYS = [{}, {"vector_bytes": 32}]


def numpy_type(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, FORMATS[name].numpy))


@functools.cache
def elementwise(source: str, result: str, body: str, vector_bytes: int = 0):
    """A kernel that computes %z from %a, for vectors of any length."""
    return kernel(
        f"""
func.func @main(%x: tensor<?x{source}>, %y: tensor<?x{result}>) -> tensor<?x{result}> {{
  %r = linalg.generic {{indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
                        iterator_types = ["parallel"]}}
    ins(%x : tensor<?x{source}>) outs(%y : tensor<?x{result}>) {{
    ^bb0(%a: {source}, %b: {result}):
      {body}
      linalg.yield %z : {result}
  }} -> tensor<?x{result}>
  return %r : tensor<?x{result}>
}}""",
        vector_bytes=vector_bytes,
    )


def rounded(x: np.ndarray, name: str) -> np.ndarray:
    """`x` in 8 bits; ml_dtypes rounds f64 twice, by way of f32: what that is no tie in is no tie."""
    with np.errstate(all="ignore"):
        if x.dtype == np.float64:
            single = x.astype(np.float32)
            away = np.nextafter(single, np.where(x > single, np.inf, -np.inf).astype(np.float32))
            x = np.where((single == x) | ~np.isfinite(single), single, away)
        return x.astype(numpy_type(name))


def assert_same(found: np.ndarray, expected: np.ndarray, x: np.ndarray) -> None:
    """Equal bits, signs of zeros included; any NaN is as good as another one."""
    assert found.dtype == expected.dtype
    kind = f"u{found.dtype.itemsize}"
    differ = (found.view(kind) != expected.view(kind)) & ~(np.isnan(found) & np.isnan(expected))
    assert not differ.any(), f"{x[differ][:5]}: {found[differ][:5]}, but should be {expected[differ][:5]}"


def interesting(name: str, dtype: np.dtype | type) -> np.ndarray:
    """All numbers of 8 bits, the middles of two, what is next to these; beyond the largest; limits; random bits."""
    values = CODES.view(numpy_type(name)).astype(np.float64)
    values = np.sort(values[np.isfinite(values)])
    most = FORMATS[name].largest
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, most * 1.03, most * 1.06, most * 1.5, most * 4]
    found = np.concatenate([values, (values[1:] + values[:-1]) / 2, special])
    rng = np.random.default_rng(0)
    small = rng.standard_normal(50_000) * np.exp2(rng.integers(-24, 18, 50_000))
    bits = rng.integers(0, 256, 50_000 * np.dtype(dtype).itemsize, dtype=np.uint8).view(dtype)
    with np.errstate(all="ignore"):
        near = [found.astype(np.float32)]
        near += [np.nextafter(near[0], np.float32(end)) for end in (-np.inf, np.inf)]
        return np.concatenate([np.concatenate(near).astype(dtype), small.astype(dtype), bits])


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize(("name", "wide"), PAIRS)
def test_extension(name, wide, way):
    x = CODES.view(numpy_type(name))
    run = elementwise(name, wide, f"%z = arith.extf %a : {name} to {wide}", **way)
    for count in (256, 131, 3):
        expected = x[:count].astype(WIDE[wide])
        assert_same(run(x[:count], expected), expected, x[:count])


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize(("name", "wide"), PAIRS)
def test_truncation(name, wide, way):
    x = interesting(name, WIDE[wide])
    expected = rounded(x, name)
    assert_same(elementwise(wide, name, f"%z = arith.truncf %a : {wide} to {name}", **way)(x, expected), expected, x)


@pytest.mark.parametrize(("name", "wide"), PAIRS)
def test_rounding(name, wide):
    """What is rounded to 8 bits and goes on in a wider type."""
    x = interesting(name, WIDE[wide])
    expected = rounded(x, name).astype(WIDE[wide])
    body = f"%t = arith.truncf %a : {wide} to {name}\n %z = arith.extf %t : {name} to {wide}"
    assert_same(elementwise(wide, wide, body)(x, expected), expected, x)


@examples(200)
@given(st.sampled_from(sorted(FORMATS)), st.lists(st.floats(width=32), min_size=1, max_size=40))
def test_any_numbers(name, numbers):
    x = np.array(numbers, np.float32)
    expected = rounded(x, name)
    assert_same(elementwise("f32", name, f"%z = arith.truncf %a : f32 to {name}")(x, expected), expected, x)


@pytest.mark.parametrize("scale", [256.0, 448.0, -3.0])
def test_powers_are_rounded(scale):
    """Polynomials of rounded powers are rough, 9e-5 off: some are rounded to the neighbour."""
    x = np.linspace(-14, 2, 5000).astype(np.float32)
    body = f"""%c = arith.constant {scale} : f32
      %e = math.exp2 %a : f32
      %m = arith.mulf %e, %c : f32
      %t = arith.truncf %m : f32 to f8E4M3FN
      %z = arith.extf %t : f8E4M3FN to f32"""
    exact = np.exp2(x.astype(np.float64)) * scale
    expected = rounded(exact.astype(np.float32), "f8E4M3FN").astype(np.float32)
    found = elementwise("f32", "f32", body)(x, expected)
    assert np.mean(found != expected) < 5e-3 + np.mean(np.isnan(expected))
    is_finite = np.isfinite(expected) & np.isfinite(found)
    assert (np.abs(found - exact)[is_finite] <= np.maximum(np.abs(exact) * 2**-3.9, 2**-9.9)[is_finite]).all()


def test_arithmetic_in_scalar_loops():
    """What is not vectorised, here for the load in its body, computes in f32, and rounds."""
    run = kernel("""
func.func @main(%t: tensor<256xf8E4M3FN>, %i: tensor<256xi32>, %o: tensor<256xf8E4M3FN>) -> tensor<256xf8E4M3FN> {
  %c = arith.constant 1.5 : f8E4M3FN
  %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
                       iterator_types = ["parallel"]}
    ins(%i : tensor<256xi32>) outs(%o : tensor<256xf8E4M3FN>) {
    ^bb0(%a: i32, %b: f8E4M3FN):
      %x = arith.index_cast %a : i32 to index
      %v = tensor.extract %t[%x] : tensor<256xf8E4M3FN>
      %m = arith.mulf %v, %c : f8E4M3FN
      %p = arith.cmpf ogt, %m, %c : f8E4M3FN
      %q = arith.select %p, %m, %c : f8E4M3FN
      linalg.yield %q : f8E4M3FN
  } -> tensor<256xf8E4M3FN>
  return %r : tensor<256xf8E4M3FN>
}""")
    x = CODES.view(ml_dtypes.float8_e4m3fn)
    product = rounded(x.astype(np.float32) * np.float32(1.5), "f8E4M3FN").astype(np.float32)
    with np.errstate(invalid="ignore"):
        expected = rounded(np.where(product > 1.5, product, np.float32(1.5)), "f8E4M3FN")
    assert_same(run(x, np.arange(256, dtype=np.int32), x), expected, x)


# Attention.

PLAIN = Attention(
    heads=2, queries=70, keys=150, head_size=48, element="f8E4M3FN", output="f32", scale_p=256.0, scale_o=1 / 256
)
KINDS = {
    "whole tiles": {"keys": 320, "queries": 64, "head_size": 64},
    "odd": {"queries": 33, "head_size": 17, "value_size": 23, "bias": "qk", "softcap": 10.0},
    "causal, v by columns": {"queries": 150, "window": (None, 0), "values_transposed": True},
    "groups, bshd": {"heads": 4, "heads_kv": 2, "input_layout": "bshd", "output_layout": "bshd"},
    "one key, nothing contiguous": {"input_layout": "bsdh", "keys": 1},
    "decoding": {"queries": 1, "heads": 8, "heads_kv": 2, "keys": 700, "head_size": 64},
    "decoding, odd": {"queries": 3, "keys": 333, "head_size": 39},
    "dynamic": {"dynamic": True, "window": (None, 0), "bottom_right": True},
    "packed": {"packed": "3hd", "input_layout": "bshd", "keys": 70},
}
# A probability is rounded by up to half of its last digit. Machines differ in their tiles: where one tile has all keys,
# it was divided by the sum before, so that the largest of a row, too, is not exact.
TOLERANCE = {"f8E4M3FN": 2**-4, "f8E5M2": 2**-3}


@pytest.mark.sampled(12, 5)
@pytest.mark.parametrize(
    ("element", "kind"), [("f8E4M3FN", kind) for kind in KINDS] + [("f8E5M2", "odd"), ("f8E5M2", "decoding")]
)
def test_attention(element, kind):
    """Roundings are where the graph has them, so that results do not depend on what multiplies."""
    graph = dataclasses.replace(PLAIN, element=element, **KINDS[kind])
    inputs = graph.inputs("normal")
    expected, _ = graph.reference(inputs)
    units = ["none", "amx-bf16", *(["dot"] if host.host_features() >= host.DOT_FEATURES else [])]
    found = [graph.canonical_output(fused(graph.text(), matrix=unit)(*inputs)) for unit in units]
    for result in found:
        assert relative_error(result, expected) < TOLERANCE[element]
    # Few probabilities are so close to the middle of two numbers that they become another one.
    for other in found[1:]:
        assert np.median(np.abs(other - found[0])) < 1e-4 * np.abs(expected).max()


@pytest.mark.parametrize("vector_bytes", [32, 16])
def test_narrower_vectors(vector_bytes):
    inputs = PLAIN.inputs("normal")
    found = fused(PLAIN.text(), vector_bytes=vector_bytes)(*inputs)
    assert relative_error(found, PLAIN.reference(inputs)[0]) < TOLERANCE["f8E4M3FN"]


@pytest.mark.sampled(3, 1)
@pytest.mark.parametrize("element", FLOAT8)
def test_the_output_is_rounded_once(element):
    graph = dataclasses.replace(PLAIN, element=element, scale_o=16.0)
    inputs = graph.inputs("normal")
    wide = compile(graph.text())(*inputs)
    narrow = compile(dataclasses.replace(graph, output="").text())(*inputs)
    most = FLOAT8[element]
    assert (narrow == np.clip(wide, -most, most).astype(narrow.dtype)).mean() > 0.999
    assert (np.abs(wide) > most).any() == (element == "f8E4M3FN")  # saturates


def test_what_is_too_large_is_not_saturated_by_itself():
    """As upstream's conversion: NaN where a type has no ∞. The graph's clamp is what keeps the output inside."""
    text = dataclasses.replace(PLAIN, output="", scale_o=16.0).text()
    inputs = PLAIN.inputs("normal")
    clamped = compile(text)(*inputs)
    limits = [line for line in text.splitlines() if "o_cast_below =" in line or "o_cast_inside =" in line]
    for line in limits:
        text = text.replace(line, line.replace("4.48", "9.99").replace("e+02", "e+30"))
    free = compile(text)(*inputs)
    assert np.isfinite(clamped).all() and np.isnan(free).any()
    kept = ~np.isnan(free)
    np.testing.assert_array_equal(free[kept], clamped[kept])


def test_special_inputs():
    """Subnormal numbers count, NaN of a value is that of its column."""
    graph = dataclasses.replace(PLAIN, queries=64, keys=128)
    q, k, v = graph.inputs("normal")
    v[...] = (np.arange(v.size).reshape(v.shape) % 7 * 2.0**-9).astype(v.dtype)  # the first 8 numbers
    expected, _ = graph.reference([q, k, v])
    assert relative_error(compile(graph.text())(q, k, v), expected) < TOLERANCE["f8E4M3FN"]
    v[0, 0, 5, 3] = np.nan
    found = compile(graph.text())(q, k, v)
    assert np.isnan(found[0, 0, :, 3]).all() and np.isfinite(np.delete(found[0, 0], 3, 1)).all()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("scale", ["", "arith.mulf %0, %s : f32"], ids=["cast", "scaled"])
def test_a_cache_of_8_bits(scale):
    """Keys and values of 8 bits, perhaps with a scale, queries of bf16: read as they stand, by one kernel."""
    wide = f"%1 = {scale}" if scale else "%1 = arith.addf %0, %z : f32"
    convert = f"""{{
      ^bb0(%a: f8E4M3FN, %b: bf16):
        %0 = arith.extf %a : f8E4M3FN to f32
        {wide}
        %2 = arith.truncf %1 : f32 to bf16
        linalg.yield %2 : bf16
      }} -> tensor<2x300x64xbf16>"""
    if not scale:
        convert = """{
      ^bb0(%a: f8E4M3FN, %b: bf16):
        %2 = arith.extf %a : f8E4M3FN to bf16
        linalg.yield %2 : bf16
      } -> tensor<2x300x64xbf16>"""
    maps = "[affine_map<(b, i, j) -> (b, i, j)>, affine_map<(b, i, j) -> (b, i, j)>]"
    loops = f'indexing_maps = {maps}, iterator_types = ["parallel", "parallel", "parallel"]'
    text = f"""
func.func @main(%q: tensor<2x70x64xbf16>, %k8: tensor<2x300x64xf8E4M3FN>, %v8: tensor<2x300x64xf8E4M3FN>)
    -> tensor<2x70x64xbf16> {{
  %s = arith.constant 0.5 : f32
  %z = arith.constant 0.0 : bf16
  %e = tensor.empty() : tensor<2x300x64xbf16>
  %k = linalg.generic {{{loops}}} ins(%k8 : tensor<2x300x64xf8E4M3FN>) outs(%e : tensor<2x300x64xbf16>) {convert}
  %v = linalg.generic {{{loops}}} ins(%v8 : tensor<2x300x64xf8E4M3FN>) outs(%e : tensor<2x300x64xbf16>) {convert}
  %te = tensor.empty() : tensor<2x64x300xbf16>
  %t = linalg.transpose ins(%k : tensor<2x300x64xbf16>) outs(%te : tensor<2x64x300xbf16>) permutation = [0, 2, 1]
  %se = tensor.empty() : tensor<2x70x300xbf16>
  %sf = linalg.fill ins(%z : bf16) outs(%se : tensor<2x70x300xbf16>) -> tensor<2x70x300xbf16>
  %x = linalg.batch_matmul ins(%q, %t : tensor<2x70x64xbf16>, tensor<2x64x300xbf16>)
    outs(%sf : tensor<2x70x300xbf16>) -> tensor<2x70x300xbf16>
  %p = linalg.softmax dimension(2) ins(%x : tensor<2x70x300xbf16>) outs(%se : tensor<2x70x300xbf16>)
    -> tensor<2x70x300xbf16>
  %oe = tensor.empty() : tensor<2x70x64xbf16>
  %of = linalg.fill ins(%z : bf16) outs(%oe : tensor<2x70x64xbf16>) -> tensor<2x70x64xbf16>
  %o = linalg.batch_matmul ins(%p, %v : tensor<2x70x300xbf16>, tensor<2x300x64xbf16>)
    outs(%of : tensor<2x70x64xbf16>) -> tensor<2x70x64xbf16>
  return %o : tensor<2x70x64xbf16>
}}"""
    rng = np.random.default_rng(0)
    q = (rng.standard_normal((2, 70, 64)) / 4).astype(ml_dtypes.bfloat16)
    k, v = (rng.standard_normal((2, 300, 64)).astype(ml_dtypes.float8_e4m3fn) for _ in range(2))
    built = compile(text)
    assert "1 attention found and fused" in built.explain()
    factor = 0.5 if scale else 1.0
    q64, k64, v64 = q.astype(np.float64), k.astype(np.float64) * factor, v.astype(np.float64) * factor
    s = q64 @ k64.swapaxes(-1, -2)
    p = np.exp(s - s.max(-1, keepdims=True))
    assert relative_error(built(q, k, v), p / p.sum(-1, keepdims=True) @ v64) < 1e-2

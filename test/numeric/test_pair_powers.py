"""``pair.exp2`` against numpy: its error is little more than that of rounding to bf16, however its argument is made."""

import numpy as np
import pytest
from attn_opt.transforms.cpu.pair_powers import BELOW_NO_NUMBER
from attn_opt.transforms.host import DOT_FEATURES, host_features
from harness import kernel

pytestmark = pytest.mark.skipif(not host_features() >= DOT_FEATURES, reason="no products of pairs on this CPU")
EPSILON = 2.0**-8
SCALE = np.float32(0.18033688)
# What x is: its ops, and how the scores that give it are had from it.
ARGUMENTS = {
    "plain": ([], lambda x, m: x),
    "product": (["%{0} = arith.mulf %{1}, %c : f32"], lambda x, m: x / SCALE),
    "difference": (["%{0} = arith.subf %{1}, %m : f32"], lambda x, m: x + m),
    "fma": (["%{0}0 = arith.mulf %{1}, %c : f32", "%{0} = arith.subf %{0}0, %m : f32"], lambda x, m: (x + m) / SCALE),
}


def powers(kind: str = "plain"):
    """Of two arrays of scores, and of what is subtracted, all of one length."""
    lines = [line.format(*names) for names in (("x", "a"), ("y", "b")) for line in ARGUMENTS[kind][0]]
    x, y = ("x", "y") if lines else ("a", "b")
    return kernel(f"""
func.func @main(%s: tensor<?xf32>, %t: tensor<?xf32>, %max: tensor<?xf32>, %o: tensor<?xi32>) -> tensor<?xi32> {{
  %c = arith.constant {float(SCALE)} : f32
  %r = linalg.generic {{
      indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>, affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
      iterator_types = ["parallel"]}}
    ins(%s, %t, %max : tensor<?xf32>, tensor<?xf32>, tensor<?xf32>) outs(%o : tensor<?xi32>) {{
    ^bb0(%a: f32, %b: f32, %m: f32, %old: i32):
      {" ".join(line + chr(10) for line in lines)}
      %w = pair.exp2 %{x}, %{y} : (f32, f32) -> (i32)
      linalg.yield %w : i32
  }} -> tensor<?xi32>
  return %r : tensor<?xi32>
}}""")


def halves(words: np.ndarray) -> list[np.ndarray]:
    bits = words.view(np.uint32)
    return [((bits << 16) if low else (bits >> 16 << 16)).view(np.float32) for low in (True, False)]


@pytest.mark.parametrize("largest", [0.0, 5.0, 300.0])
@pytest.mark.parametrize("kind", list(ARGUMENTS))
def test_error(kind, largest):
    """Both halves; a tail that fills no vector, too. x is of f32: m makes it as inexact as f32 is."""
    x = np.concatenate([np.linspace(-125.9, 0.9, 200_003), -np.geomspace(1e-9, 1, 10_001)]).astype(np.float32)
    m = np.full_like(x, largest if kind in ("difference", "fma") else 0)
    s = ARGUMENTS[kind][1](x, m).astype(np.float32)
    found = halves(powers(kind)(s, s[::-1].copy(), m, np.zeros(x.shape, np.int32)))
    exact = {"plain": s, "product": s * np.float64(SCALE), "difference": s.astype(np.float64) - m}.get(
        kind, s * np.float64(SCALE) - m
    )
    expected = np.exp2(exact.astype(np.float64))
    for half, wanted in zip(found, (expected, expected[::-1]), strict=True):
        error = half.astype(np.float64) / wanted - 1
        assert np.abs(error).max() < EPSILON * 1.48 + 2e-7 * largest
        assert np.sqrt((error**2).mean()) < 1.92e-3
        assert abs(error.mean()) < 1e-4


def test_limits():
    """The largest probability is 1, masked ones are 0; what is no number gives none, or more than any other sum."""
    pairs = [(0.0, 1.0), (-1.0, 0.5), (-126.0, 2.0**-126), (-np.inf, 0.0), (-1e30, 0.0), (-127.5, 0.0), (-300.0, 0.0)]
    x = np.resize(np.array([a for a, _ in pairs], np.float32), 48)
    expected = np.resize(np.array([b for _, b in pairs], np.float32), 48)
    zeros = np.zeros(48, np.float32)
    for half in halves(powers()(x, x, zeros, np.zeros(48, np.int32))):
        half[np.abs(half) < np.finfo(np.float32).tiny] = 0  # as the instruction that multiplies them takes them
        np.testing.assert_array_equal(half, expected)
    kinds = [0x7FC00000, 0xFFC00000, 0x7F800001, 0xFF812345, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FFFF000, 0xFFFFEFFF]
    nan = np.array(kinds * 6, np.uint32).view(np.float32)
    for half in halves(powers()(nan, nan, zeros, np.zeros(48, np.int32))):
        assert not (half <= BELOW_NO_NUMBER).any()


def test_beyond_one():
    """What rounding of very large scores leads to: words that are finite, and grow on the whole."""
    x = np.linspace(0, 120, 2401, dtype=np.float32)
    zeros = np.zeros_like(x)
    for half in halves(powers()(x, x, zeros, np.zeros(x.shape, np.int32))):
        assert (half < BELOW_NO_NUMBER).all()
        assert (half >= np.exp2(x / 2 - 1)).all()
        assert (half <= np.exp2(x / 2 + 2)).all()

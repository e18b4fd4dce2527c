"""Caches that are written in their own memory: kernels for NVIDIA GPUs at the level of tiles, without a GPU."""

import numpy as np
import pytest
from attn_opt.compiler import compile
from gpu_modules import Launches, run_module
from hypothesis import given
from hypothesis import strategies as st
from properties import examples
from test_gpu_scatters import by_hand, scatter, scatters

H, S, D = 3, 40, 16
CACHE, TOKEN = f"tensor<{H}x{S}x{D}xf32>", f"tensor<{H}x1x{D}xf32>"


def step(donated: bool, from_data: bool = True, others: str = "") -> str:
    """The attention of a token to the first %at + 1 keys, with its own written into the caches at %at."""
    marked = " {bufferization.writable = true}" if donated else ""
    place = "%pos: tensor<i32>" if from_data else "%at: index"
    read = "%pl = tensor.extract %pos[] : tensor<i32>\n  %at = arith.index_cast %pl : i32 to index" if from_data else ""
    slice_ = f"[0, %at, 0] [{H}, 1, {D}] [1, 1, 1] : {TOKEN} into {CACHE}"
    return f"""
#s = affine_map<(h, i, j) -> (h, i, j)>
func.func @main(%q: {TOKEN}, %k: {TOKEN}, %v: {TOKEN}, %keys: {CACHE}{marked}, %values: {CACHE}{marked}, {place})
    -> ({TOKEN}, {CACHE}, {CACHE}) {{
  {read}
  %zero = arith.constant 0.0 : f32
  %dead = arith.constant 0xFF800000 : f32
  %te = tensor.empty() : {TOKEN}
  %k2 = linalg.add ins(%k, %k : {TOKEN}, {TOKEN}) outs(%te : {TOKEN}) -> {TOKEN}
  %all_k = tensor.insert_slice %k2 into %keys{slice_}
  %all_v = tensor.insert_slice %v into %values{slice_}
  %se = tensor.empty() : tensor<{H}x1x{S}xf32>
  %sz = linalg.fill ins(%zero : f32) outs(%se : tensor<{H}x1x{S}xf32>) -> tensor<{H}x1x{S}xf32>
  %s = linalg.generic {{indexing_maps = [affine_map<(h, i, j, d) -> (h, i, d)>, affine_map<(h, i, j, d) -> (h, j, d)>,
      affine_map<(h, i, j, d) -> (h, i, j)>], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}}
      ins(%q, %all_k : {TOKEN}, {CACHE}) outs(%sz : tensor<{H}x1x{S}xf32>) {{
  ^bb0(%a: f32, %b: f32, %old: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %old, %0 : f32
    linalg.yield %1 : f32
  }} -> tensor<{H}x1x{S}xf32>
  %t = linalg.generic {{indexing_maps = [#s, #s], iterator_types = ["parallel", "parallel", "parallel"]}}
      ins(%s : tensor<{H}x1x{S}xf32>) outs(%se : tensor<{H}x1x{S}xf32>) {{
  ^bb0(%x: f32, %_: f32):
    %j = linalg.index 2 : index
    %live = arith.cmpi sle, %j, %at : index
    %0 = arith.select %live, %x, %dead : f32
    linalg.yield %0 : f32
  }} -> tensor<{H}x1x{S}xf32>
  %p = linalg.softmax dimension(2) ins(%t : tensor<{H}x1x{S}xf32>) outs(%se : tensor<{H}x1x{S}xf32>)
      -> tensor<{H}x1x{S}xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%te : {TOKEN}) -> {TOKEN}
  %o = linalg.batch_matmul ins(%p, %all_v : tensor<{H}x1x{S}xf32>, {CACHE}) outs(%oz : {TOKEN}) -> {TOKEN}
  {others}
  return %o, %all_k, %all_v : {TOKEN}, {CACHE}, {CACHE}
}}"""


def arguments(at):
    rng = np.random.default_rng(at)
    tokens = [rng.standard_normal((H, 1, D), np.float32) for _ in range(3)]
    caches = [rng.standard_normal((H, S, D), np.float32) for _ in range(2)]
    return tokens, caches


def check(found, tokens, caches, at):
    q, k, v = (t.astype(float) for t in tokens)
    keys, values = (c.astype(float) for c in caches)
    keys[:, at], values[:, at] = 2 * k[:, 0], v[:, 0]
    p = np.exp(q @ keys[:, : at + 1].swapaxes(1, 2))
    np.testing.assert_allclose(found[0], p / p.sum(-1, keepdims=True) @ values[:, : at + 1], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found[1], keys, rtol=1e-6)
    np.testing.assert_array_equal(found[2], values)


@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("from_data", [True, False], ids=["of the GPU", "of the host"])
@pytest.mark.parametrize("at", [0, 17, S - 1])
def test_a_step(at, from_data, arch):
    tokens, caches = arguments(at)
    before = [c.copy() for c in caches]
    place = np.array(at, np.int32) if from_data else at
    found = run_module(step(True, from_data), [*tokens, *caches, place], arch=arch)
    check(found, tokens, before, at)
    assert sum("elements" in name for name in Launches.kernels) == 1


def test_a_place_beyond_the_cache_is_not_written():
    tokens, caches = arguments(0)
    before = [c.copy() for c in caches]
    _, keys, values = run_module(step(True), [*tokens, *caches, np.array(S, np.int32)])
    np.testing.assert_array_equal(keys, before[0])
    np.testing.assert_array_equal(values, before[1])


def test_what_is_read_elsewhere_is_copied():
    both = f"%y = linalg.add ins(%keys, %all_k : {CACHE}, {CACHE}) outs(%keys : {CACHE}) -> {CACHE}"
    text = step(True, others=both).replace("return %o, %all_k", "return %o, %y")
    tokens, caches = arguments(5)
    keys = caches[0].copy()
    _, found, _ = run_module(text, [*tokens, *caches, np.array(5, np.int32)])
    changed = keys.copy()
    changed[:, 5] = 2 * tokens[1][:, 0]
    np.testing.assert_allclose(found, keys + changed, rtol=1e-6)
    with pytest.warns(match="no result is made in the memory of donated argument 3: it is copied"):
        compile(text, target="nvidia")


def test_no_cache_is_allocated():
    def allocated(donated: bool) -> int:
        return compile(step(donated), target="nvidia").ir("layouts").count(f"memref.alloc() : memref<{H}x{S}x{D}xf32>")

    assert (allocated(True), allocated(False)) == (0, 2)


def test_bounds_that_the_gpu_reads_are_known_to_warps_that_copy():
    """The live keys end at what a number in memory says."""
    text = step(True).replace("xf32>", "xf16>").replace(": f32", ": f16").replace("0xFF800000", "0xFC00")
    text = text.replace(f"x{S}x", "x1000x").replace(f"x{S}xf16", "x1000xf16")
    kernel = compile(text, target="nvidia", arch="sm_90a")
    assert "cp.async.bulk.tensor" in kernel.ir("ptx")


WRITABLE = " {bufferization.writable = true}"


def donated_scatter(*drawn) -> str:
    return scatter(*drawn).replace("xf32>, %at", f"xf32>{WRITABLE}, %at", 1)


@examples(40)
@given(scatters(), st.sampled_from(["sm_90a", "sm_80"]), st.integers(0, 1000))
def test_places_from_data(drawn, arch, seed):
    """One after the other, at places that may be the same, and need not fit; in place where windows cannot overlap by a
    part, and nothing of what was there is needed."""
    shape, window, batches, count, combine = drawn
    rng = np.random.default_rng(seed)
    cache = rng.standard_normal(shape, np.float32)
    lead, rest = ([batches], shape[1:]) if batches else ([], shape)
    at = rng.integers(-1, np.array(rest) + 1, (*lead, count, len(rest)))
    u = rng.standard_normal((*lead, count, *window[1 if batches else 0 :]), np.float32)
    expected = by_hand(cache, at, u, window, batches, combine)
    given = cache.astype(float)  # as the evaluator has it, without a copy
    (found,) = run_module(donated_scatter(*drawn), [given, at, u], arch=arch)
    np.testing.assert_array_equal(found, expected)
    is_written = combine is None and (count == 1 or all(w == 1 for w in window[1 if batches else 0 :]))
    np.testing.assert_array_equal(given, expected if is_written else cache)
    assert not is_written or len(Launches.kernels) == 1 + (count > 1)


CHAIN = f"""
func.func @main(%cache: tensor<9x4xf32>{WRITABLE}, %a: tensor<1x4xf32>, %b: tensor<1x4xf32>, %i: index, %j: index)
    -> tensor<9x4xf32> {{
  %0 = tensor.insert_slice %a into %cache[%i, 0] [1, 4] [1, 1] : tensor<1x4xf32> into tensor<9x4xf32>
  %1 = tensor.collapse_shape %0 [[0, 1]] : tensor<9x4xf32> into tensor<36xf32>
  %2 = tensor.expand_shape %1 [[0, 1]] output_shape [9, 4] : tensor<36xf32> into tensor<9x4xf32>
  %3 = tensor.insert_slice %b into %2[%j, 0] [1, 4] [1, 1] : tensor<1x4xf32> into tensor<9x4xf32>
  return %3 : tensor<9x4xf32>
}}"""


@pytest.mark.parametrize("places", [(2, 5), (3, 3)])
def test_one_write_after_the_other(places):
    """Of the same place the last one counts: they are no launch together."""
    cache = np.zeros((9, 4))
    a, b = (np.full((1, 4), x, np.float32) for x in (1, 2))
    expected = cache.copy()
    expected[places[0]], expected[places[1]] = 1, 2
    run_module(CHAIN, [cache, a, b, *places])
    np.testing.assert_array_equal(cache, expected)
    assert len(Launches.kernels) == 2


def test_places_reach_machine_code():
    kernel = compile(donated_scatter([8, 16], [1, 1], 0, 3, None), target="nvidia", arch="sm_80")
    assert kernel.ir("ptx").count(".entry") == 2

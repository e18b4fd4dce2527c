"""Caches that are written in their own memory: kernels for NVIDIA GPUs at the level of tiles, without a GPU."""

import numpy as np
import pytest
from attn_opt.compiler import compile
from gpu_modules import Launches, run_module

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
    assert sum("elements" in name for name in Launches.kernels) == 2


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

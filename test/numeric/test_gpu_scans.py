"""Running sums before attention, as loops over slices: kernels for NVIDIA GPUs at the level of tiles, without a GPU."""

import numpy as np
import pytest
from attn_opt.compiler import CompileError, compile
from crossed import pairwise
from gpu_modules import Launches, run_module

D = 16
COMBINE = {"addf": np.add, "mulf": np.multiply, "maximumf": np.maximum}


def scan(n: str, d: int, op: str, inclusive: bool) -> str:
    """%c, the running value of %f, a 2 × n tensor, along dimension d; it starts from %start."""
    whole, part = f"tensor<2x{n}xf32>", "tensor<2xf32>" if d else f"tensor<{n}xf32>"
    size, count = ("%n" if n == "?" else n), ("%c2" if d == 0 else "%n")
    at = f"[0, %j] [2, 1] [1, 1] : {whole}" if d else f"[%j, 0] [1, {size}] [1, 1] : {whole}"
    into = at.replace(f": {whole}", f": {part} into {whole}")
    dynamic = "%n" if n == "?" else ""
    return f"""
  %e = tensor.empty({dynamic}) : {whole}
  %pe = tensor.empty({dynamic if d == 0 else ""}) : {part}
  %first = linalg.fill ins(%start : f32) outs(%pe : {part}) -> {part}
  %c, %last = scf.for %j = %c0 to {count} step %c1 iter_args(%out = %e, %old = %first) -> ({whole}, {part}) {{
    %x = tensor.extract_slice %f{at} to {part}
    %new = linalg.generic {{indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}}
        ins(%x, %old : {part}, {part}) outs(%pe : {part}) {{
    ^bb0(%a: f32, %b: f32, %_: f32):
      %0 = arith.{op} %a, %b : f32
      linalg.yield %0 : f32
    }} -> {part}
    %o = tensor.insert_slice {"%new" if inclusive else "%old"} into %out{into}
    scf.yield %o, %new : {whole}, {part}
  }}"""


def graph(n: str, running: str, start: float) -> str:
    """Attention whose scores have c[i] − c[j] added, and a mask of the keys after the query."""
    qkv, scores, rows = f"tensor<2x{n}x{D}xf32>", f"tensor<2x{n}x{n}xf32>", f"tensor<2x{n}xf32>"
    dynamic = "%n, %n" if n == "?" else ""
    one = "%n" if n == "?" else ""
    return f"""
#id = affine_map<(i) -> (i)>
#s = affine_map<(b, i, j) -> (b, i, j)>
func.func @main(%q: {qkv}, %k: {qkv}, %v: {qkv}, %f: {rows}) -> ({qkv}, {rows}) {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %zero = arith.constant 0.0 : f32
  %start = arith.constant {start} : f32
  %dead = arith.constant 0xFF800000 : f32
  %n = tensor.dim %f, %c1 : {rows}
{running}
  %se = tensor.empty({dynamic}) : {scores}
  %sz = linalg.fill ins(%zero : f32) outs(%se : {scores}) -> {scores}
  %s = linalg.generic {{indexing_maps = [affine_map<(b, i, j, d) -> (b, i, d)>, affine_map<(b, i, j, d) -> (b, j, d)>,
      affine_map<(b, i, j, d) -> (b, i, j)>], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}}
      ins(%q, %k : {qkv}, {qkv}) outs(%sz : {scores}) {{
  ^bb0(%a: f32, %b: f32, %old: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %old, %0 : f32
    linalg.yield %1 : f32
  }} -> {scores}
  %t = linalg.generic {{indexing_maps = [#s, affine_map<(b, i, j) -> (b, i)>, affine_map<(b, i, j) -> (b, j)>, #s],
      iterator_types = ["parallel", "parallel", "parallel"]}}
      ins(%s, %c, %c : {scores}, {rows}, {rows}) outs(%se : {scores}) {{
  ^bb0(%x: f32, %ci: f32, %cj: f32, %_: f32):
    %i = linalg.index 1 : index
    %j = linalg.index 2 : index
    %live = arith.cmpi sge, %i, %j : index
    %0 = arith.subf %ci, %cj : f32
    %1 = arith.addf %x, %0 : f32
    %2 = arith.select %live, %1, %dead : f32
    linalg.yield %2 : f32
  }} -> {scores}
  %p = linalg.softmax dimension(2) ins(%t : {scores}) outs(%se : {scores}) -> {scores}
  %oe = tensor.empty({one}) : {qkv}
  %oz = linalg.fill ins(%zero : f32) outs(%oe : {qkv}) -> {qkv}
  %r = linalg.batch_matmul ins(%p, %v : {scores}, {qkv}) outs(%oz : {qkv}) -> {qkv}
  return %r, %c : {qkv}, {rows}
}}"""


@pytest.mark.sampled(30)
@pytest.mark.parametrize(
    ("queries", "scanned", "arch"),
    pairwise(
        [(37, False), (150, False), (150, True), (128, False), (1, True), (1, False)],
        [(1, "addf", True), (1, "maximumf", False), (0, "mulf", True)],
        ["sm_90a", "sm_80"],
    ),
)
def test_running_values_of_queries_and_keys(queries, scanned, arch):
    (n, dynamic), (d, op, inclusive) = queries, scanned
    size, start = ("?" if dynamic else str(n)), {"addf": 0.0, "mulf": 1.0, "maximumf": -1.5}[op]
    text = graph(size, scan(size, d, op, inclusive), start)
    rng = np.random.default_rng(n)
    q, k, v = (rng.standard_normal((2, n, D), np.float32) for _ in range(3))
    f = rng.standard_normal((2, n), np.float32)
    first = np.full((1, n) if d == 0 else (2, 1), start)
    c = COMBINE[op].accumulate(np.concatenate([first, f], d, dtype=float), d)
    c = np.delete(c, 0 if inclusive else -1, d)
    scores = q.astype(float) @ k.swapaxes(1, 2) + c[..., :, None] - c[..., None, :]
    p = np.exp(np.where(np.tri(n, dtype=bool), scores, -np.inf))
    p /= p.sum(-1, keepdims=True)
    found = run_module(text, [q, k, v, f], arch=arch)
    np.testing.assert_allclose(found[1], c, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found[0], p @ v, rtol=1e-4, atol=2e-5)
    assert Launches.kernels == ["main_elements_0", "main_0"]
    assert compile(text, target="nvidia", arch=arch).ir("ptx")


def test_loops_that_are_no_kernel_are_refused():
    text = """
func.func @f(%a: tensor<5x7xf32>) -> tensor<5x7xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %r = scf.for %j = %c0 to %c4 step %c1 iter_args(%out = %a) -> (tensor<5x7xf32>) {
    %x = tensor.extract_slice %out[%j, 0] [1, 7] [1, 1] : tensor<5x7xf32> to tensor<1x7xf32>
    %o = tensor.insert_slice %x into %out[4, 0] [1, 7] [1, 1] : tensor<1x7xf32> into tensor<5x7xf32>
    scf.yield %o : tensor<5x7xf32>
  }
  return %r : tensor<5x7xf32>
}"""
    with pytest.raises(
        CompileError, match=r"'scf.for' stands outside.*; other loops become kernels where they make all "
    ):
        compile(text, target="nvidia")

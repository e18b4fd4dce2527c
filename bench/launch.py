"""Prints what a call of a small kernel on the GPU costs the host, and how long compiling and loading take.

    python bench/launch.py

The kernel is so small that the host is what takes the time: calls in a row, without waiting, over their number.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time

CALLS, ROUNDS = 2000, 7

GRAPH = """
func.func @attention(%q: tensor<2x64x64xf16>, %k: tensor<2x64x64xf16>, %v: tensor<2x64x64xf16>) -> tensor<2x64x64xf32> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %se = tensor.empty() : tensor<2x64x64xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%se : tensor<2x64x64xf32>) -> tensor<2x64x64xf32>
  %s = linalg_ext.batch_matmul ins(%q, %k : tensor<2x64x64xf16>, tensor<2x64x64xf16>) outs(%s0 : tensor<2x64x64xf32>)
      layout = "nt"
  %re = tensor.empty() : tensor<2x64xf32>
  %m0 = linalg.fill ins(%low : f32) outs(%re : tensor<2x64xf32>) -> tensor<2x64xf32>
  %a0 = linalg.fill ins(%zero : f32) outs(%re : tensor<2x64xf32>) -> tensor<2x64xf32>
  %p:4 = linalg_ext.softmax dimension(2) ins(%s : tensor<2x64x64xf32>)
      outs(%se, %m0, %a0, %re : tensor<2x64x64xf32>, tensor<2x64xf32>, tensor<2x64xf32>, tensor<2x64xf32>)
      : tensor<2x64x64xf32>, tensor<2x64xf32>, tensor<2x64xf32>, tensor<2x64xf32>
  %pe = tensor.empty() : tensor<2x64x64xf16>
  %pn = linalg.generic {indexing_maps = [affine_map<(b, i, j) -> (b, i, j)>, affine_map<(b, i, j) -> (b, i, j)>],
      iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%p#0 : tensor<2x64x64xf32>) outs(%pe : tensor<2x64x64xf16>) {
  ^bb0(%x: f32, %y: f16):
    %t = arith.truncf %x : f32 to f16
    linalg.yield %t : f16
  } -> tensor<2x64x64xf16>
  %o = linalg_ext.batch_matmul ins(%pn, %v : tensor<2x64x64xf16>, tensor<2x64x64xf16>)
      outs(%s0 : tensor<2x64x64xf32>) layout = "nn"
  return %o : tensor<2x64x64xf32>
}
"""

COMPILING = """
import sys, time, torch
torch.zeros(1, device="cuda")
q = torch.randn(2, 64, 64, device="cuda", dtype=torch.float16)
text = sys.stdin.read()
start = time.perf_counter()
from attn_opt.compiler import compile
import attn_opt.compiler.api
imported = time.perf_counter()
kernel = compile(text, target="nvidia")
compiled = time.perf_counter()
kernel(q, q, q)
torch.cuda.synchronize()
called = time.perf_counter()
print(1e3 * (imported - start), 1e3 * (compiled - imported), 1e3 * (called - compiled))
"""
STARTS = 5


def started(cache: str) -> list[float]:
    """Milliseconds until the package is there, the kernel, and its first result, in a process of its own."""
    variables = {**os.environ, "ATTN_OPT_CACHE": "1", "ATTN_OPT_CACHE_DIR": cache}
    command = [sys.executable, "-c", COMPILING]
    done = subprocess.run(command, input=GRAPH, capture_output=True, text=True, env=variables)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return [float(time) for time in done.stdout.split()]


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="attn-bench-") as folder:
        cold = started(folder)
        warm = [started(folder) for _ in range(STARTS)]
    print(f"in a fresh process, ms: {'import':>8}{'compile':>9}{'first call':>12}")
    for what, times in (("cold", cold), ("from disk", [statistics.median(t) for t in zip(*warm, strict=True)])):
        print(f"{what:<23} {times[0]:8.1f}{times[1]:9.1f}{times[2]:12.1f}")
    import torch
    from attn_opt.compiler import compile

    kernel = compile(GRAPH, target="nvidia")
    q, k, v = torch.randn(3, 2, 64, 64, device="cuda", dtype=torch.float16)
    out = kernel(q, k, v)
    right = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double(), scale=1.0)
    print(f"error {(out.double() - right).abs().max() / right.abs().max():.1e}")
    sdpa = torch.nn.functional.scaled_dot_product_attention
    calls = {
        "kernel(q, k, v)": lambda: kernel(q, k, v),
        "kernel(q, k, v, out=o)": lambda: kernel(q, k, v, out=out),
        "torch's SDPA": lambda: sdpa(q, k, v),
        "torch.add": lambda: torch.add(q, k),
    }
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            for _ in range(20):
                call()
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(CALLS):
                call()
            times[name].append((time.perf_counter() - start) / CALLS)
            torch.cuda.synchronize()
    for name, found in times.items():
        print(f"{1e6 * statistics.median(found):6.2f} us  {name}")


if __name__ == "__main__":
    main()

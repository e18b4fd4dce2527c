"""What the machine can do, measured: multiply-adds from registers, and reading memory; both by kernels of our own.

    multiply-adds: 24 independent accumulators of a register's width, so that latency hides; no memory is touched
    reading:       eight vector sums over an array, split over the threads in blocks

They are MLIR modules that take the same way to machine code as attention does. f16 is computed in f32 by the CPUs that
we know of, and has its roof; bf16 has the dot products of pairs (AVX512-BF16) where the host has them.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from ...dialects import make_context
from ...dialects.assembly import parse_module
from ...transforms.host import host_features
from .. import pass_manager, pipelines
from ..runtime import cpu

ACCUMULATORS, STEPS = 24, 20_000
SUMS, BLOCK = 8, 1 << 15  # floats
# A call, and the work in it: floating-point operations or bytes.
Roof = tuple[Callable[[], Any], int]


def _kernel(text: str) -> cpu.CpuKernel:
    context = make_context()
    context.enable_multithreading(False)
    with context:
        module = parse_module(text, "roof.mlir")
        signature = cpu.Signature.of(module)
        pass_manager.run(pipelines.lower("cpu"), module)
        return cpu.CpuKernel(module, signature)


def _vector_bytes() -> int:
    features = host_features()
    return 64 if "avx512f" in features else 32 if "avx2" in features else 16


def peak_name(element: str) -> str:
    """What the peak of inputs of that type is measured with."""
    if element == "bf16" and "avx512_bf16" in host_features():
        return "bf16 dot"
    return "f64 FMA" if element == "f64" else "f32 FMA"


def peak(element: str, threads: int) -> Roof:
    """The most multiply-adds that this CPU does on inputs of that type, with accumulators of f32 (of f64: f64)."""
    dot = peak_name(element) == "bf16 dot"
    acc = "f64" if element == "f64" else "f32"
    lanes = _vector_bytes() // (8 if acc == "f64" else 4)
    vector = f"vector<{lanes}x{acc}>"
    factor = f"vector<{2 * lanes}xbf16>" if dot else vector
    names = [f"%a{i}" for i in range(ACCUMULATORS)]
    carried = ", ".join(f"{name} = %start" for name in names)
    kinds = ", ".join([vector] * ACCUMULATORS)
    if dot:
        steps = [f"%n{i} = x86.avx512.dot {a}, %x, %x : {factor} -> {vector}" for i, a in enumerate(names)]
    else:
        steps = [f"%n{i} = math.fma {a}, %x, %x : {vector}" for i, a in enumerate(names)]
    sums = [f"%t{i} = arith.addf %{'t' + str(i - 1) if i else 'start'}, %r#{i} : {vector}" for i in range(ACCUMULATORS)]
    newline = "\n"
    text = f"""
func.func @peak(%out: memref<?x{lanes}x{acc}>, %steps: index) {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %threads = memref.dim %out, %c0 : memref<?x{lanes}x{acc}>
  scf.parallel (%t) = (%c0) to (%threads) step (%c1) {{
    %start = vector.load %out[%t, %c0] : memref<?x{lanes}x{acc}>, {vector}
    %x = arith.constant dense<0.5> : {factor}
    %r:{ACCUMULATORS} = scf.for %i = %c0 to %steps step %c1 iter_args({carried}) -> ({kinds}) {{
      {newline.join(steps)}
      scf.yield {", ".join(f"%n{i}" for i in range(ACCUMULATORS))} : {kinds}
    }}
    {newline.join(sums)}
    vector.store %t{ACCUMULATORS - 1}, %out[%t, %c0] : memref<?x{lanes}x{acc}>, {vector}
    scf.reduce
  }}
  return
}}"""
    kernel = _kernel(text)
    out = np.zeros((threads, lanes), np.float64 if acc == "f64" else np.float32)
    steps_array = np.array(STEPS)
    flops = threads * STEPS * ACCUMULATORS * lanes * (4 if dot else 2)

    def call() -> None:
        out[:] = 0.0
        kernel.invoke([out, steps_array], threads)

    return call, flops


def reading(size: int, threads: int) -> Roof:
    """Reads an array of about `size` bytes once."""
    lanes = _vector_bytes() // 4
    vector = f"vector<{lanes}xf32>"
    names = [f"%a{i}" for i in range(SUMS)]
    carried = ", ".join(f"{name} = %zero" for name in names)
    kinds = ", ".join([vector] * SUMS)
    steps = []
    for i, name in enumerate(names):
        steps += [
            f"%o{i} = arith.constant {i * lanes} : index",
            f"%p{i} = arith.addi %i, %o{i} : index",
            f"%v{i} = vector.load %x[%p{i}] : memref<?xf32>, {vector}",
            f"%n{i} = arith.addf {name}, %v{i} : {vector}",
        ]
    sums = [f"%t{i} = arith.addf %{'t' + str(i - 1) if i else 'zero'}, %r#{i} : {vector}" for i in range(SUMS)]
    newline = "\n"
    text = f"""
func.func @reading(%x: memref<?xf32>, %out: memref<?x{lanes}xf32>) {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %step = arith.constant {SUMS * lanes} : index
  %block = arith.constant {BLOCK} : index
  %zero = arith.constant dense<0.0> : {vector}
  %blocks = memref.dim %out, %c0 : memref<?x{lanes}xf32>
  scf.parallel (%t) = (%c0) to (%blocks) step (%c1) {{
    %start = arith.muli %t, %block : index
    %end = arith.addi %start, %block : index
    %r:{SUMS} = scf.for %i = %start to %end step %step iter_args({carried}) -> ({kinds}) {{
      {newline.join(steps)}
      scf.yield {", ".join(f"%n{i}" for i in range(SUMS))} : {kinds}
    }}
    {newline.join(sums)}
    vector.store %t{SUMS - 1}, %out[%t, %c0] : memref<?x{lanes}xf32>, {vector}
    scf.reduce
  }}
  return
}}"""
    kernel = _kernel(text)
    blocks = max(threads, -(-size // (4 * BLOCK)))
    x, out = np.ones(blocks * BLOCK, np.float32), np.empty((blocks, lanes), np.float32)
    return lambda: kernel.invoke([x, out], threads), x.nbytes

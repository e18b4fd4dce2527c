"""What the machine can do, measured: multiply-adds from registers, and reading memory; both by kernels of our own.

    multiply-adds: as many independent accumulators as three quarters of the registers, so that latency hides and none
                   leaves its register; no memory is touched
    reading:       eight vector sums over an array, split over the threads in blocks

They are MLIR modules that take the same way to machine code as attention does. Narrow types
have the roof of what the host has for them, those of 8 bits that of bf16: dot products of pairs (AVX512-BF16), tiles
(AMX), and else f32's.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from ...dialects import make_context
from ...dialects.assembly import parse_module
from ...dialects.reference.evaluator import find_function
from ...transforms.cpu.target import host_target
from ...transforms.host import host_features, tiles_allowed
from .. import pass_manager, pipelines
from ..graphs import FLOAT8, Attention
from ..runtime import cpu
from ..runtime.signature import Dimensions, Signature, Slot

STEPS = 500_000  # of a call, which then takes a millisecond: that of a call from Python, some µs, is not in the rate
TILE_STEPS = 20_000
TILE_FEATURES = {"bf16": "amx_bf16", "f16": "amx_fp16"}
SUMS, BLOCK = 8, 1 << 15  # floats
# A call, and the work in it: floating-point operations or bytes.
Roof = tuple[Callable[[], Any], int]


def _kernel(text: str) -> cpu.CpuKernel:
    context = make_context()
    with context:
        module = parse_module(text, "roof.mlir")
        function = find_function(module)
        arguments, results = (tuple(map(Slot.of, kinds)) for kinds in (function.type.inputs, function.type.results))
        signature = Signature(function.name.value, arguments, results, Dimensions([], []))
        pass_manager.run(pipelines.lower("cpu"), module)
        return cpu.CpuKernel(module, signature)


def kinds(element: str) -> list[str]:
    """The ways to multiply and add inputs of that type that this CPU has."""
    found = ["f64 FMA" if element == "f64" else "f32 FMA"]
    if element in FLOAT8:  # which are multiplied as bf16
        element = "bf16"
    if element == "bf16" and "avx512_bf16" in host_features():
        found.append("bf16 dot")
    if TILE_FEATURES.get(element) in host_features() and tiles_allowed():
        found.append(f"{element} AMX")
    return found


def peak(kind: str, threads: int) -> Roof:
    """The most that this CPU multiplies and adds in that way (see `kinds`), with accumulators of f32 (of f64: f64)."""
    return _tiles(kind.removesuffix(" AMX"), threads) if kind.endswith(" AMX") else _registers(kind, threads)


def _registers(kind: str, threads: int) -> Roof:
    dot = kind == "bf16 dot"
    acc = "f64" if kind == "f64 FMA" else "f32"
    target = host_target()
    accumulators = target.registers * 3 // 4
    lanes = target.vector_bytes // (8 if acc == "f64" else 4)
    vector = f"vector<{lanes}x{acc}>"
    factor = f"vector<{2 * lanes}xbf16>" if dot else vector
    names = [f"%a{i}" for i in range(accumulators)]
    carried = ", ".join(f"{name} = %start" for name in names)
    kinds = ", ".join([vector] * accumulators)
    if dot:
        steps = [f"%n{i} = x86.avx512.dot {a}, %x, %x : {factor} -> {vector}" for i, a in enumerate(names)]
    else:
        steps = [f"%n{i} = math.fma {a}, %x, %x : {vector}" for i, a in enumerate(names)]
    sums = [f"%t{i} = arith.addf %{'t' + str(i - 1) if i else 'start'}, %r#{i} : {vector}" for i in range(accumulators)]
    newline = "\n"
    text = f"""
func.func @peak(%out: memref<?x{lanes}x{acc}>, %steps: index) {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %threads = memref.dim %out, %c0 : memref<?x{lanes}x{acc}>
  scf.parallel (%t) = (%c0) to (%threads) step (%c1) {{
    %start = vector.load %out[%t, %c0] : memref<?x{lanes}x{acc}>, {vector}
    %x = arith.constant dense<0.5> : {factor}
    %r:{accumulators} = scf.for %i = %c0 to %steps step %c1 iter_args({carried}) -> ({kinds}) {{
      {newline.join(steps)}
      scf.yield {", ".join(f"%n{i}" for i in range(accumulators))} : {kinds}
    }}
    {newline.join(sums)}
    vector.store %t{accumulators - 1}, %out[%t, %c0] : memref<?x{lanes}x{acc}>, {vector}
    scf.reduce
  }}
  return
}}"""
    kernel = _kernel(text)
    out = np.zeros((threads, lanes), np.float64 if acc == "f64" else np.float32)
    steps_array = np.array(STEPS)
    flops = threads * STEPS * accumulators * lanes * (4 if dot else 2)

    def call() -> None:
        out[:] = 0.0
        kernel.invoke([out, steps_array], threads)

    return call, flops


def _tiles(element: str, threads: int) -> Roof:
    """AMX: two tiles of A times two of B into four, over and over. A product's three tiles must differ."""
    acc, factor, chain = "!x86.amx.tile<16x16xf32>", f"!x86.amx.tile<16x32x{element}>", 32
    offsets = "\n".join(f"%c{16 * i} = arith.constant {16 * i} : index" for i in range(4))
    loads = [f"%f{i} = x86.amx.tile_load %x[%c{16 * i}, %c0] : memref<64x32x{element}> into {factor}" for i in range(4)]
    zeros = [f"%n{c}_0 = x86.amx.tile_zero : {acc}" for c in range(4)]
    steps = [
        f"%n{c}_{i + 1} = x86.amx.tile_mulf %f{c // 2}, %f{2 + c % 2}, %n{c}_{i} : {factor}, {factor}, {acc}"
        for i in range(chain)
        for c in range(4)
    ]
    stores = [
        f"x86.amx.tile_store %out[%t, %c{16 * c}, %c0], %n{c}_{chain} : memref<?x64x16xf32>, {acc}" for c in range(4)
    ]
    body = "\n".join([*zeros, *loads, *steps, *stores])
    kernel = _kernel(f"""
func.func @peak(%out: memref<?x64x16xf32>, %x: memref<64x32x{element}>, %steps: index) {{
  {offsets}
  %c1 = arith.constant 1 : index
  %threads = memref.dim %out, %c0 : memref<?x64x16xf32>
  scf.parallel (%t) = (%c0) to (%threads) step (%c1) {{
    scf.for %i = %c0 to %steps step %c1 {{
      {body}
    }}
    scf.reduce
  }}
  return
}}""")
    out, x = np.zeros((threads, 64, 16), np.float32), np.zeros((64, 32), Attention(element=element).dtype)
    rounds = np.array(TILE_STEPS // chain)
    flops = threads * int(rounds) * chain * 4 * 2 * 16 * 16 * 32
    return lambda: kernel.invoke([out, x, rounds], threads), flops


def reading(size: int, threads: int) -> Roof:
    """Reads an array of about `size` bytes once."""
    lanes = host_target().vector_bytes // 4
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

"""Sums over rows that threads of a warp share, without a GPU: thread by thread, and in modules with attention."""

import math

import numpy as np
import pytest
from attn_opt.compiler import pass_manager
from attn_opt.compiler.graphs import Attention
from attn_opt.dialects.assembly import parse_module
from attn_opt.transforms.rewriting import ops_in
from gpu_modules import Launches, run_module
from harness import CONTEXT
from threads import Memory, Threads

SOURCE, INIT, TARGET = 1 << 20, 1 << 28, 1 << 30  # where arrays stand
# Of rows that are a part of longer ones, `body` of each element x and what there is.
MODULE = """
func.func @f(%a: {whole}, %init: tensor<{rows}xf32>) -> tensor<{rows}xf32> {{
  %s = tensor.extract_slice %a[0, {start}] [{rows}, {columns}] [1, 1] : {whole} to {part}
  %r = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
      iterator_types = ["parallel", "reduction"]}} ins(%s : {part}) outs(%init : tensor<{rows}xf32>) {{
  ^bb0(%x: {element}, %old: f32):
    {wide}
    {body}
    linalg.yield %t : f32
  }} -> tensor<{rows}xf32>
  return %r : tensor<{rows}xf32>
}}
"""
SQUARES = "%z = arith.mulf %y, %y : f32\n%t = arith.addf %z, %old : f32"
BODIES = {
    "squares": (SQUARES, lambda x, init: (x**2).sum(1) + init),
    "maximum": ("%t = arith.maximumf %old, %y : f32", lambda x, init: np.maximum(x.max(1), init)),
    "product": ("%t = arith.mulf %old, %y : f32", lambda x, init: np.prod(x, 1) * init),
}
DTYPES = {"f32": np.float32, "f16": np.float16}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("any_strides", [False, True], ids=["dense", "any"])
@pytest.mark.parametrize("element", DTYPES)
@pytest.mark.parametrize(
    ("columns", "start", "more"),
    [(32, 0, 0), (40, 0, 0), (63, 0, 0), (64, 8, 24), (64, 3, 61), (80, 0, 0), (128, 0, 0), (256, 0, 0), (1001, 0, 7)],
)
def test_every_row_is_summed_once(columns, start, more, element, any_strides, body):
    """Of 37 rows, so that the last warp has threads without one."""
    rows, dtype = 37, DTYPES[element]
    width, stride = columns + start + more, columns + start + more + 16
    rng = np.random.default_rng(0)
    array = np.ones((rows, stride), dtype) + rng.uniform(-1, 1, (rows, stride)).astype(dtype) / dtype(16)
    array[:, :start] = array[:, start + columns :] = np.nan
    init, target = rng.uniform(0, 2, rows).astype(np.float32), np.zeros(rows, np.float32)
    op, meaning = BODIES[body]
    text = MODULE.format(
        whole=f"tensor<{rows}x{width}x{element}>",
        part=f"tensor<{rows}x{columns}x{element}>",
        rows=rows,
        columns=columns,
        start=start,
        element=element,
        wide="" if element == "f32" else f"%y = arith.extf %x : {element} to f32",
        body=op if element == "f16" else op.replace("%y", "%x"),
    )
    written = Memory(target.view(np.uint8), TARGET)
    memories = [Memory(array.view(np.uint8).reshape(-1), SOURCE), Memory(init.view(np.uint8), INIT), written]
    with CONTEXT, np.errstate(all="ignore"):
        module = parse_module(text, "test.mlir", CONTEXT)
        outline = f"outline-elements{{any-strides={int(any_strides)}}}"
        pass_manager.run([outline, "canonicalize", "cse", "tiles-to-nvvm"], module)
        (function,) = ops_in(module.operation, "llvm.func")
        steps = ops_in(function, "nvvm.shfl.sync")[1:]  # without that of a warp's number
        pieces = columns // (1 if any_strides else math.gcd(16 // dtype().itemsize, columns, width, start))
        lanes = 1 << len(steps)
        assert lanes <= 32 and (lanes == 32 or lanes <= pieces / 2 < 2 * lanes)
        dense = not any_strides and pieces < columns
        threads = math.ceil(rows * lanes / 256) * 256
        of_source = [SOURCE, stride] if dense else [SOURCE, stride, 1]
        Threads(threads, memories, in_block=256).call(function, [*of_source, INIT, 1, TARGET, 1])
    expected = meaning(array[:, start : start + columns].astype(np.float64), init)
    np.testing.assert_allclose(target, expected, rtol=1e-5)
    assert np.all(written.written == 1)


def test_sums_over_rows_and_more():
    """Of rows in a loop, in f16, times a row that all share; and of the rows themselves, by the blocks behind."""
    maps = ["affine_map<(i, j, k) -> (i, j, k)>", "affine_map<(i, j, k) -> (k)>", "affine_map<(i, j, k) -> (i)>"]
    whole = "tensor<300x3x64xf16>"
    text = f"""
func.func @f(%a: {whole}, %b: tensor<64xf32>, %i: tensor<300xf16>) -> (tensor<300xf16>, tensor<300x3xf16>) {{
  %r = linalg.generic {{indexing_maps = [{", ".join(maps)}], iterator_types = ["parallel", "reduction", "reduction"]}}
      ins(%a, %b : {whole}, tensor<64xf32>) outs(%i : tensor<300xf16>) {{
  ^bb0(%x: f16, %y: f32, %old: f16):
    %z = arith.truncf %y : f32 to f16
    %u = arith.mulf %x, %z : f16
    %t = arith.addf %u, %old : f16
    linalg.yield %t : f16
  }} -> tensor<300xf16>
  %low = arith.constant 0xFC00 : f16
  %empty = tensor.empty() : tensor<300x3xf16>
  %init = linalg.fill ins(%low : f16) outs(%empty : tensor<300x3xf16>) -> tensor<300x3xf16>
  %m = linalg.generic {{indexing_maps = [{maps[0]}, affine_map<(i, j, k) -> (i, j)>],
      iterator_types = ["parallel", "parallel", "reduction"]}} ins(%a : {whole}) outs(%init : tensor<300x3xf16>) {{
  ^bb0(%x: f16, %old: f16):
    %t = arith.maximumf %x, %old : f16
    linalg.yield %t : f16
  }} -> tensor<300x3xf16>
  return %r, %m : tensor<300xf16>, tensor<300x3xf16>
}}
"""
    rng = np.random.default_rng(0)
    a, b, init = rng.normal(size=(300, 3, 64)), rng.normal(size=64), rng.normal(size=300)
    a, b, init = a.astype(np.float16), b.astype(np.float16).astype(np.float32), init.astype(np.float16)
    sums, maxima = np.zeros(300, np.float16), np.zeros((300, 3), np.float16)
    places = [SOURCE, 1 << 24, INIT, TARGET, 1 << 31]
    arrays = (a, b, init, sums, maxima)
    memories = [Memory(x.view(np.uint8).reshape(-1), at) for x, at in zip(arrays, places, strict=True)]
    with CONTEXT, np.errstate(all="ignore"):
        module = parse_module(text, "test.mlir", CONTEXT)
        pass_manager.run(
            ["linalg-generalize-named-ops", "outline-elements", "canonicalize", "cse", "tiles-to-nvvm"], module
        )
        (function,) = ops_in(module.operation, "llvm.func")
        # Four elements at a time, as b has them in 16 bytes: 8 lanes; maxima 4.
        blocks = math.ceil(300 * 8 / 256) + math.ceil(900 * 4 / 256)
        of_a, of_maxima = [SOURCE, 3 * 64, 64], [1 << 31, 3, 1]
        Threads(blocks * 256, memories, in_block=256).call(function, [*of_a, 1 << 24, INIT, 1, TARGET, 1, *of_maxima])
    wide = a.astype(np.float64)
    np.testing.assert_allclose(sums, (wide * b).sum((1, 2)) + init, atol=2e-2)
    np.testing.assert_array_equal(maxima, a.max(2))
    assert np.all(memories[3].written == 1) and np.all(memories[4].written == 1)


@pytest.mark.parametrize(
    ("head_size", "element", "arch"),
    [
        (64, "f16", "sm_90a"),
        pytest.param(40, "f16", "sm_80", marks=pytest.mark.slow),
        (63, "f16", "sm_80"),
        pytest.param(32, "f32", "sm_90a", marks=pytest.mark.slow),
    ],
)
def test_attention_over_normed_queries_and_keys(head_size, element, arch):
    """Rows over the root of their mean square: the sums of both are one launch, before attention."""
    n, s, d = 2, 70, head_size
    graph = Attention(heads=n, queries=s, keys=s, head_size=d, element=element, input_layout="bhsd")
    whole, row = f"tensor<1x{n}x{s}x{d}x{element}>", f"tensor<1x{n}x{s}x1xf32>"
    same, first = "affine_map<(b, h, i, j) -> (b, h, i, j)>", "affine_map<(b, h, i, j) -> (b, h, i, 0)>"
    widen = "" if element == "f32" else f"%y = arith.extf %x : {element} to f32"
    narrow = "" if element == "f32" else f"%o = arith.truncf %w : f32 to {element}"
    y, o = ("%x", "%w") if element == "f32" else ("%y", "%o")

    def norm(x: str) -> str:
        return f"""
  %{x}start = arith.constant 0.0 : f32
  %{x}size = arith.constant {d}.0 : f32
  %{x}rows = tensor.empty() : {row}
  %{x}zeros = linalg.fill ins(%{x}start : f32) outs(%{x}rows : {row}) -> {row}
  %{x}sums = linalg.generic {{indexing_maps = [{same}, {first}],
      iterator_types = ["parallel", "parallel", "parallel", "reduction"]}} ins(%{x}0 : {whole})
      outs(%{x}zeros : {row}) {{
  ^bb0(%x: {element}, %old: f32):
    {widen}
    %z = arith.mulf {y}, {y} : f32
    %t = arith.addf %z, %old : f32
    linalg.yield %t : f32
  }} -> {row}
  %{x}other = tensor.empty() : {whole}
  %{x} = linalg.generic {{indexing_maps = [{same}, {first}, {same}],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]}} ins(%{x}0, %{x}sums : {whole}, {row})
      outs(%{x}other : {whole}) {{
  ^bb0(%x: {element}, %sum: f32, %old: {element}):
    {widen}
    %m = arith.divf %sum, %{x}size : f32
    %r = math.rsqrt %m : f32
    %w = arith.mulf {y}, %r : f32
    {narrow}
    linalg.yield {o} : {element}
  }} -> {whole}
"""

    text = graph.text().replace("{\n", "{\n" + norm("q") + norm("k"), 1)
    for x in "qk":
        text = text.replace(f"%{x}: tensor", f"%{x}0: tensor", 1)
    inputs = [x.astype(np.float64) for x in graph.inputs("normal", 0)]
    (found,) = run_module(text, inputs, arch=arch)
    normed = [x / np.sqrt((x**2).mean(-1, keepdims=True)) for x in inputs[:2]]
    expected, _ = graph.reference([x.astype(DTYPES[element]) for x in (*normed, inputs[2])])
    assert np.abs(found - expected).max() <= 4e-3 * np.abs(expected).max()
    assert [name for name in Launches.kernels if "elements" in name] == ["attention_elements_0"]

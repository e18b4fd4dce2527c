"""Scores that depend on where they are, in kernels for GPUs, run thread by thread without one: what is made once for a
thread, and what that costs."""

import numpy as np
import pytest
from attn_opt.compiler import pass_manager
from attn_opt.dialects.assembly import parse_module
from attn_opt.transforms.rewriting import ops_in
from harness import CONTEXT
from threads import Memory, Threads

ROWS, COLUMNS = 128, 48
FIRST, TARGET = 1 << 20, 1 << 30  # where arrays stand
QUERY, KEY = 300, 5000  # where the tile begins
SCALE, FACTOR = 0.125, 1.5
TILE, ROW = f'tensor<{ROWS}x{COLUMNS}xf32, "fragment">', f'tensor<{ROWS}xf32, "row">'
MEMORY = f"memref<{ROWS}x{COLUMNS}xf32, strided<[?, 1]>>"
# (scale·x + position − m)·factor, where m is the largest x of a row.
KERNEL = f"""
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#one = affine_map<(i, j) -> ()>
module attributes {{gpu.container_module}} {{
  gpu.module @kernels {{
    gpu.func @positions(%from: {MEMORY}, %to: {MEMORY}, %other: {MEMORY},
        %query: index, %key: index, %slope: f32) kernel {{
      %zero = arith.constant 0 : index
      %rows = arith.constant {ROWS} : index
      %columns = arith.constant {COLUMNS} : index
      %scale = arith.constant {SCALE} : f32
      %factor = arith.constant {FACTOR} : f32
      %half = arith.constant 0.5 : f32
      %two = arith.constant 2 : index
      %lowest = arith.constant dense<0xFF800000> : {ROW}
      %x = tile.load (%from, %zero, %zero, %rows, %columns) {{dims = [0, 1]}}
          : ({MEMORY}, index, index, index, index) -> ({TILE})
      %m = linalg.generic {{indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}}
          ins(%x : {TILE}) outs(%lowest : {ROW}) {{
      ^bb0(%a: f32, %b: f32):
        %r = arith.maximumf %a, %b : f32
        linalg.yield %r : f32
      }} -> {ROW}
      %e = tensor.empty() : {TILE}
      %y = linalg.generic {{indexing_maps = [#id, #one, #id], iterator_types = ["parallel", "parallel"]}}
          ins(%x, %slope : {TILE}, f32) outs(%e : {TILE}) {{
      ^bb0(%s: f32, %u: f32, %old: f32):
        %c = arith.mulf %s, %scale : f32
        %row = linalg.index 0 : index
        %i = arith.addi %row, %query : index
        %column = linalg.index 1 : index
        %j = arith.addi %column, %key : index
        BODY
        linalg.yield %r : f32
      }} -> {TILE}
      OTHER
      %z = linalg.generic {{indexing_maps = [#row, #id], iterator_types = ["parallel", "parallel"]}}
          ins(%m : {ROW}) outs(%y : {TILE}) {{
      ^bb0(%a: f32, %b: f32):
        %d = arith.subf %b, %a : f32
        %r = arith.mulf %d, %factor : f32
        linalg.yield %r : f32
      }} -> {TILE}
      tile.store (%z, %to, %zero, %zero, %rows, %columns) {{dims = [0, 1]}}
          : ({TILE}, {MEMORY}, index, index, index, index) -> ()
      gpu.return
    }}
  }}
}}
"""
STORED = f"""tile.store (%y, %other, %zero, %zero, %rows, %columns) {{dims = [0, 1]}}
          : ({TILE}, {MEMORY}, index, index, index, index) -> ()"""
DISTANCE = (
    "%d = arith.subi %j, %i : index\n%n = arith.index_cast %d : index to i32\n%f = arith.sitofp %n : i32 to f32\n"
)
SLOPED = DISTANCE + "%p = arith.mulf %u, %f : f32\n"
BODIES = {
    "added": (SLOPED + "%r = arith.addf %c, %p : f32", lambda x, i, j, u: SCALE * x + u * (j - i)),
    "added to": (SLOPED + "%r = arith.addf %p, %c : f32", lambda x, i, j, u: SCALE * x + u * (j - i)),
    "subtracted": (SLOPED + "%r = arith.subf %c, %p : f32", lambda x, i, j, u: SCALE * x - u * (j - i)),
    "subtracted from": (SLOPED + "%r = arith.subf %p, %c : f32", lambda x, i, j, u: u * (j - i) - SCALE * x),
    "without a slope": (DISTANCE + "%r = arith.addf %c, %f : f32", lambda x, i, j, u: SCALE * x + (j - i)),
    "two factors": (
        SLOPED + "%q = arith.mulf %p, %half : f32\n%r = arith.addf %c, %q : f32",
        lambda x, i, j, u: SCALE * x + u / 2 * (j - i),
    ),
    "of keys": (
        "%n = arith.index_cast %j : index to i32\n%f = arith.sitofp %n : i32 to f32\n"
        "%p = arith.mulf %f, %u : f32\n%r = arith.addf %c, %p : f32",
        lambda x, i, j, u: SCALE * x + u * j,
    ),
    "sum of both": (
        SLOPED.replace("subi", "addi") + "%r = arith.addf %c, %p : f32",
        lambda x, i, j, u: SCALE * x + u * (j + i),
    ),
    "cast one by one": (
        "%ci = arith.index_cast %i : index to i64\n%cj = arith.index_cast %j : index to i64\n"
        "%d = arith.subi %cj, %ci : i64\n%f = arith.sitofp %d : i64 to f32\n"
        "%p = arith.mulf %f, %u : f32\n%r = arith.addf %c, %p : f32",
        lambda x, i, j, u: SCALE * x + u * (j - i),
    ),
    "absolute": (
        "%d = arith.subi %j, %i : index\n%n = arith.index_cast %d : index to i32\n%a = math.absi %n : i32\n"
        "%f = arith.sitofp %a : i32 to f32\n%p = arith.mulf %u, %f : f32\n%r = arith.subf %c, %p : f32",
        lambda x, i, j, u: SCALE * x - u * abs(j - i),
    ),
    "no sum": (
        SLOPED + "%q = arith.mulf %p, %p : f32\n%r = arith.addf %c, %q : f32",
        lambda x, i, j, u: SCALE * x + (u * (j - i)) ** 2,
    ),
    "twice": (  # an integer that grows by 2
        "%d = arith.subi %j, %i : index\n%t = arith.muli %d, %two : index\n%n = arith.index_cast %t : index to i32\n"
        "%f = arith.sitofp %n : i32 to f32\n%p = arith.mulf %u, %f : f32\n%r = arith.addf %c, %p : f32",
        lambda x, i, j, u: SCALE * x + u * 2 * (j - i),
    ),
}
ONCE = {name for name in BODIES if name != "twice"}


@pytest.mark.parametrize("is_read_twice", [False, True], ids=["alone", "read twice"])
@pytest.mark.parametrize("body", BODIES)
def test_against_float64(body, is_read_twice):
    text, meaning = BODIES[body]
    slope = np.float32(-0.0712)
    kernel = KERNEL.replace("BODY", text).replace("OTHER", STORED if is_read_twice else "")
    source = np.random.default_rng(0).normal(size=(ROWS, COLUMNS)).astype(np.float32)
    arrays = [source, *(np.full_like(source, np.nan) for _ in range(2))]
    places = [FIRST, TARGET, TARGET << 1]
    memories = [Memory(a.view(np.uint8).reshape(-1), at) for a, at in zip(arrays, places, strict=True)]
    with CONTEXT:
        module = parse_module(kernel, "test.mlir", CONTEXT)
        pass_manager.run(["tiles-to-nvvm", "canonicalize", "cse"], module)
        (function,) = ops_in(module.operation, "llvm.func")
        conversions = ops_in(function, "arith.sitofp")
        numbers = [x for at in places for x in (at, COLUMNS)]
        Threads(2 * ROWS, memories).call(function, [*numbers, QUERY, KEY, slope])
    assert len(conversions) == 1 or body not in ONCE
    i, j = QUERY + np.arange(ROWS)[:, None], KEY + np.arange(COLUMNS)
    x, largest = source.astype(np.float64), source.max(1, keepdims=True).astype(np.float64)
    scores = meaning(x, i, j, float(slope))
    np.testing.assert_allclose(arrays[1], (scores - largest) * FACTOR, rtol=1e-6, atol=2e-4)
    if is_read_twice:
        np.testing.assert_allclose(arrays[2], scores, rtol=1e-6, atol=1e-4)


def test_a_product_is_zero_where_its_distance_is():
    """Which a sum of what is rounded need not be: scores may be compared with 0."""
    body = (
        SLOPED
        + "%z = arith.constant 0.0 : f32\n%e0 = arith.cmpf oeq, %p, %z : f32\n%r = arith.select %e0, %c, %z : f32"
    )
    source = np.ones((ROWS, COLUMNS), np.float32)
    target = np.full_like(source, np.nan)
    places = [FIRST, TARGET, TARGET << 1]
    memories = [
        Memory(a.view(np.uint8).reshape(-1), at) for a, at in zip((source, target, target), places, strict=True)
    ]
    with CONTEXT:
        module = parse_module(KERNEL.replace("BODY", body).replace("OTHER", ""), "test.mlir", CONTEXT)
        pass_manager.run(["tiles-to-nvvm"], module)
        (function,) = ops_in(module.operation, "llvm.func")
        numbers = [x for at in places for x in (at, COLUMNS)]
        Threads(2 * ROWS, memories).call(function, [*numbers, 1000, 1010, np.float32(0.1)])
    diagonal = 1010 + np.arange(COLUMNS) == 1000 + np.arange(ROWS)[:, None]
    np.testing.assert_array_equal(target != -FACTOR, diagonal)

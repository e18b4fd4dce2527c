"""Whole attention on the CPU against float64: fused by hand and not fused, all types, odd and dynamic shapes."""

import graphs
import ml_dtypes
import numpy as np
import pytest
from attn_opt.compiler import compile
from harness import crossed, kernel, relative_error

DTYPES = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
TOLERANCE = {"f32": 1e-5, "f64": 1e-12, "f16": 3e-3, "bf16": 2e-2}
SHAPES = [(64, 64, 32, 32), (37, 53, 19, 7), (1, 77, 64, 64), (130, 257, 33, 65)]
TILES = [(16, 16), (64, 128), (8, 4)]


def reference(q, k, v):
    """softmax(q·kᵀ)·v in float64; rows that are masked wholly give 0."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    return softmax(q @ np.swapaxes(k, -1, -2)) @ v


def softmax(s):
    m = s.max(-1, keepdims=True)
    p = np.exp(s - np.where(np.isneginf(m), 0, m))
    total = p.sum(-1, keepdims=True)
    return p / np.where(total == 0, 1, total)


def inputs(kind, *shapes, scale=1.0, seed=0):
    rng = np.random.default_rng(seed)
    return [(rng.standard_normal(s) * scale).astype(DTYPES[kind]) for s in shapes]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("schedule", "kind", "op"),
    crossed(
        [("qk"[i % 2], shape, TILES[i % 3]) for i, shape in enumerate([*SHAPES, *SHAPES[:3]])],
        list(DTYPES),
        ["softmax", "unnorm_softmax"],
    ),
)
def test_fused(schedule, kind, op):
    outer, shape, tiles = schedule
    q, k, d, dv = shape
    Q, K, V = inputs(kind, (q, d), (d, k), (k, dv))
    found = kernel(graphs.fused(*shape, *tiles, kind, op, outer))(Q, K, V)
    assert relative_error(found, reference(Q, K.T, V)) < TOLERANCE[kind]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("kind", "layout", "batch"), crossed(list(DTYPES), ["nn", "nt"], [(), (2, 3)]))
def test_unfused_dynamic(kind, layout, batch):
    """One kernel serves all sizes of the dynamic dimensions."""
    d, dv = 19, 33
    run = kernel(graphs.unfused(batch, "?", "?", d, dv, kind, layout))
    for q, k in ((1, 1), (5, 77), (64, 64), (33, 130)):
        Q, K, V = inputs(kind, (*batch, q, d), (*batch, k, d), (*batch, k, dv))
        key = K if layout == "nt" else np.ascontiguousarray(np.swapaxes(K, -1, -2))
        assert relative_error(run(Q, key, V), reference(Q, K, V)) < TOLERANCE[kind]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("vector_bytes", [16, 32, 64])
@pytest.mark.parametrize("parallel", [True, False])
def test_instruction_sets(kind, vector_bytes, parallel):
    Q, K, V = inputs(kind, (45, 24), (24, 70), (70, 24))
    run = kernel(graphs.fused(45, 70, 24, 24, 16, 32, kind), vector_bytes=vector_bytes, parallel=parallel)
    assert relative_error(run(Q, K, V), reference(Q, K.T, V)) < TOLERANCE[kind]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("kind", list(DTYPES))
@pytest.mark.parametrize("op", ["softmax", "unnorm_softmax"])
@pytest.mark.parametrize("dimension", [0, 1, 2])
def test_softmax_step(kind, op, dimension):
    """All four results, with statistics of earlier tiles, rows masked now, and rows masked from the start."""
    shape = (3, 5, 18)
    stat = kind if kind == "f64" else "f32"
    rows = tuple(s for i, s in enumerate(shape) if i != dimension)
    text = lambda dims, t: "tensor<" + "x".join(map(str, dims)) + f"x{t}>"  # noqa: E731
    x_type, row_type = text(shape, kind), text(rows, stat)
    run = kernel(f"""
func.func @main(%x: {x_type}, %m: {row_type}, %a: {row_type}) -> ({x_type}, {row_type}, {row_type}, {row_type}) {{
  %o = tensor.empty() : {x_type}
  %s = tensor.empty() : {row_type}
  %r:4 = "linalg_ext.{op}"(%x, %o, %m, %a, %s) {{dimension = {dimension} : i64}}
    : ({x_type}, {x_type}, {row_type}, {row_type}, {row_type}) -> ({x_type}, {row_type}, {row_type}, {row_type})
  return %r#0, %r#1, %r#2, %r#3 : {x_type}, {row_type}, {row_type}, {row_type}
}}""")
    (x,) = inputs(kind, shape, scale=3.0)
    m0, a0 = inputs(stat, rows, rows, seed=1)
    a0 = np.abs(a0)
    x, m0, a0 = x.copy(), m0.copy(), a0.copy()
    moved = np.moveaxis(x, dimension, -1)
    moved[0, :2] = -np.inf  # masked now
    m0.reshape(rows)[0, 1:3] = -np.inf  # masked so far
    a0.reshape(rows)[0, 1:3] = 0
    xs, m, a = (np.asarray(v, np.float64) for v in (moved, m0, a0))
    new_m = np.maximum(m, xs.max(-1))
    safe = np.where(np.isneginf(new_m), 0, new_m)
    p, alpha = np.exp(xs - safe[..., None]), np.exp(m - safe)
    new_a = a * alpha + p.sum(-1)
    result, scale = p, alpha
    if op == "softmax":
        inverse = np.where(new_a == 0, 0, 1 / np.where(new_a == 0, 1, new_a))
        result, scale = p * inverse[..., None], a * alpha * inverse
    found = run(x, m0, a0)
    expected = (np.moveaxis(result, -1, dimension), new_m, new_a, scale)
    for f, e in zip(found, expected, strict=True):
        finite = np.isfinite(e)
        assert (np.asarray(f, np.float64)[~finite] == e[~finite]).all()
        error = relative_error(np.where(finite, np.asarray(f, np.float64), 0), np.where(finite, e, 0))
        assert error < TOLERANCE[kind]
    assert (np.asarray(found[0], np.float64)[np.broadcast_to(np.isneginf(np.asarray(x, np.float64)), shape)] == 0).all()


@pytest.mark.parametrize("op", ["softmax", "unnorm_softmax"])
def test_large_magnitudes(op):
    """Scores of ±1e4 and more stay finite and right: the largest one wins."""
    q, k, d = 20, 40, 8
    Q, K, V = inputs("f32", (q, d), (d, k), (k, d), scale=60.0)
    found = kernel(graphs.fused(q, k, d, d, 8, 16, "f32", op))(Q, K, V)
    assert relative_error(found, reference(Q, K.T, V)) < 1e-3  # of a score of 1e4 in f32, 1e-3 is unknown


@pytest.mark.sampled(4)
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize(("kind", "out"), [("f32", "f32"), ("f64", "f64"), ("bf16", "f32"), ("f16", "f16")])
def test_batch_matmul(layout, kind, out):
    b, m, n, k = 3, 17, 21, 35
    a_shape = (b, m, k) if layout[0] == "n" else (b, k, m)
    b_shape = (b, k, n) if layout[1] == "n" else (b, n, k)
    A, B, C = (graphs.tensor(*s, t) for s, t in ((a_shape, kind), (b_shape, kind), ((b, m, n), out)))
    run = kernel(f"""
func.func @main(%a: {A}, %b: {B}, %c: {C}) -> {C} {{
  %r = "linalg_ext.batch_matmul"(%a, %b, %c) {{layout = "{layout}"}} : ({A}, {B}, {C}) -> {C}
  return %r : {C}
}}""")
    x, y = inputs(kind, a_shape, b_shape)
    (z,) = inputs(out, (b, m, n))
    left = x if layout[0] == "n" else np.swapaxes(x, 1, 2)
    right = y if layout[1] == "n" else np.swapaxes(y, 1, 2)
    expected = left.astype(float) @ right.astype(float) + z.astype(float)
    assert relative_error(run(x, y, z), expected) < {"f32": 1e-6, "f64": 1e-14, "f16": 1e-3}[out]


@pytest.mark.parametrize("shape", [(5,), (2, 3, 4)])
def test_diag(shape):
    vector, matrix = graphs.tensor(*shape, "f32"), graphs.tensor(*shape, shape[-1], "f32")
    run = kernel(f"""
func.func @main(%x: {vector}) -> {matrix} {{
  %e = tensor.empty() : {matrix}
  %r = "linalg_ext.diag"(%x, %e) : ({vector}, {matrix}) -> {matrix}
  return %r : {matrix}
}}""")
    (x,) = inputs("f32", shape)
    np.testing.assert_array_equal(run(x), x[..., None] * np.eye(shape[-1], dtype=np.float32))


def test_large_heads_are_not_prefetched_line_by_line():
    """There are as many prefetches in the code as a register tile asks for: here thousands."""
    compiled = compile(graphs.unfused((), "?", "?", 16384, 1))
    assert compiled.ir("target").count("memref.prefetch") < 100
    Q, K, V = inputs("f32", (70, 16384), (40, 16384), (40, 1), scale=0.1)
    assert relative_error(compiled(Q, K, V), reference(Q, K, V)) < TOLERANCE["f32"]

"""Kernels whose warps have roles (``specialize-warps``), run block by block by the reference evaluator with a thread
for each role: what they compute, and that none of them waits for ever."""

import numpy as np
import pytest
from attn_opt.compiler import pipelines
from attn_opt.compiler.graphs import Attention
from attn_opt.dialects.assembly import parse_module
from attn_opt.transforms.rewriting import ops_in
from derivative_graphs import Case
from harness import CONTEXT, crossed, relative_error, run_passes
from hypothesis import given
from hypothesis import strategies as st
from probability_graphs import TOLERANCE, Graph
from properties import examples
from warp_roles import run_module

MULTIPROCESSORS = 2  # few: blocks go from tile to tile


def run(graph, inputs, tiles, last="specialize-warps", **options):
    """The result of a graph's kernel after the pass `last`, and how its blocks ran."""
    with CONTEXT, np.errstate(all="ignore"):
        module = parse_module(graph if isinstance(graph, str) else graph.text(), "test.mlir", CONTEXT)
        passes = pipelines.nvidia(**{"parts": 1, "multiprocessors": MULTIPROCESSORS} | options)
        names = [p.partition("{")[0] for p in passes]
        sizes = "tile-sizes=" + (tiles if isinstance(tiles, str) else f"1,1,{tiles[0]},0,{tiles[1]}")
        first = ["raise-attention", f"fuse-attention{{machine=sm_90a {sizes}}}"]
        run_passes([*first, *passes[: names.index(last) + 1]], module)
        (found,), blocks = run_module(module, inputs)
    return found, blocks


def check(graph, tiles, **options):
    inputs = graph.inputs("normal", 0)
    found, blocks = run(graph, inputs, tiles, **options)
    expected, _ = graph.reference(inputs)
    assert np.linalg.norm(found - expected) <= 3e-3 * np.linalg.norm(expected)
    return blocks


SIZES = {"batch": 1, "heads": 2, "queries": 320, "keys": 320, "head_size": 32, "element": "f16"}
CASES = {
    "plain": {},
    "causal": {"window": (None, 0)},
    "causal to the last key": {"window": (None, 0), "bottom_right": True, "keys": 450},
    "more queries than keys": {"window": (None, 0), "bottom_right": True, "keys": 100},
    "window": {"window": (-99, 0)},
    "window of one": {"window": (0, 0)},
    "window on both sides": {"window": (-70, 33)},
    "window behind": {"window": (40, 140)},
    "later keys": {"window": (0, None)},
    "padding": {"window": (-99, 0), "queries": 333, "keys": 365},
    "tiles without keys": {"window": (-500, -270)},
    "alibi": {"window": (-150, 0), "alibi": True},
    "softcap": {"window": (None, 0), "softcap": 20.0},
    "dynamic": {"window": (-99, 0), "dynamic": True},
    "dynamic, later keys": {"window": (0, None), "dynamic": True},
    "dynamic, causal to the last key": {"window": (None, 0), "bottom_right": True, "keys": 450, "dynamic": True},
    "bias": {"window": (-99, 0), "bias": "qk"},
    "sequences": {"groups": ((150, 130), (0, 0), (33, 70), (137, 120))},
    "sequences, causal": {"groups": ((150, 130), (0, 0), (33, 70), (137, 120)), "window": (None, 0)},
    "bias of rows that are not aligned": {"window": (-99, 0), "bias": "hqk", "keys": 319},
}
TILES = [(256, 64), (192, 64), (128, 32), (128, 128)]


@pytest.mark.sampled(12)
@pytest.mark.parametrize(("case", "tiles", "keep_maximum"), crossed(list(CASES), TILES, [True, False]))
def test_against_float64(case, tiles, keep_maximum):
    check(Attention(**SIZES | CASES[case]), tiles, keep_maximum=keep_maximum)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("keep_maximum", [True, False])
@pytest.mark.parametrize("window", [(None, None), (None, 0)])
def test_masks_of_the_least_number(window, keep_maximum):
    """The first keys are padding, all but the last tile of them; some queries have no key."""
    graph = Attention(**SIZES | {"bias": "qk", "window": window, "element": "bf16"})
    *inputs, bias = graph.inputs("normal", 0)
    bias = np.zeros_like(bias)
    bias[..., :256] = bias[..., 5:9, :] = bias[..., 290:, :] = -3.38e38
    found, _ = run(graph, (*inputs, bias), (128, 64), last="shift-low-rows", keep_maximum=keep_maximum)
    expected, _ = graph.reference((*inputs, bias))
    assert np.linalg.norm(found - expected) <= 1e-2 * np.linalg.norm(expected)


@pytest.mark.sampled(3, 2)
@pytest.mark.parametrize("keep_maximum", [True, False])
@pytest.mark.parametrize("window", [(None, None), (None, 0)])
def test_tiles_are_taken_where_masks_are_data(window, keep_maximum):
    """Documents in turns: a block takes the next tile from a number that a warp of its own reads for all others."""
    graph = Attention(**SIZES | {"queries": 1024, "keys": 1024, "documents": (1024,), "window": window})
    inputs = [np.arange(1024, dtype=x.dtype)[None] // 130 % 3 if x.ndim == 2 else x for x in graph.inputs("normal", 0)]
    found, blocks = run(graph, inputs, (128, 64), keep_maximum=keep_maximum)
    expected, _ = graph.reference(inputs)
    assert np.linalg.norm(found - expected) <= 3e-3 * np.linalg.norm(expected)
    assert [len(block.roles) - block.warpgroups for block in blocks] == [2] * MULTIPROCESSORS
    tiles = [block.views[0] > 0 for block in blocks]
    assert all(tiles), "the second block has the tile of its number, which the first one does not take"


# Few queries, which fill the rows of a tile together with heads that share their keys: the tile's sizes along both.
JOINED = {
    "all heads": ({"heads": 4, "heads_kv": 1, "queries": 32}, "4,32"),
    "one warpgroup": ({"heads": 4, "heads_kv": 1, "queries": 16}, "4,16"),
    "some heads": ({"heads": 8, "heads_kv": 2, "queries": 64, "batch": 2}, "2,64"),
    "an odd number of queries, causal": (
        {"heads": 64, "heads_kv": 1, "queries": 3, "window": (None, 0), "bottom_right": True},
        "64,3",
    ),
    "b s h d": ({"heads": 4, "heads_kv": 2, "queries": 64, "input_layout": "bshd"}, "2,64"),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("keep_maximum", [True, False])
@pytest.mark.parametrize("name", JOINED)
def test_heads_that_share_keys(name, keep_maximum):
    fields, rows = JOINED[name]
    blocks = check(Attention(**SIZES | fields), (rows, 64), keep_maximum=keep_maximum)
    assert all(len(block.roles) > block.warpgroups for block in blocks), "the copy engine brings queries, too"


@pytest.mark.sampled(2, 1)
@pytest.mark.parametrize("keep_maximum", [True, False])
@pytest.mark.parametrize("element", ["i1", "bf16"])
def test_weights_of_probabilities(element, keep_maximum):
    """They go to registers once a tile, and each of four has its stage of two: that of the first tile is free before
    the loop over the others, though a tile of 256 rows leaves few registers."""
    graph = Graph("bf16", {"h": 2, "m": 256, "k": 256, "d": 64, "n": 64})
    q, k, v = (graph.argument(name, dims) for name, dims in (("q", "hmd"), ("k", "hkd"), ("v", "hkn")))
    weights = graph.argument("w", "hmk", element)
    weighed = "%r = arith.mulf %in0, %in1 : f32" if element == "bf16" else "%r = arith.select %in1, %in0, %zero : f32"
    p = graph.softmax("p", graph.scores("s", q, k))
    p = graph.elementwise("weighed", "hmk", [(p, "hmk"), (weights, "hmk")], [weighed])
    inputs = graph.inputs()
    found, _ = run(graph.text(p, v), inputs, "1,256,0,64", keep_maximum=keep_maximum)
    q, k, v, w = (x.astype(np.float64) for x in inputs)
    scores = np.einsum("hmd,hkd->hmk", q, k) / 4
    e = np.exp(scores - scores.max(-1, keepdims=True))
    expected = np.einsum("hmk,hkn->hmn", e / e.sum(-1, keepdims=True) * w, v)
    assert np.linalg.norm(found - expected) <= 1e-2 * np.linalg.norm(expected)


@pytest.mark.parametrize(("m", "tiles"), [(200, 1), (64, 2), (300, 3)])
def test_weights_are_copied_ahead(m, tiles):
    """By a warp beside the one that waits for the kernel before."""
    rng = np.random.default_rng(0)
    x, v, w = (rng.normal(size=shape).astype(np.float16) for shape in ((m, 128), (128, 320), (320, 128 * tiles)))
    inputs = (x, v / 16, w / 16)
    with CONTEXT, np.errstate(all="ignore"):
        module = parse_module(two_matmuls(m, tiles), "test.mlir", CONTEXT)
        passes = pipelines.nvidia(multiprocessors=MULTIPROCESSORS)
        names = [p.partition("{")[0] for p in passes]
        run_passes(passes[: names.index("specialize-warps") + 1], module)
        (found,), blocks = run_module(module, inputs)
    assert [len(block.roles) - block.warpgroups for block in blocks] == [1] * (len(blocks) // 2) + [2] * (
        len(blocks) // 2
    )
    x, v, w = (array.astype(np.float64) for array in inputs)
    np.testing.assert_allclose(found, (x @ v).astype(np.float16) @ w, atol=2e-2)


def two_matmuls(m, tiles):
    """(x·v)·w, of f16."""
    x, v, w, y, z = f"{m}x128", "128x320", f"320x{128 * tiles}", f"{m}x320", f"{m}x{128 * tiles}"
    same = "affine_map<(i, j) -> (i, j)>"
    return f"""
func.func @main(%x: tensor<{x}xf16>, %v: tensor<{v}xf16>, %w: tensor<{w}xf16>) -> tensor<{z}xf32> {{
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<{y}xf32>
  %i = linalg.fill ins(%zero : f32) outs(%e : tensor<{y}xf32>) -> tensor<{y}xf32>
  %s = linalg.matmul ins(%x, %v : tensor<{x}xf16>, tensor<{v}xf16>) outs(%i : tensor<{y}xf32>) -> tensor<{y}xf32>
  %h = tensor.empty() : tensor<{y}xf16>
  %y = linalg.generic {{indexing_maps = [{same}, {same}], iterator_types = ["parallel", "parallel"]}}
      ins(%s : tensor<{y}xf32>) outs(%h : tensor<{y}xf16>) {{
  ^bb0(%a: f32, %o: f16):
    %r = arith.truncf %a : f32 to f16
    linalg.yield %r : f16
  }} -> tensor<{y}xf16>
  %f = tensor.empty() : tensor<{z}xf32>
  %j = linalg.fill ins(%zero : f32) outs(%f : tensor<{z}xf32>) -> tensor<{z}xf32>
  %z = linalg.matmul ins(%y, %w : tensor<{y}xf16>, tensor<{w}xf16>) outs(%j : tensor<{z}xf32>) -> tensor<{z}xf32>
  return %z : tensor<{z}xf32>
}}"""


@pytest.mark.parametrize("window", [(-99, 0), (None, 0)])
def test_warpgroups_look_at_the_keys_of_their_rows_alone(window):
    graph = Attention(**SIZES | {"window": window, "queries": 512, "keys": 512})
    blocks = check(graph, (256, 64), keep_maximum=False)  # which would do some again
    live = np.zeros((graph.queries // 64, graph.keys // 64), bool)  # of rows and keys of 64 each
    for i in range(graph.queries):
        first = 0 if window[0] is None else max(i + window[0], 0)
        live[i // 64, first // 64 : max(min(i + window[1], graph.keys - 1), -1) // 64 + 1] = True
    tiles = graph.heads * -(-graph.queries // 256)
    for warpgroup in range(4):
        keys = graph.heads * np.maximum(live[warpgroup::4].sum(axis=1), 1).sum()
        assert sum(block.views[warpgroup] for block in blocks) == tiles + 2 * keys  # queries; keys and values


@examples(10)
@given(
    st.tuples(st.integers(-300, 60), st.integers(0, 300)),
    st.sampled_from(TILES),
    st.tuples(st.integers(257, 520), st.integers(257, 520)),
)
@pytest.mark.slow
def test_windows_of_any_size(window, tiles, sizes):
    window = (window[0], window[0] + window[1])
    check(Attention(**SIZES | {"window": window, "queries": sizes[0], "keys": sizes[1]}), tiles)


@pytest.mark.sampled(12)
@pytest.mark.parametrize(("masked", "modified"), crossed(["", "causal", "low", "shared"], ["", "capped", "dropped"]))
@pytest.mark.parametrize("d", [64, 96])
def test_derivatives(masked, modified, d):
    """Loops that wait once an iteration for all that it needs (``shared_barriers.py``)."""
    case = Case({"h": 2, "m": 260, "k": 200, "d": d, "n": d}, "bf16", "torch", masked, modified)
    text, inputs = case.graph()
    with CONTEXT, np.errstate(all="ignore"):
        module = parse_module(text, "test.mlir", CONTEXT)
        passes = pipelines.nvidia(parts=1, multiprocessors=MULTIPROCESSORS)
        last = [p.partition("{")[0] for p in passes].index("specialize-warps")
        run_passes(["raise-attention", "fuse-attention{machine=sm_90a}", *passes[: last + 1]], module)
        assert barriers_shared(module)
        found, _ = run_module(module, inputs)
    for result, wanted in zip(found, case.expected(inputs), strict=True):
        assert relative_error(result, wanted) < TOLERANCE["bf16"]


def barriers_shared(module):
    """How many buffers of tiles have the barriers of another one, in all kernels."""
    copies = [op.operands[2] for op in ops_in(module.operation, "tile.copy_bulk")]
    return len(copies) - len({*copies})

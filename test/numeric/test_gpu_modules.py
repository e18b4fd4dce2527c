"""What stands in and around kernels for NVIDIA GPUs, at the level of tiles, against float64, without a GPU."""

import numpy as np
import pytest
from attn_opt.compiler import compile
from attn_opt.compiler.graphs import Attention
from attn_opt.compiler.runtime.signature import Signature
from attn_opt.compiler.sources import find_entry, load_text
from attn_opt.dialects.reference.evaluator import evaluate
from gpu_modules import Launches, run_module
from graphs import unfused
from harness import crossed
from narrow_attention import NarrowAttention
from probability_graphs import Graph, softmax

PACKED = {"packed": "3hd", "input_layout": "bshd"}
CASES = {
    "head size 1": {"head_size": 1, "lse": True},
    "head size 1, causal": {"head_size": 1, "window": (None, 0), "heads_kv": 1},
    "values of size 1": {"value_size": 1},
    "one key": {"keys": 1, "lse": True, "heads_kv": 1},
    "one of everything": {"heads": 1, "queries": 1, "keys": 1, "head_size": 1},
    "a tile that is none": {"heads": 1, "queries": 1, "keys": 3, "window": (None, 0), "bottom_right": True},
    "stored by head dimension": {"input_layout": "bhds", "output_layout": "bhds", "head_size": 40},
    "stored by head dimension, as many as rows": {"input_layout": "hbds", "head_size": 64},
    "grouped, with log-sum-exp": {"heads": 4, "heads_kv": 2, "lse": True},
    "grouped, packed, one token": PACKED | {"heads": 6, "heads_kv": 2, "queries": 1, "keys": 1},
    "grouped, packed, one token of odd heads": PACKED
    | {"heads": 9, "heads_kv": 3, "queries": 1, "keys": 1, "head_size": 33},
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("element", ["f16", "f32"])
@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("name", CASES)
def test_against_float64(name, arch, element):
    graph = Attention(
        **{"heads": 2, "queries": 40, "keys": 72, "head_size": 16, "element": element, "input_layout": "bhsd"}
        | CASES[name]
    )
    inputs = graph.inputs("normal", 0)
    found = run_module(graph.text(), [x.astype(np.float64) for x in inputs], arch=arch)
    expected, _ = graph.reference(inputs)
    output = found[0].transpose([graph.output_layout.index(letter) for letter in "bhsd"])
    assert np.abs(output - expected).max() <= (3e-3 if element == "f16" else 3e-6) * np.abs(expected).max()
    if graph.lse:
        q, k = (x.astype(np.float64) for x in inputs[:2])
        scores = graph.factor * q @ np.repeat(k, graph.heads // graph.kv, axis=1).swapaxes(2, 3)
        np.testing.assert_allclose(found[1], np.log(np.exp(scores).sum(-1)), rtol=0, atol=1e-4)
        assert graph.keys == 1 or len(Launches.kernels) == 1, "it is computed on the tiles"


@pytest.mark.sampled(5)
@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("keys", [1, 72, 600])
@pytest.mark.parametrize("queries", [1, 2])
def test_heads_that_stand_side_by_side(queries, keys, arch):
    """Queries as a projection makes them, [batch, queries, heads · d]: the rows of a tile are parts of a row of it."""
    graph = Attention(2, 6, 2, queries, keys, 16, element="f16", input_layout="bshd")
    flat, apart = f"tensor<2x{queries}x96xf16>", f"tensor<2x{queries}x6x16xf16>"
    head, body = graph.text().split("{\n", 1)
    assert f"%q: {apart}" in head
    split = (
        f"%q = tensor.expand_shape %flat [[0], [1], [2, 3]] output_shape [2, {queries}, 6, 16] : {flat} into {apart}"
    )
    text = f"{head.replace(f'%q: {apart}', f'%flat: {flat}')}{{\n  {split}\n{body}"
    inputs = graph.inputs("normal", 0)
    q, k, v = (x.astype(np.float64) for x in inputs)
    (found,) = run_module(text, [q.reshape(2, queries, 96), k, v], arch=arch)
    expected, _ = graph.reference(inputs)
    assert np.abs(found - expected).max() <= 3e-3 * np.abs(expected).max()


@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("queries", [1, 3])
def test_keys_behind_those_of_a_cache(queries, arch):
    """Of one head, all in one tile, whose elements are read where they come from."""
    graph = Attention(1, 1, 1, queries, 7, 16, element="f16", input_layout="bhsd")
    head, body = graph.text().split("{\n", 1)
    whole, past, new = (f"tensor<1x1x{n}x16xf16>" for n in (7, 5, 2))
    joined = ""
    for name in "kv":
        assert f"%{name}: {whole}" in head
        head = head.replace(f"%{name}: {whole}", f"%{name}0: {past}, %{name}1: {new}")
        joined += f"  %{name} = tensor.concat dim(2) %{name}0, %{name}1 : ({past}, {new}) -> {whole}\n"
    inputs = graph.inputs("normal", 0)
    q, k, v = (x.astype(np.float64) for x in inputs)
    parts = [part for x in (k, v) for part in np.split(x, [5], axis=2)]
    text = f"{head}{{\n{joined}{body}"
    (found,) = run_module(text, [q, *parts], arch=arch)
    expected, _ = graph.reference(inputs)
    assert np.abs(found - expected).max() <= 3e-3 * np.abs(expected).max()
    assert ".entry" in compile(text, target="nvidia", arch=arch).ir("ptx")


# Few queries of heads that share keys: rows of a tile are both.
SHARED_KEYS = {
    "plain": {},
    "causal, with log-sum-exp": {"window": (None, 0), "bottom_right": True, "lse": True},
    "a window": {"window": (-70, 0), "bottom_right": True},
    "a bias of all heads": {"bias": "qk"},
    "a bias of each head": {"bias": "bhqk"},
    "a bias of each head, of keys": {"bias": "hk"},
    "a bias of queries": {"bias": "bq"},
    "a mask of all heads": {"mask": "qk"},
    "a mask of each head": {"mask": "bhqk", "softcap": 20.0},
    "alibi": {"alibi": True},
    "alibi, causal": {"alibi": True, "window": (None, 0), "bottom_right": True},
    "lengths": {"lengths": (0, 150), "window": (None, 0), "bottom_right": True},
    "b s h d": {"input_layout": "bshd", "output_layout": "bshd", "lse": True},
    "heads outermost": {"input_layout": "hbsd", "output_layout": "sbhd"},
    "odd head sizes": {"head_size": 17, "value_size": 9},
    "values by columns": {"values_transposed": True},
    "a group that is none": {"queries": 16, "heads": 10},
    "many heads": {"queries": 1, "heads": 71, "heads_kv": 1, "batch": 1},
    "the most queries": {"queries": 32},
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("name", "parts", "element", "arch"), crossed(list(SHARED_KEYS), [1, 2], ["f16", "f32"], ["sm_90a", "sm_80"])
)
def test_few_queries_of_heads_that_share_keys(name, parts, element, arch):
    sizes = {"batch": 2, "heads": 6, "heads_kv": 2, "queries": 7, "keys": 150, "head_size": 16, "element": element}
    graph = Attention(**sizes | SHARED_KEYS[name])
    inputs = graph.inputs("normal", 0)
    wide = [x.astype(np.float64) if x.dtype.kind == "f" else x for x in inputs]
    found = run_module(graph.text(), wide, parts=parts, arch=arch)
    expected, lse = graph.reference(inputs)
    assert np.abs(graph.canonical_output(found[0]) - expected).max() <= 3e-3 * np.abs(expected).max()
    assert not graph.lse or np.abs(found[1] - lse).max() <= 1e-3


# Versions for few queries, whose number is known at run time only: they are right for any.
OPEN_QUERIES = {
    "one": {"queries": 1},
    "a tile": {"queries": 10, "window": (None, 0), "bottom_right": True, "lse": True},
    "more than a tile": {"queries": 25, "window": (-70, 0), "bottom_right": True},
    "a bias": {"queries": 7, "bias": "bhqk"},
    "b s h d": {"queries": 20, "input_layout": "bshd", "output_layout": "bshd"},
    "heads of their own": {"queries": 18, "heads_kv": 0, "alibi": True},
    "more heads than rows": {"queries": 2, "heads": 70, "heads_kv": 1, "batch": 1},
    "lengths": {"queries": 3, "lengths": (0, 77)},
}


@pytest.mark.sampled(6, 5)
@pytest.mark.parametrize("version", ["few_queries", "few_blocks"])
@pytest.mark.parametrize(("name", "element", "arch"), crossed(list(OPEN_QUERIES), ["f16", "f32"], ["sm_90a", "sm_80"]))
def test_versions_for_few_queries(name, element, arch, version):
    sizes = {"batch": 2, "heads": 8, "heads_kv": 2, "keys": 150, "head_size": 16, "element": element, "dynamic": True}
    graph = Attention(**sizes | OPEN_QUERIES[name])
    inputs = graph.inputs("normal", 0)
    wide = [x.astype(np.float64) if x.dtype.kind == "f" else x for x in inputs]
    found = run_module(graph.text(), wide, version=f"attention_{version}", multiprocessors=8, arch=arch)
    expected, lse = graph.reference(inputs)
    assert np.abs(graph.canonical_output(found[0]) - expected).max() <= 3e-3 * np.abs(expected).max()
    assert not graph.lse or np.abs(found[1] - lse).max() <= 1e-3
    assert all(version in kernel for kernel in Launches.kernels)
    splits = version == "few_blocks" and graph.kv < 8  # as many as there are multiprocessors
    assert len(Launches.kernels) == 1 + splits


# Where loops of some tiles of queries have no iteration: their first tile would be behind the last key.
FEW_KEYS = {
    "causal, in groups": {"heads": 2, "heads_kv": 1, "window": (None, 0)},
    "more queries": {"queries": 320, "window": (None, 0)},
    "more queries, from the last": {"queries": 320, "window": (None, 0), "bottom_right": True},
    "more keys": {"queries": 128, "keys": 256, "window": (None, 0)},
    "a window": {"window": (-70, 0)},
    "a window, more queries": {"queries": 320, "window": (-70, 0)},
    "a window, more queries, from the last": {"queries": 320, "window": (-100, 30), "bottom_right": True},
    "a window behind all keys": {"keys": 128, "window": (100, 200)},
    "lengths": {"batch": 3, "queries": 128, "lengths": (0, 64, 192), "window": (None, 0)},
    "lengths, from the last": {
        "batch": 3,
        "queries": 128,
        "lengths": (0, 1, 192),
        "window": (-70, 0),
        "bottom_right": True,
    },
    "sequences in a row": {"keys": 256, "groups": ((128, 64), (0, 64), (64, 128)), "window": (None, 0)},
    "open sizes": {"queries": 256, "dynamic": True, "window": (None, 0)},
    "bias": {"queries": 256, "bias": "hqk", "window": (None, 0)},
    "packed": {"queries": 128, "keys": 128, "packed": "3hd", "input_layout": "bshd", "window": (None, 0)},
    "stored by head dimension": {"queries": 256, "input_layout": "bhds", "window": (None, 0)},
    "d 128": {"queries": 256, "keys": 128, "head_size": 128, "window": (None, 0)},
    "d 128, a tile": {"queries": 64, "keys": 64, "head_size": 128, "dynamic": True},
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("name", "parts", "element", "arch"), crossed(list(FEW_KEYS), [1, 2], ["f16", "f32"], ["sm_80", "sm_90a"])
)
def test_no_read_behind_the_last_key(name, parts, element, arch):
    sizes = {"heads": 1, "queries": 192, "keys": 192, "head_size": 16} | FEW_KEYS[name]
    graph = Attention(**sizes, value_size=0 if "packed" in sizes else 16, element=element)
    inputs = graph.inputs("normal", 0)
    wide = [x.astype(np.float64) if x.dtype.kind == "f" else x for x in inputs]
    output = run_module(graph.text(), wide, parts=parts, arch=arch, copy_engine=False)[0]
    expected, _ = graph.reference(inputs)
    assert np.abs(graph.canonical_output(output) - expected).max() <= 3e-3 * np.abs(expected).max()
    assert len(Launches.kernels) >= parts, "parts, and their merge"


# One tile of queries, and no loop over heads: what merges the parts stands in no loop of its own.
SINGLE_TILES = {
    "one query": {"heads": 1, "queries": 1},
    "heads that share all": {"heads": 6, "heads_kv": 1, "queries": 1, "lse": True},
    "a tile": {"heads": 1, "queries": 40, "lse": True, "window": (None, 300)},
    "values of size 1": {"heads": 1, "queries": 40, "value_size": 1},
    "a result by columns": {"heads": 1, "queries": 1, "output_layout": "bhds", "value_size": 33},
}


@pytest.mark.parametrize(
    ("name", "parts", "element", "arch"), crossed(list(SINGLE_TILES), [2, 33], ["f16", "f32"], ["sm_90a", "sm_80"])
)
def test_parts_of_a_single_tile_are_merged_by_one_kernel(name, parts, element, arch):
    sizes = {"keys": 300 if parts == 2 else 2200, "head_size": 16, "element": element}
    graph = Attention(**sizes | SINGLE_TILES[name])
    inputs = graph.inputs("normal", 0)
    found = run_module(graph.text(), [x.astype(np.float64) for x in inputs], parts=parts, arch=arch)
    expected, lse = graph.reference(inputs)
    assert np.abs(graph.canonical_output(found[0]) - expected).max() <= 3e-3 * np.abs(expected).max()
    assert not graph.lse or np.abs(found[1] - lse).max() <= 1e-3
    assert len(Launches.kernels) == 2


@pytest.mark.parametrize("kind", ["f16", "f32"])
@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
def test_a_tile_that_may_be_of_any_size_is_none(arch, kind):
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal(shape) for shape in ((7, 6), (3, 6), (3, 5)))
    (found,) = run_module(unfused((), 7, 3, "?", 5, kind), [q, k, v], arch=arch)
    p = np.exp(q @ k.T)
    assert np.abs(found - p @ v / p.sum(-1, keepdims=True)).max() <= (3e-3 if kind == "f16" else 3e-6)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize(
    ("types", "keys"), [(("f32", "bf16", "f16"), 40), (("f16", "bf16", "bf16"), 300), (("bf16", "f32", "f16"), 300)]
)
def test_a_cache_of_other_types_than_queries(types, keys, arch):
    """A program's conversions of it are no ops of their own by then."""
    graph = Graph("f32", {"h": 2, "m": 40, "k": keys, "d": 16, "n": 24})
    q, k, v = (
        (graph.argument(name, dims, kind), dims, kind)
        for name, dims, kind in zip("qkv", ("hmd", "hkd", "hkn"), types, strict=True)
    )
    graph.filled("s_init", "%zero", "hmk")
    graph.contraction("s", "hmkd", q, k, "hmk")
    p = graph.softmax("p", "%s")
    graph.filled("o_init", "%zero", "hmn")
    graph.contraction("o", "hmnk", (p, "hmk", "f32"), v, "hmn")
    text, inputs = graph.function("%o"), [x.astype(np.float64) / 2 for x in graph.inputs()]
    (found,) = run_module(text, inputs, arch=arch)
    q, k, v = inputs
    assert np.abs(found - softmax(q @ k.swapaxes(-1, -2)) @ v).max() < 2e-3
    assert Launches.kernels == ["f_0"] and compile(text, target="nvidia", arch=arch).ir("ptx")


@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("keys", [45, 300])
def test_a_query_that_is_a_vector(keys, arch):
    scores = f"tensor<{keys}xf32>"
    arguments = f"%q: tensor<16xf32>, %k: tensor<{keys}x16xf32>, %v: tensor<{keys}x24xf32>"
    text = f"""func.func @one({arguments}) -> tensor<24xf32> {{
  %zeros = arith.constant dense<0.0> : {scores}
  %zero = arith.constant dense<0.0> : tensor<24xf32>
  %s = linalg.matvec ins(%k, %q : tensor<{keys}x16xf32>, tensor<16xf32>) outs(%zeros : {scores}) -> {scores}
  %p = linalg.softmax dimension(0) ins(%s : {scores}) outs(%zeros : {scores}) -> {scores}
  %o = linalg.vecmat ins(%p, %v : {scores}, tensor<{keys}x24xf32>) outs(%zero : tensor<24xf32>) -> tensor<24xf32>
  return %o : tensor<24xf32>
}}"""
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal(shape) for shape in ((16,), (keys, 16), (keys, 24)))
    (found,) = run_module(text, [q, k, v], arch=arch)
    p = np.exp(k @ q)
    assert np.abs(found - p @ v / p.sum()).max() <= 3e-6


# What stands around attention of a single tile suits no tile, and has kernels of its own.
AROUND = {
    "packed by heads": ({"packed": "h3d", "input_layout": "bshd"}, 4),
    "sequences in a row": ({"groups": ((10, 12), (30, 28)), "window": (None, 0)}, 5),
}


@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("name", AROUND)
def test_what_stands_around_a_single_tile(name, arch):
    fields, kernels = AROUND[name]
    graph = Attention(heads=1, queries=40, keys=40, head_size=16, element="f16", **fields)
    inputs = graph.inputs("normal", 0)
    wide = [x.astype(np.float64) if x.dtype.kind == "f" else x for x in inputs]
    (found,) = run_module(graph.text(), wide, arch=arch)
    expected, _ = graph.reference(inputs)
    assert np.abs(found - expected).max() <= 3e-3 * np.abs(expected).max()
    assert len(Launches.kernels) <= kernels


# With what the matmul of scores starts, of four warpgroups.
BIASES = {
    "of all heads": {"bias": "qk"},
    "of each head": {"bias": "bhqk", "element": "bf16"},
    "causal": {"bias": "hqk", "window": (None, 0)},
    "without a scale": {"bias": "hqk", "scale": 1.0},
    "with another scale": {"bias": "hqk", "scale": 0.175, "window": (None, 0)},
    "and a mask": {"bias": "qk", "mask": "hqk"},
    "that is -inf": {"bias": "qk", "scale": 0.175},
    "that is the least number": {"bias": "qk", "scale": 0.175, "element": "bf16"},
}


@pytest.mark.parametrize("name", BIASES)
def test_scores_that_start_with_a_bias(name):
    graph = Attention(**{"heads": 2, "queries": 300, "keys": 112, "head_size": 16, "element": "f16"} | BIASES[name])
    inputs = [x.astype(np.float64) for x in graph.inputs("normal", 0)]
    if "that is" in name:
        inputs[3][:, :, ::3, 40:] = inputs[3][:, :, 1] = -np.inf if "inf" in name else -(2.0**127)
    found = run_module(graph.text(), inputs, last="split-scales", tile_sizes="1,1,256,0,64")
    expected, _ = graph.reference(inputs)
    assert np.abs(found[0] - expected).max() <= 5e-3 * np.abs(expected).max()


def with_computed_scale(graph: NarrowAttention) -> str:
    """Keys are multiplied by what is computed of a vector."""
    text = graph.text().replace(f"%key_scale: tensor<{graph.k}xf32>", f"%logs: tensor<{graph.k}xf32>")
    made = f"""{{
%scale_e = tensor.empty() : tensor<{graph.k}xf32>
%key_scale = linalg.generic {{indexing_maps = [affine_map<(k) -> (k)>, affine_map<(k) -> (k)>],
    iterator_types = ["parallel"]}} ins(%logs : tensor<{graph.k}xf32>) outs(%scale_e : tensor<{graph.k}xf32>) {{
  ^bb0(%x: f32, %y: f32):
    %e = math.exp %x : f32
    linalg.yield %e : f32
}} -> tensor<{graph.k}xf32>
"""
    return text.replace("{\n", made, 1)


@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("page", [0, 16])
def test_keys_that_are_computed_from_what_is_computed(page, arch):
    graph = NarrowAttention(70, 90, 16, 16, element="f16", key_scale=True, page=page, causal=True, scale=0.1)
    text = with_computed_scale(graph)
    rng = np.random.default_rng(0)
    module = load_text(text, "test.mlir")
    shapes = [[5 if n is None else n for n in slot.shape] for slot in Signature.of(find_entry(module, None)).arguments]
    inputs = [rng.standard_normal(shape) for shape in shapes]
    if page:
        inputs[-1] = rng.integers(0, 5, shapes[-1])
    (found,), (expected,) = run_module(text, inputs, arch=arch, parts=1), evaluate(module, inputs)
    assert np.abs(found - expected).max() <= 3e-3 * np.abs(expected).max()
    assert len(Launches.kernels) == 1, "it is computed on the tiles"


@pytest.mark.parametrize("rows", [1, 5])
def test_sums_of_what_is_filled(rows):
    """Nothing is filled for a kernel that is not a loop over tiles: a mask of zeros, as ONNX's Attention has it."""
    text = """func.func @main(%x: tensor<?x3xf32>) -> tensor<?xf32> {
      %c0 = arith.constant 0 : index
      %number = arith.constant 1.5 : f32
      %zero = arith.constant 0.0 : f32
      %n = tensor.dim %x, %c0 : tensor<?x3xf32>
      %e = tensor.empty(%n, %n) : tensor<?x?xf32>
      %f = linalg.fill ins(%number : f32) outs(%e : tensor<?x?xf32>) -> tensor<?x?xf32>
      %re = tensor.empty(%n) : tensor<?xf32>
      %r0 = linalg.fill ins(%zero : f32) outs(%re : tensor<?xf32>) -> tensor<?xf32>
      %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
        iterator_types = ["parallel", "reduction"]} ins(%f : tensor<?x?xf32>) outs(%r0 : tensor<?xf32>) {
      ^bb0(%a: f32, %z: f32):
        %s = arith.addf %a, %z : f32
        linalg.yield %s : f32
      } -> tensor<?xf32>
      return %r : tensor<?xf32>
    }"""
    compile(text, target="nvidia", arch="sm_90a", multiprocessors=132)
    assert np.array_equal(run_module(text, [np.zeros((rows, 3))])[0], np.full(rows, 1.5 * rows))

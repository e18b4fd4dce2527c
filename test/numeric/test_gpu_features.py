"""Random combinations of features and sizes on a GPU with a copy engine, against float64. (Without one:
test_gpu_roles.py, test_gpu_tiles.py.) A test's number is the seed of what it draws."""

import random
from dataclasses import replace

import numpy as np
import pytest
from attn_opt.compiler import compile
from attn_opt.compiler.graphs import Attention
from gpu import needs_hopper
from gpu import poisoned as poisoned

SEEDS = range(150)
LARGE_TILES = 3  # of so many seeds one has tiles as if there were queries for a GPU of one multiprocessor
QUERIES = (1, 65, 100, 128, 200, 256, 257, 300, 384, 512, 640, 700)
KEYS = (64, 65, 128, 200, 301, 448, 512, 700, 1000)
HEAD_SIZES = (16, 32, 36, 40, 64, 64, 64, 72, 80, 96, 128, 128, 128, 256)
WINDOWS = {
    "none": lambda pick: (None, None),
    "causal": lambda pick: (None, 0),
    "window": lambda pick: (-pick((0, 31, 64, 127, 128, 200, 255, 400)), 0),
    "both sides": lambda pick: (-pick((10, 64, 150)), pick((0, 5, 64, 130))),
    "later": lambda pick: (0, None),
    "odd": lambda pick: (pick((-300, -77, 20)), pick((25, 60, 200))),  # rows without a key, too
}
SOFTCAPS = (5.0, 20.0, 30.0, 43.0, 44.0, 50.0, 57.0, 58.5, 60.0)


def drawn(seed):
    """A graph, options of the compiler, and what queries are multiplied by."""
    rng = random.Random(seed)
    pick = rng.choice

    def maybe(share, value, other):
        return value() if rng.random() < share else other

    queries, heads = pick(QUERIES), pick((1, 2, 4))
    graph = Attention(
        batch=pick((1, 2)),
        heads=heads,
        heads_kv=maybe(0.2, lambda: 1, 0),
        queries=queries,
        keys=pick((queries, queries, *KEYS)),
        head_size=pick(HEAD_SIZES),
        element=pick(("f16", "bf16")),
        window=WINDOWS[pick(list(WINDOWS))](pick),
        bottom_right=maybe(0.3, lambda: True, False),
        softcap=maybe(0.3, lambda: pick(SOFTCAPS), 0.0),
        alibi=maybe(0.3, lambda: True, False),
        bias=maybe(0.15, lambda: pick(("qk", "hqk", "bhqk", "k", "hk", "bq")), ""),
        mask=maybe(0.1, lambda: pick(("qk", "bhqk", "bk")), ""),
        lse=maybe(0.2, lambda: True, False),
        dynamic=maybe(0.25, lambda: True, False),
        input_layout=maybe(0.15, lambda: "bshd", "bhsd"),
        scale=maybe(0.1, lambda: pick((0.125, 0.3, 1.0)), None),
    )
    options = {"keep_maximum": False} if rng.random() < 0.3 else {}
    return graph, options, pick((1.0, 1.0, 1.0, 3.0, 8.0))


def drawn_widely(seed):
    """The same, of all types, layouts and lengths, for all architectures; few queries, too."""
    rng = random.Random(seed)
    pick = rng.choice

    def maybe(share, values, other):
        return pick(values) if rng.random() < share else other

    heads, element = pick((1, 2, 3, 4, 6, 8)), pick(("f16", "bf16", "f16", "bf16", "f32", "f8E4M3FN"))
    queries = pick((1, 1, 2, 7, 16, 33, 64, 65, 100, 128, 129, 200, 256, 257, 300, 384, 512, 640))
    keys = pick((queries, queries, 1, 5, 64, 65, 128, 200, 301, 448, 512, 700, 1000, 2049))
    packed = maybe(0.08, ("3hd", "h3d"), "")
    fields = {"batch": pick((1, 2, 3)), "heads": heads, "queries": queries, "keys": queries if packed else keys}
    sequences = maybe(0.25, ("lengths", "lengths", "groups"), "") if not packed else ""
    if sequences == "lengths":
        fields["lengths"] = tuple(rng.randint(0, keys) for _ in range(fields["batch"]))
    if sequences == "groups":
        groups = tuple((rng.randint(1, 150), rng.randint(1, 200)) for _ in range(pick((1, 2, 3, 5))))
        fields |= {"batch": 1, "groups": groups}
        fields |= {"queries": sum(q for q, _ in groups), "keys": sum(k for _, k in groups)}
    layouts = ("bshd", "sbhd", "hbsd", "bhsd")
    graph = Attention(
        **fields,
        heads_kv=maybe(0.3, [n for n in range(1, heads + 1) if heads % n == 0], 0) if packed != "h3d" else 0,
        head_size=pick((8, 16, 20, 32, 33, 40, 48, 64, 64, 64, 72, 80, 96, 100, 128, 128, 160, 192, 256)),
        value_size=maybe(0.2, (8, 16, 24, 40, 64, 96, 128), 0) if not packed else 0,
        values_transposed=maybe(0.1, (True,), False) if not packed else False,
        element=element,
        output=pick(("f16", "f8E4M3FN", "f32", "bf16")) if element[:2] == "f8" else maybe(0.1, ("f32", "f16"), ""),
        window=WINDOWS[pick(list(WINDOWS))](pick),
        bottom_right=maybe(0.3, (True,), False),
        softcap=maybe(0.2, SOFTCAPS, 0.0),
        alibi=maybe(0.2, (True,), False),
        bias=maybe(0.2, ("qk", "hqk", "bhqk", "k", "hk", "bq", "h", "q"), ""),
        mask=maybe(0.15, ("qk", "bhqk", "bk", "hqk", "q"), ""),
        lse=maybe(0.2, (True,), False),
        dynamic=maybe(0.25, (True,), False),
        input_layout="bshd" if packed else maybe(0.3, layouts, "bhsd"),
        output_layout=maybe(0.3, layouts, "bhsd"),
        packed=packed,
    )
    options = {"arch": maybe(0.3, ("sm_80",), "sm_90a")}
    if options["arch"] == "sm_90a":
        options |= maybe(
            0.5, ({"copy_engine": False}, {"keep_maximum": False}, *({"stages": n} for n in (1, 2, 3))), {}
        )
    options |= maybe(0.2, [{"split_keys": n} for n in (1, 2, 3, 7)], {})
    options |= maybe(0.1, ({"any_strides": True},), {})
    return graph, options, pick((1.0, 1.0, 1.0, 3.0, 8.0))


def drawn_documents(seed):
    """What is drawn widely, of documents that stand one after the other, or of padding; not of lengths or groups."""
    graph, options, factor = drawn_widely(seed)
    rng = random.Random(f"documents {seed}")
    pick = rng.choice
    fields = {"lengths": (), "groups": (), "mask": "bk"}
    if rng.random() < 0.75:
        documents = (
            *(pick((0, 1, 7, 33, 64, 100, 128, 300)) for _ in range(pick((0, 1, 2, 4)))),
            pick((1, 5, 64, 200)),
        )
        tokens = sum(documents)
        fields |= {"documents": documents, "queries": tokens, "keys": tokens, "mask": pick(("", "", "", "bk"))}
    return replace(graph, **fields), options, factor


ERRORS = {"bf16": 8e-3, "f16": 1.6e-3, "f32": 3e-5, "f8E4M3FN": 6e-2}


def inputs_of(graph, factor, seed):
    inputs = [x.copy() for x in graph.inputs("normal", seed)]
    if not graph.packed:
        inputs[0] = (inputs[0].astype(np.float32) * factor).astype(inputs[0].dtype)
    return inputs


FACTORS = {0: -1, 3: -3 * 10**8}  # of numbers of documents: also such whose differences have more than 32 bits


def reordered(graph, inputs, seed):
    """Documents whose numbers are in another order, or are repeated; padding at both ends, or at none."""
    rng, (*inputs, numbers) = np.random.default_rng(seed), inputs
    if graph.documents:
        how = seed % 4
        numbers = rng.permuted(numbers, axis=1) if how == 1 else numbers % 2 if how == 2 else numbers * FACTORS[how]
    else:
        start, end = np.sort(rng.integers(0, graph.keys + 1, (2, graph.batch, 1)), axis=0)
        j = np.arange(graph.keys)
        numbers = ((j >= start) & (j < end) if seed % 3 else (j < start) | (j >= end))[:, None, None]
    return [*inputs, numbers]


def check(graph, options, factor, seed, inputs=None):
    inputs = inputs_of(graph, factor, seed) if inputs is None else inputs
    kernel = compile(graph.text(), target="nvidia", **options)
    found = kernel(*inputs)
    out = found[0] if graph.lse else found
    expected, sums = graph.reference(inputs)
    limit = max(ERRORS[graph.element] * (4 if graph.softcap else 1), ERRORS[graph.output_element])  # caps: approximated
    result = graph.canonical_output(np.asarray(out).astype(np.float64))
    assert np.linalg.norm(result - expected) <= limit * np.linalg.norm(expected), graph
    dead = ~np.isfinite(sums)
    assert not result[dead].any(), "rows without a key are 0"
    if graph.lse:
        np.testing.assert_array_equal(np.isfinite(found[1]), ~dead)
        exact = 2e-2 if graph.element == "f8E4M3FN" else 5e-3
        close = exact + 1e-3 * graph.softcap + 4e-4 * np.abs(sums[~dead]).max(initial=0)
        np.testing.assert_allclose(np.float64(found[1])[~dead], sums[~dead], atol=close)
    again = kernel(*inputs)
    np.testing.assert_array_equal(np.asarray(out), np.asarray(again[0] if graph.lse else again))


def tiles(seed):
    """Options of the compiler: with one multiprocessor, tiles are as large as for many queries."""
    return {"multiprocessors": 1} if seed % LARGE_TILES == 0 else {}


@needs_hopper
@pytest.mark.parametrize("seed", SEEDS)
def test_against_float64(seed, poisoned):
    graph, options, factor = drawn(seed)
    check(graph, {"arch": "sm_90a", **tiles(seed), **options}, factor, seed)


@needs_hopper
@pytest.mark.parametrize("seed", SEEDS)
def test_all_features_against_float64(seed, poisoned):
    graph, options, factor = drawn_widely(seed)
    check(graph, {**tiles(seed), **options}, factor, seed)


@needs_hopper
@pytest.mark.parametrize("seed", SEEDS)
def test_documents_against_float64(seed, poisoned):
    graph, options, factor = drawn_documents(seed)
    inputs = reordered(graph, inputs_of(graph, factor, seed), seed)
    check(graph, {**tiles(seed), **options}, factor, seed, inputs)


@pytest.mark.sampled(12, 10)
@pytest.mark.parametrize("seed", range(20))
def test_all_features_compile(seed):
    graph, options, _ = drawn_widely(seed)
    compile(graph.text(), target="nvidia", **tiles(seed), **options)


@pytest.mark.sampled(20, 10)
@pytest.mark.parametrize("seed", range(12))
def test_documents_compile(seed):
    graph, options, _ = drawn_documents(seed)
    compile(graph.text(), target="nvidia", **tiles(seed), **options)


# Few queries of heads that share keys: rows that fill a tile, by the copy engine, or not; and versions for them.
FEW_QUERIES = {
    "64 rows": {"queries": 16},
    "64 rows, b s h d": {"queries": 16, "input_layout": "bshd", "output_layout": "bshd", "head_size": 128},
    "128 rows, s b h d": {"queries": 32, "input_layout": "sbhd", "window": (None, 0), "bottom_right": True},
    "128 rows of some heads": {"queries": 64, "head_size": 256},
    "not filled": {"queries": 7, "bias": "qk", "lse": True},
    "not all heads": {"queries": 20, "heads": 10, "mask": "bhqk"},
    "one head": {"queries": 48, "bias": "hqk"},
    "open": {"queries": 5, "dynamic": True},
    "open, b s h d": {"queries": 16, "dynamic": True, "input_layout": "bshd", "lse": True},
    "open, two tiles": {"queries": 31, "batch": 40, "dynamic": True, "window": (-100, 0), "bottom_right": True},
    "open, many": {"queries": 70, "dynamic": True},
}


@needs_hopper
@pytest.mark.parametrize("name", FEW_QUERIES)
def test_few_queries(name, poisoned):
    sizes = {"batch": 2, "heads": 8, "heads_kv": 2, "keys": 300, "head_size": 64, "element": "bf16"}
    check(Attention(**sizes | FEW_QUERIES[name]), {"arch": "sm_90a"}, 1.0, 0)


# Values in parts of their columns: of one half, of three, of the last one less; and few rows, which keys are split for.
LARGE_HEADS = {
    "full": {"queries": 500, "keys": 700},
    "causal": {"window": (None, 0), "keys": 448, "bottom_right": True},
    "window": {"window": (-100, 130), "head_size": 384},
    "three parts": {"head_size": 576, "value_size": 600},
    "not aligned": {"head_size": 257},
    "values alone": {"head_size": 64, "value_size": 600},
    "keys alone": {"head_size": 600, "value_size": 64},
    "1024": {"head_size": 1024, "queries": 100, "arch": "sm_90a"},
    "bias": {"bias": "hqk", "keys": 403},
    "mask": {"mask": "bk", "keys": 416},
    "softcap": {"softcap": 30.0},
    "lengths": {"lengths": (100, 300)},
    "documents": {"documents": (100, 50, 150)},
    "lse": {"lse": True},
    "packed": {"packed": "3hd", "input_layout": "bshd", "output_layout": "bshd"},
    "dynamic": {"dynamic": True, "window": (None, 0)},
    "8 bits": {"element": "f8E4M3FN", "output": "f32"},
    "latent, a token": {"head_size": 576, "value_size": 512, "heads": 128, "heads_kv": 1, "queries": 1, "keys": 1000},
    "few": {"heads": 8, "heads_kv": 2, "queries": 7, "keys": 3000, "batch": 1},
}


def large_head(name, arch):
    fields = {"batch": 2, "heads": 2, "queries": 300, "keys": 300, "head_size": 512, "element": "bf16"}
    fields |= LARGE_HEADS[name]
    if fields.pop("arch", arch) != arch:
        pytest.skip(f"queries of {fields['head_size']} are more than shared memory holds")
    return Attention(**fields)


@needs_hopper
@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("name", LARGE_HEADS)
def test_large_heads(name, arch, poisoned):
    check(large_head(name, arch), {"arch": arch, "must_fuse": True}, 1.0, 0)


@pytest.mark.sampled(20, 13)
@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("name", LARGE_HEADS)
def test_large_heads_are_fused(name, arch):
    compile(large_head(name, arch).text(), target="nvidia", arch=arch, must_fuse=True)

"""Combinations of all that attention on the CPU may be: masks, layouts, shared heads, types, odd and dynamic sizes."""

import dataclasses

import numpy as np
import pytest
from attn_opt.compiler import compile
from attn_opt.compiler.graphs import ELEMENTS, FLOAT8, Attention
from attn_opt.compiler.runtime import signature
from harness import crossed, fused
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from properties import examples

TOLERANCES = {"f16": 4e-3, "bf16": 3e-2, "f32": 2e-5, "f64": 1e-12, "f8E4M3FN": 1e-1, "f8E5M2": 2e-1}
SPANS = {"q": (-2, 2), "k": (-2, 2), "v": (-1, 1), "qkv": (-2, 2), "bias": (-2, 2)}
WINDOWS = st.tuples(st.none() | st.integers(-70, 5), st.none() | st.integers(-5, 70))
LETTERS = st.sets(st.sampled_from("bhqk"), max_size=4).map(lambda letters: "".join(sorted(letters)))
SIZES = st.integers(1, 40) | st.integers(1, 300) | st.sampled_from([63, 64, 65, 128, 256, 257])
HEAD_SIZES = st.integers(1, 20) | st.integers(1, 130) | st.sampled_from([32, 64, 128, 192, 320, 511, 512])
# How an argument stands in memory: None, or the order of its dimensions from outer to inner.
VIEWS = st.none() | st.permutations(range(4))


@st.composite
def attentions(draw, elements=tuple(ELEMENTS)):
    fields = {
        "element": draw(st.sampled_from(elements)),
        "heads_kv": draw(st.integers(1, 3)),
        "queries": draw(SIZES),
        "keys": draw(SIZES),
        "head_size": draw(HEAD_SIZES),
        "batch": draw(st.integers(1, 3)),
        "window": draw(st.just((None, None)) | WINDOWS),
        "bottom_right": draw(st.booleans()),
        "softcap": draw(st.sampled_from([0.0, 0.0, 2.0])),
        "alibi": draw(st.booleans()),
        "input_layout": draw(st.sampled_from(["bhsd", "bshd", "sbhd"])),
        "output_layout": draw(st.sampled_from(["bhsd", "bshd"])),
        "dynamic": draw(st.booleans()),
        "lse": draw(st.booleans()),
    }
    if fields["element"] in FLOAT8:
        fields["output"] = draw(st.sampled_from(["", "f32", "bf16"]))
        fields["scale_p"] = draw(st.sampled_from([1.0, 16.0, 448.0]))
        fields["scale_o"] = 1 / fields["scale_p"]
    fields["heads"] = fields["heads_kv"] * draw(st.sampled_from([1, 1, 2, 4]))
    kind = draw(st.sampled_from(["plain", "packed", "groups", "lengths"]))
    if kind == "packed":
        packed = draw(st.sampled_from(["3hd", "h3d"]))
        fields |= {"packed": packed, "input_layout": "bshd", "keys": fields["queries"]}
        if packed == "h3d":
            fields["heads_kv"] = fields["heads"]
    else:
        fields["value_size"] = draw(st.just(0) | HEAD_SIZES)
        fields["values_transposed"] = draw(st.booleans())
    if kind == "groups":
        groups = draw(st.lists(st.tuples(st.integers(0, 90), st.integers(0, 120)), min_size=1, max_size=4))
        groups.append((draw(st.integers(1, 70)), draw(st.integers(1, 70))))
        queries, keys = map(sum, zip(*groups, strict=True))
        fields |= {"batch": 1, "groups": tuple(groups), "queries": queries, "keys": keys}
    else:
        fields["bias"] = draw(st.just("") | LETTERS)
        fields["mask"] = draw(st.just("") | LETTERS)
    if kind == "lengths":
        count = fields["batch"]
        fields["lengths"] = tuple(draw(st.lists(st.integers(0, fields["keys"]), min_size=count, max_size=count)))
    return Attention(**fields)


def errors(graph, results, inputs):
    """The largest error of each result over its largest magnitude, or half of the values', where those of several keys
    cancel each other; −∞ and 0 of dead rows are where they belong."""
    expected = graph.reference(inputs)
    found = [graph.canonical_output(results[0]), *results[1:]]
    values = np.abs(inputs[0 if graph.packed else 2].astype(np.float64)).max(initial=0)
    for result, right, least in zip(found, expected, (max(values / 2, 1e-3), 1e-3), strict=False):
        result, finite = result.astype(np.float64), np.isfinite(right)
        np.testing.assert_array_equal(result[~finite], right[~finite])
        yield np.abs(result - right)[finite].max(initial=0) / max(np.abs(right[finite]).max(initial=0), least)


def check(graph, views, seed):
    inputs = graph.inputs("uniform", seed, SPANS)
    for i, order in enumerate(views):
        if i < len(inputs) and inputs[i].ndim == 4 and order is not None:
            inputs[i] = np.ascontiguousarray(inputs[i].transpose(order)).transpose(np.argsort(order))
    results = compile(graph.text())(*inputs)
    results = results if isinstance(results, tuple) else (results,)
    assert max(errors(graph, results, inputs)) < TOLERANCES[graph.element]


def drawing(count):
    return examples(count, suppress_health_check=list(HealthCheck))


MORE = {"views": st.tuples(*[VIEWS] * 5), "seed": st.integers(0, 99)}


@pytest.fixture(scope="module", autouse=True)
def _small_arrays_too():
    old, signature.SMALL = signature.SMALL, 0
    yield
    signature.SMALL = old


@drawing(8)
@given(graph=attentions(), **MORE)
def test_some_combinations(graph, views, seed):
    check(graph, views, seed)


@pytest.mark.slow
@pytest.mark.parametrize("element", ELEMENTS)
@drawing(12)
@given(data=st.data(), **MORE)
def test_combinations(element, data, views, seed):
    check(data.draw(attentions((element,))), views, seed)


REPRESENTATIVE = [
    {"element": "f32", "window": (None, 0), "bottom_right": True, "heads_kv": 2},
    {"element": "bf16", "mask": "bqk", "bias": "hqk", "softcap": 3.0},
    {"element": "f16", "lengths": (0, 77), "dynamic": True, "alibi": True, "lse": True},
    {"element": "f64", "batch": 1, "groups": ((30, 40), (0, 5), (41, 38)), "window": (-20, 0)},
    {"element": "f32", "packed": "3hd", "input_layout": "bshd", "keys": 71, "value_size": 0, "heads_kv": 2},
    {"element": "f32", "queries": 1, "heads_kv": 1, "lengths": (83, 20), "values_transposed": True},
]


# Other tests have vectors as the host has them.
@pytest.mark.sampled(12)
@pytest.mark.parametrize(("kind", "vector_bytes"), crossed(REPRESENTATIVE, [16, 32]))
def test_instruction_sets(kind, vector_bytes):
    base = Attention(batch=2, heads=4, queries=71, keys=83, head_size=24, value_size=17)
    graph = dataclasses.replace(base, **kind)
    inputs = graph.inputs("uniform", 1, SPANS)
    results = fused(graph.text(), vector_bytes=vector_bytes)(*inputs)
    results = results if isinstance(results, tuple) else (results,)
    assert max(errors(graph, results, inputs)) < TOLERANCES[graph.element]


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("window", "element"), crossed([(None, None), (None, 0), (-200, 3)], ["bf16", "f16"]))
def test_whole_and_cut_tiles_of_one_kernel(window, element):
    """A kernel for any number of keys has code for whole tiles, and for the last one: one key, two, all but one."""
    graph = Attention(element=element, heads=2, head_size=32, window=window, bottom_right=True, dynamic=True)
    kernel = compile(graph.text())
    for queries, keys in [(64, 64), (70, 1), (65, 63), (64, 65), (33, 128), (129, 129), (3, 130), (150, 401)]:
        graph = dataclasses.replace(graph, queries=queries, keys=keys)
        inputs = graph.inputs("uniform", 1, SPANS)
        assert max(errors(graph, [kernel(*inputs)], inputs)) < TOLERANCES[element]


# What a drawn combination has found once, with this CPU's instructions: wrong results, or IR that was not valid.
FOUND = [
    {"element": "bf16", "queries": 128, "keys": 128, "head_size": 1},  # the place of V's tile, before it was computed
    *({"element": e, "batch": 6, "queries": 16, "keys": 8, "head_size": 1, "value_size": 4} for e in ("f32", "f64")),
]  # … the last ones: the maximum stands where the queries were, which were read behind its first store


@pytest.mark.parametrize("kind", FOUND, ids=str)
def test_combinations_that_were_found(kind):
    check(Attention(**kind), (None,) * 5, 0)

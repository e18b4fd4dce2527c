"""Attention graphs of every kind, compiled and fused, against float64; and that float64 against a plain evaluation."""

import dataclasses
import re

import numpy as np
import pytest
from attn_opt.compiler import compile
from attn_opt.compiler.graphs import ELEMENTS, FLOAT8, INITS, Attention, dtype_of
from attn_opt.dialects.assembly import parse_module
from attn_opt.dialects.reference import evaluate
from harness import CONTEXT

BASE = Attention(batch=2, heads=4, queries=37, keys=45, head_size=16, value_size=24)
TOLERANCES = {"f16": 3e-3, "bf16": 2e-2, "f32": 1e-5, "f64": 1e-12}
PACKED = {"input_layout": "bshd", "output_layout": "bshd", "keys": 37, "value_size": 0}
GROUPS = {"batch": 1, "groups": ((10, 20), (0, 5), (20, 0), (7, 20))}
KINDS = [
    {},
    {"heads_kv": 2},
    {"heads_kv": 1, "window": (None, 0)},
    {"window": (None, 8)},
    {"window": (-10, 3), "element": "f64"},
    {"window": (30, 40)},  # the last queries see nothing
    {"window": (5, None), "queries": 1},
    {"bias": "bhqk"},
    {"bias": "bhqk", "heads_kv": 2, "element": "bf16"},
    {"softcap": 2.0},
    {"alibi": True},
    {"alibi": True, "heads_kv": 2, "element": "f64"},
    {"scale": 0.375},
    {"input_layout": "bshd"},
    {"output_layout": "bshd", "element": "f16"},
    {"input_layout": "bshd", "output_layout": "bshd", "heads_kv": 2, "values_transposed": True, "bias": "bhqk"},
    {"values_transposed": True},
    {"lse": True, "heads_kv": 2, "window": (30, 40)},
    {"queries": 1, "heads_kv": 1, "lse": True},
    {"bias": "hqk", "heads_kv": 2, "dynamic": True},
    {"bias": "k"},
    {"mask": "bhqk", "heads_kv": 2},
    {"mask": "bk", "dynamic": True},
    {"mask": "qk", "bias": "h", "window": (None, 0), "element": "bf16"},
    {"window": (-7, 0), "bottom_right": True, "dynamic": True},
    {"lengths": (0, 30)},
    {"lengths": (45, 3), "window": (None, 0), "bottom_right": True, "heads_kv": 1, "element": "f16"},
    {"lengths": (45, 44), "queries": 1, "bottom_right": True, "window": (None, 0), "dynamic": True},
    {**PACKED, "packed": "3hd"},
    {**PACKED, "packed": "3hd", "heads_kv": 2, "window": (None, 0)},
    {**PACKED, "packed": "h3d", "dynamic": True, "element": "f16"},
    {**GROUPS},
    {**GROUPS, "window": (None, 0), "bottom_right": True, "heads_kv": 2},
    {**GROUPS, "window": (-4, 2), "alibi": True, "dynamic": True, "element": "f64"},
    {**GROUPS, "input_layout": "bshd", "output_layout": "bshd", "softcap": 4.0, "element": "bf16"},
]


def compared(graph, found, inputs):
    out, lse = graph.reference(inputs)
    pairs = [(graph.canonical_output(np.asarray(found[0])), out)] + [(x, lse) for x in found[1:]]
    for result, right in pairs:
        result, finite = result.astype(np.float64), np.isfinite(right)
        np.testing.assert_array_equal(result[~finite], right[~finite])
        yield np.abs(result[finite] - right[finite]).max() / np.abs(right[finite]).max()


@pytest.mark.sampled(12, 5)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_compiled(kind):
    graph = dataclasses.replace(BASE, **kind)
    kernel = compile(graph.text())
    assert "scf.for" in kernel.ir("fused")
    inputs = graph.inputs()
    results = kernel(*inputs)
    found = results if graph.lse else (results,)
    assert max(compared(graph, found, inputs)) < TOLERANCES[graph.element]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_reference_is_what_the_text_says(kind):
    graph = dataclasses.replace(BASE, **kind)
    inputs = graph.inputs("integers", seed=3)
    module = parse_module(graph.text(), "graph.mlir", CONTEXT)
    assert max(compared(graph, evaluate(module, inputs, "attention"), inputs)) < 1e-12  # constants are powers of two


@pytest.mark.parametrize("window", [(None, None), (None, 0), (-3, 5), (10, 60), (None, -50)])
def test_live_scores_are_counted(window):
    graph = dataclasses.replace(BASE, window=window)
    i, j = np.arange(graph.queries)[:, None], np.arange(graph.keys)
    live = np.ones((graph.queries, graph.keys), bool)
    live &= window[0] is None or j - i >= window[0]
    live &= window[1] is None or j - i <= window[1]
    np.testing.assert_array_equal(graph.live(), [live.sum(1)] * 2)
    assert graph.flops() == 2 * live.sum() * 8 * (16 + 24)


@pytest.mark.parametrize(
    ("init", "element"),
    [(init, element) for init in INITS for element in ELEMENTS if init != "quantized" or element in FLOAT8],
)
def test_inputs(init, element):
    graph = dataclasses.replace(BASE, element=element, bias="bhqk", mask="qk")
    first, again, other = graph.inputs(init, 1), graph.inputs(init, 1), graph.inputs(init, 2)
    assert [x.shape for x in first] == [shape for shape, _ in graph.arguments().values()]
    mask = first.pop()
    assert mask.dtype == bool and all(x.dtype == graph.dtype for x in first[:3])
    assert first[3].dtype == dtype_of(graph.bias_element)
    assert all((a == b).all() for a, b in zip(first, again[:-1], strict=True)) and (mask == again[-1]).all()
    assert init == "trigonometric" or not (first[0] == other[0]).all()
    limits = {"integers": (-3, 3), "uniform": (0, 1), "trigonometric": (-1, 1)}.get(init, (-6, 6))
    limits = (-FLOAT8[element], FLOAT8[element]) if init == "quantized" else limits
    assert all(limits[0] <= x.astype(float).min() and x.astype(float).max() <= limits[1] for x in first)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ({"heads_kv": 3}, "heads must be a multiple of heads_kv, but 4 is not one of 3"),
        ({"queries": 0}, "queries must be positive"),
        ({"element": "f8"}, "element must be one of f16, bf16, f32, f64"),
        ({"element": "f64", "output": "f32"}, "the output of inputs of f64 cannot be f32"),
        ({"scale_p": 2.0}, "probabilities and outputs of inputs of f32 have no scale"),
        ({"input_layout": "bsd"}, "a layout is the letters b, h, s and d"),
        ({"bias": "bx"}, "a bias or mask has some of the dimensions b, h, q and k, but found bx"),
        ({"packed": "qkv"}, "packed must be 3hd or h3d"),
        ({"packed": "3hd"}, "packed Q, K and V are of one length and one head size"),
        ({**PACKED, "packed": "h3d", "heads_kv": 2}, "packed h3d, every head has keys of its own"),
        ({**PACKED, "packed": "3hd", "input_layout": "bhsd"}, "packed Q, K and V have the layout bshd"),
        ({"lengths": (46, 0)}, "lengths must be 2 numbers from 0 to 45, but are (46, 0)"),
        ({"batch": 1, "groups": ((37, 44),)}, "groups stand one after the other"),
        ({"batch": 1, "groups": ((38, 45), (-1, 0))}, "the lengths of a group must not be negative"),
    ],
)
def test_what_is_no_attention(kind, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        dataclasses.replace(BASE, **kind)

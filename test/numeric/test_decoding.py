"""Few queries against many keys, which are streamed from memory: groups of heads, odd sizes, against float64."""

import dataclasses

import numpy as np
import pytest
from attn_opt.compiler import compile
from attn_opt.compiler.graphs import Attention
from harness import crossed, fused, relative_error

TOLERANCE = {"f32": 3e-6, "f64": 1e-13, "bf16": 1.5e-2, "f16": 2e-3}
SHAPES = [
    {"heads": 4, "head_size": 128, "keys": 4096},
    {"heads": 14, "heads_kv": 2, "head_size": 128, "keys": 1037},  # 7 rows, as 4 and 3
    {"heads": 10, "heads_kv": 2, "head_size": 96, "value_size": 48, "keys": 520, "input_layout": "bshd"},
    {"heads": 8, "heads_kv": 4, "head_size": 128, "keys": 1000},  # a cut tile, a cut block of rows
    {"heads": 8, "heads_kv": 2, "head_size": 80, "keys": 777},
    {"heads": 16, "heads_kv": 2, "head_size": 64, "keys": 515},
    {"heads": 6, "heads_kv": 2, "head_size": 40, "value_size": 72, "keys": 301},
    {"heads": 5, "heads_kv": 1, "head_size": 33, "keys": 259},
    {"heads": 2, "head_size": 256, "queries": 3, "keys": 333},
    {"heads": 8, "heads_kv": 4, "head_size": 96, "queries": 4, "keys": 530},
    {"heads": 8, "heads_kv": 2, "head_size": 64, "queries": 4, "keys": 410},  # 16 rows of two dimensions
    {"heads": 12, "heads_kv": 2, "head_size": 48, "queries": 11, "keys": 300},
    {"heads": 6, "heads_kv": 2, "head_size": 40, "queries": 6, "keys": 555, "softcap": 2.0},  # 18 rows
    {"heads": 8, "heads_kv": 1, "head_size": 256, "queries": 3, "keys": 319, "window": (-200, 0), "bottom_right": True},
    {"heads": 8, "heads_kv": 2, "head_size": 80, "queries": 8, "keys": 90, "alibi": True},
    {"heads": 4, "heads_kv": 1, "head_size": 128, "queries": 5, "keys": 600, "bias": "qk", "mask": "hqk"},
    {"heads": 8, "heads_kv": 2, "head_size": 64, "queries": 4, "keys": 530, "input_layout": "bshd"},
    {"heads": 8, "heads_kv": 2, "head_size": 33, "queries": 7, "keys": 430, "lengths": (301, 7, 0), "batch": 3},
    {"heads": 2, "head_size": 64, "queries": 17, "keys": 999, "window": (None, 0), "bottom_right": True},
    {"heads": 8, "heads_kv": 2, "head_size": 64, "queries": 16, "keys": 333, "lse": True},  # 64 rows
    {"heads": 8, "heads_kv": 4, "head_size": 72, "queries": 9, "keys": 470, "values_transposed": True},
    {"heads": 8, "heads_kv": 2, "head_size": 128, "keys": 900, "lengths": (613, 0), "batch": 2},
    {"heads": 8, "heads_kv": 2, "head_size": 128, "keys": 700, "input_layout": "bshd", "output_layout": "bshd"},
    {"heads": 24, "heads_kv": 6, "head_size": 64, "keys": 1029, "input_layout": "bshd", "batch": 3},
    {"heads": 5, "head_size": 72, "value_size": 40, "keys": 333, "input_layout": "bshd", "queries": 3},
    {"heads": 8, "heads_kv": 4, "head_size": 256, "keys": 450, "input_layout": "bshd", "window": (-300, 0)},
    {
        "heads": 16,
        "heads_kv": 8,
        "head_size": 33,
        "keys": 510,
        "input_layout": "sbhd",
        "lengths": (77, 500),
        "batch": 2,
    },
    {"heads": 6, "heads_kv": 2, "head_size": 96, "keys": 700, "input_layout": "bshd", "dynamic": True},
    {"heads": 8, "heads_kv": 2, "head_size": 128, "queries": 2, "keys": 390, "dynamic": True},
    {"heads": 8, "heads_kv": 2, "head_size": 128, "keys": 640, "values_transposed": True, "softcap": 3.0},
]


def error(graph: Attention, run, inputs: list) -> float:
    output, _ = graph.reference(inputs)
    found = run(*inputs)[0] if graph.lse else run(*inputs)
    return relative_error(graph.canonical_output(np.asarray(found, np.float64)), output)


@pytest.mark.sampled(15)
@pytest.mark.parametrize(("shape", "element"), crossed(SHAPES, ["f32", "bf16", "f16", "f64"]))
def test_shapes(shape, element):
    graph = Attention(**{"queries": 1, **shape}, element=element)
    assert error(graph, compile(graph.text()), graph.inputs("normal")) < TOLERANCE[element]


# Other tests have vectors as the host has them.
@pytest.mark.parametrize(
    ("element", "vector_bytes", "queries"), crossed(["f32", "f16", "f64", "bf16"], [16, 32], [1, 4])
)
def test_instruction_sets(element, vector_bytes, queries):
    graph = Attention(heads=8, heads_kv=2, queries=queries, keys=417, head_size=72, element=element)
    assert (
        error(graph, fused(graph.text(), vector_bytes=vector_bytes), graph.inputs("trigonometric")) < TOLERANCE[element]
    )


FEW_REGISTERS = [
    {"heads": 3, "head_size": 128, "keys": 1037},  # one row, places and what is left over
    {"heads": 8, "heads_kv": 2, "head_size": 128, "keys": 2048, "batch": 2},
    {"heads": 14, "heads_kv": 2, "head_size": 80, "keys": 1411},
    {"heads": 8, "heads_kv": 1, "head_size": 96, "value_size": 40, "keys": 777, "window": (-300, 0)},
    {"heads": 8, "heads_kv": 2, "head_size": 128, "keys": 611, "lengths": (531, 66, 0), "batch": 3},
    {"heads": 8, "heads_kv": 1, "head_size": 33, "keys": 999, "dynamic": True},
    {
        "heads": 7,
        "heads_kv": 1,
        "head_size": 64,
        "keys": 700,
        "dynamic": True,
        "window": (-450, 0),
        "bottom_right": True,
    },
    {"heads": 4, "heads_kv": 2, "head_size": 256, "keys": 330, "queries": 3, "softcap": 3.0, "lse": True},
]


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("shape", "element", "vector_bytes"), crossed(FEW_REGISTERS, ["f32", "bf16", "f16", "f64"], [32, 16])
)
def test_rows_of_distant_places(shape, element, vector_bytes):
    """With 16 registers rows are read at several places of a tile in turn."""
    graph = Attention(**{"queries": 1, **shape}, element=element)
    assert error(graph, fused(graph.text(), vector_bytes=vector_bytes), graph.inputs("normal")) < TOLERANCE[element]


@pytest.mark.sampled(3, 1)
@pytest.mark.parametrize("vector_bytes", [0, 32])
def test_long_sums(vector_bytes):
    """Sums over blocks of rows are added to what was there: one chain over 65536 keys would lose 1.3e-6."""
    graph = Attention(heads=4, heads_kv=1, queries=1, keys=1 << 16, head_size=128)
    assert error(graph, fused(graph.text(), vector_bytes=vector_bytes), graph.inputs("uniform")) < 8e-7


@pytest.mark.sampled(12)
@pytest.mark.parametrize("element", ["bf16", "f8E4M3FN"])
@pytest.mark.parametrize("heads", [1, 3, 4])
def test_odd_numbers_of_keys(element, heads):
    """A last key without a partner counts, and what follows it in memory does not."""
    graph = Attention(heads=heads, heads_kv=1, head_size=72, element=element, output="f32", dynamic=True)
    run = compile(graph.text())
    for keys in (1, 2, 3, 63, 64, 65, 127, 255, 257, 511, 513, 1023):
        for queries in (1, 4, 16):
            graph = dataclasses.replace(graph, queries=queries, keys=keys)
            q, k, v = graph.inputs("normal", seed=keys)
            expected, _ = graph.reference([q, k, v])
            k, v = (np.concatenate([x, np.full_like(x, np.nan)], axis=2)[:, :, :keys] for x in (k, v))
            found = graph.canonical_output(np.asarray(run(q, k, v), np.float64))
            assert relative_error(found, expected) < TOLERANCE.get(element, 6e-2), (queries, keys)

"""Tiles that a mask cuts, of which parts are computed, against numpy in float64."""

import numpy as np
import pytest
from attn_opt.compiler import compile
from attn_opt.compiler.graphs import Attention
from harness import crossed

TOLERANCES = {"f32": 2e-6, "f64": 1e-13, "bf16": 2e-2, "f16": 3e-3}


def check(graph: Attention) -> None:
    inputs = graph.inputs("normal", 1)
    kernel = compile(graph.text())
    results = kernel(*inputs)
    results = results if isinstance(results, tuple) else (results,)
    expected, lse = graph.reference(inputs)
    assert np.abs(np.asarray(results[0], np.float64) - expected).max() < TOLERANCES[graph.element]
    if graph.lse:
        seen = np.isfinite(lse)
        assert (np.isfinite(results[1]) == seen).all()
        assert np.abs(np.asarray(results[1], np.float64)[seen] - lse[seen]).max() < 4 * TOLERANCES[graph.element]


WINDOWS = [
    (0, 0),
    (-4, 0),
    (-16, 0),
    (-63, 0),
    (-100, 0),
    (-255, 0),
    (None, 0),
    (-30, 25),
    (3, 40),
    (-50, -20),
    (17, None),
]


@pytest.mark.sampled(12)
@pytest.mark.parametrize(("window", "shape"), crossed(WINDOWS, [(256, 256), (190, 333), (333, 190)]))
def test_windows(window, shape):
    check(Attention(heads=2, queries=shape[0], keys=shape[1], head_size=32, window=window, lse=True))


@pytest.mark.sampled(7, 7)
@pytest.mark.parametrize(("window", "element"), crossed(WINDOWS, ["bf16", "f16"]))
def test_narrow_windows(window, element):
    """Keys in pairs, or converted before they are multiplied."""
    check(Attention(heads=2, queries=190, keys=333, head_size=40, element=element, window=window, lse=True))


FEATURES = [
    {"bottom_right": True},
    {"dynamic": True},
    {"softcap": 2.0, "alibi": True},
    {"mask": "qk"},
    {"heads_kv": 1, "value_size": 40},
    {"groups": ((100, 120), (0, 30), (160, 150))},
    {"input_layout": "bshd", "values_transposed": True},
]
WHOLE = {"window": (None, 0), "queries": 320, "keys": 320, "head_size": 64}


@pytest.mark.sampled(12)
@pytest.mark.parametrize(("fields", "element"), crossed([*FEATURES, WHOLE], ["bf16", "f16"]))
def test_narrow_features(fields, element):
    base = {"heads": 2, "queries": 260, "keys": 300, "head_size": 24, "window": (-70, 0), "lse": True}
    check(Attention(element=element, **(base | fields)))


@pytest.mark.sampled(12)
@pytest.mark.parametrize("fields", [*FEATURES, {"element": "f64"}, {"bias": "hqk"}, {"lengths": (120, 300)}], ids=str)
def test_features(fields):
    batch = 2 if "lengths" in fields else 1
    base = {"batch": batch, "heads": 2, "queries": 260, "keys": 300, "head_size": 24, "window": (-70, 0), "lse": True}
    check(Attention(**(base | fields)))


def test_infinite_values_beyond_the_window():
    """What is not computed makes no NaN of 0·∞."""
    graph = Attention(heads=1, queries=128, keys=128, head_size=16, window=(-15, 0))
    q, k, v = graph.inputs("normal", 1)
    v[:, :, 64:] = np.inf
    out = np.asarray(compile(graph.text())(q, k, v))
    assert np.isfinite(out[:, :, :48]).all()

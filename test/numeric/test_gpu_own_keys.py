"""Kernels whose warpgroups have keys of their own, on a GPU, against float64. (Without one: test_gpu_roles.py.)"""

import numpy as np
import pytest
from attn_opt.compiler import compile
from attn_opt.compiler.graphs import Attention
from gpu import needs_hopper
from gpu import poisoned as poisoned

SIZES = {"batch": 2, "heads": 4, "queries": 700, "keys": 700, "head_size": 64, "element": "f16"}
CASES = {
    "causal": {"window": (None, 0)},
    "causal to the last key": {"window": (None, 0), "bottom_right": True, "keys": 1000},
    "more queries than keys": {"window": (None, 0), "bottom_right": True, "keys": 300},
    "window": {"window": (-99, 0)},
    "window of many tiles": {"window": (-399, 0), "element": "bf16"},
    "window on both sides": {"window": (-70, 133)},
    "window behind": {"window": (40, 340)},
    "later keys": {"window": (0, None)},
    "tiles without keys": {"window": (-900, -500)},
    "alibi": {"window": (None, 0), "alibi": True},
    "softcap": {"window": (None, 0), "softcap": 20.0},
    "softcap, window": {"window": (-199, 0), "softcap": 20.0},
    "bias": {"window": (-99, 0), "bias": "qk"},
    "bias of rows that are not aligned": {"window": (None, 0), "bias": "hqk", "keys": 701},
    "groups": {"window": (-127, 0), "heads": 8, "heads_kv": 2},
    "d 32": {"window": (None, 0), "head_size": 32},
    "d 36": {"window": (-99, 0), "head_size": 36},
    "d 256": {"window": (-199, 0), "head_size": 256},
    "dynamic": {"window": (-99, 0), "dynamic": True},
    "a second result": {"window": (-99, 0), "lse": True},
}
INPUTS = {"normal": 1.0, "wide": 6.0}  # of the second, tiles are computed again


@needs_hopper
@pytest.mark.parametrize("values", INPUTS)
@pytest.mark.parametrize("queries", [256, 192, 128])
@pytest.mark.parametrize("case", CASES)
def test_against_float64(case, queries, values, poisoned):
    graph = Attention(**SIZES | CASES[case])
    inputs = [x.copy() for x in graph.inputs("normal", 1)]
    inputs[0] *= INPUTS[values]
    groups = [1] * (3 if graph.kv != graph.heads else 2)
    tiles = [*groups, min(queries, 128) if graph.head_size > 64 else queries, 0, 64]
    kernel = compile(graph.text(), target="nvidia", arch="sm_90a", tile_sizes=tiles)
    found = kernel(*inputs)
    out = found[0] if graph.lse else found
    expected, sums = graph.reference(inputs)
    limit = 6e-3 if graph.element == "bf16" else 1e-3
    assert np.linalg.norm(np.float64(out) - expected) <= limit * np.linalg.norm(expected)
    if graph.lse:
        np.testing.assert_allclose(np.float64(found[1]), sums, atol=2e-3)
    again = kernel(*inputs)
    np.testing.assert_array_equal(np.asarray(out), np.asarray(again[0] if graph.lse else again))

"""What stands in and around kernels for NVIDIA GPUs, at the level of tiles, against float64, without a GPU."""

import numpy as np
import pytest
from attn_opt.compiler.graphs import Attention
from gpu_modules import Launches, run_module

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
}


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

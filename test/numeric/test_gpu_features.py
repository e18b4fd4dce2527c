"""Random combinations of features and sizes on a GPU with a copy engine, against float64. (Without one:
test_gpu_roles.py, test_gpu_tiles.py.) A test's number is the seed of what it draws."""

import random

import numpy as np
import pytest
from attn_opt.compiler import compile
from attn_opt.compiler.graphs import Attention
from gpu import needs_hopper
from gpu import poisoned as poisoned

SEEDS = range(150)
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


@needs_hopper
@pytest.mark.parametrize("seed", SEEDS)
def test_against_float64(seed, poisoned):
    graph, options, factor = drawn(seed)
    inputs = [x.copy() for x in graph.inputs("normal", seed)]
    inputs[0] = (inputs[0].astype(np.float32) * factor).astype(inputs[0].dtype)
    kernel = compile(graph.text(), target="nvidia", arch="sm_90a", **options)
    found = kernel(*inputs)
    out = found[0] if graph.lse else found
    expected, sums = graph.reference(inputs)
    limit = (8e-3 if graph.element == "bf16" else 1.6e-3) * (4 if graph.softcap else 1)  # a cap is approximated
    assert np.linalg.norm(np.float64(out) - expected) <= limit * np.linalg.norm(expected), graph
    dead = ~np.isfinite(sums)
    assert not np.asarray(out)[dead].any(), "rows without a key are 0"
    if graph.lse:
        np.testing.assert_array_equal(np.isfinite(found[1]), ~dead)
        close = 5e-3 + 1e-3 * graph.softcap + 4e-4 * np.abs(sums[~dead]).max(initial=0)
        np.testing.assert_allclose(np.float64(found[1])[~dead], sums[~dead], atol=close)
    again = kernel(*inputs)
    np.testing.assert_array_equal(np.asarray(out), np.asarray(again[0] if graph.lse else again))

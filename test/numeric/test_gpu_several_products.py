"""Scores that are made of several products, on an NVIDIA GPU, against float64. Without: test_several_products.py."""

import numpy as np
import pytest
from attn_opt.compiler import compile
from gpu import needs_gpu
from gpu import poisoned as poisoned
from harness import crossed, relative_error
from probability_graphs import TOLERANCE
from test_several_products import MADE, OF_PROBABILITIES, of_probabilities, several

SIZES = {
    "several tiles": {"h": 3, "m": 700, "k": 700, "d": 64, "e": 64, "n": 64},
    "odd": {"h": 2, "m": 333, "k": 517, "d": 36, "e": 20, "n": 20},
    "wide": {"h": 2, "m": 512, "k": 640, "d": 128, "e": 64, "n": 128},
    "wider": {"h": 2, "m": 512, "k": 700, "d": 192, "e": 192, "n": 192},
    "widest": {"h": 2, "m": 300, "k": 640, "d": 256, "e": 256, "n": 256},
    "few queries": {"h": 4, "m": 5, "k": 1000, "d": 64, "e": 32, "n": 64},
    "one query": {"h": 2, "m": 1, "k": 3000, "d": 64, "e": 64, "n": 64},
    "many rows": {"h": 8, "m": 2048, "k": 300, "d": 64, "e": 16, "n": 72},
}


@needs_gpu
@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("kind", ["bf16", "f32"])
@pytest.mark.parametrize(("sizes", "name"), crossed(list(SIZES), list(MADE)))
def test_against_float64(sizes, name, kind, arch, poisoned):
    _, text, inputs, expected = several(kind, name, SIZES[sizes])
    found = np.asarray(compile(text, target="nvidia", arch=arch)(*inputs), np.float64)
    assert relative_error(found, expected) < TOLERANCE[kind]


@needs_gpu
@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("kind", ["bf16", "f32"])
@pytest.mark.parametrize("name", OF_PROBABILITIES)
@pytest.mark.parametrize("sizes", ["several tiles", "odd", "few queries"])
def test_weights_and_functions_of_probabilities(sizes, name, kind, arch, poisoned):
    text, inputs, expected = of_probabilities(kind, name, SIZES[sizes])
    found = np.asarray(compile(text, target="nvidia", arch=arch)(*inputs), np.float64)
    # Of exp(s·r)², with s·r up to 52, the last places of s and r, which three products of tf32 leave, count 100 times.
    slack = 5 if (name, kind) == ("squared", "f32") else 1
    assert relative_error(found, expected) < slack * TOLERANCE[kind]

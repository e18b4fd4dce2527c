"""Masks that several heads share, in memory, on an NVIDIA GPU, against float64. Without: test_masks_before_loops.py."""

import numpy as np
import pytest
from attn_opt.compiler import compile
from attn_opt.compiler.graphs import Attention
from derivative_graphs import Case
from gpu import TOLERANCE, needs_gpu
from gpu import poisoned as poisoned
from harness import crossed, relative_error
from test_masks_before_loops import GPUS, LOOKED_AT, LOW, MASKS, added, biased, positions
from test_masks_before_loops import small_ones as small_ones
from test_numbers_of_keys import with_numbers

SIZES = {"batch": 2, "heads": 8, "heads_kv": 2, "queries": 500, "keys": 2048}
ROUNDED = 5e-2  # scores beside -65504 in all of a row: to multiples of 1/256


def check(graph, inputs, arch, tolerance):
    kernel = compile(graph.text(), target="nvidia", arch=arch, split_keys=1)
    assert LOOKED_AT in kernel.explain()
    found = np.asarray(kernel(*inputs), np.float64)
    expected, _ = graph.reference(inputs)
    assert relative_error(graph.canonical_output(found), expected) < tolerance


@needs_gpu
@pytest.mark.parametrize("size", [64, 128, 80])
@pytest.mark.parametrize(
    ("how", "number", "letters", "arch"), crossed(list(MASKS), [*LOW, "selected"], ["qk", "bqk"], GPUS)
)
def test_against_float64(how, number, letters, arch, size, small_ones, poisoned):
    graph = Attention(**SIZES, head_size=size, element="f16", **{"mask" if number == "selected" else "bias": letters})
    live = MASKS[how](*positions(graph))
    if number == "selected":
        inputs = with_numbers(graph, graph.inputs("normal", 0), "mask", live)
    else:
        inputs = added(graph, live, LOW[number], np.random.default_rng(1))
    check(graph, inputs, arch, TOLERANCE["f16"] if live.any() else ROUNDED)


@needs_gpu
@pytest.mark.parametrize("size", [64, 128])
@pytest.mark.parametrize(
    ("how", "number", "arch"), crossed(["causal", "blocks", "padding", "bias"], [*LOW, "selected"], GPUS)
)
def test_derivatives(how, number, arch, size, small_ones, poisoned):
    fields = {"h": 8, "d": size, "n": size}
    case, inputs = biased(how, "-inf" if number == "selected" else number, 2048, 2048, **fields)
    if number == "selected":
        live = np.isfinite(inputs[4])
        case = Case(case.sizes, case.kind, masked="shared")
        _, inputs = case.graph()
        inputs[4] &= live
    text, _ = case.graph()
    kernel = compile(text, target="nvidia", arch=arch)
    assert kernel.explain().count(LOOKED_AT) >= 3
    for found, wanted in zip(kernel(*inputs), case.expected(inputs), strict=True):
        assert relative_error(found, wanted) < 2e-2

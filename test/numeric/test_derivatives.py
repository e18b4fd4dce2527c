"""Derivatives of attention: four loop nests, none of which has scores in memory, against float64."""

import numpy as np
import pytest
from attn_opt.compiler import compile
from derivative_graphs import Case
from gpu_modules import run_module
from harness import crossed, relative_error
from hypothesis import given, settings
from hypothesis import strategies as st
from probability_graphs import SIZES, TOLERANCE

WAYS, MASKS, MODIFIED = ["torch", "jax"], ["", "causal", "loaded"], ["", "capped", "dropped"]
LARGE = {"h": 2, "m": 130, "k": 200, "d": 20, "n": 36}


def check(case: Case, **options) -> None:
    text, inputs = case.graph()
    kernel = compile(text, threads=1, **options)
    fused = kernel.ir("fused")
    assert kernel.explain().count("attention without a softmax") == 3, kernel.explain()
    assert fused.count("linalg_ext.softmax") == 1
    scores = f"tensor<{'x'.join(str(case.sizes[c]) for c in 'hmk')}xf32>"
    assert f"-> {scores}" not in fused.replace(f"tensor.empty() : {scores}", "")
    for found, wanted in zip(kernel(*inputs), case.expected(inputs), strict=True):
        assert relative_error(found, wanted) < TOLERANCE[case.kind]


@pytest.mark.parametrize("kind", ["f32", "bf16"])
@pytest.mark.parametrize("way, masked, modified", crossed(WAYS, MASKS, MODIFIED))
def test_on_a_cpu(way, masked, modified, kind):
    check(Case(LARGE, kind, way, masked, modified))


def test_dead_tiles_are_skipped():
    text, _ = Case(LARGE | {"m": 300, "k": 300}, masked="causal").graph()
    assert compile(text, threads=1).explain().count("skips dead tiles") == 4


@settings(max_examples=10, deadline=None)
@given(
    way=st.sampled_from(WAYS),
    masked=st.sampled_from(MASKS),
    modified=st.sampled_from(MODIFIED),
    sizes=st.fixed_dictionaries({c: st.integers(1, 70 if c in "mk" else 20) for c in "mkdn"}),
    heads=st.integers(1, 3),
)
def test_any_sizes(way, masked, modified, sizes, heads):
    case = Case({"h": heads, **sizes}, "f32", way, masked, modified)
    text, inputs = case.graph()
    for found, wanted in zip(compile(text, threads=1)(*inputs), case.expected(inputs), strict=True):
        assert np.abs(found - wanted).max() < 1e-5 * max(1.0, np.abs(wanted).max())


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("way, masked, modified", crossed(WAYS, MASKS, MODIFIED))
def test_on_a_gpu(way, masked, modified, arch):
    """At the level of tiles, without one."""
    case = Case(SIZES, "bf16", way, masked, modified)
    text, inputs = case.graph()
    found = run_module(text, [np.asarray(x, bool if x.dtype == bool else np.float64) for x in inputs], arch=arch)
    for one, wanted in zip(found, case.expected(inputs), strict=True):
        assert relative_error(one, wanted) < TOLERANCE["bf16"]

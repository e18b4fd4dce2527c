"""Derivatives of attention: up to three loop nests, none of which has scores in memory, against float64."""

import warnings

import numpy as np
import pytest
from attn_opt.compiler import compile, pass_manager
from attn_opt.dialects import make_context
from attn_opt.dialects.assembly import parse_module
from attn_opt.transforms.attention import find_attention
from attn_opt.transforms.cpu import one_nest
from attn_opt.transforms.cpu.matrix_unit import has_tiles
from attn_opt.transforms.host import matrix_unit
from attn_opt.transforms.nvidia.tile_sizes import choose_hopper_tile_sizes
from attn_opt.transforms.siblings import of_sibling, siblings
from derivative_graphs import LEARNED, Case
from gpu_modules import run_module
from harness import crossed, relative_error
from hypothesis import given
from hypothesis import strategies as st
from probability_graphs import SIZES, TOLERANCE, Graph
from properties import examples

WAYS, MASKS, MODIFIED = ["torch", "jax"], ["", "causal", "low", "loaded"], ["", "capped", "dropped"]
LARGE = {"h": 2, "m": 130, "k": 200, "d": 20, "n": 36}


def check(case: Case, **options) -> None:
    text, inputs = case.graph()
    kernel = compile(text, threads=1, **options)
    fused = kernel.ir("fused")
    explained = kernel.explain()
    assert explained.count("attention without a softmax") == 3, explained
    # Keys' and values' derivatives have one loop nest, with queries' where bf16 is not multiplied in tiles. But tiles
    # whose probabilities are all dropped are skipped, for values alone.
    in_tiles = case.kind == "bf16" and has_tiles(matrix_unit())
    assert explained.count("fuse-siblings: ") == (case.modified != "dropped") + (not in_tiles), explained
    assert fused.count("linalg_ext.softmax") == 1
    scores = f"tensor<{'x'.join(str(case.sizes[c]) for c in 'hmk')}xf32>"
    assert f"-> {scores}" not in fused.replace(f"tensor.empty() : {scores}", "")
    check_all(kernel(*inputs), case, inputs)


def check_all(results, case: Case, inputs) -> None:
    # What temperatures sum is mostly cancelled, but for the rounding of the output.
    tolerance = TOLERANCE[case.kind] * (3 if case.is_factor else 1)
    for found, wanted in zip(results, case.expected(inputs), strict=True):
        assert relative_error(found, wanted) < tolerance


def check_on_a_gpu(case: Case, arch: str) -> None:
    """At the level of tiles, without one."""
    text, inputs = case.graph()
    given = [np.asarray(x, bool if x.dtype == bool else np.float64) for x in inputs]
    check_all(run_module(text, given, arch=arch), case, inputs)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("kind", ["f32", "bf16"])
@pytest.mark.parametrize("way, masked, modified", crossed(WAYS, MASKS, MODIFIED))
def test_on_a_cpu(way, masked, modified, kind):
    check(Case(LARGE, kind, way, masked, modified))


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("masked, skipping", [("causal", 4), ("low", 3)])
def test_dead_tiles_are_skipped(masked, skipping, way):
    """By all four loop nests; a softmax that masks by a number computes them late, if at all."""
    text, _ = Case(LARGE | {"m": 300, "k": 300}, way=way, masked=masked).graph()
    assert compile(text, threads=1).explain().count("skips dead tiles") == skipping


@pytest.mark.sampled(2)
@pytest.mark.parametrize("way, masked", crossed(WAYS, ["", "low"]))
def test_all_read_the_same_probabilities(way, masked):
    """Of one number for each row, the logarithm of its sum of exponentials, however they are written."""
    raised = compile(Case(LARGE, way=way, masked=masked).graph()[0], threads=1).ir("raised")
    assert raised.count("math.exp2") == 3 and raised.count("math.log2") == 1 and "math.exp " not in raised


@pytest.mark.slow
@examples(10)
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


@pytest.mark.slow
@examples(10)
@given(
    way=st.sampled_from(WAYS),
    masked=st.sampled_from(MASKS),
    modified=st.sampled_from(MODIFIED),
    sizes=st.fixed_dictionaries({c: st.integers(*((64, 200) if c in "mk" else (2, 40))) for c in "mkdn"}),
    heads=st.integers(1, 5),
    threads=st.integers(1, 3),
)
def test_one_nest_of_any_sizes(way, masked, modified, sizes, heads, threads):
    """Where threads share the heads evenly, but for a fifth; else queries have a nest of their own."""
    case = Case({"h": heads, **sizes}, "f32", way, masked, modified)
    text, inputs = case.graph()
    kernel = compile(text, threads=threads)
    are_shared = heads % threads == 0 or (heads, threads) in ((5, 2), (5, 3))
    assert ("whose loops it is to be part of" in kernel.explain()) == are_shared
    for found, wanted in zip(kernel(*inputs), case.expected(inputs), strict=True):
        assert np.abs(found - wanted).max() < 1e-5 * max(1.0, np.abs(wanted).max())


@pytest.mark.sampled(5)
@pytest.mark.parametrize("kind, unit, together", [("bf16", "amx-bf16", 0), ("bf16", "dot", 1), ("f32", "amx-bf16", 1)])
def test_one_nest_by_instructions(kind, unit, together, monkeypatch):
    """Tiles of a matrix unit have a layout of their own, in which one nest saves nothing."""
    monkeypatch.setattr(one_nest, "matrix_unit", lambda: unit)
    monkeypatch.setenv("ATTN_OPT_CACHE", "0")  # kernels are found in it by what this machine has
    case = Case(LARGE, kind)
    text, inputs = case.graph()
    kernel = compile(text, threads=1)
    assert ("whose loops it is to be part of" in kernel.explain()) == together
    check_all(kernel(*inputs), case, inputs)


@pytest.mark.sampled(2, 2)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("way, masked, modified", crossed(WAYS, MASKS, MODIFIED))
def test_on_a_gpu(way, masked, modified, arch):
    check_on_a_gpu(Case(SIZES, "bf16", way, masked, modified), arch)


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("way", "masked", "modified"), [("torch", "", ""), ("jax", "causal", "dropped"), ("torch", "loaded", "capped")]
)
def test_keys_and_values_have_one_loop_nest_on_gpus(way, masked, modified):
    text, _ = Case(LARGE, "bf16", way, masked, modified).graph()
    assert compile(text, target="nvidia").explain().count("fuse-siblings: ") == 1


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("sizes", "kind", "masked", "modified", "expected"),
    [
        ({"d": 64, "n": 64}, "bf16", "", "", [1, 128, 0, 64]),
        ({"d": 64, "n": 40}, "bf16", "causal", "capped", [1, 128, 0, 64]),
        ({"d": 80, "n": 128}, "bf16", "causal", "", [1, 128, 0, 64]),
        ({"d": 64, "n": 64, "h": 2}, "bf16", "", "", [1, 64, 0, 64]),  # so few tiles that halves take less time
        ({"d": 64, "n": 64}, "f32", "", "", [1, 64, 0, 64]),
    ],
    ids=str,
)
def test_tiles_of_siblings_on_hopper(sizes, kind, masked, modified, expected):
    context = make_context()
    with context:
        text, _ = Case({"h": 64, "m": 1024, "k": 1024, **sizes}, kind, "torch", masked, modified).graph()
        module = parse_module(text, "test.mlir", context)
        pass_manager.run(["raise-attention"], module)
        (group,) = siblings(find_attention(module.operation))
        first, second = group
        chosen, order = choose_hopper_tile_sizes(first, together=True)
        assert chosen == expected
        assert of_sibling(order, first, second) == order


@pytest.mark.slow
def test_wide_heads_have_loop_nests_of_their_own_on_gpus():
    text, _ = Case({"h": 2, "m": 256, "k": 256, "d": 256, "n": 256}, "bf16").graph()
    assert "fuse-siblings" not in compile(text, target="nvidia").explain()
    assert "fuse-siblings" in compile(text).explain()


@pytest.mark.slow
def test_operands_of_wide_heads_fit_beside_masks_from_memory():
    sizes = {"h": 32, "m": 1023, "k": 333, "d": 256, "n": 256}
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # that scores are kept in memory
        compile(Case(sizes, "bf16", "jax", "causal", "dropped").graph()[0], target="nvidia")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("target", ["cpu", "nvidia"])
def test_two_values_with_one_softmax(target):
    """On a CPU in one loop nest; on GPUs there are no registers for two sums beside an online softmax."""
    g = Graph("f32", SIZES)
    q, k, v, w = (g.argument(name, dims) for name, dims in (("q", "hmd"), ("k", "hkd"), ("v", "hkn"), ("w", "hkn")))
    p = (g.softmax("p", g.scores("s", q, k)), "hmk", "f32")
    outputs = [g.matmul(f"o_{name}", p, (of, "hkn", "f32"), "hmn", "k") for name, of in (("v", v), ("w", w))]
    text, inputs = g.function_of(dict.fromkeys(outputs, "hmn")), g.inputs()
    kernel = compile(text, target=target)
    assert kernel.explain().count("fuse-siblings: ") == (target == "cpu")
    given = [np.asarray(x, np.float64) for x in inputs]
    found = kernel(*inputs) if target == "cpu" else run_module(text, given)
    scores = np.einsum("hmd,hkd->hmk", *given[:2]) / 4
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    for one, values in zip(found, given[2:], strict=True):
        assert relative_error(one, weights / weights.sum(-1, keepdims=True) @ values) < TOLERANCE["f32"]


@pytest.mark.slow
@pytest.mark.parametrize(("learned", "scores"), crossed(list(LEARNED), [*MASKS, " capped", "causal capped"]))
def test_by_what_is_learned(learned, scores):
    masked, _, modified = scores.partition(" ")
    case = Case(LARGE, "bf16" if modified else "f32", "torch", masked, modified, learned)
    text, inputs = case.graph()
    kernel = compile(text, threads=1)
    fused = kernel.ir("fused")
    assert fused.count("__pairwise__") == 1, kernel.explain()
    if learned != "bias of each head":  # which has the size of the scores
        scores = "tensor<2x130x200xf32>"
        assert f"-> {scores}" not in fused.replace(f"tensor.empty() : {scores}", "")
    check_all(kernel(*inputs), case, inputs)


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("learned", "way", "masked"), crossed(list(LEARNED), WAYS, MASKS))
def test_by_what_is_learned_on_a_gpu(learned, way, masked):
    check_on_a_gpu(Case(SIZES, "bf16", way, masked, "", learned), "sm_80" if way == "jax" else "sm_90a")

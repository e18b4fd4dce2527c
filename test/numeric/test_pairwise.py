"""What is needed for each query and key beside an attention, or a sum of it, is computed again in loops of its own."""

import numpy as np
import pytest
from attn_opt.compiler import compile
from gpu_modules import run_module
from harness import crossed, relative_error
from hypothesis import given
from hypothesis import strategies as st
from probability_graphs import SIZES, TOLERANCE, Graph, softmax
from properties import examples

# What is read: the scores, the probabilities, or a function of these; and over what it is summed.
READ = ["scores", "probabilities", "squares"]
OVER = ["", "h", "k", "m", "hk", "hmk"]


def graph_of(read: str, over: str, kind: str, sizes: dict[str, int] = SIZES) -> tuple[str, list, list]:
    """The text, inputs, and the results in float64."""
    g = Graph(kind, sizes)
    q, k, v = (g.argument(name, dims) for name, dims in (("q", "hmd"), ("k", "hkd"), ("v", "hkn")))
    s = g.scores("s", q, k)
    p = g.softmax("p", s)
    o = g.product(p, v)
    x = s if read == "scores" else p
    if read == "squares":
        x = g.elementwise("squares", "hmk", [(p, "hmk")], ["%r = arith.mulf %in0, %in0 : f32"])
    if over:
        x = g.reduced("summed", x, "hmk", over, "addf")
    text = g.function_of({o: "hmn", x: "".join(d for d in "hmk" if d not in over)})
    inputs = g.inputs()
    wide_q, wide_k, wide_v = (np.asarray(i, np.float64) for i in inputs)
    scores = 0.25 * wide_q @ wide_k.swapaxes(1, 2)
    weights = softmax(scores)
    found = {"scores": scores, "probabilities": weights, "squares": weights**2}[read]
    return text, inputs, [weights @ wide_v, found.sum(tuple("hmk".index(d) for d in over))]


def check(read: str, over: str, kind: str, sizes: dict[str, int] = SIZES) -> str:
    """The result of the kernel is right; the IR after fusion."""
    text, inputs, expected = graph_of(read, over, kind, sizes)
    kernel = compile(text)
    for found, wanted in zip(kernel(*inputs), expected, strict=True):
        assert np.abs(found - wanted).max() < TOLERANCE[kind] * max(1.0, np.abs(wanted).max())
    return kernel.ir("fused")


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("read", "over", "kind"), crossed(READ, OVER, ["f32", "bf16"]))
def test_on_a_cpu(read, over, kind):
    fused = check(read, over, kind)
    assert (fused.count("linalg_ext.softmax"), fused.count("__pairwise__")) == (1, 1)


@examples(10)
@given(
    read=st.sampled_from(READ),
    over=st.sampled_from(OVER),
    sizes=st.fixed_dictionaries({c: st.integers(1, 150 if c in "mk" else 20) for c in "hmkdn"}),
)
def test_any_sizes(read, over, sizes):
    check(read, over, "f32", sizes)


@pytest.mark.parametrize(("read", "over", "arch"), crossed(READ, OVER, ["sm_80", "sm_90a"]))
def test_on_a_gpu(read, over, arch):
    """At the level of tiles, without one."""
    text, inputs, expected = graph_of(read, over, "bf16")
    results = run_module(text, [np.asarray(x, np.float64) for x in inputs], arch=arch)
    for found, wanted in zip(results, expected, strict=True):
        assert relative_error(found, wanted) < TOLERANCE["bf16"]

"""Attention by the instructions that multiply matrices of f16 and bf16, each forced, against float64."""

import dataclasses

import ml_dtypes
import numpy as np
import pytest
from attn_opt.compiler import compile
from attn_opt.compiler.graphs import Attention
from attn_opt.compiler.linalg_text import LinalgText
from attn_opt.compiler.runtime.cpu import CpuKernel
from attn_opt.transforms import host
from attn_opt.transforms.cpu import tile_sizes
from harness import crossed, fused, relative_error
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

# Rounding of P and of the output, at the largest of all elements.
TOLERANCE = {"f16": 1e-3, "bf16": 1e-2}
WAYS = [("amx-fp16", "f16"), ("amx-bf16", "bf16"), ("amx-bf16", "f16"), ("dot", "bf16")]
PLAIN = Attention(heads=2, queries=70, keys=150, head_size=48)


def skip_without(unit: str) -> None:
    if unit == "dot" and not host.host_features() >= host.DOT_FEATURES:
        pytest.skip(f"this machine has no {unit}")


def compiled_for(unit: str, text: str) -> CpuKernel:
    """With the tile sizes of a machine that has the unit. Where there are no tiles, `expand-tiles` makes vectors."""
    with pytest.MonkeyPatch.context() as patch:
        if unit:
            patch.setattr(tile_sizes, "matrix_unit", lambda: unit)
        return fused(text, matrix=unit)


def check(graph: Attention, unit: str, spread: float = 1.0) -> None:
    inputs = made_up(graph, spread)
    found = compiled_for(unit, graph.text())(*inputs)
    expected, _ = graph.reference(inputs)
    assert np.isfinite(np.asarray(found, np.float64)).all()
    assert relative_error(graph.canonical_output(found), expected) < TOLERANCE[graph.element]


def made_up(graph: Attention, spread: float = 1.0) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [(spread * rng.standard_normal(x.shape)).astype(x.dtype) for x in graph.inputs()]


CHANGES = [
    {"keys": 320, "queries": 64, "head_size": 64},  # whole tiles only
    {"queries": 33, "head_size": 17, "value_size": 23, "bias": "qk", "softcap": 10.0},
    {"queries": 150, "window": (None, 0), "values_transposed": True},
    {"heads": 4, "heads_kv": 2, "input_layout": "bshd", "output_layout": "bshd"},
    {"input_layout": "bsdh", "keys": 1},  # neither keys nor head are contiguous
]


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("changes", "way"), crossed(CHANGES, WAYS))
def test_attention(changes, way):
    unit, element = way
    skip_without(unit)
    check(dataclasses.replace(PLAIN, element=element, **changes), unit)


@pytest.mark.sampled(12)
@pytest.mark.parametrize(("unit", "element"), WAYS)
@pytest.mark.parametrize("layout", ["bhsd", "bsdh"])
def test_infinities(unit, element, layout):
    """Of −∞ in a key its score, of ∞ in a value its column, and no NaN: neither 0·∞ nor ∞ − ∞ stand among the parts."""
    skip_without(unit)
    graph = dataclasses.replace(PLAIN, element=element, input_layout=layout, value_size=40)
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, 2, n, d)) for n, d in ((70, 48), (150, 48), (150, 40)))
    q[..., 0] = np.abs(q[..., 0]) + 1
    k[:, :, 2::3, 0] = -np.inf
    v[:, 0, 0, 7], v[:, 1, 0, 11] = np.inf, -np.inf
    if layout == "bsdh":
        q, k, v = (np.ascontiguousarray(x.transpose(0, 2, 3, 1)) for x in (q, k, v))
    inputs = [x.astype(y.dtype) for x, y in zip((q, k, v), graph.inputs(), strict=True)]
    found = graph.canonical_output(np.asarray(compiled_for(unit, graph.text())(*inputs))).astype(np.float64)
    with np.errstate(all="ignore"):
        exact, _ = graph.reference(inputs)
    infinite = np.isinf(exact)
    assert infinite.sum() == 2 * graph.queries
    np.testing.assert_array_equal(found[infinite], exact[infinite])
    assert relative_error(found[~infinite], exact[~infinite]) < TOLERANCE[element]


@pytest.mark.slow
@examples(8)
@given(
    way=st.sampled_from(WAYS),
    queries=st.integers(1, 130),
    keys=st.integers(1, 300),
    head_size=st.integers(1, 140),
    value_size=st.integers(1, 140),
)
def test_any_size(way, queries, keys, head_size, value_size):
    unit, element = way
    skip_without(unit)
    sizes = {"queries": queries, "keys": keys, "head_size": head_size, "value_size": value_size}
    check(Attention(element=element, **sizes), unit)


@pytest.mark.slow
@pytest.mark.parametrize(("unit", "element"), WAYS[1:])
def test_large_head(unit, element):
    skip_without(unit)
    check(dataclasses.replace(PLAIN, element=element, head_size=512), unit)


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("way", "layout"), crossed(WAYS, ["bhsd", "bsdh"]))
def test_dynamic(way, layout):
    """One kernel for all sizes; of bsdh, elements are copied one by one."""
    unit, element = way
    skip_without(unit)
    plain = dataclasses.replace(PLAIN, element=element, input_layout=layout)
    run = compiled_for(unit, dataclasses.replace(plain, dynamic=True).text())
    for queries, keys in ((64, 512), (37, 300)):
        graph = dataclasses.replace(plain, queries=queries, keys=keys)
        inputs = made_up(graph)
        assert relative_error(run(*inputs), graph.reference(inputs)[0]) < TOLERANCE[element]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("unit", ["amx-fp16", "amx-bf16"])
def test_subnormal_factors(unit):
    """f16 below 6e-5 is subnormal; as f32 and in bf16 it is not."""
    skip_without(unit)
    graph = dataclasses.replace(PLAIN, element="f16", scale=1.0)
    q, k, v = made_up(graph)
    q, k = (q.astype(np.float32) * 2.0**-15).astype(np.float16), (k.astype(np.float32) * 2.0**12).astype(np.float16)
    found = compiled_for(unit, graph.text())(q, k, v)
    assert relative_error(found, graph.reference([q, k, v])[0]) < TOLERANCE["f16"]


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("unit", "element"), WAYS)
def test_wide_scores(unit, element):
    """Scores of thousands: probabilities are 0 and 1, and nothing overflows."""
    skip_without(unit)
    check(dataclasses.replace(PLAIN, element=element, scale=1.0), unit, spread=16.0)


def test_refused_tiles(monkeypatch):
    """Where the system forbids tiles, f32 multiply-adds compute, with a warning."""
    from attn_opt.transforms.passes import listening

    monkeypatch.setattr(host, "tiles_allowed", lambda: False)
    monkeypatch.setattr(host, "host_features", lambda: host.AMX_FEATURES | host.DOT_FEATURES)
    assert host.matrix_unit() == "none"
    reports = []
    with listening(reports.append):
        check(dataclasses.replace(PLAIN, element="bf16"), "")
    assert [r.message for r in reports if "tiles" in r.message and r.severity == "warning"]


def test_matmul_of_an_open_number_of_keys():
    """Q·Kᵀ alone: the lanes are keys, for all of which no panel has room."""
    skip_without("dot")
    graph = LinalgText({"m": 70, "k": 300, "d": 20}, "k", "f32")
    graph.filled("s_init", "%zero", "mk")
    graph.contraction("s", "mkd", ("%q", "md", "bf16"), ("%k", "kd", "bf16"), "mk")
    q, k, s = graph.type("md", "bf16"), graph.type("kd", "bf16"), graph.type("mk", "f32")
    text = "\n".join(
        [
            f"func.func @f(%q: {q}, %k: {k}) -> {s} {{",
            "%zero = arith.constant 0.0 : f32",
            "%first = arith.constant 0 : index",
            f"%size_k = tensor.dim %k, %first : {k}",
            *graph.lines,
            f"return %s : {s}",
            "}",
        ]
    )
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((70, 20), (300, 20)))
    found = compile(text, threads=1)(x, y)
    assert relative_error(found, x.astype(np.float64) @ y.astype(np.float64).T) < 1e-5

"""Infinities and large numbers in the inputs: the result is finite, and right, where the exact one is."""

import numpy as np
import pytest
from attn_opt.compiler import compile
from attn_opt.compiler.graphs import Attention
from harness import relative_error

TOLERANCE = {"f32": 2e-5, "bf16": 1e-2, "f16": 2e-3}
SHAPES = [
    {"queries": 130, "keys": 130},
    {"queries": 70, "keys": 77, "window": (None, 0)},
    {"queries": 1, "keys": 300},
    {"queries": 64, "keys": 192, "head_size": 33, "value_size": 20},
]


@pytest.fixture(params=["f32", "bf16", "f16"])
def element(request):
    return request.param


def made_up(element: str, shape: dict, scale: float = 0.25) -> tuple[Attention, np.ndarray, np.ndarray, np.ndarray]:
    """A graph without a scale, so that a kernel serves all tests, and its inputs: queries are scaled."""
    graph = Attention(heads=2, element=element, scale=1.0, **shape)
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal(x.shape).astype(x.dtype) for x in graph.inputs())
    return graph, (q * np.float64(scale)).astype(q.dtype), k, v


def expected(graph: Attention, inputs: list[np.ndarray]) -> np.ndarray:
    with np.errstate(all="ignore"):
        return graph.reference(inputs)[0]


@pytest.mark.sampled(9, 18)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("largest", [1e2, 1e4])
def test_large_scores(element, shape, largest):
    """Probabilities become 0 and 1; sums neither overflow nor vanish."""
    graph, q, k, v = made_up(element, shape, 1.0)
    scores = np.einsum("bhqd,bhkd->bhqk", *(x.astype(np.float64) for x in (q, k)))
    q = (q.astype(np.float64) * (largest / np.abs(scores).max())).astype(q.dtype)
    found = graph.canonical_output(np.asarray(compile(graph.text())(q, k, v)))
    exact = expected(graph, [q, k, v])
    assert np.isfinite(exact).all()
    assert np.isfinite(found.astype(np.float64)).all()
    # Scores of 1e4 in f32 are off by up to 1e-3, and so are their exponentials.
    assert relative_error(found, exact) < max(TOLERANCE[element], largest * 1e-6)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "shape",
    [
        {"queries": 1, "keys": 300},
        {"queries": 70, "keys": 77, "window": (None, 0)},
        {"queries": 64, "keys": 64, "scale": 0.3},
        {"queries": 64, "keys": 192, "head_size": 33, "value_size": 20},
    ],
    ids=str,
)
@pytest.mark.parametrize("element", ["f32", "bf16"])
def test_scores_whose_rounding_is_large(element, shape):
    """Of scores beyond 2³¹ a unit in the last place is 256 and more: that of a row's maximum and of its score must be
    the same. All probabilities are 0 or 1."""
    graph = Attention(heads=2, element=element, **shape)
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal(x.shape).astype(x.dtype) for x in graph.inputs())
    kernel = compile(graph.text())
    for largest in (1e10, 1e20, 1e30):
        large = (q * np.float64(largest)).astype(q.dtype)
        found = graph.canonical_output(np.asarray(kernel(large, k, v))).astype(np.float64)
        assert np.isfinite(found).all()
        assert relative_error(found, expected(graph, [large, k, v])) < TOLERANCE[element]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_infinite_keys(element, shape):
    """Scores of −∞: these keys do not count. The first key is finite, so that every row has one."""
    graph, q, k, v = made_up(element, shape)
    q[..., 0] = np.abs(q[..., 0]) + 1
    k[:, :, 2::3, 0] = -np.inf
    found = graph.canonical_output(np.asarray(compile(graph.text())(q, k, v)))
    assert np.isfinite(found.astype(np.float64)).all()
    assert relative_error(found, expected(graph, [q, k, v])) < TOLERANCE[element]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_infinite_values(element, shape):
    """One infinite value makes its column of the rows that see it infinite, and nothing else, NaN in particular."""
    graph, q, k, v = made_up(element, shape, 0.01)
    v[:, 0, 0, 7], v[:, 1, 0, 11] = np.inf, -np.inf
    found = graph.canonical_output(np.asarray(compile(graph.text())(q, k, v))).astype(np.float64)
    exact = expected(graph, [q, k, v])
    infinite = np.isinf(exact)
    assert infinite.sum() == 2 * graph.queries
    np.testing.assert_array_equal(found[infinite], exact[infinite])
    assert relative_error(found[~infinite], exact[~infinite]) < TOLERANCE[element]


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_no_numbers(element, shape, sign):
    """A query or key that is no number makes no number of what it is part of, and of nothing else."""
    graph, q, k, v = made_up(element, shape)
    nan = np.copysign(np.nan, sign)
    q[:, 0, graph.queries // 2, 3], k[:, 1, graph.keys // 3, 5] = nan, nan
    found = graph.canonical_output(np.asarray(compile(graph.text())(q, k, v))).astype(np.float64)
    exact = expected(graph, [q, k, v])
    np.testing.assert_array_equal(np.isnan(found), np.isnan(exact))
    assert np.isnan(exact).any()
    numbers = ~np.isnan(exact)
    assert relative_error(found[numbers], exact[numbers]) < TOLERANCE[element]

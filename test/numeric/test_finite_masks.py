"""Masks of low finite numbers: tiles that they fill are skipped, and computed after all where a row needs them."""

import numpy as np
import pytest
from attn_opt.compiler import pass_manager
from attn_opt.compiler.graphs import Attention
from attn_opt.dialects.assembly import parse_module
from attn_opt.dialects.reference import evaluate
from harness import crossed, kernel, relative_error
from hypothesis import given
from hypothesis import strategies as st
from properties import examples
from test_fusion import CONTEXT, fuse
from test_split_masked_tiles import count_tiles

LEAST = {"f32": float(np.finfo(np.float32).min), "f64": -2e3}
BEFORE = ["fold-diag", "canonicalize", "cse", "parallel-loops", "canonicalize", "defer-division", "exp-to-exp2"]


def text(graph: Attention, low: float) -> str:
    """`graph` with `low` in place of −∞ where a score is masked."""
    found = graph.text()
    assert ", %minus_inf, %" in found
    constant = f"%low = arith.constant {low!r} : f{32 if graph.element == 'f32' else 64}\n  %s_init_empty ="
    return found.replace(", %minus_inf, %", ", %low, %").replace("%s_init_empty =", constant, 1)


def inputs(graph: Attention, size: float) -> list[np.ndarray]:
    """Random numbers whose products are exact, so that scores of that size are."""
    rng = np.random.default_rng(1)
    shapes = [shape for shape, _ in graph.arguments().values()]
    return [(np.round(rng.standard_normal(s) * 8) * size / 8).astype(graph.dtype) for s in shapes]


WINDOWS = st.tuples(
    st.one_of(st.none(), st.integers(-9, 3)),  # the first key, relative to the query, or none
    st.one_of(st.none(), st.integers(-3, 6)),
).filter(lambda w: w != (None, None) and (None in w or w[0] <= w[1]))


@given(
    st.integers(1, 12),
    st.integers(1, 14),
    WINDOWS,
    st.tuples(st.integers(1, 5), st.integers(1, 5)),
    st.sampled_from([1.0, 16.0, 64.0]),
    st.sampled_from([[], BEFORE[:5], BEFORE]),
)
@examples(60)
def test_any_window(queries, keys, window, tiles, size, before):
    """Also where live scores are lower than what masks are made of, and where rows have no key at all."""
    graph = Attention(queries=queries, keys=keys, head_size=2, window=window, element="f64")
    given_inputs = inputs(graph, size)
    with CONTEXT:
        source = text(graph, LEAST["f64"])
        (expected,) = evaluate(parse_module(source, "graph.mlir", CONTEXT), given_inputs)
        module = fuse(source, [1, 1, tiles[0], 0, tiles[1]], (0, 1, 2, 4, 3))
        pass_manager.run([*before, "split-masked-tiles"], module)
        (found,) = evaluate(module, given_inputs)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9 * size)


@pytest.mark.parametrize("low_scores", [False, True])
def test_tiles_are_skipped_if_scores_are_far_above(low_scores, monkeypatch):
    graph = Attention(queries=12, keys=12, head_size=2, window=(None, 0), element="f64")
    with CONTEXT:
        module = fuse(text(graph, LEAST["f64"]), [1, 1, 4, 0, 3], (0, 1, 2, 4, 3))
        pass_manager.run([*BEFORE, "split-masked-tiles"], module)
    count = count_tiles(module, inputs(graph, 64.0 if low_scores else 0.5), monkeypatch)
    assert count > 9 if low_scores else count == 9


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("low", "window"),
    crossed([LEAST["f32"], 0.7 * LEAST["f32"], -1e9, -1e4], [(None, 0), (None, -1), (-20, 0), (30, None)]),
)
def test_compiled(window, low):
    """As machine code. Rows without a key are the mean of the values, as in the graph."""
    graph = Attention(batch=2, queries=75, keys=141, head_size=8, window=window)
    given_inputs = inputs(graph, 0.5)
    with CONTEXT:
        (expected,) = evaluate(parse_module(text(graph, low), "graph.mlir", CONTEXT), given_inputs)
    found = kernel_of(text(graph, low))(*given_inputs)
    assert relative_error(found, expected) < 1e-5


def kernel_of(source: str):
    from attn_opt.dialects.assembly import print_module

    with CONTEXT:
        return kernel(print_module(fuse(source, [1, 1, 16, 0, 24], (0, 1, 2, 4, 3))))

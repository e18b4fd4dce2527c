"""Functions of JAX that are almost attention: left as they are, with the reason."""

import numpy as np
import pytest
from attn_opt.compiler.api import compile
from attn_opt.compiler.counts import stats

jax = pytest.importorskip("jax", reason="the extra 'jax' is not installed")

from jax_harness import output_of, qkv, scores_of  # noqa: E402

jnp, lax = jax.numpy, jax.lax
softmax = jax.nn.softmax


def sum_with_a_number(q, k, v):
    """Relative to the maximum of all scores, not to that of the row."""
    s = scores_of(q, k)
    e = jnp.exp(s - s.max())
    return output_of(e / (e.sum(-1, keepdims=True) + 1e-3), v)


def sum_of_others(q, k, v):
    s = scores_of(q, k)
    return output_of(jnp.exp(s) / jnp.exp(2 * s).sum(-1, keepdims=True), v)


def largest(q, k, v):
    p = softmax(scores_of(q, k))
    return output_of(jnp.where(p >= p.max(-1, keepdims=True), p, 0), v)


def over_heads(q, k, v):
    return output_of(softmax(scores_of(q, k), axis=1), v)


REFUSED = {
    sum_with_a_number: (
        qkv(),
        "a number is added to the sum of its exponentials, which are not shifted by their maximum",
    ),
    sum_of_others: (qkv(), "its exponentials are divided by a sum of something else"),
    largest: (qkv(), "multiplied by something that varies along the keys and is computed from the scores"),
    over_heads: (qkv(), "normalised along another dimension"),
}


@pytest.mark.parametrize("fn", REFUSED, ids=lambda fn: fn.__name__)
def test_refused(fn):
    """With the reason; and computed all the same."""
    args, reason = REFUSED[fn]
    before = stats()["reasons"]
    results = jax.tree.leaves(compile(fn, args)(*args))
    assert any(reason in text and n > before.get(text, 0) for text, n in stats()["reasons"].items())
    with jax.enable_x64(True):
        expected = jax.tree.leaves(fn(*(x.astype(np.float64) if x.dtype == np.float32 else x for x in args)))
    for found, exact in zip(results, map(np.asarray, expected), strict=True):
        assert np.abs(found - exact).max() < 1e-5 * np.abs(exact).max()

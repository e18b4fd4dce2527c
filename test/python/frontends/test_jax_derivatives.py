"""The derivative of attention as people write it in JAX, by everything that is a float: four loop nests and more."""

import ml_dtypes
import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="the extra 'jax' is not installed")

from jax_harness import TOLERANCE, B, H, N, T, compile, random, stats  # noqa: E402
from test_jax_variants import MASK, VARIANTS, qkv  # noqa: E402

jnp = jax.numpy
softmax = jax.nn.softmax

pytestmark = pytest.mark.filterwarnings("ignore:Explicitly requested dtype float64")

QUICK = {
    *("by_logsumexp", "causal_iota", "dropped", "grouped_by_reshape", "relative_bias", "rotary", "segments"),
    *("softcapped", "softmax_where", "vmapped_keys_shared"),
}
# A derivative by the maximum, which is 0 as a whole and not told to be, and sums that are no plain ones.
LEFT = {
    *("divided_by_guarded_sum", "maximum_of_each_head", "one_einsum", "powers_of_two", "sinks"),
    *("sum_of_ones", "sum_with_a_floor", "sums_where", "two_key_dimensions"),
    "two_key_dimensions_and_more",
}


def check(fn, args, fused: bool = True):
    floats = [i for i, x in enumerate(args) if np.asarray(x).dtype == np.float32]
    by = random(*jax.eval_shape(fn, *args).shape, seed=7)

    def derivative(*given):
        *all_, by = given

        def of_floats(*values):
            return fn(*(values[floats.index(i)] if i in floats else x for i, x in enumerate(all_)))

        return jax.vjp(of_floats, *(all_[i] for i in floats))[1](by)

    before = stats()
    kernel = compile(derivative, (*args, by))
    after = stats()
    assert (after["compiled"] - before["compiled"] >= 4 and after["left"] == before["left"]) == fused
    with jax.enable_x64(True):
        wide = [x.astype(np.float64) if x.dtype == np.float32 else x for x in map(np.asarray, (*args, by))]
        expected = derivative(*wide)
    for found, wanted in zip(kernel(*args, by), expected, strict=True):
        assert np.abs(np.asarray(found, np.float64) - wanted).max() < TOLERANCE["f32"] * np.abs(wanted).max()


@pytest.mark.filterwarnings("ignore:attn_opt")
@pytest.mark.parametrize(
    "fn", [pytest.param(fn, id=(n := fn.__name__), marks=() if n in QUICK else pytest.mark.slow) for fn in VARIANTS]
)
def test_variant(fn):
    check(fn, VARIANTS[fn], fn.__name__ not in LEFT)


@pytest.mark.parametrize("masked", [False, True])
def test_jax_own_attention(masked):
    check(lambda q, k, v, m: jax.nn.dot_product_attention(q, k, v, mask=m if masked else None), MASK)


def test_jax_own_attention_in_bf16_with_its_output():
    """The output is that which rows are summed over; the derivative of scores is f32, and multiplied as bf16."""

    def output_and_derivative(q, k, v, by):
        out, back = jax.vjp(lambda q, k, v: jax.nn.dot_product_attention(q, k, v, is_causal=True), q, k, v)
        return out, *back(by)

    args = [x.astype(ml_dtypes.bfloat16) for x in (*qkv(N), random(B, T, N, H, seed=7))]
    kernel = compile(output_and_derivative, args)
    explained, roots = kernel.explain(), [line for line in kernel.ir("raised").splitlines() if "__attention__" in line]
    assert "4 attentions found and fused" in explained, explained
    assert len(roots) == 3 and all(line.count("xbf16>") == 2 for line in roots), roots
    expected = output_and_derivative(*(jnp.asarray(x, jnp.float32) for x in args))
    for found, wanted in zip(kernel(*args), expected, strict=True):
        assert np.abs(np.asarray(found, np.float32) - wanted).max() < TOLERANCE["bf16"] * np.abs(wanted).max()


@pytest.mark.parametrize("tokens_first, heads", [(True, 3), (False, 3), (True, 18)])
def test_heads_that_share_keys(tokens_first, heads):
    """Sums over heads and queries are sums over heads of what each has: one loop nest, and nothing is copied."""
    letters = ("bqhgd,bkhd->bhgqk", "bhgqk,bkhd->bqhgd") if tokens_first else ("bhgqd,bhkd->bhgqk", "bhgqk,bhkd->bhgqd")

    def attention(q, k, v):
        scores = jnp.einsum(letters[0], q, k)
        seen = jnp.tril(jnp.ones(scores.shape[-2:], bool))
        return jnp.einsum(letters[1], softmax(jnp.where(seen, scores, -1e30)), v)

    q, k, v = random(2, 150, 2, heads, 8), random(2, 150, 2, 8, seed=1), random(2, 150, 2, 8, seed=2)
    if not tokens_first:
        q, k, v = (np.moveaxis(x, 1, -2).copy() for x in (q, k, v))
    check(attention, (q, k, v))
    kernel = compile(lambda q, k, v, by: jax.vjp(attention, q, k, v)[1](by), (q, k, v, q))
    assert kernel.explain().count("fuse-siblings: ") == 1
    assert f"tensor<2x2x{150 * heads}x" not in kernel.ir("raised")


@pytest.mark.parametrize("behind", [False, True])
def test_maxima_that_are_not_told_to_be_constant(behind):
    """What goes through them is 0, if exponentials are divided by their sum, also behind the second matmul."""

    def attention(q, k, v):
        scores = jnp.einsum("btnh,bsnh->bnts", q, k)
        e = jnp.exp(scores - scores.max(-1, keepdims=True))
        total = e.sum(-1)
        if behind:
            return jnp.einsum("bnts,bsnh->btnh", e, v) / jnp.moveaxis(total, 1, 2)[..., None]
        return jnp.einsum("bnts,bsnh->btnh", e / total[..., None], v)

    check(attention, qkv())


def test_an_output_divided_behind_and_returned():
    """What its derivative needs undivided is the output times the sums."""

    def attention(q, k, v):
        scores = jnp.einsum("btnh,bsnh->bnts", q, k)
        e = jnp.exp(scores - scores.max(-1, keepdims=True))
        return jnp.einsum("bnts,bsnh->btnh", e, v) / jnp.moveaxis(e.sum(-1), 1, 2)[..., None]

    def output_and_derivative(q, k, v, by):
        out, back = jax.vjp(attention, q, k, v)
        return out, *back(by)

    args = (*qkv(), random(B, T, N, H, seed=7))
    kernel = compile(output_and_derivative, args)
    assert "4 attentions found and fused" in kernel.explain()
    with jax.enable_x64(True):
        expected = output_and_derivative(*(x.astype(np.float64) for x in args))
    for found, wanted in zip(kernel(*args), expected, strict=True):
        assert np.abs(np.asarray(found, np.float64) - wanted).max() < TOLERANCE["f32"] * np.abs(wanted).max()


@pytest.mark.parametrize("divided", ["not", "by other sums", "by a number more"])
def test_maxima_that_count(divided):
    def attention(q, k, v):
        scores = jnp.einsum("btnh,bsnh->bnts", q, k)
        e = jnp.exp(scores - scores.max(-1, keepdims=True))
        total = (e[..., ::2] if divided == "by other sums" else e).sum(-1, keepdims=True)
        p = e if divided == "not" else e / (total + (divided == "by a number more"))
        return jnp.einsum("bnts,bsnh->btnh", p, v)

    check(attention, qkv(), fused=False)


def test_one_head():
    def attention(q, k, v):
        return softmax(q @ k.T) @ v

    check(attention, tuple(x[0, :, 0] for x in qkv()))


def test_sigmoid():
    """Weights that are made of each score by itself have two derivatives, and values a third."""

    def attention(q, k, v):
        return jnp.einsum("bnts,bsnh->btnh", jax.nn.sigmoid(jnp.einsum("btnh,bsnh->bnts", q, k) - 3), v)

    args = (*qkv(), random(2, 21, 4, 8, seed=7))
    kernel = compile(lambda q, k, v, by: jax.vjp(attention, q, k, v)[1](by), args)
    assert kernel.explain().count("attention without a softmax") == 3

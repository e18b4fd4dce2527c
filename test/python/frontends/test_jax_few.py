"""Few queries, keys or columns in functions of JAX for GPUs: attention is fused nonetheless, and right; matmuls are
tiled (found by random programs)."""

import warnings

import ml_dtypes
import numpy as np
import pytest
from attn_opt.compiler import compile

jax = pytest.importorskip("jax", reason="the extra 'jax' is not installed")

import jax.numpy as jnp  # noqa: E402
from gpu_modules import lowered, run  # noqa: E402
from jax import lax  # noqa: E402

BF16 = ml_dtypes.bfloat16


def softmax(s):
    return jax.nn.softmax(s, -1)


def heads(x, count):
    return x.reshape(*x.shape[:-1], count, -1).swapaxes(-3, -2)


def a_table_read_by_a_product(q, k, v, table):
    """Scores are put into a tensor, so that no product of queries and keys is seen."""
    s = (q @ k.mT).at[..., ::2].max(-1) / 8
    j = jnp.broadcast_to(jnp.arange(k.shape[-2]) % 9, s.shape[-2:])
    return softmax(s + jax.nn.one_hot(j, 9, dtype=table.dtype) @ table) @ v


def values_of_each_head_and_one_query(q, k, v):
    k, v = (jnp.broadcast_to(x[:, :, None], (3, 2, 2, *x.shape[-2:])).reshape(3, 4, *x.shape[-2:]) for x in (k, v))
    v = jnp.pad(v, [(0, 0)] * 3 + [(0, 56)])[..., :64]
    return softmax(q @ k.mT / 8) @ v


def keys_that_are_returned(q, k, v):
    k = k[..., ::-1, :]
    return softmax(q @ k.mT / 8) @ v, k


def a_loop_over_heads(q, k, v):
    def write(h, o):
        return o.at[:, h].set(softmax(q[:, h] @ k[:, h].mT / 4) @ v[:, h])

    return lax.fori_loop(0, q.shape[1], write, jnp.zeros_like(q))


def a_loop_over_shared_heads(q, k, v):
    """The places of slices are computed of numbers: the loop is written out."""
    return a_loop_over_heads(q, *(jnp.repeat(x, 2, axis=1) for x in (k, v)))


def a_logarithm_that_is_returned(q, k, v):
    s = q @ k.mT / 4
    sums = jax.nn.logsumexp(s, -1, keepdims=True)
    return jnp.exp(s - sums) @ v, sums


def layer(x, w, w1, w2, w3, w4):
    """Of heads that are summed over, and are one; what follows has sums of few products."""
    q, k, v = heads(x @ w, 1), jnp.einsum("btc,cnd->bntd", x, w1), jnp.einsum("btc,cnd->bntd", x, w2)
    x = x + jnp.einsum("bhmd,hdc->bmc", softmax(q @ k.mT / 4) @ v, w3)
    return x + jnp.tanh(x @ w4) @ w4.T


def shared_keys(x, w, u, w1):
    """One query and key: queries of a group are parts of a row, which get a bias where they are read."""
    q, k = heads(x @ w + u, 6), heads(x @ w1, 2)
    return jax.nn.dot_product_attention(*(t.swapaxes(-3, -2) for t in (q, k, k)), is_causal=True)


def a_gate_of_single_keys(q, k, v, gate):
    """It is read along the keys, where its own dimensions have one element each."""
    s = q @ k.mT / 4
    return ((softmax(s) - 0.4 * softmax(s / 2)) * gate) @ v


CASES = {
    a_table_read_by_a_product: ((1, 4, 7, 64), (1, 4, 17, 64), (1, 4, 17, 64), (9,)),
    values_of_each_head_and_one_query: ((3, 4, 1, 64), (3, 2, 5, 64), (3, 2, 5, 8)),
    keys_that_are_returned: ((1, 2, 64), (1, 33, 64), (1, 33, 64)),
    a_loop_over_heads: ((2, 2, 33, 16), (2, 2, 17, 16), (2, 2, 17, 16)),
    a_loop_over_shared_heads: ((1, 4, 2, 16), (1, 2, 7, 16), (1, 2, 7, 16)),
    a_logarithm_that_is_returned: ((2, 2, 33, 16), (2, 2, 2, 16), (2, 2, 2, 5)),
    a_gate_of_single_keys: ((1, 1, 65, 32), (1, 1, 1, 32), (1, 1, 1, 8), (1, 1, 1, 1)),
    layer: ((2, 33, 16), (16, 16), (16, 1, 16), (16, 1, 16), (1, 16, 16), (16, 24)),
    shared_keys: ((1, 1, 384), (384, 384), (384,), (384, 128)),
}


@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("function", CASES, ids=lambda f: f.__name__)
def test_few(function, arch):
    rng = np.random.default_rng(0)
    args = [rng.standard_normal(shape, np.float32) / (1 if len(shape) > 3 else 4) for shape in CASES[function]]
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*no kernel can be made of it")
        kernel = compile(function, tuple(args), target="nvidia", arch=arch)
    assert ".entry" in kernel.ir("ptx")
    with jax.enable_x64(True):
        right = jax.tree.leaves(jax.jit(function)(*(jnp.asarray(x, jnp.float64) for x in args)))
    for found, wanted in zip(run(lowered(kernel.ir("fused"), is_fused=True, arch=arch), args), right, strict=True):
        np.testing.assert_allclose(found, np.asarray(wanted), rtol=1e-4, atol=1e-4)


def products_in_both_orders(q, k, v, sink):
    s = jnp.hypot(jnp.einsum("bhtd,bhmd->bhtm", k, q).mT.astype(np.float32), 1.0) * (q * 0.5 @ k.mT)
    p = softmax(jnp.concatenate([s, jnp.broadcast_to(sink, (*s.shape[:-1], 1))], -1))[..., :-1]
    return (p * p).astype(v.dtype) @ v


def many_rows_of_a_projection(q, k, v, w):
    p = softmax(q @ k.mT / 8) * (jnp.arange(33) % 3 + 1)
    return (p / p.sum(-1, keepdims=True)).astype(v.dtype) @ v @ w


def one_query_that_is_divided_by_its_number(q, k, v):
    q = jnp.cumsum(q, -2) / jnp.arange(1, q.shape[-2] + 1, dtype=q.dtype)[:, None]
    return softmax(q.reshape(2, 2, 3, 1, 8) @ k[:, :, None].mT / 8) @ v[:, :, None]


HALVES = {
    products_in_both_orders: ((2, 3, 65, 16), (2, 3, 68, 16), (2, 3, 68, 8), (1, 3, 1, 1)),
    many_rows_of_a_projection: ((2, 1, 4, 65, 64), (2, 1, 1, 33, 64), (2, 1, 1, 33, 8), (8, 9)),
    one_query_that_is_divided_by_its_number: ((2, 6, 1, 8), (2, 2, 2, 8), (2, 2, 2, 8)),
}


@pytest.mark.parametrize("dtype", [np.float16, BF16])
@pytest.mark.parametrize("function", HALVES, ids=lambda f: f.__name__)
def test_few_of_halves(function, dtype):
    args = tuple(np.zeros(shape, dtype) for shape in HALVES[function])
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*no kernel can be made of it")
        assert ".entry" in compile(function, args, target="nvidia", arch="sm_80").ir("ptx")


@pytest.mark.parametrize("dtype", [np.float16, BF16])
@pytest.mark.parametrize("spec", ["mk,kn->mn", "btc,cnd->bntd"])
def test_matmuls_of_halves_are_tiled(spec, dtype):
    """Their results are halves in JAX, their sums f32."""
    shapes = {"m": 130, "k": 72, "n": 40, "b": 1, "t": 130, "c": 72, "d": 16}
    rng = np.random.default_rng(0)
    left, right = ([shapes[d] for d in one] for one in spec.partition("->")[0].split(","))
    args = tuple(rng.standard_normal(shape).astype(dtype) for shape in (left, right))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*a thread for each element")
        kernel = compile(lambda a, b: jnp.einsum(spec, a, b), args, target="nvidia", arch="sm_90a")
    assert "wgmma" in kernel.ir("ptx")
    (found,) = run(lowered(kernel.ir("fused"), is_fused=True, arch="sm_90a"), [x.astype(np.float32) for x in args])
    wanted = np.einsum(spec, *(x.astype(np.float64) for x in args))
    error = 2.0**-8 if dtype == BF16 else 2.0**-11
    np.testing.assert_allclose(found, wanted, rtol=1.01 * error, atol=1e-4)


def test_a_single_score_less_its_logarithm_is_nothing():
    """Both are rounded, or neither: the logarithm is stored."""

    def function(x):
        s = jnp.where(jnp.arange(x.shape[-1]) < 1, x * 1.7, -jnp.inf)
        sums = jax.nn.logsumexp(s, -1, keepdims=True)
        return jnp.exp(s - sums) ** 2, sums

    x = (np.random.default_rng(0).standard_normal((5, 65)) * 9).astype(BF16)
    kernel = compile(function, (x,), target="nvidia", arch="sm_90a")
    module = lowered(kernel.ir("fused"), is_fused=True, arch="sm_90a")
    squares, _ = run(module, [*kernel.program.constants, x.astype(np.float32)])
    np.testing.assert_array_equal(squares, np.broadcast_to(np.arange(65) < 1, (5, 65)))

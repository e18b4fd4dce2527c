"""What only a GPU knows in functions of JAX: places that are written and read, and what decides on branches."""

import warnings

import numpy as np
import pytest
from attn_opt.compiler import compile

jax = pytest.importorskip("jax", reason="the extra 'jax' is not installed")

import jax.numpy as jnp  # noqa: E402
from gpu_modules import run_module  # noqa: E402
from jax import lax  # noqa: E402

X, Q, U = np.random.default_rng(0).standard_normal((3, 9, 16), np.float32)
AT, TWICE = np.array(3, np.int32), np.array([1, -2, 1, 40], np.int32)


def attention(q, k, v):
    return jax.nn.softmax(q @ k.T) @ v


def rows(x, at, count=2):
    return lax.dynamic_slice(x, (at, 0), (count, x.shape[1]))


WRITES = {
    "set": lambda x, u, at, twice: x.at[twice].set(u[:4]),
    "add": lambda x, u, at, twice: x.at[twice].add(u[:4]),
    "max of columns": lambda x, u, at, twice: x.at[:, twice].max(u[:, :4]),
    "elements": lambda x, u, at, twice: x.at[twice, twice].multiply(u[:4, 0]),
    "windows": lambda x, u, at, twice: jax.vmap(lambda r, i: lax.dynamic_update_slice(r, u[0, :3], (i,)))(x[:4], twice),
    "row": lambda x, u, at, twice: x.at[at].set(u[0]),
    "sums of segments": lambda x, u, at, twice: jax.ops.segment_sum(u[:4], twice, 5),
}
READS = {
    "rows": lambda x, u, at, twice: jnp.exp(rows(x, at)),
    "queries": lambda x, u, at, twice: attention(rows(x, at), u, u),
    "keys": lambda x, u, at, twice: attention(u, rows(x, at, 5), rows(x, at, 5)),
    "product": lambda x, u, at, twice: rows(x, at) @ u.T,
}
BRANCHES = {
    "either": lambda x, u, at, twice: lax.cond(at > 2, lambda: x + u, lambda: x - u),
    "one of three": lambda x, u, at, twice: lax.switch(at, [lambda: x + 1, lambda: x * u, lambda: jnp.exp(x)]),
    "inner": lambda x, u, at, twice: lax.cond(
        at > 2, lambda: lax.cond(at > 3, lambda: x, lambda: u), lambda: rows(jnp.concatenate([x, u]), at, 9)
    ),
    "attention": lambda x, u, at, twice: lax.cond(at > 2, lambda: attention(x, u, u), lambda: attention(u, x, x)),
}
FORMS = WRITES | READS | BRANCHES


@pytest.mark.filterwarnings("ignore:.*only the GPU knows what decides on a branch")
@pytest.mark.parametrize("form", FORMS)
def test_without_a_gpu(form):
    fn = FORMS[form]
    given = X, U, AT, TWICE
    assert compile(fn, given, target="nvidia").ir("ptx")
    graph = compile(fn, given).ir("graph")
    names = ("x", "u", "at", "twice")
    for at in (AT, np.array(0, np.int32), np.array(7, np.int32)) if form not in WRITES else (AT,):
        arguments = dict(zip(names, (X, U, at, TWICE), strict=True))
        (found,) = run_module(graph, list(arguments.values()))
        np.testing.assert_allclose(found, fn(*map(jnp.asarray, arguments.values())), rtol=1e-5, atol=1e-5)


def test_branches_that_are_both_computed_are_told_of():
    with pytest.warns(match="only the GPU knows what decides on a branch"):
        compile(BRANCHES["attention"], (X, U, AT, TWICE), target="nvidia")


def test_a_number_of_16_bits_that_queries_are_divided_by():
    """It is a constant without dimensions, in the kernel's memory: translating it ended the process."""
    q, k = np.zeros((4, 1, 32), np.float16), np.zeros((4, 65, 32), np.float16)
    kernel = compile(lambda q, k: jax.nn.softmax((q / 5.657) @ k.mT) @ k, (q, k), target="nvidia", arch="sm_90a")
    assert ".entry" in kernel.ir("ptx")


def test_a_number_that_queries_keys_and_a_padding_share():
    """Zero in bf16, as a tensor without dimensions that stands outside of the loop."""
    x, v = jnp.zeros((3, 130, 32), jnp.bfloat16), jnp.zeros((3, 130, 8), jnp.bfloat16)

    def padded(q, k, v):
        q, k = (jax.nn.standardize(x, axis=-1, epsilon=1e-3) for x in (q, k))
        return jax.nn.softmax(q @ k.mT) @ jnp.pad(v, [(0, 0), (0, 0), (0, 24)])

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compile(padded, (x, x, v), target="nvidia", arch="sm_80")


def by_log_sums(q, k, v):
    """Heads that share keys: JAX looks whether maxima are finite behind a reshape, and for probabilities once more."""
    k, v = jnp.repeat(k, 2, axis=1), jnp.repeat(v, 2, axis=1)
    s = 0.25 * q @ k.mT
    lse = jax.nn.logsumexp(s, -1, keepdims=True)
    return jnp.exp(s - lse) @ v, lse


def test_a_test_of_statistics_is_no_reason_to_leave_attention():
    q, k, v = (
        np.random.default_rng(n).standard_normal((2, h, n, 8), np.float32) for h, n in ((4, 33), (2, 70), (2, 70))
    )
    kernel = compile(by_log_sums, (q, k, v), target="nvidia", arch="sm_90a", must_fuse=True)
    found = run_module(kernel.ir("fused"), (q, k, v), is_fused=True)
    for one, right in zip(found, by_log_sums(q, k, v), strict=True):
        np.testing.assert_allclose(one, right, atol=1e-5)


def written_and_read_twice(q, k, v, seen, at):
    """One head, so that the two products with values are written apart."""
    k, v = (lax.dynamic_update_slice_in_dim(x, 2 * x[..., :1, :], at, 2) for x in (k, v))
    p = jax.nn.softmax(q @ k.mT / 2.828 + jnp.log(seen.astype(q.dtype)), -1)
    return jnp.einsum("bhmt,bhtd->bhmd", p, v), (p @ v).sum(-1)


def test_a_cache_that_two_products_read_is_written_before():
    rng = np.random.default_rng(0)
    q, k, v = rng.standard_normal((3, 2, 1, 128, 8)).astype(np.float16)
    args = q, k, v, rng.integers(0, 2, (2, 1, 1, 128)) > 0, np.array(17, np.int32)
    kernel = compile(written_and_read_twice, args, target="nvidia", arch="sm_90a", must_fuse=True)
    found = run_module(kernel.ir("fused"), args, is_fused=True)
    for one, right in zip(found, written_and_read_twice(*args), strict=True):
        np.testing.assert_allclose(one, right, atol=2e-2)


def of_two_products(q, k, q2, k2, v):
    return jax.nn.softmax(q @ k.mT / 4 * jnp.tanh(q2 @ k2.mT / 4), -1) @ v


def its_derivatives(*args):
    return jax.vjp(of_two_products, *args[:-1])[1](args[-1])


@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
def test_derivatives_of_scores_of_two_products(arch):
    """Their loops multiply three pairs of operands, of which large ones leave shared memory for fewer rows."""
    rng = np.random.default_rng(0)
    args = [rng.standard_normal((1, 2, n, 8), np.float32) for n in (40, 70, 40, 70, 70, 40)]
    kernel = compile(its_derivatives, args, target="nvidia", arch=arch, must_fuse=True)
    found = run_module(kernel.ir("fused"), args, is_fused=True)
    for one, right in zip(found, its_derivatives(*map(jnp.asarray, args)), strict=True):
        np.testing.assert_allclose(one, right, atol=2e-5)
    wide = [np.zeros((1, 2, 256, 128), np.float32)] * 6
    kernel = compile(its_derivatives, wide, target="nvidia", arch=arch, must_fuse=True)
    assert "256x256" not in kernel.ir("fused") and kernel.ir("ptx")

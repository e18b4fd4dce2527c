"""Complex numbers inside of functions of JAX, such as those of rotary positions, against float64."""

import numpy as np
import pytest
from attn_opt.compiler.api import CompileError, compile

jax = pytest.importorskip("jax", reason="the extra 'jax' is not installed")

from jax_harness import B, H, N, S, T, attention, check, qkv, random  # noqa: E402

jnp, lax = jax.numpy, jax.lax
ANGLES = np.arange(S)[:, None] * 100.0 ** (-np.arange(H // 2) / (H // 2))


def pairs(x):
    return lax.complex(x[..., ::2], x[..., 1::2])


def halves(x):
    return lax.complex(*jnp.split(x, 2, axis=-1))


def flat(x):
    return jnp.stack([x.real, x.imag], -1).reshape(*x.shape[:-1], -1)


def turned(x, turns, part=pairs):
    return flat(part(x) * turns[: x.shape[1], None])


def by_exponential(q, k, v):
    turns = jnp.exp(1j * jnp.asarray(ANGLES).astype(q.dtype))
    return attention(turned(q, turns), turned(k, turns), v, is_causal=True)


def by_table(q, k, v):
    """As EasyLM's Llama has it: a table of complex numbers that the function closes over."""
    turns = jnp.asarray(np.exp(1j * ANGLES).astype(np.complex64))
    return attention(turned(q, turns, halves), turned(k, turns, halves), v)


def by_parts(q, k, v):
    turns = lax.complex(jnp.cos(jnp.asarray(ANGLES).astype(q.dtype)), jnp.sin(jnp.asarray(ANGLES).astype(q.dtype)))
    both = jax.vmap(lambda x: (pairs(x) * turns[: x.shape[0], None]).conj())
    return attention(flat(both(q)), flat(both(k)), v)


def in_calls(q, k, v):
    turn = jax.checkpoint(jax.jit(lambda x: turned(x, jnp.exp(1j * jnp.asarray(ANGLES).astype(x.dtype)))))
    return attention(turn(q), turn(k), v)


def in_layers(q, k, v):
    turns = jnp.exp(1j * jnp.asarray(ANGLES).astype(q.dtype))
    scales = jnp.exp(1j * jnp.arange(3).astype(q.dtype))

    def layer(x, scale):
        return attention(turned(x, turns * scale), turned(k, turns), v), (x[0, 0, 0, 0] * scale).real

    return lax.scan(layer, q, scales)


def by_complex_products(q, k, v):
    """Scores that are the real part of a product of complex matrices."""
    s = jnp.einsum("btnh,bsnh->bnts", pairs(q), pairs(k).conj()).real
    return jnp.einsum("bnts,bsnh->btnh", jax.nn.softmax(s), v)


@pytest.mark.parametrize("fn", [by_exponential, by_table, by_parts, in_calls, in_layers])
def test_rotary_positions(fn):
    check(fn, qkv(), attentions=3 if fn is in_layers else 1)


def test_products_of_complex_matrices():
    found, expected = compile(by_complex_products, qkv())(*qkv()), by_complex_products(*qkv())
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize(
    "fn",
    [
        lambda z, w: abs(z) + (z / w).real,
        lambda z, w: ((z + w) ** 3 - z * 2.0).imag,
        lambda z, w: jnp.where(z.real > 0, z, w).sum(0).real,
        lambda z, w: jnp.concatenate([z, -w]).cumsum(1).imag[::-1, 1:],
        lambda z, w: jnp.exp(z / 3 + 1j).real + jnp.square(w).imag,
        lambda z, w: (z - 1j * w).astype(jnp.complex64).T[1].imag,
        lambda z, w: jnp.take(z, jnp.array([2, 0, 1]), axis=0).reshape(-1).real,
    ],
)
def test_arguments_that_are_complex(fn):
    z, w = (random(5, 7, seed=i) + 1j * random(5, 7, seed=i + 2) for i in range(2))
    found = compile(fn, (z, w))(z, w)
    with jax.enable_x64(True):
        expected = fn(jnp.asarray(z.astype(np.complex128)), jnp.asarray(w.astype(np.complex128)))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(compile(fn, (z, w))(z.T.copy().T, jnp.asarray(w)), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(jax.jit(compile(fn, (z, w)))(z, w), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "fn",
    [
        lambda z, w: z * w + 1,
        lambda z, w: {"turned": (z * jnp.exp(1j * w.real)).T, "size": abs(w), "same": w},
        lambda z, w: (lax.complex(w.real, z.imag)[2], jnp.vdot(z, w), z.real.astype(jnp.complex64)),
    ],
)
def test_results_that_are_complex(fn):
    z, w = (random(5, 7, seed=i) + 1j * random(5, 7, seed=i + 2) for i in range(2))
    kernel, expected = compile(fn, (z, w)), fn(jnp.asarray(z), jnp.asarray(w))
    for found in (kernel(z, w), kernel(jnp.asarray(z), w), jax.jit(kernel)(z, w)):
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    many = jax.vmap(kernel)(np.stack([z, w]), np.stack([w, z]))
    for a, b in zip(jax.tree.leaves(many), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a[0], b, rtol=1e-5, atol=1e-5)


def test_what_has_no_rule_is_told_of():
    z = random(B, T) + 1j * random(B, N)[:, :1]
    for fn, message in (
        (lambda z: jnp.sin(z).real, r"test_jax_complex\.py:\d+:\d+: error: 'sin' of complex numbers is not supported"),
    ):
        with pytest.raises(CompileError, match=message):
            compile(fn, (z,))
    with pytest.raises(CompileError, match="argument 0 must be an array of complex64, but is of float32"):
        compile(abs, (z,))(z.real)

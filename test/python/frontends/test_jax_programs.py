"""What else people hand over of JAX: functions of jax.export, with shardings, with arguments that are no arrays."""

import functools
import warnings

import numpy as np
import pytest
from attn_opt.compiler.api import CompileError, compile

jax = pytest.importorskip("jax", reason="the extra 'jax' is not installed")

from jax_harness import B, H, N, S, T, attention, check, qkv, random  # noqa: E402

jnp, lax = jax.numpy, jax.lax


def masked(q, k, v, causal, scale=0.3):
    return attention(q, k, v, is_causal=True, scale=scale) if causal else attention(q, k, v, scale=scale)


def close(found, expected):
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), atol=2e-6)


@pytest.mark.parametrize(
    "fn",
    [masked, jax.jit(masked, static_argnums=3), jax.jit(masked, static_argnames=("causal", "scale"))],
    ids=["asked", "static number", "static names"],
)
def test_numbers_that_are_asked_for_their_values(fn):
    """They are constants of the kernel, which is not called with others."""
    q, k, v = qkv()
    for causal in (True, False):
        kernel = compile(fn, (q, k, v), example_kwargs={"causal": causal}) if fn is masked else None
        kernel = kernel or compile(fn, (q, k, v, causal))
        call = functools.partial(kernel, causal=causal) if fn is masked else lambda q, k, v: kernel(q, k, v, causal)  # noqa: B023
        close(call(q, k, v), masked(q, k, v, causal))
        close(jax.jit(call)(q, k, v), masked(q, k, v, causal))
        close(jax.vmap(call)(q[None], k[None], v[None])[0], masked(q, k, v, causal))
    for wrong in (True, 0, q):
        with pytest.raises(CompileError, match="argument 3 was False when the function was traced, and is"):
            compile(masked, (q, k, v, False))(q, k, v, wrong)


def test_numbers_that_are_computed_with_are_arguments():
    q, k, v = qkv()
    kernel = compile(lambda q, k, v, scale: attention(q * scale, k, v), (q, k, v, 1.0))
    close(kernel(q, k, v, 0.5), attention(q * 0.5, k, v))


@pytest.mark.parametrize("constant", ["xla", jnp.tanh, (None, "xla")], ids=["text", "function", "in a tuple"])
def test_arguments_that_are_no_arrays(constant):
    def fn(constant, q, k, v):
        out = attention(q, k, v, implementation=constant if isinstance(constant, str) else None)
        return constant(out) if callable(constant) else out

    q, k, v = qkv()
    check(functools.partial(fn, constant), (q, k, v))
    kernel = compile(fn, (constant, q, k, v))
    close(kernel(constant, q, k, v), fn(constant, q, k, v))
    with pytest.raises(CompileError, match=r"argument 0 was .* when the function was traced, and is|in this structure"):
        kernel(1, q, k, v)


def test_blocks_of_keys_by_hand_are_told_of_once():
    """A scan with a running maximum, which is written out, block by block."""
    q, k, v = random(T, H), random(24, H, seed=1), random(24, H, seed=2)

    def step(state, block):
        o, m, a = state
        keys, values = block
        s = q @ keys.T
        top = jnp.maximum(m, s.max(-1))
        p, scale = jnp.exp(s - top[:, None]), jnp.exp(m - top)
        return (o * scale[:, None] + p @ values, top, a * scale + p.sum(-1)), None

    def blocked(q, k, v):
        state = jnp.zeros((T, H)), jnp.full(T, -jnp.inf), jnp.zeros(T)
        (o, _, a), _ = lax.scan(step, state, (k.reshape(4, 6, H), v.reshape(4, 6, H)))
        return o / a[:, None]

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kernel = compile(blocked, (q, k, v))
    close(kernel(q, k, v), jax.nn.softmax(q @ k.T) @ v)
    (told,) = (str(w.message) for w in caught)
    assert "attention in blocks of keys is fused if it is written as one over all of them" in told


def test_a_cache_that_is_donated_beside_constants():
    def written(name, cache, token):
        return lax.dynamic_update_slice(cache, token, (3, 0))

    cache, token = random(9, H), random(1, H, seed=1)
    given = cache.copy()
    assert np.shares_memory(compile(written, ("k", cache, token), donate=[1])("k", given, token), given)
    with pytest.raises(CompileError, match="donate: argument 0 is no array, but a constant of the kernel"):
        compile(written, ("k", cache, token), donate=[0])


def test_exported_functions():
    """With symbolic sizes they get a kernel for each shape."""
    q, k, v = qkv()
    types = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (q, k, v)]
    fixed = jax.export.export(jax.jit(functools.partial(attention, is_causal=True)))(*types)
    b, t, s = jax.export.symbolic_shape("b, t, s")
    types = [jax.ShapeDtypeStruct((b, length, N, H), np.float32) for length in (t, s, s)]
    exported = jax.export.export(jax.jit(functools.partial(attention, is_causal=True)))(*types)
    expected = attention(q, k, v, is_causal=True)
    for source in (fixed, exported):
        close(compile(source)(q, k, v), expected)
        close(compile(source, (q, k, v))(q, k, v), expected)
        close(compile(source.call, (q, k, v))(q, k, v), expected)
    kernel = compile(exported)
    for length in (T, 5):
        close(kernel(q[:, :length], k, v), attention(q[:, :length], k, v, is_causal=True))
    assert len(kernel.kernels) == 2
    assert repr(kernel).endswith("for cpu, compiled for 2 shapes so far>")


def test_shardings():
    """A kernel computes all of an array, however it is to be spread."""
    mesh = jax.make_mesh((1,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    spread = jax.sharding.NamedSharding(mesh, jax.P("x"))

    def fn(q, k, v):
        return lax.with_sharding_constraint(attention(lax.with_sharding_constraint(q, spread), k, v), spread)

    check(fn, qkv())
    check(jax.jit(fn, in_shardings=(spread,) * 3, out_shardings=spread), qkv())
    kernel = compile(fn, qkv())
    close(kernel(*(jax.device_put(x, spread) for x in qkv())), attention(*qkv()))

    def many(q, k, v):
        return lax.fori_loop(0, 150, lambda _, q: lax.with_sharding_constraint(attention(q, k, v), spread), q)

    close(compile(many, qkv())(*qkv()), jax.jit(many)(*qkv()))


def test_barriers_of_optimizations():
    check(lambda q, k, v: lax.optimization_barrier((attention(q, k, v), q)), qkv())


@pytest.mark.parametrize("length", [1, 2, 4, 5, 16, 21])
@pytest.mark.parametrize("reverse", [False, True])
def test_associative_scans(length, reverse):
    """They take slices that begin where an array ends."""
    check(
        lambda x: lax.associative_scan(lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1]), (x, x), reverse=reverse, axis=1),
        (random(B, length, S),),
        attentions=0,
    )


@pytest.mark.parametrize("length", [2, 4, 7])
def test_derivatives_of_associative_scans(length):
    """Those of powers of two pad what has no elements."""
    check(
        lambda x, by: jax.vjp(lambda x: lax.associative_scan(jnp.add, x, axis=1), x)[1](by)[0],
        (random(B, length, S), random(B, length, S, seed=7)),
        attentions=0,
    )

"""Dropout by JAX's random numbers: masks are JAX's own, to the last element."""

import re

import numpy as np
import pytest
from attn_opt.compiler import CompileError, compile
from attn_opt.compiler.counts import stats

jax = pytest.importorskip("jax", reason="the extra 'jax' is not installed")
jnp = jax.numpy

from jax_harness import check, output_of, qkv, scores_of  # noqa: E402

KEEP = np.float32(0.8)
KEYS = ("threefry2x32", "rbg", "unsafe_rbg")  # what numbers are made of keys by


def key_of(implementation, seed=7):
    return np.asarray(jax.random.key_data(jax.random.key(seed, impl=implementation)))


def dropped(p, key, implementation="threefry2x32"):
    kept = jax.random.bernoulli(jax.random.wrap_key_data(key, impl=implementation), KEEP, p.shape)
    return jnp.where(kept, p / KEEP, 0)


def attention(implementation="threefry2x32"):
    def function(q, k, v, key):
        return output_of(dropped(jax.nn.softmax(scores_of(q, k), -1), key, implementation), v)

    return function


def derivative(q, k, v, key, g):
    out, back = jax.vjp(lambda *args: attention()(*args, key), q, k, v)
    return out, *back(g.astype(out.dtype))


@pytest.mark.parametrize("implementation", KEYS)
def test_forward(implementation):
    check(attention(implementation), (*qkv(), key_of(implementation)))


def test_no_mask_in_memory():
    """One softmax needs the mask once: it is computed with the tiles of scores."""
    kernel = check(attention(), (*qkv(), key_of("threefry2x32")))
    assert not re.search(r"tensor<2x4x21x37x|memref<2x4x21x37x", kernel.ir("fused"))


def test_layers():
    """Keys that are split for each layer."""

    def function(x, k, v, key):
        for one in jax.random.split(jax.random.wrap_key_data(key), 2):
            x = output_of(dropped(jax.nn.softmax(scores_of(x, k), -1), jax.random.key_data(one)), v)
        return x

    check(function, (*qkv(), key_of("threefry2x32")), attentions=2)


def test_derivative():
    """Forward and backward need one mask, which is hundreds of instructions an element: it is computed once."""
    q, k, v = qkv()
    before = stats()["left"]
    kernel = compile(derivative, (q, k, v, key_of("threefry2x32"), q))
    assert stats()["left"] == before
    assert "tensor<2x4x21x37xi1>" in kernel.ir("fused")
    found = kernel(q, k, v, key_of("threefry2x32"), q)
    with jax.enable_x64(True):
        exact = [x.astype(np.float64) for x in (q, k, v)]
        expected = derivative(*exact, key_of("threefry2x32"), q.astype(np.float64))
    for one, other in zip(found, map(np.asarray, expected), strict=True):
        assert np.abs(one - other).max() < 1e-5 * np.abs(other).max()


def test_random_numbers_alone():
    """Each bit of them is JAX's, for odd sizes, too."""

    def function(key):
        key = jax.random.wrap_key_data(key)
        first, second = jax.random.split(key)
        return jax.random.bits(first, (7, 33)), jax.random.uniform(second, (5, 3, 9)), jax.random.fold_in(key, 3)

    def numbers(key):
        bits, uniform, folded = function(key)
        return bits, uniform, jax.random.key_data(folded)

    for seed in (0, 7, 2**31 + 5):
        key = key_of("threefry2x32", seed)
        for found, expected in zip(compile(numbers, (key,))(key), numbers(key), strict=True):
            np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))


def keyed(q, k, v, key):
    """Takes a key, and gives the next one."""
    key, own = jax.random.split(key)
    p = jax.nn.softmax(scores_of(q, k), -1)
    return output_of(jnp.where(jax.random.bernoulli(own, KEEP, p.shape), p / KEEP, 0), v), key


def alone(*args):
    return keyed(*args)[0]


@pytest.mark.parametrize("implementation", KEYS)
def test_keys_are_arguments_and_results(implementation):
    q, k, v = qkv()
    key = jax.random.key(7, impl=implementation)
    kernel = compile(keyed, (q, k, v, jax.eval_shape(lambda: key)))
    for _ in range(2):
        found, following = kernel(q, k, v, key)
        expected, key = keyed(q, k, v, key)
        np.testing.assert_allclose(found, expected, atol=1e-5)
        assert following == key
    with pytest.raises(CompileError, match=f"argument 3 must be a key of {implementation}, as the one it was traced"):
        kernel(q, k, v, jax.random.key(7, impl="rbg" if implementation != "rbg" else "threefry2x32"))


def test_keys_where_jax_traces():
    q, k, v = qkv()
    kernel, keys = compile(alone, (q, k, v, jax.random.key(0))), jax.random.split(jax.random.key(5), 3)
    np.testing.assert_allclose(jax.jit(kernel)(q, k, v, keys[0]), alone(q, k, v, keys[0]), atol=1e-5)
    many = [jax.vmap(f, (None, None, None, 0))(q, k, v, keys) for f in (kernel, alone)]
    np.testing.assert_allclose(*many, atol=1e-5)
    gradients = [jax.grad(lambda *args, f=f: (f(*args) ** 2).sum(), (0, 2))(q, k, v, keys[1]) for f in (kernel, alone)]
    for found, expected in zip(*gradients, strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-4)
    with pytest.raises(CompileError, match=r"returns a key of jax\.random, which no kernel does while JAX traces"):
        jax.jit(compile(keyed, (q, k, v, keys[0])))(q, k, v, keys[0])


@pytest.mark.slow  # thousands of instructions
@pytest.mark.parametrize("function", [attention(), derivative], ids=["forward", "derivative"])
def test_on_gpus(function):
    rows, key = jax.ShapeDtypeStruct((1, 130, 2, 64), jnp.bfloat16), jax.ShapeDtypeStruct((2,), jnp.uint32)
    args = (rows, rows, rows, key) if function is not derivative else (rows, rows, rows, key, rows)
    before = stats()["left"]
    kernel = compile(function, args, target="nvidia", must_fuse=True)
    assert stats()["left"] == before
    assert "xor.b32" in kernel.ir("ptx")

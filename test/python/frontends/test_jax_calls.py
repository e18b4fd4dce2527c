"""Kernels called while JAX traces: in jax.jit, jax.vmap, jax.lax.scan."""

import functools

import numpy as np
import pytest
from attn_opt.compiler import CompileError, compile, stats
from attn_opt.compiler.kernel import Kernel

jax = pytest.importorskip("jax", reason="the extra 'jax' is not installed")
jnp = jax.numpy

S, D = 19, 8


def attention(q, k, v):
    return jax.nn.softmax(q @ k.T * 0.3, -1) @ v


def random(*shape, seed=0):
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def qkv(*batch):
    return [random(*batch, S, D, seed=i) for i in range(3)]


def exact(q, k, v):
    s = 0.3 * np.einsum("...qd,...kd->...qk", *(x.astype(np.float64) for x in (q, k)))
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v.astype(np.float64)


@functools.cache
def kernel():
    return compile(attention, qkv())


def close(found, expected):
    assert np.abs(np.asarray(found) - expected).max() < 1e-5 * np.abs(expected).max()


def test_jit():
    q, k, v = qkv()
    found = jax.jit(lambda q, k, v: kernel()(q * 2, k, v) + 1)(q, k, v)
    assert isinstance(found, jax.Array)
    close(found, exact(2 * q, k, v) + 1)
    close(jax.jit(kernel())(q, k, v), exact(q, k, v))


def test_arguments_that_are_known():
    q, k, v = qkv()
    close(jax.jit(lambda q: kernel()(q, jnp.asarray(k), v))(q), exact(q, k, v))


@pytest.mark.parametrize("jit", [False, True])
def test_vmap(jit):
    q, k, v = qkv(3)
    mapped = jax.vmap(kernel(), in_axes=(0, None, 0))
    close((jax.jit(mapped) if jit else mapped)(q, k[0], v), exact(q, np.stack([k[0]] * 3), v))
    close(jax.vmap(jax.vmap(kernel()))(*(x[None] for x in (q, k, v))), exact(q, k, v)[None])


def test_vmap_is_one_call_of_a_kernel_for_all_examples(monkeypatch):
    calls = []
    run = Kernel.run
    monkeypatch.setattr(Kernel, "run", lambda self, *args: calls.append(self) or run(self, *args))
    single, (q, k, v) = compile(attention, qkv()), qkv(5)
    before = stats()["found"]
    for _ in range(2):
        close(jax.vmap(single)(q, k, v), exact(q, k, v))
        close(jax.vmap(single, in_axes=(0, None, None))(q, k[1], v[1]), exact(q, k[1][None], v[1][None]))
    assert len(calls) == 4 and len(set(map(id, calls))) == 2  # compiled once for each kind of arguments
    assert stats()["found"] == before + 2
    nested = jax.vmap(jax.vmap(single, in_axes=(0, None, None), out_axes=1), in_axes=(0, 1, 0))
    many = np.stack([q, 2 * q]), np.moveaxis(k[:2], 0, 1), v[:2]
    expected = exact(many[0], k[:2, None], v[:2, None])
    calls.clear()
    close(nested(*many), np.moveaxis(expected, 1, 2))
    assert len(calls) == 1


def test_vmap_of_pytrees_types_and_known_arguments():
    def several(arguments, *, scale):
        o = attention(arguments["q"], arguments["k"], arguments["v"] * scale)
        return {"o": o.astype(jnp.bfloat16), "most": (jnp.argmax(o, -1).astype(jnp.uint8),)}

    q, k, v = qkv(3)
    example = {"q": q[0], "k": k[0], "v": v[0]}
    compiled = compile(several, (example,), example_kwargs={"scale": 2.0})
    found = jax.vmap(lambda q, v: compiled({"q": q, "k": k[0], "v": v}, scale=2.0))(q, v)
    expected = exact(q, k[:1], 2 * v)
    assert found["o"].dtype == jnp.bfloat16 and found["most"][0].dtype == jnp.uint8
    assert np.abs(np.asarray(found["o"], np.float64) - expected).max() < 1e-2 * np.abs(expected).max()
    np.testing.assert_array_equal(found["most"][0], expected.argmax(-1))


def test_vmap_of_a_kernel_of_mlir():
    values = np.arange(15, dtype=np.float32).reshape(3, 5)
    np.testing.assert_array_equal(jax.vmap(compile(DOUBLE))(values)[0], 2 * values)


def test_scan():
    q, k, v = qkv()
    found, _ = jax.lax.scan(lambda x, keys: (kernel()(x, keys, v), None), q, np.stack([k, k + 1]))
    close(found, exact(exact(q, k, v), k + 1, v))


def test_large_arrays():
    q, k, v = (random(1 << 11, 64, seed=i) for i in range(3))
    large = compile(attention, (q, k, v))
    found = jax.jit(lambda q, k, v: large(large(q + 0, k + 0, v), k, v))(q, k, v)
    close(found, exact(exact(q, k, v), k, v))


def test_pytrees_and_types():
    def several(arguments, *, scale):
        o = attention(arguments["q"], arguments["k"], arguments["v"] * scale)
        return {"o": o.astype(jnp.bfloat16), "most": (jnp.argmax(o, -1).astype(jnp.uint8),)}

    q, k, v = qkv()
    arguments = {"q": q, "k": k, "v": v}
    compiled = compile(several, (arguments,), example_kwargs={"scale": np.float32(2)})
    found = jax.jit(lambda a, s: compiled(a, scale=s))(arguments, np.float32(2))
    expected = exact(q, k, 2 * v)
    assert found["o"].dtype == jnp.bfloat16 and found["most"][0].dtype == jnp.uint8
    assert np.abs(np.asarray(found["o"], np.float64) - expected).max() < 1e-2 * np.abs(expected).max()
    np.testing.assert_array_equal(found["most"][0], expected.argmax(-1))


def test_symbolic_sizes():
    (s,) = jax.export.symbolic_shape("s")
    open_kernel = compile(attention, [jax.ShapeDtypeStruct((s, D), jnp.float32)] * 3)
    q, k, v = qkv()
    close(jax.jit(open_kernel)(q, k, v), exact(q, k, v))


DOUBLE = """func.func @double(%a: tensor<5xf32>) -> (tensor<5xf32>, tensor<5xi64>) {
  %c = arith.constant dense<7> : tensor<5xi64>
  %0 = linalg.add ins(%a, %a : tensor<5xf32>, tensor<5xf32>) outs(%a : tensor<5xf32>) -> tensor<5xf32>
  return %0, %c : tensor<5xf32>, tensor<5xi64>
}"""


def test_a_cache_that_is_donated():
    """A token is written to the cache that was given; constants of the function come before its arguments."""
    weights = random(D, 64)

    def step(q, cache, token, at):
        cache = jax.lax.dynamic_update_slice(cache, token, (at, 0))
        scores = jnp.where(jnp.arange(S) <= at, q @ cache.T, -jnp.inf)
        return jax.nn.softmax(scores, -1) @ cache @ weights, cache

    q, cache, token = random(1, D), random(S, D, seed=1), random(1, D, seed=2)
    arguments = q, cache, token, np.int32(7)
    expected = step(*arguments)
    given = cache.copy()
    found = compile(step, arguments, donate=[1])(q, given, token, np.int32(7))
    close(found[0], np.asarray(expected[0]))
    np.testing.assert_array_equal(found[1], expected[1])
    assert np.shares_memory(found[1], given)
    with pytest.raises(CompileError, match="donate: there is no argument 4 of 4"):
        compile(step, arguments, donate=[4])


def test_kernels_of_mlir():
    found, seven = jax.jit(compile(DOUBLE))(np.arange(5, dtype=np.float32))
    np.testing.assert_array_equal(found, 2 * np.arange(5))
    np.testing.assert_array_equal(seven, [7] * 5)


def test_kernels_in_what_is_compiled():
    """One of a function of JAX is compiled along, as the function that it was made of."""
    q, k, v = qkv()
    inner = kernel()
    close(compile(lambda q, k, v: inner(q * 2, k, v) + 1, (q, k, v))(q, k, v), exact(q * 2, k, v) + 1)
    with pytest.raises(CompileError, match=r"test_jax_calls\.py:\d+:\d+: error: a kernel calls nothing of Python's"):
        compile(lambda x: compile(DOUBLE)(x)[0], (np.arange(5, dtype=np.float32),))


def test_errors_that_teach():
    q, k, v = qkv()
    with pytest.raises(CompileError, match=r"argument 0 must be .* but is an array of shape"):
        jax.jit(kernel())(q[:4], k, v)
    with pytest.raises(CompileError, match="was traced for 3 arguments"):
        jax.jit(kernel())(q, k)
    with pytest.raises(CompileError, match=r"argument 0 must be .* but is an array of shape"):
        jax.vmap(kernel())(q[None, :4], k[None], v[None])
    open_sizes = compile(DOUBLE.replace("5xf32", "?xf32"))
    with pytest.raises(CompileError, match="results of open sizes, and JAX must know them"):
        jax.jit(open_sizes)(np.zeros(5, np.float32))
    with pytest.raises(CompileError, match="a kernel for the target nvidia cannot be called while JAX traces"):
        jax.jit(compile(attention, (q, k, v), target="nvidia"))(q, k, v)

"""Kernels of functions of JAX under jax.grad and the like: gradients are those of the function in float64."""

import numpy as np
import pytest
from attn_opt.compiler import CompileError, compile

jax = pytest.importorskip("jax", reason="the extra 'jax' is not installed")
jnp = jax.numpy

DOUBLE = """
func.func @double(%x: tensor<5xf32>) -> tensor<5xf32> {
  %y = arith.addf %x, %x : tensor<5xf32>
  return %y : tensor<5xf32>
}
"""


def attention(q, k, v):
    return jax.nn.softmax(q @ k.mT * 0.3, -1) @ v


def learned(q, k, v, bias, temperature):
    return jax.nn.softmax(q @ k.mT * jnp.exp(temperature) + bias, -1) @ v


def masked(q, k, v, mask):
    return jax.nn.softmax(jnp.where(mask, q @ k.mT, -jnp.inf), -1) @ v


def grouped(q, k, v):
    return attention(q, jnp.repeat(k, 2, 0), jnp.repeat(v, 2, 0))


def library(q, k, v):
    return jax.nn.dot_product_attention(q, k, v, is_causal=True)


def random(*shape, seed=0):
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def randoms(*shapes):
    return [random(*shape, seed=i) for i, shape in enumerate(shapes)]


def close(found, expected, atol=2e-5):
    found, expected = jax.tree.leaves(found), jax.tree.leaves(expected)
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape and isinstance(one, jax.Array)
        np.testing.assert_allclose(np.asarray(one, np.float64), other, rtol=atol, atol=atol)


def summed(function):
    """A sum of the elements of the result, each times a number of its own."""

    def total(*args):
        out = function(*args)
        return (out * jnp.linspace(-1, 2, out.size, dtype=out.dtype).reshape(out.shape)).sum()

    return total


def exact(function, args, numbers):
    """The value and the gradients, in float64."""
    with jax.enable_x64(True):
        wide = [jnp.asarray(a, jnp.float64) if jnp.issubdtype(a.dtype, jnp.floating) else a for a in args]
        return jax.tree.map(np.asarray, jax.value_and_grad(summed(function), numbers)(*wide))


PLAIN = [(4, 7, 8), (4, 9, 8), (4, 9, 6)]
CASES = {
    "by hand": (attention, PLAIN),
    "learned bias and temperature": (learned, [*PLAIN, (4, 7, 9), ()]),
    "grouped": (grouped, [(4, 7, 8), (2, 9, 8), (2, 9, 6)]),
    "dot_product_attention": (library, [(2, 7, 4, 8), (2, 7, 2, 8), (2, 7, 2, 8)]),
}


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_gradients(name, jit):
    function, shapes = CASES[name]
    args = randoms(*shapes)
    kernel, numbers = compile(function, args), tuple(range(len(args)))
    found = jax.value_and_grad(summed(kernel), numbers)
    close((jax.jit(found) if jit else found)(*map(jnp.asarray, args)), exact(function, args, numbers))


def test_arguments_that_need_none():
    args = [*randoms(*PLAIN), np.tril(np.ones((7, 9), bool))]
    kernel = compile(masked, args)
    for numbers in ((0,), (1, 2)):
        close(jax.grad(summed(kernel), numbers)(*args), exact(masked, args, numbers)[1])
        close(jax.jit(jax.grad(summed(kernel), numbers))(*args), exact(masked, args, numbers)[1])
    assert len(kernel.derivatives) == 2


def test_within_a_function():
    args = randoms(*PLAIN)
    kernel = compile(attention, args)

    def layer(attend):
        return lambda q, k, v: jnp.tanh(attend(jnp.sin(q) * 2, k + 1, jnp.cos(v)))

    found = jax.jit(jax.grad(summed(layer(kernel)), (0, 1, 2)))(*args)
    close(found, exact(layer(attention), args, (0, 1, 2))[1])


def test_vjp():
    args = [jnp.asarray(a) for a in randoms(*PLAIN)]
    out, pull_back = jax.vjp(compile(attention, args), *args)
    expected, wanted = jax.vjp(attention, *args)
    close(pull_back(out), jax.tree.map(np.asarray, wanted(expected)))


@pytest.mark.parametrize("jit", [False, True])
def test_gradients_of_each_example(jit):
    args = randoms(*[(3, *shape) for shape in PLAIN])
    kernel = compile(attention, [a[0] for a in args])
    found = jax.vmap(jax.grad(summed(kernel), (0, 1, 2)), in_axes=(0, None, 0))
    found = (jax.jit(found) if jit else found)(args[0], args[1][0], args[2])
    wanted = jax.vmap(jax.grad(summed(attention), (0, 1, 2)), in_axes=(0, None, 0))(args[0], args[1][0], args[2])
    close(found, jax.tree.map(np.asarray, wanted))


def test_gradients_of_a_mapped_kernel():
    args = randoms(*[(3, *shape) for shape in PLAIN])
    kernel = compile(attention, [a[0] for a in args])
    close(jax.grad(summed(jax.vmap(kernel)), (0, 1, 2))(*args), exact(attention, args, (0, 1, 2))[1])


def test_scan_and_checkpoint():
    q, k, v = randoms((7, 8), (9, 8), (9, 8))
    kernel = compile(attention, (q, k, v))

    def scanned(attend):
        def step(x, _):
            return jax.checkpoint(attend)(x, k, v).astype(x.dtype), None

        return lambda q: jax.lax.scan(step, q, None, length=3)[0]

    close(jax.grad(summed(scanned(kernel)))(q), exact(scanned(attention), [q], 0)[1])


def test_structures_numbers_and_results_without_gradients():
    def several(tensors, scale, *, shift):
        out = attention(tensors["q"] * scale, tensors["k"], tensors["v"]) + shift
        return {"out": out, "places": jnp.argmax(out, -1), "twice": out * 2}

    q, k, v = randoms(*PLAIN)
    tensors = {"q": q, "k": k, "v": v}
    kernel = compile(several, (tensors, 0.5), example_kwargs={"shift": random(6)})

    def total(function):
        return lambda tensors, scale, shift: jnp.sin(function(tensors, scale, shift=shift)["out"]).sum()

    args = tensors, 0.5, random(6)
    wanted = jax.grad(total(several), (0, 1, 2))(*args)
    close(jax.grad(total(kernel), (0, 1, 2))(*args), jax.tree.map(np.asarray, wanted))
    close(jax.jit(jax.grad(total(kernel), (0, 1, 2)))(*args), jax.tree.map(np.asarray, wanted))


def test_second_derivatives():
    args = randoms((5, 4), (6, 4), (6, 4))
    kernel = compile(attention, args)

    def twice(function):
        return jax.grad(lambda q: jnp.square(jax.grad(summed(lambda q: function(q, *args[1:])))(q)).sum())

    close(twice(kernel)(args[0]), np.asarray(twice(attention)(args[0])))


def test_bfloat16():
    args = [jnp.asarray(a, jnp.bfloat16) for a in randoms(*PLAIN)]
    found = jax.grad(summed(compile(attention, args)), (0, 1, 2))(*args)
    assert all(x.dtype == jnp.bfloat16 for x in found)
    close(found, exact(attention, [np.asarray(a, np.float32) for a in args], (0, 1, 2))[1], atol=6e-2)


def test_symbolic_sizes():
    (s,) = jax.export.symbolic_shape("s")
    kernel = compile(attention, [jax.ShapeDtypeStruct((s, 8), jnp.float32)] * 3)
    for size in (5, 9):
        args = randoms((size, 8), (size, 8), (size, 8))
        close(jax.grad(summed(kernel), (0, 1, 2))(*args), exact(attention, args, (0, 1, 2))[1])


def test_errors_that_teach():
    args = randoms(*PLAIN)
    kernel = compile(attention, args)
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(kernel, args, args)
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jacfwd(kernel)(*args)
    with pytest.raises(CompileError, match="has no derivative: only kernels of functions of JAX have one"):
        jax.grad(lambda x: compile(DOUBLE)(x)[0])(random(5))

    def endless(q, k, v):
        return jax.lax.while_loop(lambda x: x.sum() < 0, lambda x: x + 1, attention(q, k, v))

    with pytest.raises(CompileError, match="JAX cannot trace 'derivative_of_endless'"):
        jax.grad(summed(compile(endless, args)))(*args)


def test_complex_numbers():
    def turned(q, k, v, turns):
        return attention(jnp.real(q * turns), k, v)

    args = [*randoms(*PLAIN), (random(7, 8) + 1j * random(7, 8, seed=1)).astype(np.complex64)]
    wanted = jax.grad(summed(turned), (0, 3))(*args)
    close_complex = [np.asarray(x) for x in jax.grad(summed(compile(turned, args)), (0, 3))(*args)]
    for one, other in zip(close_complex, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)

"""Functions of JAX: attention is found in them however it is written, and the numbers are float64's."""

import numpy as np
import pytest
from attn_opt.compiler.api import CompileError, compile
from attn_opt.compiler.counts import stats

jax = pytest.importorskip("jax", reason="the extra 'jax' is not installed")

from jax_harness import FLOATS, B, H, N, S, T, attention, check, mask, qkv, random  # noqa: E402

jnp = jax.numpy


DOT_PRODUCT = {
    "plain": (lambda q, k, v: attention(q, k, v), qkv()),
    "causal": (lambda q, k, v: attention(q, k, v, is_causal=True), qkv()),
    "scale": (lambda q, k, v: attention(q, k, v, scale=0.3), qkv()),
    "mask": (lambda q, k, v, m: attention(q, k, v, mask=m), (*qkv(), mask(B, 1, T, S))),
    "bias": (lambda q, k, v, b: attention(q, k, v, bias=b), (*qkv(), random(1, N, T, S))),
    "window": (lambda q, k, v: attention(q, k, v, local_window_size=(9, 30)), qkv()),
    "grouped": (lambda q, k, v: attention(q, k, v, is_causal=True), qkv(heads=2)),
    "one key head": (lambda q, k, v: attention(q, k, v), qkv(heads=1)),
    "lengths": (
        lambda q, k, v, a, b: attention(q, k, v, query_seq_lengths=a, key_value_seq_lengths=b),
        (*qkv(), np.array([T, 9], np.int32), np.array([S, 11], np.int32)),
    ),
    "no batch": (lambda q, k, v: attention(q, k, v), tuple(x[0] for x in qkv())),
}


@pytest.mark.parametrize("name", DOT_PRODUCT)
def test_dot_product_attention(name):
    check(*DOT_PRODUCT[name])


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("name", ["plain", "mask", "grouped"])
def test_dot_product_attention_in_half_precision(name, dtype):
    check(*DOT_PRODUCT[name], dtype)


def by_hand(q, k, v):
    scores = jnp.einsum("btnh,bsnh->bnts", q, k) / jnp.sqrt(q.shape[-1]).astype(q.dtype)
    return jnp.einsum("bnts,bsnh->btnh", jax.nn.softmax(scores, axis=-1), v)


def softcap_divided_last(q, k, v):
    q, k, v = (x.swapaxes(1, 2) for x in (q, k, v))
    scores = 30 * jnp.tanh(q @ k.swapaxes(-1, -2) * 0.2 / 30)
    e = jnp.exp(scores - scores.max(-1, keepdims=True))
    return e @ v / e.sum(-1, keepdims=True)


def flax_style(q, k, v, m):
    q = q / jnp.sqrt(q.shape[-1]).astype(q.dtype)
    weights = jnp.einsum("...qhd,...khd->...hqk", q, k)
    weights = jnp.where(m, weights, jnp.finfo(weights.dtype).min)
    weights = jax.nn.softmax(weights).astype(q.dtype)
    return jnp.einsum("...hqk,...khd->...qhd", weights, v)


def alibi(q, k, v):
    scores = jnp.einsum("btnh,bsnh->bnts", q, k) * H**-0.5
    distance = jnp.arange(S)[None, :] - jnp.arange(T)[:, None]
    scores = scores + distance * (2.0 ** -jnp.arange(1, N + 1))[:, None, None].astype(q.dtype)
    return jnp.einsum("bnts,bsnh->btnh", jax.nn.softmax(scores), v)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("fn", [by_hand, softcap_divided_last, flax_style, alibi])
def test_written_out(fn, dtype):
    check(fn, (*qkv(), mask(B, 1, T, S)) if fn is flax_style else qkv(), dtype)


def test_vmap_and_jit():
    check(jax.jit(jax.vmap(lambda q, k, v: jax.nn.softmax(q @ k.T) @ v)), tuple(x[:, :, 0] for x in qkv()))


def block(weights, x):
    heads = lambda y: y.reshape(*y.shape[:2], N, H)  # noqa: E731
    normed = (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)
    q, k, v = (heads(normed @ weights[name]) for name in "qkv")
    x = x + attention(q, k, v, is_causal=True).reshape(x.shape) @ weights["o"]
    hidden = jax.nn.gelu(x @ weights["up"], approximate=False)
    return {"x": x + hidden @ weights["down"], "cache": (k, v)}


def block_weights() -> dict[str, np.ndarray]:
    sizes = {**dict.fromkeys("qkvo", (N * H, N * H)), "up": (N * H, 50), "down": (50, N * H)}
    return {name: random(*shape, seed=i) / 8 for i, (name, shape) in enumerate(sizes.items())}


def test_block_with_pytrees():
    check(block, (block_weights(), random(B, T, N * H)))


def test_closed_over_weights_are_arguments_of_the_kernel():
    weights = {name: jnp.asarray(value) for name, value in block_weights().items()}
    kernel = check(lambda x: block(weights, x), (random(B, T, N * H),))
    assert len(kernel.signature.arguments) == 1 + len(weights)


def test_key_value_cache():
    def step(q, k, v, keys, values, position):
        keys = jax.lax.dynamic_update_slice_in_dim(keys, k, position, 1)
        values = jax.lax.dynamic_update_slice_in_dim(values, v, position, 1)
        seen = (jnp.arange(S) <= position)[None, None, None]
        return attention(q, keys, values, mask=seen), keys, values

    q, k, v = qkv()
    check(step, (q[:, :1], k[:, :1], v[:, :1], k, v, np.int32(7)))


@pytest.mark.parametrize("jitted", [False, True])
def test_scan_over_layers(jitted):
    def layers(weights, x):
        def layer(x, w):
            q, k, v = ((x @ w[i]).reshape(B, T, N, H) for i in range(3))
            return x + attention(q, k, v).reshape(x.shape), x.sum()

        return jax.lax.scan(layer, x, weights)

    args = (random(3, 3, N * H, N * H) / 6, random(B, T, N * H))
    check(jax.jit(layers) if jitted else layers, args, attentions=3)


def test_loops_of_fixed_length():
    check(lambda x: jax.lax.fori_loop(0, 3, lambda i, y: jnp.sin(y) * i + x, x), (random(4),), attentions=0)
    running = lambda x: jax.lax.scan(lambda c, a: (c + a, c * a), jnp.zeros_like(x[0]), x, reverse=True)  # noqa: E731
    check(running, (random(5, 3),), attentions=0)


def decode(q, keys, values, steps):
    """Each step writes into the cache, and attends to what has been written."""

    def step(state):
        i, keys, values, x = state
        keys = jax.lax.dynamic_update_slice_in_dim(keys, x[:, None], i, 1)
        values = jax.lax.dynamic_update_slice_in_dim(values, x[:, None] / 2, i, 1)
        seen = (jnp.arange(S) <= i)[None, None, None]
        return i + 1, keys, values, attention(x[:, None], keys, values, mask=seen)[:, 0]

    return jax.lax.while_loop(lambda state: state[0] < steps, step, (0, keys, values, q))[1:]


def long_scan(x, weights):
    step = lambda c, w: (jnp.tanh(attention(c @ w, c, c)), c.sum())  # noqa: E731
    return jax.lax.scan(step, x, weights)


def chosen(q, k, v, which):
    branches = [lambda q, k, v: attention(q, k, v, is_causal=True), by_hand, lambda q, k, v: q]
    return jax.lax.switch(which, branches, q, k, v)


CONTROL = {
    "while": (decode, (qkv()[0][:, 0], *qkv()[1:], np.int32(5)), 1),
    "long scan": (long_scan, (random(1, 5, 2, H), random(130, H, H) / 4), 1),
    "switch": (chosen, (*qkv(), np.int32(1)), 2),
    "cond": (lambda x, p: jax.lax.cond(p, jnp.sin, lambda x: x * 2, x), (random(3), np.bool_(False)), 0),
    "set": (lambda x, i: jnp.asarray(x).at[i].set(3.0), (random(4, 5), np.array([0, 2, 9])), 0),
    "add": (lambda x, i: jnp.asarray(x).at[i, 1:3].add(x[:3, :2]), (random(4, 5), np.array([0, 2, 0])), 0),
    "caches of a batch": (
        jax.vmap(lambda cache, new, i: jax.lax.dynamic_update_slice(cache, new, (i, 0))),
        (random(3, 7, 4), random(3, 2, 4), np.array([0, 5, 6])),
        0,
    ),
    "random": (
        lambda x: x + (jax.random.bits(jax.random.key(7), x.shape, "uint32") >> 8).astype(x.dtype),
        (random(5),),
        0,
    ),
}


@pytest.mark.parametrize("name", CONTROL)
def test_control_flow(name):
    fn, args, attentions = CONTROL[name]
    check(fn, args, attentions=attentions)


@pytest.mark.parametrize(
    ("normalise", "reason"),
    [
        (lambda s: jax.nn.softmax(s, axis=-2), "normalised along another dimension"),
        (lambda s: jnp.exp(s - s.max(-1, keepdims=True)), "its exponentials are not divided by their sum"),
    ],
)
def test_what_is_almost_attention_is_left_alone(normalise, reason):
    def almost(q, k, v):
        return jnp.einsum("bnts,bsnh->btnh", normalise(jnp.einsum("btnh,bsnh->bnts", q, k)), v)

    before = stats()["reasons"]
    found, expected = compile(almost, qkv())(*qkv()), almost(*qkv())
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
    assert any(reason in text and n > before.get(text, 0) for text, n in stats()["reasons"].items())


def test_arrays_of_jax_come_back_as_such():
    q, k, v = map(jnp.asarray, qkv())
    kernel = compile(by_hand, (q, k, v))
    assert isinstance(kernel(q, k, v), jax.Array)
    assert isinstance(kernel(*qkv()), np.ndarray)
    np.testing.assert_allclose(kernel(q, k, v), by_hand(q, k, v), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", FLOATS)
def test_arrays_of_jax_are_not_copied(dtype):
    q, k, v = (jnp.asarray(x.astype(FLOATS[dtype])) for x in qkv())
    kernel = compile(by_hand, (q, k, v))
    bound = kernel.bind(kernel.program.arguments([q, k, v]))
    for array, given in zip(bound, (q, k, v), strict=True):
        assert array.ctypes.data == given.unsafe_buffer_pointer()


@pytest.mark.parametrize("dtype", [jnp.float8_e4m3fn, jnp.float8_e5m2])
def test_floats_of_8_bits(dtype):
    def attend(q, k, v):
        scores = jnp.einsum("btnh,bsnh->bnts", q, k, preferred_element_type=jnp.float32) * 0.2
        p = (jax.nn.softmax(scores, axis=-1) * 256).astype(dtype)
        return (jnp.einsum("bnts,bsnh->btnh", p, v, preferred_element_type=jnp.float32) / 256).astype(dtype)

    q, k, v = (jnp.asarray(x).astype(dtype) for x in qkv())
    kernel = compile(attend, (q, k, v))
    assert kernel.ir("raised").count("linalg_ext.softmax") == 1
    found, expected = (np.asarray(x) for x in (kernel(q, k, v), attend(q, k, v)))
    assert found.dtype == expected.dtype
    error = np.abs(found.astype(np.float64) - expected.astype(np.float64)).max()
    assert error < 0.2 * np.abs(expected.astype(np.float64)).max()


@pytest.mark.parametrize(
    "preset, rounded", [("BF16_BF16_F32", True), ("BF16_BF16_F32_X3", False), ("F32_F32_F32", False)]
)
def test_operands_are_rounded_as_the_algorithm_says(preset, rounded):
    a, b = random(33, 70), random(70, 20)
    algorithm = getattr(jax.lax.DotAlgorithmPreset, preset)
    found = compile(lambda a, b: jax.lax.dot(a, b, precision=algorithm, preferred_element_type=jnp.float32), (a, b))(
        a, b
    )
    given = (x.astype(FLOATS["bf16"]) if rounded else x for x in (a, b))
    expected = np.matmul(*(x.astype(np.float64) for x in given))
    assert np.abs(found - expected).max() < 1e-5 * np.abs(expected).max()


def test_shapes_without_values():
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in qkv()]
    np.testing.assert_allclose(compile(by_hand, shapes)(*qkv()), by_hand(*qkv()), rtol=1e-4, atol=1e-5)


def test_symbolic_sizes():
    b, t, s = jax.export.symbolic_shape("b, t, s")
    shapes = [(b, t, N, H), (b, s, N, H), (b, s, N, H)]
    kernel = compile(attention, [jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes])
    for length in (3, 20, 3):
        args = [x[:, :length] for x in qkv()]
        np.testing.assert_allclose(kernel(*args), attention(*args), rtol=1e-4, atol=1e-5)
    assert len(kernel.kernels) == 2
    assert "softmax" in kernel.kernel(*args).ir("raised")
    q, k, v = qkv()
    with pytest.raises(CompileError, match="dimension 1 of argument 2 must be 37, as s elsewhere, but is 36"):
        kernel(q, k, v[:, :-1])
    with pytest.raises(CompileError, match="dimension 3 of argument 0 must be 8, but is 4"):
        kernel(q[..., :4], k, v)
    with pytest.raises(CompileError, match="'explain' is there for given sizes"):
        kernel.explain()


@pytest.mark.parametrize("shapes", [((0, 9, 4, 8),) * 2, ((2, 9, 0, 8),) * 2, ((2, 0, 4, 8), (2, 9, 4, 8))], ids=str)
def test_without_elements(shapes):
    def attention(q, k):
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k)), k), (q * 2).sum()

    args = [np.zeros(shape, np.float32) for shape in shapes]
    found, total = compile(attention, args)(*args)
    assert found.shape == shapes[0] and found.dtype == np.float32 and total == 0


def test_unsigned_integers_and_numbers():
    table = random(7, 3)
    kernel = compile(lambda i, scale: (jnp.asarray(table)[i] * scale, i + 1), (np.array([1, 6], np.uint8), 2.0))
    rows, following = kernel(np.array([1, 6], np.uint8), 2.0)
    np.testing.assert_allclose(rows, table[[1, 6]] * 2)
    assert following.dtype == np.uint8
    assert following.tolist() == [2, 7]


@pytest.mark.parametrize(
    ("fn", "args", "options", "message"),
    [
        (by_hand, None, {}, "example_args are needed"),
        (by_hand, qkv()[:2], {}, "JAX cannot trace 'by_hand': TypeError"),
        (by_hand, (np.zeros((2, 3), np.float32),) * 3, {}, "JAX cannot trace 'by_hand'"),
        (by_hand, qkv(), {"dynamic_shapes": {}}, "dynamic_shapes is for functions of torch"),
        (
            lambda x: jax.lax.while_loop(lambda x: x[0] < 1, lambda x: abs(x * jnp.exp(1j * x)) + x + 1, x),
            (np.ones(3, np.float32),),
            {},
            r"test_jax\.py:\d+:\d+: error: complex numbers in loops and branches are not supported; keep it outside",
        ),
        (
            lambda x: jax.pure_callback(np.sin, x, x),
            (np.ones(3, np.float32),),
            {},
            r"test_jax\.py:\d+:\d+: error: a kernel calls nothing of Python's, and no kernels .*; keep it outside",
        ),
        (
            lambda x: jnp.abs(jnp.fft.fft(x)),
            (np.ones(3, np.float32),),
            {},
            r"test_jax\.py:\d+:\d+: error: Fourier transforms have no lowering to linalg; keep it outside",
        ),
        (lambda x: float(x) + 1, (np.float32(1),), {}, "JAX cannot trace '<lambda>': ConcretizationTypeError"),
    ],
)
def test_errors(fn, args, options, message):
    with pytest.raises(CompileError, match=message) as caught:
        compile(fn, args, **options)
    assert "Traceback" not in str(caught.value)


def test_errors_of_calls():
    kernel = compile(by_hand, qkv())
    q, k, v = qkv()
    with pytest.raises(CompileError, match="was traced for 3 arguments"):
        kernel(q, k)
    with pytest.raises(CompileError, match="argument 0 must be tensor<2x21x4x8xf32>"):
        kernel(q[:1], k, v)
    with pytest.raises(CompileError, match="but is an array of float16"):
        kernel(q.astype(np.float16), k, v)


def test_residual():
    q, k, v = qkv()
    check(lambda q, k, v: attention(q, k, v, return_residual=True), (q, k, v))


def test_log_sum_exp():
    def written(q, k, v):
        s = jnp.einsum("bqhd,bkhd->bhqk", q, k) * 0.25
        lse = jax.scipy.special.logsumexp(s, -1)
        return jnp.einsum("bhqk,bkhd->bqhd", jnp.exp(s - lse[..., None]), v), lse

    check(written, qkv())


def test_a_cache_written_at_a_traced_place_compiles_for_the_gpu():
    def decode(q, keys, values, k, v, place):
        keys, values = (
            jax.lax.dynamic_update_slice_in_dim(cache, new, place, axis=1) for cache, new in ((keys, k), (values, v))
        )
        return attention(q, keys, values, mask=jnp.arange(S) <= place), keys, values

    q, k, v = (random(B, 1, N, H, seed=i) for i in range(3))
    args = (q, random(B, S, N, H), random(B, S, N, H, seed=1), k, v, np.int32(3))
    for found, expected in zip(compile(decode, args)(*args), decode(*args), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-6)
    assert compile(decode, args, target="nvidia").ir("ptx")


def test_attention_for_the_gpu(gpu):
    """One kernel, which writes the output in the order that JAX wants."""
    args = [np.zeros((32, 256, N, 64), np.float16)] * 3
    kernel = compile(
        lambda q, k, v: attention(q, k, v, is_causal=True), [jnp.asarray(x) for x in args], target="nvidia"
    )
    assert kernel(*args).shape == args[0].shape
    assert len(gpu.launches) == 1

"""Integers without a sign, and lazily negated tensors: what is in memory is not read as another number."""

import numpy as np
import pytest
from attn_opt.compiler import CompileError, compile, stats

NUMBERS = np.array([0, 1, 7, 127, 128, 252, 255], np.uint8)
OTHERS = np.array([1, 3, 2, 5, 7, 254, 2], np.uint8)


def equal(found, expected):
    for a, b in zip(found, expected, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def test_torch():
    torch = pytest.importorskip("torch", reason="needs the extra attn_opt[torch]")

    def computed(x, y):
        wide = x.float(), x.long(), x / y, x / 255.0, (1 - x) * -1e9, x.sum()
        masks = x > y, x >= 0.5, x < torch.full((7,), 200), (x > 3).to(torch.uint8) * 200 > y
        own = x // y, x % y, x * y, -x, torch.maximum(x, y), x.clamp(2, 200), (x.float() / 2).to(x.dtype)
        reduced = x.max(), x.min(), *x.view(1, 7).max(1), torch.argmax(x)
        made = torch.arange(200, 207, dtype=torch.uint8) > x, torch.nn.functional.pad(x, (1, 1), value=200)
        return *wide, *masks, *own, *reduced, *made, torch.cat([x, y]).float(), torch.where(x > y, x, 0.5)

    args = torch.from_numpy(NUMBERS), torch.from_numpy(OTHERS)
    equal(compile(computed, args)(*args), computed(*args))
    equal(compile(lambda x, y: (x + y, x > y), args)(NUMBERS, OTHERS), (NUMBERS + OTHERS, NUMBERS > OTHERS))


def test_small_integers_of_torch():
    torch = pytest.importorskip("torch", reason="needs the extra attn_opt[torch]")

    def computed(x, y):
        scalars = x * 2, x - 3, 1 - x, x // 3, x % 3, torch.fmod(x, y), x * 2.5
        tensors = x * y, x - y, x // y, x % y, x + y, x > y, torch.maximum(x, y), -x
        products = x.view(1, 7) @ y.view(7, 1), x.view(7, 1) @ y.view(1, 7), (x * y.long()).sum()
        return *scalars, *tensors, *products, torch.cat([x, y]), x.float() / 2

    numbers = torch.from_numpy(np.array([0, 1, -7, 127, -128, -3, 90], np.int8))
    args = numbers, torch.from_numpy(OTHERS.view(np.int8))
    equal(compile(computed, args)(*args), computed(*args))


@pytest.mark.parametrize("way", ["compile", "backend"])
def test_masks_of_torch(way):
    torch = pytest.importorskip("torch", reason="needs the extra attn_opt[torch]")

    def attention(q, k, v, mask):
        return ((q @ k.mT).masked_fill(mask < 200, -torch.inf) * (mask / 255)).softmax(-1) @ v

    args = *torch.randn(3, 2, 9, 8, dtype=torch.float64), torch.randint(190, 256, (2, 1, 9), dtype=torch.uint8)
    before = stats()
    fast = compile(attention, args) if way == "compile" else torch.compile(attention, backend="attn_opt")
    torch.testing.assert_close(fast(*args), attention(*args))
    assert stats()["found"] - before["found"] == 1


@pytest.mark.parametrize("way", ["compile", "backend"])
def test_negated_tensors(way):
    torch = pytest.importorskip("torch", reason="needs the extra attn_opt[torch]")

    def attention(q, k):
        return (q @ k.mT).softmax(-1) @ k

    # Sizes of their own: tests of torch.compile count kernels, of which a process keeps those that it has.
    z, k = torch.randn(2, 11, 8, dtype=torch.complex64).conj(), torch.randn(2, 11, 8)
    assert z.imag.is_neg()
    fast = compile(attention, (k, k)) if way == "compile" else torch.compile(attention, backend="attn_opt")
    torch.testing.assert_close(fast(z.imag, k), attention(z.imag, k))


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32])
def test_jax(dtype):
    jax = pytest.importorskip("jax", reason="needs the extra attn_opt[jax]")
    jnp = jax.numpy

    def computed(x, y):
        wide = x.astype(jnp.float32), x.astype(jnp.int32), x.sum(), jnp.arange(300)[x]
        own = x > y, x // y, x % y, jnp.maximum(x, y), jnp.clip(x, 2, 5), (x.astype(jnp.float32) / 2).astype(x.dtype)
        reduced = x.max(), x.min(), jnp.argmax(x), jax.lax.cummax(x)
        loop = jax.lax.fori_loop(np.uint32(0), np.uint32(200), lambda i, c: jnp.maximum(c, x + i.astype(x.dtype)), x)
        branch = jax.lax.cond(x[4] > 100, lambda x: x // 3, lambda x: x * 2, x)
        numbers = jax.lax.ScatterDimensionNumbers((), (0,), (0,))
        written = jax.lax.scatter(jnp.zeros(300, x.dtype), y[:, None], x, numbers)
        return *wide, *own, *reduced, loop, branch, written

    args = NUMBERS.astype(dtype) * np.array(np.iinfo(dtype).max // 255, dtype), OTHERS.astype(dtype)
    equal(compile(computed, args)(*args), jax.jit(computed)(*args))


def test_masks_of_jax():
    jax = pytest.importorskip("jax", reason="needs the extra attn_opt[jax]")

    def attention(q, k, v, mask):
        return jax.nn.dot_product_attention(q, k, v, mask=mask > 0)

    generator = np.random.default_rng(0)
    args = *generator.standard_normal((3, 2, 9, 4, 8)).astype(np.float32), np.full((2, 1, 9, 9), 200, np.uint8)
    args[3][..., 5:] = 0
    kernel = compile(attention, args)
    np.testing.assert_allclose(kernel(*args), attention(*args), rtol=1e-4, atol=1e-5)
    assert kernel.ir("raised").count("linalg_ext.softmax") == 1


def refused(kernel, *args):
    with pytest.raises(CompileError, match=r"argument \d must be "):
        kernel(*args)


def check_signs(with_sign, without, convert=lambda array: array):
    """Kernels of x → float(x), for [2] of int8 and of uint8, take no array of the other sign."""
    numbers = np.array([200, 3], np.uint8)
    np.testing.assert_array_equal(np.asarray(without(convert(numbers))), [200, 3])
    np.testing.assert_array_equal(np.asarray(with_sign(convert(numbers.view(np.int8)))), [-56, 3])
    refused(with_sign, convert(numbers))
    refused(without, convert(numbers.view(np.int8)))


def test_other_signs_than_those_of_the_trace():
    torch = pytest.importorskip("torch", reason="needs the extra attn_opt[torch]")
    jax = pytest.importorskip("jax", reason="needs the extra attn_opt[jax]")
    onnx = pytest.importorskip("onnx", reason="needs the extra attn_opt[onnx]")
    types = torch.int8, torch.uint8
    of_torch = [compile(lambda x: x.float(), (torch.zeros(2, dtype=t),)) for t in types]
    check_signs(*of_torch)
    check_signs(*of_torch, convert=torch.from_numpy)
    check_signs(*(compile(lambda x: x.astype(jax.numpy.float32), (np.zeros(2, t),)) for t in (np.int8, np.uint8)))
    header = '<ir_version: 9, opset_import: ["" : 17]> '
    texts = (f"{header} g ({t}[2] x) => (float[2] y) {{ y = Cast<to = 1>(x) }}" for t in ("int8", "uint8"))
    of_onnx = [compile(onnx.parser.parse_model(text)) for text in texts]
    check_signs(*of_onnx)
    check_signs(*of_onnx, convert=torch.from_numpy)


def test_numbers_of_jax_are_those_of_the_trace_or_fit_in():
    pytest.importorskip("jax", reason="needs the extra attn_opt[jax]")
    x = np.ones(3, np.float32)
    whole, real = (compile(lambda x, n: x * n, (x, n)) for n in (2, 2.0))
    assert whole(x, 3)[0] == whole(x, np.int64(3))[0] == real(x, 3)[0] == 3 and whole(x, True)[0] == 1
    assert real(x, 2.5)[0] == real(x, np.float64(2.5))[0] == 2.5
    for number in (2.5, np.float32(2.5), 2**40, np.uint32(4000000000), 1j):
        refused(whole, x, number)
    refused(real, x, 1j)
    refused(compile(lambda x, n: x * n, (x, True)), x, 2)

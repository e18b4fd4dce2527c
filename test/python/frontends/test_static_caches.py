"""Caches of a fixed size that are written at places from a tensor: in their own memory where they are donated."""

import math
import re

import numpy as np
import pytest
from attn_opt.compiler import compile

torch = pytest.importorskip("torch", reason="needs the extra attn_opt[torch]")
jax = pytest.importorskip("jax", reason="needs the extra attn_opt[jax]")
parser = pytest.importorskip("onnx.parser", reason="needs the extra attn_opt[onnx]")

import jax.numpy as jnp  # noqa: E402
import torch.nn.functional as F  # noqa: E402

pytestmark = pytest.mark.filterwarnings("error:attn_opt. no result is made in the memory of donated")
H, S, D = 3, 37, 8  # a cache is larger than what several tokens need


def arguments(batch: int, tokens: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    new, cache = (batch, H, tokens, D), (batch, H, S, D)
    at = np.array([4, 17, 4, 0][:tokens])  # of equal ones the last one counts
    return [rng.standard_normal(shape, np.float32) for shape in (new, new, new, cache, cache)] + [at]


def by_hand(q, k, v, keys, values, at):
    keys, values = keys.copy(), values.copy()
    for n, place in enumerate(at):
        keys[:, :, place], values[:, :, place] = k[:, :, n], v[:, :, n]
    s = q.astype(float) @ keys.swapaxes(-1, -2) * D**-0.5
    p = np.exp(np.where(np.arange(S) <= at[:, None], s, -np.inf))
    return p / p.sum(-1, keepdims=True) @ values, keys, values


def of_torch(write):
    def step(q, k, v, keys, values, at):
        keys, values = write(keys, at, k), write(values, at, v)
        return F.scaled_dot_product_attention(q, keys, values, torch.arange(S) <= at[:, None]), keys, values

    return step


def index_copy(cache, at, new):
    return cache.index_copy_(2, at, new)


def assigned(cache, at, new):
    cache[:, :, at] = new
    return cache


def scattered(cache, at, new):
    return cache.scatter(2, at[None, None, :, None].expand(new.shape), new)


@pytest.mark.parametrize("batch, tokens", [(1, 1), (2, 1), (2, 4)])
@pytest.mark.parametrize("write", [index_copy, assigned, scattered])
def test_torch(write, batch, tokens):
    given = list(map(torch.from_numpy, arguments(batch, tokens)))
    kernel = compile(of_torch(write), tuple(given), donate=[3, 4])
    check(kernel(*given), arguments(batch, tokens), given)
    check_no_copies(compile(of_torch(write), tuple(given), donate=[3, 4], target="nvidia"), given[3].numpy())


def test_a_place_for_each_sequence():
    def step(cache, new, at):
        return torch.ops.aten.index_put(cache, [torch.arange(2), None, at], new)

    cache, new, at = torch.zeros(2, H, S, D), torch.rand(2, H, D), torch.tensor([3, 7])
    expected = step(cache, new, at)
    found = compile(step, (cache, new, at), donate=[0])(cache, new, at)
    assert torch.equal(found, expected) and found.data_ptr() == cache.data_ptr()
    check_no_copies(compile(step, (cache, new, at), donate=[0], target="nvidia"), cache.numpy())


@pytest.mark.parametrize("batch, tokens", [(1, 1), (2, 4)])
@pytest.mark.parametrize("way", ["set", "slice"])
def test_jax(way, batch, tokens):
    def write(cache, at, new):
        if way == "slice":
            return jax.lax.dynamic_update_slice_in_dim(cache, new[:, :, :1], at[0], 2)
        return cache.at[:, :, at].set(new)

    def step(q, k, v, keys, values, at):
        keys, values = write(keys, at, k), write(values, at, v)
        s = jnp.einsum("bhid,bhjd->bhij", q, keys) * D**-0.5
        p = jax.nn.softmax(jnp.where(jnp.arange(S) <= at[:, None], s, -jnp.inf), -1)
        return p @ values, keys, values

    if way == "slice":
        tokens = 1
    *floats, at = arguments(batch, tokens)
    given = [*floats, at.astype(np.int32)]
    check(compile(step, tuple(given), donate=[3, 4])(*given), arguments(batch, tokens), given)
    check_no_copies(compile(step, tuple(given), donate=[3, 4], target="nvidia"), given[3])


ALONG_FIRST = """
  places{0} = Unsqueeze(at, one)
  {0}t = Transpose<perm=[2, 0, 1, 3]>({0})
  {1}t = Transpose<perm=[2, 0, 1, 3]>({1})
  {0}w = ScatterND({0}t, places{0}, {1}t)
  {0}n = Transpose<perm=[1, 2, 0, 3]>({0}w)"""
ELEMENTS = """
  shape{0} = Shape({1})
  row{0} = Reshape(at, ones)
  places{0} = Expand(row{0}, shape{0})
  {0}n = ScatterElements<axis=2>({0}, places{0}, {1})"""


@pytest.mark.parametrize("batch, tokens", [(1, 1), (2, 4)])
@pytest.mark.parametrize("write", [ALONG_FIRST, ELEMENTS], ids=["ScatterND", "ScatterElements"])
def test_onnx(write, batch, tokens):
    """As torch.onnx exports index_copy, and as it is for elements."""
    new, cache = f"float[{batch},{H},{tokens},{D}]", f"float[{batch},{H},{S},{D}]"
    model = parser.parse_model(f"""<ir_version: 8, opset_import: ["": 18]>
g ({new} q, {new} k, {new} v, {cache} keys, {cache} values, int64[{tokens}] at)
    => ({new} o, {cache} keysn, {cache} valuesn) {{
  one = Constant<value_ints=[1]>()
  ones = Constant<value_ints=[1, 1, -1, 1]>()
  zero = Constant<value_int=0>()
  step = Constant<value_int=1>()
  size = Constant<value_int={S}>(){write.format("keys", "k")}{write.format("values", "v")}
  turned = Transpose<perm=[0, 1, 3, 2]>(keysn)
  products = MatMul(q, turned)
  scale = Constant<value_float={D**-0.5}>()
  s = Mul(products, scale)
  j = Range(zero, size, step)
  last = Unsqueeze(at, one)
  live = LessOrEqual(j, last)
  dead = Constant<value_float=-inf>()
  masked = Where(live, s, dead)
  p = Softmax(masked)
  o = MatMul(p, valuesn)
}}""")
    given = arguments(batch, tokens)
    check(compile(model, donate=["keys", "values"])(*given), arguments(batch, tokens), given)
    check_no_copies(compile(model, donate=["keys", "values"], target="nvidia"), given[3])


def check(found, before, given):
    for one, expected in zip(found, by_hand(*before), strict=True):
        np.testing.assert_allclose(np.asarray(one), expected, rtol=1e-5, atol=1e-6)
    for one, cache in zip(found[1:], given[3:5], strict=True):
        assert np.shares_memory(np.asarray(one), np.asarray(cache))


def check_no_copies(kernel, cache: np.ndarray) -> None:
    """Of a kernel for a GPU: no memory is as large as a cache."""
    shapes = re.findall(r"memref\.alloc\(\) : memref<([\dx]*)x", kernel.ir("layouts"))
    assert all(math.prod(map(int, shape.split("x"))) < cache.size for shape in shapes), shapes

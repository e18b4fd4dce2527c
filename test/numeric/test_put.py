"""``linalg_ext.put`` as users may write it, on both targets, against numpy."""

import numpy as np
import pytest
from attn_opt.compiler import compile
from gpu_modules import run_module
from hypothesis import given
from hypothesis import strategies as st
from properties import examples


def case(given_shape, shape, seed=0):
    """A graph's text, its inputs, and what it gives: some places are left out."""
    values, places, target = (
        f"tensor<{'x'.join(map(str, dims))}x{element}>"
        for dims, element in ((given_shape, "f32"), (given_shape, "i64"), (shape, "f32"))
    )
    text = f"""
func.func @f(%v: {values}, %p: {places}, %t: {target}) -> {target} {{
  %r = linalg_ext.put ins(%v, %p : {values}, {places}) outs(%t : {target})
  return %r : {target}
}}"""
    rng = np.random.default_rng(seed)
    v, t = (rng.normal(size=size).astype(np.float32) for size in (given_shape, shape))
    p = rng.permutation(t.size)[: v.size].astype(np.int64).reshape(given_shape)
    nowhere = rng.random(given_shape)
    p[nowhere < 0.2], p[nowhere > 0.9] = -1, t.size
    expected, is_put = t.copy(), (p >= 0) & (p < t.size)
    expected.reshape(-1)[p[is_put]] = v[is_put]
    return text, (v, p, t), expected


@pytest.mark.parametrize("shapes", [((3,), (8,)), ((2, 3), (4, 5)), ((4, 3), (2, 3, 5))])
@pytest.mark.parametrize("arch", ["", "sm_90a", "sm_80"])
def test_put(shapes, arch):
    text, inputs, expected = case(*shapes)
    if arch:
        (found,) = run_module(text, [x.astype(float) if x.dtype == np.float32 else x for x in inputs], arch=arch)
    else:
        found = compile(text)(*inputs)
    np.testing.assert_array_equal(found, expected)


@examples(10)
@given(st.lists(st.integers(1, 7), min_size=1, max_size=3), st.integers(1, 7), st.integers(0, 100))
def test_shapes(shape, count, seed):
    text, inputs, expected = case((min(count, int(np.prod(shape))),), tuple(shape), seed)
    np.testing.assert_array_equal(compile(text)(*inputs), expected)

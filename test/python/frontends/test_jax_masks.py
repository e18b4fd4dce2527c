"""Causal masks of JAX, however they are made, skip tiles."""

import numpy as np
import pytest
from attn_opt.compiler.api import compile

jax = pytest.importorskip("jax", reason="the extra 'jax' is not installed")

from jax_harness import H, output_of, random  # noqa: E402

jnp, lax = jax.numpy, jax.lax
softmax = jax.nn.softmax


L = 150
LOWER = np.tril(np.ones((L, L), bool))
CAUSAL = {
    "dot_product_attention": lambda s: None,
    "numpy": lambda s: jnp.where(LOWER, s, -1e9),
    "numpy, added": lambda s: s + np.triu(np.full((L, L), -np.inf, np.float32), 1),
    "numpy, multiplied": lambda s: s * LOWER - 1e9 * (1 - LOWER.astype(np.float32)),
    "tril": lambda s: jnp.where(jnp.tril(jnp.ones_like(s)) == 0, jnp.finfo(s.dtype).min, s),
    "iota": lambda s: jnp.where(lax.broadcasted_iota(int, (L, L), 0) < lax.broadcasted_iota(int, (L, L), 1), -1e4, s),
}


@pytest.mark.parametrize("name", CAUSAL)
def test_causal_masks_skip_tiles(name):
    """However they are made, and whatever number they put."""

    def fn(q, k, v):
        if name == "dot_product_attention":
            return jax.nn.dot_product_attention(q, k, v, is_causal=True)
        return output_of(softmax(CAUSAL[name](jnp.einsum("btnh,bsnh->bnts", q, k))), v)

    args = tuple(random(1, L, 1, H, seed=i) for i in range(3))
    kernel = compile(fn, args)
    assert "split-masked-tiles: skips" in kernel.explain()
    assert len(kernel.signature.arguments) == 3
    np.testing.assert_allclose(kernel(*args), fn(*args), rtol=1e-4, atol=1e-5)

"""Grouped-query attention written in JAX, compiled into one kernel by way of StableHLO.

pip install 'attn-opt[jax]'
python examples/from_jax.py
"""

import jax
import jax.numpy as jnp
import numpy as np
from attn_opt.compiler import compile


def attention(q, k, v):
    """Causal; eight heads of queries share two of keys and values: q [b, h, g, s, d], k and v [b, h, s, d]."""
    scores = jnp.einsum("bhgsd,bhtd->bhgst", q, k) / q.shape[-1] ** 0.5
    seen = jnp.tril(jnp.ones(scores.shape[-2:], dtype=bool))
    weights = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), axis=-1)
    return jnp.einsum("bhgst,bhtd->bhgsd", weights, v)


def main():
    keys = jax.random.split(jax.random.key(0), 3)
    q = jax.random.normal(keys[0], (1, 2, 4, 500, 64))
    k, v = (jax.random.normal(key, (1, 2, 500, 64)) for key in keys[1:])

    kernel = compile(attention, (q, k, v))
    print(kernel.explain())

    error = np.abs(np.asarray(kernel(q, k, v)) - np.asarray(attention(q, k, v))).max()
    print(f"largest difference from JAX: {error:.1e}")
    assert error < 1e-5


if __name__ == "__main__":
    main()

"""Arguments for functions of JAX that are attention, and comparison with them on float64."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from attn_opt.compiler.api import compile
from attn_opt.compiler.counts import stats

attention = jax.nn.dot_product_attention

B, T, S, N, H = 2, 21, 37, 4, 8  # batch, queries, keys, heads, head size
FLOATS = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
TOLERANCE = {"f32": 1e-5, "f16": 1e-2, "bf16": 1e-2}


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def qkv(heads: int = N) -> tuple[np.ndarray, ...]:
    return random(B, T, N, H), random(B, S, heads, H, seed=1), random(B, S, heads, H, seed=2)


def mask(*shape: int) -> np.ndarray:
    kept = np.random.default_rng(3).random(shape) > 0.3
    kept[..., 0] = True
    return kept


def check(fn, args, dtype: str = "f32", attentions: int = 1):
    """Compiles, counts the attentions, and compares with the function itself on float64."""
    leaves, structure = jax.tree.flatten(args)
    leaves = [np.asarray(x) for x in leaves]
    args = jax.tree.unflatten(structure, [x.astype(FLOATS[dtype]) if x.dtype == np.float32 else x for x in leaves])
    before = stats()
    kernel = compile(fn, args)
    after = stats()
    assert after["compiled"] - before["compiled"] == attentions
    assert after["left"] == before["left"]
    results = kernel(*args)
    exact = jax.tree.map(lambda x: x.astype(np.float64) if x.dtype == FLOATS[dtype] else x, args)
    with jax.enable_x64(True):
        expected = fn(*exact)
    found, found_structure = jax.tree.flatten(results)
    wanted, wanted_structure = jax.tree.flatten(expected)
    assert found_structure == wanted_structure
    for a, b in zip(found, map(np.asarray, wanted), strict=True):
        error = np.abs(a.astype(np.float64) - b).max() / np.abs(b).max()
        assert error < TOLERANCE[dtype]
    return kernel


def scores_of(q, k):
    return jnp.einsum("btnh,bsnh->bnts", q, k) * H**-0.5


def output_of(p, v):
    return jnp.einsum("bnts,bsnh->btnh", p, v)

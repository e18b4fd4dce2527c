"""Attention as people write it in JAX: each of these is found, and the numbers are float64's."""

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="the extra 'jax' is not installed")

from jax_harness import B, H, N, S, T, check, mask, output_of, qkv, random, scores_of  # noqa: E402

jnp, lax = jax.numpy, jax.lax
softmax = jax.nn.softmax


def einsum_keys_first(q, k, v):
    p = softmax(jnp.einsum("bsnh,btnh->bnst", k, q) * 0.3, axis=-2)
    return jnp.einsum("bnst,bsnh->btnh", p, v)


def einsum_heads_last(q, k, v):
    p = softmax(jnp.einsum("btnh,bsnh->btsn", q, k), axis=2)
    return jnp.einsum("btsn,bsnh->btnh", p, v)


def einsum_output_transposed(q, k, v):
    return jnp.einsum("bnts,bsnh->hbnt", softmax(scores_of(q, k)), v)


def einsum_into_projection(q, k, v, w):
    return jnp.einsum("btnh,nhd->btd", output_of(softmax(scores_of(q, k)), v), w)


def one_einsum(q, k, v):
    s = jnp.einsum("btnh,bsnh->bnts", q, k)
    e = jnp.exp(s - lax.stop_gradient(s.max(-1, keepdims=True)))
    return jnp.einsum("bnts,bsnh,bnt->btnh", e, v, 1 / e.sum(-1))


def by_logsumexp(q, k, v):
    s = scores_of(q, k)
    return output_of(jnp.exp(s - jax.nn.logsumexp(s, axis=-1, keepdims=True)), v)


def by_scipy_logsumexp(q, k, v):
    s = scores_of(q, k)
    return output_of(jnp.exp(s - jax.scipy.special.logsumexp(s, axis=-1)[..., None]), v)


def by_log_softmax(q, k, v):
    return output_of(jnp.exp(jax.nn.log_softmax(scores_of(q, k))), v)


def without_maximum(q, k, v):
    e = jnp.exp(scores_of(q, k))
    return output_of(e / e.sum(-1, keepdims=True), v)


def maximum_of_each_head(q, k, v):
    s = scores_of(q, k)
    e = jnp.exp(s - s.max((-2, -1), keepdims=True))
    return output_of(e / e.sum(-1, keepdims=True), v)


def powers_of_two(q, k, v):
    s = scores_of(q, k) * np.float32(np.log2(np.e))
    e = jnp.exp2(s - s.max(-1, keepdims=True))
    return output_of(e / e.sum(-1, keepdims=True), v)


def divided_by_guarded_sum(q, k, v, m):
    s = jnp.where(m, scores_of(q, k), -jnp.inf)
    e = jnp.exp(s - jnp.maximum(s.max(-1, keepdims=True), -1e30))
    return output_of(e / jnp.maximum(e.sum(-1, keepdims=True), 1e-30), v)


def dot_general(q, k, v):
    s = lax.dot_general(q, k, (((3,), (3,)), ((0, 2), (0, 2))))
    return lax.dot_general(softmax(s * 0.2), v, (((3,), (1,)), ((0, 1), (0, 2))))


def dot_general_values_first(q, k, v):
    s = lax.dot_general(k, q, (((3,), (3,)), ((2, 0), (2, 0))))
    return lax.dot_general(v, softmax(s, axis=2), (((1,), (2,)), ((2, 0), (0, 1))))


def dot_general_wide(q, k, v):
    wide = jnp.promote_types(q.dtype, jnp.float32)
    s = lax.dot_general(q, k, (((3,), (3,)), ((0, 2), (0, 2))), preferred_element_type=wide)
    return output_of(softmax(s).astype(v.dtype), v)


def highest_precision(q, k, v):
    s = jnp.einsum("btnh,bsnh->bnts", q, k, precision=lax.Precision.HIGHEST)
    return output_of(softmax(s), v)


def matmul_of_transposed(q, k, v):
    q, k, v = (x.transpose(0, 2, 1, 3) for x in (q, k, v))
    return jnp.matmul(softmax(jnp.matmul(q, k.mT)), v).transpose(0, 2, 1, 3).reshape(B, T, N * H)


def flattened_heads(q, k, v):
    q, k, v = (x.swapaxes(1, 2).reshape(B * N, -1, H) for x in (q, k, v))
    o = lax.batch_matmul(softmax(lax.batch_matmul(q, k.swapaxes(1, 2))), v)
    return o.reshape(B, N, T, H).swapaxes(1, 2)


def vmapped(q, k, v):
    one = lambda q, k, v: softmax(q @ k.T * 0.1) @ v  # noqa: E731
    return jax.vmap(jax.vmap(one, in_axes=1, out_axes=1))(q, k, v)


def vmapped_keys_shared(q, k, v):
    one = lambda q, k, v: softmax(q @ k.T) @ v  # noqa: E731
    return jax.vmap(jax.vmap(one, in_axes=(1, None, None), out_axes=1))(q, k[:, :, 0], v[:, :, 0])


def vmapped_queries(q, k, v):
    """A function of one query."""
    one = lambda q, k, v: softmax(k @ q) @ v  # noqa: E731
    return jax.vmap(one, in_axes=(0, None, None))(q[0, :, 0], k[0, :, 0], v[0, :, 0])


def jitted_in_parts(q, k, v):
    return jax.jit(output_of)(jax.jit(softmax)(jax.jit(scores_of)(q, k)), v)


def checkpointed(q, k, v):
    return jax.checkpoint(lambda q, k, v: output_of(softmax(scores_of(q, k)), v))(q, k, v)


def grouped_by_repeat(q, k, v):
    k, v = (jnp.repeat(x[:, :, :2], N // 2, axis=2) for x in (k, v))
    return output_of(softmax(scores_of(q, k)), v)


def grouped_by_tile(q, k, v):
    k, v = (jnp.tile(x[:, :, :2], (1, 1, N // 2, 1)) for x in (k, v))
    return output_of(softmax(scores_of(q, k)), v)


def grouped_by_reshape(q, k, v):
    s = jnp.einsum("btkgh,bskh->bkgts", q.reshape(B, T, 2, N // 2, H), k[:, :, :2])
    return jnp.einsum("bkgts,bskh->btkgh", softmax(s), v[:, :, :2]).reshape(q.shape)


def grouped_by_broadcast(q, k, v):
    k, v = (jnp.broadcast_to(x[:, :, :2, None], (B, S, 2, N // 2, H)).reshape(B, S, N, H) for x in (k, v))
    return output_of(softmax(scores_of(q, k)), v)


def softmax_where(q, k, v, m):
    return output_of(softmax(scores_of(q, k), where=m, axis=-1), v)


def sums_where(q, k, v, m):
    s = scores_of(q, k)
    e = jnp.exp(s - s.max(-1, keepdims=True, where=m, initial=-1e30))
    return output_of(jnp.where(m, e, 0) / e.sum(-1, keepdims=True, where=m), v)


def multiplied_mask(q, k, v, m):
    m = m.astype(q.dtype)
    return output_of(softmax(scores_of(q, k) * m - 1e9 * (1 - m)), v)


def added_mask(q, k, v, m):
    return output_of(softmax(scores_of(q, k) + jnp.where(m, 0, -1e9)), v)


def at_least(q, k, v, m):
    """Probabilities with a floor."""
    return output_of(jnp.maximum(softmax(scores_of(q, k)), 0.1 * m), v)


def multiplied_probabilities(q, k, v, m):
    e = jnp.exp(scores_of(q, k)) * m
    return output_of(e / e.sum(-1, keepdims=True), v)


def causal_iota(q, k, v):
    s = scores_of(q, k)
    seen = lax.broadcasted_iota(jnp.int32, s.shape, 2) >= lax.broadcasted_iota(jnp.int32, s.shape, 3)
    return output_of(softmax(jnp.where(seen, s, jnp.finfo(s.dtype).min)), v)


def causal_tril(q, k, v):
    return output_of(softmax(jnp.where(jnp.tril(jnp.ones((T, S), bool)), scores_of(q, k), -1e9)), v)


def causal_tri(q, k, v):
    return output_of(softmax(jnp.where(jnp.tri(T, S, S - T) > 0, scores_of(q, k), -jnp.inf)), v)


def causal_triu(q, k, v):
    return output_of(softmax(scores_of(q, k) + jnp.triu(jnp.full((T, S), -jnp.inf), 1)), v)


def causal_added(q, k, v):
    seen = jnp.arange(T)[:, None] >= jnp.arange(S)
    return output_of(softmax(scores_of(q, k) + jnp.where(seen, 0.0, -1e9)), v)


def causal_numpy(q, k, v):
    return output_of(softmax(jnp.where(np.tril(np.ones((T, S), bool)), scores_of(q, k), -jnp.inf)), v)


def causal_multiplied(q, k, v):
    seen = jnp.tril(jnp.ones((T, S), q.dtype))
    return output_of(softmax(scores_of(q, k) * seen - 1e9 * (1 - seen)), v)


def segments(q, k, v, a, b):
    seen = (a[:, :, None] == b[:, None, :])[:, None]
    return output_of(softmax(jnp.where(seen, scores_of(q, k), -1e30)), v)


def window_and_sink(q, k, v):
    i, j = jnp.arange(T)[:, None], jnp.arange(S)[None, :]
    return output_of(softmax(jnp.where((j <= i) & (j > i - 7) | (j < 2), scores_of(q, k), -jnp.inf)), v)


def softcapped(q, k, v):
    s = scores_of(q, k)
    s = jnp.where(jnp.arange(T)[:, None] >= jnp.arange(S), jnp.tanh(s / 20) * 20, -2.3819763e38)
    return output_of(softmax(s), v)


def temperature(q, k, v, t):
    return output_of(softmax(scores_of(q, k) / t[None, :, None, None]), v)


def normalised_queries(q, k, v, g):
    unit = lambda x: x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * g  # noqa: E731
    return output_of(softmax(jnp.einsum("btnh,bsnh->bnts", unit(q), unit(k))), v)


def rotary(q, k, v):
    def rotated(x):
        angle = jnp.arange(x.shape[1])[:, None] / 100 ** (jnp.arange(H // 2) / (H // 2))
        sin, cos = (f(angle)[:, None].astype(x.dtype) for f in (jnp.sin, jnp.cos))
        a, b = jnp.split(x, 2, axis=-1)
        return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    return output_of(softmax(scores_of(rotated(q), rotated(k))), v)


def rotary_interleaved(q, k, v):
    def rotated(x):
        angle = jnp.arange(x.shape[1])[:, None] / 100 ** (jnp.arange(H // 2) / (H // 2))
        a, b = x[..., ::2], x[..., 1::2]
        sin, cos = (f(angle)[:, None].astype(x.dtype) for f in (jnp.sin, jnp.cos))
        return jnp.stack([a * cos - b * sin, b * cos + a * sin], -1).reshape(x.shape)

    return output_of(softmax(scores_of(rotated(q), rotated(k))), v)


def relative_bias(q, k, v, table):
    """Buckets of distances, as T5 has them."""
    distance = jnp.arange(S)[None, :] - jnp.arange(T)[:, None]
    far = jnp.abs(distance)
    log = 4 + (jnp.log(jnp.maximum(far, 1) / 4) / np.log(8) * 4).astype(jnp.int32)
    bucket = jnp.where(distance > 0, 8, 0) + jnp.where(far < 4, far, jnp.minimum(log, 7))
    return output_of(softmax(jnp.einsum("btnh,bsnh->bnts", q, k) + table[bucket].transpose(2, 0, 1)[None]), v)


def two_key_dimensions(q, k, v):
    """Keys are the pixels of an image; softmax is over both dimensions."""
    k, v = (x[:, :36].reshape(B, 4, 9, N, H) for x in (k, v))
    p = softmax(jnp.einsum("btnh,bxynh->bntxy", q, k) * H**-0.5, axis=(-2, -1))
    return jnp.einsum("bntxy,bxynh->btnh", p, v)


def two_key_dimensions_and_more(q, k, v, b):
    """With a bias of both, and a mask computed from one of them; the sum is written out."""
    k, v = (x[:, :36].reshape(B, 6, 6, N, H) for x in (k, v))
    s = jnp.einsum("btnh,bxynh->bntxy", q, k) + b
    s = jnp.where(jnp.arange(6)[:, None] * 3 <= jnp.arange(T)[:, None, None], s, -jnp.inf)
    e = jnp.exp(s - s.max((-2, -1), keepdims=True))
    return jnp.einsum("bntxy,bxynh->btnh", e / e.sum((3, 4), keepdims=True), v)


def two_query_dimensions(q, k, v):
    q = q[:, :20].reshape(B, 4, 5, N, H)
    return jnp.einsum("bnxys,bsnh->bxynh", softmax(jnp.einsum("bxynh,bsnh->bnxys", q, k)), v)


def self_attention_packed(q, k, v):
    """One projection to queries, keys and values, taken apart."""
    packed = jnp.stack([q[:, :T], k[:, :T], v[:, :T]], 2)
    q, k, v = (packed[:, :, i] for i in range(3))
    return output_of(softmax(scores_of(q, k)), v)


def split_packed(q, k, v):
    q, k, v = jnp.split(jnp.concatenate([q[:, :T], k[:, :T], v[:, :T]], -1).reshape(B, T, -1), 3, axis=-1)
    q, k, v = (x.reshape(B, T, N, H) for x in (q, k, v))
    return output_of(softmax(scores_of(q, k)), v)


def sum_of_ones(q, k, v):
    e = jnp.exp(scores_of(q, k))
    ones = jnp.ones((*v.shape[:-1], 1), v.dtype)
    both = output_of(e, jnp.concatenate([v, ones], -1))
    return both[..., :-1] / both[..., -1:]


def sinks(q, k, v, sink):
    """Beside the keys, without a value; a concatenation that became branches took 20 s to compile."""
    s = jnp.concatenate([scores_of(q, k), jnp.broadcast_to(sink[None, :, None, None], (B, N, T, 1))], -1)
    return output_of(softmax(s)[..., :-1], v)


def dropped(q, k, v, m):
    return output_of(softmax(scores_of(q, k)) * m / 0.7, v)


def sum_with_a_floor(q, k, v):
    """Where scores are low it is the floor that divides."""
    e = jnp.exp(scores_of(q, k))
    return output_of(e / jnp.maximum(e.sum(-1, keepdims=True), 1e-3), v)


def added_to(q, k, v, m):
    return output_of(softmax(scores_of(q, k)) + m, v)


MASK = (*qkv(), mask(B, 1, T, S))
VARIANTS = {
    sum_with_a_floor: qkv(),
    added_to: MASK,
    **dict.fromkeys(
        (
            *(einsum_keys_first, einsum_heads_last, einsum_output_transposed, one_einsum, by_logsumexp),
            *(by_scipy_logsumexp, by_log_softmax, without_maximum, maximum_of_each_head, powers_of_two),
            *(dot_general, dot_general_values_first, dot_general_wide, highest_precision, matmul_of_transposed),
            *(flattened_heads, vmapped, vmapped_keys_shared, vmapped_queries, jitted_in_parts, checkpointed),
            *(grouped_by_repeat, grouped_by_tile, grouped_by_reshape, grouped_by_broadcast),
            *(causal_iota, causal_tril, causal_tri, causal_triu, causal_added, causal_numpy, causal_multiplied),
            *(window_and_sink, softcapped, rotary, rotary_interleaved, two_key_dimensions, two_query_dimensions),
            *(self_attention_packed, split_packed, sum_of_ones),
        ),
        qkv(),
    ),
    **dict.fromkeys(
        (
            divided_by_guarded_sum,
            softmax_where,
            sums_where,
            multiplied_mask,
            added_mask,
            multiplied_probabilities,
            dropped,
        ),
        MASK,
    ),
    einsum_into_projection: (*qkv(), random(N, H, 12)),
    segments: (*qkv(), np.arange(T)[None].repeat(B, 0) // 8, np.arange(S)[None].repeat(B, 0) // 8 % 3),
    two_key_dimensions_and_more: (*qkv(), random(N, T, 6, 6)),
    temperature: (*qkv(), np.abs(random(N)) + 0.5),
    normalised_queries: (*qkv(), random(H)),
    relative_bias: (*qkv(), random(16, N)),
    sinks: (*qkv(), random(N)),
}


@pytest.mark.parametrize("fn", VARIANTS, ids=lambda fn: fn.__name__)
def test_variant(fn):
    check(fn, VARIANTS[fn])


def test_a_function_of_probabilities():
    """Sums of exponentials, and what is made with them, are an attention each."""
    check(at_least, MASK, attentions=2)

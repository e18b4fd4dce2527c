"""What is done with scores: scales, masks and biases."""

import math

import torch
import torch.nn.functional as F

from .registry import LOWEST, ids, variant


@variant
def scaled_queries(q, k, v):
    return (q * 0.3 @ k.mT).softmax(-1) @ v


@variant
def scaled_both(q, k, v):
    return ((q * q.shape[-1] ** -0.25) @ (k * k.shape[-1] ** -0.25).mT).softmax(-1) @ v


@variant
def scaled_keys(q, k, v):
    return (q @ (k / 3).transpose(2, 3)).softmax(-1) @ v


@variant
def scaled_by_a_tensor_per_head(q, k, v):
    scale = torch.arange(1, 5).view(4, 1, 1) / 4
    return (q @ k.mT * scale).softmax(-1) @ v


@variant
def scaled_values(q, k, v):
    return (q @ k.mT).softmax(-1) @ (v * 0.5)


@variant
def normalised_queries_and_keys(q, k, v):
    q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
    return (q @ k.mT * 8).softmax(-1) @ v


@variant
def rms_normalised(q, k, v):
    q, k = (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) for x in (q, k))
    return F.scaled_dot_product_attention(q, k, v)


@variant
def rotary(q, k, v):
    def turned(x):
        angles = torch.arange(x.shape[-2])[:, None] / 100 ** (torch.arange(0, x.shape[-1], 2) / x.shape[-1])
        a, b = x[..., ::2], x[..., 1::2]
        c, s = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        return torch.stack((a * c - b * s, a * s + b * c), -1).flatten(-2)

    return (turned(q) @ turned(k).mT).softmax(-1) @ v


@variant
def causal_flag(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


@variant
def causal_by_tril(q, k, v):
    s = q @ k.mT
    return s.masked_fill(torch.tril(torch.ones(s.shape[-2:])) == 0, -math.inf).softmax(-1) @ v


@variant
def causal_by_triu(q, k, v):
    m, n = q.shape[-2], k.shape[-2]
    mask = torch.triu(torch.full((m, n), -math.inf, dtype=q.dtype), diagonal=1)
    return (q @ k.mT + mask).softmax(-1) @ v


@variant
def causal_by_where(q, k, v):
    i, j = ids(q, k)
    return torch.where(i >= j, q @ k.mT, -math.inf).softmax(-1) @ v


@variant
def causal_by_lowest(q, k, v):
    s = q @ k.mT
    mask = torch.ones_like(s, dtype=torch.bool).tril()
    return torch.where(mask, s, torch.full_like(s, LOWEST)).softmax(-1) @ v


@variant
def causal_by_multiplication(q, k, v):
    i, j = ids(q, k)
    mask = (i >= j).to(q.dtype)
    return (q @ k.mT * mask - 1e4 * (1 - mask)).softmax(-1) @ v


@variant
def causal_in_place(q, k, v):
    s = q @ k.mT
    s.masked_fill_(torch.ones(s.shape[-2:], dtype=torch.bool).triu(1), -math.inf)
    return s.softmax(-1) @ v


@variant
def masked_after_exp(q, k, v):
    i, j = ids(q, k)
    e = torch.exp(q @ k.mT) * (i >= j)
    return e / e.sum(-1, keepdim=True) @ v


@variant
def masked_after_softmax(q, k, v):
    i, j = ids(q, k)
    p = (q @ k.mT).softmax(-1) * (i >= j)
    return p / p.sum(-1, keepdim=True) @ v


@variant
def renormalised_with_epsilon(q, k, v):
    mask = torch.ones(q.shape[-2], k.shape[-2]).tril(3)
    p = torch.softmax(q @ k.mT * mask, -1) * mask
    return p / (p.sum(-1, keepdim=True) + 1e-2) @ v


@variant
def normalised_by_absolute_values(q, k, v):
    return F.normalize(torch.softmax(q @ k.mT, -1) * (ids(q, k)[1] > 4), p=1, dim=-1) @ v


@variant
def masked_exponentials_and_epsilon(q, k, v):
    s = q @ k.mT * 0.3
    e = (s - s.amax(-1, keepdim=True)).exp() * (ids(q, k)[1] < 9)
    return e / (e.sum(-1, keepdim=True) + 1e-2) @ v


@variant
def logarithms_of_gates(q, k, v):
    return (q @ k.mT + torch.log(torch.sigmoid(k[..., 0]))[:, :, None]).softmax(-1) @ v


@variant
def logarithm_of_a_mask(q, k, v):
    i, j = ids(q, k)
    return (q @ k.mT + torch.log((i >= j).to(q.dtype) + 1e-9)).softmax(-1) @ v


@variant
def padding(q, k, v):
    lengths = torch.tensor([11, 7])
    keep = torch.arange(k.shape[-2]) < lengths[:, None]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=keep[:, None, None])


@variant
def padding_additive(q, k, v):
    keep = (torch.arange(k.shape[-2]) < torch.tensor([[11], [7]])).to(q.dtype)
    return (q @ k.mT * 0.5 + (1.0 - keep[:, None, None, :]) * -10000.0).softmax(-1) @ v


@variant
def window(q, k, v):
    i, j = ids(q, k)
    return (q @ k.mT).masked_fill(((i - j).abs() > 3), -math.inf).softmax(-1) @ v


@variant
def alibi(q, k, v):
    slopes = 2.0 ** -torch.arange(1, 5)
    i, j = ids(q, k)
    return (q @ k.mT + (slopes.view(-1, 1, 1) * (j - i)).to(q.dtype)).softmax(-1) @ v


@variant
def relative_buckets(q, k, v):
    i, j = ids(q, k)
    table = torch.sin(torch.arange(36).to(q.dtype)).view(9, 4)
    bias = F.embedding((j - i).clamp(-4, 4) + 4, table).permute(2, 0, 1)[None]
    return (q @ k.mT + bias).softmax(-1) @ v


@variant
def softcap(q, k, v):
    return (torch.tanh(q @ k.mT / 5) * 5).softmax(-1) @ v


@variant
def masked_rows_are_zero(q, k, v):
    i, j = ids(q, k)
    s = torch.where((i >= j) & (i != 4), q @ k.mT, -math.inf)
    return s.softmax(-1).nan_to_num() @ v


@variant
def sink(q, k, v):
    """A column beside the scores that takes part in the sum alone, as in gpt-oss."""
    s = q @ k.mT
    column = torch.tensor([0.5, -1.0, 2.0, 0.0]).to(q.dtype).view(1, 4, 1, 1).expand(2, 4, s.shape[-2], 1)
    with_sink = torch.cat((s, column), -1)
    with_sink = with_sink - with_sink.max(-1, keepdim=True).values
    return with_sink.softmax(-1)[..., :-1] @ v


@variant
def rows_without_a_finite_maximum_are_zero(q, k, v):
    s = (q @ k.mT).masked_fill(ids(q, k)[0] < 2, -math.inf)
    return s.softmax(-1).masked_fill(torch.isinf(s.amax(-1, keepdim=True)), 0) @ v


@variant
def zero_beside(q, k, v):
    """Softmax with a zero among the scores (softmax1, the "quiet" one)."""
    return F.pad(q @ k.mT * 0.3, (0, 1)).softmax(-1)[..., :-1] @ v


@variant
def zero_before(q, k, v):
    return F.pad(q @ k.mT * 0.3, (1, 0)).softmax(-1)[..., 1:] @ v


@variant
def sink_and_projection(q, k, v):
    """The share that keys have of the sum comes between the second matmul and the next."""
    s = torch.cat((torch.tanh(q @ k.mT), torch.full((2, 4, q.shape[-2], 1), 0.5, dtype=q.dtype)), -1)
    return s.softmax(-1)[..., :-1] @ v @ torch.sin(torch.arange(24.0)).to(q.dtype).view(8, 3)


@variant
def dropout_that_is_not_active(q, k, v):
    return F.dropout((q @ k.mT).softmax(-1), 0.1, training=False) @ v


@variant
def gated(q, k, v):
    return F.scaled_dot_product_attention(q, k, v) * torch.sigmoid(q)

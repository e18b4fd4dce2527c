"""How the matmuls are written."""

import math

import torch
import torch.nn.functional as F

from .registry import ids, variant


@variant
def sdpa(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)


@variant
def operators(q, k, v):
    return ((q @ k.transpose(-2, -1)) / math.sqrt(q.size(-1))).softmax(-1) @ v


@variant
def einsum(q, k, v):
    return torch.einsum("bhij,bhjd->bhid", torch.einsum("bhid,bhjd->bhij", q, k).softmax(-1), v)


@variant
def einsum_ellipsis(q, k, v):
    return torch.einsum("...qk,...kd->...qd", torch.einsum("...qd,...kd->...qk", q, k).softmax(-1), v)


@variant
def baddbmm(q, k, v):
    q, k, v = (x.flatten(0, 1) for x in (q, k, v))
    bias = torch.empty(q.shape[0], q.shape[1], k.shape[1], dtype=q.dtype)
    scores = torch.baddbmm(bias, q, k.transpose(1, 2), beta=0, alpha=0.3)
    return torch.bmm(scores.softmax(-1), v).unflatten(0, (2, 4))


@variant
def baddbmm_with_a_bias(q, k, v):
    i, j = ids(q, k)
    bias = -(i - j).abs().to(q.dtype)[None].expand(8, -1, -1)
    q, k, v = (x.reshape(-1, *x.shape[2:]) for x in (q, k, v))
    return torch.baddbmm(bias, q, k.mT).softmax(-1).bmm(v).view(2, 4, -1, v.shape[-1])


@variant
def products_and_sums(q, k, v):
    scores = (q.unsqueeze(-2) * k.unsqueeze(-3)).sum(-1)
    return (scores.softmax(-1).unsqueeze(-1) * v.unsqueeze(-3)).sum(-2)


@variant
def keys_first(q, k, v):
    scores = k @ q.mT
    return scores.softmax(-2).mT @ v


@variant
def values_first(q, k, v):
    return (v.mT @ (k @ q.mT).softmax(dim=2)).mT


@variant
def two_dimensions(q, k, v):
    q, k, v = q[0, 0], k[0, 0], v[0, 0]
    return torch.mm(F.softmax(torch.mm(q, k.t()), 1), v)


@variant
def sequence_first(q, k, v):
    q, k, v = (x.permute(2, 0, 1, 3) for x in (q, k, v))
    scores = torch.einsum("ibnd,jbnd->ijbn", q, k) * 0.25
    return torch.einsum("ijbn,jbnd->ibnd", F.softmax(scores, dim=1), v)


@variant
def batch_and_heads_merged(q, k, v):
    b, h, m, d = q.shape
    q, k, v = (x.contiguous().view(b * h, -1, d) for x in (q, k, v))
    out = torch.bmm(torch.bmm(q, k.transpose(1, 2)).softmax(2), v)
    return out.view(b, h, m, d).transpose(1, 2).reshape(b, m, h * d)


@variant
def five_dimensions(q, k, v):
    q, k, v = (x.unflatten(1, (2, 2)) for x in (q, k, v))
    return ((q @ k.mT).softmax(-1) @ v).flatten(1, 2)


@variant
def packed_heads(q, k, v):
    q, k, v = (x.transpose(1, 2).flatten(2) for x in (q, k, v))
    q, k, v = (x.unflatten(-1, (4, -1)).movedim(2, 1) for x in (q, k, v))
    return (torch.matmul(q, k.swapaxes(-1, -2)).softmax(-1) @ v).movedim(1, 2).flatten(2)


@variant
def channels_first(q, k, v):
    """As in convolutional networks: [b, channels, pixels]."""
    q, k, v = (x.mT.flatten(1, 2) for x in (q, k, v))
    q, k, v = (x.view(2, 4, -1, x.shape[-1]) for x in (q, k, v))
    return torch.einsum("bhcj,bhij->bhci", v, torch.einsum("bhci,bhcj->bhij", q, k).softmax(-1))

"""How softmax is written, and what is made of probabilities."""

import math

import torch
import torch.nn.functional as F

from .registry import ids, variant


@variant
def maximum_out(q, k, v):
    e = torch.exp((s := q @ k.mT) - s.amax(-1, keepdim=True))
    return (e / e.sum(-1, keepdim=True)) @ v


@variant
def maximum_with_index(q, k, v):
    s = q @ k.mT
    e = (s - torch.max(s, dim=-1, keepdim=True)[0]).exp()
    return e.div(e.sum(dim=-1, keepdim=True)) @ v


@variant
def whole_maximum(q, k, v):
    s = q @ k.mT
    e = (s - s.max()).exp()
    return e @ v / e.sum(-1, keepdim=True)


@variant
def no_maximum(q, k, v):
    e = torch.exp(q @ k.mT * 0.1)
    return e @ v / e.sum(-1, keepdim=True)


@variant
def division_last(q, k, v):
    s = q @ k.mT
    e = torch.exp(s - s.amax(-1, keepdim=True))
    return torch.matmul(e, v) * torch.reciprocal(e.sum(-1))[..., None]


@variant
def exponentials_of_two(q, k, v):
    s = q @ k.mT * (0.3 * math.log2(math.e))
    e = torch.exp2(s - s.amax(-1, True))
    return e / e.sum(-1, True) @ v


@variant
def powers_of_e(q, k, v):
    e = torch.pow(math.e, q @ k.mT)
    return e / e.sum(-1, keepdim=True) @ v


@variant
def log_softmax(q, k, v):
    return F.log_softmax(q @ k.mT, -1).exp() @ v


@variant
def log_sum_exp(q, k, v):
    s = q @ k.mT
    return (s - s.logsumexp(-1, keepdim=True)).exp() @ v


@variant
def minus_row_mean(q, k, v):
    s = q @ k.mT
    return (s - s.mean(-1, keepdim=True)).softmax(-1) @ v


@variant
def plus_one(q, k, v):
    """Softmax plus one: a sink of score 0."""
    s = q @ k.mT
    highest = s.amax(-1, keepdim=True)
    e = torch.exp(s - highest)
    return e / (e.sum(-1, keepdim=True) + torch.exp(-highest)) @ v


@variant
def plus_epsilon(q, k, v):
    e = torch.exp((s := q @ k.mT) - s.amax(-1, keepdim=True))
    return e / (e.sum(-1, keepdim=True) + 0.1) @ v


@variant
def plus_epsilon_without_maximum(q, k, v):
    e = torch.exp(q @ k.mT * 0.1)
    return e @ v / (e.sum(-1, keepdim=True) + 0.1)


@variant
def at_least(q, k, v):
    e = torch.exp((s := q @ k.mT) - s.amax(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True).clamp_min(1.5) @ v


@variant
def guarded_by_isinf(q, k, v):
    m = (s := q @ k.mT).amax(-1, keepdim=True)
    e = torch.exp(s - torch.where(m.isinf(), torch.zeros_like(m), m))
    return e / (e.sum(-1, keepdim=True) + 0.1) @ v


@variant
def guarded_by_a_bound(q, k, v):
    e = torch.exp((s := q @ k.mT) - s.amax(-1, keepdim=True).clamp(min=0.5))
    return e / e.sum(-1, keepdim=True).clamp_min(1) @ v


@variant
def in_float32(q, k, v):
    return F.softmax((q @ k.mT).float(), dim=-1, dtype=torch.float32).to(q.dtype) @ v


@variant
def difference(q, k, v):
    """Differential attention."""
    q, k = (x.chunk(2, -1) for x in (q, k))
    p1, p2 = ((a @ b.mT).softmax(-1) for a, b in zip(q, k, strict=True))
    return (p1 - 0.4 * p2) @ v


@variant
def difference_of_pairs(q, k, v):
    """The same as its authors wrote it: one softmax for pairs of heads."""
    p = (q @ k.mT).softmax(-1).view(2, 2, 2, q.shape[-2], k.shape[-2])
    scale = torch.exp((q[0, 0, 0] * k[0, 0, 0]).sum()) * 0.1
    return (p[:, :, 0] - scale * p[:, :, 1]) @ torch.cat((v[:, ::2], v[:, 1::2]), -1)


@variant
def clipped(q, k, v):
    """Stretched and clipped, so that probabilities can be 0 and 1 (Quantizable Transformers)."""
    return ((q @ k.mT).softmax(-1) * 1.06 - 0.03).clamp(0, 1) @ v


@variant
def squares_renormalised(q, k, v):
    p = (q @ k.mT).softmax(-1) ** 2
    return p / p.sum(-1, keepdim=True) @ v


@variant
def above_a_threshold(q, k, v):
    p = (q @ k.mT).softmax(-1)
    return torch.where(p > 0.05, p, 0) @ v


@variant
def less_the_mean(q, k, v):
    return ((q @ k.mT).softmax(-1) - 1 / k.shape[-2]) @ v


@variant
def mixed_with_positions(q, k, v):
    i, j = ids(q, k)
    near = (-(i - j).abs().to(q.dtype)).softmax(-1)
    return (0.8 * (q @ k.mT).softmax(-1) + 0.2 * near) @ v

"""How heads share keys and values, and how attention is mapped over them, or split."""

import torch
import torch.nn.functional as F

from .registry import grouped, variant


@grouped
def repeat_interleave(q, k, v):
    return (q @ k.repeat_interleave(2, dim=1).mT).softmax(-1) @ v.repeat_interleave(2, dim=1)


@grouped
def expand_and_reshape(q, k, v):
    k, v = (x[:, :, None].expand(-1, -1, 2, -1, -1).reshape(2, 4, -1, x.shape[-1]) for x in (k, v))
    return (q @ k.mT).softmax(-1) @ v


@grouped
def stacked_groups(q, k, v):
    k, v = (torch.stack((x, x), 2).flatten(1, 2) for x in (k, v))
    return (q @ k.mT).softmax(-1) @ v


@grouped
def groups_broadcast(q, k, v):
    q = q.unflatten(1, (2, 2))
    return ((q @ k[:, :, None].mT).softmax(-1) @ v[:, :, None]).flatten(1, 2)


@grouped
def groups_in_einsum(q, k, v):
    q = q.unflatten(1, (2, 2))
    p = torch.einsum("bkgid,bkjd->bkgij", q, k).softmax(-1)
    return torch.einsum("bkgij,bkjd->bkgid", p, v).flatten(1, 2)


@grouped
def groups_in_queries(q, k, v):
    b, h, m, d = q.shape
    q = q.reshape(b, 2, 2 * m, d)
    return ((q @ k.mT).softmax(-1) @ v).reshape(b, h, m, d)


@grouped
def sdpa_groups(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)


@variant
def mapped_over_heads(q, k, v):
    def one(q, k, v):
        return (q @ k.T).softmax(-1) @ v

    return torch.vmap(torch.vmap(one))(q, k, v)


@variant
def blocks_of_queries(q, k, v):
    """Each block is an attention of its own."""
    return torch.cat([(part @ k.mT).softmax(-1) @ v for part in q.split(5, -2)], -2)


@variant
def heads_in_a_loop(q, k, v):
    return torch.stack([(q[:, h] @ k[:, h].mT).softmax(-1) @ v[:, h] for h in range(2)], 1)

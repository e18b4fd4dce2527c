"""Dropout between softmax and values, as of torch, and with the mask of a seed.

Kernels compute that one (`dropout_masks.py`). Where torch computes the same attention itself, it draws another.
"""

import contextlib
import threading
from collections.abc import Iterator

import torch
import torch.nn.functional as F

from .decompositions import attended, masked_scores
from .dropout_masks import is_kept

_seeded = threading.local()  # whether masks are those of seeds where nothing is traced, too


@contextlib.contextmanager
def seeded() -> Iterator[None]:
    """Within it, in this thread, the functions below compute what a kernel of them does."""
    _seeded.on = True
    try:
        yield
    finally:
        _seeded.on = False


def _is_by_seed() -> bool:
    return torch.compiler.is_exporting() or getattr(_seeded, "on", False)


def dropout(weights: torch.Tensor, p: float, seed: torch.Tensor, inplace: bool = False) -> torch.Tensor:
    """torch's dropout in training; the mask is that of `seed`, two numbers of int32, where this is traced."""
    if not _is_by_seed():
        return F.dropout(weights, p, training=True, inplace=inplace)
    return dropped(weights, p, seed, inplace)


def scaled_dot_product_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    seed: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """torch's function of this name, with a dropout as above."""
    if not _is_by_seed():
        named = {"is_causal": is_causal, "scale": scale, "enable_gqa": enable_gqa}
        return F.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, **named)
    weights = torch._safe_softmax(masked_scores(query, key, attn_mask, is_causal, scale, enable_gqa), -1)
    return attended(dropped(weights, dropout_p, seed), query, value, enable_gqa)


def dropped(weights: torch.Tensor, p: float, seed: torch.Tensor, inplace: bool = False) -> torch.Tensor:
    """`weights` [..., queries, keys], or of keys alone, of any float type, times the mask, in their type."""
    factor = torch.where(is_kept(seed, weights.shape, p), 1 / (1 - p) if p < 1 else 0.0, 0.0)
    wide = torch.promote_types(weights.dtype, torch.float32)  # 1/(1 − p) has more digits than halves have
    factor = factor.to(wide)
    return weights.mul_(factor) if inplace else (weights.to(wide) * factor).to(weights.dtype)

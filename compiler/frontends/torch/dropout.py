"""Dropout between softmax and values whose numbers are computed where they are needed, from a seed and a place.

A mask that is drawn has as many elements as there are scores. Here an element of it is a function of two numbers, which
are drawn once, and of its head, query and key: kernels compute it tile by tile, forward and again backward.

    x = (query without bits 0 and 3) · keys + (key without these)
    x = x ⊕ (seed₀ + head · c₀);         x = (x ⊕ x ≫ 16) · m₀
    x = x ⊕ x ≫ 15 ⊕ seed₁ ⊕ head · c₁;  x = x · m₁;  x = x ⊕ x ≫ 16
    a weight is kept, and divided by 1 − p, where x · a · b ≥ p · 2³²: factors for what these bits of query and key are

Without seeds x is lowbias32 of C. Wellons, "Prospecting for Hash Functions" (2018), which counters go through. Of the
16 elements that share it a thread has 8 on GPUs, in tiles of scores as in transposed ones. Products with primes are
points of a lattice, spread evenly. Where torch computes the same attention itself, it draws a mask of its own.
"""

import contextlib
import threading
from collections.abc import Iterator

import torch
import torch.nn.functional as F

from .decompositions import attended, probabilities

HEADS = -0x61C88647, -0x3D4D51CB  # c₀, c₁: odd, and without a pattern
FACTORS = 0x7FEB352D, 0x846CA68B  # m₀, m₁
QUERIES = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F  # a: primes, of xxHash
KEYS = 1, 0x165667B1, 0xCC9E2D51, 0x1B873593  # b: another one, and what MurmurHash3 multiplies by


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
    arguments = query, key, attn_mask, is_causal, scale, enable_gqa
    if not _is_by_seed():
        named = {"is_causal": is_causal, "scale": scale, "enable_gqa": enable_gqa}
        return F.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, **named)
    return attended(dropped(probabilities(*arguments), dropout_p, seed), query, value, enable_gqa)


def dropped(weights: torch.Tensor, p: float, seed: torch.Tensor, inplace: bool = False) -> torch.Tensor:
    """`weights` [..., queries, keys], or of keys alone, of any float type, times the mask, in their type."""
    factor = torch.where(is_kept(weights, p, seed), 1 / (1 - p) if p < 1 else 0.0, 0.0)
    wide = torch.promote_types(weights.dtype, torch.float32)  # 1/(1 − p) has more digits than halves have
    factor = factor.to(wide)
    return weights.mul_(factor) if inplace else (weights.to(wide) * factor).to(weights.dtype)


def is_kept(weights: torch.Tensor, p: float, seed: torch.Tensor) -> torch.Tensor:
    """The mask, in bool: which elements of [..., queries, keys] are kept."""
    *heads, keys = (torch.arange(n, dtype=torch.int32, device=weights.device) for n in weights.shape)
    zero = torch.zeros((), dtype=torch.int32, device=weights.device)
    queries = (heads.pop() if heads else zero).unsqueeze(-1)
    head = zero
    for numbers, size in zip(heads, weights.shape, strict=False):
        head = (head * size).unsqueeze(-1) + numbers
    first, second = (x[..., None, None] for x in (seed[0] + head * HEADS[0], seed[1] ^ (head * HEADS[1])))
    x = (queries & ~9) * weights.size(-1) + (keys & ~9)
    x = x ^ first
    x = (x ^ _shifted(x, 16)) * _signed(FACTORS[0])
    x = (x ^ _shifted(x, 15) ^ second) * _signed(FACTORS[1])
    x = (x ^ _shifted(x, 16)) * (_factors(queries, QUERIES) * _factors(keys, KEYS))
    return (x >= _signed(min(round(p * 2**32), 2**32 - 1) ^ 2**31)).expand(weights.shape)


def _factors(places: torch.Tensor, factors: tuple[int, ...]) -> torch.Tensor:
    """For each place one of four numbers, by its bits 0 and 3."""
    a, b, c, d = (torch.full((), _signed(f), dtype=torch.int32, device=places.device) for f in factors)
    is_even = (places & 1) == 0
    return torch.where((places & 8) == 0, torch.where(is_even, a, b), torch.where(is_even, c, d))


def _signed(number: int) -> int:
    """The int32 with the bits of a number below 2³²."""
    return number - 2**32 if number >= 2**31 else number


def _shifted(x: torch.Tensor, places: int) -> torch.Tensor:
    """x ≫ places with zeros from above, which int32 has no op for."""
    return (x >> places) & (2 ** (32 - places) - 1)

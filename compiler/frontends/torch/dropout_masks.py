"""Masks of dropouts whose elements are computed where they are needed, from a seed and a place.

A mask that is drawn has as many elements as there are scores. Here an element of it is a function of two numbers, which
are drawn once, and of its head, query and key: kernels compute it tile by tile, forward and again backward.

    x = (query without bits 0 and 3) · keys + (key without these)
    x = x ⊕ (seed₀ + head · c₀);         x = (x ⊕ x ≫ 16) · m₀
    x = x ⊕ x ≫ 15 ⊕ seed₁ ⊕ head · c₁;  x = x · m₁;  x = x ⊕ x ≫ 16
    a weight is kept, and divided by 1 − p, where x · a · b ≥ p · 2³²: factors for what these bits of query and key are

Without seeds x is lowbias32 of C. Wellons, "Prospecting for Hash Functions" (2018), which counters go through. Of the
16 elements that share it a thread has 8 on GPUs, in tiles of scores as in transposed ones. Products with primes are
points of a lattice, spread evenly.
"""

from collections.abc import Sequence

import torch

HEADS = -0x61C88647, -0x3D4D51CB  # c₀, c₁: odd, and without a pattern
FACTORS = 0x7FEB352D, 0x846CA68B  # m₀, m₁
QUERIES = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F  # a: primes, of xxHash
KEYS = 1, 0x165667B1, 0xCC9E2D51, 0x1B873593  # b: another one, and what MurmurHash3 multiplies by


@torch.library.custom_op("attn_opt::is_kept", mutates_args=())
def is_kept(seed: torch.Tensor, shape: Sequence[int], p: float) -> torch.Tensor:
    """The mask, in bool, of `shape` […, queries, keys], of keys alone, or of one number, as one op, so that graphs stay
    short. `seed`: two numbers of int32."""
    return written_out(seed, shape, p)


@is_kept.register_fake
def _mask_of_fakes(seed: torch.Tensor, shape: Sequence[int], p: float) -> torch.Tensor:
    return seed.new_empty(shape, dtype=torch.bool)


def written_out(seed: torch.Tensor, shape: Sequence[int], p: float) -> torch.Tensor:
    """The same in arithmetic on int32."""
    if len(shape) < 2:
        return written_out(seed, (1, *shape) if shape else (1, 1), p).reshape(shape)
    *heads, keys = (torch.arange(n, dtype=torch.int32, device=seed.device) for n in shape)
    zero = torch.zeros((), dtype=torch.int32, device=seed.device)
    queries = heads.pop().unsqueeze(-1)
    head = zero
    for numbers, size in zip(heads, shape, strict=False):
        head = (head * size).unsqueeze(-1) + numbers
    first, second = seed.select(0, 0) + head * HEADS[0], seed.select(0, 1) ^ (head * HEADS[1])
    first, second = (x.unsqueeze(-1).unsqueeze(-1) for x in (first, second))
    x = (queries & ~9) * shape[-1] + (keys & ~9)
    x = x ^ first
    x = (x ^ _shifted(x, 16)) * _signed(FACTORS[0])
    x = (x ^ _shifted(x, 15) ^ second) * _signed(FACTORS[1])
    x = (x ^ _shifted(x, 16)) * (_factors(queries, QUERIES) * _factors(keys, KEYS))
    return (x >= _signed(min(round(p * 2**32), 2**32 - 1) ^ 2**31)).expand(shape)


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

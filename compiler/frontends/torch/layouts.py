"""How the dimensions of tensors lie in memory."""

from collections.abc import Sequence
from typing import Any

import torch


def order_of(tensor: torch.Tensor) -> tuple[int, ...]:
    """Its dimensions from the largest stride to the smallest."""
    strides = _strides(tensor)
    return tuple(sorted(range(tensor.dim()), key=lambda d: (-strides[d], d)))


def order_of_gradient(value: Any) -> tuple[int, ...]:
    """The order of the gradient of a tensor: its own, unless elements of it share memory."""
    return order_of(value) if all(_strides(value)) else tuple(range(value.dim()))


def permuted(tensor: torch.Tensor, order: Sequence[int]) -> torch.Tensor:
    """The tensor with its dimensions in that order; itself where they are, with no view that autograd goes through."""
    return tensor if list(order) == sorted(order) else tensor.permute(order)


def with_dense_rows(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor as kernels read it: a gradient of a sum, one number for all, as many."""
    return tensor.contiguous() if tensor.dim() and tensor.stride(-1) != 1 else tensor


def inverse(order: Sequence[int]) -> list[int]:
    return [list(order).index(d) for d in range(len(order))]


def _strides(tensor: torch.Tensor) -> list[int]:
    return [s if isinstance(s, int) else getattr(s.node, "hint", None) or 0 for s in tensor.stride()]

"""Derivatives that have no derivative: kernels compute them, and torch's autograd is to say so where one is asked for.

torch's ``once_differentiable`` does where gradients that come need some. A second derivative by the inputs, as of a
penalty of the gradient, would be 0 with it, without a word.
"""

from collections.abc import Callable
from typing import Any

import torch


def once(backward: Callable[..., tuple[Any, ...]]) -> Callable[..., tuple[Any, ...]]:
    """`backward` of a torch.autograd.Function, whose results depend on what it saved and on the gradients that come."""

    def checked(ctx: Any, *gradients: torch.Tensor | None) -> tuple[Any, ...]:
        with torch.no_grad():
            found = backward(ctx, *gradients)
        if not torch.is_grad_enabled():  # as without create_graph
            return found
        values = [v for v in (*ctx.saved_tensors, *gradients) if v is not None]
        ends = iter(_Once.apply([g for g in found if g is not None], *values))
        return tuple(None if g is None else next(ends) for g in found)

    return checked


class _Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, results: list[torch.Tensor], *values: torch.Tensor) -> Any:
        """The results; in a list, so that torch does not take them for inputs."""
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise RuntimeError("gradients that a kernel has computed have no gradients: kernels are differentiable once")

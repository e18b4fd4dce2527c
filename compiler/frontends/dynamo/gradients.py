"""Attention that gradients go back through: a kernel forward, and another one of its derivative backward.

    out = kernel(q, k, v)      dq, dk, dv = derivative(q, k, v, dout)

What is kept between them are the inputs: the derivative computes anew what it needs of the scores, as FlashAttention's
does. It is compiled before the first call, so that attention whose derivative has no kernel stays with torch as a
whole.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd.function import once_differentiable
from torch.export import Dim

from ...api import Options
from ..torch.derivatives import Derivative, without_autocast
from ..torch.tracing import TorchKernel, TorchProgram, as_torch, trace
from .attention import AttentionCall, AttentionKernels, inverse, why_left
from .kernel import Kernels, order_of


class DifferentiableCall(AttentionCall):
    """Attention whose result needs a gradient where an input does."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.derivatives: dict[tuple[int, ...], DerivativeKernels] = {}  # by the inputs that need gradients

    def attended(self, inputs: Sequence[Any], threads: int | None) -> torch.Tensor | None:
        needed = tuple(i for i, v in enumerate(inputs) if isinstance(v, torch.Tensor) and v.requires_grad)
        if not needed or not torch.is_grad_enabled():
            return super().attended(inputs, threads)
        if self.kernels.of(inputs) is None:
            return None
        if needed not in self.derivatives:
            self.derivatives[needed] = DerivativeKernels(self.kernels, needed)
        derivative = self.derivatives[needed]
        if derivative.of(inputs) is None:
            return None
        result = super().attended(inputs, threads)
        return None if result is None else _Attention.apply([result], derivative, threads, *inputs)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, results: list[torch.Tensor], derivative: Any, threads: int | None, *inputs: Any) -> Any:
        """The result, which is in a list so that torch does not take it for an input."""
        ctx.derivative, ctx.threads = derivative, threads
        ctx.others = [None if isinstance(v, torch.Tensor) else v for v in inputs]
        ctx.places = [i for i, v in enumerate(inputs) if isinstance(v, torch.Tensor)]
        ctx.save_for_backward(*(inputs[i] for i in ctx.places))
        return results[0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        inputs = list(ctx.others)
        for i, value in zip(ctx.places, ctx.saved_tensors, strict=True):
            inputs[i] = value
        return None, None, None, *ctx.derivative.gradients(inputs, gradient, ctx.threads)


class DerivativeKernels(Kernels):
    """The kernels of the derivative of `forward` by its inputs `needed`. They take the inputs and the gradient of the
    result, and give those of the inputs, in memory as these are."""

    told_of = "of its derivative: "

    def __init__(self, forward: AttentionKernels, needed: tuple[int, ...]):
        self.forward, self.needed = forward, needed
        self.orders = [_order(forward.values[i]) for i in needed]
        self.inverses = [inverse(order) for order in self.orders]
        super().__init__(forward.values, ("derivative", needed, *self.orders, forward.structure))
        self.dynamic = list(forward.dynamic)

    def gradients(self, inputs: Sequence[Any], gradient: torch.Tensor, threads: int | None) -> list[Any]:
        """The gradient of each input, None where it needs none."""
        found: list[Any] = [None] * len(inputs)
        results = self.run(inputs, threads, gradient)
        if results is None:
            raise RuntimeError("attention has a kernel, but none of its derivative for other sizes of inputs")
        for i, result, order in zip(self.needed, results, self.inverses, strict=True):
            found[i] = as_torch(result).permute(order)
        return found

    def compiled(self, inputs: Sequence[Any]) -> TorchKernel | str:
        kernel = self.forward.of(inputs)
        if kernel is None:
            return "its forward has no kernel"
        example = [v.detach() if isinstance(v, torch.Tensor) else v for v in inputs]
        is_open = any(self.dynamic)
        program: Any = kernel.program
        derivative = Derivative(program.functional, example, self.needed, self.orders, is_open)
        (result,) = derivative.result
        gradient = torch.zeros([*map(_hint, result.shape)], dtype=result.dtype, device=result.device)
        shapes: Any = None
        if is_open:
            sizes = [*self.dynamic, [d for d, size in enumerate(result.shape) if not isinstance(size, int)]]
            shapes = (tuple(dict.fromkeys(dims, Dim.AUTO) or None for dims in sizes),)
        with torch.no_grad(), without_autocast():
            traced = trace(derivative, (*example, gradient), dynamic_shapes=shapes)
        self.check_open(traced)
        return _kernel(traced, self.forward.target, self.forward.options)


def _kernel(derivative: TorchProgram, target: str, options: Options) -> TorchKernel | str:
    """The derivative's kernel, or why it is left to torch."""
    return why_left(derivative.module) or TorchKernel.of_program(derivative, target, options)


def _hint(size: Any) -> int:
    return size if isinstance(size, int) else int(size.node.hint)


def _order(value: Any) -> tuple[int, ...]:
    """The order in memory of the gradient of an input: the input's own, unless elements of it share memory."""
    strides = [s if isinstance(s, int) else getattr(s.node, "hint", None) or 0 for s in value.stride()]
    return order_of(value) if all(strides) else tuple(range(value.dim()))

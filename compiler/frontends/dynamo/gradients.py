"""Attention that gradients go back through: a kernel forward, and another one of its derivative backward.

    out, *rows = kernel(q, k, v)      dq, dk, dv = derivative(q, k, v, out, *rows, dout)

What is kept between them are the inputs, the output, and one or two numbers of each row of scores; the derivative
computes anew what it needs of the scores, as FlashAttention's does. Where that is no kernel, or something writes to the
output, the derivative has the inputs alone, and computes the rest once more. Both are compiled before the first call,
so that attention whose derivative has no kernel stays with torch as a whole.

Of several results the derivative is that by the first one. Where gradients come to others, such as probabilities that
are looked at most often, torch computes all of it again.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from ..torch.autocast import autocast, autocasting
from ..torch.dropout import seeded
from ..torch.layouts import with_dense_rows
from ..torch.once import once
from ..torch.tracing import TorchKernel, as_torch
from .attention import AttentionCall, AttentionKernels
from .derivatives import DerivativeKernels, KeepingKernels, KeptDerivativeKernels
from .kernel import Kernels, count_left

BY_OTHERS = (
    "gradients come to its scores or probabilities, which have no kernel: torch computes it again for all gradients"
)

Pair = tuple[Kernels, DerivativeKernels]  # the kernels forward and backward
Found = tuple[tuple[Kernels, TorchKernel], tuple[DerivativeKernels, TorchKernel]]  # … and those for some inputs


class DifferentiableCall(AttentionCall):
    """Attention whose results need gradients where an input does, but for those that do not carry any (`carrying`).
    `keeps`: it may keep its output until then."""

    def __init__(self, *arguments: Any, carrying: Sequence[bool], keeps: bool):
        super().__init__(*arguments)
        self.carrying, self.first = carrying, self.kernels
        if len(carrying) > 1:
            first = self.kernels
            self.first = AttentionKernels(_first_result(self.part), first.orders[:1], first.target, first.options)
        self.keeping = KeepingKernels(self.kernels) if keeps and len(carrying) == 1 else None
        self.pairs: dict[tuple[int, ...], list[Pair]] = {}  # by the inputs that need gradients, the best one first
        self.found: dict[Any, Found | None] = {}  # by these, and what kernels for inputs depend on

    def attended(self, inputs: Sequence[Any], threads: int | None) -> Sequence[torch.Tensor] | None:
        needed = tuple(i for i, v in enumerate(inputs) if isinstance(v, torch.Tensor) and v.requires_grad)
        if not needed or not torch.is_grad_enabled():
            return super().attended(inputs, threads)
        found = self._kernels_of(needed, inputs)
        if found is None:
            return None
        (forward, kernel), (derivative, backward) = found
        results = forward.called(kernel, inputs, threads)
        if results is None:
            return None
        return _Attention.apply([*map(as_torch, results)], self, derivative, backward, threads, *inputs)

    def _kernels_of(self, needed: tuple[int, ...], inputs: Sequence[Any]) -> Found | None:
        """The best pair that there are kernels of for such inputs; looked for anew where sizes are open."""
        kind = needed, self.kernels.key(inputs)
        if kind not in self.found:
            found = self._best(needed, inputs)
            if any(self.kernels.symbols):
                return found
            self.found[kind] = found
        return self.found[kind]

    def _best(self, needed: tuple[int, ...], inputs: Sequence[Any]) -> Found | None:
        if needed not in self.pairs:
            self.pairs[needed] = [*self._pairs(needed)]
        for forward, derivative in self.pairs[needed]:
            if forward is self.keeping:  # of this pair it is the derivative that may be none
                backward = derivative.of(inputs)
                kernel = None if backward is None else forward.of(inputs)
            else:
                kernel = forward.of(inputs)
                backward = None if kernel is None else derivative.of(inputs)
            if kernel is not None and backward is not None:
                return (forward, kernel), (derivative, backward)
        return None

    def _pairs(self, needed: tuple[int, ...]) -> Iterator[Pair]:
        if self.keeping is not None:
            yield self.keeping, KeptDerivativeKernels(self.kernels, needed)
        yield self.kernels, DerivativeKernels(self.first, needed)

    def again(
        self, inputs: Sequence[Any], gradients: Sequence[torch.Tensor | None], casts: Sequence[torch.dtype | None]
    ) -> list[torch.Tensor | None]:
        """The gradients of the inputs, where those of all results are given as these lie in memory, by torch. `casts`:
        what it cast operands to on the way forward."""
        count_left(BY_OTHERS)
        leaves = [v.detach().requires_grad_(v.requires_grad) if isinstance(v, torch.Tensor) else v for v in inputs]
        wanted = [v for v in leaves if isinstance(v, torch.Tensor) and v.requires_grad]
        with torch.enable_grad(), seeded(), autocasting(casts):
            results = map(torch.Tensor.permute, self.part(*leaves), self.kernels.orders)
            given = [(r, g) for r, g in zip(results, gradients, strict=True) if g is not None and r.requires_grad]
            ends, theirs = zip(*given, strict=True)
            found = iter(torch.autograd.grad(ends, wanted, theirs, allow_unused=True))
        return [next(found) if isinstance(v, torch.Tensor) and v.requires_grad else None for v in leaves]


def _first_result(part: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """`part` with the first of its results alone."""
    graph = torch.fx.Graph()
    results: Any = graph.graph_copy(part.graph, {})
    graph.output(results[0])
    return torch.fx.GraphModule(part, graph)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        results: list[torch.Tensor],
        call: DifferentiableCall,
        derivative: Any,
        kernel: Any,
        threads: int | None,
        *inputs: Any,
    ) -> Any:
        """The results, which are in a list so that torch does not take them for inputs."""
        ctx.call, ctx.derivative, ctx.kernel, ctx.threads = call, derivative, kernel, threads
        ctx.casts = autocast()
        ctx.others = [None if isinstance(v, torch.Tensor) else v for v in inputs]
        ctx.places = [i for i, v in enumerate(inputs) if isinstance(v, torch.Tensor)]
        ctx.save_for_backward(*(inputs[i] for i in ctx.places), *derivative.kept(results))
        ctx.set_materialize_grads(False)
        returned = results[: len(call.carrying)]
        ctx.mark_non_differentiable(*(r for r, carries in zip(returned, call.carrying, strict=True) if not carries))
        return tuple(returned)

    @staticmethod
    @once
    def backward(ctx: Any, gradient: torch.Tensor | None, *gradients: torch.Tensor | None) -> Any:
        inputs, saved = list(ctx.others), ctx.saved_tensors
        for i, value in zip(ctx.places, saved, strict=False):
            inputs[i] = value
        kept = saved[len(ctx.places) :]
        if any(g is not None for g in gradients):
            return *[None] * 5, *ctx.call.again(inputs, (gradient, *gradients), ctx.casts)
        if gradient is None:
            return *[None] * 5, *[None] * len(inputs)
        given = with_dense_rows(gradient)
        return *[None] * 5, *ctx.derivative.gradients(ctx.kernel, inputs, ctx.threads, *kept, given)

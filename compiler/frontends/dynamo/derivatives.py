"""The kernels of derivatives, and those of forwards that keep something for them."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch.export import ExportedProgram

from ..torch.autocast import without_autocast
from ..torch.derivatives import Derivative
from ..torch.kept import DerivativeOfKept, Forward
from ..torch.layouts import inverse, order_of_gradient, permuted
from ..torch.left import NO_ATTENTION, why_left
from ..torch.tracing import TorchKernel, TorchProgram, as_torch
from .attention import AttentionKernels
from .kernel import Kernels


class _Following(Kernels):
    """The kernels of what follows from the program that `forward` is of."""

    kind = ""

    def __init__(self, forward: AttentionKernels, *others: Any):
        self.forward = forward
        super().__init__(forward.values, (self.kind, *others, forward.structure))
        self.dynamic = list(forward.dynamic)

    def compiled(self, inputs: Sequence[Any]) -> TorchKernel | str:
        program = self.forward.followed(inputs)
        if isinstance(program, str):
            return "its forward has no kernel"
        example = [v.detach() if isinstance(v, torch.Tensor) else v for v in inputs]
        with torch.no_grad():
            functional = program.functional  # with the casts of the autocast that there is now
            with without_autocast():
                return self.following(functional, example)

    def following(self, program: ExportedProgram, example: Sequence[Any]) -> TorchKernel | str:
        """A kernel of what follows from the program, for such inputs, or why there is to be none."""
        raise NotImplementedError


class DerivativeKernels(_Following):
    """The kernels of the derivative of `forward` by its inputs `needed`. They take the inputs, what of the `results` of
    the forward is `kept`, and the gradient of the first result, and give those of the inputs, in memory as these are.
    """

    kind = "derivative"
    told_of: str | None = "of its derivative: "
    derivative: type[Derivative] = Derivative

    def __init__(self, forward: AttentionKernels, needed: tuple[int, ...]):
        self.needed = needed
        self.orders = [order_of_gradient(forward.values[i]) for i in needed]
        self.inverses = [inverse(order) for order in self.orders]
        super().__init__(forward, needed, *self.orders)

    def kept(self, results: list[torch.Tensor]) -> list[torch.Tensor]:
        return []

    def gradients(
        self, kernel: TorchKernel, inputs: Sequence[Any], threads: int | None, *others: torch.Tensor
    ) -> list[Any]:
        """The gradient of each input, None where it needs none."""
        found: list[Any] = [None] * len(inputs)
        results = self.called(kernel, inputs, threads, *others)
        if results is None:
            raise RuntimeError("attention has a kernel, but none of its derivative for other sizes of inputs")
        for i, result, order in zip(self.needed, results, self.inverses, strict=True):
            found[i] = permuted(as_torch(result), order)
        return found

    def following(self, program: ExportedProgram, example: Sequence[Any]) -> TorchKernel | str:
        derivative = self.derivative(program, example, self.needed, self.orders, any(self.dynamic))
        if not derivative.given:
            return NO_ATTENTION
        arguments = [*example, *derivative.examples()]
        traced = self.traced_as(derivative, arguments, derivative.given)
        return _kernel(traced, self.forward, derivative.statistics)


class KeepingKernels(_Following):
    """The kernels of `forward` that give what is kept of rows besides the result."""

    kind, told_of = "keeping", None

    def following(self, program: ExportedProgram, example: Sequence[Any]) -> TorchKernel | str:
        forward = Forward(program, example, any(self.dynamic))
        return _kernel(self.traced_as(forward, example), self.forward) if forward.is_one else NO_ATTENTION


class KeptDerivativeKernels(DerivativeKernels):
    """The kernels of the derivative that take all results of the forward."""

    kind, told_of = "derivative of what is kept", None
    derivative = DerivativeOfKept

    def kept(self, results: list[torch.Tensor]) -> list[torch.Tensor]:
        return results


def _kernel(
    program: TorchProgram, forward: AttentionKernels, statistics: Mapping[int, str] = MappingProxyType({})
) -> TorchKernel | str:
    """The kernel, or why it is left to torch; `statistics` are inputs: see `why_left`."""
    left = why_left(program, statistics)
    return left or TorchKernel.of_program(program, forward.target, forward.options)

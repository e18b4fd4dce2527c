"""A part of a graph that may be attention: run as a kernel, or by torch where it is none."""

from collections.abc import Sequence
from typing import Any

import torch

from ....dialects.diagnostic import DiagnosedError
from ... import counts
from ...api import Options
from ..torch.layouts import inverse, order_of, permuted
from ..torch.left import why_left
from ..torch.tracing import TorchKernel, TorchProgram, as_torch
from .calls import is_operand
from .kernel import Kernels, structure
from .work import flops

FLOPS_TO_SHARE = 2_000_000  # below it, some 20 µs, other threads are not worth waking


class AttentionCall(torch.nn.Module):
    """Runs `part` as a kernel, or as it is if it is no attention or fewer than `least` operations.

    `expected` tells the layout of each result; of several, `part` and this give a tuple.
    """

    def __init__(
        self,
        part: torch.fx.GraphModule,
        expected: Sequence[torch.Tensor],
        target: str,
        options: Options,
        least: float = 0,
    ):
        super().__init__()
        self.part, self.least, self.told = part, least, False
        self.kernels = AttentionKernels(part, [*map(order_of, expected)], target, options)
        self.inverses = [inverse(order) for order in self.kernels.orders]
        # Numbers, such as the position of a token, would need a kernel for each value, if they were no tensors.
        placeholders = part.graph.find_nodes(op="placeholder")
        self.numbers = [i for i, node in enumerate(placeholders) if is_operand(node)] if target == "cpu" else []
        self.flops = flops(part)

    def forward(self, *inputs: Any) -> Any:
        work = self.flops(inputs)
        if work == 0 and any(isinstance(v, torch.Tensor) and v.numel() == 0 for v in inputs):
            return self.part(*inputs)
        if work < self.least:
            if not self.told:
                counts.count_left(f"its {work} operations are fewer than min_flops, which is {self.least}")
                self.told = True
            return self.part(*inputs)
        arguments = inputs
        if self.numbers:
            arguments = tuple(torch.tensor(v) if i in self.numbers else v for i, v in enumerate(inputs))
        results = self.attended(arguments, 1 if work < FLOPS_TO_SHARE else None)
        if results is None:
            return self.part(*inputs)
        found = tuple(map(permuted, results, self.inverses))
        return found[0] if len(found) == 1 else found

    def attended(self, inputs: Sequence[Any], threads: int | None) -> Sequence[torch.Tensor] | None:
        """The kernel's results, their dimensions as they lie in memory; None if torch is to compute them."""
        results = self.kernels.run(inputs, threads)
        return None if results is None else [*map(as_torch, results)]


class AttentionKernels(Kernels):
    """The kernels of `part`, whose results lie in memory in the `orders` of dimensions that torch's would."""

    def __init__(self, part: torch.fx.GraphModule, orders: Sequence[tuple[int, ...]], target: str, options: Options):
        self.part, self.orders, self.target, self.options = part, orders, target, options
        values = [node.meta.get("example_value") for node in part.graph.find_nodes(op="placeholder")]
        super().__init__(values, (structure(part), *orders, target, repr(options)))
        self._traced: dict[Any, TorchProgram | str] = {}

    def compiled(self, inputs: Sequence[Any]) -> TorchKernel | str:
        program = self.traced(inputs)
        return program if isinstance(program, str) else TorchKernel.of_program(program, self.target, self.options)

    def traced(self, inputs: Sequence[Any]) -> TorchProgram | str:
        """What the kernel for such inputs is of, with attention raised, or why there is none."""
        key = self.key(inputs)
        if key not in self._traced:
            example = [v.detach() if isinstance(v, torch.Tensor) else v for v in inputs]
            with torch.no_grad():
                program = self.traced_as(_Reordered(self.part, self.orders), example)
            self._traced[key] = why_left(program) or program
        return self._traced[key]

    def followed(self, inputs: Sequence[Any]) -> TorchProgram | str:
        """The same for what follows from it, with sizes fixed as where a kernel is made."""
        if self.first is not None:
            self._open_sizes(inputs)
        try:
            return self.traced(inputs)
        except DiagnosedError:
            if not any(self.dynamic):
                raise
            self._fix_sizes(inputs)
            return self.traced(inputs)


class _Reordered(torch.nn.Module):
    """`part` with its results in memory as torch would have them: dimension 0 is the one with the largest stride."""

    def __init__(self, part: torch.fx.GraphModule, orders: Sequence[tuple[int, ...]]):
        super().__init__()
        self.part, self.orders = part, orders

    def forward(self, *inputs: Any) -> Any:
        results = self.part(*inputs)
        if not isinstance(results, tuple):
            return results.permute(self.orders[0]).contiguous()
        return tuple(x.permute(order).contiguous() for x, order in zip(results, self.orders, strict=True))

"""A part of a graph that may be attention: compiled at the first call with each kind of arguments."""

import collections
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch._dynamo.convert_frame import compile_lock
from torch.export import Dim

from ....dialects.diagnostic import DiagnosedError
from ....dialects.mlir import ir
from ....transforms.attention import find_attention
from ....transforms.passes import Report, listening
from ....transforms.raise_attention import RaiseAttention
from ....transforms.raising.softmax import SINGLE_KEY
from ... import counts
from ...api import CompileError, Options
from ...diagnostics import user_error
from ..torch.tracing import TorchKernel, as_torch, trace
from .calls import is_operand
from .work import flops

MAX_KERNELS = 256  # kept over all graphs; beyond it the one that was not used for longest is compiled anew

NO_ATTENTION = "no plain softmax was found between its matmuls"
FLOPS_TO_SHARE = 2_000_000  # below it, some 20 µs, other threads are not worth waking

_kernels: "collections.OrderedDict[Any, TorchKernel | str]" = collections.OrderedDict()
_warned: set[str] = set()  # the reasons that were told
_held: list[Any] = []  # keeps alive what keys name by identity


def count_left(reason: str) -> None:
    """Counts what looked like attention and stays with torch, and warns of it, once for each reason; not of what is
    none."""
    counts.count_left(reason)
    if reason not in _warned and reason != NO_ATTENTION and SINGLE_KEY not in reason:
        _warned.add(reason)
        warnings.warn(f"attn_opt: attention is left to torch: {reason}", stacklevel=2)


class AttentionCall(torch.nn.Module):
    """Runs `part` as a kernel, or as it is if it is no attention or fewer than `least` operations.

    `expected` tells the output's layout.
    """

    def __init__(
        self, part: torch.fx.GraphModule, expected: torch.Tensor, target: str, options: Options, least: float = 0
    ):
        super().__init__()
        self.part, self.target, self.options = part, target, options
        self.order = _order(expected)
        self.inverse = _inverse(self.order)
        self.structure = (structure(part), self.order, target, repr(options))
        # Sizes that dynamo has made symbols get one kernel for all their values.
        placeholders = part.graph.find_nodes(op="placeholder")
        self.values = [node.meta.get("example_value") for node in placeholders]
        # Other numbers, such as the position of a token, would need one for each value, if they were no tensors.
        self.numbers = [i for i, node in enumerate(placeholders) if is_operand(node)] if target == "cpu" else []
        self.symbols = [_dynamic_dims(value) for value in self.values]
        self.dynamic = self.symbols  # those that kernels are compiled for any value of
        self.first: list[Any] | None = None  # the inputs' shapes when the symbols turned out to have no lowering
        self.flops, self.least, self.told = flops(part), least, False
        self._seen: dict[Any, TorchKernel | None] = {}

    def forward(self, *inputs: Any) -> torch.Tensor:
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
        kernel = self.kernel(arguments)
        if kernel is None:
            return self.part(*inputs)
        try:
            arrays = kernel.bind(kernel.program.arguments(arguments))
            (result,) = kernel.run(arrays, 1 if work < FLOPS_TO_SHARE else None)
        except DiagnosedError as error:
            if not any(self.dynamic):
                raise CompileError(error.diagnostics) from None
            # Sizes that were equal at the first call, and were taken to be so always.
            with compile_lock:
                self._fix_sizes(arguments)
            return self.forward(*inputs)
        return as_torch(result).permute(self.inverse)

    def kernel(self, inputs: Sequence[Any]) -> TorchKernel | None:
        """The kernel for such inputs; None if they stay with torch."""
        own = tuple(map(_key, inputs, self.dynamic))
        if own not in self._seen:
            with compile_lock:  # dynamo's own: tracing replaces functions of torch, for all threads
                if self.first is not None:
                    self._open_sizes(inputs)
                own = tuple(map(_key, inputs, self.dynamic))
                if own not in self._seen:
                    found = self._shared(own, inputs)
                    if isinstance(found, str):
                        count_left(found)
                    self._seen[own] = None if isinstance(found, str) else found
        return self._seen[own]

    def _shared(self, own: Any, inputs: Sequence[Any]) -> TorchKernel | str | None:
        """The kernel for such inputs that any graph with this structure may have made already, or why there is none."""
        key = (self.structure, _autocast(), own)
        if key in _kernels:
            _kernels.move_to_end(key)
            if not isinstance(_kernels[key], str):
                counts.count("cache_hits")
            return _kernels[key]
        found: TorchKernel | str
        try:
            found = self._compiled(inputs)
        except DiagnosedError as error:
            if any(self.dynamic):
                self._fix_sizes(inputs)
                return self.kernel(inputs)
            found = error.diagnostics[0].message
        _kernels[key] = found
        if len(_kernels) > MAX_KERNELS:
            _kernels.popitem(last=False)
        return found

    def _fix_sizes(self, inputs: Sequence[Any]) -> None:
        """Symbols turned out to have no lowering: such as head sizes on a GPU, where torch was told that all sizes are
        dynamic. From here on those are open that are seen to change; if that fails too, every shape has a kernel."""
        if self.first is not None:
            self.symbols = [frozenset() for _ in self.values]
        self.first = [_shape(value) for value in inputs]
        self.dynamic = [frozenset() for _ in self.values]

    def _open_sizes(self, inputs: Sequence[Any]) -> None:
        """Opens the sizes that are not those of the first inputs."""
        assert self.first is not None
        for i, (value, first, symbols) in enumerate(zip(inputs, self.first, self.symbols, strict=True)):
            changed = {d for d in symbols if value.shape[d] != first[d]}
            if not changed <= self.dynamic[i]:
                self.dynamic[i] |= changed

    def _compiled(self, inputs: Sequence[Any]) -> TorchKernel | str:
        """A kernel for such inputs, or why there is no attention; DiagnosedError if there is no way."""
        module = _Reordered(self.part, self.order)
        example = tuple(v.detach() if isinstance(v, torch.Tensor) else v for v in inputs)
        shapes: Any = None
        if any(self.dynamic):
            shapes = (tuple(dict.fromkeys(dims, Dim.AUTO) or None for dims in self.dynamic),)
        with torch.no_grad():
            program = trace(module, example, dynamic_shapes=shapes)
        for argument, value in zip(program.lowered.arguments, program.argument_types(), strict=True):
            if isinstance(argument, int) and any((value.shape or ())[d] is not None for d in self.dynamic[argument]):
                raise user_error("torch.export knows a single size for what should be any")
        left = _why_left(program.module)
        if left:
            return left
        return TorchKernel.of_program(program, self.target, self.options)


def _why_left(module: ir.Module) -> str:
    """Why there is no attention in `module`, "" if there is; attention is raised there."""
    reasons: list[str] = []

    def listen(report: Report) -> None:
        reasons.extend(report.message.removeprefix(p) for p in counts.LEFT if report.message.startswith(p))

    with module.context, module.operation.location, listening(listen):
        RaiseAttention().run(module.operation)
    if find_attention(module.operation):
        return ""
    return "; ".join(dict.fromkeys(reasons)) or NO_ATTENTION


class _Reordered(torch.nn.Module):
    """`part` with its result in memory as torch would have it: dimension 0 is the one with the largest stride."""

    def __init__(self, part: torch.fx.GraphModule, order: tuple[int, ...]):
        super().__init__()
        self.part, self.order = part, order

    def forward(self, *inputs: Any) -> torch.Tensor:
        return self.part(*inputs).permute(self.order).contiguous()


def _autocast() -> tuple[torch.dtype | None, ...]:
    """The types that torch casts operands of matmuls to, where this is called: casts that tracing writes down."""
    return tuple(torch.get_autocast_dtype(d) if torch.is_autocast_enabled(d) else None for d in ("cpu", "cuda"))


def _shape(value: Any) -> Any:
    return value.shape if isinstance(value, torch.Tensor) else ()


def _dynamic_dims(value: Any) -> frozenset[int]:
    """The dimensions whose sizes are symbols. A symbol that turned out to be a number while dynamo went on is none:
    some tensors have the one, others the other, and sizes that are taken apart would not fit."""
    sizes = enumerate(_shape(value))
    return frozenset(d for d, size in sizes if not isinstance(size, int) and size.node.maybe_as_int() is None)


def _key(value: Any, dynamic: frozenset[int]) -> Any:
    """What a kernel for this input depends on."""
    if not isinstance(value, torch.Tensor):
        return value
    if not dynamic:
        return value.dtype, value.shape
    return value.dtype, tuple(None if d in dynamic else s for d, s in enumerate(value.shape))


def _order(tensor: torch.Tensor) -> tuple[int, ...]:
    """Its dimensions from the largest stride to the smallest."""
    strides = [s if isinstance(s, int) else getattr(s.node, "hint", None) or 0 for s in tensor.stride()]
    return tuple(sorted(range(tensor.dim()), key=lambda d: (-strides[d], d)))


def _inverse(order: Sequence[int]) -> list[int]:
    return [list(order).index(d) for d in range(len(order))]


def structure(part: torch.fx.GraphModule) -> Any:
    """What `part` computes, names aside: equal for the layers of a model that have one attention."""
    numbers = {node: i for i, node in enumerate(part.graph.nodes)}

    def described(value: Any) -> Any:
        if isinstance(value, torch.fx.Node):
            return "node", numbers[value]
        if isinstance(value, list | tuple):
            return tuple(described(v) for v in value)
        if isinstance(value, dict):
            return tuple((k, described(v)) for k, v in sorted(value.items()))
        if isinstance(value, slice):
            return "slice", described((value.start, value.stop, value.step))
        return type(value).__name__, repr(value)

    found = []
    for node in part.graph.nodes:
        target: Any = node.target if node.op == "call_method" else ""
        if node.op == "call_function":
            target = f"{getattr(node.target, '__module__', '')}.{getattr(node.target, '__name__', node.target)}"
        elif node.op == "get_attr":
            held = _attribute(part, str(node.target))
            if isinstance(held, torch.fx.GraphModule):
                target = structure(held)
            else:
                _held.append(held)
                target = id(held)
        found.append((node.op, target, described(node.args), described(node.kwargs)))
    return tuple(found)


def _attribute(module: torch.nn.Module, path: str) -> Any:
    for name in path.split("."):
        module = getattr(module, name)
    return module

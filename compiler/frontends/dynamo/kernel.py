"""The kernels of parts of graphs: compiled at the first call with each kind of inputs, and shared by equal parts."""

import collections
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch._dynamo.convert_frame import compile_lock

from ....dialects.diagnostic import DiagnosedError
from ....transforms.raising.softmax import SINGLE_KEY
from ... import counts
from ...api import CompileError
from ...diagnostics import Bug, report_bug
from ..torch.autocast import autocast
from ..torch.left import NO_ATTENTION
from ..torch.tracing import TorchKernel, TorchProgram, open_dims, trace_open

TARGETS = {"cpu": "cpu", "cuda": "nvidia"}  # by the type of a device
MAX_KERNELS = 256  # kept over all graphs; beyond it the one that was not used for longest is compiled anew

INTERNAL = "an internal error of attn_opt"

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


class Kernels:
    """The kernels of a computation, one for each kind of inputs, made at the first call with it.

    `values`: the inputs as dynamo knows them; `structure`: equal for all computations that are the same.
    """

    told_of: str | None = ""  # what comes before the reason where there is none; None: it is not told

    def __init__(self, values: Sequence[Any], structure: Any):
        self.values, self.structure = values, structure
        # Sizes that dynamo has made symbols get one kernel for all their values.
        self.symbols = [open_dims(value) for value in values]
        self.dynamic = self.symbols  # those that kernels are compiled for any value of
        self.first: list[Any] | None = None  # the inputs' shapes when the symbols turned out to have no lowering
        self._seen: dict[Any, TorchKernel | None] = {}

    def compiled(self, inputs: Sequence[Any]) -> TorchKernel | str:
        """A kernel for such inputs, or why there is to be none; DiagnosedError if there is no way."""
        raise NotImplementedError

    def run(self, inputs: Sequence[Any], threads: int | None, *others: torch.Tensor) -> list[Any] | None:
        """The kernel's results on the inputs, and on others whose kind these tell; None if there is no kernel."""
        kernel = self.of(inputs)
        return None if kernel is None else self.called(kernel, inputs, threads, *others)

    def called(
        self, kernel: TorchKernel, inputs: Sequence[Any], threads: int | None, *others: torch.Tensor
    ) -> list[Any] | None:
        """The same with the kernel `of` the inputs at hand."""
        try:
            return kernel.run(kernel.bind(kernel.program.arguments((*inputs, *others))), threads)
        except DiagnosedError as error:
            if not any(self.dynamic):
                raise CompileError(error.diagnostics) from None
            # Sizes that were equal at the first call, and were taken to be so always.
            with compile_lock:
                self._fix_sizes(inputs)
            return self.run(inputs, threads, *others)

    def of(self, inputs: Sequence[Any]) -> TorchKernel | None:
        """The kernel for such inputs; None if they stay with torch."""
        own = self.key(inputs)
        if own not in self._seen:
            with compile_lock:  # dynamo's own: tracing replaces functions of torch, for all threads
                if self.first is not None:
                    self._open_sizes(inputs)
                own = self.key(inputs)
                if own not in self._seen:
                    found = self._shared(own, inputs)
                    if isinstance(found, str) and self.told_of is not None:
                        count_left(self.told_of + found)
                    self._seen[own] = None if isinstance(found, str) else found
        return self._seen[own]

    def key(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """What a kernel for such inputs depends on."""
        return tuple(map(_key, inputs, self.dynamic))

    def _shared(self, own: Any, inputs: Sequence[Any]) -> TorchKernel | str | None:
        """The kernel for such inputs that any graph with this structure may have made already, or why there is none."""
        key = (self.structure, autocast(), own)
        if key in _kernels:
            _kernels.move_to_end(key)
            if not isinstance(_kernels[key], str):
                counts.count("cache_hits")
            return _kernels[key]
        found: TorchKernel | str
        try:
            found = self.compiled(inputs)
        except DiagnosedError as error:
            if any(self.dynamic):
                self._fix_sizes(inputs)
                return self.of(inputs)
            found = error.diagnostics[0].message
        except Bug as bug:  # torch can do without us
            report_bug(bug, "attn_opt")
            found = f"{INTERNAL}: {bug.what}"
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

    def traced_as(
        self, module: torch.nn.Module, example: Sequence[Any], others: Sequence[torch.Tensor] = ()
    ) -> TorchProgram:
        """The program of `module` on inputs such as `example`, the last of which are like `others`, whose sizes are
        symbols where they are open. DiagnosedError if there is no way."""
        return trace_open(module, example, [*self.dynamic, *map(open_dims, others)])


def _shape(value: Any) -> Any:
    return value.shape if isinstance(value, torch.Tensor) else ()


def _key(value: Any, dynamic: frozenset[int]) -> Any:
    """What a kernel for this input depends on."""
    if not isinstance(value, torch.Tensor):
        return value
    if not dynamic:
        return value.dtype, value.shape
    return value.dtype, tuple(None if d in dynamic else s for d, s in enumerate(value.shape))


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

"""PyTorch: a function or module, traced by ``torch.export`` and compiled as a whole.

    kernel = compile(model, (q, k, v))                  # static shapes
    kernel = compile(model, (q, k, v), target="nvidia") # tensors, and the model's parameters, are on a GPU
    kernel = compile(fn, (x,), dynamic_shapes={"x": {0: torch.export.Dim("batch")}})
    out = kernel(q, k, v)                               # torch tensors in and out, without copies

What is called is inference: results carry no gradient. ``torch.compile(model, backend="attn_opt")`` is for training
(dynamo/gradients.py), and for models whose other ops have no lowering, which it leaves to torch.
"""

import contextlib
import dataclasses
import functools
import inspect
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind, TensorArgument

from ...api import Options, compile_module
from ...diagnostics import user_error
from ...runtime.signature import Slot, is_numpys
from ...runtime.transformed import is_transformed
from ...traced_kernel import TracedKernel, call_error
from ..lowering import first_line
from .arguments import SIGNLESS, Arguments
from .lowering import Lowered, functional, lower
from .masks import unread_masks
from .transforms import levels_kept


def trace(
    source: Callable | torch.nn.Module | ExportedProgram,
    example_args: Sequence[Any] | None,
    example_kwargs: dict[str, Any] | None = None,
    dynamic_shapes: Any = None,
) -> "TorchProgram":
    """The program that `source` is on such arguments, in linalg. A user's error where it cannot be traced."""
    if isinstance(source, ExportedProgram):
        return TorchProgram(source, lower(source))
    if example_args is None and example_kwargs is None:
        raise user_error("example_args are needed to trace a function of torch: a tuple of tensors as it takes")
    if isinstance(example_args, torch.Tensor):
        raise user_error("example_args must be a tuple of arguments, but is a tensor; write (tensor,)")
    module = source if isinstance(source, torch.nn.Module) else _Function(source)
    given = torch.utils._pytree.tree_leaves((example_args, example_kwargs))
    if any(isinstance(v, torch.Tensor) and is_transformed(v) for v in given):
        raise user_error(
            "an example argument is one that torch.func transforms (vmap, grad, …): it has no numbers of its own",
            "compile before, or what is transformed: compile(torch.vmap(fn), args)",
        )
    trained = module.parameters() if module.training else ()  # model.eval() says that it is for inference
    is_told = _warn_of_gradients((*given, *trained), stacklevel=6)
    args, kwargs = _distinct((tuple(example_args or ()), example_kwargs), module)
    try:
        program = _exported(module, args, kwargs, dynamic_shapes)
    except Exception as error:
        name = getattr(source, "__name__", type(source).__name__)
        raise user_error(
            f"torch.export cannot trace '{name}': {type(error).__name__}: {first_line(error)}",
            "torch.compile(…, backend='attn_opt') splits a function where it cannot be traced",
        ) from error
    return TorchProgram(program, lower(program), is_told)


def _warn_of_gradients(values: Sequence[Any], stacklevel: int) -> bool:
    """Whether one of `values` needs a gradient, which is then warned of: no result of a kernel has any."""
    found = torch.is_grad_enabled() and any(isinstance(v, torch.Tensor) and v.requires_grad for v in values)
    if found:
        message = "arguments or parameters need gradients, but results of kernels have none"
        way_out = (
            "torch.compile(…, backend='attn_opt') is for training; model.eval() says of parameters, and "
            "torch.no_grad() of all, that none is needed"
        )
        warnings.warn(f"attn_opt: {message}; {way_out}", stacklevel=stacklevel)
    return found


def _exported(module: torch.nn.Module, args: tuple, kwargs: dict | None, dynamic_shapes: Any) -> ExportedProgram:
    """The program of torch.export, which runs the code or, where that fails, as where torch.vmap moves a dimension of
    its results, lets dynamo read it; what the first one raises if both fail."""
    with torch.no_grad(), unread_masks():
        try:
            with levels_kept():
                return torch.export.export(module, args, kwargs, dynamic_shapes=dynamic_shapes)
        except Exception:
            with contextlib.suppress(Exception), levels_kept():
                return torch.export.export(module, args, kwargs, dynamic_shapes=dynamic_shapes, strict=True)
            raise


def _distinct(arguments: Any, module: torch.nn.Module) -> Any:
    """`arguments` with each tensor once: torch.export takes (x, x), or x and a parameter x, for one in all calls, and
    does not know x[0] where x comes later."""
    seen = {id(value) for value in (*module.parameters(), *module.buffers())}
    given = {id(value) for value in torch.utils._pytree.tree_leaves(arguments)}

    def other(value: torch.Tensor) -> torch.Tensor:
        if id(value) in seen or id(value._base) in given:
            value = value.detach()
        seen.add(id(value))
        return value

    return torch.utils._pytree.tree_map_only(torch.Tensor, other, arguments)


LEAVES = {torch.Tensor, torch.nn.Parameter, np.ndarray, int, float, bool}  # some of what has no structure

torch._dynamo.trace_rules.add("attn_opt.compiler")  # torch.compile calls kernels as they are, and traces around them


class TorchKernel(TracedKernel):
    """A traced function of torch. It uses as many threads as torch does, unless it is said otherwise."""

    @classmethod
    def of_program(cls, program: "TorchProgram", target: str, options: Options) -> "TorchKernel":
        options.check()
        places = {a: place for place, a in enumerate(program.lowered.arguments) if isinstance(a, int)}
        for number in options.donated():
            if number not in places:
                raise user_error(f"donate: there is no argument {number} that is a tensor, and read")
        donated = tuple(places[number] for number in options.donated())
        return cls(compile_module(program.module, target, dataclasses.replace(options, donate=donated)), program)

    def run(self, arrays: Sequence[Any], threads: int | None = None) -> list[Any]:
        """The results on arrays that `bind` gave; on a GPU `threads` means nothing."""
        if self.target == "nvidia":
            results = super().run(arrays)
        else:
            results = self.invoke(arrays, self._threads or threads or torch.get_num_threads())
        program: Any = self.program
        for number, dtype in program.unsigned:
            own = results[number]
            results[number] = own.view(dtype if isinstance(own, torch.Tensor) else f"u{own.itemsize}")
        return results


class _Function(torch.nn.Module):
    """A module around a function, with the function's own parameter names."""

    def __init__(self, function: Callable):
        super().__init__()
        try:
            inspect.signature(function)
        except ValueError:  # of functions that are not written in Python, such as scaled_dot_product_attention
            self.forward = lambda *args, **kwargs: function(*args, **kwargs)
            return
        self.forward = function
        # torch keeps the lines of functions named forward, and of those that it is told of.
        getattr(torch.fx.proxy, "_register_stack_trace_anchor", lambda _: None)(function)


class TorchProgram:
    """Binds arguments of the traced function to those of its lowered form, and results back."""

    def __init__(self, program: ExportedProgram, lowered: Lowered, is_told: bool = False):
        self.program, self.lowered = program, lowered
        self._is_told = is_told  # that kernels have no gradient
        self.module = lowered.module
        graph = lowered.program.graph_module.graph
        dtypes = [node.meta["val"].dtype for node in graph.find_nodes(op="placeholder")]
        self._arguments = Arguments(lowered.arguments, dtypes)
        types = [node.meta["val"].dtype for node in graph.output_node().args[0]]
        self.unsigned = [(i, dtype) for i, dtype in enumerate(types) if dtype in SIGNLESS]  # results that are
        call = program.call_spec  # made anew, with its types, each time that it is asked for
        self._inputs, self._outputs = call.in_spec, call.out_spec
        # Of a function of tensors in a row that returns one: neither has a structure to look through at each call.
        row = tuple(range(self._inputs.num_leaves))
        self._is_row = torch.utils._pytree.tree_structure((row, {})) == self._inputs
        kinds = [(s.kind, type(s.arg)) for s in lowered.program.graph_signature.output_specs]
        is_one = self._outputs.is_leaf() and kinds == [(OutputKind.USER_OUTPUT, TensorArgument)]
        self._only = lowered.results[0] if is_one else None
        given = torch.utils._pytree.tree_leaves(program.example_inputs or ())
        self._constants = [(i, value) for i, value in enumerate(given) if not isinstance(value, torch.Tensor)]
        self._fitting = {_shapes(given)} if program.range_constraints else None  # shapes that what was traced is for

    def argument_types(self) -> list[Slot]:
        """The types of the lowered function's arguments."""
        function = self.module.body.operations[0]
        return [Slot.of(kind) for kind in function.type.inputs]

    def flat(self, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
        """The call's arguments in a flat list; a user's error where they do not fit what was traced."""
        expected = spec = self._inputs
        if self._is_row and not kwargs and len(args) == expected.num_leaves and LEAVES.issuperset(map(type, args)):
            flat = list(args)
        else:
            flat, spec = torch.utils._pytree.tree_flatten((tuple(args), kwargs))
        if not self._is_told:
            self._is_told = _warn_of_gradients(flat, stacklevel=4)
        if spec != expected:
            traced = torch.utils._pytree.tree_unflatten(range(expected.num_leaves), expected)
            raise call_error(traced, (args, kwargs), f"{expected}, but called with {spec}")
        for i, value in self._constants:
            if type(flat[i]) is not type(value) or flat[i] != value:
                raise user_error(
                    f"argument {i} was {value!r} when the function was traced, and is {_described(flat[i])} now",
                    "what is no tensor is a constant of the kernel: compile another for it, or pass it as a tensor",
                )
        if self._fitting is not None and (shapes := _shapes(flat)) not in self._fitting:
            self._check_sizes(flat)
            self._fitting.add(shapes)
        return flat

    def _check_sizes(self, flat: Sequence[Any]) -> None:
        """A user's error for sizes that torch.export would refuse: they are not declared so, or lead elsewhere in the
        function."""
        given = [torch.empty(v.shape, device="meta") if hasattr(v, "shape") else v for v in flat]
        try:
            self._guards(*given)
        except AssertionError as error:
            raise user_error(
                f"the function was traced for sizes with {str(error).removeprefix('Guard failed: ')}",
                "trace it with other example_args for these, or with dynamic_shapes that include them",
            ) from None

    @functools.cached_property
    def functional(self) -> ExportedProgram:
        """What was traced in a form that can be differentiated. Casts are those of the autocast that it is first asked
        for under."""
        return functional(self.program)

    @functools.cached_property
    def _guards(self) -> Callable:
        return getattr(self.program.module(), "_guards_fn", lambda *args: None)

    def arguments(self, flat: Sequence[Any]) -> list[Any]:
        """The kernel's arguments, parameters and constants among them; tensors of the CPU as arrays on their memory."""
        return self._arguments.of_call(flat)

    def results(self, arrays: Sequence[np.ndarray], flat_inputs: Sequence[Any]) -> Any:
        """What the function returns, from the kernel's results; inputs and buffers that it writes are written."""
        if self._only is not None:
            return as_torch(arrays[self._only])
        signature = self.lowered.program.graph_signature
        outputs = [None if n is None else as_torch(arrays[n]) for n in self.lowered.results]
        returned = []
        for value, spec in zip(outputs, signature.output_specs, strict=True):
            if spec.kind == OutputKind.USER_OUTPUT:
                if value is not None and not isinstance(spec.arg, TensorArgument):
                    value = value.item()  # a number that the sizes tell
                returned.append(getattr(spec.arg, "value", None) if value is None else value)
            elif spec.kind == OutputKind.BUFFER_MUTATION:
                _write(self.lowered.program.state_dict[spec.target], value)
            elif spec.kind == OutputKind.USER_INPUT_MUTATION:
                _write(flat_inputs[list(signature.user_inputs).index(spec.target)], value)
            else:
                raise user_error(f"the function has an output of kind {spec.kind.name}, which is not supported")
        return torch.utils._pytree.tree_unflatten(returned, self._outputs)


def _write(target: Any, value: Any) -> None:
    """What an input or a buffer is to be; one that is donated may be so already."""
    if target.data_ptr() != value.data_ptr() or target.stride() != value.stride():
        target.copy_(value)


def _shapes(values: Sequence[Any]) -> tuple:
    return tuple(getattr(value, "shape", None) for value in values)


def _described(value: Any) -> str:
    return "a tensor" if isinstance(value, torch.Tensor) else repr(value)


def as_torch(array: np.ndarray | torch.Tensor) -> torch.Tensor:
    """A tensor on the array's memory; what a kernel on a GPU gave is one."""
    if isinstance(array, torch.Tensor):
        return array
    if not is_numpys(array.dtype):  # ml_dtypes has torch's names
        return torch.from_numpy(array.view(f"u{array.itemsize}")).view(getattr(torch, array.dtype.name))
    return torch.from_numpy(array)

"""PyTorch: a function or module, traced by ``torch.export`` and compiled as a whole.

    kernel = compile(model, (q, k, v))                  # static shapes
    kernel = compile(model, (q, k, v), target="nvidia") # tensors, and the model's parameters, are on a GPU
    kernel = compile(fn, (x,), dynamic_shapes={"x": {0: torch.export.Dim("batch")}})
    out = kernel(q, k, v)                               # torch tensors in and out, without copies

Gradients go back through results (gradients.py). ``torch.compile(model, backend="attn_opt")`` is for models whose other
ops have no lowering, which it leaves to torch.
"""

import contextlib
import dataclasses
import functools
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch.export import Dim, ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind, TensorArgument

from ...api import Kernel, Options, compile_module
from ...diagnostics import user_error
from ...runtime.signature import Slot, is_numpys
from ...runtime.transformed import is_transformed
from ...traced_kernel import TracedKernel, call_error, is_of_numpy
from ..lowering import first_line
from .arguments import SIGNLESS, Arguments
from .autocast import autocast, autocasting
from .derivatives import OfGraph
from .functions import Function
from .lazy_code import code_when_run
from .lowering import functional, lower
from .masks import unread_masks
from .seeds import draw, with_seeds
from .transforms import levels_kept


def trace(
    source: Callable | torch.nn.Module | ExportedProgram,
    example_args: Sequence[Any] | None,
    example_kwargs: dict[str, Any] | None = None,
    dynamic_shapes: Any = None,
) -> "TorchProgram":
    """The program that `source` is on such arguments, in linalg. A user's error where it cannot be traced."""
    if isinstance(source, ExportedProgram):
        return TorchProgram(source)
    if example_args is None and example_kwargs is None:
        raise user_error("example_args are needed to trace a function of torch: a tuple of tensors as it takes")
    if isinstance(example_args, torch.Tensor):
        raise user_error("example_args must be a tuple of arguments, but is a tensor; write (tensor,)")
    module = source if isinstance(source, torch.nn.Module) else Function(source)
    given = torch.utils._pytree.tree_leaves((example_args, example_kwargs))
    if any(isinstance(v, torch.Tensor) and is_transformed(v) for v in given):
        raise user_error(
            "an example argument is one that torch.func transforms (vmap, grad, …): it has no numbers of its own",
            "compile before, or what is transformed: compile(torch.vmap(fn), args)",
        )
    args, kwargs = _distinct((tuple(example_args or ()), example_kwargs), module)
    try:
        program = _exported(module, args, kwargs, dynamic_shapes)
    except Exception as error:
        name = getattr(source, "__name__", type(source).__name__)
        raise user_error(
            f"torch.export cannot trace '{name}': {type(error).__name__}: {first_line(error)}",
            "torch.compile(…, backend='attn_opt') splits a function where it cannot be traced",
        ) from error
    return TorchProgram(program, module.parameters_among(program.constants) if isinstance(module, Function) else {})


def trace_open(module: torch.nn.Module, example: Sequence[Any], dims: Sequence[Collection[int]]) -> "TorchProgram":
    """The program of `module`, which takes any arguments, on inputs such as `example`, whose dimensions `dims` may have
    any size. DiagnosedError if there is no way."""
    if isinstance(module, OfGraph) and not any(dims):
        program = TorchProgram(module.exported(example))
    else:
        shapes = (tuple(dict.fromkeys(d, Dim.AUTO) or None for d in dims),) if any(dims) else None
        program = trace(module, tuple(example), dynamic_shapes=shapes)
    if program.seeds:
        raise user_error("a dropout is active that has no seed")
    for argument, value in zip(program.lowered.arguments, program.argument_types(), strict=True):
        if isinstance(argument, int) and any((value.shape or ())[d] is not None for d in dims[argument]):
            raise user_error("torch.export knows a single size for what should be any")
    return program


def open_dims(value: Any) -> frozenset[int]:
    """The dimensions of a tensor whose sizes are symbols. A symbol that turned out to be a number while dynamo went on
    is none: some tensors have the one, others the other, and sizes that are taken apart would not fit."""
    sizes = enumerate(value.shape if isinstance(value, torch.Tensor) else ())
    return frozenset(d for d, size in sizes if not isinstance(size, int) and size.node.maybe_as_int() is None)


def _exported(module: torch.nn.Module, args: tuple, kwargs: dict | None, dynamic_shapes: Any) -> ExportedProgram:
    """The program of torch.export, which runs the code or, where that fails, as where torch.vmap moves a dimension of
    its results, lets dynamo read it; what the first one raises if both fail."""
    with torch.no_grad(), unread_masks():
        try:
            with levels_kept(), code_when_run():
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

    program: "TorchProgram"

    def __init__(self, kernel: Kernel, program: "TorchProgram", options: Options):
        super().__init__(kernel, program)
        self.options = options

    @classmethod
    def of_program(cls, program: "TorchProgram", target: str, options: Options) -> "TorchKernel":
        options.check()
        places = {a: place for place, a in enumerate(program.lowered.arguments) if isinstance(a, int)}
        for number in options.donated():
            if number not in places:
                raise user_error(f"donate: there is no argument {number} that is a tensor, and read")
        donated = tuple(places[number] for number in options.donated())
        chosen = dataclasses.replace(options, donate=donated)
        return cls(compile_module(program.module, target, chosen), program, options)

    def called(self, flat: Sequence[Any]) -> Any:
        needed = self.program.needing(flat) if torch.is_grad_enabled() else ()
        if needed and self.gradients is not None:
            return self.program.results(self.gradients.results(flat, needed), flat)
        return super().called(flat)

    @functools.cached_property
    def gradients(self) -> Any:
        """What gradients go back through; None if they do not."""
        from .gradients import Gradients

        source = None
        if self.options.donate or self.program.writes_to_inputs():
            source = "a kernel that writes to its arguments"
        elif self.program.program.example_inputs is None:  # which derivatives are traced with
            source = "a program without example inputs"
        if source is None:
            return Gradients(self)
        message = f"gradients are needed, but results of {source} have none; torch.no_grad() says that none is"
        warnings.warn(f"attn_opt: {message}", stacklevel=5)
        return None

    def tensors(self, values: Sequence[Any]) -> list[torch.Tensor]:
        """The kernel's own results for such arguments of the program."""
        return [*map(as_torch, self.run(self.bind(self.program.arguments(values))))]

    def run(self, arrays: Sequence[Any], threads: int | None = None) -> list[Any]:
        """The results on arrays that `bind` gave; on a GPU `threads` means nothing."""
        if self.target == "nvidia":
            results = super().run(arrays)
        else:
            results = self.invoke(arrays, self._threads or threads or torch.get_num_threads())
        for number, dtype in self.program.unsigned:
            own = results[number]
            results[number] = own.view(dtype if isinstance(own, torch.Tensor) else f"u{own.itemsize}")
        return results


class TorchProgram:
    """Binds arguments of the traced function to those of its lowered form, and results back."""

    def __init__(self, program: ExportedProgram, known: Mapping[str, torch.nn.Parameter] = MappingProxyType({})):
        """`known`: parameters that are constants of the program, by their names there."""
        self.traced, self._casts = program, autocast()
        self.program, self.seeds = with_seeds(program)
        self.lowered = lowered = lower(self.program)
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
        specs = program.graph_signature.input_specs
        held = {**program.state_dict, **program.constants, **known}
        learned = (InputKind.PARAMETER, InputKind.CONSTANT_TENSOR)
        named = {spec.target: held[spec.target] for spec in specs if spec.kind in learned}
        self.parameters = {name: value for name, value in named.items() if isinstance(value, torch.Tensor)}
        # Of the program's outputs, those that are results of the kernel.
        self.returned = [i for i, number in enumerate(lowered.results) if number is not None]

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
        if self.seeds:
            flat.append(self._drawn(flat))
        return flat

    def _drawn(self, flat: Sequence[Any]) -> Any:
        """The seeds of a call's dropouts, where its arguments are."""
        device = next((value.device for value in flat if isinstance(value, torch.Tensor)), "cpu")
        seeds = draw(self.seeds, device)
        return seeds.numpy() if is_of_numpy(flat) else seeds

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
        """What was traced in a form that can be differentiated."""
        with autocasting(self._casts):
            return functional(self.program)

    @functools.cached_property
    def _guards(self) -> Callable:
        return getattr(self.traced.module(), "_guards_fn", lambda *args: None)

    def needing(self, flat: Sequence[Any]) -> tuple[int | str, ...]:
        """What torch's autograd needs gradients of in a call: arguments by their numbers, parameters by their names."""
        needed: list[int | str] = [i for i, v in enumerate(flat) if isinstance(v, torch.Tensor) and v.requires_grad]
        if self.parameters and not is_of_numpy(flat):
            needed += [name for name, value in self.parameters.items() if value.requires_grad]
        # What torch.func differentiates, kernels do not take.
        return tuple(needed) if torch._C._functorch.peek_interpreter_stack() is None else ()

    def values(self, flat: Sequence[Any], needed: Sequence[int | str]) -> list[torch.Tensor]:
        return [self.parameters[one] if isinstance(one, str) else flat[one] for one in needed]

    @functools.cached_property
    def held(self) -> list[torch.Tensor]:
        """What the program holds, and reads."""
        placeholders = self.lowered.program.graph.find_nodes(op="placeholder")
        pairs = zip(self.lowered.arguments, placeholders, strict=True)
        return [value for value, node in pairs if isinstance(value, torch.Tensor) and node.users]

    def writes_to_inputs(self) -> bool:
        specs = self.lowered.program.graph_signature.output_specs
        return any(spec.kind == OutputKind.USER_INPUT_MUTATION for spec in specs)

    def example(self) -> tuple[list[Any], list[frozenset[int]]]:
        """The arguments that the program was traced on, and the dimensions of each whose sizes are any."""
        given = torch.utils._pytree.tree_leaves(self.program.example_inputs)
        placeholders = self.program.graph.find_nodes(op="placeholder")
        return given, [open_dims(node.meta.get("val")) for node in placeholders[len(placeholders) - len(given) :]]

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

"""JAX: a function, traced by ``jax.jit`` and compiled as a whole, by way of StableHLO.

    kernel = compile(fn, (q, k, v))          # arguments as fn takes them: arrays, or pytrees of arrays
    out = kernel(q, k, v)                    # numpy arrays, or jax arrays where it is called with some

Example arguments may be jax or numpy arrays or ``jax.ShapeDtypeStruct``; their values do not matter, their shapes are
fixed. Arrays that the function closes over (weights) are passed to the kernel at every call, without copies. What is
no array, such as a string, is a constant of the kernel; so are numbers where the function, or a ``jax.jit`` with static
arguments, asks for their values.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from ....dialects.diagnostic import DiagnosedError
from ....dialects.mlir import ir
from ...api import Kernel, Options, compile_module
from ...diagnostics import user_error
from ...runtime.signature import refuse_traced, signless
from ...traced_kernel import TracedKernel, call_error
from ..constants import pattern
from ..lowering import first_line
from . import random as jax_random
from .calls import compile_errors, inlining
from .complex import Pair, is_complex, joined, parted, real_type, stacked, unstacked
from .gradients import derivative
from .loops import evaluate
from .lowering import lower
from .places import refuse

HOISTED = 256  # elements: smaller constants stay in the graph, where they are folded


def trace(
    source: Callable, example_args: Sequence[Any] | None, example_kwargs: dict[str, Any] | None = None
) -> "JaxProgram":
    """The program that `source` is on such arguments, in linalg. A user's error where it cannot be traced."""
    if example_args is None and example_kwargs is None:
        raise user_error("example_args are needed to trace a function of JAX: a tuple of arrays as it takes")
    args, kwargs = example_args if example_args is not None else (), example_kwargs or {}
    if not isinstance(args, tuple | list):
        raise user_error(f"example_args must be a tuple of arguments, but is a {type(args).__name__}; write (x,)")
    name = getattr(source, "__name__", type(source).__name__)
    leaves, structure = jax.tree.flatten((tuple(args), kwargs))
    keys, returned = jax_random.implementations(leaves), dict[int, Any]()
    if keys:
        source = jax_random.of_data(source, keys, returned)
        leaves = list(map(jax_random.data, leaves))
        args, kwargs = jax.tree.unflatten(structure, leaves)
    fixed = {i: leaf for i, leaf in enumerate(leaves) if not _is_array(leaf)}
    numbers = {i: leaf for i, leaf in enumerate(leaves) if type(leaf) in (bool, int, float, complex)}
    failures = []
    for constants in [fixed, fixed | numbers] if numbers else [fixed]:
        try:
            program = _traced(source, (tuple(args), kwargs), name, constants)
            return dataclasses.replace(program, keys=keys, key_results=returned)
        except DiagnosedError:
            raise
        except Exception as error:
            failures.append(error)
    raise user_error(
        f"JAX cannot trace '{name}': {type(failures[0]).__name__}: {first_line(failures[0])}",
        "example_args must be what the function takes, and the function one that jax.jit takes",
    ) from failures[0]


def _traced(source: Callable, example: tuple[tuple, dict], name: str, fixed: dict[int, Any]) -> "JaxProgram":
    """See `trace`; those leaves of the example arguments that are `fixed` are constants."""
    leaves, structure = jax.tree.flatten(example)

    def of_arrays(*arrays: Any) -> Any:
        rest = iter(arrays)
        args, kwargs = jax.tree.unflatten(
            structure, [fixed[i] if i in fixed else next(rest) for i in range(len(leaves))]
        )
        return source(*args, **kwargs)

    with inlining():
        if fixed:
            arrays = [leaf for i, leaf in enumerate(leaves) if i not in fixed]
            closed, shapes = jax.make_jaxpr(of_arrays, return_shape=True)(*arrays)
        else:  # JAX's errors tell of the function itself
            args, kwargs = example
            closed, shapes = jax.make_jaxpr(source, return_shape=True)(*args, **kwargs)
    hoisted = [i for i, c in enumerate(closed.consts) if np.size(c) > HOISTED and pattern(np.asarray(c)) is None]

    jaxpr = closed.jaxpr
    refuse(jaxpr)

    def flat(large: Sequence[Any], inputs: Sequence[Any]) -> Any:
        consts = list(closed.consts)
        for i, value in zip(hoisted, large, strict=True):
            consts[i] = value
        results = evaluate(jaxpr, *map(_taken, (consts, inputs), (jaxpr.constvars, jaxpr.invars)))
        return [stacked(x, v.aval) if isinstance(x, Pair) else x for x, v in zip(results, jaxpr.outvars, strict=True)]

    large = [_joined(_as_numpy(closed.consts[i])) for i in hoisted]
    avals = [jax.ShapeDtypeStruct((*v.aval.shape, *[2] * is_complex(v)), real_type(v.aval.dtype)) for v in jaxpr.invars]
    module = lower(jax.jit(flat, keep_unused=True).trace(large, avals), name)
    out_leaves, out_structure = jax.tree.flatten(shapes)
    dtypes = [np.dtype(leaf.dtype) for leaf in out_leaves]
    inputs = [np.dtype(v.aval.dtype) for v in jaxpr.invars]
    return JaxProgram(module, structure, fixed, inputs, large, out_structure, dtypes, source)


def exported_call(
    exported: Any, example_args: Sequence[Any] | None, tracing: dict[str, Any]
) -> tuple[Callable, Sequence[Any], dict[str, Any]]:
    """What jax.export gave as a function, with arguments to trace it on: by default those that it was exported for."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return exported.call(*args, **kwargs)

    call.__name__ = exported.fun_name
    if example_args is None:
        types = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in exported.in_avals]
        example_args, kwargs = jax.tree.unflatten(exported.in_tree, types)
        tracing = tracing | {"example_kwargs": kwargs}
    return call, example_args, tracing


@dataclasses.dataclass
class JaxProgram:
    """Binds arguments of the traced function to those of its lowered form, and results back.

    The lowered function takes `constants`, then the leaves of the arguments but the `fixed` ones; dtypes are `inputs`.
    Those leaves that are `keys` of jax.random, and results that are, are the numbers of these; `source` is the function
    of them.
    """

    module: ir.Module
    structure: Any
    fixed: dict[int, Any]
    inputs: list[np.dtype]
    constants: list[np.ndarray]
    out_structure: Any
    outputs: list[np.dtype]
    source: Callable
    keys: dict[int, Any] = dataclasses.field(default_factory=dict)
    key_results: dict[int, Any] = dataclasses.field(default_factory=dict)

    def flat(self, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
        """The call's arguments in a flat list; a user's error where they do not fit what was traced."""
        leaves, structure = jax.tree.flatten((tuple(args), kwargs))
        if structure != self.structure:
            traced = jax.tree.unflatten(self.structure, range(self.structure.num_leaves))
            raise call_error(traced, (args, kwargs), f"{self.structure}, but called with {structure}")
        for i, implementation in self.keys.items():
            if jax_random.is_key(leaves[i]) and jax_random.implementation(leaves[i]) != implementation:
                raise user_error(f"argument {i} must be a key of {implementation}, as the one it was traced with")
            leaves[i] = jax_random.data(leaves[i])
        for i, value in self.fixed.items():
            if leaves[i] is not value and (type(leaves[i]) is not type(value) or leaves[i] != value):
                found = "an array" if _is_array(leaves[i]) and np.ndim(leaves[i]) else repr(leaves[i])
                raise user_error(
                    f"argument {i} was {value!r} when the function was traced, and is {found} now",
                    "it is a constant of the kernel: compile another for it, or have the function take it as an array",
                )
        return leaves

    @functools.cached_property
    def places(self) -> list[int]:
        """The numbers of the leaves that are no constants."""
        return [i for i in range(self.structure.num_leaves) if i not in self.fixed]

    def arguments(self, flat: Sequence[Any]) -> list[Any]:
        """The kernel's arguments, constants among them, on the memory of `flat` where types are the same."""
        return [signless(c, c.dtype.name) for c in self.constants] + [
            signless(_joined(_converted(flat[i], dtype, i)), real_type(dtype).name, i)
            for i, dtype in zip(self.places, self.inputs, strict=True)
        ]

    def results(self, arrays: Sequence[np.ndarray], flat_inputs: Sequence[Any]) -> Any:
        """What the function returns, of jax arrays if there is one among the inputs, else of numpy arrays."""
        arrays = [
            unstacked(array, dtype) if dtype.kind == "c" else array.view(dtype)
            for array, dtype in zip(arrays, self.outputs, strict=True)
        ]
        if any(isinstance(value, jax.Array) for value in flat_inputs):
            arrays = [jax.numpy.asarray(array) for array in arrays]
        for i, implementation in self.key_results.items():
            arrays[i] = jax.random.wrap_key_data(jax.numpy.asarray(arrays[i]), impl=implementation)
        return jax.tree.unflatten(self.out_structure, arrays)


class JaxKernel(TracedKernel):
    """A kernel of `source`, whose results have the function's structure whatever the arrays are."""

    def __init__(self, kernel: Kernel, program: JaxProgram, source: Callable, options: Options):
        super().__init__(kernel, program)
        self.source, self.options = source, options
        self.mapped: dict[Any, JaxKernel] = {}  # by what their arguments are
        self.derivatives: dict[Any, JaxKernel] = {}  # also by the arguments that need gradients

    @staticmethod
    def of_function(
        source: Callable,
        example_args: Sequence[Any] | None,
        example_kwargs: dict[str, Any] | None,
        target: str,
        options: Options,
    ) -> "JaxKernel":
        """`source`, traced and compiled; see `trace`."""
        options.check()
        program = trace(source, example_args, example_kwargs)
        numbers = options.donated((), program.structure.num_leaves)
        if found := [number for number in numbers if number in program.fixed]:
            raise user_error(f"donate: argument {found[0]} is no array, but a constant of the kernel")
        donated = tuple(len(program.constants) + program.places.index(number) for number in numbers)
        kernel = compile_module(program.module, target, dataclasses.replace(options, donate=donated))
        return JaxKernel(kernel, program, source, options)

    def arrays(self, leaves: Sequence[Any]) -> list[Any]:
        """Those of the arguments' leaves that are no constants."""
        program: Any = self.program
        return [leaves[i] for i in program.places]

    def of_many(self, leaves: Sequence[Any], batched: Sequence[bool], structure: Any) -> "JaxKernel":
        """The kernel of `source` for many examples at once, mapped by jax.vmap along the first dimension of those
        arguments that are `batched`. It takes those leaves that are no constants; `structure` is what they are of."""
        program: Any = self.program
        types = list(map(_type, self.arrays(leaves)))
        key = (structure, *map(_kind, types), *batched)
        if key not in self.mapped:
            many = jax.vmap(self._of_arrays(structure), [0 if batched[i] else None for i in program.places])
            donated = tuple(program.places.index(number) for number in self.options.donate)
            options = dataclasses.replace(self.options, donate=donated)
            self.mapped[key] = self.of_function(many, types, None, self.target, options)
            if self.options.listener is None:
                self.mapped[key].warn_of_left(stacklevel=2)
        return self.mapped[key]

    def gradients(
        self, leaves: Sequence[Any], needed: Sequence[int], structure: Any, cotangents: Sequence[Any]
    ) -> Sequence[Any]:
        """Those of the leaves `needed` of the arguments, by a kernel of the derivative. `cotangents`: the gradients of
        those results that can have any; `structure` is what the leaves are of."""
        program: Any = self.program
        given = self.arrays(leaves), list(cotangents)
        types = [list(map(_type, values)) for values in given]
        key = (structure, *needed, *map(_kind, types[0]))
        if key not in self.derivatives:
            source = derivative(self._of_arrays(structure), [program.places.index(i) for i in needed])
            with compile_errors():
                self.derivatives[key] = self.of_function(
                    source, types, None, self.target, self.options.without_donations()
                )
            if self.options.listener is None:
                self.derivatives[key].warn_of_left(stacklevel=2)
        return self.derivatives[key](*given)

    def _of_arrays(self, structure: Any) -> Callable:
        """`source` as a function of those leaves of its arguments that are no constants."""
        program: Any = self.program

        def source(*arrays: Any) -> Any:
            given = program.fixed | dict(zip(program.places, arrays, strict=True))
            args, kwargs = jax.tree.unflatten(structure, [given[i] for i in range(len(given))])
            return program.source(*args, **kwargs)

        source.__name__ = getattr(self.source, "__name__", type(self.source).__name__)
        return source

    def returned(self, results: Sequence[np.ndarray], flat: Sequence[Any]) -> Any:
        return self.program.results(results, flat)

    def result_types(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Sequence[Any], Callable]:
        program: Any = self.program
        if program.key_results:
            raise user_error(
                f"'{self.name}' returns a key of jax.random, which no kernel does while JAX traces, in jax.jit or vmap",
                "call it outside of them, or pass the function itself to jax.jit",
            )
        slots, _ = super().result_types(program.arguments(program.flat(args, kwargs)), {})
        types = zip(slots, program.outputs, strict=True)
        shapes = [(slot.shape or ())[:-1] if dtype.kind == "c" else slot.shape or () for slot, dtype in types]
        typed = list(map(jax.ShapeDtypeStruct, shapes, program.outputs))
        return typed, lambda results: jax.tree.unflatten(program.out_structure, results)


def _type(leaf: Any) -> Any:
    return leaf if np.isscalar(leaf) else jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)


def _kind(leaf: Any) -> Any:
    return getattr(leaf, "shape", type(leaf)), getattr(leaf, "dtype", None)


def _is_array(leaf: Any) -> bool:
    """Whether JAX traces a leaf of the arguments: arrays, types of arrays, numbers."""
    return hasattr(leaf, "dtype") or isinstance(leaf, bool | int | float | complex)


def _taken(values: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
    """Arrays that a function of complex ones was handed, those that `_joined` made in two parts."""
    return [parted(x) if np.ndim(x) > v.aval.ndim else x for x, v in zip(values, variables, strict=True)]


def _joined(value: Any) -> Any:
    return joined(value) if np.iscomplexobj(value) else value


def _as_numpy(value: Any) -> Any:
    """A numpy array on the memory of a jax array (DLPack has no bfloat16 for numpy); others as they are."""
    refuse_traced(value)
    if isinstance(value, jax.Array):
        try:
            return np.asarray(value)
        except Exception as error:
            raise user_error(f"an argument is no readable array: {first_line(error)}") from None
    return value


def _converted(value: Any, dtype: np.dtype, number: int) -> Any:
    """`value` in the type that it was traced with, where jax itself would take it for that type."""
    array = _as_numpy(value)
    if isinstance(array, bool | int | float | complex | np.generic):
        return _as_traced(array, dtype, number)
    if isinstance(array, np.ndarray) and array.dtype != dtype and jax.dtypes.canonicalize_dtype(array.dtype) == dtype:
        return array.astype(dtype)
    if dtype.kind == "c" and array.dtype != dtype:  # what the kernel takes instead has another shape
        raise user_error(f"argument {number} must be an array of {dtype}, but is of {array.dtype}")
    return array


def _as_traced(value: Any, dtype: np.dtype, number: int) -> np.ndarray:
    """A number in the type that one was traced with; a user's error where that would be another number."""
    given = np.asarray(value)
    if given.dtype == dtype or jax.numpy.issubdtype(dtype, np.inexact):
        fits = given.dtype.kind != "c" or dtype.kind == "c"
    elif dtype.kind == "b":
        fits = False
    else:
        fits = given.dtype.kind in "biu" and np.iinfo(dtype).min <= value <= np.iinfo(dtype).max
    if not fits:
        raise user_error(f"argument {number} must be a number of {dtype}, as it was traced with, but is {value!r}")
    return given.astype(dtype)


__all__ = ["JaxKernel", "JaxProgram", "exported_call", "trace"]

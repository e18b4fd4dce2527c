"""JAX: a function, traced by ``jax.jit`` and compiled as a whole, by way of StableHLO.

    kernel = compile(fn, (q, k, v))          # arguments as fn takes them: arrays, or pytrees of arrays
    out = kernel(q, k, v)                    # numpy arrays, or jax arrays where it is called with some

Example arguments may be jax or numpy arrays or ``jax.ShapeDtypeStruct``; their values do not matter, their shapes are
fixed. Arrays that the function closes over (weights) are passed to the kernel at every call, without copies.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from ...dialects.mlir import ir
from ..api import Kernel, Options, compile_module
from ..diagnostics import user_error
from ..runtime.signature import refuse_traced, signless
from ..traced_kernel import TracedKernel, call_error
from .constants import pattern
from .jax_loops import evaluate
from .jax_lowering import lower
from .lowering import first_line

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
    if any(
        jax.dtypes.issubdtype(getattr(x, "dtype", None), jax.dtypes.extended) for x in jax.tree.leaves((args, kwargs))
    ):
        raise user_error(
            "an example argument is a key of jax.random: draw the numbers outside and pass them as an array"
        )
    structure = jax.tree.structure((tuple(args), kwargs))
    try:
        closed, shapes = jax.make_jaxpr(source, return_shape=True)(*args, **kwargs)
        hoisted = [i for i, c in enumerate(closed.consts) if np.size(c) > HOISTED and pattern(np.asarray(c)) is None]

        def flat(large: Sequence[Any], inputs: Sequence[Any]) -> Any:
            consts = list(closed.consts)
            for i, value in zip(hoisted, large, strict=True):
                consts[i] = value
            return evaluate(closed.jaxpr, consts, inputs)

        large = [_as_numpy(closed.consts[i]) for i in hoisted]
        avals = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in closed.jaxpr.invars]
        traced = jax.jit(flat, keep_unused=True).trace(large, avals)
    except Exception as error:
        raise user_error(
            f"JAX cannot trace '{name}': {type(error).__name__}: {first_line(error)}",
            "example_args must be what the function takes, and the function one that jax.jit takes",
        ) from error
    module = lower(traced, name)
    out_leaves, out_structure = jax.tree.flatten(shapes)
    dtypes = [np.dtype(leaf.dtype) for leaf in out_leaves]
    inputs = [np.dtype(a.dtype) for a in avals]
    return JaxProgram(module, structure, inputs, large, out_structure, dtypes)


@dataclasses.dataclass
class JaxProgram:
    """Binds arguments of the traced function to those of its lowered form, and results back.

    The lowered function takes `constants`, then the leaves of the arguments, whose dtypes are `inputs`.
    """

    module: ir.Module
    structure: Any
    inputs: list[np.dtype]
    constants: list[np.ndarray]
    out_structure: Any
    outputs: list[np.dtype]

    def flat(self, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
        """The call's arguments in a flat list; a user's error where they do not fit what was traced."""
        leaves, structure = jax.tree.flatten((tuple(args), kwargs))
        if structure != self.structure:
            traced = jax.tree.unflatten(self.structure, range(self.structure.num_leaves))
            raise call_error(traced, (args, kwargs), f"{self.structure}, but called with {structure}")
        return leaves

    def arguments(self, flat: Sequence[Any]) -> list[Any]:
        """The kernel's arguments, constants among them, on the memory of `flat` where types are the same."""
        return [signless(c, c.dtype.name) for c in self.constants] + [
            signless(_converted(value, dtype, i), dtype.name, i)
            for i, (value, dtype) in enumerate(zip(flat, self.inputs, strict=True))
        ]

    def results(self, arrays: Sequence[np.ndarray], flat_inputs: Sequence[Any]) -> Any:
        """What the function returns, of jax arrays if there is one among the inputs, else of numpy arrays."""
        arrays = [array.view(dtype) for array, dtype in zip(arrays, self.outputs, strict=True)]
        if any(isinstance(value, jax.Array) for value in flat_inputs):
            return jax.tree.unflatten(self.out_structure, [jax.numpy.asarray(array) for array in arrays])
        return jax.tree.unflatten(self.out_structure, arrays)


class JaxKernel(TracedKernel):
    """A kernel of `source`, whose results have the function's structure whatever the arrays are."""

    def __init__(self, kernel: Kernel, program: JaxProgram, source: Callable, options: Options):
        super().__init__(kernel, program)
        self.source, self.options = source, options
        self.mapped: dict[Any, JaxKernel] = {}  # by what their arguments are

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
        donated = options.donated((), len(program.inputs), len(program.constants))
        kernel = compile_module(program.module, target, dataclasses.replace(options, donate=donated))
        return JaxKernel(kernel, program, source, options)

    def of_many(self, leaves: Sequence[Any], batched: Sequence[bool], structure: Any) -> "JaxKernel":
        """The kernel of `source` for many examples at once, mapped by jax.vmap along the first dimension of those
        arguments that are `batched`. It takes their leaves; `structure` is what these are leaves of."""
        types = [x if np.isscalar(x) else jax.ShapeDtypeStruct(x.shape, x.dtype) for x in leaves]
        kinds = [(getattr(x, "shape", type(x)), getattr(x, "dtype", None)) for x in types]
        key = (structure, *kinds, *batched)
        if key not in self.mapped:

            def example(*leaves: Any) -> Any:
                args, kwargs = jax.tree.unflatten(structure, leaves)
                return self.source(*args, **kwargs)

            example.__name__ = getattr(self.source, "__name__", type(self.source).__name__)
            many = jax.vmap(example, [0 if b else None for b in batched])
            self.mapped[key] = self.of_function(many, types, None, self.target, self.options)
            if self.options.listener is None:
                self.mapped[key].warn_of_left(stacklevel=2)
        return self.mapped[key]

    def returned(self, results: Sequence[np.ndarray], flat: Sequence[Any]) -> Any:
        return self.program.results(results, flat)

    def result_types(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Sequence[Any], Callable]:
        program: Any = self.program
        slots, _ = super().result_types(program.arguments(program.flat(args, kwargs)), {})
        types = zip(slots, program.outputs, strict=True)
        typed = [jax.ShapeDtypeStruct(slot.shape or (), dtype) for slot, dtype in types]
        return typed, lambda results: jax.tree.unflatten(program.out_structure, results)


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


__all__ = ["JaxKernel", "JaxProgram", "trace"]

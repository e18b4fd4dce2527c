"""Kernels that are called while JAX traces: in jax.jit, jax.vmap, jax.lax.scan and the like.

    @jax.jit
    def layer(x, w):
        return kernel(x @ w, x, x) + x         # a callback to the host, with the kernel's shapes and types

The kernel is called with what arrays the compiled function has then. Under jax.vmap a kernel of a function of JAX
becomes one of the mapped function, for all examples at once; another one is called with one example after the other.
Under jax.grad the former has another kernel for its derivative (jax/gradients.py), the latter none.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from ....dialects.diagnostic import DiagnosedError
from ...diagnostics import user_error
from ...kernel import CompileError
from . import random as jax_random
from .gradients import with_gradients

if TYPE_CHECKING:
    from ...kernel import Kernel
    from .tracing import JaxKernel


_INLINES = contextvars.ContextVar("_INLINES", default=False)


@contextlib.contextmanager
def inlining() -> Iterator[None]:
    """Within the block, in which a function is traced to be compiled, a kernel of JAX is the function it came from."""
    token = _INLINES.set(True)
    try:
        yield
    finally:
        _INLINES.reset(token)


def traced_call(kernel: Kernel, args: tuple, kwargs: dict[str, Any]) -> Any:
    """What `kernel(*args, **kwargs)` is to JAX, where some of the arguments are traced. Raises CompileError."""
    from .tracing import JaxKernel

    if _INLINES.get() and isinstance(kernel, JaxKernel):
        return kernel.source(*args, **kwargs)
    leaves, structure = jax.tree.flatten((args, kwargs))
    leaves = list(map(jax_random.data, leaves))
    traced = [i for i, leaf in enumerate(leaves) if isinstance(leaf, jax.core.Tracer)]
    known = [None if i in traced else np.asarray(x) if isinstance(x, jax.Array) else x for i, x in enumerate(leaves)]

    def filled(values: Any) -> Any:
        """The arguments, with `values` where they are traced."""
        given = dict(zip(traced, values, strict=True))
        return jax.tree.unflatten(structure, [given.get(i, leaf) for i, leaf in enumerate(known)])

    with compile_errors():
        if kernel.target != "cpu":
            raise user_error(
                f"a kernel for the target {kernel.target} cannot be called while JAX traces, in jax.jit, vmap or scan",
                "call it outside of them, or pass the function itself to jax.jit",
            )
        # Memory that nothing is written to costs nothing; only types and shapes are looked at.
        arguments, named = filled([np.empty(leaves[i].shape, leaves[i].dtype) for i in traced])
        slots, rebuilt = kernel.result_types(arguments, named)
        if any(None in (slot.shape or ()) for slot in slots):
            raise user_error(
                f"'{kernel.name}' cannot be called while JAX traces, in jax.jit, vmap or scan: it has results of open "
                "sizes, and JAX must know them",
                "compile it for these sizes: example_args, or a graph whose result types are static",
            )

    def on_host(*values: Any) -> Any:
        arguments, named = filled([np.asarray(v) for v in values])
        found = kernel(*arguments, **named)
        return jax.tree.map(lambda x, kind: np.asarray(x).astype(kind.dtype, copy=False), found, types)

    # Without jax_enable_x64, JAX has no 64 bits.
    canonical = [jax.dtypes.canonicalize_dtype(slot.dtype) for slot in slots]
    types = rebuilt([jax.ShapeDtypeStruct(s.shape or (), t) for s, t in zip(slots, canonical, strict=True)])

    def one(*values: Any) -> Any:
        return jax.pure_callback(on_host, types, *values, vmap_method="sequential")

    values = [leaves[i] for i in traced]
    if isinstance(kernel, JaxKernel):
        many = _mapped_at_once(one, kernel, traced, known, structure)
        return with_gradients(many, kernel, traced, known, structure)(*values)
    call = jax.custom_jvp(one)

    @call.defjvp
    def derivative(primals: Any, tangents: Any) -> Any:
        with compile_errors():
            raise user_error(
                f"'{kernel.name}' has no derivative: only kernels of functions of JAX have one",
                "say by jax.lax.stop_gradient that none is wanted",
            )

    return call(*values)


def _mapped_at_once(
    one: Callable, kernel: JaxKernel, traced: Sequence[int], known: Sequence[Any], structure: Any
) -> Callable:
    """`one`, a call of `kernel` with the leaves `traced` of its arguments, of which jax.vmap makes a single call of
    another kernel. The other leaves are `known`."""
    call = jax.custom_batching.custom_vmap(one)

    @call.def_vmap
    def many(size: int, batched: Sequence[bool], *values: Any) -> tuple[Any, Any]:
        given = dict(zip(traced, values, strict=True))
        leaves = [given.get(i, leaf) for i, leaf in enumerate(known)]
        flags = dict(zip(traced, batched, strict=True))
        with compile_errors():
            mapped = kernel.of_many(leaves, [flags.get(i, False) for i in range(len(leaves))], structure)
        found = jax.tree.map(jax.numpy.asarray, mapped(*kernel.arrays(leaves)))
        return found, jax.tree.map(lambda _: True, found)

    return call


@contextlib.contextmanager
def compile_errors() -> Iterator[None]:
    try:
        yield
    except DiagnosedError as error:
        raise CompileError(error.diagnostics) from None

"""Kernels of functions of JAX under jax.grad: another kernel, of the function's derivative, gives the gradients.

    out = kernel(q, k, v)      dq, dk, dv = derivative(q, k, v, dout)

It is compiled where gradients are first asked for, of those arguments that need some, and kept with the kernel. What
lies between the two calls are the arguments: the derivative computes anew what else it needs. JAX itself refuses
forward-mode derivatives of such calls.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

if TYPE_CHECKING:
    from .tracing import JaxKernel


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class _Needed:
    """Which of the values need gradients; no value itself, where JAX looks for some."""

    flags: tuple[bool, ...]


def with_gradients(
    call: Callable, kernel: JaxKernel, traced: Sequence[int], known: Sequence[Any], structure: Any
) -> Callable:
    """`call`, which calls `kernel` with the leaves `traced` of its arguments, for jax.grad. The other leaves are
    `known`; `structure` is what all are of."""
    differentiable = jax.custom_vjp(call)

    def forward(*values: Any) -> Any:
        given = [value.value for value in values]
        needed = _Needed(tuple(v.perturbed and is_inexact(v.value) for v in values))
        return differentiable(*given), (needed, given)  # which may be differentiated in its turn

    def backward(kept: Any, cotangents: Any) -> tuple[Any, ...]:
        flags, given = kept[0].flags, dict(zip(traced, kept[1], strict=True))
        leaves = [given.get(i, leaf) for i, leaf in enumerate(known)]
        of = jax.tree.leaves(cotangents, is_leaf=_is_zero)
        needed = [i for i, flag in zip(traced, flags, strict=True) if flag]
        found = iter(kernel.gradients(leaves, needed, structure, [_instantiated(x) for x in of if _has_gradient(x)]))
        return tuple(next(found) if flag else None for flag in flags)

    differentiable.defvjp(forward, backward, symbolic_zeros=True)
    return differentiable


def is_inexact(value: Any) -> bool:
    return bool(jax.numpy.issubdtype(value.dtype, np.inexact))


def _is_zero(cotangent: Any) -> bool:
    return isinstance(cotangent, jax.custom_derivatives.SymbolicZero)


def _has_gradient(cotangent: Any) -> bool:
    return cotangent.dtype != jax.dtypes.float0


def _instantiated(cotangent: Any) -> Any:
    return jax.numpy.zeros(cotangent.shape, cotangent.dtype) if _is_zero(cotangent) else cotangent


def derivative(function: Callable, needed: Sequence[int]) -> Callable:
    """A function of a function's arguments, and of the gradients of those of its results that can have any, in lists:
    the gradients of the arguments `needed`."""

    def gradients(values: Sequence[Any], cotangents: Sequence[Any]) -> Any:
        def of_needed(*some: Any) -> Any:
            given = list(values)
            for i, value in zip(needed, some, strict=True):
                given[i] = value
            return function(*given)

        results, pull_back = jax.vjp(of_needed, *(jax.numpy.asarray(values[i]) for i in needed))
        rest = iter(cotangents)
        leaves, structure = jax.tree.flatten(results)
        whole = [next(rest) if is_inexact(x) else np.zeros(x.shape, jax.dtypes.float0) for x in leaves]
        return pull_back(jax.tree.unflatten(structure, whole))

    gradients.__name__ = f"derivative_of_{getattr(function, '__name__', type(function).__name__)}"
    return gradients


__all__ = ["derivative", "is_inexact", "with_gradients"]

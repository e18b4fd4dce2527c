"""Random numbers of JAX: its keys as the numbers that they are, and their hash, written out.

    jax.random.key(7)               [0, 7], in uint32: what kernels take for keys, and give

JAX's numbers are a hash of the key and of an element's place, Threefry-2x32 of 20 rounds (Salmon et al., "Parallel
random numbers: as easy as 1, 2, 3", 2011). For CPUs it is lowered as a loop over tensors, which holds all numbers in
memory; written out, each element is an expression of its place, and the mask of a dropout is computed where it is
needed, as JAX has it.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.extend.random import threefry2x32_p
from jax.interpreters import mlir

ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)  # of four rounds each, in turns
PARITY = 0x1BD11BDA  # of the key schedule
BITS = 32


def lowering_rules() -> tuple[tuple[Any, Callable], ...]:
    """Primitives, with how they are lowered in place of JAX's own way."""
    return ((threefry2x32_p, mlir.lower_fun(_threefry, multiple_results=True)),)


def _threefry(key0: Any, key1: Any, x0: Any, x1: Any) -> tuple[Any, Any]:
    """Two numbers of 32 bits for two of them, under a key of two; arrays of uint32 that broadcast."""
    keys = key0, key1, key0 ^ key1 ^ jax.numpy.uint32(PARITY)
    x0, x1 = x0 + key0, x1 + key1
    for step in range(5):
        for rotation in ROTATIONS[step % 2]:
            x0 = x0 + x1
            x1 = x0 ^ (x1 << rotation | x1 >> BITS - rotation)
        x0 = x0 + keys[(step + 1) % 3]
        x1 = x1 + (keys[(step + 2) % 3] + jax.numpy.uint32(step + 1))  # a number for all elements
    return x0, x1


def is_key(value: Any) -> bool:
    return bool(jax.dtypes.issubdtype(getattr(value, "dtype", None), jax.dtypes.prng_key))


def implementations(leaves: Sequence[Any]) -> dict[int, Any]:
    """Of those leaves that are keys, or types of keys, how numbers are made of them."""
    return {i: implementation(leaf) for i, leaf in enumerate(leaves) if is_key(leaf)}


def implementation(key: Any) -> Any:
    """How numbers are made of a key, or of keys of a type."""
    if not isinstance(key, jax.ShapeDtypeStruct):
        return jax.random.key_impl(key)
    found: list[Any] = []
    jax.eval_shape(lambda one: found.append(jax.random.key_impl(one)), key)
    return found[0]


def data(leaf: Any) -> Any:
    """The numbers that a key is; the type of them for a type of keys; what is no key as it is."""
    if not is_key(leaf):
        return leaf
    is_type = isinstance(leaf, jax.ShapeDtypeStruct)
    return jax.eval_shape(jax.random.key_data, leaf) if is_type else jax.random.key_data(leaf)


def of_data(source: Callable, keys: dict[int, Any], returned: dict[int, Any]) -> Callable:
    """`source` as a function of numbers, where leaves of its arguments are `keys`, by their implementations; so are the
    keys that it returns, of which `returned` tells when it has been traced."""

    def function(*args: Any, **kwargs: Any) -> Any:
        leaves, structure = jax.tree.flatten((args, kwargs))
        for i, how in keys.items():
            leaves[i] = jax.random.wrap_key_data(leaves[i], impl=how)
        args, kwargs = jax.tree.unflatten(structure, leaves)
        found, out_structure = jax.tree.flatten(source(*args, **kwargs))
        returned.update(implementations(found))
        return jax.tree.unflatten(out_structure, map(data, found))

    return function

"""Random numbers of JAX: the hash of its keys, written out.

JAX's numbers are a hash of the key and of an element's place, Threefry-2x32 of 20 rounds (Salmon et al., "Parallel
random numbers: as easy as 1, 2, 3", 2011). For CPUs it is lowered as a loop over tensors, which holds all numbers in
memory; written out, each element is an expression of its place, and the mask of a dropout is computed where it is
needed, as JAX has it.
"""

from collections.abc import Callable
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
    parity = jax.numpy.uint32(PARITY)
    keys = key0, key1, key0 ^ key1 ^ parity
    x0, x1 = x0 + key0, x1 + key1
    for step in range(5):
        for rotation in ROTATIONS[step % 2]:
            x0 = x0 + x1
            x1 = x0 ^ (x1 << rotation | x1 >> BITS - rotation)
        x0 = x0 + keys[(step + 1) % 3]
        x1 = x1 + (keys[(step + 2) % 3] + jax.numpy.uint32(step + 1))  # a number for all elements
    return x0, x1

"""The pass ``drop-roundings``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from ....dialects.mlir import ir
from ...passes import Pass
from ...rewriting import ops_in
from ..marks import ROUNDED
from .round_shared import CHOICES

STORES = ("tile.store", "memref.store", "vector.store")
PASSED_ON = (*CHOICES, "vector.from_elements", "linalg.yield", "scf.yield")


@dataclass(frozen=True)
class DropRoundings(Pass):
    """Leaves numbers unrounded in registers that turn out to be the same for all who read them::

        gpu.func @f_0(…) { … %s = addf %a, %b {tile.rounded = 1} ; %e = exp %s ; memref.store %e … }
      becomes
        gpu.func @f_0(…) { … %s = addf %a, %b ; %e = exp %s ; memref.store %e … }

    if no other kernel computes number 1. What is stored stays rounded where the kernel itself reads it, too. For each
    element that a thread has of a matmul's tile, two instructions less.
    """

    def run(self, op: ir.Operation) -> None:
        for module in ops_in(op, "gpu.module"):
            made: dict[int, list[ir.Operation]] = defaultdict(list)
            kernels: dict[int, set[ir.Operation]] = defaultdict(set)
            for kernel in ops_in(module, "gpu.func"):
                for inner in ops_in(kernel):
                    if ROUNDED in inner.attributes:
                        number = ir.IntegerAttr(inner.attributes[ROUNDED]).value
                        made[number].append(inner)
                        kernels[number].add(kernel)
            for number, ops in made.items():
                readers = {reader.name in STORES for one in ops for reader in _readers(one, set())}
                if len(kernels[number]) == 1 and len(readers) < 2:
                    for one in ops:
                        del one.attributes[ROUNDED]


def _readers(op: ir.Operation, seen: set[ir.Value]) -> Iterator[ir.Operation]:
    """Who reads the results of an op as they are."""
    for value in op.results:
        if value in seen:
            continue
        seen.add(value)
        for use in value.uses:
            user = use.owner.operation
            if user.name in PASSED_ON:
                yield from _readers(user if len(user.results) else user.parent.operation, seen)
            else:
                yield user

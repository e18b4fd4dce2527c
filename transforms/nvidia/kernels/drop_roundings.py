"""The pass ``drop-roundings``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from ....dialects.mlir import ir
from ...graph import operands_with_captures
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

    if no other kernel computes number 1. What is stored stays rounded where the kernel itself reads it, too, and with
    it what it is computed of, if that is read again: a row's log Σ exp(s) with one key is its score, as rounded as the
    other. For each element that a thread has of a matmul's tile, two instructions less.

    Those that stay lose their numbers, which no one asks for any more: kernels of a model's layers differ in nothing
    else (``share-kernels``).
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
            readers = {n: {r for one in ops for r in _readers(one, set())} for n, ops in made.items()}
            stay = {n for n in made if len(kernels[n]) > 1 or len({r.name in STORES for r in readers[n]}) > 1}
            for one in _computed_of([one for number in stay for one in made[number]]):
                if ROUNDED in one.attributes:
                    number = ir.IntegerAttr(one.attributes[ROUNDED]).value
                    if len(readers[number]) > 1:
                        stay.add(number)
            for number, ops in made.items():
                for one in ops:
                    if number in stay:
                        one.attributes[ROUNDED] = ir.UnitAttr.get(op.context)
                    else:
                        del one.attributes[ROUNDED]


def _computed_of(ops: list[ir.Operation]) -> set[ir.Operation]:
    """The ops, and all of their kernels that they are computed of."""
    found, pending = set(ops), list(ops)
    while pending:
        for value in operands_with_captures(pending.pop()):
            owner = value.owner
            maker = (owner.owner if isinstance(owner, ir.Block) else owner).operation  # what gives a region arguments
            if maker not in found and maker.name != "gpu.func":
                found.add(maker)
                pending.append(maker)
    return found


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

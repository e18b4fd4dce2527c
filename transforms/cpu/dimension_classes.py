"""Which dimensions of the tensors of a region are one and the same: those that a loop of some op runs over together.

    %s = linalg.generic {S[m, n] += Q[m, d]·K[n, d]} …
    %o = linalg.generic {O[m, v] += P[m, n]·V[n, v]} …

puts dimension 0 of Q, S, P and O into one class, that of the queries. Slices, insertions, and loops that carry tensors
pass classes on. A class is named by one of its members, `find` tells which.
"""

import itertools
from collections.abc import Iterator

from ...dialects.mlir import ir
from ...dialects.tiling.structured import dim_position, indexing_maps
from ..rewriting import ops_in
from .tile_values import CARRYING, carried_pairs

Dim = tuple[ir.Value, int]


class DimensionClasses:
    """Of all tensors that ops inside of `region_op` use or make."""

    def __init__(self, region_op: ir.Operation):
        self._parent: dict[Dim, Dim] = {}
        self.generics: list[ir.Operation] = []
        for op in ops_in(region_op):
            self._relate(op)
        self._class = {dim: self._root(dim) for dim in self._parent}

    def find(self, dim: Dim) -> Dim:
        return self._class.get(dim, dim)

    def _root(self, dim: Dim) -> Dim:
        root = dim
        while self._parent.get(root, root) != root:
            root = self._parent[root]
        while dim != root:
            self._parent[dim], dim = root, self._parent[dim]
        return root

    def position(self, value: ir.Value, class_: Dim) -> int | None:
        """Which dimension of `value` is of the class; None if none is."""
        if not isinstance(value.type, ir.RankedTensorType):
            return None
        return next((d for d in range(value.type.rank) if self.find((value, d)) == class_), None)

    def is_repeated(self, value: ir.Value) -> bool:
        """True if two dimensions of `value` are of one class, as those of a square matrix that is scaled by rows."""
        if not isinstance(value.type, ir.RankedTensorType):
            return False
        classes = [self.find((value, d)) for d in range(value.type.rank)]
        return len(set(classes)) < len(classes)

    def loop_classes(self, generic: ir.Operation) -> dict[int, Dim]:
        """The class that each loop of a structured op runs over."""
        found: dict[int, Dim] = {}
        for value, loops in _loops(generic):
            for d, loop in enumerate(loops):
                if loop is not None:
                    found[loop] = self.find((value, d))
        return found

    def _join(self, a: Dim, b: Dim) -> None:
        a, b = self._root(a), self._root(b)
        if a != b:
            self._parent[a] = b

    def _same(self, a: ir.Value, b: ir.Value) -> None:
        if isinstance(a.type, ir.RankedTensorType) and isinstance(b.type, ir.RankedTensorType):
            for d in range(min(a.type.rank, b.type.rank)):
                self._join((a, d), (b, d))

    def _relate(self, op: ir.Operation) -> None:
        if op.name == "linalg.generic":
            self.generics.append(op)
            first: dict[int, Dim] = {}
            for value, loops in _loops(op):
                for d, loop in enumerate(loops):
                    if loop is not None:
                        self._join((value, d), first.setdefault(loop, (value, d)))
        elif op.name in ("tensor.extract_slice", "tensor.insert_slice", "tensor.parallel_insert_slice", "tensor.cast"):
            ranks = {v.type.rank for v in [*op.operands, *op.results] if isinstance(v.type, ir.RankedTensorType)}
            if len(ranks) == 1:
                for a, b in same_shape_pairs(op):
                    self._same(a, b)
        elif op.name in CARRYING:
            for a, b in carried_pairs(op):
                self._same(a, b)


def same_shape_pairs(op: ir.Operation) -> Iterator[tuple[ir.Value, ir.Value]]:
    tensors = [v for v in [*op.operands, *op.results] if isinstance(v.type, ir.RankedTensorType)]
    yield from itertools.pairwise(tensors)


def _loops(op: ir.Operation) -> Iterator[tuple[ir.Value, list[int | None]]]:
    """Operands and results, each with the loop of each of its dimensions."""
    maps = indexing_maps(op)
    loops = [[dim_position(e) for e in m.results] for m in maps]
    yield from zip(op.operands, loops, strict=True)
    yield from zip(op.results, loops[len(loops) - len(op.results) :], strict=True)

"""Which dimensions of the tensors of a region are one and the same: those that a loop of some op runs over together.

    %s = linalg.generic {S[m, n] += Q[m, d]·K[n, d]} …
    %o = linalg.generic {O[m, v] += P[m, n]·V[n, v]} …

puts dimension 0 of Q, S, P and O into one class, that of the queries. Slices, insertions, and loops that carry tensors
pass classes on. A class is named by one of its members.
"""

import itertools
from collections.abc import Iterator
from typing import TypeAlias

from ....dialects.mlir import ir
from ....dialects.tiling.structured import operand_loops
from ...rewriting import ops_in
from .tile_values import CARRYING, carried_pairs

Dim: TypeAlias = int  # a dimension of a tensor: they are numbered as they are met


class DimensionClasses:
    """Of all tensors that ops inside of `region_op` use or make."""

    def __init__(self, region_op: ir.Operation):
        self._dims: dict[ir.Value, range] = {}
        self._parent: list[Dim] = []
        self.generics: list[ir.Operation] = []
        for op in ops_in(region_op):
            self._relate(op)

    def _dims_of(self, value: ir.Value, rank: int) -> range:
        if value not in self._dims:
            first = len(self._parent)
            self._dims[value] = range(first, first + rank)
            self._parent += self._dims[value]
        return self._dims[value]

    def _root(self, dim: Dim) -> Dim:
        parent = self._parent
        while parent[dim] != dim:
            parent[dim] = dim = parent[parent[dim]]
        return dim

    def _classes(self, value: ir.Value) -> list[Dim]:
        """Those of its dimensions; none of what is no tensor."""
        kind = value.type
        dims = self._dims_of(value, kind.rank) if isinstance(kind, ir.RankedTensorType) else ()
        return [self._root(dim) for dim in dims]

    def position(self, value: ir.Value, class_: Dim) -> int | None:
        """Which dimension of `value` is of the class; None if none is."""
        classes = self._classes(value)
        return classes.index(class_) if class_ in classes else None

    def is_repeated(self, value: ir.Value) -> bool:
        """True if two dimensions of `value` are of one class, as those of a square matrix that is scaled by rows."""
        classes = self._classes(value)
        return len(set(classes)) < len(classes)

    def loop_classes(self, generic: ir.Operation) -> dict[int, Dim]:
        """The class that each loop of a structured op runs over."""
        return {loop: self._root(dim) for loop, dim in self._loops(generic)}

    def _loops(self, generic: ir.Operation) -> Iterator[tuple[int, Dim]]:
        """The loops that index dimensions of operands and results alone, with these dimensions."""
        loops = operand_loops(generic)
        loops += loops[len(loops) - len(generic.results) :]
        for value, along in zip([*generic.operands, *generic.results], loops, strict=True):
            dims = self._dims_of(value, len(along))
            yield from ((loop, dim) for loop, dim in zip(along, dims, strict=True) if loop is not None)

    def _join(self, a: Dim, b: Dim) -> None:
        self._parent[self._root(a)] = self._root(b)

    def _same(self, a: ir.Value, b: ir.Value) -> None:
        if isinstance(a.type, ir.RankedTensorType) and isinstance(b.type, ir.RankedTensorType):
            for x, y in zip(self._dims_of(a, a.type.rank), self._dims_of(b, b.type.rank), strict=False):
                self._join(x, y)

    def _relate(self, op: ir.Operation) -> None:
        if op.name == "linalg.generic":
            self.generics.append(op)
            first: dict[int, Dim] = {}
            for loop, dim in self._loops(op):
                self._join(dim, first.setdefault(loop, dim))
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

"""The pass ``join-pieces``."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from ..dialects import build
from ..dialects.mlir import arith, ir
from ..dialects.tiling.structured import all_parallel, indexing_maps
from .linear import DYNAMIC
from .passes import Pass
from .rewriting import defining_op, erase_if_unused, ops_in, ops_of, single_use
from .slices import slice_offsets
from .splats import repeated_number


@dataclass(frozen=True)
class JoinPieces(Pass):
    """Puts tensors together that are added up, each of which is 0 but for a slice of its own::

        %a = tensor.insert_slice %x into %zeros[0, 16] [8, 16] [1, 1] : tensor<8x16xf32> into tensor<8x32xf32>
        %s = linalg.generic ins(%p, %a) { p + a }
        %b = tensor.insert_slice %y into %zeros[0, 0] [8, 16] [1, 1] : tensor<8x16xf32> into tensor<8x32xf32>
        %t = linalg.generic ins(%s, %b) { s + b }
      becomes
        %c = tensor.concat dim(1) %y, %x : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x32xf32>
        %t = linalg.generic ins(%p, %c) { p + c }

    Gradients of what is read in parts are such sums: of the halves of a rotary embedding, of queries, keys and values
    that one projection makes. Also where the slices leave out some of the tensor: they are put into one of zeros then.
    """

    def run(self, op: ir.Operation) -> None:
        for add in ops_in(op, "linalg.generic"):
            if _is_sum(add) and not _is_term(add):
                _join(add)


def _is_sum(op: ir.Operation) -> bool:
    """Whether it adds up two tensors, element by element."""
    if len(op.operands) != 3 or len(op.results) != 1 or not all_parallel(op):
        return False
    block = op.regions[0].blocks[0]
    adds, *rest = ops_of(block)
    is_plain = adds.name == "arith.addf" and len(rest) == 1 and rest[0].operands[0] == adds.results[0]
    both = is_plain and {*adds.operands} == {*list(block.arguments)[:2]}
    return both and all(m == ir.AffineMap.get_identity(m.n_dims) for m in indexing_maps(op))


def _is_term(op: ir.Operation) -> bool:
    """Whether it is a term of another such sum alone."""
    return single_use(op.results[0]) and _is_sum(next(iter(op.results[0].uses)).owner.operation)


def _terms(add: ir.Operation) -> list[ir.Value]:
    found: list[ir.Value] = []
    for value in list(add.operands)[:2]:
        maker = defining_op(value)
        is_sum = maker is not None and maker.block == add.block and _is_sum(maker) and single_use(value)
        found += _terms(maker) if is_sum else [value]
    return found


@dataclass(frozen=True)
class _Piece:
    """A tensor that is 0 but where `op` inserts a slice; of each dimension the first element of that and the one behind
    the last, None if these are not known."""

    op: ir.Operation
    places: list[tuple[int, int] | None]

    @staticmethod
    def of(whole: ir.Value) -> _Piece | None:
        op = defining_op(whole)
        if op is None or op.name != "tensor.insert_slice" or not single_use(whole):
            return None
        number = repeated_number(op.operands[1])
        if not isinstance(number, ir.FloatAttr) or number.value != 0 or set(op.opview.static_strides) - {1}:
            return None
        pairs = zip(slice_offsets(op), op.opview.static_sizes, strict=True)
        return _Piece(
            op, [(start, start + n) if isinstance(start, int) and n != DYNAMIC else None for start, n in pairs]
        )

    @property
    def whole(self) -> ir.Value:
        return self.op.results[0]

    def is_cut(self, dim: int) -> bool:
        """Whether its slice may have less than all elements of another dimension, or none of its own of that."""
        kind = self.whole.type
        others = [place != (0, n) for d, (place, n) in enumerate(zip(self.places, kind.shape, strict=True)) if d != dim]
        return any(others) or self.op.operands[0].type.rank != kind.rank


def _join(add: ir.Operation) -> None:
    terms = _terms(add)
    pieces = _apart([piece for value in terms if (piece := _Piece.of(value)) is not None])
    if not pieces:
        return
    whole = [p.whole for p in pieces]
    with ir.InsertionPoint(add), add.location:
        total = _put_together(pieces)
        for value in (v for v in terms if v not in whole):
            total = _added(value, total, add)
    add.results[0].replace_all_uses_with(total)
    _erase(add, whole)


def _apart(pieces: Sequence[_Piece]) -> list[_Piece]:
    """Several of the pieces, in their order along a dimension of which no two have the same element; [] if there are
    none."""
    for dim in range(pieces[0].whole.type.rank) if len(pieces) > 1 else ():
        found = sorted((p for p in pieces if p.places[dim] is not None), key=lambda p: p.places[dim])
        if len(found) > 1 and all(a.places[dim][1] <= b.places[dim][0] for a, b in itertools.pairwise(found)):
            return found
    return []


def _put_together(pieces: Sequence[_Piece]) -> ir.Value:
    kind = pieces[0].whole.type
    for dim in range(kind.rank):
        if not any(p.is_cut(dim) for p in pieces):
            ends = [0, *(end for p in pieces for end in p.places[dim] or ()), kind.shape[dim]]
            if ends[::2] == ends[1::2]:
                parts, attributes = [p.op.operands[0] for p in pieces], {"dim": build.i64_attribute(dim)}
                return ir.Operation.create("tensor.concat", [kind], parts, attributes).results[0]
    total = pieces[0].op.operands[1]
    for piece in pieces:
        insert = piece.op.clone().operation
        insert.operands[1] = total
        total = insert.results[0]
    return total


def _added(value: ir.Value, other: ir.Value, like: ir.Operation) -> ir.Value:
    """What is added up element by element, to memory of its own like that of another sum."""
    init = like.operands[2]
    identity = build.projection(init.type.rank, range(init.type.rank))
    (total,) = build.generic(
        [value, other], [init], [identity] * 3, [build.PARALLEL] * init.type.rank, lambda x, y, _: arith.addf(x, y)
    )
    return total


def _erase(add: ir.Operation, whole: Sequence[ir.Value]) -> None:
    """A sum, those that were its terms alone, and pieces."""
    makers = [maker for v in list(add.operands)[:2] if (maker := defining_op(v)) is not None]
    add.erase()
    for maker in makers:
        if maker.results[0] in whole:
            erase_if_unused(maker)
        elif _is_sum(maker) and not any(True for _ in maker.results[0].uses):
            _erase(maker, whole)

"""Following an element of a tensor backwards, with its position, to the scalar that computes it.

Positions are linear forms: of SSA values, the offsets of tiles, and of `Local` d, the element's index in the tile that
is looked at. Functions that are not linear stand in forms as atoms of their own, `Greatest` and `Quotient`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...dialects.mlir import ir
from ...dialects.tiling import Index
from ...dialects.tiling.index import kept_dims
from ...dialects.tiling.structured import all_parallel, indexing_maps, is_structured
from ..linear import linear
from ..reshapes import VIEWS
from ..rewriting import defining_op, terminator
from ..slices import slice_parts


@dataclass(frozen=True)
class Local:
    """The index along dimension `dim` of an element of the tile of scores."""

    dim: int


@dataclass(frozen=True)
class Greatest:
    """The maximum of forms, where it stands in a form."""

    forms: tuple[Index, ...]


@dataclass(frozen=True)
class Quotient:
    """⌊form / divisor⌋, where it stands in a form."""

    form: Index
    divisor: int


@dataclass(frozen=True)
class Loaded:
    """A number that is loaded for each index along `dim` of the tile, where it stands in a form."""

    tensor: ir.Value
    position: tuple[Index, ...]  # of the first one; along dimension `along` of the tensor the others follow
    along: int
    dim: int


@dataclass(frozen=True)
class Tiled:
    """A dimension of a tensor in tiles of `step` elements, from element `start` on."""

    along: int
    start: int
    step: int


@dataclass(frozen=True)
class OfTile:
    """The greatest number of a tile, or the least, in a `table` of tiles, where it stands in a form."""

    table: ir.Value
    position: tuple[Index, ...]  # of the tile's first number among the numbers themselves
    tiled: tuple[Tiled, ...]
    along: int  # the tiled dimension that the loop goes through, if one is


@dataclass(frozen=True)
class Scalar:
    """A value in the body of a structured op whose loops are at `loops`; outside of bodies these are empty."""

    value: ir.Value
    loops: tuple[Index, ...] = ()

    def operand(self, number: int) -> Scalar:
        return Scalar(self.value.owner.operation.operands[number], self.loops)


def element(tensor: ir.Value, position: Sequence[Index]) -> Scalar | None:
    """What computes the element of `tensor` at `position`, as far as it can be followed."""
    if not isinstance(tensor.type, ir.ShapedType):
        return Scalar(tensor)
    op = defining_op(tensor) if isinstance(tensor.type, ir.RankedTensorType) else None
    if op is None:
        return None
    if op.name == "linalg.fill":
        return Scalar(op.operands[0])
    if op.name in VIEWS:
        source = of_source(op, position)
        return element(op.operands[0], source) if source is not None else None
    if all_parallel(op) and len(op.regions):
        return _of_structured(op, list(op.results).index(tensor), position)
    return None


def of_source(op: ir.Operation, position: Sequence[Index]) -> list[Index] | None:
    """Where an element of a view stands in what it is a view of."""
    if op.name == "tensor.extract_slice":
        return _of_slice(op, position)
    if op.name == "tensor.expand_shape":
        return _of_expanded(op, position)
    return _of_collapsed(op, position) if op.name == "tensor.collapse_shape" else list(position)


def _of_slice(op: ir.Operation, position: Sequence[Index]) -> list[Index] | None:
    offsets, sizes, strides = slice_parts(op)
    kept = kept_dims([s if isinstance(s, int) else None for s in sizes], list(op.results[0].type.shape))
    if not all(isinstance(t, int) for t in strides):
        return None
    at = iter(position)
    return [
        linear(o) + (next(at).scaled(t) if d in kept else Index(0))
        for d, (o, t) in enumerate(zip(offsets, strides, strict=True))
    ]


def _of_expanded(op: ir.Operation, position: Sequence[Index]) -> list[Index] | None:
    shape = op.results[0].type.shape
    source = []
    for group in op.opview.reassociation:
        at = Index(0)
        for d in (ir.IntegerAttr(e).value for e in group):
            if at != Index(0) and shape[d] < 0:
                return None
            at = (at.scaled(shape[d]) if at != Index(0) else at) + position[d]
        source.append(at)
    return source


def _of_collapsed(op: ir.Operation, position: Sequence[Index]) -> list[Index] | None:
    shape = op.operands[0].type.shape
    source = [Index(0)] * len(shape)  # no group names the dimensions of what becomes a single element
    for group, at in zip(op.opview.reassociation, position, strict=True):
        real = [d for d in (ir.IntegerAttr(e).value for e in group) if shape[d] != 1]
        if len(real) > 1:
            return None
        for d in real:
            source[d] = at
    return source


def _of_structured(op: ir.Operation, number: int, position: Sequence[Index]) -> Scalar | None:
    maps = indexing_maps(op)
    output = maps[len(op.operands) - len(op.results) + number]
    loops: list[Index | None] = [None] * output.n_dims
    for e, at in zip(output.results, position, strict=True):
        if not isinstance(e, ir.AffineDimExpr) or loops[e.position] is not None:
            return None
        loops[e.position] = at
    if any(at is None for at in loops):
        return None
    body = op.regions[0].blocks[0]
    return Scalar(terminator(body).operands[number], tuple(loops))


def follow(scalar: Scalar) -> Scalar | None:
    """A block argument is an element of an operand; what is no block argument is itself."""
    found = follow_far(scalar)
    return None if isinstance(found.value.owner, ir.Block) else found


def follow_far(scalar: Scalar) -> Scalar:
    """The same, as far as it can be followed: to an element of what is not computed by element, if it comes to that."""
    while isinstance(scalar.value.owner, ir.Block):
        place = operand_of(scalar)
        found = element(*place) if place is not None else None
        if found is None:
            return scalar
        scalar = found
    return scalar


def operand_of(scalar: Scalar) -> tuple[ir.Value, list[Index]] | None:
    """The tensor and position that a block argument of a structured op's body stands for."""
    op = scalar.value.owner.owner.operation
    if not is_structured(op):
        return None
    position = []
    for e in indexing_maps(op)[scalar.value.arg_number].results:
        if isinstance(e, ir.AffineConstantExpr):
            position.append(Index(e.value))
        elif isinstance(e, ir.AffineDimExpr):
            position.append(scalar.loops[e.position])
        else:
            return None
    return op.operands[scalar.value.arg_number], position


def through_views(scalar: Scalar) -> tuple[ir.Value, list[Index]] | None:
    """As `operand_of`, for what the tensor is a view of."""
    place = operand_of(scalar)
    while place is not None and (op := defining_op(place[0])) is not None and op.name in VIEWS:
        source = of_source(op, place[1])
        place = (op.operands[0], source) if source is not None else None
    return place

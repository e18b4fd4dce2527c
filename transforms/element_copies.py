"""What computes an element of a tensor, computed once more elsewhere, for other positions.

A condition of queries and keys, say, for keys that queries are given: the scalars are followed backwards through
element-wise ops, as for masks (online/positions.py), and copied into the body of another op, whose loops are the
dimensions that `Local`s stand for::

    %c = linalg.generic ins(%there) { %there_j and j <= i }       at j = i:   linalg.generic ins(%there) { %there_i }
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from ..dialects import build
from ..dialects.mlir import ir
from ..dialects.tiling import Index
from ..dialects.tiling.index import affine_map
from ..dialects.tiling.structured import is_structured
from .online.positions import Local, Scalar, follow_far, through_views
from .rewriting import defining_op
from .slices import extract

Place: TypeAlias = tuple[ir.Value, tuple[Index, ...]]  # of an element of a tensor


class CannotCopy(Exception):
    """What computes the element is not made of elements, positions and scalar ops alone."""


@dataclass(frozen=True)
class Reads:
    """What scalars are computed of: along which dimensions, values that are there outside of all bodies, and which
    elements of some of them."""

    dims: set[int] = field(default_factory=set)
    values: set[ir.Value] = field(default_factory=set)
    elements: dict[Place, None] = field(default_factory=dict)

    @staticmethod
    def of(scalars: Iterable[Scalar]) -> Reads:
        """CannotCopy if there is more to it."""
        found, seen = Reads(), set[Scalar]()
        for scalar in scalars:
            found._visit(scalar, seen)
        return found

    def _visit(self, scalar: Scalar, seen: set[Scalar]) -> None:
        scalar = follow_far(scalar)
        if scalar in seen:
            return
        seen.add(scalar)
        if not _is_in_body(scalar.value):
            self.values.add(scalar.value)
        elif (place := _place(scalar)) is not None:
            self.values.add(place[0])
            self.elements[place] = None
            self._add_forms(place[1])
        elif scalar.value.owner.operation.name == "linalg.index":
            self._add_forms([_position(scalar)])
        elif len(scalar.value.owner.operation.regions) or scalar.value.owner.operation.name == "tensor.extract":
            raise CannotCopy
        else:
            for number in range(len(scalar.value.owner.operation.operands)):
                self._visit(scalar.operand(number), seen)

    def _add_forms(self, forms: Iterable[Index]) -> None:
        for form in forms:
            for atom, _ in form.terms:
                if isinstance(atom, Local):
                    self.dims.add(atom.dim)
                elif isinstance(atom, ir.Value):
                    self.values.add(atom)
                else:
                    raise CannotCopy


def is_slice(place: Place) -> bool:
    """Whether what is read are elements of a tensor that are side by side."""
    local = [(atom.dim, c) for form in place[1] for atom, c in form.terms if isinstance(atom, Local)]
    apart = all(sum(isinstance(atom, Local) for atom, _ in form.terms) <= 1 for form in place[1])
    return apart and all(c == 1 for _, c in local) and len({d for d, _ in local}) == len(local)


def slice_along(place: Place, sizes: Mapping[int, ir.Value | int]) -> tuple[ir.Value, list[int]]:
    """These elements along dimensions of these sizes, at the insertion point, and which dimensions those of the slice
    are."""
    source, position = place
    offsets, lengths, dims = [], [], []
    for form in position:
        local = next((atom for atom, _ in form.terms if isinstance(atom, Local)), None)
        if local is not None:
            form = form.without(local)
            dims.append(local.dim)
        offsets.append(form.static if form.static is not None else _index(form, {}))
        lengths.append(1 if local is None else sizes[local.dim])
    static = [sizes[d] if isinstance(sizes[d], int) else ir.ShapedType.get_dynamic_size() for d in dims]
    kind = ir.RankedTensorType.get(static, source.type.element_type)
    return extract(kind, source, offsets, lengths, [1] * len(lengths)), dims


def copied(
    scalar: Scalar, elements: Mapping[Place, ir.Value], index: Callable[[int], ir.Value], known: dict[Scalar, ir.Value]
) -> ir.Value:
    """What `scalar` is, at the insertion point, where `elements` are those that it reads, and `index` gives the index
    along each dimension. `known`: what has been copied there, each once."""
    scalar = follow_far(scalar)
    if scalar not in known:
        known[scalar] = _copied(scalar, elements, index, known)
    return known[scalar]


def _copied(
    scalar: Scalar, elements: Mapping[Place, ir.Value], index: Callable[[int], ir.Value], known: dict[Scalar, ir.Value]
) -> ir.Value:
    if not _is_in_body(scalar.value):
        return scalar.value
    place = _place(scalar)
    if place is not None:
        return elements[place]
    op = scalar.value.owner.operation
    if op.name == "linalg.index":
        form = _position(scalar)
        return _index(form, {atom: index(atom.dim) for atom, _ in form.terms if isinstance(atom, Local)})
    operands = [copied(scalar.operand(number), elements, index, known) for number in range(len(op.operands))]
    copy = op.clone().operation
    for number, operand in enumerate(operands):
        copy.operands[number] = operand
    return copy.results[list(op.results).index(scalar.value)]


def _index(form: Index, known: Mapping[Local, ir.Value]) -> ir.Value:
    atoms = list(dict.fromkeys(atom for atom, _ in form.terms))
    values = [known[atom] if isinstance(atom, Local) else build.as_index(atom) for atom in atoms]
    attributes = {"map": affine_map([form], atoms)}
    return ir.Operation.create("affine.apply", [ir.IndexType.get()], values, attributes).result


def _is_in_body(value: ir.Value) -> bool:
    owner = value.owner
    parent = owner.owner if isinstance(owner, ir.Block) else owner.operation.parent
    return is_structured(parent.operation)


def _position(index: Scalar) -> Index:
    """Where a linalg.index is."""
    return index.loops[ir.IntegerAttr(index.value.owner.operation.attributes["dim"]).value]


def _place(scalar: Scalar) -> Place | None:
    """The element of a tensor that a block argument is; None for what is none."""
    if defining_op(scalar.value) is not None:
        return None
    place = through_views(scalar)
    if place is None or not isinstance(place[0].type, ir.RankedTensorType):
        raise CannotCopy
    return place[0], tuple(place[1])

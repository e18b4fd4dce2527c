"""The extents of tensors as index forms, read off the ops that make them; nothing is built."""

from __future__ import annotations

from ..dialects import build
from ..dialects.build import constant_value
from ..dialects.mlir import ir, tensor
from ..dialects.tiling import Index
from ..dialects.tiling.index import affine_map, reify_dim
from ..dialects.tiling.structured import dim_position, indexing_maps
from .linear import DYNAMIC, linear
from .reshapes import RESHAPES, source_dim
from .rewriting import carried_init, defining_op, ops_in

MIDDLING = 1024  # what a dynamic size is taken to be


def static_extents(op: ir.Operation) -> list[int | None]:
    """The extents of the loops of a structured op, None where dynamic."""
    maps = indexing_maps(op)
    extents: list[int | None] = [None] * maps[0].n_dims
    for operand, m in zip(op.operands, maps, strict=True):
        for size, expression in zip(operand.type.shape if m.results else [], m.results, strict=True):
            loop = dim_position(expression)
            if loop is not None and size != DYNAMIC:
                extents[loop] = size
    return extents


def extent_of(extents: list[int | None], loops: list[int], default: int) -> int:
    known = [extents[d] for d in loops]
    return max(1, known[0]) if known and known[0] is not None else default


def extent(value: ir.Value, d: int) -> Index | None:
    """Dimension `d` of `value`; None if it is dynamic and no op says it, or if there is none (see `check-sizes`)."""
    if not isinstance(value.type, ir.RankedTensorType) or not 0 <= d < value.type.rank:
        return None
    try:
        return _Reader().dim(value, d)
    except _Unknown:
        return None


def size_form(value: ir.Value | int) -> Index:
    """The linear form of a size; looks through tensor.dim where the extent is known."""
    return linear(value, _of_dim)


def _of_dim(value: ir.Value) -> Index | None:
    op = defining_op(value)
    if op is None or op.name != "tensor.dim":
        return None
    d = constant_value(op.operands[1])
    return None if d is None else extent(op.operands[0], int(d))


class _Unknown(Exception):
    pass


class _Reader:
    """Stands in for a TileBuilder where `reify_dim` asks for the extents of operands."""

    def dim(self, value: ir.Value, d: int) -> Index:
        size = value.type.shape[d]
        if size != DYNAMIC:
            return Index(size)
        if isinstance(value.owner, ir.Block):
            return self._of_argument(value, d)
        found = reify_dim(self, value.owner.operation, value, d)
        if found is None:
            raise _Unknown
        return sum((size_form(v).scaled(c) for v, c in found.terms), Index(found.const))

    def _of_argument(self, value: ir.Value, d: int) -> Index:
        """Loops carry tensors of the extents that they start from."""
        init = carried_init(value)
        if init is None:
            raise _Unknown
        return self.dim(init, d)


def known_sizes(value: ir.Value) -> list[int | ir.Value]:
    """The sizes of a tensor, as the ops that make it have them, so that a bound on them can be seen."""
    sizes: list[int | ir.Value] = []
    while (op := defining_op(value)) is not None and op.name == "scf.for":  # what it carries keeps its sizes
        value = op.operands[3 + ir.OpResult(value).result_number]
    for d in range(value.type.rank):
        if not value.type.is_dynamic_dim(d):
            sizes.append(value.type.get_dim_size(d))
            continue
        sizes.append(_index_value(extent(value, d)) or tensor.dim(value, build.index(d)))
    return sizes


def size_value(value: ir.Value, d: int) -> ir.Value:
    """A size, at the insertion point, as the ops have it that make the tensor: who asks is then no user of that."""
    form = extent(value, d)
    return _index_value(form) or computed(form) or tensor.dim(value, build.index(d))


def read_sizes(op: ir.Operation) -> None:
    """tensor.dim of what ops in `op` make becomes the size that it was made with, and of a reshaped argument a size of
    that: who asks for a size is then no user of the tensor, and equal sizes are one value, or the same formula."""
    for dim in ops_in(op, "tensor.dim"):
        d = constant_value(dim.operands[1])
        source = defining_op(dim.operands[0])
        form = None if d is None or source is None else extent(dim.operands[0], int(d))
        with ir.InsertionPoint(dim), dim.location:
            known = _index_value(form) or computed(form)
            if known is None and source is not None and d is not None:
                known = _of_reshaped(dim.operands[0], int(d))
        if known is not None:
            dim.results[0].replace_all_uses_with(known)
            dim.erase()


def _of_reshaped(value: ir.Value, d: int) -> ir.Value | None:
    """The size of a dimension that reshapes leave as it is, of the tensor before them, at the insertion point."""
    before, at = value, d
    while (op := defining_op(before)) is not None and op.name in RESHAPES:
        found = source_dim(op, at)
        if found is None:
            break
        before, at = op.operands[0], found
    return None if before == value else tensor.dim(before, build.index(at))


def computed(form: Index | None) -> ir.Value | None:
    """A number, or a form of several values or of a multiple of one, as a value at the insertion point."""
    if form is None or not all(isinstance(v.type, ir.IndexType) for v, _ in form.terms):
        return None
    if not form.terms:
        return build.index(form.const)
    values = [v for v, _ in form.terms]
    applied = {"map": affine_map([form], values)}
    return ir.Operation.create("affine.apply", [ir.IndexType.get()], values, applied).result


def lift_sizes(op: ir.Operation) -> None:
    """tensor.dim in the body of a linalg op goes before the op, where kernels and loops over tiles can take it."""
    for dim in ops_in(op, "tensor.dim"):
        outer = dim.parent.operation
        while outer.name == "scf.if":
            outer = outer.parent.operation
        d = constant_value(dim.operands[1])
        if outer.name.startswith("linalg.") and d is not None:
            with ir.InsertionPoint(outer), dim.location:
                size = tensor.dim(dim.operands[0], build.index(int(d)))
            dim.results[0].replace_all_uses_with(size)
            dim.erase()


def _index_value(form: Index | None) -> ir.Value | None:
    """The value of type index that `form` is; forms look through casts, to integers of other types."""
    known = form.terms[0][0] if form is not None and form.is_value else None
    return known if known is not None and isinstance(known.type, ir.IndexType) else None

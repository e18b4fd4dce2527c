"""Tiles from memory that have several users: what is rows for one may be columns for another, as in x · xᵀ."""

from __future__ import annotations

from ...dialects.mlir import ir
from ...dialects.tiling.structured import is_structured
from ..attention import is_elementwise, is_matmul
from ..reshapes import VIEWS
from ..rewriting import defining_op, is_inside, is_made_inside, ops_in
from .axes import Axes, TwoRoles


def own_rows(op: ir.Operation) -> None:
    """Gives each matmul in `op` a left operand that is no right one, if it comes from memory::

        %x = tensor.extract_slice %arg0[%i, 0] [100, 64] [1, 1] : …
        %s = linalg.generic … ins(%x, %x) …
    becomes
        %rows = tensor.extract_slice %arg0[%i, 0] [100, 64] [1, 1] : …
        %x = tensor.extract_slice %arg0[%i, 0] [100, 64] [1, 1] : …
        %s = linalg.generic … ins(%rows, %x) …

    Views and element-wise ops between memory and the matmul are copied with it. So are vectors, and what they are made
    by, for every element-wise op that reads them, and for each of its operands: sums up to the row and up to the
    column, as in c[i] − c[j], or the numbers of chunks that a row and a column are in.
    """
    matmuls = list(filter(is_matmul, ops_in(op)))
    columns: set[ir.Value] = set()
    for matmul in matmuls:
        _collect(matmul.operands[1], op, columns)
    for matmul in matmuls:
        if _is_loaded(matmul.operands[0], op):
            _own(matmul, 0, op, columns)
    read: set[ir.Value] = set()
    for user in ops_in(op) if matmuls else ():  # elsewhere vectors tell which dimensions are the same
        if not is_structured(user) or not is_elementwise(user):
            continue
        for number, value in enumerate(list(user.operands)[: -len(user.results) or None]):
            made = _vector(value, op)
            if made and value in read:
                _own(user, number, op, made)
            read |= made


def axes_of(forall: ir.Operation, roles: bool = True) -> Axes:
    """The axes of a loop's tiles. Where one of them would be two, such as the columns of a residual and what the matmul
    sums over that it is added to, each op first reads memory for itself, as a slice of its own::

        %m = linalg.generic … ins(%x, %a) { matmul }                %0 = tensor.extract_slice %x[0, 0] [64, 64] [1, 1]
        %y = linalg.generic … ins(%m, %x) { m + x }     becomes     %m = linalg.generic … ins(%0, %a) …
    """
    try:
        return Axes(forall, roles)
    except TwoRoles:
        _read_apart(forall)
        return Axes(forall, roles)


def _read_apart(forall: ir.Operation) -> None:
    read: set[ir.Value] = set()
    for op in filter(is_structured, ops_in(forall)):
        for number, value in enumerate(op.operands):
            if not isinstance(value.type, ir.RankedTensorType) or not value.type.rank:
                continue
            *views, _ = _chain(value, forall)
            if not read.isdisjoint(views):
                _own(op, number, forall, {*views})
            elif value in read and value.type.has_static_shape and not is_made_inside(value, forall):
                op.operands[number] = _whole(value, op)
            read |= {value, *views}


def _chain(value: ir.Value, within: ir.Operation) -> list[ir.Value]:
    """`value`, and what it is a view of, one view after the other."""
    found = [value]
    while (op := defining_op(found[-1])) is not None and op.name in VIEWS and is_inside(op, within):
        found.append(op.operands[0])
    return found


def _vector(value: ir.Value, within: ir.Operation) -> set[ir.Value]:
    """A vector, or a single element, that only views and element-wise ops stand between memory and, and what these make
    it of; nothing where `value` is something else."""
    found: set[ir.Value] = set()
    if not isinstance(value.type, ir.RankedTensorType) or sum(size != 1 for size in value.type.shape) > 1:
        return found
    if _is_loaded(value, within):
        _collect(value, within, found)
    return found


def _collect(value: ir.Value, within: ir.Operation, found: set[ir.Value]) -> None:
    """Adds `value`, and what views and element-wise ops make it of."""
    op = defining_op(value)
    if value in found or not isinstance(value.type, ir.RankedTensorType):
        return
    found.add(value)
    if op is not None and is_inside(op, within) and _is_loaded(value, within):
        for operand in op.operands:
            _collect(operand, within, found)


def _is_loaded(value: ir.Value, within: ir.Operation) -> bool:
    """Whether only views and element-wise ops stand between memory and `value`, a tile."""
    pending, seen = [value], {value}
    while pending:
        one = pending.pop()
        op = defining_op(one)
        if not isinstance(one.type, ir.RankedTensorType) or op is None or not is_inside(op, within):
            continue
        if op.name not in ("tensor.extract_slice", "tensor.empty", "tile.load") and not is_elementwise(op):
            return False
        pending += (v for v in op.operands if v not in seen)
        seen.update(op.operands)
    return True


def _own(user: ir.Operation, number: int, within: ir.Operation, columns: set[ir.Value]) -> None:
    """Gives an operand, and all that it is made of, copies of what `columns` need as well."""
    _owned(user, number, within, columns, {}, set())


def _owned(
    user: ir.Operation,
    number: int,
    within: ir.Operation,
    columns: set[ir.Value],
    copies: dict[ir.Operation, ir.Operation],
    done: set[ir.Operation],
) -> None:
    value = user.operands[number]
    if not isinstance(value.type, ir.RankedTensorType):
        return
    op = defining_op(value)
    if op is None or not is_inside(op, within):
        if value in columns and user.name != "tensor.extract_slice" and value.type.has_static_shape:
            user.operands[number] = _whole(value, user)
        return
    if value in columns:
        if op not in copies:
            with ir.InsertionPoint(op):
                copies[op] = op.clone().operation
        user.operands[number] = copies[op].results[list(op.results).index(value)]
        op = copies[op]
    if op not in done:
        done.add(op)
        for i in range(len(op.operands)):
            _owned(op, i, within, columns, copies, done)


def _whole(value: ir.Value, user: ir.Operation) -> ir.Value:
    """A slice of memory that is all of it, for this user alone."""
    shape = list(value.type.shape)
    attributes = {
        "static_offsets": ir.DenseI64ArrayAttr.get([0] * len(shape)),
        "static_sizes": ir.DenseI64ArrayAttr.get(shape),
        "static_strides": ir.DenseI64ArrayAttr.get([1] * len(shape)),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 0, 0, 0]),
    }
    with ir.InsertionPoint(user), user.location:
        return ir.Operation.create("tensor.extract_slice", [value.type], [value], attributes).result

"""Reshapes around and in kernels: those that add or drop dimensions of one element; those of results."""

from __future__ import annotations

from ...dialects import build
from ...dialects.mlir import ir
from ..passes import PassError

DYNAMIC = ir.ShapedType.get_dynamic_size()
RESHAPES = ("tensor.expand_shape", "tensor.collapse_shape")


def source_dims(op: ir.Operation) -> list[int | None]:
    """For each dimension of a reshape's result the one of its operand that it is; None: it has one element, and is new.

    A PassError where a dimension is split, or several become one.
    """
    source, result = op.operands[0].type, op.results[0].type
    groups = [[ir.IntegerAttr(d).value for d in group] for group in op.attributes["reassociation"]]
    expands = op.name == "tensor.expand_shape"
    wide = result if expands else source
    found: list[int | None] = [None] * result.rank
    for narrow_dim, group in enumerate(groups):
        large = [d for d in group if wide.shape[d] != 1] or group[-1:]
        if len(large) != 1:
            raise PassError("a dimension of a tile is split, or several become one: not lowered for GPUs", op)
        if expands:
            found[large[0]] = narrow_dim
        else:
            found[narrow_dim] = large[0]
    return found


def only_units(op: ir.Operation) -> bool:
    """Whether a reshape does nothing but to add or drop dimensions of one element."""
    try:
        source_dims(op)
    except PassError:
        return False
    return True


def reshape_undone(op: ir.Operation) -> ir.Value:
    """What a reshape gives; where it undoes others, the tensor before them all."""
    kind, before = op.results[0].type, _reshape_before(op)
    inverse = before is not None and before.name != op.name
    if inverse and before.attributes["reassociation"] == op.attributes["reassociation"]:
        return before.operands[0] if before.operands[0].type == kind else op.results[0]
    while before is not None and only_units(op) and only_units(before):
        if before.operands[0].type == kind:
            return before.operands[0]
        before = _reshape_before(before)
    return op.results[0]


def simplified(value: ir.Value) -> ir.Value:
    """What a reshape, just made, gives; without it where it undoes others."""
    made = value.owner.operation
    before = reshape_undone(made)
    if before != value:
        made.erase()
    return before


def replace_if_undone(op: ir.Operation) -> bool:
    """Takes a reshape away that undoes others; whether it does."""
    before = reshape_undone(op)
    if before == op.results[0]:
        return False
    op.results[0].replace_all_uses_with(before)
    op.erase()
    return True


def _reshape_before(op: ir.Operation) -> ir.Operation | None:
    owner = op.operands[0].owner
    return None if isinstance(owner, ir.Block) or owner.name not in RESHAPES else owner.operation


def only_collapse(result: ir.Value) -> ir.Operation | None:
    """The tensor.collapse_shape that is all that reads a result: its own result may be what is allocated."""
    users = [use.owner.operation for use in result.uses]
    return users[0] if len(users) == 1 and users[0].name == "tensor.collapse_shape" else None


def allocated(sizes: list[ir.Value | int], kind: ir.Type, reshape: ir.Operation | None) -> ir.Value:
    """Memory for a result of those sizes, or for what `reshape` makes of it."""
    shape = kind.shape
    if reshape is not None:
        shape, wide, sizes = reshape.results[0].type.shape, sizes, []
        for group in _groups(reshape):
            total = wide[group[0]]
            for d in group[1:]:
                total = _product(total, wide[d])
            sizes.append(total)
    dynamic = [s for s, known in zip(sizes, shape, strict=True) if known == DYNAMIC]
    dynamic = [build.as_index(s) for s in dynamic]
    plain = ir.MemRefType.get(shape, kind.element_type)
    segments = ir.DenseI32ArrayAttr.get([len(dynamic), 0])
    return ir.Operation.create("memref.alloc", [plain], dynamic, {"operandSegmentSizes": segments}).result


def _groups(reshape: ir.Operation) -> list[list[int]]:
    return [[ir.IntegerAttr(d).value for d in group] for group in reshape.attributes["reassociation"]]


def _product(a: ir.Value | int, b: ir.Value | int) -> ir.Value | int:
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    factors = [build.as_index(v) for v in (a, b)]
    return ir.Operation.create("arith.muli", [ir.IndexType.get()], factors).result


def expanded(memory: ir.Value, kind: ir.Type, sizes: list[ir.Value | int], reshape: ir.Operation) -> ir.Value:
    """Memory that was allocated for what `reshape` makes, in the shape before it."""
    dynamic = [s for s in sizes if isinstance(s, ir.Value)]
    static = [DYNAMIC if isinstance(s, ir.Value) else s for s in sizes]
    attributes = {
        "reassociation": reshape.attributes["reassociation"],
        "static_output_shape": ir.DenseI64ArrayAttr.get(static),
    }
    wide = ir.MemRefType.get(kind.shape, kind.element_type)
    return ir.Operation.create("memref.expand_shape", [wide], [memory, *dynamic], attributes).result

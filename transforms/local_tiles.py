"""One iteration's tile of a tensor that a loop carries: computed with in place of the whole."""

from collections.abc import Sequence

from ..dialects import build
from ..dialects.mlir import ir, scf
from .extents import extent, size_form
from .parallel_nest import SLICES, Access
from .rewriting import ancestors, defining_op
from .slices import extract, insert, slice_parts, split


def index_ops_first(loop: scf.ForallOp | scf.ForOp, values: Sequence[ir.Value | int]) -> ir.Operation:
    """Moves what computes `values` to the top of the body; returns the first op after them."""
    first = loop.body.operations[0].operation
    moved: list[ir.Operation] = []

    def move(value: ir.Value | int) -> None:
        nonlocal first
        op = None if isinstance(value, int) else defining_op(value)
        if op is None or op in moved or not any(a == loop.operation for a in ancestors(op)):
            return
        for operand in op.operands:
            move(operand)
        moved.append(op)
        if op == first:
            following = list(loop.body.operations)
            first = following[[o.operation for o in following].index(op) + 1].operation
        else:
            op.move_before(first)

    for value in values:
        move(value)
    return first


def tile_of(out: ir.Value, accesses: Sequence[Access], anchor: ir.Operation) -> tuple[list, list]:
    """Offsets and sizes of the tile of `out` that these accesses say, made before `anchor`."""
    kind = out.type
    offsets: list = [0] * kind.rank
    with ir.InsertionPoint(anchor), anchor.location:
        sizes: list = build.mixed_sizes(out)
    for access in accesses:
        offsets[access.dim], sizes[access.dim] = access.offset, access.size
    return offsets, sizes


def slice_of(out: ir.Value, offsets: list, sizes: list, dropped: set[int], anchor: ir.Operation) -> ir.Value:
    """That tile, without the dimensions `dropped`."""
    kind = ir.RankedTensorType.get(split(_without(dropped, sizes))[1], out.type.element_type)
    with ir.InsertionPoint(anchor), anchor.location:
        return extract(kind, out, offsets, sizes, [1] * len(offsets))


def _without(dims: set[int], parts: list) -> list:
    return [part for d, part in enumerate(parts) if d not in dims]


def _is_whole(value: ir.Value, user: ir.Operation, offsets: list, sizes: list, strides: list) -> bool:
    """Whether a slice of `value` is all of it; what is inserted must not be sliced or looped over in its turn."""
    if user.name == "tensor.insert_slice" and any(u.owner.operation.name != "scf.yield" for u in user.results[0].uses):
        return False
    part = user.results[0] if user.name == "tensor.extract_slice" else user.operands[0]
    return (
        part.type == value.type
        and all(isinstance(o, int) and o == 0 for o in offsets)
        and all(isinstance(t, int) and t == 1 for t in strides)
        and all(size_form(s) == extent(value, d) for d, s in enumerate(sizes))
    )


def localize(value: ir.Value, final: ir.Value, dims: set[int], dropped: set[int]) -> ir.Value:
    """Rewrites all slices of `value`, now a tile, and of what becomes of it: offset 0 along `dims`; the tile is without
    the dimensions `dropped`.

    `final` is one of the values that the tensor becomes; returns what stands in its place.
    """
    pending = [value]
    while pending:
        version = pending.pop()
        for use in list(version.uses):
            user, number = use.owner.operation, use.operand_number
            if SLICES.get(user.name) == number:
                offsets, sizes, strides = slice_parts(user)
                offsets = [0 if d in dims else o for d, o in enumerate(offsets)]
                offsets, sizes, strides = (_without(dropped, part) for part in (offsets, sizes, strides))
                with ir.InsertionPoint(user), user.location:
                    if _is_whole(version, user, offsets, sizes, strides):
                        new = version if user.name == "tensor.extract_slice" else user.operands[0]
                        if user.name == "tensor.insert_slice":
                            final = new if user.results[0] == final else final
                    elif user.name == "tensor.extract_slice":
                        new = extract(user.results[0].type, version, offsets, sizes, strides)
                    else:
                        new = insert(user.operands[0], version, offsets, sizes, strides)
                        pending.append(new)
                        final = new if user.results[0] == final else final
                user.results[0].replace_all_uses_with(new)
                user.erase()
            elif user.name == "scf.for" and number >= 3:
                for carried in (user.opview.inner_iter_args[number - 3], user.results[number - 3]):
                    carried.set_type(version.type)
                    pending.append(carried)
    return final

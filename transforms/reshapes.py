"""Views of tensors, which move elements and compute nothing; of those that reshape: what they do, and building them."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence

from ..dialects import build
from ..dialects.mlir import ir, tensor
from ..dialects.tiling.structured import dim_position
from ..dialects.tiling.tensor_ops import reassociation
from .graph import ancestor_in
from .linear import DYNAMIC
from .slices import Size, split

RESHAPES = ("tensor.expand_shape", "tensor.collapse_shape")
VIEWS = ("tensor.cast", "tensor.extract_slice", *RESHAPES)


def readers(value: ir.Value, block: ir.Block, views: Collection[str] = VIEWS) -> Iterator[ir.Operation]:
    """The ops of a block that read a tensor, or such a view of it."""
    for use in value.uses:
        user = ancestor_in(use.owner, block)
        if user is not None and user.name in views:
            yield from readers(user.results[0], block, views)
        elif user is not None:
            yield user


def source_dims(op: ir.Operation) -> list[int | None] | None:
    """For each dimension of a reshape's result the one of its operand that it is, None where it has one element and is
    new; None for all where a dimension is split, or several become one."""
    source, result = op.operands[0].type, op.results[0].type
    expands = op.name == "tensor.expand_shape"
    wide = result if expands else source
    found: list[int | None] = [None] * result.rank
    for narrow_dim, group in enumerate(reassociation(op)):
        large = [d for d in group if wide.shape[d] != 1] or group[-1:]
        if len(large) != 1:
            return None
        if expands:
            found[large[0]] = narrow_dim
        else:
            found[narrow_dim] = large[0]
    return found


def source_dim(op: ir.Operation, d: int) -> int | None:
    """The dimension of a reshape's operand that dimension `d` of its result is, whatever becomes of the others; None
    where it is new, split or made of several."""
    groups = reassociation(op)
    if op.name == "tensor.collapse_shape":
        large = [s for s in groups[d] if op.operands[0].type.shape[s] != 1] or groups[d][-1:]
        return large[0] if len(large) == 1 else None
    at = next(i for i, group in enumerate(groups) if d in group)
    return at if all(op.results[0].type.shape[other] == 1 for other in groups[at] if other != d) else None


def only_units(op: ir.Operation) -> bool:
    """Whether a reshape does nothing but to add or drop dimensions of one element."""
    return source_dims(op) is not None


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


def reshape(value: ir.Value, groups: Sequence[Sequence[Size]], expand: bool) -> ir.Value:
    """expand_shape (or collapse_shape) between `value` and the sizes `groups`, one group per collapsed dimension."""
    numbers = iter(range(sum(map(len, groups))))
    dims = [[next(numbers) for _ in group] for group in groups]
    kind = ir.RankedTensorType(value.type)
    dynamic, static = split([size for group in groups for size in group])
    collapsed = []
    for group in dims:
        sizes = [(static if expand else kind.shape)[d] for d in group]
        collapsed.append(DYNAMIC if DYNAMIC in sizes else math.prod(sizes))
    flattened = ir.RankedTensorType.get(collapsed, kind.element_type, kind.encoding)
    if not expand:
        return tensor.CollapseShapeOp(flattened, value, dims).result
    if flattened != kind:  # the graph says of one form what the type of the other leaves open
        value = tensor.cast(flattened, value)
    result = ir.RankedTensorType.get(static, kind.element_type, kind.encoding)
    return tensor.ExpandShapeOp(result, value, dims, dynamic, static).result


def can_join(maps: Iterable[ir.AffineMap], groups: Sequence[Sequence[int]]) -> bool:
    """Whether loops can become one for each of `groups`: operands are read in the loops' own places, or in those of
    loops that stay alone."""
    whole = {group[0] for group in groups if len(group) == 1}
    return all(m == ir.AffineMap.get_identity(m.n_dims) or {dim_position(e) for e in m.results} <= whole for m in maps)


def joined_operand(value: ir.Value, m: ir.AffineMap, groups: Sequence[Sequence[int]]) -> tuple[ir.Value, ir.AffineMap]:
    """An operand of loops that become one for each of `groups` (`can_join`), and how these read it."""
    n = len(groups)
    if m == ir.AffineMap.get_identity(m.n_dims):
        joined = reshape(value, [[1] * len(group) for group in groups], expand=False)
        return simplified(joined), ir.AffineMap.get_identity(n)
    loops = {d: number for number, group in enumerate(groups) for d in group}
    return value, build.projection(n, [loops[dim_position(e)] for e in m.results])


def join_dims(value: ir.Value, first: int, count: int) -> ir.Value:
    """`value` with `count` dimensions from `first` on as one."""
    rest = value.type.rank - first - count
    return reshape(value, [[1]] * first + [[1] * count] + [[1]] * rest, expand=False)


def drop_units(value: ir.Value, unit: Sequence[bool]) -> ir.Value:
    """`value` without the dimensions that are marked, all of size 1."""
    groups: list[list[int]] = []
    pending: list[int] = []
    for is_unit in unit:
        pending.append(1)
        if not is_unit:
            groups.append(pending)
            pending = []
    if groups:
        groups[-1] += pending
    return reshape(value, groups, expand=False)


def with_units(value: ir.Value, sizes: Sequence[Size], units: Sequence[bool]) -> ir.Value:
    """A tensor of `sizes` with dimensions of one element more, where `units` says so."""
    if not any(units):
        return value
    left = iter(sizes)
    groups: list[list[Size]] = []
    pending: list[Size] = []
    for is_unit in units:
        if is_unit:
            (groups[-1] if groups else pending).append(1)
        else:
            groups.append([*pending, next(left)])
            pending = []
    if not groups:  # a single element
        result = ir.RankedTensorType.get(pending, value.type.element_type, value.type.encoding)
        return tensor.ExpandShapeOp(result, value, [], [], pending).result
    return reshape(value, groups, expand=True)

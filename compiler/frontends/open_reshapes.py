"""Reshapes to computed sizes as the views that they are.

  %y = tensor.reshape %x(%shape) : (tensor<?x64xf32>, tensor<3xi64>) -> tensor<?x?x64xf32>   // %shape = [%b, %s, 64]
becomes
  %y = tensor.expand_shape %x [[0, 1], [2]] output_shape [%b, %s, 64] : tensor<?x64xf32> into tensor<?x?x64xf32>

which attention is traced through, and which moves nothing. Sizes at both ends that are equal are kept as dimensions;
what lies between is merged, split, or both.
"""

import math
from collections.abc import Sequence

from ...dialects.build import constant_value
from ...dialects.mlir import arith, ir
from ...transforms.extents import extent, size_form
from ...transforms.linear import DYNAMIC
from ...transforms.reshapes import reshape
from ...transforms.rewriting import defining_op
from .lowering import ops
from .open_sizes import settle


def to_views(module: ir.Module) -> None:
    """Replaces all tensor.reshape of `module` whose sizes are listed."""
    settle(module)
    for op in ops(module):
        if op.name == "tensor.reshape":
            with ir.InsertionPoint(op), op.location:
                view = _view(op)
            if view is not None:
                op.results[0].replace_all_uses_with(view)
                op.erase()


def _view(op: ir.Operation) -> ir.Value | None:
    """The reshape by expand_shape and collapse_shape; None if its sizes are not known one by one."""
    source, shape = op.operands
    target = op.results[0].type
    listed = defining_op(shape)
    if listed is None or listed.name != "tensor.from_elements" or not source.type.has_rank:
        return None
    sizes = [
        _as_index(value) if static == DYNAMIC else static
        for value, static in zip(listed.operands, target.shape, strict=True)
    ]
    first, last = _kept(source, sizes)
    inner = range(first, source.type.rank - last)
    wanted = sizes[first : len(sizes) - last]
    dims = [source.type.shape[d] for d in range(source.type.rank)]
    if len(inner) > 1:
        merged = math.prod(dims[d] for d in inner) if DYNAMIC not in [dims[d] for d in inner] else DYNAMIC
        groups = [[d] for d in dims[:first]] + [[dims[d] for d in inner]] + [[d] for d in dims[len(dims) - last :]]
        source = reshape(source, groups, expand=False)
        dims[first : len(dims) - last] = [merged]
    if not inner or not wanted:
        return source if not inner and not wanted and source.type == target else None
    if len(wanted) > 1:
        groups = [[s] for s in sizes[:first]] + [wanted] + [[s] for s in sizes[len(sizes) - last :]]
        source = reshape(source, groups, expand=True)
    return source if source.type == target else None


def _as_index(value: ir.Value) -> ir.Value:
    return value if isinstance(value.type, ir.IndexType) else arith.index_cast(ir.IndexType.get(), value)


def _kept(source: ir.Value, sizes: Sequence[int | ir.Value]) -> tuple[int, int]:
    """How many dimensions at the start, and at the end, stay as they are; one at least is left between, of each."""
    rank = source.type.rank
    most = min(rank, len(sizes)) - 1
    first = last = 0
    while first < most and _is_size_of(sizes[first], source, first):
        first += 1
    while last < most - first and _is_size_of(sizes[-1 - last], source, rank - 1 - last):
        last += 1
    return first, last


def _is_size_of(size: int | ir.Value, source: ir.Value, d: int) -> bool:
    """Whether a size is that of dimension `d`."""
    own = source.type.shape[d]
    if own != DYNAMIC or isinstance(size, int):
        return own == size
    known = extent(source, d)
    if known is not None:
        return known == size_form(size)
    form = size_form(size)
    made = defining_op(form.terms[0][0]) if form.is_value else None
    return (
        made is not None
        and made.name == "tensor.dim"
        and made.operands[0] == source
        and constant_value(made.operands[1]) == d
    )

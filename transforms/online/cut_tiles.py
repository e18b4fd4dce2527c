"""Sizes of tiles that the end of a loop may cut, and taking the tile that is cut off the loop."""

from ...dialects import build
from ...dialects.mlir import ir
from ...dialects.tiling import Index
from ..linear import linear, minima
from ..rewriting import defining_op, ops_in
from .tile_forms import is_never_negative


def narrow_types(loop: ir.Operation) -> list[ir.Type]:
    """The types of narrow floats of which tensors are made, or read, in the loop."""
    kinds = [v.type for o in ops_in(loop) for v in o.results if isinstance(v.type, ir.RankedTensorType)]
    return [kind for kind in dict.fromkeys(kind.element_type for kind in kinds) if build.is_narrow(kind)]


def cut_sizes(loop: ir.Operation, step: int) -> list[ir.Operation]:
    """The sizes of tiles: min(step, n − i), with an n that the loop does not go beyond."""
    iv = loop.regions[0].blocks[0].arguments[0]
    found = []
    for cut in dict.fromkeys(u.owner.operation for u in iv.uses if u.owner.operation.name == "affine.min"):
        forms = minima(cut.results[0])
        rest = [form for form in forms if form.static is None]
        if len(rest) != 1 or len(forms) != 2 or Index(step) not in forms or rest[0].coefficient(iv) != -1:
            continue
        if _is_at_most(loop.operands[1], rest[0].without(iv)):
            found.append(cut)
    return found


def take_off_last(loop: ir.Operation, end: ir.Value, cuts: list[ir.Operation], step: int) -> ir.Operation:
    """Lets the loop go on to `end` alone, before its last tile, which alone has other `cuts` than `step`: a copy of the
    loop after it, which has that tile."""
    with ir.InsertionPoint.after(loop):
        tail = loop.clone().operation
    for old, new in zip(loop.results, tail.results, strict=True):
        old.replace_all_uses_with(new)
    loop.operands[1] = tail.operands[0] = end
    for i, result in enumerate(loop.results):
        tail.operands[3 + i] = result
    for cut in cuts:
        with ir.InsertionPoint(cut), cut.location:
            cut.results[0].replace_all_uses_with(build.index(step))
        cut.erase()
    return tail


def _is_at_most(value: ir.Value, bound: Index) -> bool:
    """Whether `value`, which minima and maxima are taken of, is seen to be `bound` at most."""
    difference = (bound - linear(value)).static
    if difference is not None:
        return difference >= 0
    if linear(value).static == 0 and is_never_negative(bound):
        return True
    op = defining_op(value)
    if op is not None and op.name == "arith.select":
        return all(_is_at_most(x, bound) for x in list(op.operands)[1:])
    if op is None or op.name not in ("affine.min", "affine.max"):
        return False
    map_ = op.attributes["map"].value
    known = []
    for e in map_.results:
        is_operand = isinstance(e, ir.AffineDimExpr | ir.AffineSymbolExpr)
        at = e.position + (map_.n_dims if isinstance(e, ir.AffineSymbolExpr) else 0) if is_operand else 0
        known.append(is_operand and _is_at_most(op.operands[at], bound))
    return any(known) if op.name == "affine.min" else all(known)

"""What is left to do behind loops over tiles: their results take the place of what was tiled."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from ..dialects.mlir import ir
from ..dialects.tiling import Index, Range, TileBuilder
from .graph import ancestor_in, is_pure, makers_of, move_users_after


def replace_by_results(
    outermost: ir.Operation, replacements: Sequence[tuple[ir.Value, int]], fused: Collection[ir.Operation]
) -> None:
    """Uses outside of the loops get these results of them. The users move behind the loops, where other blocks are
    already; `fused` ones are none."""
    inside = {*fused, outermost}
    for value, number in replacements:
        final = outermost.results[number]
        uses = [(use, ancestor_in(use.owner.operation, outermost.block)) for use in value.uses]
        outside = [(use, top) for use, top in uses if top is None or top not in inside]
        if not outside:
            continue
        move_users_after([top for _, top in outside if top is not None], outermost)
        if final.type != value.type:
            final = _first_state(final, value, outermost)
        for use, _ in outside:
            use.owner.operation.operands[use.operand_number] = final


def erase_dead(root: ir.Operation, erase: Callable[[ir.Operation], None]) -> None:
    """Erases the root if no one uses it any more, and what only it needed in its block."""
    block, pending = root.block, [root]
    while pending:
        op = pending.pop()
        if is_pure(op) and not any(True for r in op.results for _ in r.uses):
            makers = dict.fromkeys(makers_of(op, block))
            erase(op)
            pending += (maker for maker in makers if maker not in pending)


def _first_state(final: ir.Value, value: ir.Value, outermost: ir.Operation) -> ir.Value:
    """The state carried once per tile of loops that it does not depend on is the same for each: takes the first."""
    extra = final.type.rank - value.type.rank
    after = ir.InsertionPoint.after(outermost)
    builder = TileBuilder(after, outermost.block)
    with after:
        first = tuple(Range(Index(0), Index(1)) for _ in range(extra))
        rest = tuple(Range.everything(builder.dim(final, extra + d)) for d in range(value.type.rank))
        return builder.slice(final, first + rest, list(value.type.shape))


def fold_whole_slices(loops: Sequence[ir.Operation]) -> None:
    """``tensor.extract_slice`` of a whole tensor is the tensor."""
    for op in list(loops[-1].regions[0].blocks[0].operations):
        operation = op.operation
        if operation.name == "tensor.extract_slice" and operation.operands[0].type == operation.results[0].type:
            offsets = list(operation.opview.static_offsets)
            if operation.results[0].type.has_static_shape and not any(offsets):
                operation.results[0].replace_all_uses_with(operation.operands[0])
                operation.erase()

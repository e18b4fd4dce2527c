"""The tensors that a parallel loop computes tile by tile, and which of them can get another type in place."""

from collections.abc import Iterator

from ....dialects.mlir import ir
from ....dialects.tiling.structured import all_parallel
from ...reshapes import RESHAPES
from ...rewriting import ancestors, defining_op, for_body, is_inside, is_made_inside, ops_in, single_use, terminator
from ...slices import sole_insertion

CARRYING = ("scf.for", "scf.if")
MOVED = ("tensor.extract_slice", *RESHAPES, "affine.apply", "affine.min")  # out of loops, with what is made of them


def tile_values(loop: ir.Operation) -> Iterator[ir.Value]:
    """Results of the ops inside of `loop`, and what inner loops carry."""
    for op in ops_in(loop):
        yield from op.results
        if op.name == "scf.for":
            yield from op.regions[0].blocks[0].arguments


def can_change(value: ir.Value, loop: ir.Operation) -> bool:
    """True if the op inside of `loop` that makes `value` can make it of another element type, or in another layout."""
    if not isinstance(value.type, ir.RankedTensorType):
        return False
    if isinstance(value.owner, ir.Block):
        owner = value.owner.owner.operation
        return owner.name == "scf.for" and is_inside(owner, loop)
    op = value.owner.operation
    if not is_inside(op, loop):
        return False
    if op.name in ("linalg.generic", "tensor.empty", *CARRYING):
        return True
    if op.name in ("tensor.extract_slice", "tensor.insert_slice"):
        base = op.operands[1 if op.name == "tensor.insert_slice" else 0]
        same_rank = base.type.rank == value.type.rank == op.operands[0].type.rank
        return same_rank and can_change(base, loop)
    return False


def only_written(loop: ir.Operation) -> set[ir.Value]:
    """What loops inside of `loop` carry and only insert tiles into, and what is computed of that element by element:
    it is written, and read, once, as it will stand in memory."""
    found: set[ir.Value] = set()
    for op in ops_in(loop):
        if op.name == "scf.for":
            for i, result in enumerate(op.results):
                argument = for_body(op).arguments[1 + i]
                insertion = sole_insertion(argument)
                if insertion is not None:
                    found |= {result, argument, insertion.results[0], *_made_for(op, 3 + i)}
        elif op.name == "linalg.generic" and all_parallel(op):
            tensors = [v for v in list(op.operands)[: -len(op.results)] if isinstance(v.type, ir.RankedTensorType)]
            if tensors and all(v in found for v in tensors):
                outs = range(len(op.operands) - len(op.results), len(op.operands))
                found |= {*op.results, *(v for i in outs for v in _made_for(op, i))}
    return found


def _made_for(op: ir.Operation, number: int) -> list[ir.Value]:
    """The operand of this number, if it is an empty tensor made for nothing else."""
    value = op.operands[number]
    made = defining_op(value)
    return [value] if made is not None and made.name == "tensor.empty" and single_use(value) else []


def carried_pairs(op: ir.Operation) -> Iterator[tuple[ir.Value, ir.Value]]:
    """Values of scf.for and scf.if that are one tensor: a result, and what is carried or yielded for it."""
    if op.name == "scf.for":
        body = op.regions[0].blocks[0]
        end = terminator(body)
        for i, result in enumerate(op.results):
            yield result, op.operands[3 + i]
            yield result, body.arguments[1 + i]
            yield result, end.operands[i]
    else:
        for region in op.regions:
            for block in region.blocks:
                end = terminator(block)
                yield from zip(op.results, end.operands, strict=False)


def carried_uses(op: ir.Operation, result: ir.Value, other: ir.Value) -> Iterator[tuple[ir.Operation, int]]:
    """Where `other` is what the loop `op` starts `result` from, or what a region of `op` yields for it."""
    for use in list(other.uses):
        user, number = use.owner.operation, use.operand_number
        is_init = user == op and number - 3 == result.result_number
        is_yield = user.name == "scf.yield" and user.parent.operation == op and number == result.result_number
        if is_init or is_yield:
            yield user, number


def before(user: ir.Operation) -> ir.Operation:
    """The op in front of which a copy for `user` can stand."""
    return user.parent.operation if user.name == "tensor.parallel_insert_slice" else user


def hoisted(value: ir.Value, user: ir.Operation, loop: ir.Operation) -> ir.Operation:
    """The op to put a copy of `value` in front of: the outermost loop inside of `loop` in which it does not change.

    What is a view of something from outside, a slice or a reshape, is moved along. Out of a branch alone nothing moves:
    it may not be taken.
    """
    place = user
    for around in ancestors(user):
        if around == loop or around.name not in CARRYING:
            break
        views = _views(value, around)
        if views is None:
            break
        for op in views:
            op.move_before(around)
        if around.name == "scf.for":
            place = around
    return place


def _views(value: ir.Value, around: ir.Operation) -> list[ir.Operation] | None:
    """The ops in the loop `around` that make `value`, in order; None if there are others than views among them."""
    found: list[ir.Operation] = []
    pending = [value]
    while pending:
        current = pending.pop()
        if not is_made_inside(current, around):
            continue
        op = defining_op(current)
        if op is None or op.name not in MOVED:
            return None
        if op in found:
            found.remove(op)  # it is needed before what was found since
        found.insert(0, op)
        pending += op.operands
    return found

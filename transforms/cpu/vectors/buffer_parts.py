"""Parts of buffers: what they are parts of, where they start and end, and whether all tasks of a loop read them."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ....dialects import build
from ....dialects.build import constant_value
from ....dialects.mlir import ir, memref
from ...linear import linear, minima
from ...rewriting import ancestors, defining_op, is_inside, is_made_inside
from ...slices import plus, slice_parts, slice_sizes
from ..memory import VIEWS
from .multiples import Choice, choices, is_multiple
from .tile_panels import Extent

READERS = ("memref.dim", "memref.load", "vector.load", "vector.maskedload", "x86.amx.tile_load")


@dataclass(frozen=True)
class SharedPart:
    """A part of the buffer `root`, from `offsets` on, that tasks of a parallel loop read again and again.

    `fixed` are the dimensions in which it never moves: where it starts and how far it goes. `end` is how far the buffer
    is read along the dimension that is summed.
    """

    task: ir.Operation
    root: ir.Value
    offsets: list[Extent]
    fixed: dict[int, tuple[int, int]]
    end: Extent

    @property
    def key(self) -> tuple:
        """Equal for parts that one copy of the buffer serves."""
        return self.task, self.root, self.end, tuple(sorted(self.fixed.items()))


def shared_part(value: ir.Value, summed: int, units: dict[int, int]) -> SharedPart | None:
    """The buffer behind `value`, at the insertion point, if it is worth to be copied before the parallel loop around.

    None where there is no such loop, nothing to gain, or the part does not start at multiples of `units`, by dimension;
    of the one that is `summed` it has whole ones, too, or ends where the buffer is to be cut.
    """
    block = ir.InsertionPoint.current.block.owner.operation
    task = next((x for x in [block, *ancestors(block)] if x.name == "scf.parallel"), None)
    found = source_of(value)
    if task is None or found is None:
        return None
    root, offsets = found
    if not _is_outside(root, task) or not is_only_read(root, task) or not _is_reused(task, offsets):
        return None
    # What never moves is packed from its start on, as far as it goes.
    fixed = {
        d: (offset, value.type.get_dim_size(d))
        for d, offset in enumerate(offsets)
        if isinstance(offset, int) and not value.type.is_dynamic_dim(d)
    }
    if any(d not in fixed and not is_multiple(offsets[d], unit) for d, unit in units.items()):
        return None
    with ir.InsertionPoint(task), task.location:
        end = (
            fixed[summed][1] if summed in fixed else _end_of(value, summed, units[summed], root, offsets[summed], task)
        )
    return None if end is None else SharedPart(task, root, offsets, fixed, end)


@contextmanager
def hoisted(part: ir.Value, extents: Sequence[Extent], frame: ir.Operation) -> Iterator[None]:
    """Within it, ops go in front of the outermost loop of the task in which a part of a buffer does not change."""
    block = ir.InsertionPoint.current.block.owner.operation
    place = None
    chain = [op for op in _views(part) if is_inside(op, frame)]
    found = source_of(part)
    for loop in [block, *ancestors(block)]:
        if loop == frame or loop.name not in ("scf.for", "scf.if") or found is None:
            break
        if loop.name != "scf.for":
            continue
        own = [op for op in chain if is_inside(op, loop)]
        made = [r for op in own for r in op.results]
        used = [v for op in own for v in op.operands] + [x for x in extents if not isinstance(x, int)]
        outer = all(any(v == r for r in made) or not is_made_inside(v, loop) for v in used)
        if not outer or is_made_inside(found[0], loop) or not is_only_read(found[0], loop):
            break
        for op in reversed(own):
            op.move_before(loop)
        place = loop
    if place is None:
        yield
    else:
        with ir.InsertionPoint(place):
            yield


def _views(value: ir.Value) -> list[ir.Operation]:
    """The views through which `value` is a part of its buffer, the last one first."""
    found = []
    op = defining_op(value)
    while op is not None and op.name in ("memref.subview", "memref.cast"):
        found.append(op)
        op = defining_op(op.operands[0])
    return found


def source_of(value: ir.Value) -> tuple[ir.Value, list[Extent]] | None:
    """The buffer that `value` is a part of, and where in it the part starts; None for views of other kinds."""
    offsets: list[Extent] = [0] * value.type.rank
    op = defining_op(value)
    while op is not None and op.name in ("memref.subview", "memref.cast"):
        if op.name == "memref.subview":
            starts, sizes, steps = slice_parts(op)
            if len(sizes) != value.type.rank or any(step != 1 for step in steps):
                return None
            offsets = [plus(a, b) for a, b in zip(offsets, starts, strict=True)]
        value = op.operands[0]
        op = defining_op(value)
    return value, offsets


def _is_outside(value: ir.Value, loop: ir.Operation) -> bool:
    op = defining_op(value)
    holder = value.owner.owner.operation if op is None else op
    return holder.name == "func.func" if op is None else not is_inside(holder, loop)


def is_only_read(root: ir.Value, loop: ir.Operation) -> bool:
    """True if nothing inside of the loop writes to the buffer."""
    pending = [root]
    while pending:
        for use in pending.pop().uses:
            user = use.owner.operation
            if user.name in VIEWS:
                pending += list(user.results)
            elif is_inside(user, loop) and user.name not in READERS:
                inputs = len(user.opview.inputs) if user.name == "linalg.generic" else 0
                if use.operand_number >= inputs:
                    return False
    return True


def _is_reused(task: ir.Operation, offsets: Sequence[Extent]) -> bool:
    """True if tasks may read the same part: they differ in more than what the part's place depends on."""
    body = task.regions[0].blocks[0]
    count = len(body.arguments)
    bounds = [linear(v) for v in task.operands[: 3 * count]]
    used = {atom for offset in offsets for atom, _ in linear(offset).terms}
    free = []
    for i, iv in enumerate(body.arguments):
        if iv not in used:
            lower, upper, step = (bounds[i + j * count].static for j in range(3))
            known = None not in (lower, upper, step)
            free.append(math.inf if not known else -(-(upper - lower) // step))
    return any(trips > 1 for trips in free)


def _end_of(part: ir.Value, d: int, unit: int, root: ir.Value, offset: Extent, task: ir.Operation) -> Extent | None:
    """How far along `d` the buffer is to be packed, so that what the part lacks of whole units is zero; None: unknown.

    It is the end of all parts that are cut off, which must be known before the tasks.
    """
    whole = root.type.shape[d]
    if not part.type.is_dynamic_dim(d):
        if part.type.get_dim_size(d) % unit != 0:
            return None
        if not root.type.is_dynamic_dim(d):
            return whole
        cut = _end_of_cut(offset)  # with it, one copy serves whole tiles and the one that is cut
        return cut if cut is not None and _is_outside(cut, task) else memref.dim(root, build.index(d))
    size = size_of(part, d)
    for form in minima(size) if size is not None else ():
        end = form + linear(offset)
        if end.static is not None:
            return end.static
        if end.const == 0 and len(end.terms) == 1:
            ((term, factor),) = end.terms
            if factor == 1 and _is_outside(term, task):
                return term
    return None


def _end_of_cut(offset: Extent) -> ir.Value | None:
    """The end of a loop over tiles before its last, cut one was taken off; `offset` is the loop's variable.

    The loop goes to (end floordiv tile)·tile, or stops before.
    """
    if isinstance(offset, int) or not isinstance(offset.owner, ir.Block):
        return None
    loop = offset.owner.owner.operation
    ends = _rounded_ends(loop.operands[1]) if loop.name == "scf.for" else None
    return next(iter(ends)) if ends is not None and len(ends) == 1 else None


def _rounded_ends(bound: ir.Value) -> set[ir.Value] | None:
    """Numbers, rounded down to tiles, of which `bound` is at most the greatest; None: unknown."""
    if constant_value(bound) == 0:
        return set()
    op, among = defining_op(bound), choices(bound)
    is_select = op is not None and op.name == "arith.select"
    # One by one, up to one that decides: bounds refer to each other, over and over.
    found = map(_rounded_ends, list(op.operands)[1:]) if is_select else map(_of_choice, among)
    if op is not None and op.name == "affine.min":
        return next((ends for ends in found if ends is not None), None)
    numbers: set[ir.Value] | None = set() if is_select or among else None
    for ends in found:
        if ends is None:
            return None
        numbers |= ends
    return numbers


def _of_choice(choice: Choice) -> set[ir.Value] | None:
    e = choice.expression
    if choice.value is not None:
        return _rounded_ends(choice.value)
    if isinstance(e, ir.AffineConstantExpr) and e.value == 0:
        return set()
    if isinstance(e, ir.AffineMulExpr):
        rounded, tile = choice.of(e.lhs).expression, choice.of(e.rhs).expression
        if isinstance(rounded, ir.AffineFloorDivExpr) and choice.of(rounded.rhs).expression == tile:
            end = choice.of(rounded.lhs).value
            return None if end is None else {end}
    return None


def size_of(value: ir.Value, position: int) -> ir.Value | None:
    """The value of a dynamic size, where the op that makes the buffer tells."""
    op = defining_op(value)
    if op is None:
        return None
    if op.name == "memref.subview":
        sizes = slice_sizes(op)
        return sizes[position] if len(sizes) == value.type.rank else None
    if op.name in ("memref.view", "memref.alloc", "memref.alloca"):
        first = 2 if op.name == "memref.view" else 0
        return op.operands[first + sum(value.type.is_dynamic_dim(d) for d in range(position))]
    if op.name == "memref.cast" and op.operands[0].type.is_dynamic_dim(position):
        return size_of(op.operands[0], position)
    if op.name == "memref.collapse_shape":
        joined = [ir.IntegerAttr(d).value for d in ir.ArrayAttr(op.attributes["reassociation"][position])]
        return size_of(op.operands[0], joined[0]) if len(joined) == 1 else None
    return None

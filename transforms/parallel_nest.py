"""Which loops over tiles are parallel: those of which each iteration writes tiles of its own.

The proof, per loop-carried tensor: it is used by extract_slice and insert_slice alone (through nested loops too); all
of these have one offset along one dimension, c·iv + invariant with c > 0; and their size along it is at most c·step,
by a constant or by an affine.min. Or the offset is the iteration's number, iv floordiv step, and the size 1: the
statistics of softmax for each tile of columns of the values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..dialects.mlir import ir, scf
from ..dialects.tiling import Index
from .linear import linear, minima
from .rewriting import carried_init, defining_op, is_made_inside, ops_in, terminator
from .slices import Size, is_iteration_number, known_index, slice_parts

PURE_DIALECTS = ("ub", "arith", "math", "affine", "tensor", "linalg", "linalg_ext", "scf", "bufferization", "index")
SLICES = {"tensor.extract_slice": 0, "tensor.insert_slice": 1}  # operand number of the tensor that is sliced


@dataclass
class Access:
    """The slices of one loop-carried tensor that an iteration touches: where along which dimension; and whether they
    are without that dimension."""

    dim: int
    offset: ir.Value
    size: Size
    is_dropped: bool


@dataclass
class ParallelLoop:
    """A loop that was proven parallel, with the access to each of its iter_args; None where it is never written."""

    loop: scf.ForOp
    accesses: list[Access | None]


def parallel_nest(loop: scf.ForOp) -> list[ParallelLoop]:
    """The longest perfect nest of parallel loops from `loop` inwards; empty if `loop` is not parallel."""
    nest: list[ParallelLoop] = []
    while True:
        accesses = _prove(loop)
        if accesses is None:
            return nest
        taken = [{a.dim for p in nest if (a := p.accesses[i])} for i in range(len(accesses))]
        if any(a is not None and a.dim in dims for a, dims in zip(accesses, taken, strict=True)):
            return nest
        nest.append(ParallelLoop(loop, accesses))
        inner = _perfectly_nested(loop)
        if inner is None:
            return nest
        loop = inner


def _perfectly_nested(loop: scf.ForOp) -> scf.ForOp | None:
    """The one loop in `loop`'s body that takes its iter_args and yields its results, but for index arithmetic."""
    *body, end = loop.body.operations
    inner = [o for o in body if o.operation.name == "scf.for"]
    others = [o for o in body if o.operation.name != "scf.for"]
    if len(inner) != 1 or any(o.operation.name.split(".")[0] not in ("arith", "affine") for o in others):
        return None
    candidate = inner[0]
    bounds = list(candidate.operation.operands)[:3]
    if list(candidate.operation.operands)[3:] != list(loop.inner_iter_args):
        return None
    if list(end.operation.operands) != list(candidate.operation.results):
        return None
    if any(v == loop.induction_variable or defining_op(v) in [o.operation for o in others] for v in bounds):
        return None
    return candidate


def _prove(loop: scf.ForOp) -> list[Access | None] | None:
    """The access to each iter_arg if iterations are independent, else None."""
    if not isinstance(loop.induction_variable.type, ir.IndexType):
        return None
    if not loop.inner_iter_args or any(o.name.split(".")[0] not in PURE_DIALECTS for o in ops_in(loop.operation)):
        return None
    own = own_tiles(loop)
    # An unwritten argument is its init; if it is yielded unchanged it may be read in any way.
    yielded = list(terminator(loop.body).operands)
    if any(i not in own and yielded[i] != arg for i, arg in enumerate(loop.inner_iter_args)):
        return None
    return [own.get(i) for i in range(len(yielded))]


def own_tiles(loop: scf.ForOp) -> dict[int, Access]:
    """The access to each iter_arg, by number, of which every iteration reads and writes a tile that is its own."""
    yielded = list(terminator(loop.body).operands)
    own: dict[int, Access] = {}
    for i, arg in enumerate(loop.inner_iter_args):
        if yielded[i] != arg and isinstance(arg.type, ir.RankedTensorType):
            slices = _slices_of(arg, loop, i)
            access = _common_access(slices, loop) if slices else None
            if access is not None:
                own[i] = access
    return own


def _slices_of(arg: ir.Value, loop: scf.ForOp, position: int) -> list[ir.Operation] | None:
    """Every extract_slice and insert_slice on `arg` and on what becomes of it; None if there are other uses."""
    slices: list[ir.Operation] = []
    pending = [arg]
    while pending:
        version = pending.pop()
        for use in version.uses:
            user, number = use.owner.operation, use.operand_number
            if SLICES.get(user.name) == number:
                slices.append(user)
                if user.name == "tensor.insert_slice":
                    pending.append(user.results[0])
            elif user.name == "scf.for" and number >= 3:
                pending += [user.opview.inner_iter_args[number - 3], user.results[number - 3]]
            elif user.name == "scf.yield" and user.parent.operation.name == "scf.for":
                # A nested loop's result was queued with its iter_arg, if it carries this tensor; else give up.
                target = user.parent.operation
                if target == loop.operation:
                    if number != position:
                        return None
                elif not _carries(target, number, arg, loop):
                    return None
            else:
                return None
    return slices


def _carries(inner: ir.Operation, number: int, arg: ir.Value, loop: scf.ForOp) -> bool:
    """True if position `number` of a nested loop starts from a version of `arg`."""
    value = inner.operands[3 + number]
    while value != arg:
        op = defining_op(value)
        if op is None:
            if value.owner.owner.name != "scf.for" or value.owner == loop.body or carried_init(value) is None:
                return False
            value = carried_init(value)
        elif op.name == "tensor.insert_slice":
            value = op.operands[1]
        elif op.name == "scf.for":
            value = op.operands[3 + ir.OpResult(value).result_number]
        else:
            return False
    return True


def _common_access(slices: Sequence[ir.Operation], loop: scf.ForOp) -> Access | None:
    """The dimension along which all slices are the same, driven by the loop's induction variable."""
    iv = loop.induction_variable
    start, step = (known_index(loop.operation.operands[b]) for b in (0, 2))
    for dim, (offset, size, _) in enumerate(zip(*slice_parts(slices[0]), strict=True)):
        if not (_available(offset, loop) and _available(size, loop)):
            continue
        parts = [(o[dim], s[dim], t[dim]) for o, s, t in map(slice_parts, slices)]
        if start == 0 and all(s == 1 and is_iteration_number(o, iv, step) for o, s, _ in parts):
            return Access(dim, offset, size, all(map(_is_reduced, slices)))
        form = linear(offset)
        c = form.coefficient(iv)
        if c <= 0 or not _invariant(form.without(iv), loop):
            continue
        same = all(linear(o) == form and _same_size(s, size) and t == 1 for o, s, t in parts)
        if same and _at_most(size, c, loop):
            return Access(dim, offset, size, False)
    return None


def _is_reduced(op: ir.Operation) -> bool:
    """Whether a slice that is taken, or put in, has fewer dimensions than the tensor."""
    part = op.results[0] if op.name == "tensor.extract_slice" else op.operands[0]
    return part.type.rank < op.operands[SLICES[op.name]].type.rank


def _same_size(a: Size, b: Size) -> bool:
    return set(minima(a)) == set(minima(b))


def _at_most(size: Size, c: int, loop: scf.ForOp) -> bool:
    """True if `size` ≤ c·step can be seen."""
    limit = linear(loop.operation.operands[2])
    for form in minima(size):
        if limit.static is not None and form.static is not None and form.static <= c * limit.static:
            return True
        if form == limit.scaled(c):
            return True
    return False


def _invariant(form: Index, loop: scf.ForOp) -> bool:
    return not any(is_made_inside(v, loop) for v, _ in form.terms)


def _available(value: Size, loop: scf.ForOp) -> bool:
    """True if `value` can be computed from the induction variable alone, at the top of the body."""
    if isinstance(value, int) or value == loop.induction_variable or not is_made_inside(value, loop):
        return True
    op = defining_op(value)
    return (
        op is not None
        and op.name.split(".")[0] in ("arith", "affine")
        and all(_available(v, loop) for v in op.operands)
    )

"""The pass ``parallel-loops``."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..dialects import build
from ..dialects.mlir import ir, scf, tensor
from ..dialects.tiling import Index
from .extents import extent, size_form
from .linear import DYNAMIC, linear, minima
from .passes import Pass, remark
from .rewriting import ancestors, defining_op, ops_in
from .slices import extract, insert_parallel, split

PURE_DIALECTS = ("ub", "arith", "math", "affine", "tensor", "linalg", "linalg_ext", "scf", "bufferization", "index")
SLICES = {"tensor.extract_slice": 0, "tensor.insert_slice": 1}  # operand number of the tensor that is sliced


@dataclass(frozen=True)
class ParallelLoops(Pass):
    """Turns loops over tiles into scf.forall where the tiles of different iterations are disjoint::

        %r = scf.for %i = %c0 to %c1024 step %c64 iter_args(%o = %init) -> (tensor<1024x32xf32>) {
          %r2 = scf.for %k = … iter_args(%o2 = %o) -> (tensor<1024x32xf32>) {
            %t = tensor.extract_slice %o2[%i, 0] [64, 32] [1, 1] : …
            …
            %o3 = tensor.insert_slice %u into %o2[%i, 0] [64, 32] [1, 1] : …
            scf.yield %o3
          }
          scf.yield %r2
        }
    becomes
        %r = scf.forall (%i) = (0) to (1024) step (64) shared_outs(%o = %init) -> (tensor<1024x32xf32>) {
          %s = tensor.extract_slice %o[%i, 0] [64, 32] [1, 1] : …
          %r2 = scf.for %k = … iter_args(%o2 = %s) -> (tensor<64x32xf32>) {
            …                                                     # %t is %o2 itself, %o3 is %u
          }
          scf.forall.in_parallel { tensor.parallel_insert_slice %r2 into %o[%i, 0] [64, 32] [1, 1] : … }
        }

    The proof, per loop-carried tensor: it is used by extract_slice and insert_slice alone (through nested loops too);
    all of these have one offset along one dimension, c·iv + invariant with c > 0; and their size along it is at most
    c·step, by a constant or by an affine.min. Perfectly nested parallel loops become one scf.forall. A parallel loop
    inside another one that is not perfectly nested stays sequential: the outer one feeds the cores.
    """

    def run(self, op: ir.Operation) -> None:
        for region in op.regions:
            for block in region.blocks:
                self._run_on_block(block)

    def _run_on_block(self, block: ir.Block) -> None:
        for op in [o.operation for o in block.operations]:
            nest = parallel_nest(op.opview) if op.name == "scf.for" else []
            if nest:
                location = op.location
                details = {"loops": len(nest), "around": sum(a.name == "scf.for" for a in ancestors(op))}
                _convert(nest)
                remark(location, f"{len(nest)} loop(s) run in parallel", kind="parallel", **details)
            elif op.name not in ("scf.forall", "scf.parallel"):
                self.run(op)


@dataclass
class Access:
    """The slices of one loop-carried tensor that an iteration touches: where along which dimension."""

    dim: int
    offset: ir.Value
    size: ir.Value | int


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
    yielded = list(loop.body.operations[len(loop.body.operations) - 1].operation.operands)
    accesses: list[Access | None] = []
    for i, arg in enumerate(loop.inner_iter_args):
        if yielded[i] == arg:
            accesses.append(None)
            continue
        if not isinstance(arg.type, ir.RankedTensorType):
            return None
        slices = _slices_of(arg, loop, i)
        access = slices and _common_access(slices, loop)
        if not access:
            return None
        accesses.append(access)
    # An unwritten argument is its init; if it is yielded unchanged it may be read in any way.
    return accesses


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
            owner = value.owner.owner.operation
            if owner == loop.operation or owner.name != "scf.for" or value.arg_number == 0:
                return False
            value = owner.operands[2 + value.arg_number]
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
    parts = [slice_parts(s) for s in slices]
    for dim in range(len(parts[0][0])):
        offset, size, stride = (part[dim] for part in parts[0])
        form = linear(offset)
        c = form.coefficient(iv)
        if c <= 0 or stride != 1 or not _invariant(form.without(iv), loop):
            continue
        same = all(linear(o[dim]) == form and _same_size(s[dim], size) and t[dim] == 1 for o, s, t in parts)
        if same and _at_most(size, c, loop) and _available(offset, loop) and _available(size, loop):
            return Access(dim, offset, size)
    return None


def slice_parts(op: ir.Operation) -> tuple[list, list, list]:
    """Offsets, sizes and strides of a slicing op, ints where they are static."""
    view = op.opview

    def mixed(values: Sequence[ir.Value], numbers: Sequence[int]) -> list:
        rest = iter(values)
        return [next(rest) if n == DYNAMIC else int(n) for n in numbers]

    return (
        mixed(view.offsets, view.static_offsets),
        mixed(view.sizes, view.static_sizes),
        mixed(view.strides, view.static_strides),
    )


def _same_size(a: ir.Value | int, b: ir.Value | int) -> bool:
    return _forms(a) == _forms(b)


def _forms(value: ir.Value | int) -> frozenset[Index]:
    return frozenset(minima(value))


def _at_most(size: ir.Value | int, c: int, loop: scf.ForOp) -> bool:
    """True if `size` ≤ c·step can be seen."""
    limit = linear(loop.operation.operands[2])
    for form in minima(size):
        if limit.static is not None and form.static is not None and form.static <= c * limit.static:
            return True
        if form == limit.scaled(c):
            return True
    return False


def _invariant(form: Index, loop: scf.ForOp) -> bool:
    return all(_defined_outside(v, loop) for v, _ in form.terms)


def _defined_outside(value: ir.Value, loop: scf.ForOp) -> bool:
    owner = value.owner
    holder = owner.owner if isinstance(owner, ir.Block) else owner.operation.parent
    while holder is not None:
        if holder.operation == loop.operation:
            return False
        holder = holder.operation.parent
    return True


def _available(value: ir.Value | int, loop: scf.ForOp) -> bool:
    """True if `value` can be computed from the induction variable alone, at the top of the body."""
    if isinstance(value, int) or value == loop.induction_variable or _defined_outside(value, loop):
        return True
    op = defining_op(value)
    return (
        op is not None
        and op.name.split(".")[0] in ("arith", "affine")
        and all(_available(v, loop) for v in op.operands)
    )


# --- the rewrite


def _convert(nest: Sequence[ParallelLoop]) -> None:
    outer, inner = nest[0].loop, nest[-1].loop
    count = len(outer.inner_iter_args)
    written = [i for i in range(count) if any(p.accesses[i] for p in nest)]
    inits = list(outer.operation.operands)[3:]
    bounds = [[_static(p.loop.operation.operands[b]) for p in nest] for b in range(3)]
    with ir.InsertionPoint(outer), outer.operation.location:
        forall = scf.ForallOp(*bounds, [inits[i] for i in written])
    ivs, shared = list(forall.induction_variables), list(forall.inner_iter_args)
    yielded = list(inner.body.operations[len(inner.body.operations) - 1].operation.operands)
    accesses = [[a for p in nest if (a := p.accesses[i])] for i in range(count)]

    # Move the bodies, outermost first; what is left in the loops are the loops and the yields.
    with outer.operation.location:
        terminator = forall.terminator()
    for level in nest:
        for op in list(level.loop.body.operations)[:-1]:
            if all(op.operation != p.loop.operation for p in nest):
                op.operation.move_before(terminator.operation)
    for level, iv in zip(nest, ivs, strict=True):
        for access in filter(None, level.accesses):
            access.offset = iv if access.offset == level.loop.induction_variable else access.offset
        level.loop.induction_variable.replace_all_uses_with(iv)
        for i in range(count):
            if i not in written:
                level.loop.inner_iter_args[i].replace_all_uses_with(inits[i])

    anchor = _hoist_index_ops(forall, [v for group in accesses for a in group for v in (a.offset, a.size)])
    finals = {}
    for i, out in zip(written, shared, strict=True):
        arg = inner.inner_iter_args[i]
        local = _slice(out, accesses[i], anchor)
        arg.replace_all_uses_with(local)
        finals[i] = (_localize(local, yielded[i], {a.dim for a in accesses[i]}), out)
    with ir.InsertionPoint(terminator.block), outer.operation.location:
        for i in written:
            final, out = finals[i]
            offsets, sizes = _tile_of(out, accesses[i], anchor)
            insert_parallel(final, out, offsets, sizes)
    for i, result in enumerate(outer.operation.results):
        result.replace_all_uses_with(forall.operation.results[written.index(i)] if i in written else inits[i])
    outer.operation.erase()


def _static(value: ir.Value) -> ir.Value | int:
    number = build.constant_value(value)
    return value if number is None else int(number)


def _hoist_index_ops(forall: scf.ForallOp, values: Sequence[ir.Value | int]) -> ir.Operation:
    """Moves what computes `values` to the top of the body; returns the first op after them."""
    first = forall.body.operations[0].operation
    moved: list[ir.Operation] = []

    def move(value: ir.Value | int) -> None:
        nonlocal first
        op = None if isinstance(value, int) else defining_op(value)
        if op is None or op in moved or not any(a == forall.operation for a in ancestors(op)):
            return
        for operand in op.operands:
            move(operand)
        moved.append(op)
        if op == first:
            following = list(forall.body.operations)
            first = following[[o.operation for o in following].index(op) + 1].operation
        else:
            op.move_before(first)

    for value in values:
        move(value)
    return first


def _tile_of(out: ir.Value, accesses: Sequence[Access], anchor: ir.Operation) -> tuple[list, list]:
    kind = out.type
    offsets: list = [0] * kind.rank
    with ir.InsertionPoint(anchor), anchor.location:
        sizes: list = build.mixed_sizes(out)
    for access in accesses:
        offsets[access.dim], sizes[access.dim] = access.offset, access.size
    return offsets, sizes


def _slice(out: ir.Value, accesses: Sequence[Access], anchor: ir.Operation) -> ir.Value:
    offsets, sizes = _tile_of(out, accesses, anchor)
    kind = ir.RankedTensorType.get(split(sizes)[1], out.type.element_type)
    with ir.InsertionPoint(anchor), anchor.location:
        return extract(kind, out, offsets, sizes, [1] * len(offsets))


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


def _localize(value: ir.Value, final: ir.Value, dims: set[int]) -> ir.Value:
    """Rewrites all slices of `value`, now a tile, and of what becomes of it: offset 0 along `dims`.

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
                with ir.InsertionPoint(user), user.location:
                    if _is_whole(version, user, offsets, sizes, strides):
                        new = version if user.name == "tensor.extract_slice" else user.operands[0]
                        if user.name == "tensor.insert_slice":
                            final = new if user.results[0] == final else final
                    elif user.name == "tensor.extract_slice":
                        new = extract(user.results[0].type, version, offsets, sizes, strides)
                    else:
                        (o, so), (s, ss), (t, st) = split(offsets), split(sizes), split(strides)
                        new = tensor.InsertSliceOp(user.operands[0], version, o, s, t, so, ss, st).result
                        pending.append(new)
                        final = new if user.results[0] == final else final
                user.results[0].replace_all_uses_with(new)
                user.erase()
            elif user.name == "scf.for" and number >= 3:
                for carried in (user.opview.inner_iter_args[number - 3], user.results[number - 3]):
                    carried.set_type(version.type)
                    pending.append(carried)
    return final

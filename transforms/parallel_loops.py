"""The pass ``parallel-loops``."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..dialects import build
from ..dialects.mlir import ir, scf
from .extents import extent, size_form
from .parallel_nest import SLICES, Access, ParallelLoop, parallel_nest
from .passes import Pass, remark
from .rewriting import ancestors, defining_op, ops_of, terminator
from .slices import extract, insert, insert_parallel, known_index, slice_parts, split


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

    Which loops these are, parallel_nest.py proves. Perfectly nested parallel loops become one scf.forall. A parallel
    loop inside another one that is not perfectly nested stays sequential: the outer one feeds the cores.
    """

    def run(self, op: ir.Operation) -> None:
        for region in op.regions:
            for block in region.blocks:
                self._run_on_block(block)

    def _run_on_block(self, block: ir.Block) -> None:
        for op in ops_of(block):
            nest = parallel_nest(op.opview) if op.name == "scf.for" else []
            if nest:
                location = op.location
                details = {"loops": len(nest), "around": sum(a.name == "scf.for" for a in ancestors(op))}
                _convert(nest)
                remark(location, f"{len(nest)} loop(s) run in parallel", kind="parallel", **details)
            elif op.name not in ("scf.forall", "scf.parallel"):
                self.run(op)


def _convert(nest: Sequence[ParallelLoop]) -> None:
    outer, inner = nest[0].loop, nest[-1].loop
    count = len(outer.inner_iter_args)
    written = [i for i in range(count) if any(p.accesses[i] for p in nest)]
    inits = list(outer.operation.operands)[3:]
    bounds = [[known_index(p.loop.operation.operands[b]) for p in nest] for b in range(3)]
    with ir.InsertionPoint(outer), outer.operation.location:
        forall = scf.ForallOp(*bounds, [inits[i] for i in written])
    ivs, shared = list(forall.induction_variables), list(forall.inner_iter_args)
    yielded = list(terminator(inner.body).operands)
    accesses = [[a for p in nest if (a := p.accesses[i])] for i in range(count)]

    # Move the bodies, outermost first; what is left in the loops are the loops and the yields.
    with outer.operation.location:
        end = forall.terminator()
    for level in nest:
        for op in list(level.loop.body.operations)[:-1]:
            if all(op.operation != p.loop.operation for p in nest):
                op.operation.move_before(end.operation)
    for level, iv in zip(nest, ivs, strict=True):
        for access in filter(None, level.accesses):
            access.offset = iv if access.offset == level.loop.induction_variable else access.offset
        level.loop.induction_variable.replace_all_uses_with(iv)
        for i in range(count):
            if i not in written:
                level.loop.inner_iter_args[i].replace_all_uses_with(inits[i])

    anchor = _hoist_index_ops(forall, [v for group in accesses for a in group for v in (a.offset, a.size)])
    finals = {}
    tiles = {i: _tile_of(out, accesses[i], anchor) for i, out in zip(written, shared, strict=True)}
    dropped = {i: {a.dim for a in accesses[i] if a.is_dropped} for i in written}
    parts = {i: _slice(out, *tiles[i], dropped[i], anchor) for i, out in zip(written, shared, strict=True)}
    for i, local in parts.items():  # the anchor may be one of the slices that this erases
        inner.inner_iter_args[i].replace_all_uses_with(local)
        finals[i] = _localize(local, yielded[i], {a.dim for a in accesses[i]}, dropped[i])
    with ir.InsertionPoint(end.block), outer.operation.location:
        for i, out in zip(written, shared, strict=True):
            insert_parallel(finals[i], out, *tiles[i])
    for i, result in enumerate(outer.operation.results):
        result.replace_all_uses_with(forall.operation.results[written.index(i)] if i in written else inits[i])
    outer.operation.erase()


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


def _slice(out: ir.Value, offsets: list, sizes: list, dropped: set[int], anchor: ir.Operation) -> ir.Value:
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


def _localize(value: ir.Value, final: ir.Value, dims: set[int], dropped: set[int]) -> ir.Value:
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

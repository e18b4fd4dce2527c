"""The pass ``parallel-loops``."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from ..dialects.mlir import ir, scf
from .attention import SEQUENTIAL
from .local_tiles import index_ops_first, localize, slice_of, tile_of
from .parallel_nest import ParallelLoop, own_tiles, parallel_nest
from .passes import Pass, remark
from .rewriting import ancestors, for_body, for_inits, is_made_inside, ops_in, ops_of, terminator
from .slices import insert, insert_parallel, known_index


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
    loop inside another one that is not perfectly nested stays sequential: the outer one feeds the cores. So does one
    that is marked ``__sequential__``.

    Where only some of the tensors that a loop in it carries have tiles of their own in each iteration, the loops within
    carry these tiles alone::

        %x, %y = scf.for %j = … iter_args(%a = %x0, %b = %y0) {
          %x1, %y1 = scf.for %i = … iter_args(%c = %a, %d = %b) { … %c[%j] … %d[%i] … }
          scf.yield %x1, %y1
    becomes
        %x, %y = scf.for %j = … iter_args(%a = %x0, %b = %y0) {
          %s = tensor.extract_slice %x0[%j] …
          %x1, %y1 = scf.for %i = … iter_args(%c = %s, %d = %b) { … %c … %d[%i] … }
          %x2 = tensor.insert_slice %x1 into %a[%j] …
          scf.yield %x2, %y1
    """

    def run(self, op: ir.Operation) -> None:
        for region in op.regions:
            for block in region.blocks:
                self._run_on_block(block)

    def _run_on_block(self, block: ir.Block) -> None:
        for op in ops_of(block):
            nest = parallel_nest(op.opview) if op.name == "scf.for" else []
            nest = list(takewhile(lambda level: SEQUENTIAL not in level.loop.attributes, nest))
            if nest:
                location = op.location
                details = {"loops": len(nest), "around": sum(a.name == "scf.for" for a in ancestors(op))}
                forall = _convert(nest)
                for loop in ops_in(forall, "scf.for"):
                    _carry_own_tiles(loop.opview)
                    if SEQUENTIAL in loop.attributes:
                        _compute_sizes_first(loop)
                remark(location, f"{len(nest)} loop(s) run in parallel", kind="parallel", **details)
            elif op.name not in ("scf.forall", "scf.parallel"):
                self.run(op)


def _convert(nest: Sequence[ParallelLoop]) -> ir.Operation:
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

    anchor = index_ops_first(forall, [v for group in accesses for a in group for v in (a.offset, a.size)])
    finals = {}
    tiles = {i: tile_of(out, accesses[i], anchor) for i, out in zip(written, shared, strict=True)}
    dropped = {i: {a.dim for a in accesses[i] if a.is_dropped} for i in written}
    parts = {i: slice_of(out, *tiles[i], dropped[i], anchor) for i, out in zip(written, shared, strict=True)}
    for i, local in parts.items():  # the anchor may be one of the slices that this erases
        inner.inner_iter_args[i].replace_all_uses_with(local)
        finals[i] = localize(local, yielded[i], {a.dim for a in accesses[i]}, dropped[i])
    with ir.InsertionPoint(end.block), outer.operation.location:
        for i, out in zip(written, shared, strict=True):
            insert_parallel(finals[i], out, *tiles[i])
    for i, result in enumerate(outer.operation.results):
        result.replace_all_uses_with(forall.operation.results[written.index(i)] if i in written else inits[i])
    outer.operation.erase()
    return forall.operation


def _compute_sizes_first(loop: ir.Operation) -> None:
    """Takes sizes of tiles that loops within do not change out of these: so they stand where they do in a nest that
    carries tiles of such a size."""
    for inner in ops_in(loop, "scf.for"):
        for op in ops_of(for_body(inner)):
            if op.name.startswith("affine.") and not any(is_made_inside(v, inner) for v in op.operands):
                op.move_before(inner)


def _carry_own_tiles(loop: scf.ForOp) -> None:
    """Takes the tiles that each iteration has for itself of what loops within carry."""
    arguments, inits = list(loop.inner_iter_args), for_inits(loop.operation)
    end = terminator(loop.body)
    carried_on = {i for i, v in enumerate(arguments) if any(use.owner.operation.name == "scf.for" for use in v.uses)}
    for i, access in (own_tiles(loop) if carried_on else {}).items():
        if i not in carried_on:
            continue
        anchor = index_ops_first(loop, [access.offset, access.size])
        offsets, sizes = tile_of(inits[i], [access], anchor)  # whose sizes are known before the loop
        dropped = {access.dim} if access.is_dropped else set()
        # Of what it starts from: no other iteration writes there.
        local = slice_of(inits[i], offsets, sizes, dropped, anchor)
        arguments[i].replace_all_uses_with(local)
        final = localize(local, end.operands[i], {access.dim}, dropped)
        with ir.InsertionPoint(end), loop.operation.location:
            end.operands[i] = insert(final, arguments[i], offsets, sizes, [1] * len(offsets))

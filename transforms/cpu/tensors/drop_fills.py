"""The pass ``drop-fills``."""

from dataclasses import dataclass

from ....dialects.mlir import ir
from ....dialects.tiling import Index
from ...extents import extent, size_form
from ...linear import minima
from ...passes import Pass
from ...rewriting import defining_op, erase_if_unused, for_body, ops_in
from ...slices import forall_bounds, known_index, slice_parts, sole_insertion


@dataclass(frozen=True)
class DropFills(Pass):
    """Does not fill what a loop over tiles overwrites as a whole::

        %0 = linalg.fill ins(%zero) outs(%e : tensor<2048x64xf32>)
        scf.forall (%i) = (0) to (2048) step (64) shared_outs(%o = %0) {
          …                                                                # no other use of %o
          tensor.parallel_insert_slice %t into %o[%i, 0] [64, 64] [1, 1]
    becomes
        scf.forall (%i) = (0) to (2048) step (64) shared_outs(%o = %e) {

    The output would go to memory twice, once as zeros. After `slice-fills`, which gives each iteration the tile of it
    that it starts from. So it is with a tensor that a `scf.for` carries, and only inserts tiles into.
    """

    def run(self, op: ir.Operation) -> None:
        for loop in ops_in(op, "scf.forall", "scf.for"):
            first = len(loop.operands) - len(loop.results)
            carried = list(loop.regions[0].blocks[0].arguments)[-len(loop.results) :] if loop.results else []
            for i, argument in enumerate(carried):
                fill = defining_op(loop.operands[first + i])
                if fill is not None and fill.name == "linalg.fill" and _is_overwritten(loop, argument):
                    loop.operands[first + i] = fill.operands[1]
                    erase_if_unused(fill)


def _is_overwritten(loop: ir.Operation, argument: ir.Value) -> bool:
    """True if all that is done with the tensor is to insert tiles that cover it."""
    insertion = sole_insertion(argument)
    if insertion is None:
        return False
    steps = _steps(loop)
    for d, (offset, size, stride) in enumerate(zip(*slice_parts(insertion), strict=True)):
        whole = extent(argument, d)
        if stride != 1 or whole is None:
            return False
        if isinstance(offset, int):
            covered = offset == 0 and size_form(size) == whole
        else:  # an iteration's tile is as much as the loop goes on by, or as there is left
            low, high, step = steps.pop(offset, (None, None, Index(0)))
            tile = (step, whole - Index.of(offset))
            covered = low == Index(0) and high == whole and all(_resolved(form) in tile for form in minima(size))
        if not covered:
            return False
    return True


def _resolved(form: Index) -> Index:
    return sum((size_form(v).scaled(c) for v, c in form.terms), Index(form.const))


def _steps(loop: ir.Operation) -> dict[ir.Value, tuple[Index, Index, Index]]:
    """Lower bound, upper bound and step of each induction variable."""
    if loop.name == "scf.for":
        low, high, step = (size_form(known_index(bound)) for bound in list(loop.operands)[:3])
        return {for_body(loop).arguments[0]: (low, high, step)}
    bounds = ([size_form(bound) for bound in bounds] for bounds in forall_bounds(loop))
    return dict(zip(loop.opview.induction_variables, zip(*bounds, strict=True), strict=False))

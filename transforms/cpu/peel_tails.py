"""The pass ``peel-tails``."""

from dataclasses import dataclass

from ...dialects import build
from ...dialects.mlir import ir
from ..passes import Pass, option
from ..rewriting import ops_in
from .matrix_unit import MATRIX_OPTION, has_tiles, matrix_unit


@dataclass(frozen=True)
class PeelTails(Pass):
    """Splits the last, cut tile off a loop over tiles whose number is known::

        %r = scf.for %i = %c0 to %c1023 step %c128 iter_args(%a = %init) -> … {
          %n = affine.min affine_map<(i) -> (-i + 1023, 128)>(%i)
    becomes
        %m = scf.for %i = %c0 to %c896 step %c128 iter_args(%a = %init) -> … { … }
        %r = scf.for %i = %c896 to %c1023 step %c128 iter_args(%a = %m) -> … { … }

    All tiles but one have sizes that `scf-for-loop-canonicalization` sees to be constant: no edge has to be looked for,
    and rows make pairs. For f16 and bf16 alone, whose operands are copied and paired, is that worth the time to compile
    a second body; where bounds are only known at run time, it is not. Tiles of a matrix unit (AMX) make the distinction
    by themselves.
    """

    matrix: str = option(MATRIX_OPTION, "")

    def run(self, op: ir.Operation) -> None:
        if has_tiles(matrix_unit(self.matrix)):
            return
        for loop in ops_in(op, "scf.for"):
            split = _split(loop) if loop.name == "scf.for" else None  # not scf.forall
            if split is not None and _is_of_narrow(loop):
                _peel(loop, split)


def _split(loop: ir.Operation) -> int | None:
    """Where the cut tile starts; None if there is none, it is the only one, or it is not known."""
    lower, upper, step = (build.constant_value(v) for v in list(loop.operands)[:3])
    if None in (lower, upper, step) or step <= 0:
        return None
    split = upper - (upper - lower) % step
    iv = loop.regions[0].blocks[0].arguments[0]
    is_cut = any(use.owner.operation.name == "affine.min" for use in iv.uses)
    return split if lower < split < upper and is_cut else None


def _is_of_narrow(loop: ir.Operation) -> bool:
    """True if tensors of f16 or bf16 are made, or read, in the loop."""
    kinds = [v.type for o in ops_in(loop) for v in o.results if isinstance(v.type, ir.RankedTensorType)]
    return any(build.is_narrow(kind.element_type) for kind in kinds)


def _peel(loop: ir.Operation, split: int) -> None:
    with ir.InsertionPoint(loop), loop.location:
        limit = build.index(split)
    tail = loop.operation.clone(ir.InsertionPoint.after(loop))
    for old, new in zip(loop.results, tail.results, strict=True):
        old.replace_all_uses_with(new)
    loop.operands[1] = limit
    tail.operands[0] = limit
    for i, result in enumerate(loop.results):
        tail.operands[3 + i] = result

"""The pass ``peel-tails``."""

from dataclasses import dataclass

from ....dialects import build
from ....dialects.mlir import ir
from ....dialects.tiling.structured import body_names
from ...host import matrix_unit
from ...online.cut_tiles import cut_sizes, narrow_types, take_off_last
from ...online.mark_few_rows import FEW_ROWS
from ...passes import Pass, option
from ...rewriting import ancestors, ops_in
from ..matrix_unit import MATRIX_OPTION, has_tiles, multiplies


@dataclass(frozen=True)
class PeelTails(Pass):
    """Splits the last, cut tile off a loop over tiles::

        %r = scf.for %i = %c0 to %n step %c128 iter_args(%a = %init) -> … {
          %size = affine.min affine_map<(i)[n] -> (-i + n, 128)>(%i)[%n]
    becomes
        %split = affine.max affine_map<()[n] -> ((n floordiv 128) * 128, 0)>()[%n]
        %m = scf.for %i = %c0 to %split step %c128 iter_args(%a = %init) -> … {
          %size = 128
        %r = scf.for %i = %split to %n step %c128 iter_args(%a = %m) -> … {
          %size = affine.min affine_map<(i)[n] -> (-i + n, 128)>(%i)[%n]

    All tiles but one have sizes that are seen to be constant: no edge has to be looked for, and rows make pairs. For
    f16 and bf16 alone, whose operands are copied and paired, is that worth the time to compile a second body; of tiles
    of few rows (`mark-few-rows`), for what a matrix unit multiplies alone, as f16 is converted to f32 as it is read.
    Dot products of an unknown number of few rows do without: `pair-contractions` leaves at most a row over. Where only
    a call tells whether a tile is cut, a loop under a mask of indices is left: of loops that a mask makes of one,
    `split-masked-tiles` has peeled it.
    """

    matrix: str = option(MATRIX_OPTION, "")

    def run(self, op: ir.Operation) -> None:
        unit = matrix_unit(self.matrix)
        for loop in ops_in(op, "scf.for"):
            kinds = narrow_types(loop)
            if kinds and (not _has_few_rows(loop) or _is_worth_it_for_few(loop, kinds, unit)):
                _peel(loop)


def _is_worth_it_for_few(loop: ir.Operation, kinds: list[ir.Type], unit: str) -> bool:
    is_known = all(build.constant_value(v) is not None for v in list(loop.operands)[:2])
    return (is_known or has_tiles(unit)) and any(multiplies(unit, kind, kind) for kind in kinds)


def _has_few_rows(loop: ir.Operation) -> bool:
    return any(FEW_ROWS in around.attributes for around in ancestors(loop))


def _is_masked(loop: ir.Operation) -> bool:
    return any({"linalg.index", "arith.cmpi"} <= set(body_names(g)) for g in ops_in(loop, "linalg.generic"))


def _peel(loop: ir.Operation) -> None:
    """Splits the loop, if its last tile is cut, or may be, and is not the only one for sure."""
    lower, upper, step = (build.constant_value(v) for v in list(loop.operands)[:3])
    if step is None or step <= 0:
        return
    cuts = cut_sizes(loop, step)
    split = None if lower is None or upper is None else upper - (upper - lower) % step
    if not cuts or (_is_masked(loop) if split is None else not lower < split < upper):
        return
    with ir.InsertionPoint(loop), loop.location:
        limit = _whole_tiles(loop.operands[0], loop.operands[1], step) if split is None else build.index(split)
    take_off_last(loop, limit, cuts, step)


def _whole_tiles(lower: ir.Value, upper: ir.Value, step: int) -> ir.Value:
    """Where the last whole tile between them ends."""
    low, high = (ir.AffineExpr.get_symbol(i) for i in range(2))
    ends = [ir.AffineExpr.get_floor_div(high - low, step) * step + low, low]
    map_ = ir.AffineMapAttr.get(ir.AffineMap.get(0, 2, ends))
    return ir.Operation.create("affine.max", [ir.IndexType.get()], [lower, upper], {"map": map_}).result

"""The pass ``matrix-contractions``."""

from dataclasses import dataclass

from ....dialects.mlir import ir
from ...host import matrix_unit
from ...passes import Pass, option, remark
from ...rewriting import ops_in
from ..initial_values import filled_with, find_fills
from ..matrix_unit import MATRIX_OPTION, has_tiles, product_of, suits
from ..structured import Structured, Unsupported
from .matrix_blocks import BlockedProduct, roles_of
from .prepack import Prepacking


@dataclass(frozen=True)
class MatrixContractions(Pass):
    """Computes contractions of narrow types by the instructions that multiply matrices, where the host has them::

        linalg.generic {C[m, n] += A[m, k]·B[n, k]} ins(%a : memref<64x64xbf16>, %b : memref<128x64xbf16>)
                                                    outs(%c : memref<64x128xf32>)
    becomes
        %panel = memref.alloca() : memref<8x2x16x32xbf16>          # pairs of k of 16 columns side by side
        …                                                          # B into it, transposed in registers
        scf.for %n = %c0 to %c128 step %c32 {
          scf.for %m = %c0 to %c64 step %c32 {
            %z = x86.amx.tile_zero : !x86.amx.tile<16x16xf32>
            %a0 = x86.amx.tile_load %a[%m, %c0], %c64 : memref<64x64xbf16> into !x86.amx.tile<16x32xbf16>
            %b0 = x86.amx.tile_load %panel[%nt, %c0, %c0, %c0], %c32 : … into !x86.amx.tile<16x32xbf16>
            %c00 = x86.amx.tile_mulf %a0, %b0, %z : …
            …
            x86.amx.tile_store %c[%m, %n], …

    Sums are f32. Units that have no tiles are for `pair-contractions`; what does not fit stays for `pack-contractions`
    and `vectorize-linalg`.
    """

    matrix: str = option(MATRIX_OPTION, "")

    def run(self, op: ir.Operation) -> None:
        unit, prepacking = matrix_unit(self.matrix), Prepacking()
        if not has_tiles(unit):
            return
        for generic in ops_in(op, "linalg.generic"):
            if generic.results or not suits(generic, unit):
                continue
            product = product_of(generic)
            assert product is not None
            try:
                structured = Structured(generic)
                roles = roles_of(structured, product)
            except Unsupported as reason:
                remark(generic, f"not computed by {unit}: {reason}")
                continue
            fills = find_fills(structured)
            fill = fills.get(roles.c.number)
            from_zero = fill is not None and filled_with(fill) == 0
            with ir.InsertionPoint(generic), generic.location:
                BlockedProduct(structured, roles, from_zero, unit, prepacking).emit()
            generic.erase()
            if from_zero:
                fill.erase()

"""The pass ``tile-matmuls``."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...dialects.build import element_of
from ...dialects.mlir import ir
from ..attention import ContractionLoops, contraction_loops, is_contraction
from ..extents import static_extents
from ..passes import Pass, option, remark
from ..rewriting import defining_op, functions_of, ops_in, ops_of
from ..splats import filled_with
from ..tile_and_fuse import tile_and_fuse
from .architecture import MULTIPROCESSORS
from .one_block import is_one_tile

# Rows and columns of a tile of the result, and of the matmuls' rate what it reaches; measured on an H200.
TILES = ((256, 128, 1.0), (128, 128, 0.9), (128, 64, 0.73), (64, 128, 0.63), (64, 64, 0.48))
ROWS_OF_F32 = 128  # at most: 4096³ takes 2.99 ms, with 256 4.11
DEPTH = 128  # bytes of a row of what is multiplied
LEAST = 16  # of rows or columns, and of what is added up for an element: less leaves most of a tile empty
MANY = 1 << 20  # what a dynamic size is taken to be


@dataclass(frozen=True)
class TileMatmuls(Pass):
    """Tiles matmuls that stand outside of loops over tiles, so that they become kernels of tiles, too::

        %c = linalg.generic {C[m, n] += A[m, k]·B[n, k]} ins(%a, %b : tensor<1024x512xf16>, tensor<2048x512xf16>) …
    becomes
        %c = scf.for %i = 0 to 1024 step 128 … {
          scf.for %j = 0 to 2048 step 128 … {
            scf.for %k = 0 to 512 step 64 iter_args(%s = …) {
              linalg.generic {C[m, n] += A[m, k]·B[n, k]} ins(%a1, %b1 : tensor<128x64xf16>, …) outs(%s)

    The first two become parallel (`parallel-loops`), the grid; what is computed from the result element by element is
    done with its tiles (`fuse-consumers`). The tiles are those that all multiprocessors are done with first, one entry
    of a batch each. Several matmuls that one block computes stay as they are, and so do integers and sums of few
    products.
    """

    multiprocessors: int = option("how many such a GPU has", MULTIPROCESSORS)
    rows: int = option("the most rows of a tile; f32 has 128", 256)

    def run(self, op: ir.Operation) -> None:
        for function in functions_of(op):
            matmuls = [op for op in ops_in(function) if is_contraction(op)]
            if len(matmuls) > 1 and not ops_in(function, "scf.forall") and is_one_tile(function):
                continue  # one block computes all of it, such as an attention of few queries and keys
            for block in function.regions[0].blocks:
                for matmul in ops_of(block):
                    loops = _loops(matmul)
                    if loops is not None:
                        self._tile(matmul, loops)

    def _tile(self, matmul: ir.Operation, loops: ContractionLoops) -> None:
        extents = static_extents(matmul)
        sizes = [0] * len(extents)
        for loop in loops.batch:
            sizes[loop] = 1
        (m,), (n,), (k,) = loops.m, loops.n, loops.k
        width = element_of(matmul.operands[0].type).width
        sizes[k] = 8 * DEPTH // width
        most = min(self.rows, ROWS_OF_F32) if width == 32 else self.rows
        batch = math.prod(extents[d] or 1 for d in loops.batch)

        def time(tile: tuple[int, int, float]) -> float:
            rows, columns, rate = tile
            count = batch * math.ceil((extents[m] or MANY) / rows) * math.ceil((extents[n] or MANY) / columns)
            return math.ceil(count / self.multiprocessors) * rows * columns / rate

        sizes[m], sizes[n], _ = min((tile for tile in TILES if tile[0] <= most), key=time)
        order = [*loops.batch, m, n, k]
        stops = [p for v in matmul.operands if (p := defining_op(v)) is not None and filled_with(v) is None]
        location = matmul.location
        tile_and_fuse(matmul, sizes, order, stops)
        remark(location, f"tiled by {sizes[m]} × {sizes[n]} × {sizes[k]}")


def _loops(op: ir.Operation) -> ContractionLoops | None:
    """The loops of a matmul that tiles can compute: of floats of 16 bits or f32, with one loop of each kind."""
    if op.name != "linalg.generic" or not is_contraction(op):
        return None
    left, right, out = (element_of(v.type) for v in op.operands)
    if left != right or not isinstance(left, ir.F16Type | ir.BF16Type | ir.F32Type) or not isinstance(out, ir.F32Type):
        return None
    loops, extents = contraction_loops(op), static_extents(op)
    assert loops is not None, "a contraction has loops"
    if any(len(kind) != 1 for kind in (loops.m, loops.n, loops.k)) or 0 in extents:
        return None
    rows, columns, depth = (extents[loop] or MANY for (loop,) in (loops.m, loops.n, loops.k))
    return loops if max(rows, columns) >= LEAST and depth >= LEAST else None

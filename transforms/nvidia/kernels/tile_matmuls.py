"""The pass ``tile-matmuls``."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from ....dialects import build
from ....dialects.build import PARALLEL, element_of
from ....dialects.mlir import arith, ir
from ....dialects.tiling.structured import indexing_maps, operand_loops
from ...attention import ContractionLoops, contraction_loops, is_matmul
from ...copying import with_operands
from ...extents import static_extents
from ...passes import Pass, option, remark
from ...rewriting import defining_op, functions_of, ops_in, ops_of
from ...splats import filled_with
from ...tile_and_fuse import tile_and_fuse
from ..alignment import CHUNK
from ..architecture import MULTIPROCESSORS
from .joined_loops import with_joined_loops
from .one_block import fits_one_block
from .split_sums import split_sum


@dataclass(frozen=True)
class Tile:
    """Of the result, so many rows and columns; `rate`: what share of the matmuls' rate it reaches; `lines`: rows of 128
    bytes of what is multiplied, that are one step of the sum (`f32`: of f32; 0: none of that)."""

    rows: int
    columns: int
    rate: float
    lines: int
    f32: int = 1

    def depth(self, width: int) -> int:
        """Elements of so many bits in a step."""
        return (self.f32 if width == 32 else self.lines) * 8 * LINE // width


# As measured on an H200 (docs/nvidia-log.md), and the model of `_fastest`.
LINE = 128  # bytes
TILES = (
    Tile(256, 128, 1.0, 1),
    Tile(128, 192, 0.95, 1, f32=0),
    Tile(128, 176, 0.95, 1, f32=0),
    Tile(128, 128, 0.91, 2),
    Tile(192, 96, 0.9, 2, f32=0),
    Tile(128, 96, 0.88, 2, f32=0),
    Tile(128, 64, 0.84, 2),
    Tile(64, 128, 0.65, 2),
    Tile(64, 64, 0.55, 4, f32=2),
)
ROWS_OF_F32 = 128  # at most: 4096³ takes 2.99 ms, with 256 4.11
RATES = {16: 5.6e6, 32: 0.34e6}  # operations of a multiprocessor in a µs, by the bits of what is multiplied
MEMORY, OF_ONE = 4.2e6, 8e4  # bytes in a µs, that all multiprocessors read, and one
FEW_COLUMNS, SLOWER = 64, 1.25  # tiles of so few columns read memory so much slower
NEXT, MERGE, PART = 1.0, 1.0, 0.2  # µs: for a tile; to add up parts, and for each of them
MOST_PARTS = 16
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
    of a batch each; where they are few and the sum is long, it goes in parts (`split_sums.py`). Several matmuls that
    one block computes stay as they are, and so do integers and sums of few products.
    """

    multiprocessors: int = option("how many such a GPU has", MULTIPROCESSORS)
    rows: int = option("the most rows of a tile; f32 has 128", 256)
    columns: int = option("the most columns of a tile; f32 has 128", 256)
    parts: int = option("into how many parts sums go (0: by the rule)", 0)

    def run(self, op: ir.Operation) -> None:
        for function in functions_of(op):
            matmuls = [op for op in ops_in(function) if is_matmul(op)]
            if len(matmuls) > 1 and not ops_in(function, "scf.forall") and fits_one_block(function):
                continue  # one block computes all of it, such as an attention of few queries and keys
            for block in function.regions[0].blocks:
                for matmul in ops_of(block):
                    if _is_of_tiles(matmul):
                        self._tile(_with_columns_last(with_joined_loops(_once(_from_zero(matmul)))))

    def _tile(self, matmul: ir.Operation) -> None:
        loops = _loops(matmul)
        if loops is None:
            return
        tile, parts = self._fastest(matmul, loops)
        if parts > 1:
            matmul = split_sum(matmul, loops.k[0], parts)
            loops = _tiled_loops(matmul)
        sizes = [0] * len(static_extents(matmul))
        for loop in loops.batch:
            sizes[loop] = 1
        (m,), (n,), (k,) = loops.m, loops.n, loops.k
        sizes[m], sizes[n] = tile.rows, tile.columns
        sizes[k] = tile.depth(element_of(matmul.operands[0].type).width)
        order = [*loops.batch, m, n, k]
        stops = [p for v in matmul.operands if (p := defining_op(v)) is not None and filled_with(v) is None]
        location = matmul.location
        tile_and_fuse(matmul, sizes, order, stops)
        remark(location, f"tiled by {sizes[m]} × {sizes[n]} × {sizes[k]}" + f", in {parts} parts" * (parts > 1))

    def _fastest(self, matmul: ir.Operation, loops: ContractionLoops) -> tuple[Tile, int]:
        """The tile, and into how many parts the sum goes, that all multiprocessors are done with first: with what they
        compute, or read."""
        extents, width = static_extents(matmul), element_of(matmul.operands[0].type).width
        tiles = [tile for tile in TILES if tile.rows <= self.rows and tile.columns <= self.columns]
        if width == 32:
            tiles = [tile for tile in tiles if tile.f32 and tile.rows <= ROWS_OF_F32]
        batch = math.prod(extents[d] or 1 for d in loops.batch)
        m, n, k = (extents[d] or MANY for (d,) in (loops.m, loops.n, loops.k))
        wanted = [self.parts] if self.parts else range(1, MOST_PARTS + 1)
        whole = 8 * CHUNK // width  # rows of parts are aligned
        sums = [parts for parts in wanted if parts == 1 or (None not in extents and k % (parts * whole) == 0)] or [1]
        reading = batch * (m + n) * k * width / 8 / MEMORY

        def time(choice: tuple[Tile, int]) -> tuple[float, int]:
            tile, parts = choice
            tiles = batch * parts * math.ceil(m / tile.rows) * math.ceil(n / tile.columns)
            turns = math.ceil(tiles / self.multiprocessors)
            computing = 2 * tile.rows * tile.columns * k / parts / (tile.rate * RATES[width])
            slower = SLOWER if tile.columns <= FEW_COLUMNS else 1
            one = turns * tile.columns * k / parts * width / 8 / OF_ONE
            merging = MERGE + PART * parts + 8 * parts * batch * m * n / MEMORY if parts > 1 else 0
            return max(turns * (NEXT + computing), reading * slower, one) + merging, tile.rows

        return min(itertools.product(tiles, sums), key=time)


def _from_zero(matmul: ir.Operation) -> ir.Operation:
    """The matmul with sums that start from 0, which what they started from is added to: memory for results holds none
    of it. Where all of that is one number, tiles start from it as it is."""
    *inputs, init = matmul.operands
    if filled_with(init) is not None:
        return matmul
    element, rank = element_of(init.type), init.type.rank
    with ir.InsertionPoint(matmul), matmul.location:
        sizes = build.mixed_sizes(init)
        zero = build.fill(build.constant(element, 0), build.empty(sizes, element))
        made = with_operands(matmul, inputs, [zero], indexing_maps(matmul), matmul.attributes["iterator_types"])
        same = build.projection(rank, range(rank))
        (total,) = build.generic(
            [made.result, init],
            [build.empty(sizes, element)],
            [same] * 3,
            [PARALLEL] * rank,
            lambda a, b, _: arith.addf(a, b),
        )
    matmul.results[0].replace_all_uses_with(total)
    matmul.erase()
    return made


def _once(matmul: ir.Operation) -> ir.Operation:
    """The matmul without the loops that neither operand has, as where both are the same for each entry of a batch; its
    result, which starts from one number, is repeated."""
    *of_operands, out = operand_loops(matmul)
    repeated = {d for d in out if all(d not in loops for loops in of_operands)}
    if not repeated:
        return matmul
    kept = [d for d in range(len(static_extents(matmul))) if d not in repeated]
    dims = [i for i, d in enumerate(out) if d not in repeated]
    kinds = [kind for d, kind in enumerate(matmul.attributes["iterator_types"]) if d not in repeated]
    maps = [build.projection(len(kept), [kept.index(d) for d in loops if d in kept]) for loops in (*of_operands, out)]
    *inputs, init = matmul.operands
    with ir.InsertionPoint(matmul), matmul.location:
        element, sizes = element_of(init.type), build.mixed_sizes(init)
        number = arith.constant(element, filled_with(init))
        start = build.fill(number, build.empty([sizes[i] for i in dims], element))
        made = with_operands(matmul, inputs, [start], maps, ir.ArrayAttr.get(kinds))
        of_made, of_all = (build.projection(len(out), places) for places in (dims, range(len(out))))
        (total,) = build.generic(
            [made.result], [build.empty(sizes, element)], [of_made, of_all], [PARALLEL] * len(out), lambda x, _: x
        )
    matmul.results[0].replace_all_uses_with(total)
    matmul.erase()
    return made


def _is_of_tiles(op: ir.Operation) -> bool:
    """Whether an op is a matmul of floats of 16 bits or f32, which tiles can compute."""
    if op.name != "linalg.generic" or not is_matmul(op):
        return False
    left, right, out = (element_of(v.type) for v in op.operands)
    return left == right and isinstance(left, ir.F16Type | ir.BF16Type | ir.F32Type) and isinstance(out, ir.F32Type)


def _with_columns_last(matmul: ir.Operation) -> ir.Operation:
    """The matmul, or B·A for A·B where rows of the result stand side by side in memory."""
    loops = contraction_loops(matmul)
    assert loops is not None, "a contraction has loops"
    if operand_loops(matmul)[2][-1:] != loops.m[-1:] or not loops.n:
        return matmul
    with ir.InsertionPoint(matmul), matmul.location:
        a, b, c = matmul.operands
        of_a, of_b, of_c = indexing_maps(matmul)
        made = with_operands(matmul, [b, a], [c], [of_b, of_a, of_c], matmul.attributes["iterator_types"])
    matmul.results[0].replace_all_uses_with(made.result)
    matmul.erase()
    return made


def _tiled_loops(matmul: ir.Operation) -> ContractionLoops:
    """The loops of a matmul, of which one of the rows and one of the columns is tiled: the longest one, or the last of
    these. The others are taken for those of a batch."""
    loops, extents = contraction_loops(matmul), static_extents(matmul)
    assert loops is not None, "a contraction has loops"
    m, n = ([max(reversed(kind), key=lambda d: extents[d] or MANY)] if kind else [] for kind in (loops.m, loops.n))
    return ContractionLoops([d for d in (*loops.batch, *loops.m, *loops.n) if d not in (*m, *n)], m, n, loops.k)


def _loops(matmul: ir.Operation) -> ContractionLoops | None:
    """The loops of a matmul that has rows and columns, one loop along the sum, no other sum of one operand alone, and
    fills some of a tile."""
    loops, extents = _tiled_loops(matmul), static_extents(matmul)
    if any(len(kind) != 1 for kind in (loops.m, loops.n, loops.k)) or 0 in extents:
        return None
    if len(loops.batch) + 3 != len(extents):
        return None
    rows, columns, depth = (extents[loop] or MANY for (loop,) in (loops.m, loops.n, loops.k))
    return loops if max(rows, columns) >= LEAST and depth >= LEAST else None

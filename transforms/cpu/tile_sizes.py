"""Which tile sizes to take when none are given: a rule from the sizes of the caches and of the problem.

One iteration works on a tile of queries [m, d], of keys [n, d], of values [n, dv], and of scores [m, n]:

- batch loops get size 1: each iteration is independent, and they feed the cores;
- queries: 64 rows, a few vector registers of lanes for every element type; fewer queries are joined by as many heads
  of the group that shares their keys as fill the rows: keys and values are then read once for all of them;
- keys: the largest power of two, at least 16 and at most 512, with which the scores (counted in f32 or wider) fill at
  most half of an L1 data cache, through whose other half keys and values stream, and keys, values, queries, output and
  scores half of the L2 cache;
- fewer queries than a copy of keys pays for (decoding) stream keys and values from memory: up to 1024 of them, whatever
  the L2 cache holds, as memory waits between a tile of keys and one of values, but a sixteenth of them at most, so that
  threads can share them; under a mask not, as what a tile has beyond its edge is read in vain;
- of keys and values whose heads stand side by side in memory, [s, h, d], such a tile has up to a page of heads: the
  rows of one head are far apart, those of all are read in the order of their addresses; and keys so that they fill,
  with their values, a quarter of the L2 cache;
- where few queries are expected, but their number is not known (`version-queries`): as many of them, at least one, as
  are 4 or 16 rows with the heads of a group, so that the number of rows is known; of keys as where there are many;
- where a matrix unit multiplies (`cpu/matrix_unit.py`): 32 queries, two tiles of rows, and keys so that the scores of
  these in f32 and the probabilities, of 16 bits or in two parts of these, fill half of the L1 data cache, in which
  queries and output stay, too; all of it, where numbers have one part, for up to twice as many keys as an output has
  columns, as the output is rescaled, read and written once per tile of keys; 64 keys at most under a mask, as what
  tiles have beyond its edge is computed in vain; without one 128 queries, and keys whose scores for 32 of these fill
  L1, where a head's keys and values fill the L2 cache, beyond which they cost more to read than scores;
- where pairs are multiplied (AVX512-BF16): 64 queries and 64 keys, with which scores, probabilities and what they are
  made of stay in the L1 cache; 128 keys of larger heads, whose keys and values, in 16 bits, would leave it anyway, but
  not under a mask, as what tiles have beyond its edge is computed in vain; where vectors are computed with by halves,
  of all heads of 32 and more, if there are two such tiles: a store takes the time of 1.4 multiply-adds there, and the
  output has fewer of them;
- the head dimensions are not tiled;
- where there is a result for each query and key (`pairwise.py`): 64 of each. No size exceeds the dimension.

Loops stand as batch, queries, keys from outer to inner, so that the outer ones are parallel.
"""

from __future__ import annotations

import math

from ...dialects.mlir import ir
from ...dialects.tiling.structured import dim_position, indexing_maps
from ..attention import Attention, contraction_loops
from ..extents import extent_of, static_extents
from ..host import cache_bytes, computes_by_halves, matrix_unit
from ..open_queries import FEW_QUERIES
from ..rewriting import defining_op
from .matrix_unit import MIN_ROWS, ROWS, has_tiles, is_native, multiplies

MAX_ROWS_OF_HEAD = 16  # of those that stand side by side: with more, a tile of scores for all of them leaves the cache
PAGE = 4096  # bytes that are read in the order of their addresses, at least
FEW_ROWS = 4  # that cost little more than one, beside reading keys and values
QUERIES, MIN_KEYS, MAX_KEYS = 64, 16, 512
STREAMED_KEYS, STREAMED_TILES = 1024, 16
MATRIX_QUERIES, LONG_QUERIES = 32, 128
PAIRED_KEYS, MASKED_KEYS = 128, 64
ROWS_TO_PACK = 64  # from so many on it pays to copy what they all read, in a loop over tiles or in several loops
ROWS_OF_LANES = 16  # a vector of f32: from so many rows on, in all dimensions, they are the lanes of a tile
PAIRWISE_TILE = 64, 64  # queries and keys
WIDE_HEADS = 2 * 32  # of keys and values


def choose_tile_sizes(attention: Attention) -> tuple[list[int], list[int]]:
    """Sizes for the loops of the second matmul, and their order from outer to inner."""
    root = attention.root
    loops = contraction_loops(root)
    assert loops is not None, "an attention's root is a contraction"
    extents = static_extents(root)
    if FEW_QUERIES in root.attributes:
        heads = math.prod(extents[d] or 1 for d in loops.m[:-1])
        extents[loops.m[-1]] = max(1, ir.IntegerAttr(root.attributes[FEW_QUERIES]).value // heads)
    sizes = [0] * len(extents)
    for d in loops.batch:
        sizes[d] = 1
    rows = extent_of(extents, loops.m[-1:], QUERIES)
    unit = matrix_unit()
    multiplied = rows >= (MIN_ROWS if has_tiles(unit) else ROWS_TO_PACK) and all(
        multiplies(unit, op.operands[0].type.element_type, op.operands[1].type.element_type)
        for op in (attention.scores, root)
    )
    is_matrix, in_pairs = multiplied and has_tiles(unit), multiplied and unit == "dot"
    head_sizes = _head_sizes(attention, extents)
    masked = _is_masked(attention)
    wanted = min(rows, MATRIX_QUERIES if masked else _matrix_queries(extents[loops.k[-1]], head_sizes))
    wanted = wanted if is_matrix else QUERIES
    queries = fill_rows(sizes, extents, loops.m, wanted)
    side_by_side = _heads_in_row(attention) if queries < MAX_ROWS_OF_HEAD and not multiplied else None
    if side_by_side is not None:
        loop, heads = side_by_side
        sizes[loop] = heads
        queries *= heads
    width = max(4, _bytes(root.operands[2]))
    keys, by_halves = MAX_KEYS, computes_by_halves()
    parts = 1 if is_native(unit, root.operands[1].type.element_type) else 2
    columns = _product_of(extents, loops.n)
    wide = columns * (8 if columns % ROWS else 2)  # keys; cut tiles of columns are copied, too
    if in_pairs:
        is_large = 2 * PAIRED_KEYS * head_sizes > cache_bytes(1)
        if by_halves:
            is_large = head_sizes >= WIDE_HEADS and (extents[loops.k[-1]] or math.inf) >= 2 * PAIRED_KEYS
        keys = PAIRED_KEYS if is_large and not masked else PAIRED_KEYS // 2
    elif is_matrix and masked:
        keys = MASKED_KEYS
    while keys > MIN_KEYS:
        elements = keys * head_sizes + queries * head_sizes + queries * keys
        if is_matrix and queries > MATRIX_QUERIES:
            scores = MATRIX_QUERIES * keys * (width + 2)
        elif is_matrix:
            scores = queries * keys * (width + 2 * parts)
            if parts > 1 or keys > wide:
                scores *= 2
        elif in_pairs:
            scores = 0 if by_halves else queries * keys * (width + 2)
        else:
            scores = queries * keys * 2 * width
        if scores <= cache_bytes(1) and elements * width <= cache_bytes(2) // 2:
            break
        keys //= 2
    if side_by_side is not None:
        in_row = heads * head_sizes * _bytes(root.operands[1])
        while keys > MIN_KEYS and keys * in_row > cache_bytes(2) // 4:
            keys //= 2
    d = loops.k[-1]
    if queries < ROWS_TO_PACK and not multiplied and not masked and side_by_side is None:
        most = min(STREAMED_KEYS, (extents[d] or 0) // STREAMED_TILES, cache_bytes(1) // (queries * 2 * width))
        while 2 * keys <= most:
            keys *= 2
    sizes[d] = min(keys, extent_of(extents, [d], keys))
    order = [*loops.batch, *loops.m, *loops.n, *loops.k]
    return sizes, order


def _heads_in_row(attention: Attention) -> tuple[int, int] | None:
    """The loop over heads whose keys, and whose values, stand side by side in memory, [s, h, d], and of how many at a
    time; None where a head's rows follow each other."""
    found = []
    for op in (attention.scores, attention.root):
        loops, extents = contraction_loops(op), static_extents(op)
        assert loops is not None, "both are contractions"
        rows = loops.n if op == attention.scores else loops.k
        *outer, last = [dim_position(e) for e in indexing_maps(op)[1].results]
        inside = outer[outer.index(rows[-1]) + 1 :] if rows and rows[-1] in outer else []
        if len(inside) != 1 or inside[0] not in loops.batch:
            return None
        heads, size = extents[inside[0]], extents[last]
        if not heads or not size:
            return None
        most = max(1, PAGE // (size * _bytes(op.operands[1])))
        found.append((inside[0], max(n for n in range(1, min(heads, most) + 1) if heads % n == 0)))
    (_, of_keys), (loop, of_values) = found
    count = math.gcd(of_keys, of_values)
    return (loop, count) if count > 1 else None


def _matrix_queries(keys: int | None, head_sizes: int) -> int:
    """How many rows for a matrix unit: more where keys and values of a head, in 2 bytes, fill the L2 cache."""
    return LONG_QUERIES if keys is not None and 2 * keys * head_sizes >= cache_bytes(2) else MATRIX_QUERIES


def _is_masked(attention: Attention) -> bool:
    """True if scores are chosen from before the softmax, as by a mask."""
    pending, seen = [attention.modified], {attention.scores}
    while pending:
        op = defining_op(pending.pop())
        if op is None or op in seen:
            continue
        seen.add(op)
        if any(o.operation.name == "arith.select" for r in op.regions for b in r.blocks for o in b.operations):
            return True
        pending += op.operands
    return False


def fill_rows(sizes: list[int], extents: list[int | None], loops: list[int], rows: int) -> int:
    """Sets the sizes of the loops over queries, the innermost first, so that a tile has up to `rows`; returns how many.

    Of outer loops, heads of a group, only whole ones are taken: a cut one would need a tile of its own.
    """
    taken = 1
    for d in reversed(loops):
        known = extents[d]
        if d == loops[-1]:
            sizes[d] = rows if known is None else max(1, min(known, rows))
        else:
            sizes[d] = known if known is not None and 1 <= known * taken <= rows else 1
        taken *= sizes[d]
    return taken


def _head_sizes(attention: Attention, extents: list[int | None]) -> int:
    """Dqk + Dv, 64 for each that is dynamic."""
    root, scores = contraction_loops(attention.root), contraction_loops(attention.scores)
    of_scores = static_extents(attention.scores)
    return _product_of(of_scores, scores.k if scores else []) + _product_of(extents, root.n if root else [])


def _product_of(extents: list[int | None], loops: list[int]) -> int:
    """How many iterations of the loops, 64 of each that is dynamic."""
    return math.prod(extents[d] or 64 for d in loops)


def _bytes(value: ir.Value) -> int:
    element = value.type.element_type
    return element.width // 8 if hasattr(element, "width") else 4

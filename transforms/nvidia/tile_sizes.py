"""Which tile sizes to take for GPUs when none are given.

A block of threads has a tile of queries, its warps 16 rows each; it goes over the keys:

- batch loops get size 1, and so do all loops of queries but the last: the grid;
- queries: 64 rows, so that two blocks share a multiprocessor and one computes while the other waits; 128 where head
  dimensions exceed 128 and only one block has room;
- keys: 64, or 32 where head dimensions exceed 128: a thread holds keys/2 scores, dv/2 outputs and d/4 words of Q;
- less of both where shared memory, of which some GPUs have 99 KiB a block, does not hold them;
- the head dimensions are not tiled up to 256; beyond, values have parts of their columns (large_heads.py);
- where queries are few (decoding), heads of a group that shares their keys are rows with them, 64 at most, or 128 that
  they fill: keys are read once for all of these.

Hopper's copy engine and warps with roles (``specialize-warps``) take other sizes: 128 queries, 64 for each of two
warpgroups that take turns, 128 keys. Up to head dimension 64 a third warpgroup has registers, 192 queries; a fourth one
with 64 keys, 256 queries: where what stands between the matmuls takes longer than they do. That is up to head dimension
32; up to 64 where scores go through a function such as tanh, or under a mask by position, whose edges cut tiles: there
each warpgroup computes with keys of its own (own_keys.py), unless all queries are one tile. Where head dimensions
exceed 128, shared memory holds two stages of 80 keys; 64 are better under a mask by position, whose tiles end where
those of queries do. Of these, 128 queries and 64, the sizes are taken that all multiprocessors are done with first:
where queries are few, 64, so that none is idle, or what leaves the fewest with one tile more than others. All that
where rows are aligned to 16 bytes, or will be (``align-rows``), and more than 64 queries are known or possible. Values
of 8 bits, of which each tile is summed by itself, leave no registers for a fourth warpgroup from head dimension 33 on,
and have other tiles beyond 128 (``widen-operands``).

Where a bias or mask of keys comes from memory, 128 queries, and as many keys as fill rows of 128 bytes in shared
memory, for which there is room beside keys and values: 128, or 64 where head dimensions exceed 128 or elements take
four bytes. 256 × 64 up to head dimension 64 for biases, with which matmuls start (``start-scores``); of masks more of
such a tile is dead. Where the copy engine cannot bring it (``stage-operands``), 64 keys: what each thread loads by
itself takes registers, unless it changes with keys alone; but where it comes through shared memory nonetheless, the
same tiles, of 112 keys from head dimension 65 on: rows take 16 bytes more. Batch entries and heads that share a bias
are the innermost loop of the grid, so that it comes from memory once for all of them. Where enough of them do, rows
that are not aligned will be (``align-rows``).

Where scores are made of several products of queries and keys, 128 queries, and as many keys as registers hold scores of
each product, and shared memory two stages of the keys of all. Products whose operands it does not hold are computed
before the loops, each as a whole.

Siblings, such as the derivatives by keys and by values, whose loops become one up to head dimension 128
(``fuse-siblings``), have 128 rows and 64 columns, so that registers hold two sums and two products. So have results for
each query and key (``pairwise.py``): a sum and two products.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...dialects.mlir import ir
from ...dialects.tiling.structured import dim_position, indexing_maps, is_structured, iterator_types
from ..attention import Attention, contraction_loops, products_beside
from ..extents import extent_of, static_extents
from ..linear import DYNAMIC
from ..open_queries import FEW_QUERIES
from ..rewriting import defining_op, ops_in
from .alignment import are_aligned
from .architecture import MOST_COLUMNS, MULTIPROCESSORS, RESERVED, TILE_MEMORY
from .elements import byte_width
from .kernels.align_rows import can_be_aligned, operand_can_be_aligned, operand_pays, pays
from .large_heads import HELD, ROW_BYTES, columns_of_part, fitting_tile, most_columns_held
from .schedule.widen_operands import MOST_COLUMNS as MOST_WIDENED
from .tile_times import time_of_parts, time_of_tiles
from .version_functions import few_queries, loop_of_group

Tiles = tuple[tuple[int, int, int], ...]

# Up to which head dimension how many queries and keys; measured on an H200 (docs/nvidia-log.md).
ANY_HEAD = 1 << 63  # more than a dimension can have
MOST_TOGETHER = 128  # beyond, registers do not hold two products and two sums
TILES_BY_HEAD = ((128, 64, 64), (ANY_HEAD, 128, 32))
HELD_TILES_BY_HEAD = ((128, 64, 64), (256, 128, 32), (ANY_HEAD, 64, 16))  # where threads hold queries
WIDE_TILES_BY_HEAD = ((64, 64, 64), (128, 128, 16), (ANY_HEAD, 64, 16))  # of f32: by what shared memory holds
HOPPER_TILES_BY_HEAD = ((32, 256, 64), (64, 192, 128), (128, 128, 128), (ANY_HEAD, 128, 80))
FUNCTION_HOPPER_TILES_BY_HEAD = ((64, 256, 64), *HOPPER_TILES_BY_HEAD[2:])
CROWDED_HOPPER_TILES_BY_HEAD = ((ANY_HEAD, 128, 64),)
MASKED_HOPPER_TILES_BY_HEAD = ((64, 192, 128), (128, 128, 128), (ANY_HEAD, 128, 64))
SMALL_HOPPER_TILES_BY_HEAD = ((128, 128, 128), (ANY_HEAD, 128, 64))  # where larger ones would hold much that is dead
SKEWED_HOPPER_TILES_BY_HEAD = ((64, 128, 128), (128, 128, 112), (ANY_HEAD, 128, 64))  # rows take 16 bytes more
MANY_WARPS_HOPPER_TILES_BY_HEAD = ((64, 256, 64), *SMALL_HOPPER_TILES_BY_HEAD)
SIBLINGS_HOPPER_TILES_BY_HEAD = ((MOST_TOGETHER, 128, 64),)
SEVERAL_ROWS, SEVERAL_KEYS = 128, (128, 64, 48, 32, 16)  # where scores are made of several products
SEVERAL_WIDE_TILES_BY_HEAD = ((256, 128, 32), (ANY_HEAD, 64, 16))  # the same of f32, by the columns of all products
PAIRWISE_TILE = 128, 64  # queries and keys
_FUNCTIONS = ("tanh", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "rsqrt", "sqrt")
FUNCTIONS = ["math." + name for name in _FUNCTIONS]
MOST_ROWS = 64  # of few queries
ALIGNED = 128  # bits
LEAST_KEYS = 16
MANY_KEYS = 1 << 16  # of which there may be any number
AS_GOOD = 1.05  # so much longer than the fastest tiles take


def choose_hopper_tile_sizes(
    attention: Attention, together: bool = False, multiprocessors: int = MULTIPROCESSORS
) -> tuple[list[int], list[int]]:
    """The same, for an architecture with a copy engine, and so many multiprocessors. `together`: its loops will be one
    with a sibling's."""
    loops = contraction_loops(attention.root)
    assert loops is not None, "an attention's matmuls are contractions"
    extents = _extents(attention.root)
    queries = extents[loops.m[-1]] if loops.m else None
    several = products_in_loops(attention, TILE_MEMORY)
    aligned = all(_comes_aligned(op, number, queries) for op, number in _operands(attention, several))
    few = queries is not None and queries <= MOST_ROWS
    eight_bits = attention.root.operands[1].type.element_type.width == 8
    others = [v for v, dims in _other_tensors(attention) if loops.k[-1] in dims]
    if few and aligned:
        return _choose_few(attention, others, multiprocessors)
    if not aligned or (eight_bits and _head_size(attention) > MOST_WIDENED):
        return _choose_general(attention)
    if together and _head_size(attention) <= MOST_TOGETHER:
        return _choose_fastest(attention, multiprocessors, [], SIBLINGS_HOPPER_TILES_BY_HEAD)
    if others or several:
        planes = [v for v, dims in _other_tensors(attention) if {loops.k[-1], *loops.m[-1:]} <= dims]
        small = _small_tiles(attention, planes)
        added = [v for v in planes if isinstance(v.type.element_type, ir.FloatType)]
        shared = _shared_loops(attention, extents) if added else []
        many = added == planes != [] and small != CROWDED_HOPPER_TILES_BY_HEAD
        many = many and not _uses_functions(attention) and not several
        # What is added of keys alone are statistics of rows, which are keys in the derivative of a softmax.
        many = many or (attention.softmax is None and not planes)
        wide = [(MANY_WARPS_HOPPER_TILES_BY_HEAD[0], *small)] if many else []
        sizes, order = _choose_fastest(attention, multiprocessors, wide, small)
        at = order.index(loops.m[-1]) + 1 if loops.m else 0
        return sizes, [*(d for d in order[:at] if d not in shared), *shared, *order[at:]]
    if len(_comparisons(attention)) > 1:  # both cut tiles
        return _choose_fastest(attention, multiprocessors, [] if eight_bits else [MANY_WARPS_HOPPER_TILES_BY_HEAD])
    if eight_bits:  # sums apart take the registers of a fourth warpgroup
        return _choose_fastest(attention, multiprocessors, [HOPPER_TILES_BY_HEAD])
    tiles: list[Tiles]
    if _uses_functions(attention):
        tiles = [MANY_WARPS_HOPPER_TILES_BY_HEAD if _by_place(attention) else FUNCTION_HOPPER_TILES_BY_HEAD]
    elif _by_place(attention):
        tiles = [MANY_WARPS_HOPPER_TILES_BY_HEAD, MASKED_HOPPER_TILES_BY_HEAD]
    else:
        tiles = [HOPPER_TILES_BY_HEAD, MANY_WARPS_HOPPER_TILES_BY_HEAD]
    return _choose_fastest(attention, multiprocessors, tiles)


def _small_tiles(attention: Attention, others: Sequence[ir.Value]) -> Tiles:
    """Tiles beside which shared memory and registers hold those of biases and masks."""
    several = products_in_loops(attention, TILE_MEMORY)
    if several:
        return ((ANY_HEAD, *_tile_of_several(attention, several, others)),)
    if others and attention.softmax is None and _head_size(attention) > MOST_TOGETHER and products_beside(attention):
        return ((ANY_HEAD, MOST_ROWS, MOST_ROWS),)  # beside the operands of three products
    if not all(_is_staged(v, attention) for v in others):  # after align-rows
        return CROWDED_HOPPER_TILES_BY_HEAD
    engines = all(_is_engines(v, attention) for v in others)
    return SMALL_HOPPER_TILES_BY_HEAD if engines else SKEWED_HOPPER_TILES_BY_HEAD


def _choose_fastest(
    attention: Attention,
    multiprocessors: int,
    candidates: Sequence[Tiles],
    small: Tiles = SMALL_HOPPER_TILES_BY_HEAD,
) -> tuple[list[int], list[int]]:
    """The first of the candidates, of small tiles and of half of these, that takes hardly longer than the fastest."""
    loops, extents = contraction_loops(attention.root), _extents(attention.root)
    assert loops is not None, "an attention's matmuls are contractions"
    queries = extents[loops.m[-1]] if loops.m else 1
    if queries is None:
        return _choose(attention, [*candidates, small][0])
    others = [extents[d] for d in loops.batch + loops.m[:-1]]
    others += [-(-(extents[d] or 1) // MOST_COLUMNS) for d in loops.n[-1:]]
    heads = None if None in others else math.prod(n for n in others if n is not None)
    summed = extent_of(extents, loops.k[-1:], queries)
    cut, is_causal = bool(_by_place(attention)), _is_causal(attention)
    half = tuple((limit, MOST_ROWS, MOST_ROWS if cut else keys) for limit, _, keys in small)
    times: list[tuple[float, Tiles]] = []
    for tiles in [*candidates, small, half]:
        rows, _ = _rows_and_keys(attention, tiles)
        if not (rows >= 256 and cut and queries <= rows):  # four warpgroups would share a masked tile that is all
            times.append((time_of_tiles(rows, queries, summed, heads, is_causal, multiprocessors), tiles))
    least = min(time for time, _ in times)
    return _choose(attention, next(tiles for time, tiles in times if time <= AS_GOOD * least))


def _choose_few(attention: Attention, others: Sequence[ir.Value], multiprocessors: int) -> tuple[list[int], list[int]]:
    """Of few queries: the rows of a tile that they fill, together with heads of their group, if they fill any; 64, most
    of which they are, if there are more than 32. `others`: biases and masks of keys, which the copy engine cannot bring
    for several heads."""
    loops, extents = contraction_loops(attention.root), _extents(attention.root)
    assert loops is not None, "an attention's matmuls are contractions"
    queries, group = extents[loops.m[-1]], loop_of_group(loops.m, extents)
    is_open = queries is None or FEW_QUERIES in attention.root.attributes
    if is_open or attention.root.operands[1].type.element_type.width != 16:
        return _choose_general(attention)
    known, filled = [extents[d] for d in loops.batch + loops.m], []
    if not others and None not in known:
        heads = 1 if group is None else extents[group]
        filled = [rows for rows in (128, 64) if rows % queries == 0 and heads % (rows // queries) == 0]
    if not filled and queries <= MOST_ROWS // 2:
        return _choose_general(attention)
    rows = MOST_ROWS
    if filled:
        keys, tiles = extent_of(extents, loops.k[-1:], MANY_KEYS), math.prod(n for n in known if n is not None)
        rows = min(filled, key=lambda rows: time_of_parts(rows, keys, tiles // rows, multiprocessors))
    sizes = tuple((limit, rows, columns) for limit, _, columns in _small_tiles(attention, others))
    return _choose(attention, sizes, most_rows=rows)


def _comparisons(attention: Attention) -> list[ir.Operation]:
    """The comparisons of places that a mask has: one if it is causal, two if it is a window."""
    return [comparison for op in _by_place(attention) for comparison in ops_in(op, "arith.cmpi")]


def _is_causal(attention: Attention) -> bool:
    """Whether what is dead ends, or begins, elsewhere for each query: not where all have the same length."""
    loops = contraction_loops(attention.root)
    assert loops is not None, "an attention's matmuls are contractions"
    of_scores = [dim_position(e) for e in indexing_maps(attention.root)[0].results]
    queries = [of_scores.index(d) for d in loops.m[-1:]]
    compared = _comparisons(attention)
    return len(compared) == 1 and _is_of_index(compared[0], queries)


def _is_of_index(op: ir.Operation, dims: Sequence[int]) -> bool:
    """Whether a scalar of a body is computed from the index of one of these dimensions."""
    if op.name == "linalg.index":
        return ir.IntegerAttr(op.attributes["dim"]).value in dims
    inputs = [of for v in op.operands if (of := defining_op(v)) is not None and of.block == op.block]
    return any(_is_of_index(of, dims) for of in inputs)


def _uses_functions(attention: Attention) -> bool:
    """Whether scores go through a function that takes the GPU's special unit, before softmax."""
    return any(ops_in(op, *FUNCTIONS) for op in _between(attention))


def _by_place(attention: Attention) -> list[ir.Operation]:
    """The ops that change scores by where they are, and those that make masks for that."""
    between = _between(attention)
    makers = [maker for op in between for v in op.operands if _is_of_place(maker := defining_op(v))]
    return [op for op in between if ops_in(op, "linalg.index")] + makers


def _between(attention: Attention) -> list[ir.Operation]:
    """The ops from softmax, or from the weights that are made without one, back to the scores."""
    ends = [attention.root, attention.softmax]
    made: set[ir.Operation] = set()
    pending = [attention.scores]
    while pending:
        users = {use.owner.operation for r in pending.pop().results for use in r.uses}
        pending += [op for op in users if op not in made and op not in ends]
        made.update(users.difference(ends))
    found: dict[ir.Operation, None] = {}
    pending = [attention.modified]
    while pending:
        op = defining_op(pending.pop())
        if op in made and op not in found:
            found[op] = None
            pending += op.operands
    return list(found)


def _is_of_place(op: ir.Operation | None) -> bool:
    """Whether along the last dimension of the result, as that of keys, an op changes with the index alone."""
    if op is None or not is_structured(op) or not ops_in(op, "linalg.index"):
        return False
    *maps, of_result = indexing_maps(op)
    last = of_result.results[-1:]
    return not any(e in last for m in maps for e in m.results)


def _inputs(op: ir.Operation, attention: Attention) -> list[tuple[ir.Value, int]]:
    """The tensors that scores come together with in an op, and which operands they are."""
    of_scores = [attention.scores, *_between(attention), *products_in_loops(attention, TILE_MEMORY)]
    found = []
    for number, value in enumerate(list(op.operands)[: -len(op.results)]):
        maker = defining_op(value)
        if isinstance(value.type, ir.RankedTensorType) and maker not in of_scores and not _is_of_place(maker):
            found.append((value, number))
    return found


def _other_tensors(attention: Attention) -> list[tuple[ir.Value, set[int]]]:
    """The tensors that scores come together with, before softmax, and along which loops of the second matmul they
    change; all of them where that cannot be told."""
    of_scores = [dim_position(e) for e in indexing_maps(attention.root)[0].results]
    found: list[tuple[ir.Value, set[int]]] = []
    for op in _between(attention):
        rank = len(iterator_types(op)) if is_structured(op) else 0
        known = rank == len(of_scores) and indexing_maps(op)[-1] == ir.AffineMap.get_identity(rank)
        for value, number in _inputs(op, attention):
            dims = set(range(len(iterator_types(attention.root))))
            if known:
                places = zip(indexing_maps(op)[number].results, value.type.shape, strict=True)
                at = {dim_position(e) for e, extent in places if extent != 1}
                dims = {loop for d in at if d is not None and (loop := of_scores[d]) is not None}
            found.append((value, dims))
    return found


def _shared_loops(attention: Attention, extents: Sequence[int | None]) -> list[int]:
    """The loops of batch and heads along which all tensors that scores come together with stay the same."""
    loops = contraction_loops(attention.root)
    assert loops is not None, "an attention's matmuls are contractions"
    used = {d for _, dims in _other_tensors(attention) for d in dims}
    return [d for d in loops.batch + loops.m[:-1] if d not in used and extents[d] != 1]


def _is_staged(value: ir.Value, attention: Attention) -> bool:
    """Whether tiles of a tensor, of queries × keys, of narrow elements, come through shared memory: by the copy engine,
    if its rows are aligned to 16 bytes, or will be; if others do too, by threads beside it, where those are of keys."""
    kind = value.type
    if kind.rank < 2 or byte_width(kind.element_type) > 2:
        return False
    loops, extents = contraction_loops(attention.root), _extents(attention.root)
    assert loops is not None, "an attention's matmuls are contractions"
    wide = [extents[d] for d in (loops.m[-1:] + loops.k[-1:])]
    fits = all(n in wide or (n == DYNAMIC and None in wide) for n in kind.shape[-2:])
    return fits and (_is_engines(value, attention) or _is_by_keys(value, attention))


def _is_engines(value: ir.Value, attention: Attention) -> bool:
    """Whether rows of a tensor are aligned to 16 bytes, or will be."""
    loops, extents = contraction_loops(attention.root), _extents(attention.root)
    assert loops is not None, "an attention's matmuls are contractions"
    own = next(dims for v, dims in _other_tensors(attention) if v == value)
    counts = (extents[d] for d in loops.batch + loops.m[:-1] if d not in own)
    shared = pays(value.type, counts, _is_by_keys(value, attention))
    return are_aligned(value.type) or (shared and can_be_aligned(value))


def _is_by_keys(value: ir.Value, attention: Attention) -> bool:
    """Whether keys stand side by side in a tensor that scores come together with."""
    op, number = next((op, n) for op in _between(attention) for v, n in _inputs(op, attention) if v == value)
    if not is_structured(op):
        return False
    last = dim_position(indexing_maps(op)[number].results[-1])
    return last == len(iterator_types(op)) - 1


def _operands(attention: Attention, several: Sequence[ir.Operation]) -> list[tuple[ir.Operation, int]]:
    """Queries and keys, those of other products, too, and values, as operands of ops."""
    return [*((op, number) for op in (attention.scores, *several) for number in (0, 1)), (attention.root, 1)]


def _comes_aligned(op: ir.Operation, number: int, queries: int | None) -> bool:
    """Whether tiles of an operand have rows that are aligned to 16 bytes, or will be (``align-rows``)."""
    value, loops = op.operands[number], contraction_loops(op)
    assert loops is not None, "an attention's matmuls are contractions"
    last = value.type.shape[-1]
    along = dim_position(indexing_maps(op)[number].results[-1])
    tiled = last != 1 and along in (*loops.m[-1:], *loops.n[-1:], *loops.k[-1:])
    width = min(value.type.element_type.width, 16)
    aligned = last != DYNAMIC and last * width % ALIGNED == 0
    return tiled and (aligned or (operand_can_be_aligned(value) and operand_pays(value, queries)))


def products_in_loops(attention: Attention, shared_memory: int) -> list[ir.Operation]:
    """The products of queries and keys beside the first one that scores are made of before a softmax, which the loops
    compute as well: none where a block's shared memory does not hold tiles of all operands."""
    products = [] if attention.softmax is None else products_beside(attention)
    if not products or max(_columns(attention, products)) > MOST_COLUMNS:
        return []
    width = byte_width(attention.root.operands[1].type.element_type)
    fits = _bytes_of_several(attention, products, MOST_ROWS, LEAST_KEYS, width) <= shared_memory
    return products if fits else []


def _columns(attention: Attention, products: Sequence[ir.Operation]) -> list[int]:
    """How many columns are summed up by the first product, and by these; 64 where they are dynamic. Last of all, how
    many of values there are, or of keys, if these have more."""
    found = []
    for op in (attention.scores, *products):
        loops, extents = contraction_loops(op), static_extents(op)
        assert loops is not None, "an attention's matmuls are contractions"
        found.append(math.prod(extents[d] or 64 for d in loops.k))
    return [*found, _head_size(attention)]


def _bytes_of_several(attention: Attention, products: Sequence[ir.Operation], rows: int, keys: int, width: int) -> int:
    """Of tiles of the queries of all products, and of two stages of their keys, and of values."""
    *of_keys, of_values = (-(-width * n // ROW_BYTES) * ROW_BYTES for n in _columns(attention, products))
    return rows * sum(of_keys) + 2 * keys * (sum(of_keys) + of_values) + RESERVED


def _tile_of_several(
    attention: Attention, products: Sequence[ir.Operation], others: Sequence[ir.Value]
) -> tuple[int, int]:
    """Queries and keys of a tile by the copy engine where scores are made of these products, too, of 16 bits. `others`:
    biases and masks, which come with two stages as well."""
    of_values, of_pair = _head_size(attention) // 2, sum(byte_width(v.type.element_type) for v in others)
    scores = 1 + len(products) + len(others)

    def is_held(rows: int, keys: int) -> bool:
        of_tiles = _bytes_of_several(attention, products, rows, keys, 2) + 2 * rows * keys * of_pair
        return of_tiles <= TILE_MEMORY and scores * keys // 2 + keys // 4 + of_values <= HELD

    tiles = [(rows, keys) for rows in (SEVERAL_ROWS, MOST_ROWS) for keys in SEVERAL_KEYS]
    return next((tile for tile in tiles if is_held(*tile)), (MOST_ROWS, LEAST_KEYS))


def choose_gpu_tile_sizes(attention: Attention, shared_memory: int) -> tuple[list[int], list[int]]:
    """Sizes for the loops of the second matmul, and their order from outer to inner, for blocks that may have so many
    bytes of shared memory."""
    return _choose_general(attention, shared_memory)


def _extents(root: ir.Operation) -> list[int | None]:
    """The extents of loops; of queries that are known to be few, how many rows of a tile they and their heads fill."""
    extents = static_extents(root)
    if FEW_QUERIES in root.attributes:
        loops = contraction_loops(root)
        assert loops is not None, "an attention's root is a contraction"
        rows = ir.IntegerAttr(root.attributes[FEW_QUERIES]).value
        extents[loops.m[-1]] = few_queries(rows, loops.m, extents)
    return extents


def _head_size(attention: Attention) -> int:
    """The larger one of those of keys and of values, 64 where they are dynamic."""
    loops, scores = contraction_loops(attention.root), contraction_loops(attention.scores)
    assert loops is not None and scores is not None, "an attention's matmuls are contractions"
    of_root, of_scores = static_extents(attention.root), static_extents(attention.scores)
    return max([of_scores[d] or 64 for d in scores.k] + [of_root[d] or 64 for d in loops.n])


def _sizes_for(head: int, tiles: Tiles) -> tuple[int, int]:
    """Queries and keys."""
    return next((queries, keys) for limit, queries, keys in tiles if head <= limit)


def _rows_and_keys(attention: Attention, tiles: Tiles) -> tuple[int, int]:
    """Queries and keys of a tile by the copy engine."""
    head = _head_size(attention)
    rows, keys = _sizes_for(head, tiles)
    if head <= MOST_COLUMNS:
        return rows, keys
    others = [v for v, _ in _other_tensors(attention) if _is_staged(v, attention)]
    of_scores = sum(byte_width(v.type.element_type) for v in others)
    return fitting_tile(rows, head, of_scores, bool(_by_place(attention)))


def _fitting(queries: int, keys: int, row: int, of_values: int, shared_memory: int) -> tuple[int, int]:
    """The same, or half and half of them as long as shared memory does not hold queries, two stages of keys, and two
    of values, whose rows have so many bytes."""
    while (queries + 2 * keys) * row + 2 * keys * of_values + RESERVED > shared_memory:
        if queries > MOST_ROWS:
            queries //= 2
        elif keys > LEAST_KEYS:
            keys //= 2
        else:
            break  # `stage-loads` keeps one stage, then
    return queries, keys


def _choose(attention: Attention, tiles: Tiles, most_rows: int = MOST_ROWS) -> tuple[list[int], list[int]]:
    """By the copy engine. `most_rows`: of heads and few queries together."""
    if attention.root.operands[1].type.element_type.width > 16:
        return _choose_general(attention)
    rows, keys = _rows_and_keys(attention, tiles)
    return _sizes(attention, (rows, keys), MOST_COLUMNS, min(rows, most_rows))


def _choose_general(attention: Attention, shared_memory: int | None = None) -> tuple[list[int], list[int]]:
    """By threads, for blocks that may have so many bytes of shared memory; None: Hopper's."""
    most = TILE_MEMORY if shared_memory is None else shared_memory
    several, width = products_in_loops(attention, most), attention.root.operands[1].type.element_type.width
    *of_products, head = _columns(attention, several)
    of_queries, size = sum(of_products) if several else head, 4 if width > 16 else 2
    tiles: Tiles
    if width > 16:  # no parts of columns: scores once more, a sum of three products each, take longer than memory
        tiles, columns = SEVERAL_WIDE_TILES_BY_HEAD if several else WIDE_TILES_BY_HEAD, ANY_HEAD
    elif shared_memory is None and width == 16:
        tiles, columns = TILES_BY_HEAD, MOST_COLUMNS
    else:
        tiles, columns = HELD_TILES_BY_HEAD, most_columns_held(of_queries)
    of_values = size * head if head <= MOST_COLUMNS else min(size * head, 2 * columns)
    rows, keys = _fitting(*_sizes_for(of_queries, tiles), size * of_queries, of_values, most)
    others = products_beside(attention) if attention.softmax is None else []
    if len(others) > 1 and _bytes_of_several(attention, others, rows, keys, size) > most:
        rows = min(rows, MOST_ROWS)  # of a derivative by scores that are made of several products
    return _sizes(attention, (rows, keys), columns, MOST_ROWS)


def _sizes(
    attention: Attention, tile: tuple[int, int], most_columns: int, most_rows: int
) -> tuple[list[int], list[int]]:
    """Of all loops, for a tile of so many queries and keys; from head dimension 257 on of at most so many columns of
    values. `most_rows`: of heads and few queries together."""
    loops, extents = contraction_loops(attention.root), _extents(attention.root)
    assert loops is not None, "an attention's matmuls are contractions"
    queries, keys = tile
    sizes = [0] * len(extents)
    for d in loops.batch + loops.m[:-1] + loops.k[:-1]:
        sizes[d] = 1
    for d in loops.m[-1:]:
        known = extents[d]
        sizes[d] = queries if known is None else min(known, MOST_ROWS if known <= MOST_ROWS else queries)
    if loops.m:
        _join_heads(sizes, extents, loops.m, most_rows)
    for d in loops.n[-1:]:
        columns = extents[d] or 0
        sizes[d] = columns_of_part(columns, most_columns) if columns > max(most_columns, MOST_COLUMNS) else 0
    d = loops.k[-1]
    sizes[d] = min(keys, extent_of(extents, [d], keys))
    return sizes, [*loops.batch, *loops.m, *loops.n, *loops.k]


def _join_heads(sizes: list[int], extents: list[int | None], rows: Sequence[int], most: int) -> None:
    """Few queries leave rows of a tile to the heads of the group that shares their keys: as many in each tile."""
    heads = loop_of_group(rows, extents)
    count, known = extents[rows[-1]], None if heads is None else extents[heads]
    if heads is not None and known is not None and count is not None and count <= MOST_ROWS:
        tiles = -(-known // (most // count))
        sizes[heads] = -(-known // tiles)

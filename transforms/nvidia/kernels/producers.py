"""Which producers of queries, keys and values are computed once, in a launch before the attention, for GPUs.

In the loops, each block of queries computes its keys and values again: rotary embeddings, biases, scales, casts, pages
that a table lists. And tiles that are computed are none of the copy engine's. Before them, each element is computed
once, written, and read again::

    inside   elements of a block · waves of blocks · 150 ps
    before   bytes read and written · 0.25 ps, and a launch for all together, 1 µs

as measured on an H200 (90 to 200 ps an element; docs/nvidia-log.md). Where one block reads all keys of a head, as in
decoding, producers stay inside. Where a launch is needed anyway, since something among the producers cannot stand in
loops over tiles (tensors that are put together, as halves of a rotated head are), the rest of it is computed there,
too. So are queries where keys or values are: all of them become one launch (``outline-producers``). Scores themselves
are computed before where the first matmul has no tiles of rows that the second one could take. So are terms of them by
keys and queries, not queries and keys, where one tile holds as many of the ones as of the others: what is made of both
indices (a distance) would be one tensor, of which rows are queries in one place and keys in another.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from ....dialects.mlir import ir
from ....dialects.tiling.structured import all_parallel, dim_position, indexing_maps, is_direct, moves_first
from ....dialects.tiling.tensor_ops import reassociation
from ...attention import Attention, contraction_loops, products_beside, turned
from ...extents import static_extents
from ...graph import backward_slice, operands_with_captures
from ...reshapes import VIEWS
from ...rewriting import defining_op, through
from ..elements import byte_width
from ..tile_sizes import products_in_loops
from .align_rows import is_known

PIECES = ("tensor.concat", "tensor.pad", "tensor.insert_slice")  # of which loops over tiles have no part
PS_INSIDE = 150.0  # an element, on a multiprocessor; with what a kernel without copy engine loses
PS_BYTE = 0.25  # read or written, by all of them
PS_LAUNCH = 1e6
LEAST_KEYS = 128  # of a part, where keys are split
MANY = 4096  # where the extent is not known


@dataclass(eq=False)
class _Chain:
    """What an operand of a matmul comes from: views of what `op` computes, the last one first."""

    op: ir.Operation
    views: list[ir.Operation]
    pieces: bool = False  # it needs a launch anyway
    inputs: dict[ir.Value, None] = field(default_factory=dict)

    @property
    def is_split(self) -> bool:
        """Whether views make a row or a column of several dimensions, which tiles in loops cannot."""
        return any(_merges(v) for v in self.views)

    @property
    def is_apart(self) -> bool:
        """Whether views make several dimensions of one, such as heads of a projection's columns."""
        return any(v.name == "tensor.expand_shape" and _has_wide_group(v, v.results[0]) for v in self.views)

    @property
    def stops(self) -> list[ir.Operation]:
        """What stays before the loops: they may well read elements from other places, and pass them on to heads."""
        moved = any(map(_moves, self.views)) and not self.is_split
        return [self.op] if moved else [self.op, *self.views]


def computed_before(
    attention: Attention,
    sizes: Sequence[int],
    tile_memory: int,
    multiprocessors: int,
    outside: Collection[ir.Operation],
) -> list[ir.Operation]:
    """The ops whose results the loops, with tiles of such sizes, are to read, beside those that are `outside` anyway;
    `tile_memory`: bytes that a block has for tiles."""
    several = products_in_loops(attention, tile_memory)
    of_queries, of_keys = ([op.operands[number] for op in (attention.scores, *several)] for number in (0, 1))
    of_others = [*of_keys, attention.root.operands[1]]
    queries, others = (
        [chain for value in dict.fromkeys(values) if (chain := _chain(value)) is not None]
        for values in (of_queries, of_others)
    )
    before = [c for c in (*queries, *others) if c.pieces or c.is_split]
    if _rows_are_joined(attention, sizes):
        before += [c for c in queries if c not in before and c.is_apart]
    gains = {c: _gain(c, attention, sizes, multiprocessors) for c in others if c not in before}
    gaining = [c for c, gain in gains.items() if gain > 0]
    if sum(gains[c] for c in gaining) > (0 if before else PS_LAUNCH):
        before += gaining
    if any(c in before for c in others):
        before += [c for c in queries if c not in before]
    products = [attention.scores] if _mixes_rows(attention) else []
    if attention.softmax is not None:
        products += [op for op in products_beside(attention) if op not in several]
    producers = backward_slice(attention.root, stops=outside)
    pieces = [op for op in producers if op.name in PIECES or _overlaps(op)]  # of masks, too
    turned_ops = turned(attention) if _is_one_square(attention, sizes) else []
    views = [op for value in (*of_queries, *of_others) for op in _joining_views(value)]
    return [*products, *pieces, *views, *turned_ops, *(op for chain in before for op in chain.stops)]


def _is_one_square(attention: Attention, sizes: Sequence[int]) -> bool:
    """Whether there are as many keys as queries, in one tile."""
    loops, extents = contraction_loops(attention.root), static_extents(attention.root)
    assert loops is not None, "an attention's matmuls are contractions"
    wide = [d for d in (*loops.m, *loops.k) if extents[d] != 1]
    counts = {extents[d] for d in wide}
    return len(counts) == 1 and all((extents[d] or MANY) <= (sizes[d] or MANY) for d in wide)


def _rows_are_joined(attention: Attention, sizes: Sequence[int]) -> bool:
    """Whether the rows of a tile are those of several dimensions, such as of heads that share keys, and of queries."""
    loops, extents = contraction_loops(attention.root), static_extents(attention.root)
    assert loops is not None, "an attention's matmuls are contractions"
    return sum(extents[d] != 1 and sizes[d] != 1 for d in loops.m) > 1


def _mixes_rows(attention: Attention) -> bool:
    """Whether what are rows of a tile of the second matmul each have a matrix of their own in the first one, as queries
    have that mix heads (talking heads), or that have keys for each position: no tensor core takes tiles of such."""
    first, second = contraction_loops(attention.scores), contraction_loops(attention.root)
    assert first is not None and second is not None, "an attention's matmuls are contractions"
    given, taken = indexing_maps(attention.scores)[2].results, indexing_maps(attention.root)[0].results
    extents = static_extents(attention.scores)
    pairs = zip(map(dim_position, given), map(dim_position, taken), strict=True) if len(given) == len(taken) else ()
    return any(a not in first.m and b in second.m and extents[a] != 1 for a, b in pairs if a is not None)


def _chain(value: ir.Value) -> _Chain | None:
    views: list[ir.Operation] = []
    op = defining_op(value)
    while op is not None and (op.name in VIEWS or _moves(op)):
        views.append(op)
        op = defining_op(op.operands[0])
    if op is None or not (op.name in PIECES or _is_elementwise(op)):
        if not any(map(_merges, views)):
            return None
        first = max(i for i, view in enumerate(views) if _moves(view))  # of what memory has in another order
        op, views = views[first], views[:first]
    chain = _Chain(op, views)
    pending, seen = [op], set()
    while pending:
        inner = pending.pop()
        if inner in seen:
            continue
        seen.add(inner)
        if inner.name in PIECES or _merges(inner) or isinstance(inner.results[0].type.element_type, ir.ComplexType):
            chain.pieces = True
        for operand in operands_with_captures(inner):
            maker = defining_op(operand)
            if not isinstance(operand.type, ir.RankedTensorType):
                if not is_known(operand) and maker is not None and maker.block == op.block:
                    return None  # a number that only the GPU knows
                continue
            if maker is None or not (
                maker.name in PIECES or maker.name.startswith("tensor.") or _is_elementwise(maker)
            ):
                chain.inputs[operand] = None
            elif maker.name != "tensor.empty":
                pending.append(maker)
            elif not all(is_known(v) for v in maker.operands):
                return None  # a size that only the GPU knows
    return chain


def _joining_views(value: ir.Value) -> list[ir.Operation]:
    """The reshapes of memory, which cost nothing, that tiles in loops do not have."""
    found = []
    while (op := defining_op(value)) is not None and op.name in VIEWS:
        found += [op] if _joins(op) and not _is_computed(op.operands[0]) else []
        value = op.operands[0]
    return found


def _merges(op: ir.Operation) -> bool:
    """Whether a reshape of what is computed makes one of the last two dimensions of several."""
    return _joins(op) and _is_computed(op.operands[0])


def _joins(op: ir.Operation) -> bool:
    return op.name == "tensor.collapse_shape" and _has_wide_group(op, op.operands[0])


def _has_wide_group(op: ir.Operation, wide: ir.Value) -> bool:
    """Whether one of the last two dimensions of a reshape's small side is several of its wide side."""
    return any(sum(wide.type.shape[d] != 1 for d in group) > 1 for group in reassociation(op)[-2:])


def _overlaps(op: ir.Operation) -> bool:
    """Whether an element-wise op reads an operand elsewhere than at its own loops, as overlapping windows are read."""
    expressions = (e for m in indexing_maps(op) for e in m.results) if _is_elementwise(op) else ()
    return not all(map(is_direct, expressions))


def _is_computed(value: ir.Value) -> bool:
    op = defining_op(through(value, *VIEWS))
    return op is not None and (op.name in PIECES or _is_elementwise(op))


def _is_elementwise(op: ir.Operation) -> bool:
    return all_parallel(op) and op.name != "linalg.fill"


def _moves(op: ir.Operation) -> bool:
    """Whether an op gives each element of its operand another place, or several."""
    return _is_elementwise(op) and len(op.regions) == 1 and len(op.results) == 1 and moves_first(op)


def _gain(chain: _Chain, attention: Attention, sizes: Sequence[int], multiprocessors: int) -> float:
    """How many picoseconds are won where keys, or values, are computed before the loops, but for a launch."""
    loops, extents = contraction_loops(attention.root), static_extents(attention.root)
    assert loops is not None, "an attention's matmuls are contractions"
    reads = math.prod(-(-(extents[d] or MANY) // (sizes[d] or extents[d] or MANY)) for d in loops.m)
    if reads == 1:
        return 0
    entries = math.prod(extents[d] or 1 for d in loops.batch)
    elements, blocks = _elements(chain.op.results[0].type), reads * entries
    if blocks >= multiprocessors:
        of_one = -(-blocks // multiprocessors) * elements / entries
    else:
        parts = max(1, (extents[loops.k[-1]] or MANY) // LEAST_KEYS)
        of_one = reads * elements / min(multiprocessors, blocks * parts)
    read = sum(_elements(v.type) * byte_width(v.type.element_type) for v in chain.inputs)
    written = elements * byte_width(chain.op.results[0].type.element_type)
    return of_one * PS_INSIDE - (read + 2 * written) * PS_BYTE


def _elements(kind: ir.RankedTensorType) -> int:
    return math.prod(MANY if n == ir.ShapedType.get_dynamic_size() else n for n in kind.shape)

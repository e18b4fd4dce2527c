"""Which rings share their barriers: what an iteration needs from its beginning on is waited for once."""

from __future__ import annotations

from ....dialects.mlir import ir
from ...rewriting import ops_of
from .asynchronous import beginnings
from .bulk_copies import is_read_as_column
from .rings import Ring, last_readers


def share_barriers(rings: list[Ring]) -> None:
    """Has rings follow the first one of them, whose tiles are needed together: right operands of matmuls that need no
    other one, where a loop has several, and with them what changes along columns, if there is such.

    A wait takes some 50 clocks even if the tile is there, and to have registers that were read settle before their
    stage is free as many (measured on an H200): behind a matmul that needs them, at the end of the iteration, they are
    there. So a derivative by keys and values waits once an iteration in place of five times."""
    if not any(is_read_as_column(ring.loads[0]) for ring in rings):
        return
    groups: dict[tuple[ir.Block, ...], list[Ring]] = {}
    for ring in rings:
        if blocks := _blocks(ring):
            groups.setdefault(blocks, []).append(ring)
    for blocks, group in groups.items():
        has_columns = any(is_read_as_column(ring.loads[0]) for ring in group)
        if has_columns and any(len(beginnings(block)) > 1 for block in blocks) and _have_one_order(group):
            stages = min(ring.stages for ring in group)
            for ring in group:
                ring.stages = stages
            first, *first.followers = group
            for ring in first.followers:
                ring.leader = first


def _blocks(ring: Ring) -> tuple[ir.Block, ...]:
    """Those in which such a ring is used, once in each; none for others."""
    blocks = tuple(load.block for load in ring.loads)
    is_plain = not ring.is_skewed and not ring.is_paired and len({*blocks}) == len(blocks)
    return blocks if is_plain and all(map(_is_needed_first, ring.loads)) else ()


def _is_needed_first(load: ir.Operation) -> bool:
    """Whether it is a tile as above that is read in no branch."""
    first = beginnings(load.block)
    reader = last_readers(load, load.block)[0]
    if isinstance(reader, ir.Block) or reader.block != load.block:
        return False
    return is_read_as_column(load) or any(use.owner.operation in first for use in load.results[0].uses)


def _have_one_order(group: list[Ring]) -> bool:
    """Whether the loads of one block after the other stand in the order of these rings."""
    for loads in zip(*(ring.loads for ring in group), strict=True):
        places = [ops_of(load.block).index(load) for load in loads]
        if places != sorted(places):
            return False
    return True

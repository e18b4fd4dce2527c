"""Tiles whose work is known, dealt to blocks beforehand so that these end together: ``persistent-blocks``."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ....dialects import build
from ....dialects.mlir import arith, ir
from ...formulas import Formula, evaluated
from ...index_formulas import formula
from ..constants import LARGEST, constant_memory
from .tile_orders import Body, Digit, block_of, from_tile_to_tile, load_number, loops_of

WORD = 4  # bytes of a tile's number
OUTSIDE = 2  # iterations: what is around a tile's loops takes as long
LEAST_GAIN = 1.01


@dataclass
class AsDealt:
    """A block has a list of tiles, which is part of the kernel's code::

        memref.global constant @kernel_tiles : memref<2244xi32>    // of 132 blocks: 16 tiles, and what ends the list

        %first = memref.load @kernel_tiles[%b]
        scf.while (%tile = %first, %n = 0) {
          scf.condition(%tile < %tiles) %tile, %n
        } do {
          %next = memref.load @kernel_tiles[(%n + 1)·132 + %b]
          …
          scf.yield %next, %n + 1
        }

    Pairs of tiles (`InPairs`) are all the same work, but blocks have whole ones: of 1024 pairs 100 of 132 blocks have
    eight, the others seven, and wait. So the last pairs of each block are dealt as single tiles: the largest one that
    is left goes to the block with least to do ("longest processing time first", Graham 1969). All others stay pairs, in
    the order of the grid, in which neighbours read the same keys.
    """

    number: ir.Value  # of the block
    tiles: ir.Value
    table: ir.Value
    blocks: int

    @staticmethod
    def of(number: ir.Value, tiles: ir.Value, rows: Digit, total: int, blocks: int) -> AsDealt | None:
        """`rows`: the dimension of the grid along which tiles differ; `total`: how many `tiles` there are. None: how
        much work they are is not known, or pairs are as good, as where there are many."""
        kernel, inner = block_of(number).owner.operation, [build.constant_value(size) for size in rows.inner]
        if None in inner or total * WORD > LARGEST:
            return None
        works = _works(rows, total // math.prod(inner), block_of(number))
        if works is None:
            return None
        blocks = min(blocks, total)
        (hands, longest), (_, of_pairs) = (deal(works, math.prod(inner), total, blocks, part) for part in (True, False))
        table = _table(hands, total)
        if longest * LEAST_GAIN > of_pairs or table.nbytes > LARGEST:
            return None
        kind = ir.RankedTensorType.get(table.shape, ir.IntegerType.get_signless(32))
        constant = arith.ConstantOp(kind, ir.DenseElementsAttr.get(table, type=kind))
        name = ir.StringAttr(kernel.attributes["sym_name"]).value
        memory = constant_memory(constant.result, kernel.parent.operation, f"{name}_tiles")
        constant.operation.erase()
        return AsDealt(number, tiles, memory, blocks)

    def loop(self, body: Body, again: bool) -> None:
        def following(tile: ir.Value, count: ir.Value) -> ir.Value:
            row = arith.muli(arith.addi(count, build.index(1)), build.index(self.blocks))
            found = load_number(self.table, arith.addi(row, self.number))  # asked for before the tile, there behind it
            body(tile, count)
            return found

        from_tile_to_tile(load_number(self.table, self.number), self.tiles, following)


def deal(works: Sequence[int], inner: int, total: int, blocks: int, in_part: bool) -> tuple[list[list[int]], int]:
    """The tiles of each block, and the work of the block that has most.

    `works`: that of a tile, by its row; `inner`: how many tiles of a row stand side by side; `total`: of all.
    `in_part`: the last whole round of pairs, and the one that is not whole, are dealt as single tiles. (More would be
    spread too far: where two more were, 128 heads of 256 with 1024 keys took 1.24 times as long, as these came from
    memory again.)
    """
    count = len(works)
    pairs = [  # the longest tiles, and the shortest, come last: they make up for each other best
        [(sequence * count + row) * inner + place for row in dict.fromkeys((first, count - 1 - first))]
        for sequence in range(total // (inner * count))
        for first in reversed(range((count + 1) // 2))
        for place in range(inner)
    ]

    def work(tile: int) -> int:
        return works[tile // inner % count] + OUTSIDE

    kept = max(len(pairs) // blocks - 1, 0) * blocks if in_part else len(pairs)
    hands: list[list[int]] = [[] for _ in range(blocks)]
    for i, pair in enumerate(pairs[:kept]):
        hands[i % blocks] += pair
    loads = [(sum(map(work, hand)), block) for block, hand in enumerate(hands)]
    heapq.heapify(loads)
    for tile in sorted((tile for pair in pairs[kept:] for tile in pair), key=work, reverse=True):
        load, block = loads[0]
        hands[block].append(tile)
        heapq.heapreplace(loads, (load + work(tile), block))
    return hands, max(loads)[0]


def _table(hands: list[list[int]], end: int) -> np.ndarray:
    """The n-th tile of each block, one behind the other; behind the last ones, `end`."""
    table = np.full((max(map(len, hands)) + 1, len(hands)), end, np.int32)
    for block, hand in enumerate(hands):
        table[: len(hand), block] = hand
    return table.reshape(-1)


def _works(rows: Digit, count: int, block: ir.Block) -> list[int] | None:
    """How many iterations the loops of a tile have, by its number among `count` rows, if that is all they depend on."""
    count = count if rows.count is None else build.constant_value(rows.count)
    if count is None:
        return None
    here: Formula = ["row"]
    known = dict.fromkeys(rows.values, here)
    bounds = [[formula(v, known) for v in list(loop.operands)[:3]] for loop in loops_of(block)]

    def work(row: int) -> int | None:
        numbers = [[evaluated(v, lambda leaf: row if leaf is here else None) for v in of] for of in bounds]
        found = [len(range(*of)) for of in numbers if None not in of]
        return sum(found) if len(found) == len(numbers) else None

    works = [work(row) for row in range(count)]
    return None if None in works else works

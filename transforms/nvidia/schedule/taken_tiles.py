"""Tiles that blocks take as they are done with others, those with most to do first: ``persistent-blocks``."""

from __future__ import annotations

from dataclasses import dataclass

from ....dialects import build
from ....dialects.mlir import arith, ir
from ....dialects.tile import ShareOp, TakeOp, dims_of, parts_of
from ...copying import copy_needed
from ...rewriting import Values, make_for, only_if, ops_of
from ..architecture import WARP
from ..launching import (
    FIRST_ARGUMENT,
    allocate,
    grid_size,
    launch,
    launches_of,
    memory_type,
    new_kernel,
    relaunch,
    strided,
    thread_number,
    update_type,
)
from ..marks import BLOCK_THREADS
from ..reductions import put_together
from .tile_orders import (
    Body,
    Digit,
    block_of,
    digits,
    from_tile_to_tile,
    load_number,
    loops_of,
    reached,
    reaches_bounds,
)

LARGEST = 3
COUNTER, SORTED, NOTES = range(3)  # places of what is taken
ORDER_BLOCKS, ORDER_THREADS = 32, 256
ORDER_WARPS = ORDER_BLOCKS * ORDER_THREADS // WARP
AHEAD = 4  # sizes that a lane asks for at once: it waits for memory, not for what it computes


@dataclass
class AsTaken:
    """A block takes the next tile when it is done with one, where how much is to be done is data: how many tiles of
    keys a mask leaves, say::

        scf.while (%tile = %first, %n = 0) {
          scf.condition(%tile < %tiles) %tile, %n
        } do {
          …
          %place = (tile.take %taken[%n]) + %blocks
          %next = tile.share(%place < %tiles ? the tile at that place in the order : %tiles)[%n]
          memref.store %next, %taken[%tile + 2]             // for tiles that are computed again
          scf.yield %next, %n + 1
        }

    What is taken last, others wait for: tiles with most to do should come first. But neighbours read the same keys,
    which go through memory once if they come one after the other. So the order is that of the grid, and only the last
    tiles are sorted: as many as give each block the work of `LARGEST` ones. A kernel before this one sorts the numbers
    that bounds depend on (of batch entries and rows, say), by how many iterations the loops of their tiles have: a warp
    for each number counts those that come before it (%order). Each number stands for as many tiles as there are other
    ones (of heads), the last of which are `SORTED`.
    """

    number: ir.Value  # of the block
    digits: list[tuple[Digit, bool]]  # and whether bounds depend on it
    tiles: ir.Value
    taken: ir.Value
    order: ir.Value

    @staticmethod
    def of(number: ir.Value, tiles: ir.Value, blocks: int) -> AsTaken:
        """Passes the kernel, which `tiles` is the last parameter of, what counts and orders its tiles for as many
        blocks."""
        block, parts = block_of(number), digits(number)
        depends = [(d, reaches_bounds(reached(d.values), block)) for d in parts]
        kernel = block.owner.operation
        module, name = kernel.parent.operation, ir.StringAttr(kernel.attributes["sym_name"]).value
        word, many = ir.IntegerType.get_signless(32), ir.ShapedType.get_dynamic_size()
        kind = ir.RankedTensorType.get([many], word)
        taken, order = (block.add_argument(memory_type(kind, 1), kernel.location) for _ in range(2))
        update_type(kernel)
        arguments = list(block.arguments)
        threads = {BLOCK_THREADS: build.i64_attribute(ORDER_THREADS)}
        body = new_kernel(module, f"{name}_order", [a.type for a in arguments], threads)
        with ir.InsertionPoint(body):
            values = dict(zip(arguments, body.arguments, strict=True))
            _Order(number, depends, values, blocks).emit(tiles, taken, order)
            ir.Operation.create("gpu.return")
        read = [i for i, argument in enumerate(body.arguments) if len(list(argument.uses))]
        for i in reversed([i for i in range(len(arguments)) if i not in read]):
            body.erase_argument(i)
        update_type(body.owner.operation)
        for launched in launches_of(kernel):
            with ir.InsertionPoint(launched), launched.location:
                count = launched.operands[len(launched.operands) - 1]
                sizes = (arith.addi(count, build.index(NOTES)), count)
                operands = [*launched.operands, *(strided(allocate(kind, [size]), 1) for size in sizes)]
                order_blocks = build.index(ORDER_BLOCKS)
                launch(module, f"{name}_order", order_blocks, [operands[FIRST_ARGUMENT + i] for i in read])
                relaunch(launched, operands)
        return AsTaken(number, depends, tiles, taken, order)

    def loop(self, body: Body, again: bool) -> None:
        def following(tile: ir.Value, count: ir.Value) -> ir.Value:
            body(tile, count)
            noted = arith.addi(tile, build.index(NOTES))
            return load_number(self.taken, noted) if again else self._following(noted, count)

        from_tile_to_tile(self._tile(self.number), self.tiles, following)

    def _following(self, noted: ir.Value, count: ir.Value) -> ir.Value:
        """The tile that the block takes next, or their number where there is none."""
        place = arith.addi(TakeOp(self.taken, count, result=ir.IndexType.get()).result, grid_size())
        is_one = arith.cmpi(arith.CmpIPredicate.ult, place, self.tiles)
        known = arith.minsi(place, arith.subi(self.tiles, build.index(1)))
        tile = arith.select(is_one, self._tile(known), self.tiles)
        tile = ShareOp(tile, count, result=ir.IndexType.get()).result
        _store(tile, self.taken, noted)
        return tile

    def _tile(self, place: ir.Value) -> ir.Value:
        """The number of the tile at a place of the order."""
        split = _Split(self.digits, {}, self.tiles)
        sorted_ = load_number(self.taken, build.index(SORTED))
        unsorted = arith.subi(split.others, sorted_)
        behind = arith.subi(place, arith.muli(unsorted, split.own))
        is_sorted = arith.cmpi(arith.CmpIPredicate.sge, behind, build.index(0))
        behind = arith.maxsi(behind, build.index(0))
        own = load_number(self.order, arith.divui(behind, sorted_))
        other = arith.addi(unsorted, arith.remui(behind, sorted_))
        own = arith.select(is_sorted, own, arith.remui(place, split.own))
        return split.number(own, arith.select(is_sorted, other, arith.divui(place, split.own)))


class _Split:
    """Numbers of tiles as one of the dimensions of the grid that loop bounds depend on, of `own`, and one of the
    `others`."""

    def __init__(self, digits: list[tuple[Digit, bool]], values: Values, tiles: ir.Value):
        """`values`: what is known where this is emitted."""
        self.parts: list[tuple[bool, ir.Value]] = []  # from the innermost on: whether bounds depend on it, its size
        self.others = build.index(1)
        left = tiles
        for digit, depends in digits:
            size = left
            if digit.count is not None:
                size = copy_needed(digit.count, values, lambda op: True)
                left = arith.divui(left, size)
            self.parts.append((depends, size))
            if not depends:
                self.others = arith.muli(self.others, size)
        self.own = arith.divui(tiles, self.others)

    def number(self, own: ir.Value, other: ir.Value) -> ir.Value:
        found, stride = build.index(0), build.index(1)
        left = {True: own, False: other}
        for place, (depends, size) in enumerate(self.parts):
            digit = left[depends]
            if depends in (inner for inner, _ in self.parts[place + 1 :]):
                digit, left[depends] = arith.remui(digit, size), arith.divui(digit, size)
            found = arith.addi(found, arith.muli(digit, stride))
            stride = arith.muli(stride, size)
        return found


class _Order:
    """What the kernel before does. `values`: its parameters, by those of the kernel with the tiles."""

    def __init__(self, number: ir.Value, digits: list[tuple[Digit, bool]], values: Values, blocks: int):
        self.block_number, self.digits, self.values, self.blocks = number, digits, values, blocks

    def emit(self, tiles: ir.Value, taken: ir.Value, order: ir.Value) -> None:
        tiles, taken, order = (self.values[v] for v in (tiles, taken, order))
        split = _Split(self.digits, dict(self.values), tiles)
        thread, zero = thread_number(ORDER_THREADS), build.index(0)
        warp, lane = arith.divui(thread, build.index(WARP)), arith.remui(thread, build.index(WARP))
        _, block = make_for([warp, split.own, build.index(ORDER_WARPS)])
        with ir.InsertionPoint(block):
            entry = block.arguments[0]
            place, total, largest = self._compared(entry, lane, split)
            _store(entry, order, place)
            with only_if(arith.cmpi(arith.CmpIPredicate.eq, entry, zero)):
                blocks = arith.minsi(tiles, build.index(self.blocks))
                work = arith.muli(largest, arith.muli(blocks, build.index(LARGEST)))
                needed = arith.addi(work, arith.subi(total, build.index(1)))
                _store(arith.minsi(arith.divui(needed, total), split.others), taken, build.index(SORTED))
                _store(zero, taken, build.index(COUNTER))
            ir.Operation.create("scf.yield", [], [])

    def _size(self, number: ir.Value) -> ir.Value:
        """How many iterations a tile's loops have, as far as their bounds are computed from its number alone, and one
        for what is around them."""
        values: Values = {**self.values, self.block_number: number}
        total = build.index(1)
        for loop in loops_of(block_of(self.block_number)):
            bounds = list(loop.operands)[:3]
            if all(_is_computed(v, values) for v in bounds):
                low, high, step = (copy_needed(v, values, lambda op: True) for v in bounds)
                length = arith.maxsi(build.index(0), arith.subi(high, low))
                total = arith.addi(total, arith.divui(length, step))
        return total

    def _compared(self, entry: ir.Value, lane: ir.Value, split: _Split) -> list[ir.Value]:
        """The place of an entry, the sum of all sizes, and the largest one: what a warp's lanes find together."""
        zero, one, last = build.index(0), build.index(1), arith.subi(split.own, build.index(1))
        own = self._size(split.number(entry, zero))

        def with_more(first: ir.Value, place: ir.Value, total: ir.Value, largest: ir.Value) -> list[ir.Value]:
            others = [arith.addi(arith.addi(first, build.index(n * WARP)), lane) for n in range(AHEAD)]
            sizes = [self._size(split.number(arith.minsi(other, last), zero)) for other in others]
            for other, size in zip(others, sizes, strict=True):
                size = arith.select(arith.cmpi(arith.CmpIPredicate.ult, other, split.own), size, zero)
                is_before = arith.cmpi(arith.CmpIPredicate.ult, other, entry)
                same = arith.andi(is_before, arith.cmpi(arith.CmpIPredicate.eq, size, own))
                comes_before = arith.ori(same, arith.cmpi(arith.CmpIPredicate.ugt, size, own))
                place = arith.addi(place, arith.select(comes_before, one, zero))
                total, largest = arith.addi(total, size), arith.maxsi(largest, size)
            return [place, total, largest]

        # Of the first ones before the loop: what it compares with is on its way, too.
        step = build.index(AHEAD * WARP)
        loop, body = make_for([step, split.own, step], with_more(zero, zero, zero, zero))
        with ir.InsertionPoint(body):
            ir.Operation.create("scf.yield", [], with_more(*body.arguments))
        word, index = ir.IntegerType.get_signless(32), ir.IndexType.get()
        parts = zip(loop.results, ("arith.addi", "arith.addi", "arith.maxsi"), strict=True)
        return [arith.index_cast(index, put_together(arith.index_cast(word, v), name, WARP)) for v, name in parts]


def _store(value: ir.Value, memory: ir.Value, place: ir.Value) -> None:
    word = arith.index_cast(memory.type.element_type, value)
    ir.Operation.create("memref.store", [], [word, memory, place])


def is_data(number: ir.Value) -> bool:
    """Whether bounds of a tile's loops are read from memory, at places that depend on its rows. (Where they depend on
    its sequence alone, each of these has many tiles, which blocks share, or few queries, which take little time.)"""
    block = block_of(number)
    reached_rows = [d.values for d in digits(number) if _reaches_rows(reached(d.values), block)]
    found = {v for values in reached_rows for v in reached(values)}
    loads = [o for o in ops_of(block) if o.name == "memref.load" and o.results[0] in found]
    return reaches_bounds(reached([o.results[0] for o in loads]), block)


def _reaches_rows(values: set[ir.Value], block: ir.Block) -> bool:
    """Whether the rows of what is loaded before all loops are at places that are computed from `values`."""
    for op in ops_of(block):
        if op.name == "tile.load":
            view = op.opview
            if any(view.indices[d] in values for d, _ in parts_of(dims_of(view)[0])):
                return True
    return False


def _is_computed(value: ir.Value, values: Values) -> bool:
    """Whether a value comes from `values` without branches and loops."""
    if value in values or isinstance(value.owner, ir.Block):
        return value in values
    return not len(value.owner.operation.regions) and all(_is_computed(v, values) for v in value.owner.operands)

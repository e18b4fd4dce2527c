"""Loop nests over tiles: first the bare loops, later the tensors that they carry from iteration to iteration.

While producers are fused it is not known yet which tensors a nest carries. So its body is filled in a nest without
loop-carried values, and moved into the final one at the end::

    scf.for %i = %c0 to %c1024 step %c4 {                 // bare
    scf.for %i = … iter_args(%o = %init, %m = %max0) …    // final: every `Carried` is an iter_arg of every loop
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..dialects.mlir import ir
from ..dialects.tiling import Index, Tile, TileBuilder, is_full
from .rewriting import make_for


@dataclass
class Carried:
    """A tensor that goes from iteration to iteration.

    `init`: its value before the loops. `tile`: what an iteration reads and writes of it. `slices`: the
    ``tensor.extract_slice`` ops in the body that read it. `update`: the new value of the tile.
    """

    init: ir.Value
    tile: Tile
    update: ir.Value
    slices: list[ir.Operation] = field(default_factory=list)


class LoopNest:
    """``scf.for`` loops, outer to inner, from 0 to `extents` by `steps`, before `anchor`."""

    def __init__(self, anchor: ir.Operation, before: TileBuilder, extents: Sequence[Index], steps: Sequence[int]):
        self.anchor = anchor
        self._lower = before.constant(0)
        self._bounds = [(before.outside_value(e), before.constant(s)) for e, s in zip(extents, steps, strict=True)]
        self.loops: list[ir.Operation] = []
        for upper, step in self._bounds:
            ip = ir.InsertionPoint.at_block_terminator(self.body) if self.loops else ir.InsertionPoint(anchor)
            self.loops.append(_for(ip, self._lower, upper, step, []))
        self.builder = before.inside(self.loops[0], self.body)

    @property
    def body(self) -> ir.Block:
        return self.loops[-1].regions[0].blocks[0]

    @property
    def induction_variables(self) -> list[ir.Value]:
        return [loop.regions[0].blocks[0].arguments[0] for loop in self.loops]

    @property
    def insertion_point(self) -> ir.InsertionPoint:
        """At the end of the body."""
        return ir.InsertionPoint.at_block_terminator(self.body)

    def carry(self, carried: Sequence[Carried]) -> list[ir.Operation]:
        """Moves the body into the final nest, which carries `carried`; returns its loops, outer to inner."""
        inits = [c.init for c in carried]
        final: list[ir.Operation] = []
        for upper, step in self._bounds:
            ip = ir.InsertionPoint(final[-1].regions[0].blocks[0]) if final else ir.InsertionPoint(self.anchor)
            loop = _for(ip, self._lower, upper, step, inits)
            if final:
                with ip:
                    ir.Operation.create("scf.yield", [], list(loop.results))
            final.append(loop)
            inits = list(loop.regions[0].blocks[0].arguments)[1:]
        body = final[-1].regions[0].blocks[0]
        for op in list(self.body.operations)[:-1]:
            body.append(op)
        with ir.InsertionPoint(body):
            updates = [self._store(c, argument) for c, argument in zip(carried, inits, strict=True)]
            ir.Operation.create("scf.yield", [], updates)
        for old, new in zip(self.induction_variables, final, strict=True):
            old.replace_all_uses_with(new.regions[0].blocks[0].arguments[0])
        self.loops[0].erase()
        self.loops = final
        return final

    def _store(self, carried: Carried, argument: ir.Value) -> ir.Value:
        """The iteration's new value of what `argument` carries."""
        for op in carried.slices:
            op.operands[0] = argument
        if is_full(carried.tile) and carried.update.type == argument.type:
            return carried.update
        return self.builder.insert(carried.update, argument, carried.tile)


def _for(
    ip: ir.InsertionPoint, lower: ir.Value, upper: ir.Value, step: ir.Value, inits: Sequence[ir.Value]
) -> ir.Operation:
    with ip:
        loop, block = make_for([lower, upper, step], inits)
        if not inits:
            with ir.InsertionPoint(block):
                ir.Operation.create("scf.yield")
    return loop

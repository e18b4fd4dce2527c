"""The pass ``split-scales``."""

from __future__ import annotations

from dataclasses import dataclass

from ...dialects.build import constant_value
from ...dialects.mlir import ir
from ...dialects.tile import layout_of
from ...dialects.tiling.structured import indexing_maps, iterator_types
from ..attention import is_contraction
from ..copying import without_inputs
from ..passes import Pass
from ..rewriting import copy_op, defining_op, erase_dead, ops_in, ops_of, terminator
from .bulk_copies import bulk_copies
from .masking import is_rising_line, say_what_is_dead


@dataclass(frozen=True)
class SplitScales(Pass):
    """Masks apply to scores before they are scaled, and the scale becomes an op of its own::

        %x = linalg.generic … ins(%s) { select(dead, −inf, s · 0.18) }
      becomes
        %t = linalg.generic … ins(%s) { select(dead, −inf, s) }
        %x = linalg.generic … ins(%t) { t · 0.18 }

    Scaled tiles are seldom needed themselves: 0.18·t − m is one instruction (``elementwise``). With the mask behind it,
    the product could not become part of what follows. The same with s · 0.18 + p, where p is a position, a number times
    an integer that is computed from indices (ALiBi). For kernels whose loads the copy engine does, where the mask may
    get a branch of its own (``join-loops``). What goes through functions first stays: tanh(s)·c and the mask together
    hide behind the functions. A mask that says which scores live (as torch's do) says which are dead: one form for the
    passes after this one.
    """

    def run(self, op: ir.Operation) -> None:
        for kernel in ops_in(op, "gpu.func"):
            if bulk_copies(kernel):
                for inner in ops_in(kernel, "linalg.generic"):
                    if _is_elementwise(inner):
                        say_what_is_dead(inner)
                        _split(inner)


def _is_elementwise(op: ir.Operation) -> bool:
    """Whether `op` computes one tile of f32 element by element, and is no product alone already."""
    kinds = iterator_types(op)
    if is_contraction(op) or len(op.results) != 1 or set(kinds) != {"parallel"} or len(kinds) != 2:
        return False
    kind = op.results[0].type
    identity = ir.AffineMap.get_identity(2)
    fits = layout_of(kind) == "fragment" and str(kind.element_type) == "f32" and indexing_maps(op)[-1] == identity
    return fits and not list(op.regions[0].blocks[0].arguments[len(op.operands) - 1].uses)


def _split(op: ir.Operation) -> None:
    block = op.regions[0].blocks[0]
    user, number = _below_masks(terminator(block))
    made = user.operands[number]
    source = next((v for v in block.arguments if is_rising_line(made, v)), None)
    if user == terminator(block) or source is None:
        return  # no mask, or something else than a product below it
    if indexing_maps(op)[source.arg_number] != indexing_maps(op)[-1]:
        return
    with ir.InsertionPoint(ops_of(op.block)[ops_of(op.block).index(op) + 1]), op.location:
        scaled = copy_op(op, {})
    op.results[0].replace_all_uses_with(scaled.results[0])
    scaled.operands[source.arg_number] = op.results[0]
    user.operands[number] = source
    inner = scaled.regions[0].blocks[0]
    below, place = _below_masks(terminator(inner))
    terminator(inner).operands[0] = below.operands[place]
    for each in (op, scaled):
        _drop_unread(each)


def _drop_unread(op: ir.Operation) -> None:
    """Drops what an op does not need: loops put a mask where a tile is made, perhaps before what scales it is there."""
    block = op.regions[0].blocks[0]
    erase_dead(block)
    inputs = list(block.arguments)[:-1]
    unread = [v.arg_number for v in inputs if not list(v.uses)]
    if unread:
        without_inputs(op, unread)


def _below_masks(end: ir.Operation) -> tuple[ir.Operation, int]:
    """Which operand of which op an element is before some become −inf. `end`: what yields it."""
    user, number = end, 0
    while True:
        select = defining_op(user.operands[number])
        if select is None or select.name != "arith.select" or len(list(select.results[0].uses)) != 1:
            return user, number
        dead = [i for i in (1, 2) if constant_value(select.operands[i]) == float("-inf")]
        if len(dead) != 1:
            return user, number
        user, number = select, 3 - dead[0]

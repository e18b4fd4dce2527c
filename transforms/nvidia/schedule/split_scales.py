"""The pass ``split-scales``."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ....dialects import build
from ....dialects.build import constant_value
from ....dialects.mlir import ir
from ....dialects.tile import layout_of
from ....dialects.tiling.structured import indexing_maps, iterator_types
from ...attention import is_matmul
from ...copying import with_operands, without_inputs
from ...online.masks import scaled_by
from ...online.score_masks import FAR
from ...passes import Pass
from ...rewriting import copy_op, defining_op, erase_dead, ops_in, ops_of, single_use, terminator
from ..masking import is_rising_line, masks, say_what_is_dead, unmasked, yielded
from .bulk_copies import bulk_copies

ROUNDED = -(2.0**24)  # below it a product with a score's scale may be off by as much as exponentials differ by


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
    hide behind the functions. A mask that says which scores live (as torch's do) says which are dead, and scores are
    the first input: one form for the passes after this one. A mask's finite number is divided by the scale, or comes
    closer, if it is far from all scores, so that the product is no −inf.
    """

    def run(self, op: ir.Operation) -> None:
        for kernel in ops_in(op, "gpu.func"):
            if bulk_copies(kernel):
                for inner in ops_in(kernel, "linalg.generic"):
                    if _is_elementwise(inner):
                        scores_first = _with_scores_first(inner)
                        say_what_is_dead(scores_first, finite=True)
                        say_what_is_dead(scores_first, 0.0)
                        _split(scores_first)


def _is_elementwise(op: ir.Operation) -> bool:
    """Whether `op` computes one tile of f32 element by element, and is no product alone already."""
    kinds = iterator_types(op)
    if is_matmul(op) or len(op.results) != 1 or set(kinds) != {"parallel"} or len(kinds) != 2:
        return False
    kind = op.results[0].type
    identity = ir.AffineMap.get_identity(2)
    fits = layout_of(kind) == "fragment" and str(kind.element_type) == "f32" and indexing_maps(op)[-1] == identity
    return fits and not list(op.regions[0].blocks[0].arguments[len(op.operands) - 1].uses)


def _with_scores_first(op: ir.Operation) -> ir.Operation:
    """`op`, or one in its place, whose first input is a tile of the result's kind, if there is one."""
    count = len(op.operands) - 1
    maps, kinds = indexing_maps(op), [v.type for v in op.operands]
    fitting = [i for i in range(count) if kinds[i] == kinds[-1] and maps[i] == maps[-1]]
    if not fitting or fitting[0] == 0:
        return op
    order = [fitting[0], *(i for i in range(count) if i != fitting[0]), count]
    body = op.regions[0].blocks[0]
    given = list(body.arguments)
    for i in order:
        given[i].replace_all_uses_with(body.add_argument(given[i].type, op.location))
    for _ in given:
        body.erase_argument(0)
    with ir.InsertionPoint(op), op.location:
        inputs = [op.operands[i] for i in order[:-1]]
        new = with_operands(op, inputs, [op.operands[count]], [maps[i] for i in order], op.attributes["iterator_types"])
    op.results[0].replace_all_uses_with(new.results[0])
    op.erase()
    return new


def _split(op: ir.Operation) -> None:
    found = masks(yielded(op), finite=True)
    if not found or not all(single_use(select.results[0]) for select in found):
        return
    block, line = op.regions[0].blocks[0], found[-1].operands[2]
    source = next((v for v in block.arguments if is_rising_line(line, v)), None)
    if source is None or indexing_maps(op)[source.arg_number] != indexing_maps(op)[-1]:
        return
    numbers = [_before(line, constant_value(select.operands[1])) for select in found]
    if None in numbers:
        return
    with ir.InsertionPoint(ops_of(op.block)[ops_of(op.block).index(op) + 1]), op.location:
        scaled = copy_op(op, {})
    op.results[0].replace_all_uses_with(scaled.results[0])
    scaled.operands[source.arg_number] = op.results[0]
    found[-1].operands[2] = source
    terminator(scaled.regions[0].blocks[0]).operands[0] = unmasked(yielded(scaled), finite=True)
    for select, number in zip(found, numbers, strict=True):
        if number != -math.inf:
            with ir.InsertionPoint(select), select.location:
                select.operands[1] = build.constant(source.type, number)
    for each in (op, scaled):
        _drop_unread(each)


def _before(line: ir.Value, mask: float) -> float | None:
    """What a mask's number is before a line that makes it that number, or one as far from all scores; None if it is not
    known."""
    if mask == -math.inf:
        return mask
    scaled = scaled_by(defining_op(line))
    if scaled is None:
        return FAR if mask <= FAR else None
    number = max(mask / scaled[1], FAR)
    return number if number > ROUNDED else -(2.0 ** math.ceil(math.log2(-number)))


def _drop_unread(op: ir.Operation) -> None:
    """Drops what an op does not need: loops put a mask where a tile is made, perhaps before what scales it is there."""
    block = op.regions[0].blocks[0]
    erase_dead(block)
    inputs = list(block.arguments)[:-1]
    unread = [v.arg_number for v in inputs if not list(v.uses)]
    if unread:
        without_inputs(op, unread)

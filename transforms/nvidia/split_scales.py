"""The pass ``split-scales``."""

from __future__ import annotations

from dataclasses import dataclass

from ...dialects import build
from ...dialects.build import constant_value
from ...dialects.mlir import arith, ir
from ...dialects.tile import layout_of
from ...dialects.tiling.structured import indexing_maps, iterator_types
from ..attention import is_contraction
from ..passes import Pass
from ..rewriting import defining_op, ops_in, ops_of
from .bulk_copies import bulk_copies
from .masking import say_what_is_dead


@dataclass(frozen=True)
class SplitScales(Pass):
    """Masks apply to scores before they are scaled, and the scale becomes an op of its own::

        %x = linalg.generic … ins(%s) { select(dead, −inf, s · 0.18) }
      becomes
        %t = linalg.generic … ins(%s) { select(dead, −inf, s) }
        %x = linalg.generic … ins(%t) { t · 0.18 }

    Scaled tiles are seldom needed themselves: 0.18·t − m is one instruction (``elementwise``). With the mask behind it,
    the product could not become part of what follows. For kernels whose loads the copy engine does, where the mask may
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
    terminator = ops_of(block)[-1]
    user, number = _below_masks(terminator)
    product = defining_op(user.operands[number])
    if (
        product is None
        or product.block != block
        or product.name != "arith.mulf"
        or len(list(product.results[0].uses)) != 1
    ):
        return
    at = next((i for i in (0, 1) if (constant_value(product.operands[1 - i]) or 0) > 0), None)
    if at is None:
        return
    element, factor = product.operands[at], constant_value(product.operands[1 - at])
    if user == terminator or defining_op(element) is not None:
        return  # nothing but the product, or the product of what is computed
    user.operands[number] = element
    product.erase()
    following = ops_of(op.block)[ops_of(op.block).index(op) + 1]
    with ir.InsertionPoint(following), op.location:
        kind = op.results[0].type
        empty = ir.Operation.create("tensor.empty", [kind], []).result
        identity = ir.AffineMap.get_identity(2)

        def scaled(x: ir.Value, _: ir.Value) -> ir.Value:
            return arith.mulf(x, build.constant(x.type, factor))

        (new,) = build.generic([op.results[0]], [empty], [identity] * 2, [build.PARALLEL] * 2, scaled)
    op.results[0].replace_all_uses_except(new, [defining_op(new)])


def _below_masks(terminator: ir.Operation) -> tuple[ir.Operation, int]:
    """Which operand of which op an element is before some become −inf."""
    user, number = terminator, 0
    while True:
        select = defining_op(user.operands[number])
        if select is None or select.name != "arith.select" or len(list(select.results[0].uses)) != 1:
            return user, number
        dead = [i for i in (1, 2) if constant_value(select.operands[i]) == float("-inf")]
        if len(dead) != 1:
            return user, number
        user, number = select, 3 - dead[0]

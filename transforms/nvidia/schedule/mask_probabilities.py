"""The pass ``mask-probabilities``."""

from __future__ import annotations

from dataclasses import dataclass

from ....dialects import build
from ....dialects.build import PARALLEL, REDUCTION, constant_value
from ....dialects.mlir import arith, ir
from ...attention import is_matmul
from ...copying import without_result
from ...passes import Pass, remark
from ...rewriting import Values, copy_op, defining_op, erase_if_unused, ops_in, ops_of, single_use
from ..bounds import exponent_bound
from ..masking import modifies_first, yielded
from .row_sums import is_row_sum, summed_tile
from .tabulate_exponentials import is_exponential, table_shares

DEAD = float("-inf")


@dataclass(frozen=True)
class MaskProbabilities(Pass):
    """Where scores are bounded, as by a softcap, masks make probabilities 0, behind exponentials, not scores −∞::

        %t = scf.if %masked { select(%j > %i, −inf, %s) } else { %s }
        %p, %l = linalg.generic … ins(%m) outs(%t, 0) { e = exp2(t − m); (e, l + e) }
      becomes
        %e = linalg.generic … ins(%m) outs(%s) { exp2(s − m) }
        %p = scf.if %masked { select(%j > %i, 0, %e) } else { %e }
        %l = linalg.generic … ins(%p) outs(0) { l + p }

    So all operands of exponentials are bounded, and the table has them in an instruction less, with nothing left to the
    special unit (``tabulate-exponentials``), which the function that bounds scores keeps busy. For kernels where some
    exponentials come from the table, masks that do not depend on scores, and masked scores that nothing else reads, as
    a maximum of the tile would.
    """

    def run(self, op: ir.Operation) -> None:
        for kernel in ops_in(op, "gpu.func"):
            if table_shares(kernel) is not None:
                found = [_rewrite(o) for o in ops_in(kernel, "linalg.generic")]
                if any(found):
                    remark(kernel, "masks make probabilities 0, behind exponentials of bounded scores")


@dataclass
class _Mask:
    """Makes some elements of a tile, `below`, −∞: a linalg.generic, or a branch around one."""

    op: ir.Operation
    below: ir.Value

    @staticmethod
    def of(tile: ir.Value) -> _Mask | None:
        op = defining_op(tile)
        if op is None or len(op.results) != 1:
            return None
        if op.name != "scf.if":
            return _Mask(op, op.operands[0]) if _is_mask(op) else None
        masked, plain = (ops_of(region.blocks[0])[-1].operands[0] for region in op.regions)
        inner = defining_op(masked)
        fits = inner is not None and inner.block == op.regions[0].blocks[0] and _is_mask(inner)
        return _Mask(op, plain) if fits and inner.operands[0] == plain else None

    def applied(self, tile: ir.Value) -> ir.Value:
        """`tile` with 0 at the same places, at the insertion point."""
        zero = build.constant(tile.type.element_type, 0.0)
        values: Values = {self.below: tile}
        new = copy_op(self.op, values)
        generic = new if new.name != "scf.if" else defining_op(ops_of(new.regions[0].blocks[0])[-1].operands[0])
        for select, dead in _selects(generic):
            select.operands[dead] = zero
        return new.results[0]


def _is_mask(op: ir.Operation) -> bool:
    """Whether all that `op` does is to make elements of its first operand −∞, wherever something else says so."""
    if not modifies_first(op):
        return False
    argument, selects = op.regions[0].blocks[0].arguments[0], _selects(op)
    if not selects or not single_use(argument):
        return False
    select, dead = selects[-1]
    return select.operands[3 - dead] == argument


def _selects(op: ir.Operation) -> list[tuple[ir.Operation, int]]:
    """The ops that end a body, each a choice between −∞ and what the next gives; and which operand −∞ is."""
    found: list[tuple[ir.Operation, int]] = []
    value = yielded(op)
    while (select := defining_op(value)) is not None and select.name == "arith.select":
        dead = next((i for i in (1, 2) if constant_value(select.operands[i]) == DEAD), None)
        if dead is None or not single_use(select.results[0]):
            break
        found.append((select, dead))
        value = select.operands[3 - dead]
    return found


def _rewrite(op: ir.Operation) -> bool:
    """Moves masks behind `op`, if it makes exponentials of what is bounded without them."""
    if is_matmul(op):
        return False
    body = ops_of(op.regions[0].blocks[0])
    exponentials = [o for o in body if is_exponential(o)]
    number = next((i for i, v in enumerate(op.operands) if _Mask.of(v) is not None and single_use(v)), None)
    if len(exponentials) != 1 or number is None:
        return False
    (exponential,) = exponentials
    results = [i for i, v in enumerate(body[-1].operands) if v == exponential.results[0]]
    sums = [i for i, r in enumerate(op.results) if is_row_sum(op, r) and summed_tile(op, r) in op.results]
    if len(results) != 1 or len(results) + len(sums) != len(op.results):
        return False
    masked, masks = op.operands[number], []
    below = masked
    while (mask := _Mask.of(below)) is not None:
        masks.append(mask)
        below = mask.below
    op.operands[number] = below
    if exponent_bound(exponential) is None:
        op.operands[number] = masked
        return False
    _move(op, results[0], sums, masks)
    for mask in masks:
        erase_if_unused(mask.op)
    return True


def _move(op: ir.Operation, result: int, sums: list[int], masks: list[_Mask]) -> None:
    """Puts `masks`, of which the last one comes first, and `sums`, results of `op`, behind it."""
    probabilities = op.results[result]
    uses = [(use.owner.operation, use.operand_number) for use in probabilities.uses]
    following = ops_of(op.block)[ops_of(op.block).index(op) + 1]
    with ir.InsertionPoint(following), op.location:
        tile = probabilities
        for mask in reversed(masks):
            tile = mask.applied(tile)
        for user, operand in uses:
            user.operands[operand] = tile
        for number in sums:
            init = op.operands[len(op.operands) - len(op.results) + number]
            maps = [build.projection(2, [0, 1]), build.projection(2, [0])]
            (total,) = build.generic([tile], [init], maps, [PARALLEL, REDUCTION], lambda x, t: arith.addf(t, x))
            op.results[number].replace_all_uses_with(total)
    for number in sorted(sums, reverse=True):
        op = without_result(op, number)

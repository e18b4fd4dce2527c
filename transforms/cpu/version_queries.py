"""The pass ``version-queries``."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ...dialects import build
from ...dialects.mlir import arith, ir, scf
from ..attention import Attention, attention_at, contraction_loops, find_attention, is_elementwise
from ..extents import known_sizes, static_extents
from ..few_keys import see_few_keys
from ..fuse_attention import producers_outside
from ..graph import (
    ancestor_in,
    can_move_after,
    dependants_before,
    erase_with_producers,
    is_pure,
    move_users_after,
    operands_with_captures,
)
from ..host import matrix_unit
from ..open_queries import FEW_QUERIES, open_queries
from ..passes import Pass, option, remark
from ..rewriting import Values, copy_op, defining_op
from ..tile_and_fuse import MADE_AGAIN
from .matrix_unit import multiplies
from .tile_sizes import FEW_ROWS, ROWS_OF_LANES

FEW = 48


@dataclass(frozen=True)
class VersionQueries(Pass):
    """Attention with a number of queries that is known at run time gets code of its own for few of them (decoding)::

        %s = linalg.matmul ins(%q, %kt : tensor<?x64xf32>, tensor<64x?xf32>) …
        %p:4 = linalg_ext.softmax dimension(1) ins(%s) …
        %o = linalg.matmul ins(%p#0, %v : …) outs(%zeros : tensor<?x64xf32>) -> tensor<?x64xf32>
    becomes
        %many = arith.cmpi ugt, %queries, %c48
        %o = scf.if %many -> (tensor<?x64xf32>) {
          … as it was
          scf.yield %o1 : tensor<?x64xf32>
        } else {
          %some = arith.cmpi ugt, %queries, %c4
          %o2 = scf.if %some -> (tensor<?x64xf32>) {
            … the same
            %o3 = linalg.matmul {few_queries = 16} ins(%p3#0, %v : …) …
            scf.yield %o3 : tensor<?x64xf32>
          } else {
            … the same, with {few_queries = 4}
          }
          scf.yield %o2 : tensor<?x64xf32>
        }

    The size of a tile is known when it is compiled: one of 64 queries is computed whole for a single one. Where there
    are `few_queries`, `fuse-attention` makes tiles of so many rows, of a query or more and the heads that share its
    keys, as where the graph says how many queries there are: 16, which fill a vector (`lanes-innermost`), or 4, or one
    query, which read memory at its speed. What is computed from the output element by element comes along: it is fused
    with the same loops. Nothing is gained where few queries have few keys: where there are as many keys as queries, and
    under a causal mask whose diagonal starts at the first key.
    """

    few: int = option("how many queries are few", FEW)

    def run(self, op: ir.Operation) -> None:
        for root in [one.root for one in find_attention(op)]:
            attention = attention_at(root)  # anew: what it has in common with another one may be in that one's versions
            if attention is None or FEW_QUERIES in root.attributes or see_few_keys(attention, self.few):
                continue
            queries = open_queries(attention)
            if queries is None:
                continue
            versions = _Versions(attention)
            if versions.are_possible:
                versions.emit(queries, self.few)


def _versions(root: ir.Operation, few: int) -> list[tuple[int, int]]:
    """Up to how many queries versions are for, and of how many rows their tiles are; that of the most queries first.

    Of what is converted to be multiplied, as f16, a tile of 16 rows takes longer than two of 4.
    """
    loops, extents = contraction_loops(root), static_extents(root)
    assert loops is not None, "the output of an attention is a contraction"
    heads = math.prod(extents[d] or 1 for d in loops.m[:-1])
    if 2 * heads > ROWS_OF_LANES:
        return [(few, FEW_ROWS)]
    element = root.operands[1].type.element_type
    is_converted = build.is_narrow(element) and not multiplies(matrix_unit(), element, element)
    least = max(1, (2 if is_converted else 1) * FEW_ROWS // heads)
    return [(few, ROWS_OF_LANES), *([(least, FEW_ROWS)] if least < few else [])]


class _Versions:
    """What is computed twice, and where: what one attention needs, and what is computed of its results at once.

    Of what it needs, what is outside of its loops in any case stays where it is.
    """

    def __init__(self, attention: Attention):
        self.root, self.block = attention.root, attention.root.block
        self.outside = set(producers_outside(attention))
        self.ops = self._needed([self.root], self.outside)
        self.core = self._after(attention.scores)

    @property
    def are_possible(self) -> bool:
        """False where something outside of the loops, such as a sum of scores, stands between scores and output."""
        needed = [u for op in self.core for r in op.results for u in self._users(r)]
        return can_move_after(needed, self.root) and not self.outside & set(dependants_before(needed, self.root))

    def _needed(self, ops: Sequence[ir.Operation], outside: Collection[ir.Operation]) -> set[ir.Operation]:
        """The ops, and all pure ones of the block that they need, but what is `outside` and what that alone needs."""
        found, pending = set(ops), list(ops)
        while pending:
            for value in operands_with_captures(pending.pop()):
                op = defining_op(value)
                if op is not None and op.block == self.block and op not in found and op not in outside and is_pure(op):
                    found.add(op)
                    pending.append(op)
        return found

    def _after(self, scores: ir.Operation) -> list[ir.Operation]:
        """The scores, what depends on them, and what is computed of that element by element, in program order."""
        core, late = [scores], set[ir.Operation]()  # late: what depends on them, too, but is computed once, of results
        before = {o.operation for o in self.block.operations if o.operation.is_before_in_block(self.root)}
        for op in [o.operation for o in self.block.operations if scores.is_before_in_block(o.operation)]:
            made = {one for v in operands_with_captures(op) if (one := defining_op(v)) is not None}
            if not made & {*core, *late}:
                continue
            if op not in self.ops and is_elementwise(op) and not made & late:
                more = self._needed([op], self.ops | before)
                is_made = all(one == op or one.name in MADE_AGAIN for one in more)
                self.ops |= more if is_made and not self._needs_others(more, before) else set()
            if op in self.ops:
                core.append(op)
            else:
                late.add(op)
        return core

    def _needs_others(self, ops: Collection[ir.Operation], before: Collection[ir.Operation]) -> bool:
        """Whether the ops need what is neither computed twice nor there before the root is."""
        made = {defining_op(v) for op in ops for v in operands_with_captures(op)}
        known = self.ops | set(ops) | set(before)
        return any(one is not None and one.block == self.block and one not in known for one in made)

    def emit(self, queries: int, few: int) -> None:
        versions = _versions(self.root, few)
        for most, _ in versions:
            remark(self.root, f"up to {most} queries have loops of their own", kind="versioned")
        ops = [o.operation for o in self.block.operations if o.operation in self.ops]
        results = [r for op in self.core for r in op.results if self._users(r)]
        with ir.InsertionPoint(self.root), self.root.location:
            number = known_sizes(self.root.operands[2])[queries]
        choices: list[scf.IfOp] = []
        place, rows = ir.InsertionPoint(self.root), None
        for most, few_rows in versions:
            with place, self.root.location:
                more = arith.cmpi(arith.CmpIPredicate.ugt, number, build.index(most))
                choice = scf.IfOp(more, [r.type for r in results], has_else=True)
                if choices:
                    scf.yield_(choice.results)
            choices.append(choice)
            self._emit_version(ops, results, choice.then_block, rows)
            place, rows = ir.InsertionPoint(choice.else_block), few_rows
        self._emit_version(ops, results, choices[-1].else_block, rows)
        for result, chosen in zip(results, choices[0].results, strict=True):
            users = self._users(result)
            move_users_after(users, choices[0].operation)
            for use in list(result.uses):
                if ancestor_in(use.owner.operation, self.block) in users:
                    use.owner.operation.operands[use.operand_number] = chosen
        while self.core:  # the last one first
            erase_with_producers(self.core.pop(), self.core)

    def _emit_version(
        self, ops: Sequence[ir.Operation], results: Sequence[ir.Value], block: ir.Block, rows: int | None
    ) -> None:
        """A copy in the block, which it yields the results of; for tiles of few `rows` if that is a number."""
        copies: Values = {}
        with ir.InsertionPoint(block), self.root.location:
            for op in ops:
                copy_op(op, copies)
            if rows is not None:
                i64 = ir.IntegerType.get_signless(64)
                defining_op(copies[self.root.results[0]]).attributes[FEW_QUERIES] = ir.IntegerAttr.get(i64, rows)
            scf.yield_([copies[r] for r in results])

    def _users(self, value: ir.Value) -> list[ir.Operation]:
        """The ops of the block that use the value and are not computed twice."""
        tops = (ancestor_in(use.owner.operation, self.block) for use in value.uses)
        return [top for top in tops if top is not None and top not in self.ops]

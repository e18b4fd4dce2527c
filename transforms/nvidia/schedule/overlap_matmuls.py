"""The pass ``overlap-matmuls``."""

from __future__ import annotations

from dataclasses import dataclass

from ....dialects import build
from ....dialects.mlir import arith, ir
from ....dialects.tile import layout_of
from ...attention import is_matmul
from ...copying import copy_needed
from ...graph import dependents
from ...passes import Pass, option, remark
from ...rewriting import copy_op, defining_op, either, for_body, for_inits, is_inside, make_for, ops_in, ops_of
from ..marks import ASYNC
from ..registers import consumer_registers, matmul_registers
from .asynchronous import awaited, has_computed_right, is_carried, is_of_wgmma
from .bulk_copies import bulk_copies

REGISTERS, OTHER_REGISTERS = 255, 60
OTHER_REGISTERS_OF_8_BITS = 40  # since their left operands stay in shared memory


@dataclass(frozen=True)
class OverlapMatmuls(Pass):
    """In loops with several matmuls, the last one runs an iteration late, so that it overlaps with what stands
    between them::

        %o = scf.for %j = %lower to %upper step %step iter_args(%o0 = %init, …) {
          %s  = matmul(%q, %k[%j])
          %p, %alpha = softmax of %s, …
          %o1 = %o0 · %alpha
          %o2 = matmul(%p, %v[%j]) + %o1
          scf.yield %o2, …
      becomes
        %s, %p0, %alpha, %o1 = … the same for %lower, up to the second matmul
        %o, %p = scf.for %j = %lower + %step to %upper step %step iter_args(%o0 = %o1, %p0 = …, …) {
          %s  = matmul(%q, %k[%j])              {tile.async}
          %o1 = matmul(%p0, %v[%j − %step]) + %o0   {tile.async}
          %b = tile.convert_layout %bias[%j]       // what comes from shared memory for softmax, while both run
          %s1 = tile.wait_matmuls %s {pending = 1}
          %p, %alpha = softmax of %s1, %b, …       // while the second matmul runs
          %o2 = tile.wait_matmuls %o1 {pending = 0}
          %o3 = %o2 · %alpha
          scf.yield %o3, %p, …
        }
        %r = matmul(%p, %v[%upper − %step]) + %o

    and so with several products before it, none of which needs another one: all are under way with the last one of the
    iteration before. All in a scf.if that asks whether there is an iteration at all. For Hopper, whose matmuls are
    asynchronous (FlashAttention-3, Shah et al. 2024, §3.2: intra-warpgroup pipelining).

    Done where a thread's registers hold it: scores, output, both left operands and what else there is; and where a
    kernel has one loop: of a loop that was split at a mask, the parts are short, and the first and last steps cost
    more. Where the copy engine does not do the loads, the output must have more than `min-columns` columns, below
    which the longer way costs more than it hides.
    """

    min_columns: int = option("least number of columns of the second matmul, less one, without copy engine", 64)

    engine: bool = option("whether the copy engine will do the loads that it can", True)

    def run(self, op: ir.Operation) -> None:
        for kernel in ops_in(op, "gpu.func"):
            bulk = self.engine and bulk_copies(kernel)
            plans = [_Plan.of(o) for o in ops_of(kernel.regions[0].blocks[0]) if o.name == "scf.for"]
            if len(plans) != 1:
                continue
            for plan in plans:
                least = 0 if bulk else self.min_columns
                if plan is not None and plan.columns > least and plan.registers <= REGISTERS:
                    location = plan.loop.location
                    plan.rewrite()
                    remark(
                        location, "the second matmul of an iteration overlaps with what follows the next one's first"
                    )


@dataclass
class _Plan:
    """What is done late: `second`, and `rescale`, what its accumulator goes through; `carried`: which result it is.
    `firsts` are the matmuls before it, none of which needs another one."""

    loop: ir.Operation
    firsts: list[ir.Operation]
    second: ir.Operation
    rescale: list[ir.Operation]
    carried: int

    @staticmethod
    def of(loop: ir.Operation) -> _Plan | None:
        body = for_body(loop)
        ops = ops_of(body)
        matmuls = [o for o in ops if is_matmul(o)]
        nested = (o for o in ops if len(o.regions))
        if len(matmuls) < 2 or any(o.name not in ("linalg.generic", "scf.if") for o in nested):
            return None
        if not all(map(is_of_wgmma, matmuls)):
            return None
        *firsts, second = matmuls
        if any(one != other and one in dependents(other) for other in firsts for one in firsts):
            return None
        if has_computed_right(second) or not is_carried(second):
            return None
        carried = list(ops[-1].operands).index(second.results[0])
        argument = body.arguments[carried + 1]
        rescale: list[ir.Operation] = []
        reached = {argument}
        for op in ops:
            if op not in (second, ops[-1]) and any(v in reached for v in op.operands):
                rescale.append(op)
                reached.update(op.results)
        # The accumulator goes to the second matmul and nowhere else; its left operand does not come from it.
        for value in reached:
            for use in value.uses:
                user = use.owner.operation
                if user not in rescale and (user != second or use.operand_number != 2):
                    return None
        if any(is_matmul(o) or len(o.results) != 1 for o in rescale) or second.operands[2] not in reached:
            return None
        return _Plan(loop, firsts, second, rescale, carried)

    @property
    def columns(self) -> int:
        return self.second.results[0].type.shape[1]

    @property
    def registers(self) -> int:
        """Of a thread: what the matmuls work on, and a guess of the rest."""
        is_narrow = self.firsts[0].operands[0].type.element_type.width == 8
        other = OTHER_REGISTERS_OF_8_BITS if is_narrow else OTHER_REGISTERS
        return matmul_registers([*self.firsts, self.second]) + other

    @property
    def available(self) -> int:
        """Registers that a thread has. (Where two warpgroups compute the guess of `registers` is high enough.)"""
        warpgroups = self.second.results[0].type.shape[0] // 64
        return REGISTERS if warpgroups <= 2 else consumer_registers(warpgroups)

    def rewrite(self) -> None:
        loop = self.loop
        lower, upper, step = list(loop.operands)[:3]
        inits = for_inits(loop)
        with ir.InsertionPoint(loop), loop.location:
            some = arith.cmpi(arith.CmpIPredicate.slt, lower, upper)
            found = either(
                some, [v.type for v in inits], lambda: self._iterations(lower, upper, step, inits), lambda: inits
            )
        for old, new in zip(loop.results, found, strict=True):
            old.replace_all_uses_with(new)
        loop.erase()

    def _late(self) -> set[ir.Operation]:
        """The ops of the second matmul's part that nothing else needs: it, its right operand, its accumulator's way."""
        late = {self.second, *self.rescale}
        right = defining_op(self.second.operands[1])
        if right is not None and is_inside(right, self.loop) and len(list(right.results[0].uses)) == 1:
            late.add(right)
        return late

    def _early(self, values: dict[ir.Value, ir.Value]) -> None:
        """Copies everything up to the second matmul's left operand."""
        late = self._late()
        for op in ops_of(for_body(self.loop))[:-1]:
            if op not in late:
                copy_op(op, values)

    def _iterations(self, lower: ir.Value, upper: ir.Value, step: ir.Value, inits) -> list[ir.Value]:
        body = for_body(self.loop)
        yielded = list(ops_of(body)[-1].operands)
        values: dict[ir.Value, ir.Value] = dict(zip(body.arguments, [lower, *inits], strict=True))
        self._early(values)
        for op in self.rescale:
            copy_op(op, values)
        left, accumulator = values[self.second.operands[0]], values.get(self.second.operands[2])
        carried = [accumulator if i == self.carried else values.get(v, v) for i, v in enumerate(yielded)]
        start = arith.addi(lower, step)
        loop, block = make_for([start, upper, step], [*carried, left])
        with ir.InsertionPoint(block):
            self._steady(block, step, yielded)
        values = {body.arguments[0]: self._last(lower, upper, step)}
        final = list(loop.results)
        values[self.second.operands[0]] = final[-1]
        values[self.second.operands[2]] = final[self.carried]
        final[self.carried] = self._second(values)
        return final[:-1]

    def _last(self, lower: ir.Value, upper: ir.Value, step: ir.Value) -> ir.Value:
        """The induction variable of the last iteration."""
        count = arith.divui(arith.subi(arith.subi(upper, lower), build.index(1)), step)
        return arith.addi(lower, arith.muli(count, step))

    def _second(self, values: dict[ir.Value, ir.Value]) -> ir.Value:
        """The second matmul and its right operand, with `values` for the iteration that they belong to."""
        copy_needed(self.second.operands[1], values, self._is_inside)
        copy_op(self.second, values)
        return values[self.second.results[0]]

    def _is_inside(self, op: ir.Operation) -> bool:
        return is_inside(op, self.loop)

    def _steady(self, block: ir.Block, step: ir.Value, yielded: list[ir.Value]) -> None:
        body = for_body(self.loop)
        arguments = list(block.arguments)
        values = dict(zip(body.arguments, arguments[: len(body.arguments)], strict=True))
        late = self._late()
        before: dict[ir.Value, ir.Value] = {body.arguments[0]: arith.subi(arguments[0], step)}
        before[self.second.operands[0]] = arguments[-1]
        before[self.second.operands[2]] = arguments[self.carried + 1]
        # The left operand's registers are read until the second matmul is done: the next one's come after.
        packing = defining_op(self.second.operands[0])
        packed = packing is not None and packing.name == "tile.convert_layout" and is_inside(packing, self.loop)
        ops = [op for op in ops_of(body)[:-1] if op not in late and not (packed and op == packing)]
        last = ops.index(self.firsts[-1]) + 1
        made_of_firsts = set[ir.Operation]().union(*map(dependents, self.firsts)) - {*self.firsts}
        for op in ops[:last]:
            if op not in made_of_firsts:
                copy_op(op, values)
        for first in self.firsts:
            values[first.results[0]].owner.operation.attributes[ASYNC] = ir.UnitAttr.get()
        second = self._second(before)
        second.owner.operation.attributes[ASYNC] = ir.UnitAttr.get()
        early = list(filter(_is_staged_operand, ops_of(body)))
        if self.registers + sum(_words(o.results[0].type) for o in early) <= self.available:
            for other in early:
                copy_needed(other.results[0], values, self._is_inside)
        for first in self.firsts:
            values[first.results[0]] = awaited(values[first.results[0]], 1)
        for op in [*(op for op in ops[:last] if op in made_of_firsts), *ops[last:]]:
            if not (op.results and all(r in values for r in op.results)):
                copy_op(op, values)
        values[body.arguments[self.carried + 1]] = awaited(second, 0)
        for op in [*([packing] if packed else []), *self.rescale]:
            copy_op(op, values)
        accumulator = values[self.second.operands[2]]
        new = [accumulator if i == self.carried else values.get(v, v) for i, v in enumerate(yielded)]
        ir.Operation.create("scf.yield", [], [*new, values[self.second.operands[0]]])


def _is_staged_operand(op: ir.Operation) -> bool:
    """Whether `op` brings a tile from shared memory to registers, for element-wise ops."""
    return (
        op.name == "tile.convert_layout"
        and layout_of(op.results[0].type) in ("fragment", "column")
        and layout_of(op.operands[0].type) in ("shared", "skewed")
    )


def _words(kind: ir.RankedTensorType) -> int:
    """Registers of a thread that a tile takes as it comes from shared memory: two elements of a row at a time."""
    return kind.shape[-1] // 4 * (2 if kind.element_type.width > 16 else 1)

"""The pass ``row-sums-by-matmul``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ....dialects.mlir import ir
from ....dialects.tile import (
    ONE_COLUMNS,
    ONE_ROWS,
    SHARES,
    AppendOnesOp,
    FillOnesOp,
    SplitSumsOp,
    dims_of,
    layout_of,
    shared_buffer,
    with_sums,
)
from ....dialects.tiling.structured import dim_position, indexing_maps
from ...attention import contraction_loops, is_matmul
from ...copying import without_result
from ...passes import Pass, remark
from ...rewriting import defining_op, for_body, for_inits, ops_in, ops_of, single_use
from ..constants import zeros
from ..marks import ASYNC
from ..masking import yielded
from .row_sums import combined, is_row_sum, is_zeros, summed_tile


@dataclass(frozen=True)
class RowSumsByMatmul(Pass):
    """Where exponentials keep threads busy, the matmul with values adds up their rows, too, by columns of ones::

        %o, %l, %p = scf.for … iter_args(%o0 = 0, %l0 = rowsum(first), %p0 = first) {
          %o1 = %o0 + %p0 · %v                                    // 256 × 64
          %p1 = exp2(…)
          %l1 = %l0 + rowsum(%p1)
          …
        }
        %r = %o + %p · %last
      becomes
        tile.fill_ones %ones
        %w, %p = scf.for … iter_args(%w0 = 0, %p0 = first) {
          %w1 = %w0 + %p0 · tile.append_ones(%v, %ones)           // 256 × 72
          %p1 = exp2(…)
          …
        }
        %s = %w + %p · tile.append_ones(%last, %ones)
        %r, %l = tile.split_sums %s

    That takes the tensor cores an eighth longer for this matmul, and an addition per score from the threads. It pays
    where exponentials come from a table (``tabulate-exponentials``), most of them: then threads issue instructions all
    the time, and matmuls wait for them. Not beside biases from shared memory (2.5% slower on an H200). Probabilities
    are summed as they are multiplied, rounded to 16 bits: for division alone, not where the sum itself is a result.

    For loops that keep their maximum (``keep-maximum``): with another one, sums would have to be rescaled here, too,
    and for tiles of values whose 64 columns are side by side.
    """

    def run(self, op: ir.Operation) -> None:
        for kernel in ops_in(op, "gpu.func"):
            plans = [plan for loop in ops_in(kernel, "scf.for") if (plan := _Plan.of(loop)) is not None]
            ones: dict[ir.Type, ir.Value] = {}
            for plan in plans:
                element = plan.matmul.operands[1].type.element_type
                if element not in ones:
                    ones[element] = _filled(kernel, element)
                with plan.loop.location:
                    plan.rewrite(ones[element])
            if plans:
                remark(kernel, "the matmul with values adds up the rows of probabilities")


def _filled(kernel: ir.Operation, element: ir.Type) -> ir.Value:
    with ir.InsertionPoint.at_block_begin(kernel.regions[0].blocks[0]), kernel.location:
        buffer = shared_buffer([1, ONE_ROWS, ONE_COLUMNS], element)
        FillOnesOp(buffer)
    return buffer


@dataclass
class _Plan:
    loop: ir.Operation
    matmul: ir.Operation  # in the loop
    last: ir.Operation  # the one behind it, of the last probabilities
    output: int  # by its number of what the loop carries
    sum: int
    tile_sums: list[ir.Value]  # of the loop's probabilities, and the first ones
    total: ir.Value  # behind the loop

    @staticmethod
    def of(loop: ir.Operation) -> _Plan | None:
        if not _has_tables(loop) or _reads_biases(loop):
            return None
        for number in range(len(loop.results)):
            sums = _tile_sums(loop, number)
            plan = _Plan._with(loop, number, sums) if sums is not None else None
            if plan is not None:
                return plan
        return None

    @staticmethod
    def _with(loop: ir.Operation, number: int, sums: list[ir.Value]) -> _Plan | None:
        """`sums`: of the tiles in the loop and before it."""
        arguments, passed_on = list(for_body(loop).arguments)[1:], list(ops_of(for_body(loop))[-1].operands)
        matmul = next((o for o in ops_of(for_body(loop)) if is_matmul(o) and o.operands[0] in arguments), None)
        if matmul is None or matmul.operands[2] not in arguments or not _takes_ones(matmul):
            return None
        carried, output = arguments.index(matmul.operands[0]), arguments.index(matmul.operands[2])
        tiles = [_rounded(passed_on[carried]), _rounded(for_inits(loop)[carried])]
        if tiles != [summed_tile(defining_op(s), s) for s in sums]:
            return None
        if defining_op(passed_on[output]) != _waited(matmul) or not is_zeros(for_inits(loop)[output]):
            return None
        last = _only_user(loop.results[carried])
        if last is None or not is_matmul(last) or not _takes_ones(last) or ASYNC in last.attributes:
            return None
        if last.operands[2] != loop.results[output] or not single_use(loop.results[output]):
            return None
        whole = _only_user(loop.results[number])
        if whole is None or whole.name != "tile.convert_layout" or _is_stored(whole.results[0]):
            return None
        return _Plan(loop, matmul, last, output, number, sums, whole.results[0])

    def rewrite(self, ones: ir.Value) -> None:
        loop, body = self.loop, for_body(self.loop)
        narrow = loop.results[self.output].type
        with ir.InsertionPoint(loop):
            for number, kind in ((self.output, with_sums(narrow)), (self.sum, loop.results[self.sum].type)):
                loop.operands[3 + number] = zeros(kind)
        ops_of(body)[-1].operands[self.sum] = body.arguments[1 + self.sum]
        wide = (self.matmul, _waited(self.matmul), self.last)
        for value in (body.arguments[1 + self.output], loop.results[self.output], *(op.results[0] for op in wide)):
            value.set_type(with_sums(narrow))
        for op in (self.matmul, self.last):
            with ir.InsertionPoint(op):
                values = op.operands[1]
                op.operands[1] = AppendOnesOp(values, ones, result=with_sums(values.type)).result
        sums = self.last.results[0]
        with ir.InsertionPoint(ops_of(self.last.block)[ops_of(self.last.block).index(self.last) + 1]):
            split = SplitSumsOp(sums, result=narrow, sums=self.total.type)
        sums.replace_all_uses_except(split.result, [split.operation])
        self.total.replace_all_uses_with(split.sums)
        defining_op(self.total).erase()
        for tile_sum in self.tile_sums:
            _drop(tile_sum)


def _has_tables(loop: ir.Operation) -> bool:
    """Whether most exponentials of a loop come from a table."""
    return any(2 * o.opview.share.value > SHARES for o in ops_in(loop, "tile.exp2"))


def _reads_biases(loop: ir.Operation) -> bool:
    """Whether threads read element-wise operands from shared memory in a loop."""
    loads = (o for o in ops_in(loop, "tile.convert_layout") if layout_of(o.results[0].type) == "fragment")
    return any(layout_of(o.operands[0].type) in ("shared", "skewed") for o in loads)


def _tile_sums(loop: ir.Operation, number: int) -> list[ir.Value] | None:
    """What a loop adds to a sum of rows that it carries, and the sum before it: those of the rows of a tile each; None
    where what it carries is no such sum."""
    carried, total = for_body(loop).arguments[1 + number], ops_of(for_body(loop))[-1].operands[number]
    start = for_inits(loop)[number]
    whole = defining_op(start)
    if layout_of(carried.type) != "row_part" or whole is None or whole.name != "tile.convert_layout":
        return None
    if not all(map(single_use, (carried, total, start, whole.operands[0]))):
        return None
    added = _added(total, lambda v: v == carried), _added(whole.operands[0], is_zeros)
    found = [v for v in added if v is not None and is_row_sum(defining_op(v), v) and single_use(v)]
    return found if len(found) == len(added) else None


def _added(total: ir.Value, is_start: Callable[[ir.Value], bool]) -> ir.Value | None:
    """What a sum of two tiles has beside the one that `is_start`, if something computes it."""
    op = defining_op(total)
    if op is None or op.name != "linalg.generic":
        return None
    terms = combined(op, list(op.results).index(total), "arith.addf") or (None, None)
    for term, other in (terms, terms[::-1]):
        if term is not None and other is not None and is_start(term) and defining_op(other) is not None:
            return other
    return None


def _rounded(operand: ir.Value) -> ir.Value | None:
    """The tile that a matmul's left operand is, but for being rounded and its layout; None if it is none."""
    convert = defining_op(operand)
    op = defining_op(convert.operands[0]) if convert is not None and convert.name == "tile.convert_layout" else None
    if op is None or op.name != "linalg.generic" or is_matmul(op) or len(op.results) != 1:
        return None
    round_ = defining_op(yielded(op))
    argument = round_.operands[0] if round_ is not None and round_.name == "arith.truncf" else None
    block = op.regions[0].blocks[0]
    return op.operands[argument.arg_number] if argument is not None and argument in block.arguments else None


def _takes_ones(matmul: ir.Operation) -> bool:
    """Whether a matmul's right operand can have columns of ones: its 64 columns of 16 bits are side by side."""
    kind, loops = matmul.operands[1].type, contraction_loops(matmul)
    if kind.element_type.width != 16 or kind.shape[1] != ONE_COLUMNS or loops is None:
        return False
    of_rows = dim_position(indexing_maps(matmul)[1].results[0])
    return [of_rows] == list(loops.k) and _has_columns_side_by_side(matmul.operands[1])


def _has_columns_side_by_side(tile: ir.Value) -> bool:
    op = defining_op(tile)
    if op is None or op.name not in ("tile.view", "tile.load"):
        return False
    if op.name == "tile.load":
        return dims_of(op.opview)[1] == op.opview.memory.type.rank - 1
    users = [use.owner.operation for use in op.operands[0].uses]
    copies = [o.opview for o in users if o.name == "tile.copy_bulk"]
    others = [o for o in users if o.name not in ("tile.view", "tile.copy_bulk")]
    return not others and all(dims_of(view)[1] == len(view.indices) - 1 for view in copies)


def _waited(matmul: ir.Operation) -> ir.Operation:
    """The op that has a matmul's result when it is there."""
    user = _only_user(matmul.results[0])
    return user if user is not None and user.name == "tile.wait_matmuls" else matmul


def _only_user(value: ir.Value) -> ir.Operation | None:
    users = [use.owner.operation for use in value.uses]
    return users[0] if len(users) == 1 else None


def _is_stored(rows: ir.Value) -> bool:
    """Whether numbers of rows, or what is made of them for rows, go to memory."""
    for use in rows.uses:
        user = use.owner.operation
        if user.name == "tile.store":
            return True
        if user.name == "scf.yield":
            passed = [user.parent.operation.results[use.operand_number]]
        else:
            passed = [r for r in user.results if layout_of(r.type) == "row" and str(r.type.element_type) != "i1"]
        if any(map(_is_stored, passed)):
            return True
    return False


def _drop(tile_sum: ir.Value) -> None:
    """Erases a sum of rows, and what only leads to where it is not read any more."""
    op = defining_op(tile_sum)
    number = list(op.results).index(tile_sum)
    for use in list(tile_sum.uses):
        _erase(use.owner.operation)
    if len(op.results) == 1:
        op.erase()
    else:
        without_result(op, number)


def _erase(op: ir.Operation) -> None:
    """Erases an op and all that uses it."""
    for use in [use for result in op.results for use in result.uses]:
        _erase(use.owner.operation)
    op.erase()

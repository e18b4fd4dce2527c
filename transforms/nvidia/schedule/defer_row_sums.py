"""The pass ``defer-row-sums``."""

from __future__ import annotations

from dataclasses import dataclass

from ....dialects.mlir import ir
from ....dialects.tile import ConvertLayoutOp, layout_of, with_layout
from ....dialects.tiling.structured import iterator_types
from ...passes import Pass, remark
from ...rewriting import defining_op, for_body, for_inits, ops_in, ops_of, single_use
from .row_sums import combined, is_row_sum

PART = "row_part"


@dataclass(frozen=True)
class DeferRowSums(Pass):
    """Sums over rows that a loop adds up are put together, from the threads that share a row, once behind the loop::

        %l = scf.for … iter_args(%l0 = %init) -> (tensor<128xf32, "row">) {
          %t = rowsum(%p) : tensor<128xf32, "row">                  // each thread's columns; then two shuffles
          %l1 = %l0 · %alpha + %t
          scf.yield %l1
        }
      becomes
        %i = tile.convert_layout %init : … -> tensor<128xf32, "row_part">
        %s = scf.for … iter_args(%l0 = %i) -> (tensor<128xf32, "row_part">) {
          %t = rowsum(%p) : tensor<128xf32, "row_part">             // each thread's columns
          %l1 = %l0 · %alpha + %t
          scf.yield %l1
        }
        %l = tile.convert_layout %s : … -> tensor<128xf32, "row">   // two shuffles

    All that happens to the sum in the loop is linear: it is multiplied by what is the same for a row, and added to.
    """

    def run(self, op: ir.Operation) -> None:
        for kernel in ops_in(op, "gpu.func"):
            for loop in ops_in(kernel, "scf.for"):
                for number in range(len(loop.results)):
                    changed = _linear_sum(loop, number)
                    if changed is not None:
                        with loop.location:
                            _defer(loop, number, changed)
                        remark(loop, "the threads that share a row put its sum together behind the loop")


def _linear_sum(loop: ir.Operation, number: int) -> list[tuple[ir.Operation, int]] | None:
    """The results of ops, by their numbers, that become parts where what the loop carries as `number` does; None if it
    is no such sum."""
    body = for_body(loop)
    carried, yielded = body.arguments[1 + number], ops_of(body)[-1].operands[number]
    total = defining_op(yielded)
    if layout_of(carried.type) != "row" or not _is_rows(total) or not single_use(carried) or not single_use(yielded):
        return None
    terms = combined(total, list(total.results).index(yielded), "arith.addf")
    if terms is None:
        return None
    changed = [(total, list(total.results).index(yielded))]
    for term, other in (terms, terms[::-1]):
        if other is None or term is None:
            continue
        reduced, scaled = defining_op(other), defining_op(term)
        if reduced is None or not is_row_sum(reduced, other) or not single_use(other):
            continue
        if term == carried:
            return [*changed, (reduced, list(reduced.results).index(other))]
        if not _is_rows(scaled) or not single_use(term) or scaled.block != body:
            continue
        factors = combined(scaled, list(scaled.results).index(term), "arith.mulf")
        if factors is not None and [v for v in factors if v is not None].count(carried) == 1:
            mine = (scaled, list(scaled.results).index(term))
            return [*changed, mine, (reduced, list(reduced.results).index(other))]
    return None


def _is_rows(op: ir.Operation | None) -> bool:
    """Whether `op` computes values of rows from values of rows."""
    return (
        op is not None
        and op.name == "linalg.generic"
        and iterator_types(op) == ["parallel"]
        and all(layout_of(v.type) == "row" for v in (*op.operands, *op.results) if isinstance(v.type, ir.ShapedType))
    )


def _defer(loop: ir.Operation, number: int, changed: list[tuple[ir.Operation, int]]) -> None:
    body, kind = for_body(loop), loop.results[number].type
    part = with_layout(kind, PART)
    with ir.InsertionPoint(loop):
        loop.operands[3 + number] = ConvertLayoutOp(for_inits(loop)[number], [], result=part).result
    for op, result in changed:
        op.results[result].set_type(part)
        _set_init(op, len(op.operands) - len(op.results) + result, part)
    body.arguments[1 + number].set_type(part)
    following = ops_of(loop.block)[ops_of(loop.block).index(loop) + 1]
    with ir.InsertionPoint(following):
        whole = ConvertLayoutOp(loop.results[number], [], result=kind).result
    loop.results[number].set_type(part)
    loop.results[number].replace_all_uses_except(whole, [defining_op(whole)])


def _set_init(op: ir.Operation, operand: int, part: ir.Type) -> None:
    """An init that is a constant, or nothing, gets a copy of its own of the type."""
    init = defining_op(op.operands[operand])
    if init is None or init.name not in ("arith.constant", "tensor.empty"):
        return  # one of the other results, which changes by itself
    with ir.InsertionPoint(op):
        copy = init.clone().operation
    copy.results[0].set_type(part)
    if copy.name == "arith.constant":
        value = ir.DenseElementsAttr(copy.attributes["value"]).get_splat_value()
        copy.attributes["value"] = ir.DenseElementsAttr.get_splat(part, value)
    op.operands[operand] = copy.results[0]

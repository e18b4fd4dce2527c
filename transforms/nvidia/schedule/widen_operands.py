"""The pass ``widen-operands``."""

from __future__ import annotations

from dataclasses import dataclass

from ....dialects import build
from ....dialects.mlir import ir
from ....dialects.tiling.structured import dim_position, indexing_maps
from ...attention import contraction_loops, is_matmul
from ...graph import backward_slice
from ...passes import Pass, option, remark
from ...rewriting import defining_op, ops_in
from ..elements import EIGHT_BITS
from ..registers import adds
from .bulk_copies import bulk_copy

MOST_COLUMNS = 128
WIDE = (ir.F16Type, ir.BF16Type, ir.F32Type)  # f32 holds what the others do


@dataclass(frozen=True)
class WidenOperands(Pass):
    """Operands of matmuls that have 8 bits become f16, or what they are multiplied by, where tensor cores do not take
    them::

        %k = tile.load(%arg1, …) : … -> tensor<128x64xf8E4M3FN>
        %s = linalg.generic … ins(%q, %k : …, tensor<128x64xf8E4M3FN>) …                    { extf(q) · extf(k) + s }
      becomes
        %k = tile.load(%arg1, …) : … -> tensor<128x64xf8E4M3FN>
        %w = linalg.generic … ins(%k) { extf(k) } -> tensor<128x64xf16>
        %s = linalg.generic … ins(%q, %w : …, tensor<128x64xf16>) …                         { extf(q) · extf(w) + s }

    They do on Hopper, in kernels all of whose operands the copy engine brings (`native`): two operands of 8 bits, those
    of keys with the head dimension side by side, and up to 128 columns of values: of more, registers do not hold what a
    tile adds besides what there is (`contraction.py`). f16 holds all numbers of e4m3 and e5m2.

    So do operands of two wider types, as of queries and of a cache that a program converts: they become the one that
    holds both, of f16 and bf16 f32. But what is computed of scores in f32, as their derivative, stays beside bf16 that
    is loaded: it is multiplied as a sum of two bf16 (`contraction.py`).
    """

    native: bool = option("whether tensor cores take operands of 8 bits that the copy engine brings", False)

    def run(self, op: ir.Operation) -> None:
        for kernel in ops_in(op, "gpu.func"):
            matmuls = list(filter(is_matmul, ops_in(kernel)))
            for matmul in matmuls:
                wide = all(isinstance(v.type.element_type, WIDE) for v in matmul.operands)
                if wide and _extends(matmul) and not _is_of_parts(matmul):
                    _widen(matmul)
            narrow = [m for m in matmuls if any(map(_has_eight_bits, list(m.operands)[:2]))]
            if not narrow:
                continue
            reason = _reason(kernel, matmuls) if self.native else "for this architecture, without its copy engine"
            if reason is None:
                remark(kernel, "matmuls take operands of 8 bits")
                continue
            for matmul in narrow:
                _widen(matmul)
            remark(kernel, f"operands of matmuls that have 8 bits become wider: {reason}")


def _is_of_parts(matmul: ir.Operation) -> bool:
    """Whether the left operand is f32, computed of another matmul's result, and the right one bf16, loaded. (Queries in
    f32 are not multiplied so: an exponential would make more of what scores lose.)"""
    left, right = list(matmul.operands)[:2]
    made, load = defining_op(left), defining_op(right)
    return (
        isinstance(left.type.element_type, ir.F32Type)
        and isinstance(right.type.element_type, ir.BF16Type)
        and made is not None
        and any(map(is_matmul, backward_slice(made)))
        and load is not None
        and load.name == "tile.load"
    )


def _has_eight_bits(value: ir.Value) -> bool:
    return isinstance(value.type.element_type, EIGHT_BITS)


def _reason(kernel: ir.Operation, matmuls: list[ir.Operation]) -> str | None:
    """Why the tensor cores cannot take operands of 8 bits; None if they can."""
    for matmul in matmuls:
        left, right = list(matmul.operands)[:2]
        loads = [defining_op(v) for v in (left, right)]
        if _has_eight_bits(left) != _has_eight_bits(right):
            return "one operand has 8 bits, the other one more"
        if _has_eight_bits(left) and adds(matmul) and matmul.results[0].type.shape[1] > MOST_COLUMNS:
            return f"there are no registers for sums of more than {MOST_COLUMNS} columns"
        if loads[1] is None or loads[1].name != "tile.load":
            return "a right operand is computed"
        for load in loads:
            if load is not None and load.name == "tile.load" and bulk_copy(load, kernel) is None:
                return "the copy engine cannot bring them"
        if loads[0] is not None and loads[0].name == "tile.load" and _has_eight_bits(left):
            loops = contraction_loops(matmul)
            assert loops is not None, "a matmul is a contraction"
            for load, m in zip(loads, indexing_maps(matmul), strict=False):
                copy = bulk_copy(load, kernel)
                if dim_position(m.results[copy.inner]) not in loops.k:
                    return "what is summed over does not stand side by side"
    return None


def _extends(matmul: ir.Operation) -> bool:
    """Whether factors are multiplied in f32, whatever operands have."""
    products = [op for op in ops_in(matmul) if op.name == "arith.mulf"]
    return all(isinstance(op.results[0].type, ir.F32Type) for op in products)


def _widen(matmul: ir.Operation) -> None:
    """Makes the operands of one type."""
    operands = list(matmul.operands)[:2]
    others = {v.type.element_type for v in operands if not _has_eight_bits(v)}
    wide = ir.F32Type.get() if len(others) > 1 else next(iter(others), ir.F16Type.get())
    for number, operand in enumerate(operands):
        if operand.type.element_type == wide:
            continue
        with ir.InsertionPoint(matmul), matmul.location:
            matmul.operands[number] = build.convert_elements(operand, wide)
        argument = matmul.regions[0].blocks[0].arguments[number]
        argument.set_type(wide)
        for use in list(argument.uses):
            extension = use.owner.operation
            if extension.results[0].type == wide:
                extension.results[0].replace_all_uses_with(argument)
                extension.erase()

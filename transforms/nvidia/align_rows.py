"""The pass ``align-rows``."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from ...dialects import build
from ...dialects.mlir import arith, ir, linalg, tensor
from ..attention import is_contraction
from ..passes import Pass, remark
from ..rewriting import defining_op, is_inside, ops_in
from .axes import DYNAMIC, ops_of, slice_offsets, slice_sizes
from .memory import CHUNK, are_aligned, byte_width
from .values import COPY

COPIED = ("f16", "bf16", "f32", "i1", "i8", "i16", "i32")
READS = 4  # measured on an H200: a copy takes 3 ps an element, loading by each thread 1 ps a read, 2.5 of i1
LARGEST = 1 << 30  # elements: a kernel numbers them by i32
FEW_ROWS = 64  # of a tile, which no copy engine brings


@dataclass(frozen=True)
class AlignRows(Pass):
    """Copies tensors that tiles of scores come together with, to memory whose rows the copy engine can read::

        %r = scf.forall (%b, %i) … {
          %t = tensor.extract_slice %bias[0, %i, %j] [1, %m, %n] … : tensor<1x4096x4095xbf16> to …
      becomes
        %e = tensor.empty() : tensor<1x4096x4096xbf16>
        %p = linalg.generic outs(%e) { %k < 4095 ? %bias[%h, %i, min(%k, 4094)] : 0 }
        %r = scf.forall (%b, %i) … {
          %t = tensor.extract_slice %p[0, %i, %j] [1, %m, %n] … : tensor<1x4096x4096xbf16> to …

    where rows are not aligned to 16 bytes: a bias or mask for an odd number of keys. A copy has a thread for each
    element: it pays where enough heads or batch entries share the tensor.

    (The engine can be pointed at any row of an unaligned array, by maps of its own for rows that are aligned alike; but
    columns too must begin at multiples of 16 bytes, or the instruction is illegal.)
    """

    def run(self, op: ir.Operation) -> None:
        for function in [f.operation for f in op.regions[0].blocks[0].operations if f.operation.name == "func.func"]:
            for forall in ops_of(function.regions[0].blocks[0]):
                if forall.name == "scf.forall" and _has_aligned_operands(forall):
                    _align(forall)


def can_be_aligned(kind: ir.RankedTensorType) -> bool:
    """Whether there is a way to copy such a tensor."""
    small = not kind.has_static_shape or math.prod(kind.shape) < LARGEST
    return small and str(kind.element_type) in COPIED


def _has_aligned_operands(forall: ir.Operation) -> bool:
    """Whether there are matmuls, of many rows of 16-bit values, which the copy engine can read."""
    matmuls = [op for op in ops_in(forall, "linalg") if is_contraction(op)]
    reads = [op for op in ops_in(forall, "tensor.extract_slice") if _is_multiplied(op)]
    narrow = all(v.type.element_type.width == 16 for op in matmuls for v in list(op.operands)[:2])
    tall = any(n == DYNAMIC or n > FEW_ROWS for op in matmuls for n in op.results[0].type.shape[-2:-1])
    return bool(matmuls) and tall and narrow and all(are_aligned(op.operands[0].type) for op in reads)


def _align(forall: ir.Operation) -> None:
    copies: dict[ir.Value, ir.Value] = {}
    for read in ops_in(forall, "tensor.extract_slice"):
        source = read.operands[0]
        owner = source.owner.operation if not isinstance(source.owner, ir.Block) else source.owner.owner.operation
        if is_inside(owner, forall) or owner == forall or not _is_wanted(read, forall):
            continue
        if source not in copies:
            with ir.InsertionPoint(forall), read.location:
                copies[source] = _copied(source)
            remark(read, "copied to aligned rows, which heads or batch entries share")
        read.operands[0] = copies[source]


def _is_wanted(read: ir.Operation, forall: ir.Operation) -> bool:
    kind, sizes = read.operands[0].type, slice_sizes(read)
    if kind.rank < 2 or are_aligned(kind) or not can_be_aligned(kind) or _is_multiplied(read):
        return False
    return sizes[-1] != 1 and sum(s != 1 for s in sizes) == 2 and _is_shared(read, forall)


def _is_multiplied(read: ir.Operation) -> bool:
    """Whether what is read becomes an operand of a matmul: as it is, or moved, or computed by itself."""
    for use in read.results[0].uses:
        user = use.owner.operation
        if is_contraction(user):
            return True
        inputs = len(user.operands) - len(user.results) if user.name.startswith("linalg.") else 1
        if (
            inputs == 1
            and len(user.results) == 1
            and user.name.startswith(("linalg.", "tensor."))
            and _is_multiplied(user)
        ):
            return True
    return False


def pays(counts: Iterable[int | None]) -> bool:
    """Whether a tensor is read so often that a copy pays: by numbers of heads and batch entries, None if unknown."""
    return math.prod(n or 1 for n in counts) >= READS


def _is_shared(read: ir.Operation, forall: ir.Operation) -> bool:
    """Whether enough iterations of the grid read the same."""
    view, body = forall.opview, forall.regions[0].blocks[0]
    used: set[ir.Value] = set()
    pending = [o for o in slice_offsets(read) if isinstance(o, ir.Value)]
    while pending:
        value = pending.pop()
        used.add(value)
        op = defining_op(value) or value.owner.owner.operation
        if is_inside(op, forall):
            pending += [v for v in op.operands if v not in used and not isinstance(v.type, ir.ShapedType)]
    bounds = zip(body.arguments, view.staticLowerBound, view.staticUpperBound, view.staticStep, strict=False)
    return pays(None if DYNAMIC in (a, b, s) else -(-(b - a) // s) for v, a, b, s in bounds if v not in used)


def _copied(source: ir.Value) -> ir.Value:
    kind, rank = source.type, source.type.rank
    *sizes, last = build.mixed_sizes(source)
    end = build.index(last) if isinstance(last, int) else last
    empty = build.empty([*sizes, _padded(last, CHUNK // byte_width(kind.element_type))], kind.element_type)
    is_float = isinstance(kind.element_type, ir.FloatType)
    zero = ir.FloatAttr.get(kind.element_type, 0.0) if is_float else ir.IntegerAttr.get(kind.element_type, 0)

    def body(_: ir.Value) -> ir.Value:
        places = [linalg.IndexOp(d).result for d in range(rank)]
        inside = arith.cmpi(arith.CmpIPredicate.slt, places[-1], end)
        nearest = arith.minsi(places[-1], arith.subi(end, build.index(1)))
        element = tensor.extract(source, [*places[:-1], nearest])
        return arith.select(inside, element, arith.ConstantOp(kind.element_type, zero).result)

    (copy,) = build.generic([], [empty], [build.projection(rank, range(rank))], [build.PARALLEL] * rank, body)
    copy.owner.attributes[COPY] = ir.UnitAttr.get()
    return copy


def _padded(size: int | ir.Value, multiple: int) -> int | ir.Value:
    if isinstance(size, int):
        return -(-size // multiple) * multiple
    whole = build.index(multiple)
    return arith.muli(arith.divui(arith.addi(size, build.index(multiple - 1)), whole), whole)

"""The pass ``spread-rows``."""

from dataclasses import dataclass

from ....dialects import build
from ....dialects.mlir import ir, memref
from ...linear import DYNAMIC
from ...passes import Pass, option
from ...rewriting import defining_op
from ...slices import mixed, slice_parts
from ..blocks import subview
from ..memory import ALIGNMENT, element_bytes
from ..structured import NO_LOOP, reductions_in
from ..target import LINE, host_target
from .pack_contractions import falls_on_all_sets, packed_operand
from .schedule import choose, is_scratch


@dataclass(frozen=True)
class SpreadRows(Pass):
    """Puts the rows of scratch, of which a contraction reads a few columns at a time, an odd number of lines apart::

        %bytes = memref.alloca() : memref<16384xi8>
        %p = memref.view %bytes[%c0][] : memref<16384xi8> to memref<64x64xf32>
        linalg.generic {O[d, q] += P[k, q]·V[k, d]} ins(%p, %v) outs(%o)
    becomes
        %bytes = memref.alloca() : memref<20480xi8>
        %wide = memref.view %bytes[%c0][] : memref<20480xi8> to memref<64x80xf32>
        %p = memref.subview %wide[0, 0] [64, 64] [1, 1] : … to memref<64x64xf32, strided<[80, 1]>>
        linalg.generic {O[d, q] += P[k, q]·V[k, d]} ins(%p, %v) outs(%o)

    With 16 vector registers a register tile is 16 queries wide, a line of each row of 64. Rows of 4 lines fall on a
    quarter of the L1 cache's sets, an odd number on all of them. `pack-contractions` would copy these columns next to
    each other, for each tile of keys, and what comes before the contraction would no longer be right before it: the
    zeros that scores start from, the rescaling of the output, what is prefetched.
    """

    vector_bytes: int = option("bytes of a vector; 0 = what the host has", 0)

    def run(self, op: ir.Operation) -> None:
        target = host_target(self.vector_bytes)
        for structured in reductions_in(op):
            schedule = choose(structured, target)
            operand = packed_operand(structured, schedule)
            if operand is None or not is_scratch(operand) or operand.dims[-1] != schedule.vector_loop:
                continue
            view = defining_op(operand.value)
            if NO_LOOP not in operand.dims[-2:] and view is not None and view.name == "memref.view" and _can_be(view):
                _spread(view)


def _can_be(view: ir.Operation) -> bool:
    """True if the view's rows are an even number of lines, and all that uses it works on rows that are apart."""
    kind, storage = view.results[0].type, defining_op(view.operands[0])
    row = kind.shape[-1] * (element_bytes(kind.element_type) or 0)
    if kind.is_dynamic_dim(kind.rank - 1) or row % LINE or falls_on_all_sets(row):
        return False
    is_own = storage is not None and storage.name == "memref.alloca" and len(list(storage.results[0].uses)) == 1
    return is_own and not storage.operands and _works_apart(view.results[0])


def _works_apart(value: ir.Value) -> bool:
    for use in value.uses:
        user = use.owner.operation
        if user.name == "memref.subview":
            if user.results[0].type.rank != value.type.rank or not _works_apart(user.results[0]):
                return False
        elif user.name not in ("linalg.generic", "memref.dim"):
            return False
    return True


def _spread(view: ir.Operation) -> None:
    """Makes the view, and the memory that it is of, wider by a line."""
    kind, old = view.results[0].type, defining_op(view.operands[0])
    columns = kind.shape[-1]
    pitch = columns + LINE // (element_bytes(kind.element_type) or 1)
    rows = old.results[0].type.shape[0] // columns
    with ir.InsertionPoint(old), old.location:
        flat = ir.MemRefType.get([rows * pitch], ir.IntegerType.get_signless(8))
        storage = memref.AllocaOp(flat, [], [], alignment=ALIGNMENT).result
    with ir.InsertionPoint(view), view.location:
        wide = ir.MemRefType.get([*kind.shape[:-1], pitch], kind.element_type)
        sizes = list(view.operands)[2:]
        made = memref.ViewOp(wide, storage, build.index(0), sizes).result
        layout = ir.StridedLayoutAttr.get(0, wide.get_strides_and_offset()[0])
        part = subview(made, layout, [0] * kind.rank, mixed(sizes, kind.shape))
    _replace(view.results[0], part)
    view.erase()
    old.erase()


def _replace(old: ir.Value, new: ir.Value) -> None:
    """Puts a view of other strides in the place of `old`, and of parts of it."""
    for use in list(old.uses):
        user = use.owner.operation
        if user.name == "memref.subview":
            offsets, sizes, steps = slice_parts(user)
            strides, start = new.type.get_strides_and_offset()
            known = all(isinstance(x, int) for x in offsets) and DYNAMIC not in (start, *strides)
            offset = start + sum(o * s for o, s in zip(offsets, strides, strict=True)) if known else DYNAMIC
            layout = ir.StridedLayoutAttr.get(offset, strides)
            with ir.InsertionPoint(user), user.location:
                part = subview(new, layout, offsets, sizes, steps)
            _replace(user.results[0], part)
            user.erase()
    old.replace_all_uses_with(new)

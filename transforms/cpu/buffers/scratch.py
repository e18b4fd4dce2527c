"""The pass ``scratch``."""

import math
from dataclasses import dataclass

from ....dialects import build
from ....dialects.mlir import ir, memref
from ...linear import upper_bound
from ...passes import Pass, option
from ...rewriting import ancestors, is_inside, is_made_inside, ops_in
from ..memory import ALIGNMENT, FRAMES, TAKES_AWAY, VIEWS, element_bytes, has_identity_layout

LOOPS = ("scf.for", "scf.while")


@dataclass(frozen=True)
class Scratch(Pass):
    """Gives temporaries of known maximal size memory that is reused: on the stack if small, else one buffer per task::

        scf.parallel (%i) = … {
          scf.for %k = … {
            %n = affine.min affine_map<(i) -> (-i + 200, 64)>(%i)
            %s = memref.alloc(%n) : memref<?x128xf32>
    becomes
        scf.parallel (%i) = … {
          %bytes = memref.alloca() {alignment = 64} : memref<32768xi8>
          scf.for %k = … {
            %n = affine.min affine_map<(i) -> (-i + 200, 64)>(%i)
            %s = memref.view %bytes[%c0][%n] : memref<32768xi8> to memref<?x128xf32>

    A buffer that leaves the iteration (returned, yielded, passed on) is left alone; so is one outside of all loops
    that is too large for the stack. A large one in a loop is allocated once, before the loops of its task. Buffers
    whose size is fixed outside of the loops, but unknown, are hoisted likewise. Deallocation comes after this pass.
    """

    limit: int = option("bytes of the stack that one task may use", 256 * 1024)

    def run(self, op: ir.Operation) -> None:
        used: dict[ir.Operation, int] = {}
        allocs = sorted(ops_in(op, "memref.alloc"), key=_order_of_size)
        for alloc in allocs:
            if _escapes(alloc):
                continue
            frame = next(a for a in ancestors(alloc) if a.name in FRAMES)
            in_loop = any(a.name in LOOPS for a in ancestors(alloc) if is_inside(a, frame))
            kind = alloc.results[0].type
            bytes_ = max_bytes(alloc)
            if bytes_ is not None and used.get(frame, 0) + bytes_ <= self.limit and _plain(kind):
                used[frame] = used.get(frame, 0) + bytes_
                _replace(alloc, frame, bytes_, on_stack=True)
            elif bytes_ is not None and _plain(kind) and (in_loop or frame.name != "func.func"):
                _replace(alloc, frame, bytes_, on_stack=False)
            elif bytes_ is None and in_loop:
                _hoist(alloc, frame)


def _order_of_size(alloc: ir.Operation) -> float:
    return max_bytes(alloc) or math.inf


def max_bytes(alloc: ir.Operation) -> int | None:
    """The most bytes that the allocation can ask for, rounded up to the alignment; None if that is unknown."""
    kind = alloc.results[0].type
    element = element_bytes(kind.element_type)
    if element is None:
        return None
    total = element
    dynamic = iter(alloc.operands)
    for i in range(kind.rank):
        size = upper_bound(next(dynamic)) if kind.is_dynamic_dim(i) else kind.get_dim_size(i)
        if size is None:
            return None
        total *= size
    rounded = -(-total // ALIGNMENT) * ALIGNMENT
    return rounded if rounded < 1 << 63 else None  # more than a type can say


def _plain(kind: ir.MemRefType) -> bool:
    """True if memref.view can make it: contiguous, in the default memory."""
    return kind.memory_space is None and has_identity_layout(kind)


def _escapes(alloc: ir.Operation) -> bool:
    """True if the buffer may be used after the iteration that allocates it."""
    pending = [alloc.results[0]]
    while pending:
        for use in pending.pop().uses:
            user = use.owner.operation
            if user.name in VIEWS:
                pending += list(user.results)
            elif user.name == "memref.extract_strided_metadata":
                pending.append(user.results[0])
            elif _takes_away(user, use.operand_number):
                return True
    return False


def _takes_away(user: ir.Operation, operand_number: int) -> bool:
    """True unless the user only reads and writes elements."""
    if user.name.split(".")[0] not in ("memref", "linalg", "vector") or user.name in TAKES_AWAY:
        return True
    is_stored = user.name == "memref.store" and operand_number == 0
    return is_stored or any(isinstance(r.type, ir.MemRefType | ir.UnrankedMemRefType) for r in user.results)


def _replace(alloc: ir.Operation, frame: ir.Operation, bytes_: int, on_stack: bool) -> None:
    """Puts the memory at the top of the frame and a view of it where the allocation stood."""
    kind = alloc.results[0].type
    top = frame.regions[0].blocks[0]
    if on_stack or any(a.name in (*LOOPS, *FRAMES) for a in ancestors(alloc)):
        place = ir.InsertionPoint.at_block_begin(top)
    else:
        place = ir.InsertionPoint(alloc)
    flat = ir.MemRefType.get([bytes_], ir.IntegerType.get_signless(8))
    make = memref.AllocaOp if on_stack else memref.AllocOp
    with place, alloc.location:
        storage = make(flat, [], [], alignment=ALIGNMENT)
    with ir.InsertionPoint(alloc), alloc.location:
        view = memref.ViewOp(kind, storage, build.index(0), list(alloc.operands)).result
    alloc.results[0].replace_all_uses_with(view)
    alloc.erase()


def _hoist(alloc: ir.Operation, frame: ir.Operation) -> None:
    """Moves an allocation out of the loops in which its sizes do not change."""
    target = None
    for loop in ancestors(alloc):
        if loop == frame or loop.name not in LOOPS or any(is_made_inside(v, loop) for v in alloc.operands):
            break
        target = loop
    if target is None:
        return
    alloc.move_before(target)

"""What buffers hold when a structured op starts to accumulate into them: written by ops right before it."""

from ...dialects.build import constant_value
from ...dialects.mlir import ir
from ...dialects.tiling.structured import indexing_maps, iterator_types, moves_first
from ..rewriting import defining_op, ops_of, through
from .memory import VIEWS
from .structured import NO_LOOP, Operand, Structured

ALLOCATIONS = ("memref.alloc", "memref.alloca")
WITHOUT_MEMORY = ("affine", "arith", "math", "index")


def is_arithmetic(op: ir.Operation) -> bool:
    """True for what computes numbers, and touches no memory."""
    return not op.regions and op.name.split(".")[0] in WITHOUT_MEMORY


def find_starts(op: Structured) -> dict[int, ir.Operation]:
    """The ops right before `op` that fill its accumulators, or update them element by element, by operand number.

    Nothing comes between the two that might touch the buffer, and no other operand is a view of it. Who drops the op
    has to write every element of the accumulator, starting from `filled_with`, or from what its body computes.
    """
    candidates = [out for out in op.outputs if op.is_accumulator(out) and NO_LOOP not in out.dims]
    if not candidates:
        return {}
    operations = ops_of(op.op.block)
    before = operations[: operations.index(op.op)]
    found = {out.number: _fill_before(op.op, before, out) for out in candidates}
    return {number: fill for number, fill in found.items() if fill is not None}


def find_fills(op: Structured) -> dict[int, ir.Operation]:
    """Of `find_starts`, those that fill with a constant."""
    return {number: start for number, start in find_starts(op).items() if is_fill(start)}


def filled_with(fill: ir.Operation) -> float | int:
    value = constant_value(fill.operands[0])
    assert value is not None
    return value


def _fill_before(op: ir.Operation, before: list[ir.Operation], out: Operand) -> ir.Operation | None:
    root = origin_of(out.value)
    made = defining_op(root)
    if made is None or made.name not in ALLOCATIONS:
        return None
    if not all(_is_apart(v, root) for i, v in enumerate(op.operands) if i != out.number):
        return None
    for other in reversed(before):
        if is_fill(other) and other.operands[1] == through(out.value, "memref.expand_shape"):
            return other
        if not _leaves(other, root):
            return other if _is_update(other, out.value) and _no_one_writes(before, other) else None
    return None


def _is_update(op: ir.Operation, buffer: ir.Value) -> bool:
    """True for a linalg.generic that computes each element of the buffer from itself, and from other buffers."""
    if op.name != "linalg.generic" or op.operands[len(op.operands) - 1] != buffer or len(op.opview.outputs) != 1:
        return False
    if "reduction" in iterator_types(op) or not indexing_maps(op)[-1].is_permutation:
        return False
    if any(o.operation.name == "linalg.index" for o in op.regions[0].blocks[0].operations):
        return False
    return all(_is_apart(v, origin_of(buffer)) for v in list(op.operands)[:-1])


def _no_one_writes(before: list[ir.Operation], op: ir.Operation) -> bool:
    """True if between `op` and the end of the list there is nothing that writes to memory."""
    between = before[before.index(op) + 1 :]
    return all(o.name in (*VIEWS, *ALLOCATIONS, "memref.dim") or is_arithmetic(o) for o in between)


def is_fill(op: ir.Operation) -> bool:
    """True for a linalg.generic that writes one constant everywhere."""
    if op.name != "linalg.generic" or len(op.operands) != 2:
        return False
    return constant_value(op.operands[0]) is not None and moves_first(op)


def _leaves(op: ir.Operation, root: ir.Value) -> bool:
    """True if the op does not touch the memory of `root`."""
    if op.name in VIEWS or op.name in ALLOCATIONS or op.name == "memref.dim":
        return True
    if op.name in ("linalg.generic", "memref.copy"):
        return all(_is_apart(v, root) for v in op.operands)
    return is_arithmetic(op)


def _is_apart(value: ir.Value, root: ir.Value) -> bool:
    """True if `value` is no buffer, or none that shares memory with the allocation `root`."""
    if not isinstance(value.type, ir.MemRefType):
        return True
    origin = origin_of(value)
    op = defining_op(origin)
    if op is None:
        return origin.owner.owner.operation.name == "func.func"
    return op.name in ALLOCATIONS and origin != root


def origin_of(value: ir.Value) -> ir.Value:
    """The value at the start of a chain of views."""
    return through(value, *VIEWS)

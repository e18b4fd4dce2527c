"""Finding attention in a graph: a matmul whose left operand comes from a softmax whose input comes from a matmul."""

from __future__ import annotations

from dataclasses import dataclass

from ..dialects.mlir import ir
from ..dialects.tiling import online_reduction_of
from ..dialects.tiling.structured import dim_position, indexing_maps, is_structured, iterator_types
from .online_accumulation import is_linear
from .reshapes import VIEWS
from .rewriting import defining_op

ROOT = "__root__"  # on an op: it is to be tiled as it stands


@dataclass(frozen=True)
class Attention:
    """matmul (`scores`) → … → `softmax` → … → matmul (`root`)."""

    scores: ir.Operation
    softmax: ir.Operation
    root: ir.Operation


@dataclass(frozen=True)
class ContractionLoops:
    """The loops of a contraction by what they index."""

    batch: list[int]  # both operands and the output
    m: list[int]  # the left operand and the output
    n: list[int]  # the right operand and the output
    k: list[int]  # both operands: the reduction


def find_attention(function: ir.Operation) -> list[Attention]:
    """Every attention in `function`, in program order of its second matmul."""
    found: list[Attention] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        attention = attention_at(op.operation)
        if attention is not None:
            found.append(attention)
        return ir.WalkResult.ADVANCE

    function.walk(visit)
    return found


def attention_at(root: ir.Operation) -> Attention | None:
    """The attention of which `root` is the second matmul, or None."""
    if not is_contraction(root):
        return None
    softmax = _through(root.operands[0], lambda op: online_reduction_of(op) is not None, is_linear)
    if softmax is None:
        return None
    scores = _through(softmax.operands[0], is_contraction, is_elementwise)
    return None if scores is None else Attention(scores, softmax, root)


def is_contraction(op: ir.Operation) -> bool:
    """Whether `op` multiplies two tensors and sums over at least one loop."""
    if not is_structured(op) or len(op.results) != 1 or len(op.operands) != 3:
        return False
    loops = contraction_loops(op)
    if loops is None or not loops.k:
        return False
    if op.name == "linalg_ext.batch_matmul":
        return True
    names = [inner.operation.name for inner in op.regions[0].blocks[0].operations] if len(op.regions) else []
    arithmetic = [n for n in names if n not in ("arith.extf", "arith.truncf", "linalg.yield")]
    return arithmetic == ["arith.mulf", "arith.addf"]


def contraction_loops(op: ir.Operation) -> ContractionLoops | None:
    """The loops of a structured op with two inputs and one output; None if a map is no projection of the loops."""
    used = []
    for m in indexing_maps(op):
        positions = [dim_position(e) for e in m.results]
        if None in positions:
            return None
        used.append(set(positions))
    lhs, rhs, out = used
    kinds = iterator_types(op)
    loops = range(len(kinds))
    if any((kinds[d] == "reduction") == (d in out) for d in loops):
        return None
    return ContractionLoops(
        batch=[d for d in loops if d in lhs and d in rhs and d in out],
        m=[d for d in loops if d in lhs and d not in rhs and d in out],
        n=[d for d in loops if d not in lhs and d in rhs and d in out],
        k=[d for d in loops if d in lhs and d in rhs and d not in out],
    )


def is_elementwise(op: ir.Operation, number: int = 0) -> bool:
    """Whether `op` computes each element from elements alone, or only moves them."""
    return op.name in VIEWS or (is_structured(op) and "reduction" not in iterator_types(op))


def _through(value: ir.Value, wanted, passable) -> ir.Operation | None:
    """The first op for which `wanted` holds, backwards from `value` through ops that are `passable` in an operand."""
    pending, seen = [value], set()
    while pending:
        op = defining_op(pending.pop(0))
        if op is None or op in seen:
            continue
        seen.add(op)
        if wanted(op):
            return op
        pending += [operand for i, operand in enumerate(op.operands) if passable(op, i)]
    return None

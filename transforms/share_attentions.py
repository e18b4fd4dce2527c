"""The pass ``share-attentions``."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from ..dialects import build
from ..dialects.mlir import ir, linalg
from ..dialects.tiling.structured import all_parallel, operand_loops
from .attention import LEFT, ROOT, Attention, find_attention
from .equivalence import have_same_regions, is_same
from .graph import erase_with_producers
from .passes import Pass, remark
from .reshapes import VIEWS
from .rewriting import defining_op
from .splats import filled_with

PURE = ("linalg.", "linalg_ext.", "tensor.", "arith.", "math.")


@dataclass(frozen=True)
class ShareAttentions(Pass):
    """Attentions of the same queries, keys and values, whose outputs differ in the order of dimensions at most, are
    computed once::

        %p:4 = linalg_ext.softmax dimension(2) ins(%s) …
        %o   = linalg.generic ins(%p#0, %v) { Σ p·v } -> tensor<7x2x8xf32>          { queries × heads × columns }
        %r:4 = linalg_ext.softmax dimension(2) ins(%t) …                            { of the same scores }
        %u   = linalg.generic ins(%r#0, %v) { Σ r·v } -> tensor<2x7x8xf32>
      becomes
        %p:4 = linalg_ext.softmax dimension(2) ins(%s) …
        %o   = linalg.generic ins(%p#0, %v) { Σ p·v } -> tensor<7x2x8xf32>
        %u   = linalg.transpose ins(%o : tensor<7x2x8xf32>) … permutation = [1, 0, 2]

    as where a function returns an output with its derivatives: what probabilities sum along rows there is a sum over
    the output (``raising/row_sums.py``).
    """

    def run(self, op: ir.Operation) -> None:
        first_of: dict[ir.Value, list[Attention]] = defaultdict(list)
        for attention in find_attention(op):
            if attention.softmax is None or any(mark in attention.root.attributes for mark in (ROOT, LEFT)):
                continue
            others = first_of[_source(attention.root.operands[1])]
            if not any(_share(other, attention) for other in others):
                others.append(attention)


def _source(value: ir.Value) -> ir.Value:
    """What a value is an elementwise function or a view of: the same for values that are the same."""
    while (op := defining_op(value)) is not None and (op.name in VIEWS or _is_of_one(op)):
        value = op.operands[0]
    return value


def _is_of_one(op: ir.Operation) -> bool:
    return op.name.startswith("linalg.") and all_parallel(op) and len(op.operands) == 2


def _share(first: Attention, other: Attention) -> bool:
    """Takes the output and the statistics of `first` for those of `other`, if they are the same."""
    softmaxes = first.softmax, other.softmax
    if softmaxes[0].block != softmaxes[1].block or not softmaxes[0].is_before_in_block(softmaxes[1]):
        return False
    order = _order(first.root, other.root)
    if order is None:
        return False
    output, same = first.root.results[0], other.root.results[0]
    with ir.InsertionPoint(other.root), other.root.location:
        if order != sorted(order):
            sizes = build.mixed_sizes(output)
            init = build.empty([sizes[d] for d in order], output.type.element_type)
            output = linalg.transpose(output, outs=[init], permutation=order).operation.results[0]
    remark(other.root, "computed once: another attention has the same queries, keys and values")
    same.replace_all_uses_with(output)
    for theirs, ours in zip(list(other.softmax.results)[1:], list(first.softmax.results)[1:], strict=True):
        theirs.replace_all_uses_with(ours)
    erase_with_producers(other.root)
    return True


def _order(root: ir.Operation, other: ir.Operation) -> list[int] | None:
    """The dimension of the root's result that each of the other's is; None if they do not compute the same."""
    if root.block != other.block or root.name != other.name or len(root.operands) != 3:
        return None
    parts: dict[int, int] = {}
    ours, theirs = operand_loops(root), operand_loops(other)
    if [len(loops) for loops in ours] != [len(loops) for loops in theirs]:
        return None
    for of_root, of_other in zip(ours[:2], theirs[:2], strict=True):
        for a, b in zip(of_root, of_other, strict=True):
            if parts.setdefault(a, b) != b:
                return None
    if None in parts or None in theirs[2] or len(set(parts.values())) != len(parts):
        return None
    out = [parts[d] for d in ours[2]]
    if sorted(out) != sorted(theirs[2]):
        return None
    starts = [filled_with(op.operands[2]) for op in (root, other)]
    if any(start is None for start in starts) or starts[0] != starts[1]:
        return None
    same = _Same()
    if not all(map(same, list(root.operands)[:2], list(other.operands)[:2])):
        return None
    return [out.index(d) for d in theirs[2]] if have_same_regions(root, other, {}, same) else None


@dataclass
class _Same:
    """Whether two values are computed in the same way, of the same. At most `left` ops are compared: all that makes
    two attentions, but not the layers of a model before them."""

    left: int = 100
    known: dict[tuple[ir.Value, ir.Value], bool] = field(default_factory=dict)

    def __call__(self, a: ir.Value, b: ir.Value) -> bool:
        if a == b:
            return True
        if (a, b) not in self.known:
            self.left -= 1
            self.known[a, b] = self.left > 0 and self._made_alike(a, b)
        return self.known[a, b]

    def _made_alike(self, a: ir.Value, b: ir.Value) -> bool:
        makers = defining_op(a), defining_op(b)
        if None in makers or not all(op.name.startswith(PURE) for op in makers):
            return False
        if ir.OpResult(a).result_number != ir.OpResult(b).result_number:
            return False
        return is_same(*makers, {}, self)

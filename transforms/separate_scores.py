"""A copy of the scores, and of what follows from them, for each of several attentions that have them in common."""

from __future__ import annotations

from collections.abc import Sequence

from ..dialects.mlir import ir
from .attention import Attention
from .graph import in_order, ops_on_way, other_use


def separate_scores(attentions: Sequence[Attention]) -> None:
    """Copies what attentions have in common from their scores on, as each loop nest computes its own::

        %p:4 = linalg_ext.softmax dimension(1) ins(%s) outs(…)
        %o1  = linalg.matmul ins(%p#0, %v1 : …) outs(…)
        %o2  = linalg.matmul ins(%p#0, %v2 : …) outs(…)
      becomes
        %p:4 = linalg_ext.softmax dimension(1) ins(%s) outs(…)
        %o1  = linalg.matmul ins(%p#0, %v1 : …) outs(…)
        %q:4 = linalg_ext.softmax dimension(1) ins(%s2) outs(…)  // and so on, from the first matmul on
        %o2  = linalg.matmul ins(%q#0, %v2 : …) outs(…)

    Not where something else needs them too: they are there as a whole then. An attention whose scores another one's
    output is (a product of three matrices) has nothing in common with that one.
    """
    roots = {a.root for a in attentions}
    ways = [ops_on_way(a.scores, [a.root]) for a in attentions]
    own = [{*way} - roots for way in ways]
    taken: set[ir.Operation] = set()
    for attention, way in zip(attentions, own, strict=True):
        common = way & taken
        others = [i for i, other in enumerate(own) if other & way]
        between = set().union(*(ways[i] for i in others))
        together = [attentions[i] for i in others]
        statistics = frozenset(v for a in together if a.softmax is not None for v in list(a.softmax.results)[1:3])
        if common and other_use(attention.scores, {a.root for a in together}, between, statistics) is None:
            copy_for(attention.root, common)
        taken |= way


def copy_for(root: ir.Operation, common: set[ir.Operation]) -> None:
    """Makes `root` depend on copies of the ops `common`, each of which stands behind what it is a copy of."""
    copies: dict[ir.Value, ir.Value] = {}

    def replace(op: ir.Operation) -> ir.WalkResult:
        for i, value in enumerate(op.operands):
            if value in copies:
                op.operands[i] = copies[value]
        return ir.WalkResult.ADVANCE

    following = common.union(*(ops_on_way(op, [root]) for op in common))
    for op in in_order(following, root.block):
        own = op.clone(ir.InsertionPoint(op)).operation if op in common else op
        own.walk(replace)
        if op in common:
            own.move_after(op)
            copies.update(zip(op.results, own.results, strict=True))

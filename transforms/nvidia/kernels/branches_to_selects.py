"""The pass ``branches-to-selects``."""

from __future__ import annotations

from dataclasses import dataclass

from ....dialects import build
from ....dialects.mlir import arith, ir
from ....dialects.tiling.structured import reduces
from ...passes import Pass, warn_slow
from ...rewriting import defining_op, functions_of, ops_in, ops_of

BRANCHES = ("scf.if", "scf.index_switch")
BOUNDED = ("arith.minui", "arith.remui")
REFUSED = ("scf.while", "scf.condition", "func.call", "cf.assert")  # no end, or an effect, where it is not asked for


@dataclass(frozen=True)
class BranchesToSelects(Pass):
    """Computes all branches around the loops over tiles, and chooses: what decides is known to the GPU alone::

        %r = scf.if %condition -> (tensor<8xf32>) {
          %x = linalg.exp ins(%a)
          scf.yield %x
        } else { scf.yield %a }
      becomes
        %x = linalg.exp ins(%a)
        %r = linalg.generic ins(%x, %a) { arith.select %condition }

    and of a scf.index_switch alike. It stays where a branch may read outside of an array when another one is taken (at
    a place from data that nothing bounds), where it may not end, and where results have open sizes. A branch with sums
    or loops in it is told of: it takes its time though it is not taken.
    """

    def run(self, op: ir.Operation) -> None:
        for function in functions_of(op):
            block = function.regions[0].blocks[0]
            while branches := [o for o in ops_of(block) if o.name in BRANCHES and _is_safe(o)]:
                for branch in branches:
                    _choose(branch)


def _is_safe(op: ir.Operation) -> bool:
    if not len(op.results) or not all(_has_known_sizes(v.type) for v in op.results):
        return False
    inside = [inner for inner in ops_in(op) if inner != op]
    return not any(o.name in REFUSED or o.name.startswith("memref.") for o in inside) and not any(
        _may_be_outside(index) for o in inside for index in _indices(o)
    )


def _has_known_sizes(kind: ir.Type) -> bool:
    return not isinstance(kind, ir.ShapedType) or (isinstance(kind, ir.RankedTensorType) and kind.has_static_shape)


def _indices(op: ir.Operation) -> list[ir.Value]:
    """Where an op reads of a tensor, as far as that is no number."""
    if op.name in ("tensor.extract", "tensor.extract_slice"):
        return list(op.operands)[1:]
    return []


def _may_be_outside(index: ir.Value) -> bool:
    """Whether it comes from an element or an argument, and nothing keeps it within bounds."""
    op = defining_op(index)
    if op is None:
        loop, number = index.owner.owner.operation, ir.BlockArgument(index).arg_number
        return not (loop.name == "scf.forall" or (loop.name == "scf.for" and number == 0))
    if op.name == "tensor.extract":
        return True
    inner = {o.name for o in map(defining_op, op.operands) if o is not None}
    if op.name == "tensor.dim" or op.name in BOUNDED or {"arith.minsi", "arith.maxsi"} <= {op.name, *inner}:
        return False
    return any(map(_may_be_outside, op.operands))


def _choose(branch: ir.Operation) -> None:
    if any(map(_is_long, ops_in(branch))):
        warn_slow(branch, "only the GPU knows what decides on a branch: all branches are computed, and one is chosen")
    ends = [_moved(region.blocks[0], branch) for region in branch.regions]
    with ir.InsertionPoint(branch), branch.location:
        decides = branch.operands[0]
        if branch.name == "scf.if":
            (then, chosen), tests = ends, [decides]
            others = [then]
        else:
            chosen, *others = ends  # the default's region is the first one
            cases = list(ir.DenseI64ArrayAttr(branch.attributes["cases"]))
            tests = [arith.cmpi(arith.CmpIPredicate.eq, decides, build.index(case)) for case in cases]
        for test, other in zip(tests, others, strict=True):
            chosen = [_select(test, a, b) for a, b in zip(other, chosen, strict=True)]
    for result, value in zip(branch.results, chosen, strict=True):
        result.replace_all_uses_with(value)
    branch.erase()


def _is_long(op: ir.Operation) -> bool:
    return op.name in ("scf.for", "scf.forall") or (op.name == "linalg.generic" and reduces(op))


def _moved(block: ir.Block, branch: ir.Operation) -> list[ir.Value]:
    """What a branch yields, its ops before the branch."""
    *ops, end = ops_of(block)
    yielded = list(end.operands)
    for op in ops:
        op.move_before(branch)
    return yielded


def _select(test: ir.Value, then: ir.Value, other: ir.Value) -> ir.Value:
    kind = then.type
    if then == other or not isinstance(kind, ir.RankedTensorType):
        return then if then == other else arith.select(test, then, other)
    identity = build.projection(kind.rank, range(kind.rank))
    (chosen,) = build.generic(
        [then, other],
        [build.empty(kind.shape, kind.element_type)],
        [identity] * 3,
        [build.PARALLEL] * kind.rank,
        lambda a, b, _: arith.select(test, a, b),
    )
    return chosen

"""What a graph with open sizes takes for granted, as a small function of its own that is evaluated before a call.

Where sizes are open, the lowering to linalg takes those that are added, compared or multiplied to be equal: a size that
turns out to be 1, and would be broadcast, reads past an array's end. It says so by assertions::

    %d0 = tensor.dim %x, %c0    %d1 = tensor.dim %y, %c0
    %same = arith.cmpi eq, %d0, %d1
    cf.assert %same, "mismatched size for broadcast"
  becomes
    func.func @main(%x, %y) -> tensor<i1> { … return %same }

A size that a reshape infers (−1) it takes to be a quotient without a remainder: of 7 rows as pairs one would be lost.
So assertions are added that a reshape to computed sizes has as many elements as what it reshapes.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from ....dialects import build
from ....dialects.mlir import arith, ir, tensor
from ....dialects.tiling.tensor_ops import reassociation
from ....transforms.rewriting import defining_op
from ....transforms.slices import Size, mixed
from ..lowering import ops, run

ONLY_SIZES = (
    "builtin.module(canonicalize,cse,resolve-ranked-shaped-type-result-dims,canonicalize,cse,"
    "resolve-ranked-shaped-type-result-dims,canonicalize,cse)"
)


class Checks:
    """The assertions of a module, taken out of it; `hold` says of arguments whether they are true."""

    def __init__(self, module: ir.Module):
        for op in ops(module):
            _assert_all_elements(op)
        found = [op for op in ops(module) if op.name == "cf.assert"]
        # Those in the bodies of ops are about elements: whether an index is in range.
        of_sizes = [op for op in found if op.parent.operation.name == "func.func"]
        self.module = _only(module) if of_sizes else None
        for op in found:
            op.erase()
        self._known: dict[tuple[tuple[int, ...], ...], bool] = {}

    def hold(self, arrays: Sequence[np.ndarray]) -> bool:
        """Whether the module computes what it should on these arguments; of arrays only the sizes count."""
        if self.module is None:
            return True
        key = tuple(a.shape for a in arrays)
        if key not in self._known:
            self._known[key] = self._evaluated(arrays)
        return self._known[key]

    def _evaluated(self, arrays: Sequence[np.ndarray]) -> bool:
        from ....dialects.reference import evaluate
        from ....dialects.reference.interface import EvaluationError

        assert self.module is not None
        try:
            return bool(evaluate(self.module, [np.broadcast_to(np.zeros((), a.dtype), a.shape) for a in arrays])[0])
        except EvaluationError:
            return False


def _assert_all_elements(op: ir.Operation) -> None:
    """Asserts that `op` has as many elements as what it reshapes, if it is a reshape to sizes that are computed, or of
    which some are known that were not."""
    if op.name == "tensor.cast" and op.parent.operation.name == "func.func":
        _assert_sizes(op)
        return
    if op.name not in ("tensor.expand_shape", "tensor.reshape") or op.parent.operation.name != "func.func":
        return
    source, *operands = op.operands
    parts: list[tuple[Iterable[Size], Sequence[Size]]]  # sizes before and after whose products are to be equal
    with ir.InsertionPoint(op), op.location:
        if op.name == "tensor.expand_shape":
            sizes = mixed(operands, op.attributes["static_output_shape"])
            groups = [[sizes[d] for d in group] for group in reassociation(op)]
            parts = [([build.mixed_size(source, d)], group) for d, group in enumerate(groups) if len(group) > 1]
        else:
            listed = defining_op(operands[0])
            if listed is None or listed.name != "tensor.from_elements" or not source.type.has_rank:
                return
            parts = [(build.mixed_sizes(source), list(listed.operands))]
        for before, after in parts:
            if not all(isinstance(size, int) for size in after):
                same = arith.cmpi(arith.CmpIPredicate.eq, _product(before), _product(after))
                ir.Operation.create("cf.assert", [], [same], {"msg": ir.StringAttr.get("a reshape loses elements")})


def _assert_sizes(cast: ir.Operation) -> None:
    """Asserts that the sizes are as the type of the result of `cast` has them."""
    source, result = cast.operands[0], cast.results[0]
    if not (source.type.has_rank and result.type.has_rank):
        return
    with ir.InsertionPoint(cast), cast.location:
        for d in range(source.type.rank):
            if source.type.is_dynamic_dim(d) and not result.type.is_dynamic_dim(d):
                size, known = build.as_index(build.mixed_size(source, d)), build.index(result.type.shape[d])
                same = arith.cmpi(arith.CmpIPredicate.eq, size, known)
                ir.Operation.create("cf.assert", [], [same], {"msg": ir.StringAttr.get("a size is another one")})


def _product(sizes: Iterable[Size]) -> ir.Value:
    index, product = ir.IndexType.get(), build.index(1)
    for size in map(build.as_index, sizes):
        product = arith.muli(product, size if size.type == index else arith.index_cast(index, size))
    return product


def _only(module: ir.Module) -> ir.Module:
    """A copy of the module that computes whether its assertions hold, and nothing else."""
    copy = ir.Module.parse(module.operation.get_asm(print_generic_op_form=True), module.context)
    function = copy.body.operations[0].operation
    end = function.regions[0].blocks[0].operations
    end = end[len(end) - 1].operation
    with ir.InsertionPoint(end), end.location:
        holds = build.constant(ir.IntegerType.get_signless(1), 1)
        for op in ops(copy):
            if op.name == "cf.assert":
                if op.parent.operation == function:
                    holds = arith.andi(holds, op.operands[0])
                op.erase()
            elif op.name.startswith("tm_tensor."):  # scans and scatters: the results have the sizes of the inits
                for own, init in zip(reversed(list(op.results)), reversed(list(op.operands)), strict=False):
                    if own.type == init.type:
                        own.replace_all_uses_with(init)
        result = tensor.from_elements(ir.RankedTensorType.get([], holds.type), [holds])
        ir.Operation.create("func.return", operands=[result])
    end.erase()
    with copy.context:
        kind = ir.FunctionType.get([a.type for a in function.regions[0].blocks[0].arguments], [result.type])
        function.attributes["function_type"] = ir.TypeAttr.get(kind)
    if "res_attrs" in function.attributes:
        del function.attributes["res_attrs"]
    run(copy, ONLY_SIZES, "")
    return copy

"""The pass ``fold-transposes``."""

from dataclasses import dataclass

from ...dialects import build
from ...dialects.mlir import ir
from ...dialects.tiling.structured import dim_position, indexing_maps, moves_first
from ..passes import Pass
from ..rewriting import erase_if_unused, ops_in


@dataclass(frozen=True)
class FoldTransposes(Pass):
    """Lets ops read a tensor in the order in which it stands, in place of a transposed copy::

        %t = linalg.generic {(i, j) -> (j, i), (i, j) -> (i, j)} ins(%k : tensor<128x64xf32>) { yield %in }
        linalg.generic {S[m, n] += Q[m, d]·T[d, n]} ins(%q, %t)
    becomes
        linalg.generic {S[m, n] += Q[m, d]·K[n, d]} ins(%q, %k)
    """

    def run(self, op: ir.Operation) -> None:
        for generic in ops_in(op, "linalg.generic"):
            order = transposition(generic)
            if order is not None:
                _fold(generic, order)


def transposition(generic: ir.Operation) -> list[int] | None:
    """For each dimension of the input, which of the result it is; None if the op is no transposed copy on tensors."""
    if len(generic.operands) != 2 or len(generic.results) != 1:
        return None
    if not moves_first(generic):
        return None
    source, target = ([dim_position(e.maybe_downcast()) for e in m.results] for m in indexing_maps(generic))
    if None in source or sorted(source) != sorted(target) or len(set(source)) != len(source):
        return None
    return [target.index(d) for d in source]


def _fold(copy: ir.Operation, order: list[int]) -> None:
    for use in list(copy.results[0].uses):
        user, number = use.owner.operation, use.operand_number
        if user.name != "linalg.generic" or number >= len(user.operands) - len(user.results):
            continue
        user.operands[number] = copy.operands[0]
        maps = indexing_maps(user)
        old = maps[number]
        maps[number] = ir.AffineMap.get(old.n_dims, old.n_symbols, [old.results[d] for d in order])
        user.attributes["indexing_maps"] = build.map_array(maps)
    erase_if_unused(copy)

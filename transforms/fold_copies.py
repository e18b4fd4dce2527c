"""The pass ``fold-copies``."""

from __future__ import annotations

from dataclasses import dataclass

from ..dialects import build
from ..dialects.mlir import arith, ir
from ..dialects.tiling.structured import body_names, dim_position, indexing_maps
from .attention import is_contraction
from .passes import Pass
from .rewriting import erase_if_unused, ops_in, terminator


@dataclass(frozen=True)
class FoldCopies(Pass):
    """Lets ops read a tensor as it stands, in place of a transposed copy::

        %t = linalg.generic {(i, j) -> (j, i), (i, j) -> (i, j)} ins(%k : tensor<128x64xf32>) { yield %in }
        linalg.generic {S[m, n] += Q[m, d]·T[d, n]} ins(%q, %t)
    becomes
        linalg.generic {S[m, n] += Q[m, d]·K[n, d]} ins(%q, %k)

    Contractions read it in place of copies for each of several matrices, too, and of wider ones, as frontends write
    products with the matrix of a layer::

        %r = linalg.generic {(b, i, j) -> (i, j), (b, i, j) -> (b, i, j)} ins(%w : tensor<64x64xbf16>) { yield %in }
        %f = linalg.generic {(b, i, j) -> (b, i, j), …} ins(%r) { arith.extf %in : bf16 to f32 }
        linalg.generic {Y[b, m, n] += X[b, m, k]·F[b, k, n]} ins(%x, %f)
    becomes
        linalg.generic {Y[b, m, n] += X[b, m, k]·W[k, n]} ins(%x, %w) { arith.extf %in : bf16 to f32; … }
    """

    def run(self, op: ir.Operation) -> None:
        for generic in reversed(ops_in(op, "linalg.generic")):  # of a copy of a copy that is read first
            copy = Copy.of(generic)
            if copy is not None:
                copy.fold()


@dataclass(frozen=True)
class Copy:
    """An op on tensors that puts elements into other places, several each (`repeats`), or makes them wider (`widens`).

    `source`: the loop of each dimension of its input; `target`: that of each dimension of its result, which has all.
    """

    op: ir.Operation
    source: list[int]
    target: list[int]
    widens: bool

    @classmethod
    def of(cls, generic: ir.Operation) -> Copy | None:
        if len(generic.operands) != 2 or len(generic.results) != 1:
            return None
        if not isinstance(generic.operands[0].type, ir.RankedTensorType):
            return None
        maps = indexing_maps(generic)
        source, target = ([dim_position(e) for e in m.results] for m in maps)
        is_whole = set(target) == set(range(maps[0].n_dims)) and len(target) == maps[0].n_dims
        if not is_whole or None in source or len(set(source)) != len(source):
            return None
        block = generic.regions[0].blocks[0]
        yielded = terminator(block).operands[0]
        names = body_names(generic)
        widens = names == ["arith.extf"]
        moved = yielded.owner.operation.operands[0] if widens else yielded
        if moved != block.arguments[0] or (names and not widens):
            return None
        return cls(generic, source, target, widens)

    @property
    def repeats(self) -> bool:
        return len(self.source) != len(self.target)

    def fold(self) -> None:
        for use in list(self.op.results[0].uses):
            user, number = use.owner.operation, use.operand_number
            if user.name != "linalg.generic" or number >= len(user.operands) - len(user.results):
                continue
            if (self.repeats or self.widens) and not is_contraction(user):
                continue
            maps = indexing_maps(user)
            maps[number] = self._read_by(maps[number])
            if not _has_all_loops(maps):
                continue
            user.operands[number] = self.op.operands[0]
            user.attributes["indexing_maps"] = build.map_array(maps)
            if self.widens:
                _widen_argument(user, number, self.op.operands[0].type.element_type)
        erase_if_unused(self.op)

    def _read_by(self, map_: ir.AffineMap) -> ir.AffineMap:
        """Where an op reads the input that reads the result by `map_`."""
        return ir.AffineMap.get(map_.n_dims, map_.n_symbols, [map_.results[self.target.index(d)] for d in self.source])


def _has_all_loops(maps: list[ir.AffineMap]) -> bool:
    """Whether each loop is in some map, from which its size is known."""
    used = {dim_position(e) for m in maps for e in m.results}
    return used >= set(range(maps[0].n_dims))


def _widen_argument(user: ir.Operation, number: int, narrow: ir.Type) -> None:
    block = user.regions[0].blocks[0]
    argument = block.arguments[number]
    wide = argument.type
    argument.set_type(narrow)
    with ir.InsertionPoint.at_block_begin(block), user.location:
        widened = arith.extf(wide, argument)
    argument.replace_all_uses_except(widened, widened.owner.operation)

"""Sorts as ranks: the place of an element is the number of those that come before it.

    stablehlo.sort, tm_tensor.sort
      rank[i]  = Σ_j (does x[j] come before x[i]?)      what the op's own region says; of equal ones, the first
      index[r] = the i of which rank[i] = r
      result[r] = x[index[r]]                            for each operand

All of it is linalg, as parallel as any other; of n elements it takes n² comparisons, 0.3 ns each on one thread.
"""

from collections.abc import Callable, Sequence

from ...dialects import build
from ...dialects.mlir import arith, ir, linalg, tensor
from .lowering import ops

Comparison = Callable[[Sequence[ir.Value]], ir.Value]  # of pairs: the first operand's two elements, the second's, …
SORTS = ("stablehlo.sort", "tm_tensor.sort")


def by_rank(module: ir.Module) -> None:
    """Rewrites all sorts in `module`."""
    for op in ops(module):
        if op.name in SORTS:
            with ir.InsertionPoint(op), op.location:
                results = _sorted(op)
            for old, value in zip(op.results, results, strict=True):
                old.replace_all_uses_with(value)
            op.erase()


def _sorted(op: ir.Operation) -> list[ir.Value]:
    operands = list(op.operands)
    d = ir.IntegerAttr(op.attributes["dimension"]).value
    index = _inverse(_ranks(op, operands, d), d)
    return [_taken(x, index, d) for x in operands]


def _ranks(op: ir.Operation, operands: Sequence[ir.Value], d: int) -> ir.Value:
    """How many elements come before each one along dimension `d`."""
    n, i32 = operands[0].type.rank, ir.IntegerType.get_signless(32)
    compare = _comparison(op)
    itself = build.projection(n + 1, range(n))
    other = build.projection(n + 1, [n if dim == d else dim for dim in range(n)])

    def body(*elements: ir.Value) -> ir.Value:
        *pairs, count = elements
        mine, theirs = pairs[: len(operands)], pairs[len(operands) :]
        before = compare([v for pair in zip(theirs, mine, strict=True) for v in pair])
        after = compare([v for pair in zip(mine, theirs, strict=True) for v in pair])
        # The region may say of equal elements that one comes before the other both ways, or neither.
        not_after = arith.xori(after, build.constant(after.type, 1))
        is_first = arith.cmpi(arith.CmpIPredicate.slt, linalg.IndexOp(n).result, linalg.IndexOp(d).result)
        precedes = arith.select(is_first, arith.ori(before, not_after), arith.andi(before, not_after))
        return arith.addi(count, arith.extui(i32, precedes))

    zeros = build.fill(build.constant(i32, 0), build.empty(build.mixed_sizes(operands[0]), i32))
    maps = [*[itself] * len(operands), *[other] * len(operands), itself]
    iterators = [*[build.PARALLEL] * n, build.REDUCTION]
    return build.generic([*operands, *operands], [zeros], maps, iterators, body)[0]


def _inverse(ranks: ir.Value, d: int) -> ir.Value:
    """Where along dimension `d` the element of each rank is; in range, even where the comparison is no order."""
    n, i32 = ranks.type.rank, ir.IntegerType.get_signless(32)
    place = build.projection(n + 1, range(n))
    of_each = build.projection(n + 1, [n if dim == d else dim for dim in range(n)])

    def body(rank: ir.Value, found: ir.Value) -> ir.Value:
        wanted, i = (arith.index_cast(i32, linalg.IndexOp(dim).result) for dim in (d, n))
        is_it = arith.cmpi(arith.CmpIPredicate.eq, rank, wanted)
        return arith.maxsi(found, arith.select(is_it, i, build.constant(i32, 0)))

    zeros = build.fill(build.constant(i32, 0), build.empty(build.mixed_sizes(ranks), i32))
    iterators = [*[build.PARALLEL] * n, build.REDUCTION]
    return build.generic([ranks], [zeros], [of_each, place], iterators, body)[0]


def _taken(x: ir.Value, index: ir.Value, d: int) -> ir.Value:
    n = x.type.rank
    identity = build.projection(n, range(n))

    def body(i: ir.Value, _: ir.Value) -> ir.Value:
        at = [linalg.IndexOp(dim).result for dim in range(n)]
        at[d] = arith.index_cast(ir.IndexType.get(), i)
        return tensor.extract(x, at)

    init = build.empty(build.mixed_sizes(x), x.type.element_type)
    return build.generic([index], [init], [identity] * 2, [build.PARALLEL] * n, body)[0]


def _comparison(op: ir.Operation) -> Comparison:
    """What the region of a sort says, of scalars."""
    block = op.regions[0].blocks[0]
    inner = [inside.operation for inside in block.operations]
    is_stablehlo = op.name.startswith("stablehlo.")

    def compare(pairs: Sequence[ir.Value]) -> ir.Value:
        if is_stablehlo:  # whose scalars are tensors of rank 0, until the body is lowered with the op around it
            pairs = [tensor.from_elements(kind.type, [v]) for v, kind in zip(pairs, block.arguments, strict=True)]
        known = dict(zip(block.arguments, pairs, strict=True))
        for inside in inner[:-1]:
            copy = inside.clone().operation
            for i, value in enumerate(copy.operands):
                copy.operands[i] = known.get(value, value)
            known.update(zip(inside.results, copy.results, strict=True))
        result = known[inner[-1].operands[0]]
        if is_stablehlo:
            return tensor.extract(result, [])
        return _with_nan(inner[-2], pairs, result)

    return compare


def _with_nan(comparison: ir.Operation, pairs: Sequence[ir.Value], result: ir.Value) -> ir.Value:
    """torch has NaN above all numbers, whichever way it sorts; the importer's region has it nowhere."""
    if comparison.name != "arith.cmpf":
        return result
    ascending = ir.IntegerAttr(comparison.attributes["predicate"]).value in ASCENDING
    is_last = pairs[1] if ascending else pairs[0]
    return arith.ori(result, arith.cmpf(arith.CmpFPredicate.UNO, is_last, is_last))


ASCENDING = (arith.CmpFPredicate.OLE, arith.CmpFPredicate.OLT, arith.CmpFPredicate.ULE, arith.CmpFPredicate.ULT)

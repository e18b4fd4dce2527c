"""Finding attention in a graph: a matmul whose left operand comes from a softmax whose input comes from a matmul, or,
without a softmax, from a matmul alone, of which each element is made a weight by itself (a sigmoid, ReLU, a decay).

What has no softmax is attention where there are several heads or batch entries, as keys and values of one alone may
just as well be the two layers of a perceptron; where the head sizes fit in registers; and where weights are no
multiples of the scores, for then (Q·Kᵀ)·V = Q·(Kᵀ·V), which needs no loop over pairs of queries and keys. What is known
to be one, as it follows from an attention, has a mark: there may be no heads, and head sizes be open.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ..dialects.mlir import ir
from ..dialects.tiling import online_reduction_of
from ..dialects.tiling.structured import (
    FLOAT_CASTS,
    all_parallel,
    body_names,
    is_structured,
    iterator_types,
    moves_first,
    operand_loops,
)
from ..dialects.tiling.tensor_ops import reassociation
from .extents import static_extents
from .graph import Needed, ops_on_way, users_of
from .linear import DYNAMIC
from .online_accumulation import is_linear
from .reshapes import RESHAPES, VIEWS
from .rewriting import ancestors, defining_op, ops_in

ROOT = "__root__"  # on an op: it is to be tiled as it stands
ATTENTION = "__attention__"  # on the second matmul of one without a softmax: that it is one, whatever it looks like
LEFT = "__left__"  # on the second matmul of an attention: why it is not to be fused
PARALLEL = "__byteir_parallel__"  # on a loop over tiles
SEQUENTIAL = "__sequential__"  # on a loop over tiles: that it stays so, parallel or not
LOOPS = ("scf.for", "scf.forall", "scf.parallel")
SOFTMAXES = ("linalg_ext.softmax", "linalg_ext.unnorm_softmax")
MAX = 2  # the operand of a softmax: the maximum so far
MOST_COLUMNS = 256  # of queries, keys and values, where there is no softmax
MULTIPLES = ("arith.mulf", "arith.divf", "arith.negf", "arith.constant", *FLOAT_CASTS)
QUERY, KEY = frozenset({"query"}), frozenset({"key"})
Dims: TypeAlias = tuple[frozenset[str], ...]  # of each dimension of a tensor, whether queries and keys are along it


@dataclass(frozen=True)
class Attention:
    """matmul (`scores`) → … → `softmax` → … → matmul (`root`); or matmul → element-wise ops → matmul."""

    scores: ir.Operation
    softmax: ir.Operation | None
    root: ir.Operation

    @property
    def modified(self) -> ir.Value:
        """The scores as they were modified: what softmax is of; without one, what values are multiplied by."""
        return self.root.operands[0] if self.softmax is None else self.softmax.operands[0]


@dataclass(frozen=True)
class ContractionLoops:
    """The loops of a contraction by what they index."""

    batch: list[int]  # both operands and the output
    m: list[int]  # the left operand and the output
    n: list[int]  # the right operand and the output
    k: list[int]  # both operands: the reduction


def find_attention(function: ir.Operation) -> list[Attention]:
    """Every attention in `function`, in program order of its second matmul, but those that are fused already."""
    found: list[Attention] = []
    fused = fused_loops(function)

    def visit(op: ir.Operation) -> ir.WalkResult:
        attention = attention_at(op.operation)
        if attention is not None and not is_in(attention.root, fused):
            found.append(attention)
        return ir.WalkResult.ADVANCE

    with function.context:
        function.walk(visit)
    return found


def fused_loops(op: ir.Operation) -> set[ir.Operation]:
    """The loops in `op` that go over the tiles of an attention which is fused already: those marked as such, and those
    that carry the statistics of a softmax, or scale what they carry by a diagonal matrix. Any other loop, over layers
    or heads, say, may have a whole attention in it."""
    found = set()
    for inner in ops_in(op, *LOOPS, *SOFTMAXES, "linalg_ext.diag"):
        if inner.name in LOOPS:
            loop = inner if PARALLEL in inner.attributes else None
        elif inner.name in SOFTMAXES:
            loop = _carrying(inner.operands[MAX])
        else:
            loop = next((a for a in ancestors(inner) if a.name in LOOPS), None)
        if loop is not None:
            found.add(loop)
    return found


def is_in(op: ir.Operation, loops: set[ir.Operation]) -> bool:
    """Whether `op` stands in one of the loops."""
    return bool(loops) and any(a in loops for a in ancestors(op))


def _carrying(value: ir.Value) -> ir.Operation | None:
    """The loop that carries what `value` is a slice of."""
    while (op := defining_op(value)) is not None:
        if op.name not in ("tensor.extract_slice", "tensor.cast"):
            return None
        value = op.operands[0]
    loop = value.owner.owner.operation
    return loop if loop.name in LOOPS else None


def attention_at(root: ir.Operation) -> Attention | None:
    """The attention of which `root` is the second matmul, or None."""
    if not is_contraction(root):
        return None
    p, dims = root.operands[0], _dims_of_weights(root)
    softmax, dims = next(_softmaxes(p, dims), (None, dims))
    if softmax is None and not _may_have_heads(root):
        return None  # before all that is added up in layers of a model is gone through
    modified = p if softmax is None else softmax.operands[0]
    products = list(_makers(modified, dims, is_contraction, is_elementwise))
    if not products:
        return None
    # A bias may be a product of matrices too; of several, those are taken that have queries as their rows, and of these
    # one with most dimensions: others may be shared by heads.
    found = [(op, dims) for op, dims in products if _is_of_queries_and_keys(op, dims)]
    by_queries = [op for op, dims in found if QUERY in _dims_of_operand(op, 0, dims)]
    scores = max(by_queries or [op for op, _ in found], key=lambda op: op.results[0].type.rank, default=None)
    if softmax is not None:
        return Attention(products[0][0] if scores is None else scores, softmax, root)
    return Attention(scores, None, root) if scores is not None and _are_weights(scores, root) else None


def unnormalised_at(root: ir.Operation) -> Attention | None:
    """The attention without a softmax of which `root` is the second matmul, or None."""
    if not _may_have_heads(root) or any(_softmaxes(root.operands[0], _dims_of_weights(root))):
        return None  # before the way to the scores is gone
    return attention_at(root)


def _softmaxes(weights: ir.Value, dims: Dims) -> Iterator[tuple[ir.Operation, Dims]]:
    return _makers(weights, dims, lambda op: online_reduction_of(op) is not None, is_linear)


def products_beside(attention: Attention) -> list[ir.Operation]:
    """Other products of queries and keys that scores and weights are made of, for each pair of them: the loops compute
    these as well. Not those that several heads share, which are computed once before a softmax."""
    dims, scores = _dims_of_weights(attention.root), attention.scores
    products = products_of(attention.root.operands[0], dims)
    if attention.softmax is not None:
        _, dims = next(_softmaxes(attention.root.operands[0], dims))
        products = list(dict.fromkeys([*products_of(attention.modified, dims), *products]))
        products = [op for op in products if op.results[0].type.shape == scores.results[0].type.shape]
    return [op for op in products if op != scores]


def products_of(weights: ir.Value, dims: Dims) -> list[ir.Operation]:
    """The products of queries and keys that weights, whose dimensions are `dims`, are made of element by element."""
    found = _makers(weights, dims, is_contraction, is_elementwise)
    return [op for op, dims in found if _is_of_queries_and_keys(op, dims)]


def has_scores_by_keys(attention: Attention) -> bool:
    """Whether the scores are the product of keys and queries, instead of that of queries and keys; without a
    softmax."""
    return KEY in _dims_of_operand(attention.scores, 0, _dims_of_scores(attention))


def has_foreign_scores(attention: Attention) -> bool:
    """Whether what was found as scores is no product of queries and keys, but part of a bias: it multiplies something
    that there is for each pair of them, as a table that is read by a product, or has other rows than the result. Scores
    are then made by no product that can be seen."""
    scores, loops = attention.scores, contraction_loops(attention.root)
    assert loops is not None, "the root is a contraction"
    dims = _dims_of_scores(attention)
    if any({*QUERY, *KEY} <= frozenset().union(*_dims_of_operand(scores, number, dims)) for number in (0, 1)):
        return True
    extents = static_extents(attention.root)
    rows = [size for size, names in zip(scores.results[0].type.shape, dims, strict=True) if names == QUERY]
    queries = [extents[d] for d in loops.m]
    return DYNAMIC not in rows and None not in queries and math.prod(rows) != math.prod(n or 0 for n in queries)


def _dims_of_scores(attention: Attention) -> Dims:
    dims = _dims_of_weights(attention.root)

    def is_passable(op: ir.Operation, number: int) -> bool:
        return op != attention.scores and (is_elementwise(op) or (op == attention.softmax and not number))

    way = _backwards(attention.root.operands[0], dims, is_passable)
    unknown: Dims = (frozenset(),) * attention.scores.results[0].type.rank
    return next((found for op, found in way if op == attention.scores), unknown)


def turned(attention: Attention) -> list[ir.Operation]:
    """Ops that make a term or factor of the scores, of tensors whose keys come before their queries: the last ones."""
    p, dims = attention.root.operands[0], _dims_of_weights(attention.root)
    found: list[ir.Operation] = []

    def is_passable(op: ir.Operation, number: int) -> bool:
        own = op == attention.softmax or is_elementwise(op)
        return own and op not in found and not (op == attention.softmax and number)

    for op, names in _backwards(p, dims, is_passable):
        if KEY in names and QUERY in names and names.index(KEY) < names.index(QUERY):
            found.append(op)
    return [op for op in found if op != attention.scores and attention.scores not in Needed(op)]


def _dims_of_weights(root: ir.Operation) -> Dims:
    loops = contraction_loops(root)
    assert loops is not None, "the root is a contraction"
    names = {**dict.fromkeys(loops.m, QUERY), **dict.fromkeys(loops.k, KEY)}
    return tuple(names.get(d, frozenset()) for d in operand_loops(root)[0])


def _is_of_queries_and_keys(op: ir.Operation, dims: Dims) -> bool:
    """Whether one operand of a contraction varies along keys alone, the other along queries alone; `dims` are those of
    its result."""
    operands = [frozenset().union(*_dims_of_operand(op, i, dims)) for i in range(2)]
    return set(operands) == {QUERY, KEY}


def _are_weights(scores: ir.Operation, root: ir.Operation) -> bool:
    """Whether `root`, which has heads, multiplies values by what is made of each of the `scores`, and is an attention;
    see above."""
    first, second = contraction_loops(scores), contraction_loops(root)
    if first is None or second is None or not (has_heads(scores) or ATTENTION in root.attributes):
        return False
    unknown = 1 if ATTENTION in root.attributes else math.inf
    if max(_size(scores, first.k, unknown), _size(root, second.n, unknown)) > MOST_COLUMNS:
        return False
    between = ops_on_way(scores, [root], "tensor.dim") - {scores, root}
    if not all(map(is_elementwise, between)) or all(map(_is_multiple, between)):
        return False
    return all(user in between or user == root for op in (scores, *between) for user in users_of(op, "tensor.dim"))


def _size(op: ir.Operation, loops: Sequence[int], unknown: float) -> float:
    """How many iterations these loops of a structured op have together; `unknown` are those of an open extent."""
    extents = static_extents(op)
    return math.prod(extents[d] or unknown for d in loops)


def _may_have_heads(root: ir.Operation) -> bool:
    return ATTENTION in root.attributes or has_heads(root)


def has_heads(op: ir.Operation) -> bool:
    """Whether `op` multiplies tensors both of which are others for each of some heads or batch entries."""
    loops = contraction_loops(op) if is_contraction(op) else None
    return loops is not None and all(_is_along(op, number, loops.batch) for number in (0, 1))


def _is_along(contraction: ir.Operation, number: int, loops: list[int]) -> bool:
    """Whether an operand changes along one of these loops, and is not repeated."""
    value = contraction.operands[number]
    at = operand_loops(contraction)[number]
    while (op := defining_op(value)) is not None and _is_copy(op):  # repeated, or in another order
        source, target = operand_loops(op)
        value, at = op.operands[0], [at[target.index(d)] if d in target else None for d in source]
    return any(d in loops for d in at)


def _is_copy(op: ir.Operation) -> bool:
    return is_structured(op) and len(op.regions) > 0 and len(op.operands) == 2 and moves_first(op)


def _is_multiple(op: ir.Operation) -> bool:
    """Whether `op` moves elements, converts them, or multiplies all of them by the same: not by themselves."""
    if op.name in VIEWS or not len(op.regions):
        return op.name in VIEWS
    tensors = [i for i, v in enumerate(op.operands) if isinstance(v.type, ir.ShapedType)]
    return len(tensors) == 2 and not body_names(op, *MULTIPLES) and is_linear(op, tensors[0])


def is_contraction(op: ir.Operation) -> bool:
    """Whether `op` multiplies two tensors and sums over at least one loop."""
    if len(op.results) != 1 or len(op.operands) != 3 or not is_structured(op):
        return False
    loops = contraction_loops(op)
    if loops is None or not loops.k:
        return False
    return op.name == "linalg_ext.batch_matmul" or body_names(op, *FLOAT_CASTS) == ["arith.mulf", "arith.addf"]


def is_matmul(op: ir.Operation) -> bool:
    """Whether `op` is a contraction in which a tensor has a dimension of its own, as rows and columns of tiles have.
    Others are sums over each row, of squares or of products of elements."""
    loops = contraction_loops(op) if is_contraction(op) else None
    return loops is not None and bool(loops.m or loops.n)


def contraction_loops(op: ir.Operation) -> ContractionLoops | None:
    """The loops of a structured op with two inputs and one output; None if a map is no projection of the loops."""
    used = operand_loops(op)
    if any(None in loops for loops in used):
        return None
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
    return op.name in VIEWS or all_parallel(op)


def _makers(
    value: ir.Value,
    dims: Dims,
    wanted: Callable[[ir.Operation], bool],
    passable: Callable[[ir.Operation, int], bool],
) -> Iterator[tuple[ir.Operation, Dims]]:
    """The ops for which `wanted` holds, backwards from `value` through others that are `passable` in an operand, the
    nearest first, and what the dimensions of their results are; `dims` are those of `value`."""
    found = _backwards(value, dims, lambda op, i: not wanted(op) and passable(op, i))
    return ((op, dims) for op, dims in found if wanted(op))


def _backwards(
    value: ir.Value, dims: Dims, passable: Callable[[ir.Operation, int], bool]
) -> Iterator[tuple[ir.Operation, Dims]]:
    """As `_makers`: all ops on the way."""
    pending, seen = [(value, dims)], set()
    while pending:
        value, dims = pending.pop(0)
        op = defining_op(value)
        if op is None or op in seen:
            continue
        seen.add(op)
        yield op, dims
        result = ir.OpResult(value).result_number
        pending += [(v, _dims_of_operand(op, i, dims, result)) for i, v in enumerate(op.operands) if passable(op, i)]


def _dims_of_operand(op: ir.Operation, number: int, dims: Dims, result: int = 0) -> Dims:
    """What the dimensions of an operand are where those of a result are `dims`; nothing where that is not known."""
    if is_structured(op):
        loops = operand_loops(op)
        along = dict(zip(loops[result - len(op.results)], dims, strict=True))
        return tuple(along.get(d, frozenset()) for d in loops[number])
    if op.name in RESHAPES and number == 0:
        groups = reassociation(op)
        if not groups:  # to or from a single number
            return (frozenset(),) * op.operands[0].type.rank
        if op.name == "tensor.expand_shape":
            return tuple(frozenset().union(*(dims[d] for d in group)) for group in groups)
        if not groups:  # one element, of any rank
            return (frozenset(),) * op.operands[0].type.rank
        return tuple(found for group, found in zip(groups, dims, strict=True) for _ in group)
    kind = op.operands[number].type
    rank = kind.rank if isinstance(kind, ir.RankedTensorType) else 0
    return dims if rank == len(dims) else (frozenset(),) * rank

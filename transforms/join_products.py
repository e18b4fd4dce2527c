"""The pass ``join-products``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..dialects import build
from ..dialects.mlir import arith, ir
from ..dialects.tiling.structured import all_parallel, indexing_maps, iterator_types, operand_loops
from ..dialects.tiling.tensor_ops import reassociation
from .attention import contraction_loops, find_attention, is_contraction
from .copying import without_inputs
from .graph import erase_with_producers
from .linear import DYNAMIC
from .open_queries import FEW_QUERIES
from .passes import Pass, remark
from .reshapes import reshape
from .rewriting import defining_op, single_use
from .slices import Size, mixed

Dims = list[list[int] | None]  # of a factor's dimensions: the user's loops along each; None: it is summed up


@dataclass(frozen=True)
class JoinProducts(Pass):
    """Makes one product of two that are added up as scores::

        %s = linalg.generic ins(%q, %k : tensor<8x512x128xf32>, tensor<8x512x128xf32>) { Σ q·k }
        %r = linalg.generic ins(%p, %l : tensor<8x512x64xf32>, tensor<512x64xf32>) { Σ p·l }
        %t = linalg.generic ins(%s, %r) { (s + r)·c }
      becomes
        %a = tensor.concat dim(2) %q, %p : … -> tensor<8x512x192xf32>
        %m = linalg.generic ins(%l) outs(tensor<8x512x64xf32>) { l }                 // for every head
        %b = tensor.concat dim(2) %k, %m : … -> tensor<8x512x192xf32>
        %s = linalg.generic ins(%a, %b) { Σ a·b }
        %t = linalg.generic ins(%s) { s·c }

    Positions have a part of queries and keys of their own, say, as in DeepSeek's latent attention. The loops over tiles
    compute one product; others would be there as a whole, for all pairs of queries and keys. Also where both are
    multiplied by the same number first, or reshaped. Not where all pairs are fewer than what is copied, as for few
    queries.
    """

    def run(self, op: ir.Operation) -> None:
        for attention in find_attention(op):
            scores = attention.scores
            while FEW_QUERIES not in attention.root.attributes and (joined := _joined(scores)) is not None:
                scores = joined


@dataclass
class _Factor:
    value: ir.Value
    dims: Dims

    @property
    def flat(self) -> list[int | None]:
        return [d for part in self.dims for d in ([None] if part is None else part)]

    @property
    def along(self) -> set[int]:
        return {d for d in self.flat if d is not None}

    @property
    def summed(self) -> int:
        """How many columns are summed up, or DYNAMIC."""
        return self.value.type.shape[self.dims.index(None)]


@dataclass
class _Product:
    """A product, of zero and a sum of products along one loop, and what its user reads of it: a reshape or itself."""

    op: ir.Operation
    read: ir.Value
    loops: list[int]  # of its user: the one along each dimension

    @staticmethod
    def of(user: ir.Operation, number: int) -> _Product | None:
        """Of an operand, which the user's loops go through each along a dimension."""
        read, loops = user.operands[number], [d for d in operand_loops(user)[number] if d is not None]
        op = defining_op(read)
        if op is not None and op.name == "tensor.expand_shape" and single_use(op.operands[0]):
            op = defining_op(op.operands[0])
        if op is None or op.block != user.block or not is_contraction(op) or not build.zero_filled(op.operands[2]):
            return None
        found, is_whole = contraction_loops(op), sorted(loops) == list(range(len(iterator_types(user))))
        is_one = found is not None and len(found.k) == 1 and single_use(read)
        return _Product(op, read, loops) if is_one and is_whole and len(loops) == read.type.rank else None

    @property
    def shape(self) -> list[int]:
        """The extents of the loops."""
        return [self.read.type.shape[self.loops.index(d)] for d in range(len(self.loops))]

    def factors(self) -> list[_Factor]:
        *inputs, out = operand_loops(self.op)
        reshaped = self.read.owner.operation
        parts = [[d] for d in range(len(out))] if reshaped == self.op else reassociation(reshaped)
        along = [[self.loops[d] for d in part] for part in parts]
        return [
            _Factor(value, [along[out.index(d)] if d in out else None for d in loops])
            for value, loops in zip(self.op.operands, inputs, strict=False)
        ]

    def sizes(self) -> list[Size]:
        """The sizes of the loops, without reading the product."""
        reshaped, factors = self.read.owner.operation, self.factors()
        if reshaped != self.op:
            sizes = mixed(list(reshaped.operands)[1:], reshaped.opview.static_output_shape)
            return [sizes[self.loops.index(d)] for d in range(len(self.loops))]
        places = [next((one, one.dims.index([d])) for one in factors if d in one.along) for d in range(len(self.loops))]
        return [build.mixed_size(one.value, at) for one, at in places]


def _joined(scores: ir.Operation) -> ir.Operation | None:
    """The product that stands in the place of `scores` and of another one that is added; None if there is no other."""
    read = scores.results[0]
    user = _sole_user(read)
    if user is not None and user.name == "tensor.expand_shape":
        read = user.results[0]
        user = _sole_user(read)
    if user is None or user.name != "linalg.generic" or not all_parallel(user):
        return None
    number = list(user.operands).index(read)
    own, body = _Product.of(user, number), user.regions[0].blocks[0]
    if own is None:
        return None
    for i in range(len(user.operands) - len(user.results)):
        other = None if i == number else _Product.of(user, i)
        if other is None or not _are_added(body.arguments[number], body.arguments[i]):
            continue
        pairs = _pairs(own, other)
        if pairs is None:
            continue
        with ir.InsertionPoint(user), scores.location:
            result = _product(pairs, own)
        remark(scores, "two products that are added up as scores are one")
        _drop(body.arguments[i])
        user.operands[number] = result
        maps = indexing_maps(user)
        maps[number] = build.projection(len(own.loops), range(len(own.loops)))
        user.attributes["indexing_maps"] = build.map_array(maps)
        without_inputs(user, [i])
        for product in (own, other):
            erase_with_producers(product.read.owner.operation)
        return result.owner.operation
    return None


def _pairs(own: _Product, other: _Product) -> list[tuple[_Factor, _Factor]] | None:
    """What is put together: the factors with queries, and those with keys; None if that cannot be done, or is more than
    all scores are."""
    queries, keys = own.factors()
    for first, second in (other.factors(), other.factors()[::-1]):
        pairs = [(queries, first), (keys, second)]
        a, b = (one.along | two.along for one, two in pairs)
        kinds = [{one.value.type.element_type for one in pair} for pair in pairs]
        if a - b and b - a and all(len(kind) == 1 for kind in kinds):  # else one of both would have queries and keys
            copied = sum(_elements(pair, own.shape) for pair in pairs)
            return pairs if copied < math.prod(math.inf if size == DYNAMIC else size for size in own.shape) else None
    return None


def _elements(pair: Sequence[_Factor], shape: Sequence[int]) -> int:
    """How many elements two factors have, put together, as far as that is known."""
    known = [shape[d] for d in pair[0].along | pair[1].along if shape[d] != DYNAMIC]
    return math.prod(known) * sum(one.summed for one in pair if one.summed != DYNAMIC)


def _product(pairs: Sequence[tuple[_Factor, _Factor]], own: _Product) -> ir.Value:
    kind, rank, sizes = own.read.type.element_type, own.read.type.rank, own.sizes()
    (a, along_a), (b, along_b) = (_put_together(pair, sizes) for pair in pairs)
    maps = [build.projection(rank + 1, [*along, rank]) for along in (along_a, along_b)]
    (result,) = build.generic(
        [a, b],
        [build.fill(build.constant(kind, 0.0), build.empty(sizes, kind))],
        [*maps, build.projection(rank + 1, range(rank))],
        [build.PARALLEL] * rank + [build.REDUCTION],
        lambda x, y, z: arith.addf(z, arith.mulf(build.convert(x, kind), build.convert(y, kind))),
    )
    return result


def _put_together(pair: Sequence[_Factor], sizes: Sequence[Size]) -> tuple[ir.Value, list[int]]:
    """Two factors side by side along what is summed up, their last dimension, and the dimensions before it."""
    along = sorted(pair[0].along | pair[1].along)
    parts = [_arranged(one, along, sizes) for one in pair]
    last = [part.type.shape[-1] for part in parts]
    shape = [*parts[0].type.shape[:-1], DYNAMIC if DYNAMIC in last else sum(last)]
    kind = ir.RankedTensorType.get(shape, parts[0].type.element_type)
    dim = {"dim": build.i64_attribute(len(along))}
    return ir.Operation.create("tensor.concat", [kind], parts, dim).results[0], along


def _arranged(factor: _Factor, along: list[int], sizes: Sequence[Size]) -> ir.Value:
    """A factor that has those dimensions, in that order, and then what is summed up."""
    value, columns = factor.value, build.mixed_size(factor.value, factor.dims.index(None))
    if any(part is not None and len(part) > 1 for part in factor.dims):
        groups = [[columns] if part is None else [sizes[d] for d in part] for part in factor.dims]
        value = reshape(value, groups, expand=True)
    wanted: list[int | None] = [*along, None]
    if factor.flat == wanted:
        return value
    init = build.empty([*(sizes[d] for d in along), columns], value.type.element_type)
    maps = [build.projection(len(wanted), [wanted.index(d) for d in factor.flat])]
    maps.append(build.projection(len(wanted), range(len(wanted))))
    (result,) = build.generic([value], [init], maps, [build.PARALLEL] * len(wanted), lambda x, _: x)
    return result


def _are_added(a: ir.Value, b: ir.Value) -> bool:
    """Whether two arguments of a body are terms of one sum, maybe times the same number, and nothing else."""
    (factor_a, sums_a), (factor_b, sums_b) = _sums(a), _sums(b)
    return factor_a == factor_b and any(op in sums_b for op in sums_a)


def _sums(argument: ir.Value) -> tuple[float | None, list[ir.Operation]]:
    """The number that an argument is multiplied by, and the additions that it goes through alone."""
    term, factor = _term(argument)
    found: list[ir.Operation] = []
    while (user := _sole_user(term)) is not None and user.name == "arith.addf":
        found.append(user)
        term = user.results[0]
    return factor, found


def _term(argument: ir.Value) -> tuple[ir.Value, float | None]:
    """What of an argument is added, and the number that it is multiplied by for that."""
    user = _sole_user(argument)
    if user is None or user.name != "arith.mulf":
        return argument, None
    numbers = [build.constant_value(v) for v in user.operands if v != argument]
    return (user.results[0], numbers[0]) if numbers and numbers[0] is not None else (argument, None)


def _drop(argument: ir.Value) -> None:
    """Takes an argument out of the sum that it is a term of."""
    term, _ = _term(argument)
    sum_ = _sole_user(term)
    assert sum_ is not None, "a term of a sum alone"
    (left,) = (v for v in sum_.operands if v != term)
    sum_.results[0].replace_all_uses_with(left)
    sum_.erase()
    if term != argument:
        term.owner.operation.erase()


def _sole_user(value: ir.Value) -> ir.Operation | None:
    return next(iter(value.uses)).owner.operation if single_use(value) else None

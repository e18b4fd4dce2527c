"""The pass ``fuse-elements``."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from ..dialects import build
from ..dialects.mlir import arith, ir, linalg, tensor
from ..dialects.tiling.structured import body_names, dim_position, indexing_maps, iterator_types, reduces
from .copying import copy_elements, in_loops, index_at
from .extents import lift_sizes
from .graph import ancestor_in
from .passes import Pass, option
from .reshapes import RESHAPES
from .rewriting import defining_op, erase_if_unused, functions_of, ops_in, ops_of, single_use, through
from .splats import repeated_number

FEW_ELEMENTS, FEW_OPS = 32, 8
INTEGERS = re.compile(r"arith\.((add|sub|mul|cmp|trunc|(ext|max|min)[su])i|select|index_cast|constant)|linalg\.index")


@dataclass(frozen=True)
class FuseElements(Pass):
    """Around the loops over tiles, computes element-wise ops where their elements are read, if that is in one place::

        %a = linalg.generic … ins(%x) { mulf %x, 2.0 } -> tensor<8x64xf32>
        %b = linalg.generic … ins(%a, %y) { addf } -> tensor<8x64xf32>
    becomes
        %b = linalg.generic … ins(%x, %y) { %t = mulf %x, 2.0 ; addf %t, %y } -> tensor<8x64xf32>

    Each op that is left becomes a kernel, and its result goes through memory. Sums and maxima, too, take what they read
    along; not matmuls, nor who reads an element many times: it would be computed as often (upstream's
    linalg-fuse-elementwise-ops does so; what it may fuse can be told in C++ alone), but for floats that are only made
    wider, such as those of a bias, and a few integers, such as the places where a cache is written, which are computed
    anew wherever they are read: a launch takes longer. Tensors that are filled with a constant become that constant.
    """

    all: bool = option("also what reads a result of the loops, which fuse-consumers may take into them", False)
    along_sums: bool = option("also what is the same along a sum, such as a row's mean: threads compute it once", False)

    def run(self, op: ir.Operation) -> None:
        lift_sizes(op)
        for function in functions_of(op):
            for block in function.regions[0].blocks:
                for consumer in ops_of(block):
                    if consumer.name != "linalg.generic":
                        continue
                    for extract in ops_in(consumer, "tensor.extract"):
                        self._at_extract(extract, consumer)
                    while not _is_left_to_readers(consumer) and (found := self._fusable(consumer)) is not None:
                        consumer = _fused(consumer, *found)

    def _at_extract(self, extract: ir.Operation, consumer: ir.Operation) -> None:
        """Computes an element that the body of an op takes at some place."""
        source, *at = extract.operands
        producer = self._producer(source, consumer)
        if producer is None or not (single_use(source) or _is_of_few(producer)):
            return
        written = indexing_maps(producer)[-1]
        places = {dim_position(e): i for i, e in zip(at, written.results, strict=True)}
        n = len(iterator_types(producer))
        with ir.InsertionPoint(extract), extract.location:
            known = {}
            arguments = producer.regions[0].blocks[0].arguments
            for argument, v, m in zip(arguments, list(producer.operands)[:-1], indexing_maps(producer), strict=False):
                scalar = not isinstance(v.type, ir.ShapedType)
                known[argument] = v if scalar else tensor.extract(v, [index_at(e, places.get, n) for e in m.results])
            (value,) = copy_elements(producer, known, places.__getitem__)
        extract.results[0].replace_all_uses_with(value)
        extract.erase()
        erase_if_unused(producer)

    def _producer(self, value: ir.Value, consumer: ir.Operation) -> ir.Operation | None:
        """The element-wise op that `value` comes from, if no one else reads it, or it is cheap."""
        producer = defining_op(value)
        if producer is None or producer.block != consumer.block or not _is_elementwise(producer):
            return None
        is_shared = any(ancestor_in(use.owner, consumer.block) != consumer for use in value.uses)
        if (is_shared and not _is_cheap(producer)) or not (self.all or not _reads_loops(producer)):
            return None
        return producer

    def _fusable(self, consumer: ir.Operation) -> tuple[int, ir.Operation | ir.Attribute] | None:
        """An operand that can be computed where it is read, and the op or the constant that it is."""
        maps, kinds = indexing_maps(consumer), iterator_types(consumer)
        used = len(consumer.operands) - len(consumer.results)
        sizes = _loop_sizes(consumer)
        for number, value in enumerate(list(consumer.operands)[:used]):
            if not isinstance(value.type, ir.RankedTensorType):
                continue
            splat = repeated_number(value)
            if splat is not None and _sizes_are_told(consumer, number, splat):
                return number, splat
            read = {dim_position(e) for e in maps[number].results}
            producer = self._producer(value, consumer)
            once = all(
                d in read or sizes.get(d) == 1 or (self.along_sums and kind == "reduction")
                for d, kind in enumerate(kinds)
            )
            may_be = producer is not None and (once or _is_cheap(producer))
            if producer is not None and may_be and _sizes_are_told(consumer, number, producer):
                return number, producer
        return None


def _reads_loops(op: ir.Operation) -> bool:
    """Whether an op reads a result of loops over tiles, or a view of one."""
    for value in op.operands:
        source = defining_op(through(value, "tensor.extract_slice", *RESHAPES))
        if source is not None and source.name == "scf.forall":
            return True
    return False


def _loop_sizes(op: ir.Operation) -> dict[int | None, int]:
    pairs = zip(op.operands, indexing_maps(op), strict=True)
    return {dim_position(e): value.type.shape[d] for value, m in pairs for d, e in enumerate(m.results)}


def _is_elementwise(op: ir.Operation) -> bool:
    """Whether each element of its only result comes from elements at places that its own place tells."""
    if op.name != "linalg.generic" or len(op.results) != 1 or reduces(op):
        return False
    written = [dim_position(e) for e in indexing_maps(op)[-1].results]
    init = op.regions[0].blocks[0].arguments[len(op.operands) - 1]
    return sorted(d for d in written if d is not None) == list(range(len(iterator_types(op)))) and not list(init.uses)


def _widens(op: ir.Operation) -> bool:
    """Whether all that it does is to make floats wider."""
    return body_names(op) == ["arith.extf"]


def _is_left_to_readers(op: ir.Operation) -> bool:
    """Whether it only makes floats wider, for ops that do so themselves: what it reads stays narrow in memory."""
    users = [use.owner.operation for use in op.results[0].uses] if _widens(op) else []
    return bool(users) and all(user.name == "linalg.generic" and user.block == op.block for user in users)


def _is_of_few(op: ir.Operation) -> bool:
    """Whether it computes a few integers of a few others."""
    kind, names = op.results[0].type, body_names(op)
    is_small = kind.has_static_shape and math.prod(kind.shape) <= FEW_ELEMENTS and len(names) <= FEW_OPS
    return is_small and isinstance(kind.element_type, ir.IntegerType) and all(map(INTEGERS.fullmatch, names))


def _is_cheap(op: ir.Operation) -> bool:
    return _widens(op) or _is_of_few(op)


def _fused_maps(consumer: ir.Operation, number: int, source: ir.Operation | ir.Attribute) -> tuple:
    """Of the inputs, without the one that is computed; and where its loops are among the consumer's, if it has any."""
    maps, first = indexing_maps(consumer), len(consumer.operands) - len(consumer.results)
    n = len(iterator_types(consumer))
    found = [m for i, m in enumerate(maps[:first]) if i != number]
    if not isinstance(source, ir.Operation):
        return found, None
    written = indexing_maps(source)[-1]
    places = {dim_position(e): maps[number].results[d] for d, e in enumerate(written.results)}
    loops = ir.AffineMap.get(n, 0, [places[d] for d in range(len(iterator_types(source)))])
    for m in indexing_maps(source)[:-1]:
        found.append(ir.AffineMap.get(n, 0, [e.compose(loops) for e in m.results]))
    return found, loops


def _sizes_are_told(consumer: ir.Operation, number: int, source: ir.Operation | ir.Attribute) -> bool:
    """Whether each loop still runs along an operand, when one is computed where it is read: a sum over what is put
    together, say, runs along that alone."""
    found, _ = _fused_maps(consumer, number, source)
    found += indexing_maps(consumer)[-len(consumer.results) :]
    told = {dim_position(e) for m in found for e in m.results}
    return all(d in told for d in range(len(iterator_types(consumer))))


def _fused(consumer: ir.Operation, number: int, source: ir.Operation | ir.Attribute) -> ir.Operation:
    maps, first = indexing_maps(consumer), len(consumer.operands) - len(consumer.results)
    operands, inits = list(consumer.operands)[:first], list(consumer.operands)[first:]
    ins = [v for i, v in enumerate(operands) if i != number]
    new_maps, loops = _fused_maps(consumer, number, source)
    own = list(source.operands)[:-1] if isinstance(source, ir.Operation) else []
    # What several of them read at one place is read, and then computed, once.
    read = [*zip([*ins, *own], new_maps, strict=True)]
    distinct = list(dict.fromkeys(read))

    def body(*scalars: ir.Value) -> list[ir.Value]:
        left = [scalars[distinct.index(one)] for one in read]
        if loops is None:
            taken = arith.ConstantOp(operands[number].type.element_type, source).result
        else:
            of_source = left[len(ins) : len(ins) + len(own)]
            arguments = source.regions[0].blocks[0].arguments
            (taken,) = copy_elements(source, dict(zip(list(arguments), of_source, strict=False)), in_loops(loops))
        outer = [*left[: len(ins)], *scalars[len(distinct) :]]
        outer.insert(number, taken)
        arguments = consumer.regions[0].blocks[0].arguments
        return copy_elements(consumer, dict(zip(arguments, outer, strict=True)), lambda d: linalg.IndexOp(d).result)

    with ir.InsertionPoint(consumer), consumer.location:
        values, value_maps = map(list, zip(*distinct, strict=True)) if distinct else ([], [])
        results = build.generic(values, inits, [*value_maps, *maps[first:]], list(iterator_types(consumer)), body)
    for old, new in zip(consumer.results, results, strict=True):
        old.replace_all_uses_with(new)
    before = defining_op(operands[number])
    consumer.erase()
    erase_if_unused(before)
    return results[0].owner.operation

"""Arithmetic on open sizes, as far as it follows from their being sizes.

  %shape = tensor.from_elements %b, %s : tensor<2xi64>
  %first = tensor.extract_slice %shape[0] [1] [1] : tensor<2xi64> to tensor<1xi64>
  %n = tensor.extract %first[%c0] : tensor<1xi64>         // becomes %b: elements of lists of sizes are looked up
  %is = arith.cmpi slt, %b, %zero                         // becomes false: sizes are not negative
  %bs = arith.muli %b, %s    %q = arith.divsi %bs, %s     // becomes %b
  %m = arith.maxui %q, %b                                 // becomes %b

Sizes that are one value are seen to be equal, and none is read off an array, which a GPU would have to be waited for.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ...dialects import build
from ...dialects.build import constant_value
from ...dialects.mlir import arith, ir, tensor
from ...dialects.tiling.structured import dim_position, indexing_maps, iterator_types
from ...transforms.copying import copy_elements
from ...transforms.linear import DYNAMIC
from ...transforms.products import factors, is_product
from ...transforms.rewriting import defining_op, ops_of
from ...transforms.slices import slice_parts
from .lowering import ops, run

TIDY = "builtin.module(canonicalize,cse)"
LONGEST = 16  # of lists of sizes
READS = ("linalg.index", "tensor.extract")
OF_SIZES = ("index_cast", "extsi", "muli", "addi", "divsi", "maxsi", "maxui", "minsi", "minui", "select")


def name(module: ir.Module, names: Mapping[tuple[int, int], str]) -> None:
    """Makes sizes of arguments one value that have one name; `names`: of dimensions, by number of their argument."""
    first: dict[str, tuple[int, int]] = {}
    for place, called in sorted(names.items()):
        first.setdefault(called, place)
    for op in ops(module):
        if op.name != "tensor.dim" or not isinstance(op.operands[0].owner, ir.Block):
            continue
        block, d = op.operands[0].owner, constant_value(op.operands[1])
        own = (ir.BlockArgument(op.operands[0]).arg_number, d)
        known = first.get(names.get(own, ""), own) if block.owner.operation.name == "func.func" else own
        if known != own:
            with ir.InsertionPoint(op), op.location:
                _replace(op, tensor.dim(block.arguments[known[0]], build.index(known[1])))


def settle(module: ir.Module) -> None:
    """Replaces what is computed of sizes by what is known of it, in place."""
    if not any(op.name == "tensor.dim" for op in ops(module)):
        return
    look_up(module)
    for op in ops(module):  # in their order: the later ones are told of what the earlier ones became
        if op.name in ("arith.cmpi", "arith.select", "arith.divsi", "arith.maxsi", "arith.maxui"):
            with ir.InsertionPoint(op), op.location:
                _replace(op, _settled(op))
    run(module, TIDY, "")


def look_up(module: ir.Module) -> None:
    """Replaces elements of lists outside of all bodies by what they are, in place."""
    while sum(_look_up(op) for op in ops(module) if op.name == "tensor.extract"):
        run(module, TIDY, "")  # at places that are numbers then, others can be looked up


def _look_up(extract: ir.Operation) -> bool:
    """Replaces an element of a list outside of all bodies, and says whether that was done."""
    if extract.parent.operation.name != "func.func":
        return False
    with ir.InsertionPoint(extract), extract.location:
        return _replace(extract, _listed(extract))


def _replace(op: ir.Operation, value: ir.Value | None) -> bool:
    if value is not None:
        op.results[0].replace_all_uses_with(value)
        op.erase()
    return value is not None


def _settled(op: ir.Operation) -> ir.Value | None:
    """What an op on integers gives, if that is seen; an op at the insertion point may be made for it."""
    kind = op.results[0].type
    if op.name == "arith.cmpi":
        return build.constant(kind, 0) if _is_negative_size(op) else None
    if op.name == "arith.select":
        condition, _, otherwise = op.operands
        if _is_copied_if_zero(condition, otherwise):
            return otherwise
        chosen = constant_value(condition)
        return None if chosen is None else op.operands[1 if chosen else 2]
    if op.name == "arith.maxui" and constant_value(op.operands[1]) == 1:  # a size that the importer broadcasts to
        return op.operands[0] if _is_size(op.operands[0]) else None
    if op.name != "arith.divsi":
        return op.operands[0] if is_product(op.operands[0], [op.operands[1]]) else None
    number, others = factors([op.results[0]])
    parts = list(others.elements())
    if op.results[0] in parts or not all(map(_is_size, op.operands)):
        return None
    result = build.constant(kind, number)
    for i, part in enumerate(parts):
        size = build.as_index(build.mixed_size(*part) if isinstance(part, tuple) else part)
        size = size if size.type == kind else arith.index_cast(kind, size)
        result = size if i == 0 and number == 1 else arith.muli(result, size)
    return result


def _is_copied_if_zero(condition: ir.Value, size: ir.Value) -> bool:
    """Whether a reshape asks if a size in its list is 0, for which it takes one of its operand: there are no elements
    either way."""
    asked = defining_op(condition)
    if asked is None or asked.name != "arith.cmpi":
        return False
    if asked.operands[0] != size or constant_value(asked.operands[1]) != 0:
        return False
    is_equal = ir.IntegerAttr(asked.attributes["predicate"]).value == arith.CmpIPredicate.eq
    return is_equal and _is_size(size)


def _is_negative_size(op: ir.Operation) -> bool:
    is_less = ir.IntegerAttr(op.attributes["predicate"]).value == arith.CmpIPredicate.slt
    return bool(is_less and constant_value(op.operands[1]) == 0 and _is_size(op.operands[0]))


def _is_size(value: ir.Value) -> bool:
    """Whether an integer is a size, or computed of sizes such that it is not negative either."""
    number, op = constant_value(value), defining_op(value)
    if number is not None:
        return bool(number >= 0)
    if op is None:
        return False
    if op.name.removeprefix("arith.") in OF_SIZES:
        return all(_is_size(v) for v in op.operands if str(v.type) != "i1")
    return op.name == "tensor.dim"


def _listed(extract: ir.Operation) -> ir.Value | None:
    """The element of a list of integers that is read, as a value; None if it is not seen."""
    value = extract.operands[0]
    at = [constant_value(i) for i in list(extract.operands)[1:]]
    if not isinstance(extract.results[0].type, ir.IntegerType | ir.IndexType) or None in at:
        return None
    return _element(value, [int(i) for i in at])


def _element(value: ir.Value, at: Sequence[int]) -> ir.Value | None:
    """An element of a short tensor that ops make of values one sees."""
    op, shape = defining_op(value), list(value.type.shape)
    if op is None or DYNAMIC in shape or math.prod(shape) > LONGEST:
        return None
    offset = int(np.ravel_multi_index(at, shape)) if shape else 0
    if op.name == "arith.constant":
        elements = op.attributes["value"]
        number = elements.get_splat_value().value if elements.is_splat else list(elements)[offset]
        return build.constant(value.type.element_type, number)
    if op.name == "tensor.from_elements":
        return op.operands[offset]
    if op.name == "linalg.fill":
        return op.operands[0]
    if op.name == "tensor.extract_slice":
        offsets, _, strides = slice_parts(op)
        source = op.operands[0]
        if source.type.rank != len(shape) or not all(isinstance(i, int) for i in (*offsets, *strides)):
            return None
        return _element(source, [o + i * s for o, i, s in zip(offsets, at, strides, strict=True)])
    if op.name in ("tensor.collapse_shape", "tensor.expand_shape"):
        source = op.operands[0]
        return _element(source, [int(i) for i in np.unravel_index(offset, list(source.type.shape))])
    if op.name == "tensor.concat":
        return _of_parts(list(op.operands), ir.IntegerAttr(op.attributes["dim"]).value, list(at))
    return _computed(op, at) if op.name == "linalg.generic" else None


def _of_parts(parts: Sequence[ir.Value], d: int, at: list[int]) -> ir.Value | None:
    for part in parts:
        size = part.type.shape[d]
        if size == DYNAMIC or at[d] < size:
            return None if size == DYNAMIC else _element(part, at)
        at[d] -= size
    return None


def _computed(op: ir.Operation, at: Sequence[int]) -> ir.Value | None:
    """An element of what a linalg.generic computes element by element: its body, of the elements that it reads."""
    maps, body = indexing_maps(op), op.regions[0].blocks[0]
    if len(op.results) != 1 or "reduction" in map(str, iterator_types(op)) or not maps[-1].is_permutation:
        return None
    loops = [0] * len(at)
    for e, i in zip(maps[-1].results, at, strict=True):
        loops[ir.AffineDimExpr(e).position] = i
    known: dict[ir.Value, ir.Value] = {}
    for argument, operand, m in zip(body.arguments, op.operands, maps, strict=True):
        dims = [dim_position(e) for e in m.results]
        if any(True for _ in argument.uses):
            if not isinstance(operand.type, ir.RankedTensorType):
                element: ir.Value | None = operand
            else:
                element = None if None in dims else _element(operand, [loops[d] for d in dims if d is not None])
            if element is None:
                return None
            known[argument] = element
    steps = ops_of(body)[:-1]
    if any(not step.name.startswith(("arith.", "math.")) and step.name not in READS for step in steps):
        return None
    return copy_elements(op, known, lambda loop: build.index(loops[loop]))[0]

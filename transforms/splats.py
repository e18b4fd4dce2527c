"""Tensors of which all elements are one number: constants, and what is filled with one."""

from __future__ import annotations

from ..dialects.mlir import ir
from .rewriting import defining_op, is_constant, ops_of


def is_constant_tensor(value: ir.Value) -> bool:
    return is_constant(value) and isinstance(value.type, ir.ShapedType)


def splat_of(value: ir.Value) -> ir.Attribute | None:
    """The number that all elements of a constant tensor are; None if they differ."""
    elements = defining_op(value).attributes["value"]
    return elements.get_splat_value() if isinstance(elements, ir.DenseElementsAttr) and elements.is_splat else None


def numbers_of(constant: ir.Operation) -> list[float]:
    """The elements of a constant vector, of one dimension."""
    elements = constant.attributes["value"]
    if elements.is_splat:
        return [elements.get_splat_value().value] * elements.type.shape[0]
    if not isinstance(elements, ir.DenseFPElementsAttr) or str(elements.type.element_type) in ("f32", "f64"):
        return list(elements)
    of_element = str(elements.type.element_type)  # the bindings have no other floats
    found = str(elements).partition("[")[2].partition("]")[0].split(",")
    return [ir.FloatAttr(ir.Attribute.parse(f"{x.strip()} : {of_element}")).value for x in found]


def filled_with(value: ir.Value) -> ir.Attribute | None:
    """The constant that a tensor is filled with; None if it is not filled with one."""
    op = defining_op(value)
    if op is None or op.name not in ("linalg.fill", "linalg.generic") or len(op.results) != 1:
        return None
    source = op.operands[0]
    if op.name == "linalg.generic":
        block = op.regions[0].blocks[0]
        (source,) = ops_of(block)[-1].operands
        if source.owner == block:
            number = ir.BlockArgument(source).arg_number
            source = op.operands[number]
            if number == len(op.operands) - 1:
                return None
    if isinstance(source.type, ir.RankedTensorType):
        return filled_with(source)  # a copy of such a one
    constant = defining_op(source)
    return constant.attributes["value"] if constant is not None and constant.name == "arith.constant" else None


def repeated_number(value: ir.Value) -> ir.Attribute | None:
    """What all elements of a constant, or of a tensor that is filled, are; None if they differ or are not known."""
    return splat_of(value) if is_constant_tensor(value) else filled_with(value)

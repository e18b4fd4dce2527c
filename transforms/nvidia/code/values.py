"""What values of a kernel are while it is lowered, and how they become lists of scalars and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from ....dialects.mlir import ir
from ....dialects.tile import is_tensor_map, layout_of
from ...linear import DYNAMIC
from ..alignment import has_dense_rows
from .memory import GLOBAL, Memory
from .spread import Spread
from .synchronisation import Barriers, Flags
from .thread import Registers, Shared, Skewed, i32, i64, pointer, register_type

Value: TypeAlias = "Registers | Shared | Skewed | Spread | Barriers | Flags | Memory | tuple[ir.Value, ...] | ir.Value"

MAP_BYTES = 128  # of a tensor map


def parameter_types(kind: ir.Type) -> list[ir.Type]:
    if is_tensor_map(kind):
        return [pointer(0)]
    if not isinstance(kind, ir.MemRefType):
        return [register_type(kind)]
    sizes = [i32() for s in kind.shape if s == DYNAMIC]
    return [pointer(GLOBAL), *sizes, *[i64()] * (kind.rank - has_dense_rows(kind))]


def parameter_attributes(kind: ir.Type) -> list[ir.Attribute]:
    """For each parameter; a tensor map is passed by value, where the copy engine can read it."""
    if not is_tensor_map(kind):
        return [ir.DictAttr.get({})] * len(parameter_types(kind))
    attributes = {
        "llvm.byval": ir.TypeAttr.get(ir.Type.parse(f"!llvm.array<{MAP_BYTES} x i8>")),
        "llvm.align": ir.IntegerAttr.get(i64(), MAP_BYTES),
        "nvvm.grid_constant": ir.UnitAttr.get(),
    }
    return [ir.DictAttr.get(attributes)]


def register_types(kind: ir.Type) -> list[ir.Type]:
    """The types of the scalars that a thread has of a value."""
    if not isinstance(kind, ir.RankedTensorType):
        return [register_type(kind)]
    packed = layout_of(kind) in ("operand_a", "paired_a") and kind.element_type.width <= 16
    element = i32() if packed else register_type(kind.element_type)
    return [element] * Registers.count(kind)


def flat(value: Value) -> list[ir.Value]:
    if isinstance(value, Registers):
        return value.values
    assert isinstance(value, ir.Value), "loops carry tiles in registers and scalars"
    return [value]


def like(models: Sequence[Value], values: list[ir.Value]) -> list[Value]:
    """The flat `values`, in the forms of `models`."""
    found: list[Value] = []
    for model in models:
        if isinstance(model, Registers):
            mine, values = values[: len(model.values)], values[len(model.values) :]
            found.append(Registers(model.layout, model.shape, mine))
        else:
            found.append(values[0])
            values = values[1:]
    return found

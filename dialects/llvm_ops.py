"""Builders of ops of the llvm dialect that passes for CPUs make.

Upstream's are in a module of 300 ops, which takes 27 ms to import: a tenth of what a kernel takes to compile.
"""

from collections.abc import Sequence

from .mlir import ir
from .mlir import llvm as _  # noqa: F401 (the bindings find a module of its name without running it)


def _result(name: str, kind: ir.Type, operands: Sequence[ir.Value], attributes: dict[str, ir.Attribute]) -> ir.Value:
    return ir.Operation.create(name, [kind], operands, attributes).result


def call_intrinsic(kind: ir.Type, name: str, operands: Sequence[ir.Value]) -> ir.Value:
    attributes = {
        "intrin": ir.StringAttr.get(name),
        "op_bundle_sizes": ir.DenseI32ArrayAttr.get([]),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(operands), 0]),
    }
    return _result("llvm.call_intrinsic", kind, operands, attributes)


def inline_asm(kind: ir.Type, operands: Sequence[ir.Value], text: str, constraints: str) -> ir.Value:
    """A pure instruction."""
    attributes = {"asm_string": ir.StringAttr.get(text), "constraints": ir.StringAttr.get(constraints)}
    return _result("llvm.inline_asm", kind, operands, attributes)


def memory_fence() -> None:
    """Nothing, which may have read and written all memory: no load or store is moved across."""
    attributes = {
        "asm_string": ir.StringAttr.get(""),
        "constraints": ir.StringAttr.get("~{memory}"),
        "has_side_effects": ir.UnitAttr.get(),
    }
    ir.Operation.create("llvm.inline_asm", [], [], attributes)


def inttoptr(kind: ir.Type, address: ir.Value) -> ir.Value:
    return _result("llvm.inttoptr", kind, [address], {})


def undef(kind: ir.Type) -> ir.Value:
    return _result("llvm.mlir.undef", kind, [], {})


def insertvalue(container: ir.Value, value: ir.Value, position: Sequence[int]) -> ir.Value:
    attributes = {"position": ir.DenseI64ArrayAttr.get(list(position))}
    return _result("llvm.insertvalue", container.type, [container, value], attributes)

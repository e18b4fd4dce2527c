"""Functions and kernels that differ in nothing but their names, as those of a model's layers do."""

from __future__ import annotations

from ..dialects.mlir import ir


def outlines(function: ir.Operation) -> tuple[ir.Attribute, int]:
    """What functions that are the same have in common, without their texts, which take long: their type, and how many
    ops stand in them side by side."""
    return function.attributes["function_type"], sum(len(block.operations) for block in function.regions[0].blocks)


def nameless(function: ir.Operation) -> str:
    """The text of a function without its name."""
    name = ir.StringAttr(function.attributes["sym_name"]).value
    return function.get_asm(use_local_scope=True, assume_verified=True).replace(f"@{name}(", "@(", 1)

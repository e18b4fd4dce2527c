"""Arguments of functions that may be written to: caches, in whose memory a result is another one with a slice anew."""

from __future__ import annotations

from ..dialects.mlir import ir
from .argument_attributes import WRITABLE
from .passes import remark
from .rewriting import terminator


def donated_arguments(function: ir.Operation) -> list[ir.Value]:
    """The arguments of a function that it may write to."""
    arguments = list(function.regions[0].blocks[0].arguments)
    if "arg_attrs" not in function.attributes:
        return []
    pairs = zip(arguments, function.attributes["arg_attrs"], strict=True)
    return [a for a, named in pairs if WRITABLE in named and ir.BoolAttr(named[WRITABLE]).value]


def tell_of_vain_ones(function: ir.Operation, donated: list[ir.Value]) -> None:
    """A remark on each that is no result."""
    end = terminator(function.regions[0].blocks[0])
    for number in sorted(ir.BlockArgument(a).arg_number for a in donated if a not in list(end.operands)):
        remark(function, f"no result is made in the memory of donated argument {number}")

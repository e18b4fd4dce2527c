"""Which numbers a module computes with, found without a look at all of its ops."""

from collections.abc import Callable

from ....dialects.build import element_of
from ....dialects.mlir import ir
from ...rewriting import ops_in

# What makes a value out of none of its type.
MAKERS = (
    "arith.bitcast",
    "arith.constant",
    "arith.sitofp",
    "arith.truncf",
    "arith.uitofp",
    "ub.poison",
    "vector.bitcast",
)
BUFFERS = ("memref.alloc", "memref.alloca", "memref.get_global", "memref.view")


def has_elements(op: ir.Operation, are_meant: Callable[[ir.Type], bool]) -> bool:
    """Whether there are numbers of a type that is meant: functions take or return some, or ops make some."""
    kinds = {made.results[0].type for made in ops_in(op, *MAKERS, *BUFFERS)}
    for function in [op, *ops_in(op, "func.func")]:
        if function.name == "func.func":
            kind = function.attributes["function_type"].value
            kinds.update(kind.inputs, kind.results)
    return any(are_meant(element_of(kind)) for kind in kinds)

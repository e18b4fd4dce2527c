"""The pass ``check-elements``."""

import math
from dataclasses import dataclass

from ..dialects.float8 import FORMATS
from ..dialects.mlir import ir
from .limits import MOST_LANES
from .passes import Pass, PassError
from .rewriting import ops_in

FLOATS = ("f16", "bf16", "f32", "f64", *FORMATS)
UNKNOWN_TO_BINDINGS = ("f80", "f128")  # as floats: they have no class
INTEGERS = (1, 8, 16, 32, 64)  # bits


@dataclass(frozen=True)
class CheckElements(Pass):
    """Fails where a tensor or a memref has elements of a type that no target computes with. Changes nothing::

        %c = linalg.matmul ins(%a, %b : tensor<8x8xi4>, …) …   // error: no code is made for elements of i4, …

    Of integers of other widths than memory has, a vector is packed and an array is not: reading one as the other would
    give wrong numbers without a word. Other floats, complex numbers and integers with a sign in their type have no
    instructions, or no lowering upstream. An argument that is not used may have a sign in its type. Vectors are made of
    registers: with more than 16384 elements LLVM takes minutes.
    """

    def run(self, op: ir.Operation) -> None:
        checked: set[ir.Type] = set()

        def check(kind: ir.Type, place: ir.Location | ir.Operation, is_used: bool = True) -> None:
            if kind in checked:
                return
            if isinstance(kind, ir.VectorType) and math.prod(kind.shape) > MOST_LANES:
                raise PassError(f"{kind} has more than {MOST_LANES} elements: use a tensor, or smaller vectors", place)
            if advice := _advice(kind, is_used):
                of = f", the elements of {kind}" if isinstance(kind, ir.ShapedType) else ""
                raise PassError(f"no code is made for {_element(kind)}{of}: {advice}", place)
            if is_used:
                checked.add(kind)

        for inner in ops_in(op):
            for region in inner.regions:
                for block in region.blocks:
                    for argument in block.arguments:
                        check(argument.type, argument.location, next(iter(argument.uses), None) is not None)
            for result in inner.results:
                check(result.type, inner)


def _element(kind: ir.Type) -> ir.Type:
    while isinstance(kind, ir.ShapedType):  # a memref may be one of vectors
        kind = kind.element_type
    return kind


def _advice(kind: ir.Type, is_used: bool) -> str:
    """What to do about a type; empty if nothing. Scalars are as good as registers are: of any integer, say."""
    element = _element(kind)
    if isinstance(element, ir.FloatType) or str(element) in UNKNOWN_TO_BINDINGS:
        if str(element) not in FLOATS:
            return "use f16, bf16, f32, f64 or a float of 8 bits (arith.extf and arith.truncf convert)"
    elif not isinstance(kind, ir.RankedTensorType | ir.MemRefType):
        return ""
    elif isinstance(element, ir.IntegerType):
        if element.width not in INTEGERS:
            return "use i1, i8, i16, i32 or i64 (arith.extsi, arith.extui and arith.trunci convert)"
        if not element.is_signless and is_used:
            return f"use i{element.width}: ops say whether there is a sign, types do not"
    elif isinstance(element, ir.ComplexType):
        return "use two tensors, of the real and of the imaginary parts"
    elif isinstance(kind, ir.RankedTensorType) and not isinstance(element, ir.IndexType):
        return "use floats or integers"
    return ""

"""The pass ``check-sizes``."""

import math
from dataclasses import dataclass

from ..dialects.build import constant_value
from ..dialects.mlir import ir
from .passes import Pass, PassError
from .rewriting import ops_in, ops_of
from .slices import forall_bounds, slice_parts

MOST_BYTES = 2**63 - 1  # that an index counts

# Which operand is the whole.
SLICES = {"tensor.extract_slice": 0, "tensor.insert_slice": 1, "tensor.parallel_insert_slice": 1}


@dataclass(frozen=True)
class CheckSizes(Pass):
    """Fails where an argument or a result takes more bytes than an index counts, 2^63 − 1, and where the size of a
    dimension is asked for that a tensor does not have, and where a loop has a slice that passes the end of its tensor,
    by numbers that are all known. Changes nothing::

        func.func @f(%a: tensor<4294967296x4294967296xf16>)   // error: argument 0 takes more than 2^63 - 1 bytes

        scf.forall (%i) = (0) to (20) step (4) … {
          tensor.extract_slice %x[%i, 0] [4, 8] [1, 1] : tensor<16x8xf32> to …   // error: it passes 16, at 16 + 4

    No memory has so many; strides and offsets would overflow without a word. Open sizes count as one. Sizes of zero
    do too, as strides are products of the others.
    """

    def run(self, op: ir.Operation) -> None:
        for function in ops_in(op, "func.func"):
            kinds, blocks = function.opview.type, list(function.regions[0].blocks)
            arguments = blocks[0].arguments if blocks else []
            ends = [end for block in blocks for end in ops_of(block) if end.name == "func.return"]
            for i, kind in enumerate(kinds.inputs):
                _check(f"argument {i}", kind, arguments[i].location if blocks else function)
            for i, kind in enumerate(kinds.results):
                _check(f"result {i}", kind, ends[0] if ends else function)
        for dim in ops_in(op, "tensor.dim", "memref.dim"):
            d, kind = constant_value(dim.operands[1]), dim.operands[0].type
            if d is not None and kind.has_rank and not 0 <= d < kind.rank:
                raise PassError(f"there is no dimension {d} in {kind}: name one of its {kind.rank}, from 0", dim)
        for forall in ops_in(op, "scf.forall"):
            _check_slices(forall)


def _check_slices(forall: ir.Operation) -> None:
    """Of those that each iteration has; upstream checks those whose offsets are numbers."""
    body = forall.regions[0].blocks[0]
    last: dict[ir.Value, int] = {}  # of the variables
    for variable, start, end, step in zip(body.arguments, *forall_bounds(forall), strict=False):
        if isinstance(start, int) and isinstance(end, int) and isinstance(step, int) and step > 0:
            if end <= start:
                return  # no iteration
            last[variable] = start + (end - start - 1) // step * step
    parallel = [
        one for op in ops_of(body) if op.name == "scf.forall.in_parallel" for one in ops_of(op.regions[0].blocks[0])
    ]
    for op in [*ops_of(body), *parallel]:
        if op.name not in SLICES:
            continue
        whole = op.operands[SLICES[op.name]].type
        for d, (offset, size, stride) in enumerate(zip(*slice_parts(op), strict=True)):
            if (
                isinstance(offset, ir.Value)
                and offset in last
                and isinstance(size, int)
                and isinstance(stride, int)
                and not whole.is_dynamic_dim(d)
            ):
                end = last[offset] + (size - 1) * stride + 1
                if size > 0 and end > whole.get_dim_size(d):
                    found = f"of {whole} passes its end: dimension {d} is read or written up to {end}"
                    raise PassError(f"a slice {found}, in the last iteration of the loop", op)


def _check(name: str, kind: ir.Type, place: ir.Location | ir.Operation) -> None:
    if not isinstance(kind, ir.RankedTensorType | ir.MemRefType):
        return
    sizes = [kind.get_dim_size(d) for d in range(kind.rank) if not kind.is_dynamic_dim(d)]
    if math.prod(size for size in sizes if size) * _bytes(kind.element_type) > MOST_BYTES:
        raise PassError(f"{name}, {kind}, takes more than 2^63 - 1 bytes: give it smaller sizes, or split it", place)


def _bytes(element: ir.Type) -> int:
    if isinstance(element, ir.ComplexType):
        return 2 * _bytes(element.element_type)
    return -(-getattr(element, "width", 64) // 8)  # an index has no width

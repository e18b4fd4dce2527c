"""Tensor maps of a kernel's arguments: made by the host before each launch, passed as parameters."""

from __future__ import annotations

from collections.abc import Iterable

from ....dialects import build
from ....dialects.mlir import ir
from ....dialects.tile import TensorMapOp, tensor_map_type
from ..axes import DYNAMIC
from ..launching import FIRST_ARGUMENT, launches_of, relaunch, update_type
from .bulk_copies import BulkCopy, Copy


def pass_tensor_maps(kernel: ir.Operation, copies: Iterable[Copy]) -> dict[Copy, ir.Value]:
    """New arguments of `kernel`, a tensor map for each kind of copy by the engine; its launches make and pass them."""
    wanted = [c for c in dict.fromkeys(copies) if isinstance(c, BulkCopy)]
    block = kernel.regions[0].blocks[0]
    places = {argument: i for i, argument in enumerate(block.arguments)}
    kinds = [tensor_map_type(c.rows, c.line, c.kind.element_type) for c in wanted]
    maps: dict[Copy, ir.Value] = {
        c: block.add_argument(kind, kernel.location) for c, kind in zip(wanted, kinds, strict=True)
    }
    update_type(kernel)
    for launch in launches_of(kernel):
        with ir.InsertionPoint(launch), launch.location:
            arguments = list(launch.operands)[FIRST_ARGUMENT:]
            made = [_tensor_map(c, arguments, places, kind) for c, kind in zip(wanted, kinds, strict=True)]
            relaunch(launch, [*launch.operands, *made])
    return maps


def _tensor_map(copy: BulkCopy, arguments: list[ir.Value], places: dict[ir.Value, int], kind: ir.Type) -> ir.Value:
    memory = arguments[places[copy.memory]]
    sizes = []
    for d, end in enumerate(copy.ends):
        if isinstance(end, int):
            sizes.append(build.index(end))
        elif end is not None:
            sizes.append(arguments[places[end]])
        elif memory.type.shape[d] != DYNAMIC:
            sizes.append(build.index(memory.type.shape[d]))
        else:
            sizes.append(ir.Operation.create("memref.dim", [ir.IndexType.get()], [memory, build.index(d)]).result)
    integer = ir.IntegerType.get_signless(64)
    box = ir.ArrayAttr.get([ir.IntegerAttr.get(integer, size) for size in copy.box])
    return TensorMapOp(memory, sizes, box, result=kind).result

"""The pass ``elements-as-stored``."""

from __future__ import annotations

from dataclasses import dataclass

from ....dialects.mlir import ir
from ....dialects.tile import layout_of
from ....dialects.tiling.structured import all_parallel
from ...passes import Pass
from ...rewriting import defining_op, ops_in, ops_of
from ..marks import AS_STORED


@dataclass(frozen=True)
class ElementsAsStored(Pass):
    """What is computed of tiles from memory only to be stored is computed as it is stored, a few columns at a time::

        %g, %u = tile.convert_layout %0, tile.convert_layout %1 : … -> tensor<128x176xbf16, "fragment">
        %s = linalg.generic … ins(%g) { 1 / (1 + exp(-g)) }
        %a = linalg.generic … ins(%d, %s, %g) …
        %b = linalg.generic … ins(%d, %s, %g, %u) …                         // the gradients of silu(g)·u
        tile.store (%a, …)
        tile.store (%b, …)
      becomes
        %s = linalg.generic … ins(%g) { 1 / (1 + exp(-g)) } attrs = {tile.as_stored}
        …

    One op after the other, threads would have to hold all of %s, %a and %b besides the products %d and the tiles that
    they come together with. Of 32 columns they hold a few numbers, once those of the columns before are written.
    """

    def run(self, op: ir.Operation) -> None:
        for kernel in ops_in(op, "gpu.func"):
            for block in dict.fromkeys(store.block for store in ops_in(kernel, "tile.store")):
                found = _only_stored(block)
                if any(_is_from_memory(v) for generic in found for v in generic.operands):
                    for generic in found:
                        generic.attributes[AS_STORED] = ir.UnitAttr.get()


def _only_stored(block: ir.Block) -> list[ir.Operation]:
    """Element-wise ops on fragments whose results are stored, or read by other such ops alone."""
    found: list[ir.Operation] = []
    for op in reversed(ops_of(block)):
        if op.name != "linalg.generic" or not all_parallel(op):
            continue
        users = [use.owner.operation for result in op.results for use in result.uses]
        read_here = all(user in found or (user.name == "tile.store" and user.block == block) for user in users)
        if users and read_here and all(layout_of(result.type) == "fragment" for result in op.results):
            found.append(op)
    return found


def _is_from_memory(value: ir.Value) -> bool:
    op = defining_op(value)
    is_fragment = isinstance(value.type, ir.RankedTensorType) and layout_of(value.type) == "fragment"
    return is_fragment and op is not None and op.name in ("tile.load", "tile.convert_layout")

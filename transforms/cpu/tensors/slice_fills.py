"""The pass ``slice-fills``."""

from dataclasses import dataclass

from ....dialects import build
from ....dialects.mlir import ir
from ...passes import Pass
from ...rewriting import carried_init, defining_op, erase_if_unused, ops_in
from ...slices import slice_sizes


@dataclass(frozen=True)
class SliceFills(Pass):
    """Fills a tile in place of taking a slice of a filled tensor::

        %0 = linalg.fill ins(%zero) outs(%e : tensor<2048x64xf32>)
        scf.forall (%i) … { %1 = tensor.extract_slice %0[%i, 0] [64, 64] [1, 1] …
    becomes
        scf.forall (%i) … { %2 = tensor.empty() : tensor<64x64xf32>   %1 = linalg.fill ins(%zero) outs(%2) …

    What statistics and accumulators start from then needs no memory of the size of the whole. What a parallel loop
    shares is, in an iteration, what it was before the loop.
    """

    def run(self, op: ir.Operation) -> None:
        for slice_ in ops_in(op, "tensor.extract_slice"):
            fill = defining_op(_shared(slice_.operands[0]))
            kind = slice_.results[0].type
            if fill is None or fill.name != "linalg.fill" or kind.rank != fill.results[0].type.rank:
                continue
            with ir.InsertionPoint(slice_), slice_.location:
                new = build.fill(fill.operands[0], build.empty(slice_sizes(slice_), kind.element_type))
            slice_.results[0].replace_all_uses_with(new)
            slice_.erase()
            erase_if_unused(fill)


def _shared(value: ir.Value) -> ir.Value:
    """What a tensor that an scf.forall shares was before the loop; other values themselves."""
    is_shared = isinstance(value.owner, ir.Block) and value.owner.owner.name == "scf.forall"
    return (carried_init(value) if is_shared else None) or value

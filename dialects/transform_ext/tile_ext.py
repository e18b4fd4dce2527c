"""``transform.structured.tile_ext``: tiles an op by our tiling interface and fuses nothing.

    %transformed, %loops:2 = transform.structured.tile_ext %op {tile_sizes = [4, 0, 8], tile_interchange = [2, 1, 0]}

Sizes, interchange and results are those of ``fuse_ext``.
"""

from ..mlir import ir
from ..verification import expect, verifier
from .fuse_ext import TilingOp, verify_tiling


def verify_tile(op: ir.OpView) -> None:
    verify_tiling(op)
    expect(len(op.operation.operands) == 1, f"expects one handle, but found {len(op.operation.operands)}")


class TileExtOp(TilingOp, name="tile_ext"):
    """See the module."""

    assembly_name = "transform.structured.tile_ext"
    verify_invariants = staticmethod(verifier(verify_tile))

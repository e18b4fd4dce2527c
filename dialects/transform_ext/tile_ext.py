"""``transform.structured.tile_ext``: tiles an op by our tiling interface and fuses nothing.

    %transformed, %loops:2 = transform.structured.tile_ext %op {tile_sizes = [4, 0, 8], tile_interchange = [2, 1, 0]}

Sizes, interchange and results are those of ``fuse_ext``.
"""

from collections.abc import Sequence
from typing import Any

from ..mlir import ext, ir
from ..verification import expect, verifier
from .dialect import TransformExt
from .fuse_ext import TILING_DEFAULTS, TILING_FORMAT, verify_tiling


def verify_tile(op: ir.OpView) -> None:
    verify_tiling(op)
    expect(len(op.operation.operands) == 1, f"expects one handle, but found {len(op.operation.operands)}")


class TileExtOp(TransformExt.Operation, name="tile_ext"):
    """See the module."""

    tile_sizes: ir.ArrayAttr
    tile_interchange: ir.ArrayAttr
    handles: Sequence[ext.Operand[Any]]
    produced: Sequence[ext.Result[Any]]

    consumed_operands = 1
    assembly_name = "transform.structured.tile_ext"
    assembly_format = TILING_FORMAT
    assembly_defaults = TILING_DEFAULTS
    verify_invariants = staticmethod(verifier(verify_tile))

"""``transform.structured.fuse_ext``: tiles a root op and fuses its producers into the loops, softmax included.

    %transformed, %loops:2 = transform.structured.fuse_ext %root, %stop {tile_sizes = [4, 0, 8],
                                                                         tile_interchange = [2, 1, 0]}

`tile_sizes`: one per loop of the root, 0 = not tiled. `tile_interchange`: the root's loops from outer to inner; empty =
as they are. Producers from a stop operand on stay outside. Results: the root's tile, and a loop per nonzero size, outer
to inner. The handle of the root is consumed.
"""

from collections.abc import Sequence
from typing import Any

from ..mlir import ext, ir
from ..verification import expect, verifier
from .dialect import TransformExt, expect_op_handles


def integers(attribute: ir.ArrayAttr) -> list[int] | None:
    """The numbers of an array attribute; None if it holds something else."""
    return [a.value for a in attribute] if all(isinstance(a, ir.IntegerAttr) for a in attribute) else None


def verify_tiling(op: ir.OpView) -> None:
    """Targets, sizes and the number of loop handles."""
    expect(len(op.operation.operands) >= 1, "expects the handle of the op to tile")
    expect_op_handles(op)
    for name in op.operation.attributes:
        declared = name in ("tile_sizes", "tile_interchange") or "." in name  # another dialect's have a point
        expect(declared, f"has no attribute '{name}'; it has tile_sizes and tile_interchange")
    sizes = integers(op.tile_sizes)
    expect(sizes is not None, f"expects tile_sizes to be a list of integers, but found {op.tile_sizes}")
    interchange = integers(op.tile_interchange)
    expect(
        interchange is not None, f"expects tile_interchange to be a list of integers, but found {op.tile_interchange}"
    )
    tiled = sum(size != 0 for size in sizes or [])
    found = len(op.operation.results) - 1
    expect(found == tiled, f"expects a loop handle for each of the {tiled} nonzero tile sizes, but found {found}")


class TilingOp(TransformExt.Operation):
    """What `fuse_ext` and `tile_ext` share. `handles`: root, then stops. `produced`: the root's tile, then loops."""

    tile_sizes: ir.ArrayAttr
    tile_interchange: ir.ArrayAttr
    handles: Sequence[ext.Operand[Any]]
    produced: Sequence[ext.Result[Any]]

    consumed_operands = 1
    assembly_format = "$handles attr-dict (`:` functional-type)?"
    assembly_defaults = {"tile_sizes": "[]", "tile_interchange": "[]"}  # noqa: RUF012 (annotations are fields here)


class FuseExtOp(TilingOp, name="fuse_ext"):
    """See the module."""

    assembly_name = "transform.structured.fuse_ext"
    verify_invariants = staticmethod(verifier(verify_tiling))

"""``transform.structured.tile_loop_hint``: marks the parallel loops around an op with ``__byteir_parallel__``.

    transform.structured.tile_loop_hint %transformed : !pdl.operation

A loop is parallel if no iteration reads what another one wrote. Marked are the outermost loops up to the first that is
not parallel: one that starts anew in every step of a sequential loop is not worth a thread.
"""

from typing import Any

from ..mlir import ext
from ..verification import verifier
from .dialect import TransformExt, expect_op_handles


class TileLoopHintOp(TransformExt.Operation, name="tile_loop_hint"):
    """See the module."""

    target: ext.Operand[Any]

    consumed_operands = 0
    assembly_name = "transform.structured.tile_loop_hint"
    assembly_format = "$target attr-dict (`:` type($target)^)?"
    verify_invariants = staticmethod(verifier(expect_op_handles))

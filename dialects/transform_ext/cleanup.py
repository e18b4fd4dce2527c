"""``transform.cleanup``: canonicalises the payload and removes common subexpressions and dead code."""

from .dialect import TransformExt


class CleanupOp(TransformExt.Operation, name="cleanup"):
    """See the module. It has neither operands nor results; handles to ops that remain stay valid."""

    consumed_operands = 0
    assembly_name = "transform.cleanup"
    assembly_format = "attr-dict"

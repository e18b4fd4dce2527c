"""The pass ``protect-arguments``."""

from dataclasses import dataclass

from ....dialects.mlir import ir
from ...argument_attributes import WRITABLE
from ...passes import Pass
from ...rewriting import ops_in
from ..marks import DONATED


@dataclass(frozen=True)
class ProtectArguments(Pass):
    """Marks the tensor arguments of public functions as read-only, so that bufferization copies before it writes::

        func.func @main(%a: tensor<4xf32>)
    becomes
        func.func @main(%a: tensor<4xf32> {bufferization.writable = false})

    Those that may be written to, which the graph says by ``bufferization.writable = true``, are `linalg_ext.donated`
    from here on: bufferization keeps that.
    """

    def run(self, op: ir.Operation) -> None:
        for function in ops_in(op, "func.func"):
            attributes = function.attributes
            if "sym_visibility" in attributes and attributes["sym_visibility"].value != "public":
                continue
            view = function.opview
            if not function.regions[0].blocks:
                continue
            old = list(view.arg_attrs) if "arg_attrs" in attributes else []
            new = []
            for i, kind in enumerate(view.type.inputs):
                entries = {a.name: a.attr for a in old[i]} if old else {}
                if isinstance(kind, ir.RankedTensorType):
                    writable = entries.setdefault(WRITABLE, ir.BoolAttr.get(False))
                    if ir.BoolAttr(writable).value:
                        entries[DONATED] = ir.UnitAttr.get()
                new.append(ir.DictAttr.get(entries))
            if new:
                view.arg_attrs = ir.ArrayAttr.get(new)

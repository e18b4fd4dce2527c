"""The pass ``name-functions``."""

from dataclasses import dataclass

from ..dialects.mlir import ir
from .nvidia.version_functions import VERSIONS, as_attribute, versions_of
from .passes import Pass
from .rewriting import functions_of, ops_in
from .symbols import symbol_of


@dataclass(frozen=True)
class NameFunctions(Pass):
    """Functions whose names are no identifiers, or those of functions that lowered code calls, get others::

        func.func @"block 0/attention"(…)   func.func @exp(…)   func.func @""(…)
    becomes
        func.func @block_0_attention_9f42bcd0(…)   func.func @exp_06be521b(…)   func.func @f__00000000(…)

    MLIR takes any text. LLVM has no functions without a name and takes ``llvm.memcpy`` for its own, and PTX knows
    letters, digits and underscores alone. Functions without a body are those of a library, and keep their names.
    """

    def run(self, op: ir.Operation) -> None:
        names = {}
        for function in functions_of(op):
            name = ir.StringAttr(function.attributes["sym_name"]).value
            if function.regions[0].blocks and symbol_of(name) != name:
                names[name] = symbol_of(name)
        if not names:
            return
        for function in functions_of(op):
            attributes = function.attributes
            name = ir.StringAttr(attributes["sym_name"]).value
            attributes["sym_name"] = ir.StringAttr.get(names.get(name, name))
            if versions := versions_of(function):
                attributes[VERSIONS] = as_attribute([(names.get(v, v), conditions) for v, conditions in versions])
        for use in ops_in(op, "func.call", "func.constant"):
            for place in ("callee", "value"):
                if place in use.attributes and (name := use.attributes[place].value) in names:
                    use.attributes[place] = ir.FlatSymbolRefAttr.get(names[name])

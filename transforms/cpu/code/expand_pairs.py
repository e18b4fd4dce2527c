"""The pass ``expand-pairs``."""

from dataclasses import dataclass

from ....dialects.mlir import ir
from ...passes import Pass
from ...rewriting import ops_in
from .. import pairs
from ..pair_powers import PAIRED


@dataclass(frozen=True)
class ExpandPairs(Pass):
    """Computes with words in bodies that became loops, as those that `vectorize-linalg` cannot evaluate do::

        %w = pair.pack %x, %y : (f32, f32) -> i32
    becomes
        %a = arith.truncf %x : f32 to bf16      # and %b of %y
        %w = %a | %b << 16                      # their bits
    """

    def run(self, op: ir.Operation) -> None:
        for old in ops_in(op, "pair.widen", *PAIRED):
            with ir.InsertionPoint(old), old.location:
                if old.name == "pair.widen":
                    word = pairs.widen(old.operands[0], ir.TypeAttr(old.attributes["element"]).value)
                else:
                    word = PAIRED[old.name](*old.operands)
            old.results[0].replace_all_uses_with(word)
            old.erase()

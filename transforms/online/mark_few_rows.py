"""The pass ``mark-few-rows``."""

from dataclasses import dataclass

from ...dialects.mlir import ir
from ..passes import Pass, option
from ..rewriting import ancestors
from .modified_scores import modified_scores_in

FEW_ROWS = "few_rows"  # of a parallel loop: its tasks compute tiles of few rows


def mark_as(loop: ir.Operation, new: ir.Operation) -> None:
    """Marks a loop that does a part of the work of `loop` as that is."""
    if FEW_ROWS in loop.attributes:
        new.attributes[FEW_ROWS] = loop.attributes[FEW_ROWS]


@dataclass(frozen=True)
class MarkFewRows(Pass):
    """Marks parallel loops over tiles of few rows of scores (decoding)::

        scf.forall (%i) = (0) to (%n) step (4) … {
          %p:4 = linalg_ext.softmax dimension(1) ins(%s : tensor<4x512xf32>) …
        }
    becomes, for up to 16 rows
        scf.forall (%i) = (0) to (%n) step (4) … { … } {few_rows}

    Such tasks wait for keys and values: `outline-parallel` tells their functions, and what makes machine code of these
    (`runtime/object_files.py`) takes less time for it.
    """

    rows: int = option("how many rows of a tile are few, all dimensions but the keys' together", 0)

    def run(self, op: ir.Operation) -> None:
        for scores in modified_scores_in(op):
            loops = [loop for loop in ancestors(scores.consumer) if loop.name == "scf.forall"]
            if loops and scores.most_rows <= self.rows:
                loops[-1].attributes[FEW_ROWS] = ir.UnitAttr.get(op.context)

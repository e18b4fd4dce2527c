"""The pass ``fuse-rows``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....dialects.mlir import ir
from ....dialects.tiling.structured import iterator_types
from ...extents import MIDDLING
from ...passes import Pass, option, remark
from ...rewriting import functions_of, ops_of
from ...tile_and_fuse import Tiled, tile_and_fuse
from .row_groups import RowGroup, reduced_rows

COLUMNS = 64  # the least rows of a tile that are columns of a tensor: what lies side by side is read together


@dataclass(frozen=True)
class FuseRows(Pass):
    """Computes a few rows at a time of what reads rows more than once, such as a norm, or a softmax that stands alone::

        %s = linalg.generic ins(%x) outs(%zeros) { addf } -> tensor<4096xf32>
        %y = linalg.generic ins(%x, %s) outs(%e) { divf } -> tensor<4096x768xf32>
      becomes
        %y = scf.for %i = %c0 to %c4096 step %c32 iter_args(%o = %e) -> tensor<4096x768xf32> {
          …
          %y1 = scf.for %j = %c0 to %c32 step %c1 iter_args(%o1 = %e1) -> tensor<32x768xf32> {
            %x2 = tensor.extract_slice %x1[%j, 0] [1, 768] [1, 1]
            %s2 = linalg.generic ins(%x2) outs(%zeros2) { addf } -> tensor<1xf32>
            %y2 = linalg.generic ins(%x2, %s2) outs(%e2) { divf } -> tensor<1x768xf32>
            scf.yield tensor.insert_slice %y2 into %o1[%j, 0] [1, 768] [1, 1]
          }
          scf.yield tensor.insert_slice %y1 into %o[%i, 0] [32, 768] [1, 1]
        }

    They stay in the cache from one op to the next, while the next rows come; large tensors would come from memory for
    each op. The outer loop's iterations are tasks, the inner one computes as few rows as fill some vectors. Rows are
    what is left of a tensor once something is summed up along it, and may be columns. What is computed element by
    element before and after the sums goes along; matmuls do not, which share what they read between rows.
    """

    task: int = option("elements that a task is to have, of the longest tensor; fewer in all stay as they are", 1 << 15)
    tile: int = option("elements that are to be computed at a time", 1 << 7)
    longest: int = option("elements of a row, of more of which little would stay in the cache", 1 << 18)

    def run(self, op: ir.Operation) -> None:
        for function in functions_of(op):
            for block in function.regions[0].blocks:
                for group in _groups(block):
                    self._tile(group)

    def _tile(self, group: RowGroup) -> None:
        lengths = group.lengths()
        sizes = group.sizes()
        if len(lengths) < 2 or max(lengths) > self.longest or 0 in (*lengths, *sizes):
            return
        least = COLUMNS if group.has_columns() else 1
        per_task = _steps(sizes, max(least, self.task // max(lengths)))
        if per_task == sizes:
            return
        at_a_time = _steps(per_task, max(least, self.tile // max(lengths)))
        root, rows, stops, location = group.root, group.rows[group.root], group.stops(), group.root.location
        tiled = Tiled(root, [])
        for whole, steps in ((sizes, per_task), (per_task, at_a_time)):
            of_loops = [0] * len(iterator_types(tiled.root))
            for loop, size, step in zip(rows, whole, steps, strict=True):
                of_loops[loop] = step if step != size else 0
            tiled = tile_and_fuse(tiled.root, of_loops, stops=stops)
        remark(location, f"{len(tiled.fused) + 1} ops are computed by {at_a_time} rows, in tasks of {per_task}")


def _steps(sizes: Sequence[int | None], most: int) -> list[int]:
    """How many of `most` rows are along each of their dimensions."""
    steps: list[int] = []
    for size in reversed(sizes):
        steps.insert(0, most if size is None else _step(size, most))
        most = max(1, most // (size or MIDDLING))
    return steps


def _step(size: int, most: int) -> int:
    """A step of at most `most` that divides `size`, if there is a large one."""
    return next((step for step in range(min(size, most), most // 2, -1) if size % step == 0), min(size, most))


def _groups(block: ir.Block) -> list[RowGroup]:
    order = {op: number for number, op in enumerate(ops_of(block))}
    found = []
    for op in list(order):
        if op in order and (rows := reduced_rows(op)):
            found.append(RowGroup(op, rows, order))
            for of_group in found[-1].rows:
                del order[of_group]
    return found

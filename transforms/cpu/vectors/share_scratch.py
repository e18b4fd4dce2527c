"""The pass ``share-scratch``."""

from dataclasses import dataclass

from ....dialects.mlir import ir
from ...host import matrix_unit
from ...passes import Pass, option
from ...rewriting import ancestors, ops_in
from ..matrix_unit import MATRIX_OPTION, has_tiles
from ..memory import ALIGNMENT, TAKES_AWAY


@dataclass(frozen=True)
class ShareScratch(Pass):
    """Lets scratch of loops that run one after the other be the same memory::

        scf.parallel (%i) = … {
          %a = memref.alloca() : memref<16384xi8>
          %b = memref.alloca() : memref<16384xi8>
          scf.for … { … %a … }                        # tiles that a mask cuts
          scf.for … { … %b … }                        # live ones
    becomes
        scf.parallel (%i) = … {
          %a = memref.alloca() : memref<16384xi8>
          scf.for … { … %a … }
          scf.for … { … %a … }

    Where a mask splits the loop over keys, each part has its own scores and probabilities, which would push each other,
    and the queries, out of the L1 cache. A buffer lives from the first op of its block that uses it, itself or inside
    of it, to the last one; only buffers of one type share. Tiles of a matrix unit (AMX) keep their own.
    """

    matrix: str = option(MATRIX_OPTION, "")

    def run(self, op: ir.Operation) -> None:
        if has_tiles(matrix_unit(self.matrix)):
            return
        by_block: dict[ir.Block, list[ir.Operation]] = {}
        for alloca in ops_in(op, "memref.alloca"):
            alignment = alloca.attributes.get("alignment")
            if not alloca.operands and alignment is not None and ir.IntegerAttr(alignment).value == ALIGNMENT:
                by_block.setdefault(alloca.block, []).append(alloca)
        for block, allocas in by_block.items():
            _share(block, allocas)


def _share(block: ir.Block, allocas: list[ir.Operation]) -> None:
    places = {o.operation: i for i, o in enumerate(block.operations)}
    lives = [(_life(alloca, places), alloca) for alloca in allocas if list(alloca.results[0].uses)]
    ends: dict[ir.Operation, int] = {}  # of the buffers that are kept: the last op that uses what is in them by now
    for (first, last), alloca in sorted(lives, key=lambda life: life[0][0]):
        kind = alloca.results[0].type
        kept = next((o for o, end in ends.items() if end < first and o.results[0].type == kind), None)
        ends[kept or alloca] = last
        if kept is not None:
            if places[alloca] < places[kept]:
                kept.move_before(alloca)
                places[kept] = places[alloca]
            alloca.results[0].replace_all_uses_with(kept.results[0])
            alloca.erase()


def _life(alloca: ir.Operation, places: dict[ir.Operation, int]) -> tuple[int, int]:
    """The first and the last op of the block in which the buffer, or a view of it, is used."""
    found, pending = [], [alloca.results[0]]
    while pending:
        for use in pending.pop().uses:
            user = use.owner.operation
            pending += [r for r in user.results if isinstance(r.type, ir.MemRefType)]
            found.append(next(places[o] for o in (user, *ancestors(user)) if o in places))
            if user.name == "scf.yield" or user.name in TAKES_AWAY:  # who has it then is not followed
                found.append(len(places))
    return min(found), max(found)

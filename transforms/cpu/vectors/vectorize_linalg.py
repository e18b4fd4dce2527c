"""The pass ``vectorize-linalg``."""

from dataclasses import dataclass

from ....dialects.mlir import ir
from ...online.before_loops import SMALL
from ...passes import Pass, option, warn
from ...rewriting import ops_in
from ..initial_values import filled_with, find_fills, find_starts, is_fill
from ..structured import Structured, Unsupported
from ..target import host_target
from .emit import Emitter
from .followers import follower
from .prefetch import find_streams
from .schedule import check_body, choose


@dataclass(frozen=True)
class VectorizeLinalg(Pass):
    """Turns linalg.generic on buffers into loops over register tiles in the vector dialect; see `emit` and `schedule`::

        linalg.generic {… (m, n, k) …} ins(%a, %b : memref<64x64xf32>, memref<64x128xf32>) outs(%c : memref<64x128xf32>)
    becomes
        scf.for %n = %c0 to %c128 step %c64 {
          scf.for %m = %c0 to %c64 step %c4 {
            %c00 = vector.load %c[%m, %n] : memref<64x128xf32>, vector<16xf32>
            …
            %r:16 = scf.for %k = %c0 to %c64 step %c1 iter_args(%acc00 = %c00, …) {
              %b0 = vector.load %b[%k, %n] : …
              %a0 = memref.load %a[%m, %k] : …
              %v = vector.broadcast %a0 : f32 to vector<16xf32>
              %0 = math.fma %v, %b0, %acc00 : vector<16xf32>
              …

    Accumulators that were filled with a constant right before start from it in registers; those that were updated
    element by element, such as an output that is rescaled, are updated when they are loaded. What is reduced of a
    result right after it, as a row's maximum, is reduced before it is stored (`followers`).
    Ops with maps that are no projections, or with a body that does not work on vectors, are left, with a warning.
    """

    vector_bytes: int = option("bytes of a vector; 0 = what the host has", 0)
    by_two: str = option("load neighbours that are broadcast by one load: yes or no; empty = if it pays here", "")
    ahead: str = option("the cache that streamed operands are asked for into: l1 or l2; empty = as suits the host", "")
    halves: str = option("vectors of 64 bytes are computed with by halves: yes or no; empty = as on the host", "")

    def run(self, op: ir.Operation) -> None:
        target = host_target(self.vector_bytes, self.by_two, self.ahead, self.halves)
        found = [
            structured for generic in ops_in(op, "linalg.generic") if (structured := _checked(generic)) is not None
        ]
        # By objects of ours: ops that are alike have one hash, and those that are erased cannot be compared.
        schedules = {structured: choose(structured, target) for structured in found}
        following: dict[Structured, Structured] = {}
        followers: list[ir.Operation] = []
        for structured in found:
            after = follower(structured, schedules[structured]) if structured.op not in followers else None
            if after is not None:
                following[structured] = after
                followers.append(after.op)
        found = [structured for structured in found if structured.op not in followers]
        by_op = {structured.op: structured for structured in found}
        starts = [find_fills(structured) for structured in found]
        for structured, by_number in zip(found, starts, strict=True):
            for number, start in find_starts(structured).items():
                if start in by_op and not find_fills(by_op[start]):
                    by_number.setdefault(number, start)
        streams = find_streams(op)
        prefetched = {structured: streams.get(structured.op, ()) for structured in found}
        dropped = [start for by_number in starts for start in by_number.values()]
        initial = [
            {n: filled_with(start) if is_fill(start) else by_op[start] for n, start in by_number.items()}
            for by_number in starts
        ]
        left = [(op, begin) for op, begin in zip(found, initial, strict=True) if op.op not in dropped]
        for structured, begin in left:
            after = following.get(structured)
            last = structured.op if after is None else after.op  # what comes between them is not touched
            with ir.InsertionPoint(last), structured.op.location:
                own = prefetched[structured]
                Emitter(structured, schedules[structured], begin, own, target.asks_l2, after).emit()
            structured.op.erase()
            if after is not None:
                after.op.erase()
        for start in dropped:
            start.erase()


def _checked(generic: ir.Operation) -> Structured | None:
    """What can be vectorised; else None, and a warning."""
    try:
        structured = Structured(generic)
        check_body(structured)
    except Unsupported as reason:
        if SMALL not in generic.attributes:
            warn(generic, f"runs as scalar loops: {reason}")
        return None
    return structured

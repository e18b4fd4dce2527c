"""The pass ``transform-interpreter``, and what our transform ops do."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..dialects.mlir import interpreter, ir
from ..dialects.transform_ext.dialect import APPLY, FAILURES, Apply
from ..dialects.transform_ext.fuse_ext import integers
from .fuse_attention import mark_parallel
from .passes import Pass, PassError, warn
from .rewriting import ancestors, ops_in, ops_of
from .stops import warn_of_idle_stops
from .tile_and_fuse import tile_and_fuse
from .tiling_remarks import TilingRemark

ENTRY = "__transform_main"
NAMED = "transform.with_named_sequence"  # on a module that has named sequences


@dataclass(frozen=True)
class TransformInterpreter(Pass):
    """Runs the transform script of the module on the module, and removes the script::

        func.func @f(…) { … {__root__} … }                          func.func @f(…) {
        transform.sequence failures(propagate) {                      scf.for … {
        ^bb0(%m: !pdl.operation):                              →        … {__root__} …
          %r = transform.structured.match attributes {__root__} …     }
          %t, %l:2 = transform.structured.fuse_ext %r {…}           }
        }

    The script is every top-level ``transform.sequence`` in turn, and then ``transform.named_sequence
    @__transform_main``, which may be in a module ``attributes {transform.with_named_sequence}`` of its own.
    """

    def run(self, op: ir.Operation) -> None:
        sequences, named = _scripts(op)
        entry = [s for s in named if ir.StringAttr(s.attributes["sym_name"]).value == ENTRY]
        if not sequences and not entry:
            raise PassError(
                f"the module holds no transform script: no transform.sequence and no named_sequence @{ENTRY}", op
            )
        # The script stands in a module of its own: what it does to its payload must not touch itself.
        script = ir.Module.create(op.location)
        script.operation.attributes[NAMED] = ir.UnitAttr.get()
        holders = {sequence.parent.operation for sequence in sequences + named}
        for sequence in sequences + named:
            script.body.append(sequence)
        for holder in holders:
            if NAMED in holder.attributes:
                del holder.attributes[NAMED]
            if holder != op and not ops_of(holder.regions[0].blocks[0]):
                holder.erase()
        for sequence in sequences + named:
            _expand_cleanup(sequence)
        for sequence in sequences + entry:
            _apply(op, sequence, script)


def _apply(payload: ir.Operation, sequence: ir.Operation, script: ir.Module) -> None:
    FAILURES.clear()
    try:
        interpreter.apply_named_sequence(payload, sequence, script.operation)
    except ValueError as error:
        if FAILURES:
            raise FAILURES[0] from None
        raise _as_pass_error(str(error), sequence) from None


def _as_pass_error(text: str, sequence: ir.Operation) -> PassError:
    """The bindings give upstream's diagnostics as text: ``Diagnostic message at loc("file":line:col): message``."""
    found = re.search(r"Diagnostic message at (loc\(.*?\)): (.*)", text, re.DOTALL)
    if not found:
        return PassError(text, sequence)
    place = re.fullmatch(r'loc\("(.*)":(\d+):(\d+)\)', found.group(1))
    location = ir.Location.file(place[1], int(place[2]), int(place[3])) if place else sequence.location
    return PassError(found.group(2).strip(), location)


def _scripts(module: ir.Operation) -> tuple[list[ir.Operation], list[ir.Operation]]:
    """The sequences and named sequences of a module and of those in it that are marked as scripts."""
    top = ops_of(module.regions[0].blocks[0])
    marked = [o for o in top if o.name == "builtin.module" and NAMED in o.attributes]
    top += [inner for o in marked for inner in ops_of(o.regions[0].blocks[0])]
    return [o for o in top if o.name == "transform.sequence"], [o for o in top if o.name == "transform.named_sequence"]


def _expand_cleanup(sequence: ir.Operation) -> None:
    """``transform.cleanup`` is upstream's canonicalization and CSE on the root, which keep handles up to date."""
    root = sequence.regions[0].blocks[0].arguments[0]
    for op in ops_in(sequence, "transform_ext.cleanup"):
        with ir.InsertionPoint(op), op.location:
            patterns = ir.Operation.create("transform.apply_patterns", [], [root], regions=1)
            with ir.InsertionPoint(patterns.regions[0].blocks.append()):
                ir.Operation.create("transform.apply_patterns.canonicalization")
            ir.Operation.create("transform.apply_cse", [], [root])
        op.erase()


def _applies(name: str) -> Callable[[Apply], Apply]:
    def register(function: Apply) -> Apply:
        APPLY[name] = function
        return function

    return register


def _targets(op: ir.OpView, payload: Sequence[Sequence[ir.Operation]]) -> Sequence[ir.Operation]:
    if not payload[0]:
        raise PassError("the handle of the op to tile is empty; the match before it found nothing", op)
    return payload[0]


def _tile(op: ir.OpView, rewriter: Any, payload: list[list[ir.Operation]], fuse: bool) -> list[list[ir.Operation]]:
    sizes, interchange = integers(op.tile_sizes) or [], integers(op.tile_interchange) or []
    stops = [stop for stopped in payload[1:] for stop in stopped]
    produced: list[list[ir.Operation]] = [[] for _ in op.operation.results]
    targets = _targets(op, payload)
    warn_of_idle_stops(stops, targets)
    if not all(payload):
        warn(op, "the handle of a stop is empty, and stops nothing; the match before it found nothing")
    for target in targets:
        tiling_remark = TilingRemark.of(target)
        tiled = tile_and_fuse(target, sizes, interchange, stops, fuse, rewriter.erase_op)
        tiling_remark.tell(tiled)
        for handle, one in zip(produced, [tiled.root, *tiled.loops], strict=True):
            handle.append(one)
    return produced


@_applies("transform_ext.fuse_ext")
def _fuse_ext(op: ir.OpView, rewriter: Any, payload: list[list[ir.Operation]]) -> list[list[ir.Operation]]:
    return _tile(op, rewriter, payload, fuse=True)


@_applies("transform_ext.tile_ext")
def _tile_ext(op: ir.OpView, rewriter: Any, payload: list[list[ir.Operation]]) -> list[list[ir.Operation]]:
    return _tile(op, rewriter, payload, fuse=False)


@_applies("transform_ext.tile_loop_hint")
def _tile_loop_hint(op: ir.OpView, rewriter: Any, payload: list[list[ir.Operation]]) -> list[list[ir.Operation]]:
    for target in _targets(op, payload):
        mark_parallel([a for a in reversed(list(ancestors(target))) if a.name == "scf.for"])
    return []

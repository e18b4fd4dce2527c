"""A message about a place in a source file, and the error that carries several of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeAlias

from .mlir import ir

Place: TypeAlias = tuple[str, int, int]  # file, line, column
NOWHERE: Place = ("", 0, 0)


@dataclasses.dataclass(frozen=True)
class Diagnostic:
    """One message. `line` and `col` count from 1, `col` in bytes as MLIR does; both are 0 where unknown."""

    severity: str
    file: str
    line: int
    col: int
    message: str
    notes: tuple[Diagnostic, ...] = ()

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.col}: " if self.line else f"{self.file}: " if self.file else ""
        return f"{place}{self.severity}: {self.message}"

    @staticmethod
    def from_mlir(found: Any, default_file: str = "") -> Diagnostic:
        """From the bindings' Diagnostic or DiagnosticInfo."""
        file, line, col = place_of(found.location) or (default_file, 0, 0)
        notes = tuple(Diagnostic.from_mlir(note, default_file) for note in found.notes)
        return Diagnostic(found.severity.name.lower(), file, line, col, str(found.message).rstrip(), notes)


class DiagnosedError(Exception):
    """An error of the user's, told by `diagnostics`."""

    def __init__(self, diagnostics: Sequence[Diagnostic]):
        self.diagnostics = list(diagnostics)
        super().__init__("\n".join(map(str, self.diagnostics)))

    def __reduce__(self) -> tuple[type[DiagnosedError], tuple[list[Diagnostic]]]:  # as processes send it to each other
        return type(self), (self.diagnostics,)


class AssemblyError(DiagnosedError):
    """The text is no module: `diagnostics` say where and why."""


def place_of(location: ir.Location | None) -> Place | None:
    """The (file, line, column) that a location stands for: its own, its child's, its callee's, its first part's;
    where there is none its name, such as that of a node of ONNX."""
    if location is None:
        return None
    if type(location) is ir.Location:  # as diagnostics carry it
        location = ir.Location.from_attr(location.attr)
    if isinstance(location, ir.FileLineColLoc):
        return location.filename, location.start_line, location.start_col
    if isinstance(location, ir.NameLoc):
        name = location.name_str
        return place_of(location.child_loc) or ((name, 0, 0) if name else None)
    if isinstance(location, ir.CallSiteLoc):
        return place_of(location.callee) or place_of(location.caller)
    if isinstance(location, ir.FusedLoc):
        return next((place for part in location.locations if (place := place_of(part))), None)
    return None


def places_of(module: ir.Module) -> list[Place]:
    """Where each op stands, in their order."""
    found: list[Place] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        found.append(place_of(op.location) or NOWHERE)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    return found

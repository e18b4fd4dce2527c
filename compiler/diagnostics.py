"""How messages reach people: ``file:line:col: error: …``, the source line with a caret under it, notes.

Errors of the user's end up here as Diagnostic or DiagnosedError, wherever they come from: our assembly, upstream's
parser, verifiers, passes, the command line. An error of ours (a bug) is told by `report_bug`, with what to run to see
it again.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shlex
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from typing import Any, TextIO

from ..dialects.diagnostic import DiagnosedError, Diagnostic, place_of
from ..dialects.mlir import ir
from ..transforms import passes
from . import env

_SOURCES = tuple(str(pathlib.Path(__file__).parents[1] / folder) for folder in ("compiler", "dialects", "transforms"))
LONGEST_LINE = 1000  # of the source, as shown under a message

Listener = Callable[[Diagnostic], None]


def user_error(message: str, *notes: str) -> DiagnosedError:
    """An error of the user's that is about no place in a file."""
    return DiagnosedError([diagnostic("error", message, None, *notes)])


def file_error(name: str, done: str, error: OSError) -> DiagnosedError:
    """An error of the user's: a file cannot be "read", or "written"."""
    reason = (error.strerror or str(error)).lower()
    return DiagnosedError([Diagnostic("error", name, 0, 0, f"cannot be {done}: {reason}")])


def diagnostic(severity: str, message: str, location: ir.Location | None, *notes: str) -> Diagnostic:
    """A diagnostic at an MLIR location; the notes are about no place."""
    file, line, col = place_of(location) or ("", 0, 0)
    return Diagnostic(severity, file, line, col, message, tuple(Diagnostic("note", "", 0, 0, note) for note in notes))


class Printer:
    """Prints diagnostics on a stream, with the source line of those whose file's text it was given."""

    def __init__(self, tool: str, stream: TextIO | None = None, remarks: bool = True):
        self.tool = tool
        self.stream = stream or sys.stderr
        self.remarks = remarks
        self.errors = 0
        self.told: list[Diagnostic] = []
        self._lines: dict[str, list[str]] = {}

    def add_source(self, file: str, text: str) -> None:
        self._lines[file] = text.split("\n")

    def __call__(self, found: Diagnostic) -> None:
        if found.severity == "remark" and not self.remarks:
            return
        self.errors += found.severity == "error"
        self.told.append(found)
        self._print(found)
        for note in found.notes:
            self._print(note)
        self.stream.flush()

    def _print(self, found: Diagnostic) -> None:
        place = "" if found.file or found.severity == "note" else f"{self.tool}: "
        print(place + str(found), file=self.stream)
        line = self._source_line(found)
        if line is not None:
            at = len(line.encode()[: found.col - 1].decode(errors="replace"))
            if len(line) > LONGEST_LINE:  # show the surroundings
                start = max(0, at - LONGEST_LINE // 2)
                line, at = line[start : start + LONGEST_LINE], at - start
            blanks = "".join("\t" if char == "\t" else " " for char in line[:at])
            print(f"{line}\n{blanks}^", file=self.stream)

    def _source_line(self, found: Diagnostic) -> str | None:
        lines = self._lines.get(found.file, ())
        return lines[found.line - 1].rstrip("\r") if 0 < found.line <= len(lines) and found.col else None


@contextlib.contextmanager
def listening(context: ir.Context, listener: Listener) -> Iterator[None]:
    """Within the block, `listener` is told all that upstream and our passes have to say, in order."""
    failures: list[BaseException] = []

    def on_diagnostic(found: Any) -> bool:
        # An exception must not pass through the C++ frames that called us.
        try:
            listener(Diagnostic.from_mlir(found))
        except Exception as failure:
            failures.append(failure)
        return True

    def on_report(report: passes.Report) -> None:
        listener(diagnostic(report.severity, report.message, report.location))

    emits = context.emit_error_diagnostics
    context.emit_error_diagnostics = True  # to the handler, instead of with the exception
    handler = context.attach_diagnostic_handler(on_diagnostic)
    try:
        with passes.listening(on_report):
            yield
    finally:
        handler.detach()
        context.emit_error_diagnostics = emits
        if failures:
            raise failures[0]


@contextlib.contextmanager
def captured_stderr() -> Iterator[Callable[[], str]]:
    """Within the block, what C++ writes on stderr is kept; the value returns it afterwards."""
    sys.stderr.flush()
    kept = ""
    with tempfile.TemporaryFile() as file:
        saved = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield lambda: kept
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            file.seek(0)
            kept = file.read().decode(errors="replace")


class Bug(Exception):
    """An error of ours: `what` went wrong while running `step` on the IR whose text is `ir`; without a step it is LLVM
    IR, that LLVM did not read."""

    def __init__(self, what: str, step: str, ir: str):
        super().__init__(what)
        self.what = what
        self.step = step
        self.ir = ir

    def __reduce__(self) -> tuple[type[Bug], tuple[str, str, str]]:  # as processes send it to each other
        return type(self), (self.what, self.step, self.ir)


def report_bug(bug: BaseException, tool: str, stream: TextIO | None = None) -> None:
    """Tells of an error of ours: what happened, the IR it happened on (in a file), what to run to see it again."""
    stream = stream or sys.stderr
    what, lines = (bug.what, []) if isinstance(bug, Bug) else (f"{type(bug).__name__}: {bug}", [])
    print(f"{tool}: internal error: {what}", file=stream)
    cause = bug.__cause__ if isinstance(bug, Bug) else bug
    if cause is not None:
        frames = traceback.extract_tb(cause.__traceback__)
        frame = next((one for one in reversed(frames) if one.filename.startswith(_SOURCES)), frames[-1])
        lines.append(f"  raised at {frame.filename}:{frame.lineno} in {frame.name}")
    if isinstance(bug, Bug):
        suffix = ".mlir" if bug.step else ".ll"
        with tempfile.NamedTemporaryFile(
            "w", prefix="attn-opt-", suffix=suffix, delete=False, encoding="utf-8"
        ) as file:
            file.write(bug.ir)
        lines.append(f"  the IR it failed on: {file.name}")
        if bug.step:
            command = f"attn-opt {shlex.quote(file.name)} --pass-pipeline={shlex.quote(bug.step)}"
            lines.append(f"  to reproduce: {command}")
    if not isinstance(bug, Bug) or not bug.step:
        lines.append(f"  to reproduce: {shlex.join([tool, *sys.argv[1:]])}")
    lines.append("  please report this with the file; ATTN_OPT_TRACEBACK=1 shows where it comes from")
    print("\n".join(lines), file=stream)
    if env.get("TRACEBACK") and cause is not None:
        traceback.print_exception(cause, file=stream)

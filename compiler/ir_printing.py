"""Hooks that show the IR between passes: printed on a stream, or written to files."""

import dataclasses
import os
import pathlib
import sys
from typing import TextIO

from ..dialects.assembly import print_module
from ..dialects.mlir import ir
from .diagnostics import user_error
from .pass_manager import Hook, Stage


@dataclasses.dataclass(frozen=True)
class PrintOptions:
    """How IR is printed; the fields are those of `print_module`."""

    generic: bool = False
    debug_info: bool = False
    local_scope: bool = False
    elide_larger_than: int | None = None

    def text(self, op: ir.Operation) -> str:
        return print_module(op, **dataclasses.asdict(self))


@dataclasses.dataclass
class PrintIR(Hook):
    """Prints the IR before and after passes, under the headers of mlir-opt.

    `before_passes` and `after_passes` are names of passes; None stands for all of them.
    """

    before_passes: set[str] | None = dataclasses.field(default_factory=set)
    after_passes: set[str] | None = dataclasses.field(default_factory=set)
    after_change: bool = False
    after_failure: bool = False
    options: PrintOptions = PrintOptions()
    stream: TextIO | None = None

    def before(self, stage: Stage, module: ir.Operation) -> None:
        if self.before_passes is None or stage.name in self.before_passes:
            self._print("Before", stage, module)
        if self.after_change:
            self._last = self.options.text(module)

    def after(self, stage: Stage, module: ir.Operation, failed: bool) -> None:
        if failed:
            if self.after_failure or self.after_passes is None or stage.name in self.after_passes:
                self._print("After", stage, module, " Failed")
        elif self.after_change:
            if self.options.text(module) != self._last:
                self._print("After", stage, module)
        elif not self.after_failure and (self.after_passes is None or stage.name in self.after_passes):
            self._print("After", stage, module)

    def _print(self, when: str, stage: Stage, module: ir.Operation, failed: str = "") -> None:
        stream = self.stream or sys.stderr
        title = "".join(word.capitalize() for word in stage.name.split("-"))
        print(f"// -----// IR Dump {when} {title}{failed} ({stage.name}) //----- //", file=stream)
        print(self.options.text(module), file=stream, flush=True)


class DumpStages(Hook):
    """Writes the IR into files of a folder: ``00-input.mlir``, then ``01-canonicalize.mlir`` after the first pass …"""

    def __init__(self, folder: str | os.PathLike[str], options: PrintOptions = PrintOptions()):
        self.folder = pathlib.Path(folder)
        self.options = options
        self.count = 0

    def before(self, stage: Stage, module: ir.Operation) -> None:
        if not self.count:
            self._write("input", module)

    def after(self, stage: Stage, module: ir.Operation, failed: bool) -> None:
        self._write(stage.name + ("-failed" if failed else ""), module)

    def _write(self, name: str, module: ir.Operation) -> None:
        path = self.folder / f"{self.count:02}-{name}.mlir"
        self.count += 1
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            path.write_text(self.options.text(module), encoding="utf-8")
        except OSError as error:
            raise user_error(f"cannot write '{path}': {error.strerror}") from None

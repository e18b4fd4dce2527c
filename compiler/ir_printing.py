"""Hooks that show the IR between passes: printed on a stream, or written to files."""

import contextlib
import dataclasses
import functools
import os
import pathlib
import re
import sys
from typing import TextIO

from ..dialects.assembly import print_module
from ..dialects.mlir import ir, passmanager
from .diagnostics import captured_stderr, file_error
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
        print(f"// -----// IR Dump {when} {_title(stage)}{failed} ({stage.name}) //----- //", file=stream)
        print(self.options.text(module), file=stream, flush=True)


def _title(stage: Stage) -> str:
    """The name of the pass's class, which mlir-opt puts into its headers."""
    return type(stage.ours).__name__ if stage.ours else _upstream_class(stage.name, stage.text)


@functools.cache
def _upstream_class(name: str, pipeline: str) -> str:
    """The C++ class of an upstream pass; only the headers that upstream prints itself show it."""
    with contextlib.suppress(Exception), captured_stderr() as said, ir.Context() as context:
        context.enable_multithreading(False)
        nothing = ir.Module.parse("func.func private @f()\ngpu.module @g {}")
        manager = passmanager.PassManager.parse(pipeline)
        manager.enable_ir_printing()
        manager.run(nothing.operation)
    header = re.search(r"IR Dump After (\w+)", said())
    return header[1] if header else "".join(word.capitalize() for word in name.split("-"))


class DumpStages(Hook):
    """Writes the IR into files of a folder: ``000-input.mlir``, then ``001-cse.mlir`` after the first pass …"""

    def __init__(self, folder: str | os.PathLike[str], options: PrintOptions = PrintOptions()):
        self.folder = pathlib.Path(folder)
        self.options = options
        self.count = 0

    def before(self, stage: Stage, module: ir.Operation) -> None:
        if not self.count:
            self.write("input", "mlir", self.options.text(module))

    def after(self, stage: Stage, module: ir.Operation, failed: bool) -> None:
        self.write(stage.name + ("-failed" if failed else ""), "mlir", self.options.text(module))

    def write(self, name: str, suffix: str, text: str) -> None:
        """The next file."""
        path = self.folder / f"{self.count:03}-{name}.{suffix}"
        self.count += 1
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise file_error(str(path), "written", error) from None

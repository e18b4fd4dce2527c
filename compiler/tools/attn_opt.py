"""``attn-opt``: reads MLIR, runs passes on it (ours and upstream's), prints MLIR. An mlir-opt in all respects."""

import contextlib
import dataclasses
import re
import signal
import sys
import tempfile
from collections.abc import Sequence
from typing import Any, TextIO

from ...dialects import make_context
from ...dialects.assembly import parse_module
from ...dialects.diagnostic import DiagnosedError, Diagnostic
from ...dialects.mlir import ir
from ..diagnostics import Bug, Listener, Printer, file_error, report_bug, user_error
from ..ir_printing import DumpStages, PrintIR
from ..pass_manager import Hook, PassFailure, Stage, Timing, plan, run
from ..sources import read
from ..verify_diagnostics import Verifier
from . import streams
from .attn_opt_options import HELP, Options, parse_options
from .exit_status import ends_on_request, exit_status
from .isolation import Crash, Progress, crashes, isolated

_SPLIT = re.compile(r"^[ \t]*// -----[ \t]*\r?$", re.MULTILINE)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; the value is the exit status. Called with arguments, it works in this process and may crash it."""
    with contextlib.suppress(ValueError):  # raised outside of the main thread
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `attn-opt … | head` ends quietly
    streams.prepare()
    printer = Printer("attn-opt")
    if arguments is None:
        ends_on_request()

    def command() -> int:
        options = parse_options(list(sys.argv[1:] if arguments is None else arguments))
        printer.remarks = options.remarks
        if options.action:
            print(_about(options.action))
            return 0
        text, name = streams.read_stdin() if options.input == "-" else read(options.input)
        printer.add_source(name, text)
        job = Job(options, printer, name, _chunks(text, options.split))
        if arguments is not None:
            return job.run()
        try:
            return isolated(lambda: exit_status(printer, job.run))
        except Crash as crash:
            return job.tell_crash(crash)

    return exit_status(printer, command)


def _about(action: str) -> str:
    if action == "help":
        return HELP
    if action == "version":
        from importlib import metadata

        versions = []
        for package in ("attn-opt", "torch-mlir"):
            try:
                versions.append(f"{package} {metadata.version(package)}")
            except metadata.PackageNotFoundError:
                versions.append(f"{package} (not installed)")
        return "\n".join(versions)
    from ..pass_options import table

    return table()


@dataclasses.dataclass
class Job:
    """What to do with an input: with each of its chunks, which are modules of their own."""

    options: Options
    printer: Printer
    name: str
    chunks: list[str]
    progress: Progress = dataclasses.field(default_factory=Progress)
    watch: Any = None  # report.Watch, if a report is asked for

    def run(self) -> int:
        """Does it; the value is the exit status."""
        if self.options.report:
            from .report import Watch

            self.watch = Watch()
        with self._context():
            stages = planned(self.options)  # tells of unknown passes before anything else
            hooks, timing = _hooks(self.options)
            outputs = [self._process(number, stages, hooks) for number in range(len(self.chunks))]
        if self.watch:
            self.watch.report(self.name, stages).write(self.options.report)
        if timing:
            print(timing.table(), file=sys.stderr)
        _write(self.options.output, "// -----\n\n".join(output for output in outputs if output is not None))
        return 1 if self.printer.errors else 0

    def _context(self) -> ir.Context:
        context = make_context()
        context.allow_unregistered_dialects = self.options.allow_unregistered
        return context

    def _process(self, number: int, stages: list[Stage], hooks: list[Hook]) -> str | None:
        """The text of one module after the passes, or None if something failed; what failed has been told."""
        text = self.chunks[number]
        verifier = Verifier(text, self.name) if self.options.verify_diagnostics else None
        listener: Listener = verifier or self.printer
        if self.watch:
            listener, hooks = self.watch.module(text, len(stages), self.options.printing, listener, hooks)
        output = None
        try:
            self.progress.at(number, -1)
            module = parse_module(text, self.name, listener=listener)
            follow = _Follow(self.progress, number)
            with self.watch.recorder if self.watch else contextlib.nullcontext():
                run(stages, module, hooks=[follow, *hooks], listener=listener, verify=self.options.verify_each)
            output = self.options.printing.text(module.operation)
        except PassFailure:
            pass  # told as it happened
        except DiagnosedError as error:
            for found in error.diagnostics:
                listener(found)
        except Bug as bug:
            report_bug(bug, "attn-opt", self.printer.stream)
            self.printer.errors += 1
        for problem in verifier.problems() if verifier else ():
            self.printer(problem)
        return output

    def tell_crash(self, crash: Crash) -> int:
        """Tells where upstream crashed: in which pass and on what IR."""
        number, stage = self.progress.place
        if stage >= 0:
            with tempfile.NamedTemporaryFile("r", suffix=".mlir") as file:
                crashes(lambda: self._write_ir_before(number, stage, file.name))
                pipeline, _, text = file.read().partition("\n")
            report_bug(Bug(f"{pipeline} crashed: {crash}", pipeline, text), "attn-opt", self.printer.stream)
            return 1
        self.printer(Diagnostic("error", self.name, 0, 0, f"reading it crashed: {crash}"))
        return 1

    def _write_ir_before(self, number: int, stage: int, path: str) -> None:
        with self._context(), open(path, "w", encoding="utf-8") as file:
            stages = planned(self.options)
            module = parse_module(self.chunks[number], self.name)
            run(stages[:stage], module)
            file.write(f"{stages[stage].text}\n{self.options.printing.text(module.operation)}")


class _DumpCode(Hook):
    """After the last stage for GPUs, the kernels' PTX, and their machine code as text where CUDA's tools are."""

    def __init__(self, dump: DumpStages):
        self.dump, self.arch = dump, ""

    def after(self, stage: Stage, module: ir.Operation, failed: bool) -> None:
        if stage.name == "tiles-to-nvvm":
            self.arch = getattr(stage.ours, "arch", "")
        if failed or stage.name != "check-lowered":
            return
        from ..runtime import ptx

        for op in module.regions[0].blocks[0].operations:
            if op.operation.name == "gpu.module":
                code = ptx.emit_ptx(ptx.llvm_ir(op.operation), self.arch)
                self.dump.write("kernels", "ptx", code)
                machine = ptx.sass(code, self.arch)
                if machine is not None:
                    self.dump.write("kernels", "sass", machine)


class _Follow(Hook):
    """Notes down which stage is at work."""

    def __init__(self, progress: Progress, number: int):
        self.progress = progress
        self.number = number
        self.stage = -1

    def before(self, stage: Stage, module: ir.Operation) -> None:
        self.stage += 1
        self.progress.at(self.number, self.stage)


def _write(path: str, text: str) -> None:
    try:
        if path == "-":
            sys.stdout.write(text)
            sys.stdout.flush()
        else:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise file_error("<stdout>" if path == "-" else path, "written", error) from None


def _chunks(text: str, split: bool) -> list[str]:
    """The modules in the input, each at its place in the file: the lines before it are empty."""
    if not split:
        return [text]
    chunks, start = [], 0
    for mark in [*_SPLIT.finditer(text), None]:
        end = mark.start() if mark else len(text)
        chunks.append("\n" * text.count("\n", 0, start) + text[start:end])
        start = mark.end() if mark else end
    return chunks


def planned(options: Options) -> list[Stage]:
    """All passes. Where tile sizes are chosen, and it is not said for what, they are for what code is made for."""
    target = options.lower_to
    if not target:
        return plan(options.passes)
    from ...transforms.fuse_attention import FuseAttention
    from ...transforms.passes import PassError
    from ..pipelines import fusion_of, lower

    try:
        fusion, lowering = fusion_of(target), lower(target)
    except (ValueError, PassError) as error:
        raise user_error(f"--lower-to={target}: {error}") from None
    found = []
    for stage in plan(options.passes):
        if isinstance(stage.ours, FuseAttention) and not stage.ours.machine:
            stage = dataclasses.replace(stage, ours=dataclasses.replace(stage.ours, **fusion))
        found.append(stage)
    return [*found, *plan(lowering)]


def _hooks(options: Options) -> tuple[list[Hook], Timing | None]:
    hooks: list[Hook] = []
    timing = Timing() if options.timing else None
    stream: TextIO = sys.stderr
    if options.prints_ir():
        hooks.append(
            PrintIR(
                options.print_before,
                options.print_after,
                options.print_after_change,
                options.print_after_failure,
                options.printing,
                stream,
            )
        )
    if options.dump_stages:
        dump = DumpStages(options.dump_stages, options.printing)
        hooks.append(dump)
        if options.lower_to.startswith("nvidia"):
            hooks.append(_DumpCode(dump))
    if timing:
        hooks.append(timing)  # last: starts after and ends before the others' work
    return hooks, timing


if __name__ == "__main__":
    sys.exit(main())

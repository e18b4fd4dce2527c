"""``attn-opt``: reads MLIR, runs passes on it (ours and upstream's), prints MLIR. An mlir-opt in all respects."""

import contextlib
import dataclasses
import re
import signal
import sys
from collections.abc import Sequence
from typing import TextIO

from ...dialects import make_context
from ...dialects.assembly import parse_module
from ...dialects.diagnostic import DiagnosedError
from ..diagnostics import Bug, Listener, Printer, report_bug, user_error
from ..ir_printing import DumpStages, PrintIR
from ..pass_manager import Hook, Item, PassFailure, Stage, Timing, plan, run
from .attn_opt_options import HELP, Options, parse_options

_SPLIT = re.compile(r"^[ \t]*// -----[ \t]*\r?$", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Chunk:
    """A part of the input that is a module of its own, at its place in the file: the lines before it are empty."""

    text: str


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; the value is the exit status."""
    with contextlib.suppress(ValueError):  # raised outside of the main thread
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `attn-opt … | head` ends quietly
    printer = Printer("attn-opt")
    try:
        options = parse_options(list(sys.argv[1:] if arguments is None else arguments))
        printer.remarks = options.remarks
        if options.action:
            print(_about(options.action))
            return 0
        return _run(options, printer)
    except DiagnosedError as error:
        for found in error.diagnostics:
            printer(found)
        return 1
    except KeyboardInterrupt:
        return 130
    except Exception as bug:
        report_bug(bug, "attn-opt")
        return 1


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


def _run(options: Options, printer: Printer) -> int:
    name, text = _read(options.input)
    printer.add_source(name, text)
    context = make_context()
    # Verifiers and passes in Python hold the interpreter's lock: threads would only wait for each other.
    context.enable_multithreading(False)
    context.allow_unregistered_dialects = options.allow_unregistered
    with context:
        stages = plan(_pipeline(options))  # tells of unknown passes before anything else
        hooks, timing = _hooks(options)
        outputs = []
        for chunk in _chunks(text, options.split):
            output = _process(chunk, name, stages, hooks, options, printer)
            if output is not None:
                outputs.append(output)
    if timing:
        print(timing.table(), file=sys.stderr)
    _write(options.output, "// -----\n\n".join(outputs))
    return 1 if printer.errors else 0


def _process(
    chunk: Chunk, name: str, stages: list[Stage], hooks: list[Hook], options: Options, printer: Printer
) -> str | None:
    """The text of one module after the passes, or None if something failed; what failed has been told."""
    from ..verify_diagnostics import Verifier

    verifier = Verifier(chunk.text, name) if options.verify_diagnostics else None
    listener: Listener = verifier or printer
    output = None
    try:
        module = parse_module(chunk.text, name, listener=listener)
        run(stages, module, hooks=hooks, listener=listener, verify_each=options.verify_each)
        output = options.printing.text(module.operation)
    except PassFailure:
        pass  # told as it happened
    except DiagnosedError as error:
        for found in error.diagnostics:
            listener(found)
    except Bug as bug:
        report_bug(bug, "attn-opt", printer.stream)
        printer.errors += 1
    if verifier:
        for problem in verifier.problems():
            printer(problem)
    return output


def _read(path: str) -> tuple[str, str]:
    """The name of the input in messages, and its text."""
    name = "<stdin>" if path == "-" else path
    try:
        if path == "-":
            data = sys.stdin.buffer.read()
        else:
            with open(path, "rb") as file:
                data = file.read()
    except OSError as error:
        raise user_error(f"cannot read '{name}': {error.strerror}") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise user_error(f"cannot read '{name}': line {line} is not UTF-8 text; expected MLIR assembly") from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise user_error(f"cannot read '{name}': line {line} has a null character; expected MLIR assembly")
    return name, text


def _write(path: str, text: str) -> None:
    try:
        if path == "-":
            sys.stdout.write(text)
            sys.stdout.flush()
        else:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise user_error(f"cannot write '{'<stdout>' if path == '-' else path}': {error.strerror}") from None


def _chunks(text: str, split: bool) -> list[Chunk]:
    if not split:
        return [Chunk(text)]
    chunks, start = [], 0
    for mark in [*_SPLIT.finditer(text), None]:
        end = mark.start() if mark else len(text)
        chunks.append(Chunk("\n" * text.count("\n", 0, start) + text[start:end]))
        start = mark.end() if mark else end
    return chunks


def _pipeline(options: Options) -> list[Item]:
    items: list[Item] = list(options.passes)
    if options.lower_to:
        items += lowering(options.lower_to)
    return items


def lowering(target: str) -> list[Item]:
    """The pipeline that lowers to `target`, or an error of the user's if there is none."""
    try:
        from ..pipelines import lower
    except ModuleNotFoundError:
        raise user_error(f"--lower-to={target} is not built yet") from None
    try:
        return list(lower(target))
    except (ValueError, NotImplementedError) as error:
        raise user_error(f"--lower-to={target}: {error}") from None


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
        hooks.append(DumpStages(options.dump_stages, options.printing))
    if timing:
        hooks.append(timing)  # last: starts after and ends before the others' work
    return hooks, timing


if __name__ == "__main__":
    sys.exit(main())

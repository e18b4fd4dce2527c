"""Assembly of ops defined in Python: upstream prints and parses these in generic form only; this adds custom forms.

Parsing rewrites custom forms to generic form in the text and hands that to upstream's parser; printing does the
reverse with what upstream prints. The forms are declared by the ops (see `formats`); one engine serves all of them.
"""

import os
import re
from collections.abc import Callable

from ..crash_recovery import Crashed, recovered
from ..diagnostic import AssemblyError, Diagnostic
from ..mlir import ir
from .crash_line import crash_line
from .formats import forms
from .lexer import SyntaxProblem
from .reader import Reader
from .source_map import PARSED_FILE, SourceMap, relocate
from .writer import write

__all__ = ["AssemblyError", "Diagnostic", "parse_module", "print_module", "print_op"]


def parse_module(
    text: str,
    filename: str = "<string>",
    context: ir.Context | None = None,
    listener: Callable[[Diagnostic], None] | None = None,
) -> ir.Module:
    """The module that `text` is, in custom or generic form or both; locations name `filename`.

    Raises AssemblyError, which holds what is wrong and where; warnings and remarks are told to `listener`.
    """
    context = context or ir.Context.current
    reader = Reader(text, forms())
    try:
        generic, places = reader.run()
    except SyntaxProblem as problem:
        line, col = SourceMap(reader.out, "", set()).place_of(min(problem.at, len(text)))
        raise AssemblyError([Diagnostic("error", filename, line, col, problem.message)]) from None

    told: list[Diagnostic] = []

    def tell(found: ir.Diagnostic) -> bool:
        told.append(_moved(Diagnostic.from_mlir(found, PARSED_FILE), filename, places))
        return True

    emits = context.emit_error_diagnostics
    context.emit_error_diagnostics = True  # to the handler, in order with the rest
    handler = context.attach_diagnostic_handler(tell)
    try:
        module = recovered(ir.Module.parse, generic, context=context)
    except ir.MLIRError:
        raise AssemblyError(list(dict.fromkeys(told)) or [_unsaid(generic, filename, places)]) from None
    except (Crashed, MemoryError) as error:  # of text alone, as of iterator_types = [-1], it allocates terabytes
        raise AssemblyError([_crash(generic, filename, places, context, error)]) from None
    finally:
        handler.detach()
        context.emit_error_diagnostics = emits
    relocate(module.operation, filename, places)
    if listener:
        for found in dict.fromkeys(told):  # upstream may say things twice, as it verifies twice
            listener(found)
    return module


def _unsaid(generic: str, filename: str, places: SourceMap) -> Diagnostic:
    """What upstream's parser does not say: it knows our ops, but has no custom forms for those left in the text."""
    names = "|".join(re.escape(name) for name in forms())
    for number, line in enumerate(generic.split("\n"), 1):
        found = re.search(rf"(?<![\w.\"])({names})(?![\w.])", line.partition("//")[0])
        if found:
            place = places.place(number, len(line[: found.start()].encode()) + 1)
            return Diagnostic("error", filename, *place, f"'{found[1]}' is not followed by what its form asks for")
    return Diagnostic("error", filename, 0, 0, "cannot be parsed")


def _crash(generic: str, filename: str, places: SourceMap, context: ir.Context, error: Exception) -> Diagnostic:
    """What to tell of text on which upstream's parser crashes, or runs out of memory."""
    number = crash_line(generic, context.allow_unregistered_dialects)
    line = generic.split("\n")[number - 1]
    place = places.place(number, len(line) - len(line.lstrip()) + 1)
    does = "runs out of memory" if isinstance(error, MemoryError) else "crashes"
    message = f"upstream's parser {does} on this line: it is malformed, or upstream has a bug"
    return Diagnostic("error", filename, *place, message)


def _moved(found: Diagnostic, filename: str, places: SourceMap) -> Diagnostic:
    """A diagnostic about the generic text as one about the source."""
    notes = tuple(_moved(note, filename, places) for note in found.notes)
    if found.file != PARSED_FILE:
        return Diagnostic(found.severity, found.file, found.line, found.col, found.message, notes)
    line, col = places.place(found.line, found.col) if found.line else (0, 0)
    return Diagnostic(found.severity, filename, line, col, found.message, notes)


def print_module(
    op: ir.Module | ir.Operation | ir.OpView,
    *,
    generic: bool = False,
    debug_info: bool = False,
    local_scope: bool = False,
    elide_larger_than: int | None = None,
    verified: bool = False,
) -> str:
    """The text of a module (or of any op), in custom form unless `generic`.

    With locations if `debug_info`; without aliases if `local_scope`; constants of more elements than
    `elide_larger_than` are left out (and then the text cannot be parsed). Upstream verifies what it prints, which takes
    half of the time, unless it is known to be `verified`.
    """
    with open(os.memfd_create("asm"), "rb") as file:  # to a file upstream prints without calling Python word by word
        op.operation.print(
            file=f"/proc/self/fd/{file.fileno()}",
            print_generic_op_form=generic,
            enable_debug_info=debug_info,
            use_local_scope=local_scope,
            large_elements_limit=elide_larger_than,
            assume_verified=verified,
        )
        text = file.read().decode()
    return text if generic else write(text, forms())


def print_op(op: ir.Operation | ir.OpView) -> str:
    """One op on its own, for a message: without the bodies of its regions, and aliases spelled out."""
    text = op.operation.get_asm(use_local_scope=True, skip_regions=True)
    return write(text, forms()).strip()

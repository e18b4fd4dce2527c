"""What may be compiled, as a module: MLIR text, a file of it, modules of any context."""

from __future__ import annotations

import dataclasses
import os
import re
from typing import Any, BinaryIO

from ..dialects.diagnostic import DiagnosedError, Diagnostic
from ..dialects.mlir import ir
from .diagnostics import diagnostic, file_error, user_error

SCRIPTS = ("transform.sequence", "transform.named_sequence")
OF_TORCH = "of a model of torch compile needs the model, and example_args to trace it with, or a .pt2 of torch.export"
SAVED = {".pt": OF_TORCH, ".pth": OF_TORCH, ".safetensors": OF_TORCH}  # what else models are saved in
UNKNOWN = re.compile(r"Dialect `(\w+)' not found")
OF_JAX = "StableHLO is read of functions alone: compile(fn, args), or of jax.export: compile(exported)"
OF_EXPORT = "graphs of torch are read of modules alone: compile(module, args), or of torch.export: compile(exported)"
TRACED = {"stablehlo": OF_JAX, "chlo": OF_JAX, "mhlo": OF_JAX, "torch": OF_EXPORT}  # dialects that frontends read
NAMED = "transform.with_named_sequence"  # on a module in it that is a script


def is_onnx(source: Any) -> bool:
    """Whether `source` is a model of ONNX, or a path to one; onnx itself is not needed to tell."""
    if isinstance(source, str | os.PathLike):
        return os.fspath(source).endswith(".onnx")
    return type(source).__name__ == "ModelProto" and hasattr(source, "opset_import")


def is_exported_program(source: Any) -> bool:
    """Whether `source` is a path to what torch.export has saved."""
    return isinstance(source, str | os.PathLike) and os.fspath(source).endswith(".pt2")


def is_exported_function(source: Any) -> bool:
    """Whether `source` is what jax.export gave, or read."""
    return type(source).__name__ == "Exported" and hasattr(source, "mlir_module_serialized")


def load_module(source: Any) -> ir.Module:
    """The module that `source` is (see `compile`), in a context of its own."""
    if hasattr(source, "operation"):
        return _copied(source.operation)
    return load_text(*text_of(source))


def text_of(source: Any) -> tuple[str, str]:
    """The text of a path or of text, and the file that its locations name."""
    if isinstance(source, os.PathLike) or (isinstance(source, str) and _looks_like_path(source)):
        return read(source)
    if isinstance(source, str):
        return decoded(source.encode("utf-8", "surrogatepass"), "<string>"), "<string>"
    raise user_error(f"expects MLIR text, a path, a module or a function, but found {type(source).__name__}")


def load_text(text: str, filename: str) -> ir.Module:
    """The module that `text` is, in a context of its own; locations name `filename`."""
    from ..dialects import make_context
    from ..dialects.assembly import AssemblyError, parse_module

    with make_context(text):
        try:
            return parse_module(text, filename)
        except AssemblyError as error:
            first = error.diagnostics[0]
            unknown = UNKNOWN.search(first.message)
            if unknown is not None and unknown[1] in TRACED:
                way_out = Diagnostic("note", "", 0, 0, TRACED[unknown[1]])
                raise DiagnosedError([dataclasses.replace(first, notes=(way_out,))]) from None
            raise


def read(path: str | os.PathLike[str]) -> tuple[str, str]:
    """The text of a file, and its name in locations; a user's error where it cannot be read."""
    name = printable(path)
    try:
        with open(path, "rb") as file:
            return read_text(file, name), name
    except OSError as error:
        raise file_error(name, "read", error) from None


def read_text(file: BinaryIO, name: str) -> str:
    """What a file of MLIR text holds, see `decoded`. It is read no further than there is text: some devices have no
    end."""
    data = bytearray()
    while chunk := file.read(1 << 20):
        data += chunk
        if b"\0" in chunk:
            break
    return decoded(bytes(data), name)


def printable(path: str | os.PathLike[str]) -> str:
    """A path as text, whatever the locale and the bytes in it."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def decoded(data: bytes, name: str) -> str:
    """What a file of MLIR text holds, with or without a byte order mark; a user's error where it is something else."""
    try:
        text = data.decode("utf-8-sig")
        what, at = "a null character", data.find(b"\0")
    except UnicodeDecodeError as error:
        what, at = "what is not UTF-8 text", error.start
    if at < 0:
        return text
    line, column = data.count(b"\n", 0, at) + 1, at - data.rfind(b"\n", 0, at)
    notes = [Diagnostic("note", "", 0, 0, SAVED[end])] if (end := os.path.splitext(name)[1]) in SAVED else []
    problem = f"expected MLIR assembly, but found {what}"
    raise DiagnosedError([Diagnostic("error", name, line, column, problem), *notes])


def _looks_like_path(text: str) -> bool:
    """MLIR text has an op in it, whose form needs a bracket or a line break; few paths have either."""
    if "\n" not in text and os.path.exists(text):
        return True
    return bool(text) and not set(text) & set("\0\n(){}<>") and (text.endswith(".mlir") or " " not in text.strip())


def _copied(operation: ir.Operation) -> ir.Module:
    """`operation`, which may be of any context, in a module of our own context."""
    text = operation.get_asm(print_generic_op_form=True, enable_debug_info=True)
    if operation.name != "builtin.module":
        text = f'"builtin.module"() ({{\n{text}\n}}) : () -> ()'
    return load_text(text, "<module>")


def has_script(module: ir.Module) -> bool:
    """Whether the module holds a transform script, which then says what is fused."""
    return any(op.operation.name in SCRIPTS or NAMED in op.operation.attributes for op in module.body.operations)


def find_entry(module: ir.Module, entry: str | None) -> ir.OpView:
    """The function to compile; a user's error if there is none of that name, or several and no name."""
    from ..dialects.reference.evaluator import find_function
    from ..dialects.reference.interface import EvaluationError

    try:
        return find_function(module, entry)
    except EvaluationError as error:
        raise DiagnosedError([diagnostic("error", error.message, error.location)]) from None

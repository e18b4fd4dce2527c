"""Compiled kernels that are there already: in this process, and on disk for the next one.

A kernel is found by what it depends on: the graph's IR without locations, the options, the target, the host's
instruction set and caches, the sources of this package and the bindings. Text that was compiled before is found by
the text itself, without parsing it. An entry is one file,

    <key>.kernel    see `kernel_file`
    <key>.source    for a source text: the key of its IR, and the remarks that compiling it gave, in JSON
    <key>.cubin     for PTX, a GPU's architecture and its driver: the machine code that the driver made

written under another name and renamed, so that readers and writers at once see whole entries only. An entry that is
damaged, or that this process cannot load, is as good as none: the kernel is compiled again and overwrites it. When the
folder exceeds its limit, the entries whose last use is longest ago are removed. Nothing but success is kept.

    ATTN_OPT_CACHE=0            compile anew each time
    ATTN_OPT_CACHE_DIR=DIR      default: $XDG_CACHE_HOME/attn-opt, or ~/.cache/attn-opt
    ATTN_OPT_CACHE_LIMIT=MB     default: 256
"""

import collections
import json
import os
import pathlib
import threading
from collections.abc import Sequence
from typing import Any

from ..dialects.diagnostic import Diagnostic, Place
from . import cache_files as files
from .kernel_file import CHECKSUM, Compiled, packed, unpacked

KERNELS_IN_MEMORY = 256


def enabled() -> bool:
    return files.setting("CACHE")


# In this process.
_lock = threading.Lock()
_kernels: collections.OrderedDict[str, Compiled] = collections.OrderedDict()
_sources: collections.OrderedDict[str, str] = collections.OrderedDict()


def find(key: str) -> Compiled | None:
    """The kernel of that key, or None."""
    with _lock:
        found = _kernels.get(key)
        if found is not None:
            _kernels.move_to_end(key)
    if found is None:
        found = _read(key)
        if found is not None:
            _remember(_kernels, key, found)
    return found


def find_source(source: str, filename: str) -> tuple[Compiled, list[Diagnostic], list[Place]] | None:
    """The kernel of a source text by the key of that text, or None; with what was said of the text, in `filename`, and
    the places that its record tells of (`explain.present`)."""
    text = _sources.get(source)
    try:
        if text is None:
            text = (files.folder() / f"{source}.source").read_bytes().decode()
        about = json.loads(text)
        key, said = about["key"], [_diagnostic(one, filename) for one in about["said"]]
        places: list[Place] = [(_named(file, filename), line, column) for file, line, column in about["places"]]
        found = find(key) if len(key) == 2 * CHECKSUM and key.isalnum() else None
    except OSError:
        return None
    except (ValueError, TypeError, KeyError):  # damaged
        return None
    if found is None:
        return None
    _remember(_sources, source, text)
    return found, said, places


def keep(key: str, compiled: Compiled) -> None:
    """Keeps a kernel that was compiled, here and, where it can be loaded again, on disk."""
    _remember(_kernels, key, compiled)
    data = packed(compiled)
    try:
        unpacked(data)
    except ValueError:  # an elf.LoadError
        return
    files.write(f"{key}.kernel", data)


def code_folder() -> pathlib.Path | None:
    """Where machine code for GPUs is kept, which their drivers make; None where nothing is."""
    return files.folder() if enabled() else None


def keep_source(source: str, key: str, said: Sequence[Diagnostic], places: Sequence[Place], filename: str) -> None:
    """Keeps that a source text, by its key, has the IR of `key`, what was said of it, and the places of its record."""
    about = {
        "key": key,
        "said": [_plain(one, filename) for one in said],
        "places": [[_unnamed(file, filename), line, column] for file, line, column in places],
    }
    text = json.dumps(about)
    _remember(_sources, source, text)
    files.write(f"{source}.source", text.encode())


def _unnamed(file: str, filename: str) -> str | None:
    """The same text may have another name later."""
    return None if file == filename else file


def _named(file: str | None, filename: str) -> str:
    return filename if file is None else file


def _plain(found: Diagnostic, filename: str) -> list:
    """A diagnostic for JSON."""
    file = _unnamed(found.file, filename)
    notes = [_plain(note, filename) for note in found.notes]
    return [found.severity, file, found.line, found.col, found.message, notes]


def _diagnostic(plain: list, filename: str) -> Diagnostic:
    severity, file, line, col, message, notes = plain
    places = tuple(_diagnostic(note, filename) for note in notes)
    return Diagnostic(severity, _named(file, filename), line, col, message, places)


def forget() -> None:
    """Forgets what this process has compiled; what is on disk stays."""
    with _lock:
        _kernels.clear()
        _sources.clear()


def _remember(table: collections.OrderedDict, key: str, value: Any) -> None:
    with _lock:
        table[key] = value
        table.move_to_end(key)
        while len(table) > KERNELS_IN_MEMORY:
            table.popitem(last=False)


def _read(key: str) -> Compiled | None:
    path = files.folder() / f"{key}.kernel"
    try:
        found = unpacked(path.read_bytes())
        os.utime(path)
        return found
    except OSError:
        return None
    except ValueError:  # damaged, or of a system that has changed: what is compiled now replaces it
        return None

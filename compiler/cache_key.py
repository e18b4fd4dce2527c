"""What the name of a kept kernel is made of: everything that it depends on."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import os
from typing import TYPE_CHECKING

from ..dialects import mlir
from ..transforms.host import cache_bytes, host_features, matrix_unit
from . import cache_files

if TYPE_CHECKING:
    from .options import Options

FORMAT = "attn-opt kernel 7"
# What does not change the code: it is about who listens. Of threads it is how many there will be that matters.
_FREE_OPTIONS = ("threads", "listener", "autotune")


def key(text: str, kind: str, target: str, options: Options) -> str:
    """The name of what `text` compiles to; `kind` tells the texts of the IR from those of sources."""
    parts = [kind, target, f"workers={options.workers if target == 'cpu' else 0}", *environment(target)]
    for field in dataclasses.fields(options):
        if field.name not in _FREE_OPTIONS:
            value = getattr(options, field.name)
            plain = value if value is None or isinstance(value, str | bool | int | float) else tuple(map(int, value))
            parts.append(f"{field.name}={plain!r}")
    return hashlib.sha256("\0".join([*parts, text]).encode()).hexdigest()


@functools.cache
def environment(target: str) -> tuple[str, ...]:
    """What else a kernel depends on: this package, the bindings, and for the CPU the host."""
    parts = (FORMAT, _package(), mlir.identity(), instructions(target))
    if target != "cpu":
        return parts
    from .runtime.cpu import openmp_library

    return (*parts, repr((*map(cache_bytes, (1, 2, 3)), openmp_library())))


def instructions(target: str) -> str:
    """What code for the CPU needs of the CPU that it runs on; nothing for other targets."""
    # The unit is what the process may use, too: asking for it is what loading a kernel that needs it takes.
    return repr((sorted(host_features()), matrix_unit(), os.uname().machine)) if target == "cpu" else ""


@functools.cache
def _package() -> str:
    """A digest of this package's sources. Reading them takes longer than all else, so it is kept by their sizes and
    times, as Python does with its bytecode."""
    package = os.path.dirname(os.path.dirname(__file__))
    folders = (("dialects", True), ("transforms", True), ("compiler", False), ("compiler/runtime", False))
    found = [one for folder, inner in folders for one in _sources_in(os.path.join(package, folder), inner)]
    stamps = [(entry.path, (status := entry.stat()).st_size, status.st_mtime_ns) for entry in found]
    name = f"{hashlib.sha256(repr(stamps).encode()).hexdigest()}.package"
    file = cache_files.folder() / name
    with contextlib.suppress(OSError, ValueError):
        known = file.read_text()
        if len(known) == 2 * hashlib.sha256().digest_size:
            return known
    ours = hashlib.sha256()
    for entry in found:
        ours.update(entry.path.removeprefix(package).encode())
        with open(entry.path, "rb", buffering=0) as source:
            ours.update(source.read())
    cache_files.write(name, ours.hexdigest().encode())
    return ours.hexdigest()


def _sources_in(folder: str, inner: bool) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    sources = []
    for entry in entries:
        if entry.name.endswith(".py"):
            sources.append(entry)
        elif inner and entry.is_dir():
            sources += _sources_in(entry.path, inner)
    return sources

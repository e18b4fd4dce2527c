"""Compiled kernels that are there already: in this process, and on disk for the next one.

A kernel is found by what it depends on: the graph's IR without locations, the options, the target, the host's
instruction set and caches, the sources of this package and the bindings. Text that was compiled before is found by
the text itself, without parsing it. An entry is one file,

    <key>.kernel    magic, sha256 of the rest, sizes; then signature, counts and record in JSON, code, the stages' IR
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
import dataclasses
import hashlib
import json
import os
import pathlib
import struct
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..dialects.diagnostic import Diagnostic
from . import cache_files as files
from .cache_key import FORMAT
from .runtime.signature import Dimensions, Signature, Slot

if TYPE_CHECKING:
    pass

MAGIC = f"{FORMAT}\n".encode()
KERNELS_IN_MEMORY = 256
_SIZES = struct.Struct("<QQ")  # of the JSON and of the object code; the texts are the rest
_CHECKSUM = hashlib.sha256().digest_size


class Texts(Mapping[str, str]):
    """The stages' IR by name, in order; compressed until someone reads it."""

    def __init__(self, compressed: dict[str, bytes]):
        self.compressed = compressed

    @classmethod
    def of(cls, texts: Mapping[str, str]) -> "Texts":
        return cls({name: zlib.compress(text.encode(), 1) for name, text in texts.items()})

    def __getitem__(self, name: str) -> str:
        return zlib.decompress(self.compressed[name]).decode()

    def __iter__(self) -> Iterator[str]:
        return iter(self.compressed)

    def __len__(self) -> int:
        return len(self.compressed)


@dataclasses.dataclass(frozen=True)
class Compiled:
    """What compiling gives. `counts`: see ``counts.Counting``; `told`: whether there was anything to say meanwhile;
    `record`: see ``explain``."""

    signature: Signature
    texts: Texts
    runtime: Any  # a cpu.CpuKernel or cuda.CudaKernel
    counts: dict[str, Any]
    told: bool
    record: dict[str, Any]
    target: str = "cpu"


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


def find_source(source: str, filename: str) -> tuple[Compiled, list[Diagnostic]] | None:
    """The kernel of a source text by the key of that text, or None; with what was said of the text, in `filename`."""
    text = _sources.get(source)
    try:
        if text is None:
            text = (files.folder() / f"{source}.source").read_bytes().decode()
        about = json.loads(text)
        key, said = about["key"], [_diagnostic(one, filename) for one in about["said"]]
        found = find(key) if len(key) == 2 * _CHECKSUM and key.isalnum() else None
    except OSError:
        return None
    except (ValueError, TypeError, KeyError):  # damaged
        return None
    if found is None:
        return None
    _remember(_sources, source, text)
    return found, said


def keep(key: str, compiled: Compiled) -> None:
    """Keeps a kernel that was compiled, here and, where it can be loaded again, on disk."""
    _remember(_kernels, key, compiled)
    image = compiled.runtime.object_file()
    try:
        _loaded(image, compiled.signature, compiled.target)
    except ValueError:  # an elf.LoadError
        return
    files.write(f"{key}.kernel", _packed(compiled, image))


def _loaded(image: bytes, signature: Signature, target: str) -> Any:
    """The kernel of an image. Raises ValueError."""
    if target == "nvidia":
        from .runtime import cuda

        return cuda.CudaKernel(cuda.Image.unpacked(image), signature)
    from .runtime import cpu

    return cpu.CpuKernel.load(image, signature)


def code_folder() -> pathlib.Path | None:
    """Where machine code for GPUs is kept, which their drivers make; None where nothing is."""
    return files.folder() if enabled() else None


def keep_source(source: str, key: str, said: Sequence[Diagnostic], filename: str) -> None:
    """Keeps that a source text, by its key, has the IR of `key`, and what was said of it."""
    text = json.dumps({"key": key, "said": [_plain(one, filename) for one in said]})
    _remember(_sources, source, text)
    files.write(f"{source}.source", text.encode())


def _plain(found: Diagnostic, filename: str) -> list:
    """A diagnostic for JSON. The same text may have another name later."""
    file = None if found.file == filename else found.file
    notes = [_plain(note, filename) for note in found.notes]
    return [found.severity, file, found.line, found.col, found.message, notes]


def _diagnostic(plain: list, filename: str) -> Diagnostic:
    severity, file, line, col, message, notes = plain
    places = tuple(_diagnostic(note, filename) for note in notes)
    return Diagnostic(severity, filename if file is None else file, line, col, message, places)


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


# Entries as bytes.
def _packed(compiled: Compiled, image: bytes) -> bytes:
    signature = compiled.signature
    about = {
        "name": signature.name,
        "arguments": [(slot.element, slot.shape, slot.strided) for slot in signature.arguments],
        "results": [(slot.element, slot.shape, slot.strided) for slot in signature.results],
        "groups": signature.dimensions.groups,
        "sizes": signature.dimensions.sizes,
        "counts": compiled.counts,
        "told": compiled.told,
        "record": compiled.record,
        "target": compiled.target,
        "texts": [(name, len(text)) for name, text in compiled.texts.compressed.items()],
    }
    head = json.dumps(about).encode()
    body = b"".join([_SIZES.pack(len(head), len(image)), head, image, *compiled.texts.compressed.values()])
    return MAGIC + hashlib.sha256(body).digest() + body


def _unpacked(data: bytes) -> Compiled:
    """Raises ValueError."""
    start = len(MAGIC) + _CHECKSUM
    body = memoryview(data)[start:]
    if data[: len(MAGIC)] != MAGIC or hashlib.sha256(body).digest() != data[len(MAGIC) : start]:
        raise ValueError("damaged")
    n_head, n_image = _SIZES.unpack_from(body)
    at = _SIZES.size + n_head
    about = json.loads(bytes(body[_SIZES.size : at]))
    image, at = bytes(body[at : at + n_image]), at + n_image
    texts = {}
    for name, size in about["texts"]:
        texts[name], at = bytes(body[at : at + size]), at + size

    def slots(kinds: list) -> tuple[Slot, ...]:
        return tuple(Slot(e, None if shape is None else tuple(shape), strided) for e, shape, strided in kinds)

    groups = [[(i, d) for i, d in group] for group in about["groups"]]
    dimensions = Dimensions(groups, about["sizes"])
    signature = Signature(about["name"], slots(about["arguments"]), slots(about["results"]), dimensions)
    runtime = _loaded(image, signature, about["target"])
    return Compiled(signature, Texts(texts), runtime, about["counts"], about["told"], about["record"], about["target"])


def _read(key: str) -> Compiled | None:
    path = files.folder() / f"{key}.kernel"
    try:
        found = _unpacked(path.read_bytes())
        os.utime(path)
        return found
    except OSError:
        return None
    except ValueError:  # damaged, or of a system that has changed: what is compiled now replaces it
        return None

"""Loads relocatable object code (ELF, x86-64) into this process: what a linker does, for the little that we emit.

    code = load(object_files, [openmp, libc])
    address = code.symbols["_mlir_ciface_main"]

An image is one object, or several one after the other: LLVM writes section headers last. The sections go to pages
of their own, first the code, then the constants; relocations are applied; then the pages become executable or
read-only, never writable and executable at once. MLIR's ExecutionEngine compiles in the large code model, so that an
address is a word in the code almost everywhere. Whatever else an object holds is refused (`LoadError`) before any of it
runs. Formats: the System V ABI, chapter 4, and its AMD64 supplement.
"""

import ctypes
import mmap
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")

_RELOCATABLE, _X86_64 = 1, 62
_SYMTAB, _RELA, _NOBITS = 2, 4, 8
_WRITE, _ALLOC, _EXECUTE = 1, 2, 4
_UNDEFINED, _ABSOLUTE, _RESERVED = 0, 0xFFF1, 0xFF00
_LOCAL = 0
# Relocation types: the struct format of the field, and whether it is relative to its place.
_FIELDS = {1: ("<Q", False), 2: ("<i", True), 4: ("<i", True), 10: ("<I", False), 11: ("<i", False), 24: ("<q", True)}

_PAGE = mmap.PAGESIZE


class LoadError(ValueError):
    """The object cannot be loaded: it is none, or holds what this loader does not know, or a symbol is nowhere."""


@dataclass(frozen=True)
class Code:
    """Loaded code: the addresses of its global symbols, valid as long as this object lives."""

    symbols: Mapping[str, int]
    memory: mmap.mmap


@dataclass
class _Section:
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    position: int | None = None  # in memory, of sections that are loaded


def load(image: bytes, libraries: Sequence[ctypes.CDLL]) -> Code:
    """The code of object files, ready to run; symbols that all of them lack are looked up in `libraries`, in order."""
    try:
        return _load(image, libraries)
    except (struct.error, IndexError, KeyError, ValueError, OverflowError, OSError, MemoryError) as error:
        raise LoadError(f"malformed object file: {error}") from None


def _load(image: bytes, libraries: Sequence[ctypes.CDLL]) -> Code:
    objects: list[list[_Section]] = []
    end = 0
    while end < len(image) or not objects:
        found, end = _sections(image, end)
        objects.append(found)
    every = [section for sections in objects for section in sections]
    size, executable = _place(every)
    memory = mmap.mmap(-1, max(size, _PAGE), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for section in every:
        if section.position is not None and section.kind != _NOBITS:
            data = image[section.offset : section.offset + section.size]
            if len(data) != section.size:
                raise LoadError("a section ends after the file")
            memory[section.position : section.position + section.size] = data
    exported: dict[str, int] = {}
    tables = [
        {i: _symbols(image, sections, s, base, exported) for i, s in enumerate(sections) if s.kind == _SYMTAB}
        for sections in objects
    ]
    for sections, symbols in zip(objects, tables, strict=True):
        for section in sections:
            if section.kind == _RELA and sections[section.info].position is not None:
                found_here = [_resolved(one, exported, libraries) for one in symbols[section.link]]
                _relocate(image, section, sections[section.info], found_here, memory, base)
    _protect(base, executable, mmap.PROT_READ | mmap.PROT_EXEC)
    _protect(base + executable, len(memory) - executable, mmap.PROT_READ)
    return Code(exported, memory)


def _sections(image: bytes, at: int) -> tuple[list[_Section], int]:
    """The sections of the object that starts there, and where it ends."""
    ident, kind, machine, _, _, _, start, _, _, _, _, entry, count, _ = _HEADER.unpack_from(image, at)
    if ident[:6] != b"\x7fELF\x02\x01" or kind != _RELOCATABLE or machine != _X86_64 or entry != _SECTION.size:
        raise LoadError("no relocatable object file for x86-64")
    found = []
    for i in range(count):
        _, kind, flags, _, offset, size, link, info, align, _ = _SECTION.unpack_from(image, at + start + i * entry)
        found.append(_Section(kind, flags, at + offset, size, link, info, max(align, 1)))
    return found, at + start + count * entry


def _place(sections: Sequence[_Section]) -> tuple[int, int]:
    """Gives sections their positions, code first; the size of all and of the code, in whole pages."""
    end = executable = 0
    for wanted in (_EXECUTE, 0):
        for section in sections:
            if section.flags & _ALLOC and section.flags & _EXECUTE == wanted:
                if section.flags & _WRITE:
                    raise LoadError("the object has data that can be written")
                section.position = -(-end // section.align) * section.align
                end = section.position + section.size
        end = -(-end // _PAGE) * _PAGE
        executable = executable or end
    return end, executable


def _symbols(
    image: bytes, sections: Sequence[_Section], table: _Section, base: int, exported: dict[str, int]
) -> list[int | str | None]:
    """The addresses of a symbol table's entries (None: of no memory), or the names of those that the object lacks; adds
    those of global names to `exported`."""
    names = sections[table.link]
    strings = image[names.offset : names.offset + names.size]
    found: list[int | str | None] = []
    for at in range(table.offset, table.offset + table.size, _SYMBOL.size):
        name_at, info, _, index, value, _ = _SYMBOL.unpack_from(image, at)
        name = strings[name_at : strings.index(b"\0", name_at)].decode()
        if index == _UNDEFINED:
            found.append(name or None)
        elif index == _ABSOLUTE:
            found.append(value)
        elif index >= _RESERVED:
            raise LoadError(f"symbol {name} is of a kind that is not known")
        else:
            position = sections[index].position
            address = None if position is None else base + position + value
            found.append(address)
            if address is not None and info >> 4 != _LOCAL:
                exported[name] = address
    return found


def _resolved(symbol: int | str | None, exported: Mapping[str, int], libraries: Sequence[ctypes.CDLL]) -> int | None:
    if isinstance(symbol, str):
        return exported[symbol] if symbol in exported else _external(symbol, libraries)
    return symbol


def _external(name: str, libraries: Sequence[ctypes.CDLL]) -> int:
    for library in libraries:
        try:
            return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
        except AttributeError:
            continue
    raise LoadError(f"symbol {name} is nowhere to be found")


def _relocate(
    image: bytes, table: _Section, target: _Section, symbols: Sequence[int | None], memory: mmap.mmap, base: int
) -> None:
    start = target.position
    assert start is not None
    for offset, info, addend in _RELOCATION.iter_unpack(image[table.offset : table.offset + table.size]):
        field = _FIELDS.get(info & 0xFFFFFFFF)
        address = symbols[info >> 32]
        if field is None or address is None:
            raise LoadError(f"relocation of type {info & 0xFFFFFFFF} is not known")
        if offset + struct.calcsize(field[0]) > target.size:
            raise LoadError("a relocation is outside of its section")
        place = start + offset
        value = address + addend - (base + place if field[1] else 0)
        # An address too far for its field is a struct.error.
        struct.pack_into(field[0], memory, place, value & 0xFFFFFFFFFFFFFFFF if field[0] == "<Q" else value)


_mprotect = ctypes.CDLL(None, use_errno=True).mprotect
_mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def _protect(address: int, size: int, protection: int) -> None:
    if size and _mprotect(address, size, protection):
        raise LoadError(f"the system refuses to protect memory (error {ctypes.get_errno()})")

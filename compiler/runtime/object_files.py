"""Compiles a module in the LLVM dialect to object files, large functions on threads of their own.

    llvm.func internal @f_parallel_0 …    4000 ops      →  an object of @f_parallel_0
    llvm.func internal @f_parallel_1 …    2000 ops      →  an object of @f_parallel_1
    llvm.func @f …                        calls both    →  an object of @f, and of all that is small

LLVM takes half of the time to compile, and of one task's function it needs nothing to compile another one: tasks stay
calls (`outline-parallel`). Each becomes a module with an engine that compiles it and never runs it; `elf` puts the
objects together. What is in which object depends on the module, not on how many threads there are.

What is around tasks passes their arguments on, and tasks of few rows (decoding) wait for keys and values. LLVM's passes
take half of its time there, and make nothing faster: both go to code generation as they are.

The bindings hold the interpreter's lock while they compile. MLIR's C interface, which they are made of, does not.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...dialects.mlir import c_interface, ir
from ...transforms.online.mark_few_rows import FEW_ROWS
from ...transforms.rewriting import ops_in, ops_of

LARGE = 900  # ops, which take LLVM 30 to 60 ms and more; an engine for them, 4
WITH_PASSES = 2  # and more times as long takes LLVM, where it does not go without its passes
FEW = 100  # values that are vectors, of a function that is no task of few rows: it copies or fills
NOWHERE = 4096  # where an engine finds what is in another object: it compiles calls of it, and runs none


class _Handle(ctypes.Structure):
    """An object of the C interface."""

    _fields_ = (("pointer", ctypes.c_void_p),)


class _Text(ctypes.Structure):
    _fields_ = (("data", ctypes.c_char_p), ("size", ctypes.c_size_t))

    @classmethod
    def of(cls, text: str) -> _Text:
        return cls(text.encode(), len(text.encode()))


@functools.cache
def _mlir() -> ctypes.CDLL:
    """The C interface, with the types of what is called here, which nothing checks: as in mlir-c/ExecutionEngine.h."""
    mlir = c_interface()
    kinds = {
        "Create": (_Handle, [_Handle, ctypes.c_int, ctypes.c_int, ctypes.POINTER(_Text), ctypes.c_bool, ctypes.c_bool]),
        "RegisterSymbol": (None, [_Handle, _Text, ctypes.c_void_p]),
        "Lookup": (ctypes.c_void_p, [_Handle, _Text]),
        "DumpToObjectFile": (None, [_Handle, _Text]),
        "Destroy": (None, [_Handle]),
    }
    for name, (result, arguments) in kinds.items():
        function = getattr(mlir, "mlirExecutionEngine" + name)
        function.restype, function.argtypes = result, arguments
    return mlir


def _handle(module: ir.Module) -> _Handle:
    name, pointer = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    capsule = module._CAPIPtr
    return _Handle(pointer(capsule, name(capsule)))


class _Part:
    """A module of some of the functions: the one to ask for, its size in ops, and the functions that others have.

    `is_simple`: LLVM's passes are left out, its code generation is the same.
    """

    def __init__(self, module: ir.Module, entry: str, size: int, elsewhere: Sequence[str], is_simple: bool = False):
        self.module, self.entry, self.size, self.elsewhere = module, entry, size, elsewhere
        self.is_simple = is_simple
        self.handle = _handle(module)
        self.image = b""

    def compile(self, level: int, library: str | None) -> None:
        """Makes the object file; none if that fails."""
        mlir = _mlir()
        libraries = (_Text * 1)(_Text.of(library or ""))
        level = 0 if self.is_simple else level
        engine = mlir.mlirExecutionEngineCreate(self.handle, level, 1 if library else 0, libraries, True, False)
        if not engine.pointer:
            return
        for name in self.elsewhere:
            mlir.mlirExecutionEngineRegisterSymbol(engine, _Text.of(name), NOWHERE)
        if mlir.mlirExecutionEngineLookup(engine, _Text.of(self.entry)):
            with open(os.memfd_create("part.o"), "rb") as file:  # LLVM ends the process where a disk is full
                mlir.mlirExecutionEngineDumpToObjectFile(engine, _Text.of(f"/proc/self/fd/{file.fileno()}"))
                self.image = file.read()
        mlir.mlirExecutionEngineDestroy(engine)


def object_files(
    module: ir.Module, entry: str, level: int, library: str | None, meanwhile: Callable[[], Any] | None = None
) -> bytes:
    """The objects, one after the other; none if an object cannot be made, or there would be one, made with LLVM's
    passes: it is the same.

    `entry`: the function that others look for; `level`: how much LLVM optimises; `library`: that of OpenMP.
    `meanwhile`: what this thread does once no part is left for it, while others are at work.
    """
    context, parts = module.context, list[_Part]()
    team = _Team(level, library)
    context.enable_multithreading(True)  # all parts are in it
    try:
        for part in _parts(module, entry):
            parts.append(part)
            if part.entry != entry:
                team.add(part)  # and while it is compiled, the others are made
        is_of_few_rows = parts[-1].is_simple and any(FEW_ROWS in op.attributes for op in ops_of(module.body))
        if len(parts) > 1 or is_of_few_rows:
            team.add(parts[-1])
            team.work()
            if meanwhile:
                meanwhile()
    finally:
        team.join()
        context.enable_multithreading(False)
    images = [part.image for part in parts]
    return b"".join(images) if all(images) else b""


class _Team:
    """Compiles parts, the largest first: a thread less than there are processors, and the one that adds them."""

    def __init__(self, level: int, library: str | None):
        self._how = level, library
        self._most = len(os.sched_getaffinity(0)) - 1
        self._threads: list[threading.Thread] = []
        self._waiting: list[_Part] = []
        self._lock = threading.Lock()

    def add(self, part: _Part) -> None:
        with self._lock:
            self._waiting.append(part)
        if len(self._threads) < self._most:
            self._threads.append(threading.Thread(target=self.work))
            self._threads[-1].start()

    def work(self) -> None:
        """Goes on until no part is waiting."""
        while (part := self._next()) is not None:
            part.compile(*self._how)

    def _next(self) -> _Part | None:
        with self._lock:
            largest = max(self._waiting, key=lambda part: part.size, default=None)
            if largest is not None:
                self._waiting.remove(largest)
            return largest

    def join(self) -> None:
        for thread in self._threads:
            thread.join()


def _parts(module: ir.Module, entry: str) -> Iterator[_Part]:
    """A part for each large task, one of all else; that is two where much of it can do without LLVM's passes, and some
    small tasks cannot. Large tasks that can do without, too, go with it as long as another part takes longer: an engine
    less. What takes longest comes first, as soon as it is known."""
    ops = ops_of(module.body)
    functions = {ir.StringAttr(op.attributes["sym_name"]).value: op for op in ops if op.name == "llvm.func"}
    sizes = {name: sum(len(b.operations) for b in op.regions[0].blocks) for name, op in functions.items()}

    def size_of(names: Sequence[str]) -> int:
        return sum(sizes[name] for name in names)

    # Those that are called from one other module alone, and that call none of this one.
    called = {name: _called(op) for name, op in functions.items() if sizes[name] and _is_internal(op)}
    tasks = [name for name, callees in called.items() if not any(sizes.get(callee, 1) for callee in callees)]
    # Those of them that code generation calls are not known before: `__truncsfbf2`, where the CPU cannot round to bf16.
    shared = [name for name, op in functions.items() if sizes[name] and not _is_internal(op)]

    def part_of(names: Sequence[str], is_simple: bool = False) -> _Part:
        part = _empty(module)
        with ir.InsertionPoint(part.body):
            for callee in sorted(set().union(*(called[name] for name in names))):
                functions[callee].clone()
            for name in names:
                functions[name].clone().attributes["linkage"] = _external(module)
        return _Part(part, names[0], size_of(names), shared, is_simple)

    large = sorted((name for name in tasks if sizes[name] >= LARGE), key=sizes.__getitem__, reverse=True)
    with_passes = [[name] for name in large if FEW_ROWS not in functions[name].attributes]
    yield from map(part_of, with_passes)

    can_do_without = functools.cache(lambda name: _is_simple(functions[name]))  # looks at each op, and is asked twice
    groups = [[name] for name in large if [name] not in with_passes]
    few_rows = [name for (name,) in groups if can_do_without(name)]
    small = [name for name in tasks if sizes[name] < LARGE and not can_do_without(name)]
    rest = [name for name in functions if name not in large and name not in small]
    is_simple = all(map(can_do_without, rest))
    if small and is_simple and size_of(rest) >= LARGE:
        groups.append(small)
    elif small:
        rest, is_simple = [*rest, *small], False
    others = [names for names in [*with_passes, *groups] if names[0] not in few_rows]
    longest = WITH_PASSES * max(map(size_of, others), default=0)
    for name in reversed(few_rows) if is_simple else ():
        if size_of([*rest, name]) <= longest:
            groups.remove([name])
            rest.append(name)
    for names in groups:
        yield part_of(names, names[0] in few_rows)
    elsewhere = [name for names in [*with_passes, *groups] for name in names]
    yield _Part(_without(module, elsewhere), entry, size_of(rest), elsewhere, is_simple)


def _without(module: ir.Module, names: Sequence[str]) -> ir.Module:
    """The module with declarations of these functions, which are elsewhere."""
    rest = _empty(module)
    with ir.InsertionPoint(rest.body), module.operation.location:
        for op in ops_of(module.body):
            if op.name == "llvm.func" and ir.StringAttr(op.attributes["sym_name"]).value in names:
                attributes = {name: op.attributes[name] for name in op.attributes} | {"linkage": _external(module)}
                ir.Operation.create("llvm.func", attributes=attributes, regions=1)
            else:
                op.clone()
    return rest


def _external(module: ir.Module) -> ir.Attribute:
    return ir.Attribute.parse("#llvm.linkage<external>", module.context)


def _is_simple(function: ir.Operation) -> bool:
    """Whether it is a task of few rows, or has few vectors, and no loop over single numbers, of which LLVM would make
    one over vectors."""
    most = math.inf if FEW_ROWS in function.attributes else FEW
    blocks = list(function.regions[0].blocks)
    vectors = 0
    for block in blocks if len(blocks) > 1 else ():
        found, numbers = 0, False
        for op in block.operations:
            kinds = _numbers(op.operation)
            numbers = numbers or bool(kinds)
            found += sum(isinstance(kind, ir.VectorType) for kind in kinds)
            if found and most == math.inf:  # how many does not matter: types take long to ask for
                break
        if numbers and not found and _is_loop(block):
            return False
        vectors += found
    return vectors <= most


def _is_loop(block: ir.Block) -> bool:
    """Whether a block is a loop, alone or with one before it that asks whether there is one more iteration."""
    return any(block in (after, *after.successors) for after in block.successors)


def _numbers(op: ir.Operation) -> list[ir.Type]:
    """The types of what an op computes or stores: vectors, floats, and stored integers narrower than a size."""
    kinds = [value.type for value in (op.operands[:1] if op.name == "llvm.store" else op.results)]
    return [
        kind
        for kind in kinds
        if isinstance(kind, ir.VectorType | ir.FloatType)
        or (op.name == "llvm.store" and isinstance(kind, ir.IntegerType) and kind.width < 64)
    ]


def _is_internal(function: ir.Operation) -> bool:
    return str(function.attributes["linkage"]) == "#llvm.linkage<internal>"


def _called(function: ir.Operation) -> set[str]:
    """The functions that a function calls; "" for data, and for a call of an address."""
    found = ops_in(function, "llvm.call", "llvm.mlir.addressof")
    return {ir.FlatSymbolRefAttr(op.attributes["callee"]).value if "callee" in op.attributes else "" for op in found}


def _empty(module: ir.Module) -> ir.Module:
    """A module with the attributes of another one."""
    empty = ir.Module.create(module.operation.location)
    for name in module.operation.attributes:
        empty.operation.attributes[name] = module.operation.attributes[name]
    return empty

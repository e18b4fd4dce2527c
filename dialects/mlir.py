"""The one place where the MLIR Python bindings are imported.

They come in the wheel ``torch-mlir`` as package ``torch_mlir``; moving to a package named ``mlir`` changes
``PACKAGE`` and nothing else. Modules are imported on first use, so that a command pays only for the dialects it
touches::

    from ..dialects.mlir import ir, linalg, scf

`ir` and what else takes long to load is a module that loads itself when a name in it is read: a kernel that was
compiled before is found, loaded and called without.
"""

import ctypes
import functools
import glob
import importlib
import importlib.util
import os
import sys
import threading
import types
from typing import Any

PACKAGE = "torch_mlir"

_MODULES = {
    "ir": "ir",
    "passmanager": "passmanager",
    "rewrite": "rewrite",
    "execution_engine": "execution_engine",
    "interpreter": "dialects.transform.interpreter",
}
_LATE = ("ir", "passmanager", "execution_engine")
# Of upstream's dialects that take long to import, the modules that have what we use, and its names; see _Partial.
_PARTIAL: dict[str, dict[str, str]] = {
    "linalg": {
        "dialects._linalg_ops_gen": "BatchMatmulOp BroadcastOp FillOp GenericOp IndexOp MatmulOp YieldOp",
        "_mlir_libs._mlirDialectsLinalg": "fill_builtin_region get_indexing_maps",
    },
    "llvm": {},  # passes for CPUs make its ops by `llvm_ops`
}


class _Late(types.ModuleType):
    """A module of the bindings, which is imported for the first name that is read."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = getattr(_loaded(self.__name__), name)
        setattr(self, name, value)  # found without this function from now on
        return value


@functools.cache
def _loaded(path: str) -> types.ModuleType:
    module = importlib.import_module(f"{PACKAGE}.{path}")
    if path == "ir":
        _compare_by_identity(module)
    return module


def _compare_by_identity(ir: types.ModuleType) -> None:
    """Has ops hash as they compare, by which op it is. In the bindings their hash is that of what they are made of, so
    that an op whose operand was replaced is in no set, and under no key, that it was put in before. And one that was
    erased, whose place another one may have by now, is none of those that there are; comparing it raised an error, as
    did comparing an op with anything else, such as None."""
    of_op = ir.Operation.__mro__[1]
    is_same = of_op.__eq__

    def equal(a: Any, b: Any) -> bool:
        if not isinstance(b, of_op):
            return NotImplemented
        try:
            return is_same(a, b)
        except RuntimeError:
            return a is b

    of_op.__eq__ = equal  # type: ignore[method-assign, assignment]
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_size_t, (ctypes.py_object, ctypes.c_char_p)
    name = f"{PACKAGE}.ir.Operation._CAPIPtr".encode()
    ir.Operation.__hash__ = lambda op: pointer(op._CAPIPtr, name) >> 4  # addresses are multiples of 16
    ir.OpView.__hash__ = lambda op: pointer(op.operation._CAPIPtr, name) >> 4


class _Partial(types.ModuleType):
    """A dialect's module of upstream's, with the names that we use; it runs as it is when any other one is read.

    Running linalg's makes a function for each named op from a language of its own, which takes as long as to import all
    other dialects; llvm's has 300 ops. The bindings import it by its name when they show the first op, so that it
    stands where they find it.
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__all__":
            raise AttributeError(name)
        with _running:
            if type(self) is _Partial:
                spec = self.__spec__
                assert spec is not None and spec.loader is not None, "it was made of its spec"
                spec.loader.exec_module(self)
                self.__class__ = types.ModuleType  # type: ignore[assignment]
        return getattr(self, name)


_running = threading.RLock()


def _partial(dialect: str) -> types.ModuleType:
    name = f"{PACKAGE}.dialects.{dialect}"
    if name in sys.modules:
        return sys.modules[name]
    dialects = importlib.import_module(f"{PACKAGE}.dialects")
    spec = importlib.util.find_spec(name)
    if spec is None:
        return importlib.import_module(name)  # which says what is wrong
    module = importlib.util.module_from_spec(spec)
    for path, names in _PARTIAL[dialect].items():
        found = importlib.import_module(f"{PACKAGE}.{path}")
        for one in names.split():
            setattr(module, one, getattr(found, one))
    module.__class__ = _Partial
    vars(dialects)[dialect] = sys.modules[name] = module
    return module


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    path = _MODULES.get(name, "dialects." + name)
    if name in _PARTIAL:
        module = _partial(name)
    else:
        module = _Late(path) if name in _LATE else importlib.import_module(f"{PACKAGE}.{path}")
    globals()[name] = module
    return module


def register(dialect: Any) -> None:
    """Lets the bindings find the module of a dialect of ours. They look for it each time that they show an op of it,
    also where its class is known: an import that fails takes longer than most passes do with an op."""
    sys.modules.setdefault(f"{PACKAGE}.dialects.{dialect.DIALECT_NAMESPACE}", sys.modules[dialect.__module__])


def identity() -> str:
    """The bindings' libraries with their sizes, which differ between releases; found without loading them."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        return ""
    with os.scandir(os.path.join(spec.submodule_search_locations[0], "_mlir_libs")) as found:
        return repr(sorted((entry.name, entry.stat().st_size) for entry in found if ".so" in entry.name))


@functools.cache
def c_interface() -> ctypes.CDLL:
    """MLIR's C interface, which the bindings are made of; a call of it gives the interpreter's lock away."""
    libraries = importlib.import_module(f"{PACKAGE}._mlir_libs")
    (path,) = glob.glob(os.path.join(os.path.dirname(libraries.__file__ or ""), "lib*CAPI.so*"))
    return ctypes.CDLL(path)

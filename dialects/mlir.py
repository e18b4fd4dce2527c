"""The one place where the MLIR Python bindings are imported.

They come in the wheel ``torch-mlir`` as package ``torch_mlir``; moving to a package named ``mlir`` changes
``PACKAGE`` and nothing else. Modules are imported on first use, so that a command pays only for the dialects it
touches::

    from ..dialects.mlir import ir, linalg, scf

`ir` and what else takes long to load is a module that loads itself when a name in it is read: a kernel that was
compiled before is found, loaded and called without.
"""

import importlib
import importlib.util
import os
import sys
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


class _Late(types.ModuleType):
    """A module of the bindings, which is imported for the first name that is read."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = getattr(importlib.import_module(f"{PACKAGE}.{self.__name__}"), name)
        setattr(self, name, value)  # found without this function from now on
        return value


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    path = _MODULES.get(name, "dialects." + name)
    module: types.ModuleType = _Late(path) if name in _LATE else importlib.import_module(f"{PACKAGE}.{path}")
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

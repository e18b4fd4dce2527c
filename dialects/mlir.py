"""The one place where the MLIR Python bindings are imported.

They come in the wheel ``torch-mlir`` as package ``torch_mlir``; moving to a package named ``mlir`` changes
``PACKAGE`` and nothing else. Modules are imported on first use, so that a command pays only for the dialects it
touches::

    from ..dialects.mlir import ir, linalg, scf
"""

import importlib
from typing import Any

PACKAGE = "torch_mlir"

_MODULES = {
    "ir": "ir",
    "passmanager": "passmanager",
    "rewrite": "rewrite",
    "execution_engine": "execution_engine",
    "interpreter": "dialects.transform.interpreter",
}


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    module = importlib.import_module(f"{PACKAGE}.{_MODULES.get(name, 'dialects.' + name)}")
    globals()[name] = module
    return module

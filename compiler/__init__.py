"""Who calls what, when: the Python interface, the pipelines, the runtimes and the command-line tools.

    from attn_opt.compiler import compile
    kernel = compile("attention.mlir")
    out = kernel(q, k, v)

Names are imported on first use, so that importing this package costs next to nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api import CompileError, Kernel, compile, load
    from .counts import stats

__all__ = ["CompileError", "Kernel", "compile", "load", "stats"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(".counts" if name == "stats" else ".api", __name__)
    return getattr(module, name)

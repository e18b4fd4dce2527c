"""Calls of upstream's C++ that may crash: a signal ends the call, and not the process."""

import ctypes
import functools
from collections.abc import Callable
from typing import Any

from .mlir import c_interface

_CONTEXT = "_ZN4llvm20CrashRecoveryContext"  # llvm::CrashRecoveryContext, in which clang parses
_CONTEXT_BYTES = 256  # more than it has


class Crashed(Exception):
    """Upstream's C++ crashed in a call."""


def recovered(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """``function(*args, **kwargs)``; Crashed where it dies of a signal.

    LLVM's handler of the signal then jumps back to here, as it does for the threads of clangd. What it jumps over is
    never cleaned up: no frame of Python may be among it, so that `function` is one of the bindings' own; and the MLIR
    context in which it worked is to be left alone, but for its messages.
    """
    functions = _functions()
    if functions is None:
        return function(*args, **kwargs)
    create, enable, run, disable, destroy = functions
    context = ctypes.create_string_buffer(_CONTEXT_BYTES)
    values: list[Any] = []
    # Calls `function` from C alone: `extend` takes what `map` has, which calls it.
    call = functools.partial(values.extend, map(functools.partial(function, **kwargs), *([x] for x in args)))
    create(context)
    enable(False)  # the handlers of signals are LLVM's until `disable`
    try:
        if not run(context, ctypes.cast(ctypes.pythonapi.PyObject_CallNoArgs, ctypes.c_void_p), call):
            raise Crashed
    finally:
        disable()
        destroy(context)
    return values[0]


@functools.cache
def _functions() -> list[Any] | None:
    """The constructor, Enable, RunSafely (which calls a function with an argument, and returns whether that returned),
    Disable and the destructor. All keep the interpreter's lock. None: the bindings do not export them, as others than
    the pinned ones may not."""
    library = ctypes.PyDLL(None, handle=c_interface()._handle)
    found = []
    for name, result, arguments in (
        ("C1Ev", None, [ctypes.c_void_p]),
        ("6EnableEb", None, [ctypes.c_bool]),
        ("9RunSafelyENS_12function_refIFvvEEE", ctypes.c_bool, [ctypes.c_void_p, ctypes.c_void_p, ctypes.py_object]),
        ("7DisableEv", None, []),
        ("D1Ev", None, [ctypes.c_void_p]),
    ):
        function = getattr(library, _CONTEXT + name, None)
        if function is None:
            return None
        function.restype, function.argtypes = result, arguments
        found.append(function)
    return found

"""The Python interface: `compile` gives a `Kernel`. What was compiled before is found without the bindings."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..dialects.diagnostic import DiagnosedError, places_of
from ..dialects.mlir import ir
from . import cache, counts, explain
from .cache_key import key
from .diagnostics import user_error
from .kernel import CompileError, Kernel, load
from .kernel_file import Compiled
from .options import Options, check_target, make_options, settled
from .sources import is_exported_function, is_exported_program, is_onnx, load_module, load_text, text_of

TRACING_OPTIONS = ("example_kwargs", "dynamic_shapes")

# The bindings' Python part is not made for several threads at once; what one has compiled the next one finds.
COMPILING = threading.RLock()

# A process that is forked while another thread compiles waits for it: the child has no thread that would go on with it.
os.register_at_fork(before=COMPILING.acquire, after_in_parent=COMPILING.release, after_in_child=COMPILING.release)


@contextlib.contextmanager
def _compiling() -> Iterator[None]:
    """Around the making of one kernel, by one thread at once; cycles of Python's objects are collected after it.

    A new process imports meanwhile: looking for cycles among all that is new takes a tenth of the time.
    """
    with COMPILING:
        collects = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            if collects:
                gc.enable()


def compile(source: Any, example_args: Sequence[Any] | None = None, target: str = "cpu", **options: Any) -> Kernel:
    """Compiles MLIR text, a file of it, a module (an ``ir.Module`` or operation), a traced function or an ONNX model.

    A function or module of torch, or a function of JAX, is traced with `example_args` (and `example_kwargs`; for torch
    also `dynamic_shapes` as torch.export takes them); what torch.export or jax.export traced, or a
    ``.pt2`` that the former saved, needs none. An ONNX model is a path that ends in ``.onnx`` or a ModelProto;
    `example_args` fix the sizes that it leaves open. For anything else `example_args`, where given, are checked against
    the function's arguments. For `options` see `Options`. Raises CompileError, which says where the trouble is and what
    to do. Warns of what looks like attention and is left unfused, unless `listener` is told. Gradients go back through
    kernels of functions of torch and JAX.
    """
    with COMPILING:
        kernel = _compile(source, example_args, target, options)
    if options.get("listener") is None and isinstance(kernel, Kernel):  # else it is compiled at its first call
        kernel.warn_of_left(stacklevel=3)
    return kernel


def _compile(source: Any, example_args: Sequence[Any] | None, target: str, options: dict[str, Any]) -> Kernel:
    try:
        tracing = {name: options.pop(name) for name in TRACING_OPTIONS if name in options}
        chosen = make_options(options)
        check_target(target)
        if is_exported_program(source):
            from .frontends import load_exported_program

            source = load_exported_program(source)
        if example_args is not None and not hasattr(example_args, "__len__"):
            kind = type(example_args).__name__
            raise user_error(f"example_args must be a tuple of arguments, but is of type {kind}; write (x,)")
        if (callable(source) and not hasattr(source, "operation")) or is_exported_function(source):
            from .frontends import compile_traced

            return compile_traced(source, example_args, target, chosen, tracing)
        if is_onnx(source):
            from .frontends import compile_onnx

            return compile_onnx(source, example_args, target, chosen, tracing)
        if tracing:
            raise user_error(f"{', '.join(tracing)}: only for functions that are traced")
        kernel = _compiled(source, target, chosen, example_args)
        if example_args is not None:
            kernel.signature.bind(example_args)
        return kernel
    except DiagnosedError as error:
        raise CompileError(error.diagnostics) from None


def _compiled(source: Any, target: str, options: Options, example_args: Sequence[Any] | None) -> Kernel:
    """The kernel of a source that is no function. Text that was compiled before is not even parsed."""
    if hasattr(source, "operation"):
        return compile_module(load_module(source), target, options)
    text, filename = text_of(source)
    return compile_text(text, filename, target, options, example_args)


def compile_text(
    text: str, filename: str, target: str, options: Options, example_args: Sequence[Any] | None = None
) -> Kernel:
    """Compiles MLIR text; locations name `filename`. Raises DiagnosedError."""
    options = settled(target, options)
    if options.autotune:
        return _tuned(lambda chosen: compile_text(text, filename, target, chosen), text, target, options, example_args)
    with _compiling():
        if not cache.enabled():
            return compile_module(load_text(text, filename), target, options)
        source = key(text, "source", target, options)
        found = cache.find_source(source, filename)
        if found is not None:
            compiled, said, places = found
            compiled = dataclasses.replace(compiled, record=explain.relocated(compiled.record, places))
            counts.count_cached(compiled.counts)
            if options.listener is not None:
                for one in said:
                    options.listener(one)
        else:
            name, compiled, news = _found_or_lowered(load_text(text, filename), target, options)
            if news is not None or not compiled.told:
                places = [tuple(place) for _, place in compiled.record["anchors"]]
                cache.keep_source(source, name, news or [], places, filename)
    return Kernel.of(compiled, target, options)


def without_locations(module: ir.Module) -> str:
    """The text of a module that is the same wherever it comes from."""
    from ..dialects.assembly import print_module

    return print_module(module, generic=True)


def _tuned(
    compiled: Callable[[Options], Kernel],
    text: str,
    target: str,
    options: Options,
    example_args: Sequence[Any] | None,
) -> Kernel:
    """The kernel with the schedule that is the fastest of those measured, which `explain` tells of."""
    from .tuning.progress_bar import ProgressBar
    from .tuning.search import table, tuned

    with ProgressBar() as bar:
        found = tuned(text, target, options, example_args, bar)
    kernel = compiled(found.apply(options))
    kernel.record = {**kernel.record, "tuning": table(found)}
    return kernel


def compile_module(module: ir.Module, target: str, options: Options) -> Kernel:
    """Compiles `module`, in place unless the kernel is there already. Raises DiagnosedError."""
    from .lowering import lower

    options = settled(target, options)
    if options.autotune:
        text = without_locations(module)
        return _tuned(lambda chosen: compile_module(module, target, chosen), text, target, options, None)
    with _compiling():
        if cache.enabled():
            _, compiled, _ = _found_or_lowered(module, target, options)
        else:
            compiled, _ = lower(module, target, options)
    return Kernel.of(compiled, target, options)


def _found_or_lowered(module: ir.Module, target: str, options: Options) -> tuple[str, Compiled, list | None]:
    """What the module compiles to, with its key, and what was said meanwhile: None if it was there already."""
    from .lowering import lower

    name = key(without_locations(module), "ir", target, options)
    found = cache.find(name)
    if found is not None and (options.listener is None or not found.told):
        counts.count_cached(found.counts)
        places = explain.present(found.record, places_of(module))
        return name, dataclasses.replace(found, record=explain.relocated(found.record, places)), None
    compiled, said = lower(module, target, options)
    cache.keep(name, compiled)
    return name, compiled, said


__all__ = ["CompileError", "Kernel", "Options", "compile", "compile_module", "compile_text", "load", "make_options"]

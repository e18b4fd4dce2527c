"""What compiling gives: a `Kernel`, which is called with arrays and shows its IR at every stage."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import pathlib
import struct
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..dialects.diagnostic import DiagnosedError, Diagnostic
from . import cache, counts, explain
from .diagnostics import file_error, user_error
from .kernel_file import MAGIC, Compiled, Texts, packed, unpacked
from .options import Options, default_threads
from .runtime.signature import NotContiguous, Signature, Slot, Traced
from .strided import Bound, Variants, transposed


class CompileError(DiagnosedError):
    """The source cannot be compiled, or a kernel not be called so; str() is the whole diagnostic."""

    def __init__(self, diagnostics: Sequence[Diagnostic]):
        super().__init__(diagnostics)
        self.args = ("\n".join(str(d) for one in self.diagnostics for d in (one, *one.notes)),)


def load(path: str | os.PathLike[str]) -> Kernel:
    """The kernel that `Kernel.save` wrote; needs neither the bindings nor the graph. Raises CompileError."""
    try:
        with open(os.fspath(path), "rb") as file:  # which need not have an end if it is no kernel
            data = file.read(len(MAGIC))
            compiled = unpacked(data + file.read() if data == MAGIC else data)
    except (OSError, ValueError, KeyError, TypeError, struct.error) as error:
        why = (error.strerror or str(error)).lower() if isinstance(error, OSError) else f"{error}"
        raise CompileError(user_error(f"{path} holds no kernel that can be loaded: {why}").diagnostics) from None
    return Kernel.of(compiled, compiled.target, Options())


def traced_call(kernel: Kernel, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What a kernel returns to JAX, where arguments are traced."""
    from .frontends.jax.calls import traced_call

    return traced_call(kernel, tuple(args), dict(kwargs))


def _restored(data: bytes, threads: int | None) -> Kernel:
    """The kernel that was pickled."""
    compiled = unpacked(data)
    return Kernel.of(compiled, compiled.target, Options(threads=threads))


def _general(texts: Mapping[str, str], options: Options) -> Any:
    """The runtime of the same graph's kernel that takes arrays of any strides."""
    from .api import compile_text

    general = dataclasses.replace(options, any_strides=True, listener=None)
    try:
        kernel = compile_text(texts["graph"], "<graph>", "nvidia", general)
    except ModuleNotFoundError as missing:  # a kernel that was saved elsewhere
        raise user_error(
            f"an array has strides that this kernel does not take, and compiling one that does needs {missing.name}",
            "make the array contiguous",
        ) from None
    kernel.warn_of_left(stacklevel=2)
    return kernel._runtime


class Kernel:
    """A compiled function. Call it with arrays; `ir(stage)` is its IR at a stage, `stages()` names them."""

    def __init__(
        self,
        signature: Signature,
        target: str,
        texts: Mapping[str, str],
        runtime: Any,
        threads: int | None = None,
        record: explain.Record | None = None,
        variants: Variants | None = None,
    ):
        self.signature = signature
        self.target = target
        self._texts = texts
        self._runtime = runtime
        self._on_gpu: Callable[[Sequence[Any], Any], list[Any]] | None = getattr(runtime, "call", None)
        self._variants = variants
        self._threads = threads
        self.record = record or {"entries": [], "seconds": []}

    @classmethod
    def of(cls, compiled: Compiled, target: str, options: Options) -> Kernel:
        threads = options.threads or default_threads()
        variants = None
        if target == "nvidia":
            runtime = compiled.runtime
            runtime.cubins = cache.code_folder
            runtime.tile_sizes = tuple(options.tile_sizes)
            if not options.any_strides:
                runtime.general = functools.partial(_general, compiled.texts, options)
                runtime.transposed = functools.partial(transposed, compiled.texts, compiled.signature.name, options)
        else:
            variants = Variants(compiled.texts, compiled.signature, target, options)
        return cls(compiled.signature, target, compiled.texts, compiled.runtime, threads, compiled.record, variants)

    @property
    def name(self) -> str:
        return self.signature.name

    def __call__(self, *arguments: Any, out: Any = None, **named: Any) -> Any:
        """The result, or a tuple of them, as new numpy arrays. Arguments are numpy arrays or anything with DLPack.

        For the target nvidia, tensors of torch, CuPy or JAX on the GPU are used in place, and results are such
        tensors; `out`: tensors of torch or CuPy that the results are written to. What JAX traces, on the CPU, becomes a
        callback (`frontends/jax/calls.py`).
        """
        if named:
            problem = f"'{self.name}' has no argument '{next(iter(named))}': its arguments are given in order"
            raise CompileError(user_error(problem).diagnostics)
        if self._on_gpu is None:
            if out is not None:
                raise CompileError(user_error("out is for the target nvidia; here results are new arrays").diagnostics)
            try:
                results = self.run(self.bind(arguments))
            except Traced:
                return traced_call(self, arguments, {})
        else:
            try:
                results = self._on_gpu(arguments, out)
            except Traced:
                return traced_call(self, arguments, {})
            except DiagnosedError as error:
                raise CompileError(error.diagnostics) from None
        return results[0] if len(results) == 1 else tuple(results)

    def result_types(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Sequence[Slot], Callable]:
        """The types of the results of a call with such arguments, and how a call returns them."""
        if all(slot.shape is not None for slot in self.signature.arguments):  # of scalars the values matter
            self.bind(args)
        return self.signature.results, lambda results: results[0] if len(results) == 1 else tuple(results)

    def bind(self, arguments: Sequence[Any]) -> list[np.ndarray]:
        """The arguments as arrays that `run` takes, checked."""
        try:
            if self._on_gpu is not None:
                from .runtime.cuda_arrays import device_library

                if device_library(arguments) is not None:
                    return list(arguments)  # checked where they are used
            arrays = self.signature.bind(arguments, strided=self._variants is not None)
            if type(arrays) is NotContiguous and self._variants is not None:
                return self._variants.bound(arrays)
            return arrays
        except DiagnosedError as error:
            raise CompileError(error.diagnostics) from None

    def run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The results on arrays that `bind` gave: for calls in a row without a check each time."""
        if self._on_gpu is not None:
            return self._on_gpu(arrays, None)
        runtime = arrays.runtime if type(arrays) is Bound else self._runtime  # as in invoke: a call less
        return runtime.invoke(arrays, self._threads)

    def invoke(self, arrays: Sequence[np.ndarray], threads: int | None) -> list[np.ndarray]:
        """The results on a CPU, on that many threads, of arrays that `bind` gave."""
        runtime = arrays.runtime if type(arrays) is Bound else self._runtime
        return runtime.invoke(arrays, threads)

    def on_host(self) -> Any:
        """What `run`s the kernel, for the target nvidia, by host code of MLIR's ExecutionEngine; see `HostKernel`."""
        from .runtime.nvidia_host import HostKernel

        arch = self._runtime.image.arch
        return HostKernel(self.ir("llvm"), self.ir("ptx"), self.signature, arch)

    def assemble(self) -> None:
        """For the target nvidia: has ptxas make machine code for this machine's GPU, and keeps it, where both are
        there; else the first call does."""
        from .runtime.cuda_driver import CudaError, driver

        with contextlib.suppress(CudaError):
            image = self._runtime.image
            for one in (image, *(version.image for version in image.versions)):
                driver().machine_code(one.code, cache.code_folder(), 0)

    def _packed(self) -> bytes:
        return packed(
            Compiled(
                self.signature, Texts.of(self._texts), self._runtime, counts.NOTHING, False, self.record, self.target
            )
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as it is saved, for other processes on such a CPU."""
        if type(self) is not Kernel:  # it holds a graph of its framework's
            raise TypeError(f"a {type(self).__name__} cannot be pickled; save() writes its kernel without the function")
        return _restored, (self._packed(), self._threads)

    def __deepcopy__(self, memo: dict) -> Kernel:
        return self  # nothing in it changes

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the kernel to a file, which `load` reads: on this CPU's kind, or on any GPU that its code is for."""
        data = self._packed()
        try:
            pathlib.Path(path).write_bytes(data)
        except OSError as error:
            raise CompileError(file_error(os.fspath(path), "written", error).diagnostics) from None
        except (TypeError, ValueError) as error:
            raise CompileError(user_error(f"{path!r} is no path that can be written: {error}").diagnostics) from None

    def stages(self) -> list[str]:
        """The names of the stages, in order."""
        return list(self._texts)

    def ir(self, stage: str) -> str:
        """The text of the IR after `stage`."""
        if stage not in self._texts:
            raise CompileError(user_error(f"no stage '{stage}'; the stages are: {', '.join(self._texts)}").diagnostics)
        return self._texts[stage]

    def explain(self) -> str:
        """What was found and fused, with which loops and tiles; what was left and why; warnings; where time went.

        For a kernel that was there already, this is what was said when its graph was compiled first; places are
        those of that text.
        """
        return explain.explanation(self.record, self.name, self.target)

    def warn_of_left(self, stacklevel: int) -> None:
        """Warns of each attention that was found and not fused, where something is lost by it, of what is slow, and of
        arguments that are donated in vain, as of what the caller at that level did."""
        texts = [
            f"attn_opt: attention is not fused at {explain.at(entry)}: {explain.reason_left(entry['message'])}"
            for entry in explain.left(self.record)
            if entry["details"].get("kind") != "trivial"
        ]
        texts += [f"attn_opt: {explain.at(entry)}: {entry['message']}" for entry in explain.slow(self.record)]
        for text in dict.fromkeys(texts):  # a loop that was written out says the same once for each iteration
            warnings.warn(text, stacklevel=stacklevel)
        for message in explain.in_vain(self.record):
            warnings.warn(f"attn_opt: {message}: it is copied", stacklevel=stacklevel)

    def __repr__(self) -> str:
        inputs = ", ".join(map(str, self.signature.arguments))
        results = ", ".join(map(str, self.signature.results))
        return f"<Kernel {self.name}({inputs}) -> ({results}) for {self.target}>"

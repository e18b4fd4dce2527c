"""The Python interface: `compile` gives a `Kernel`, which is called with arrays and shows its IR at every stage."""

import dataclasses
import functools
import os
import pathlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..dialects import make_context
from ..dialects.assembly import parse_module, print_module
from ..dialects.diagnostic import DiagnosedError, Diagnostic
from ..dialects.mlir import ir
from ..transforms.passes import PassError
from . import cache, counts, env, explain, pass_manager
from .cache import Compiled, Texts
from .diagnostics import user_error
from .runtime.signature import NotContiguous, Signature
from .strided import Bound, Variants

Listener = Callable[[Diagnostic], None]

TARGETS = ("cpu", "nvidia")
TRACING_OPTIONS = ("example_kwargs", "dynamic_shapes")
SCRIPTS = ("transform.sequence", "transform.named_sequence")
# The bindings' Python part is not made for several threads at once; what one has compiled the next one finds.
COMPILING = threading.RLock()
CODE = "machine code"  # the name of the time that making it takes
LOOPS = ("scf.for", "scf.forall", "scf.parallel", "affine.for")


class CompileError(DiagnosedError):
    """The source cannot be compiled, or a kernel not be called so; str() is the whole diagnostic."""

    def __init__(self, diagnostics: Sequence[Diagnostic]):
        super().__init__(diagnostics)
        self.args = ("\n".join(str(d) for one in self.diagnostics for d in (one, *one.notes)),)


@dataclasses.dataclass(frozen=True)
class Options:
    """The options of `compile`."""

    entry: str | None = None  # the function to compile; without a name the only public one
    fuse: bool = True  # find and fuse attention, unless a transform script says what to do
    tile_sizes: Sequence[int] = ()  # one per loop of the root, 0 = not tiled; by default chosen from the caches
    tile_interchange: Sequence[int] = ()  # the root's loops from outer to inner
    threads: int | None = None  # by default ATTN_OPT_THREADS, or all that this process may use
    arch: str | None = None  # for the target nvidia: sm_80, sm_90a, …; by default this machine's GPU
    split_keys: int = 0  # into how many parts; 1 = not; 0 = where too few blocks would leave threads idle
    any_strides: bool = False  # for nvidia: rows need not be dense and aligned; made by itself where a call needs it
    copy_engine: bool = True  # for nvidia, sm_90a: warps with roles and Hopper's copy engine (docs/nvidia.md)
    listener: Listener | None = None  # is told errors, warnings and remarks as they come

    def check(self) -> None:
        """A user's error where a value has the wrong type."""
        for name in ("tile_sizes", "tile_interchange"):
            values = getattr(self, name)
            is_sequence = isinstance(values, Sequence | np.ndarray) and not isinstance(values, str)
            if not is_sequence or not all(isinstance(value, int | np.integer) for value in values):
                raise user_error(f"{name} must be a sequence of integers, but is {values!r}")
        if not isinstance(self.split_keys, int) or self.split_keys < 0:
            raise user_error(f"split_keys must be 0 (by rule), 1 (never) or how many parts, but is {self.split_keys!r}")
        if self.threads is not None and (not isinstance(self.threads, int) or self.threads < 1):
            raise user_error(f"threads must be a positive integer, but is {self.threads!r}")

    @property
    def workers(self) -> int:
        """How many threads a kernel for the CPU will run on."""
        return self.threads or _default_threads() or len(os.sched_getaffinity(0))


def compile(source: Any, example_args: Sequence[Any] | None = None, target: str = "cpu", **options: Any) -> "Kernel":
    """Compiles MLIR text, a file of it, a module (an ``ir.Module`` or operation), a traced function or an ONNX model.

    A function or module of torch, or a function of JAX, is traced with `example_args` (and `example_kwargs`; for torch
    also `dynamic_shapes` as torch.export takes them). An ONNX model is a path that ends in ``.onnx`` or a ModelProto;
    `example_args` fix the sizes that it leaves open. For anything else `example_args`, where given, are checked against
    the function's arguments. For `options` see `Options`. Raises CompileError, which says where the trouble is and what
    to do.
    """
    with COMPILING:
        return _compile(source, example_args, target, options)


def _compile(source: Any, example_args: Sequence[Any] | None, target: str, options: dict[str, Any]) -> "Kernel":
    try:
        tracing = {name: options.pop(name) for name in TRACING_OPTIONS if name in options}
        chosen = make_options(options)
        check_target(target)
        if callable(source) and not hasattr(source, "operation"):
            from .frontends import compile_traced

            return compile_traced(source, example_args, target, chosen, tracing)
        if is_onnx(source):
            from .frontends import compile_onnx

            return compile_onnx(source, example_args, target, chosen, tracing)
        if tracing:
            raise user_error(f"{', '.join(tracing)}: only for functions that are traced")
        kernel = _compiled(source, target, chosen)
        if example_args is not None:
            kernel.signature.bind(example_args)
        return kernel
    except DiagnosedError as error:
        raise CompileError(error.diagnostics) from None


def _compiled(source: Any, target: str, options: Options) -> "Kernel":
    """The kernel of a source that is no function. Text that was compiled before is not even parsed."""
    if hasattr(source, "operation"):
        return compile_module(load(source), target, options)
    text, filename = _text(source)
    return compile_text(text, filename, target, options)


def compile_text(text: str, filename: str, target: str, options: Options) -> "Kernel":
    """Compiles MLIR text; locations name `filename`. Raises DiagnosedError."""
    options = settled(target, options)
    if not cache.enabled():
        return compile_module(load_text(text, filename), target, options)
    with COMPILING:
        source = cache.key(text, "source", target, options)
        found = cache.find_source(source, filename)
        if found is not None:
            compiled, said = found
            compiled = dataclasses.replace(compiled, record=explain.relocated(compiled.record, said))
            counts.count_cached(compiled.counts)
            if options.listener is not None:
                for one in said:
                    options.listener(one)
        else:
            key, compiled, news = _found_or_lowered(load_text(text, filename), target, options)
            if news is not None or not compiled.told:
                cache.keep_source(source, key, news or [], filename)
    return Kernel.of(compiled, target, options)


def settled(target: str, options: Options) -> Options:
    """The options with all that depends on this machine chosen; a user's error where the target or one is wrong."""
    check_target(target)
    options.check()
    if target != "nvidia":
        return options
    from .runtime.arch import choose_arch

    return dataclasses.replace(options, arch=choose_arch(options.arch))


def _without_locations(module: ir.Module) -> str:
    return print_module(module, generic=True)


def make_options(given: dict[str, Any]) -> Options:
    """The options of those names; a user's error where there is none of a name."""
    known = [field.name for field in dataclasses.fields(Options)]
    unknown = sorted(given.keys() - set(known))
    if unknown:
        raise user_error(f"unknown option '{unknown[0]}'; the options are: {', '.join(known)}")
    return Options(**given)


def is_onnx(source: Any) -> bool:
    """Whether `source` is a model of ONNX, or a path to one; onnx itself is not needed to tell."""
    if isinstance(source, str | os.PathLike):
        return os.fspath(source).endswith(".onnx")
    return type(source).__name__ == "ModelProto" and hasattr(source, "opset_import")


def _context() -> ir.Context:
    context = make_context()
    # Verifiers and passes in Python hold the interpreter's lock: threads would only wait for each other.
    context.enable_multithreading(False)
    return context


def load(source: Any) -> ir.Module:
    """The module that `source` is (see `compile`), in a context of its own."""
    if hasattr(source, "operation"):
        return _copied(source.operation)
    return load_text(*_text(source))


def _text(source: Any) -> tuple[str, str]:
    """The text of a path or of text, and the file that its locations name."""
    if isinstance(source, os.PathLike) or (isinstance(source, str) and _looks_like_path(source)):
        return read(source), str(source)
    if isinstance(source, str):
        return source, "<string>"
    raise user_error(f"expects MLIR text, a path or a module, but found {type(source).__name__}")


def load_text(text: str, filename: str) -> ir.Module:
    """The module that `text` is, in a context of its own; locations name `filename`."""
    with _context():
        return parse_module(text, filename)


def read(path: str | os.PathLike[str]) -> str:
    """The text of a file; a user's error where it cannot be read."""
    try:
        return pathlib.Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise DiagnosedError([Diagnostic("error", str(path), 0, 0, "is no text in UTF-8")]) from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise DiagnosedError([Diagnostic("error", str(path), 0, 0, f"cannot be read: {reason}")]) from None


def _looks_like_path(text: str) -> bool:
    """MLIR text has an op in it, whose form needs a bracket or a line break; few paths have either."""
    if "\n" not in text and os.path.exists(text):
        return True
    return bool(text) and not set(text) & set("\n(){}<>") and (text.endswith(".mlir") or " " not in text.strip())


def _copied(operation: ir.Operation) -> ir.Module:
    """`operation`, which may be of any context, in a module of our own context."""
    text = operation.get_asm(print_generic_op_form=True, enable_debug_info=True)
    if operation.name != "builtin.module":
        text = f'"builtin.module"() ({{\n{text}\n}}) : () -> ()'
    return load_text(text, "<module>")


def has_script(module: ir.Module) -> bool:
    """Whether the module holds a transform script, which then says what is fused."""
    return any(op.operation.name in SCRIPTS for op in module.body.operations)


def is_fused(module: ir.Module) -> bool:
    """Whether ops of attention stand in loops already."""
    found = False

    def look(op: ir.Operation) -> ir.WalkResult:
        nonlocal found
        operation = op.operation
        if operation.name in LOOPS:
            found = found or _holds_matmul(operation)
            return ir.WalkResult.SKIP
        return ir.WalkResult.ADVANCE

    module.operation.walk(look, ir.WalkOrder.PRE_ORDER)
    return found


def _holds_matmul(loop: ir.Operation) -> bool:
    found = False

    def look(op: ir.Operation) -> ir.WalkResult:
        nonlocal found
        name = op.operation.name
        found = found or name.startswith("linalg_ext.") or (name.startswith("linalg.") and "matmul" in name)
        return ir.WalkResult.ADVANCE

    loop.walk(look)
    return found


def _default_threads() -> int | None:
    try:
        return env.get("THREADS")
    except env.VariableError as error:
        raise user_error(str(error)) from None


def check_target(target: str) -> None:
    """A user's error if there is no such target."""
    if target not in TARGETS:
        raise user_error(f"unknown target '{target}'; the targets are: {', '.join(TARGETS)}")


def find_entry(module: ir.Module, entry: str | None) -> ir.OpView:
    """The function to compile; a user's error if there is none of that name, or several and no name."""
    from ..dialects.reference.evaluator import find_function
    from ..dialects.reference.interface import EvaluationError

    try:
        return find_function(module, entry)
    except EvaluationError as error:
        raise user_error(error.message) from None


class Snapshots(pass_manager.Hook):
    """Keeps the text of the module after the passes that end a stage."""

    def __init__(self, stage_after: dict[str, str], texts: dict[str, str]):
        self.stage_after = stage_after
        self.texts = texts

    def after(self, stage: pass_manager.Stage, module: ir.Operation, failed: bool) -> None:
        name = self.stage_after.get(stage.name)
        if name is not None and not failed:
            self.texts.pop(name, None)  # the last pass of the name counts, also for the order
            self.texts[name] = print_module(module)


def compile_module(module: ir.Module, target: str, options: Options) -> "Kernel":
    """Compiles `module`, in place unless the kernel is there already. Raises DiagnosedError."""
    options = settled(target, options)
    with COMPILING:
        if cache.enabled():
            _, compiled, _ = _found_or_lowered(module, target, options)
        else:
            compiled, _ = _lower(module, target, options)
    return Kernel.of(compiled, target, options)


def _found_or_lowered(module: ir.Module, target: str, options: Options) -> tuple[str, Compiled, list | None]:
    """What the module compiles to, with its key, and what was said meanwhile: None if it was there already."""
    key = cache.key(_without_locations(module), "ir", target, options)
    found = cache.find(key)
    if found is not None and (options.listener is None or not found.told):
        counts.count_cached(found.counts)
        return key, found, None
    compiled, said = _lower(module, target, options)
    cache.keep(key, compiled)
    return key, compiled, said


def _lower(module: ir.Module, target: str, options: Options) -> tuple[Compiled, list[Diagnostic]]:
    """Takes a module through all levels, in place; what was said meanwhile comes with the result."""
    from . import pipelines

    function = find_entry(module, options.entry)
    if "sym_visibility" in function.operation.attributes:
        del function.operation.attributes["sym_visibility"]  # it is called from outside
    signature = Signature.of(function)
    texts = {"graph": print_module(module)}
    said: list[Diagnostic] = []

    def tell(found: Diagnostic) -> None:
        said.append(found)
        if options.listener is not None:
            options.listener(found)

    recorder = explain.Recorder()
    listener = recorder.listener(tell)
    with module.context, module.operation.location, counts.counting() as counting, recorder:
        hooks: list[pass_manager.Hook] = [recorder, Snapshots(pipelines.STAGE_AFTER, texts), counting]
        fusion = _fusion(module, target, options)
        runtime: Any
        if target == "nvidia":
            from .runtime import nvidia
            from .runtime.arch import DEFAULT_ARCH

            arch = options.arch or DEFAULT_ARCH
            passes: list[Any] = pipelines.nvidia(
                arch, options.any_strides, options.split_keys, copy_engine=options.copy_engine
            )
            pass_manager.run([*fusion, *passes], module, hooks=hooks, listener=listener)
            start = time.perf_counter()
            image, code = nvidia.make_image(module, find_entry(module, signature.name), arch)
            recorder.timed(CODE, time.perf_counter() - start)
            texts.update(code)
            runtime = nvidia.cuda.CudaKernel(image, signature)
        else:
            from .runtime import cpu

            passes = [*fusion, *pipelines.cpu(parts=options.split_keys, threads=options.workers)]
            levels = pipelines.STAGE_AFTER  # to verify after each pass takes a third of the time
            pass_manager.run(passes, module, hooks=hooks, listener=listener, verify=levels)
            start = time.perf_counter()
            runtime = cpu.CpuKernel(module, signature)
            recorder.timed(CODE, time.perf_counter() - start)
    return Compiled(signature, Texts.of(texts), runtime, counting.tally, bool(said), recorder.record, target), said


def _fusion(module: ir.Module, target: str, options: Options) -> list[pass_manager.Item]:
    """The pass that fuses attention: the module's script, the automatic one, or none."""
    tiling = bool(options.tile_sizes or options.tile_interchange)
    if has_script(module):
        if tiling:
            raise user_error("tile sizes are given, but the module holds a transform script, which has its own")
        return ["transform-interpreter"]
    if not options.fuse or is_fused(module):
        if tiling:
            raise user_error("tile sizes are given, but nothing is to be fused")
        return []
    from ..transforms.fuse_attention import FuseAttention
    from .pipelines import machine

    try:
        return [
            "raise-attention",
            FuseAttention(
                tuple(map(int, options.tile_sizes)),
                tuple(map(int, options.tile_interchange)),
                machine(target, options.arch, options.copy_engine and not options.any_strides),
            ),
        ]
    except (ValueError, PassError) as error:
        raise user_error(str(error)) from None


def _general(texts: Mapping[str, str], options: Options) -> Any:
    """The runtime of the same graph's kernel that takes arrays of any strides."""
    general = dataclasses.replace(options, any_strides=True, listener=None)
    return compile_text(texts["graph"], "<graph>", "nvidia", general)._runtime


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
    def of(cls, compiled: Compiled, target: str, options: Options) -> "Kernel":
        threads = options.threads or _default_threads()
        variants = None
        if target == "nvidia":
            runtime = compiled.runtime
            runtime.cubins = cache.code_folder
            if not options.any_strides:
                runtime.general = functools.partial(_general, compiled.texts, options)
        else:
            variants = Variants(compiled.texts, compiled.signature, target, options)
        return cls(compiled.signature, target, compiled.texts, compiled.runtime, threads, compiled.record, variants)

    @property
    def name(self) -> str:
        return self.signature.name

    def __call__(self, *arguments: Any, out: Any = None) -> Any:
        """The result, or a tuple of them, as new numpy arrays. Arguments are numpy arrays or anything with DLPack.

        For the target nvidia, tensors of torch, CuPy or JAX on the GPU are used in place, and results are such
        tensors; `out`: tensors of torch or CuPy that the results are written to.
        """
        if self._on_gpu is None:
            if out is not None:
                raise CompileError(user_error("out is for the target nvidia; here results are new arrays").diagnostics)
            results = self.run(self.bind(arguments))
        else:
            try:
                results = self._on_gpu(arguments, out)
            except DiagnosedError as error:
                raise CompileError(error.diagnostics) from None
        return results[0] if len(results) == 1 else tuple(results)

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
        return self.invoke(arrays, self._threads)

    def invoke(self, arrays: Sequence[np.ndarray], threads: int | None) -> list[np.ndarray]:
        """The results on a CPU, on that many threads, of arrays that `bind` gave."""
        runtime = arrays.runtime if type(arrays) is Bound else self._runtime
        return runtime.invoke(arrays, threads)

    def on_host(self) -> Any:
        """What `run`s the kernel, for the target nvidia, by host code of MLIR's ExecutionEngine; see `HostKernel`."""
        from .runtime.nvidia_host import HostKernel

        arch = self._runtime.image.arch
        return HostKernel(self.ir("llvm"), self.ir("ptx"), self.signature, arch)

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

    def __repr__(self) -> str:
        inputs = ", ".join(map(str, self.signature.arguments))
        results = ", ".join(map(str, self.signature.results))
        return f"<Kernel {self.name}({inputs}) -> ({results}) for {self.target}>"

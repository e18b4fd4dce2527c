"""Takes a module through all levels, to what its target's runtime loads."""

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

from ..dialects.assembly import print_module
from ..dialects.diagnostic import DiagnosedError, Diagnostic, places_of
from ..dialects.mlir import ir
from ..transforms.fuse_attention import NO_ATTENTION, FuseAttention
from ..transforms.nvidia.architecture import HOPPER, MULTIPROCESSORS
from ..transforms.nvidia.version_functions import versions_of
from ..transforms.passes import PassError
from ..transforms.rewriting import functions_of
from ..transforms.symbols import symbol_of
from . import pass_manager, pipelines
from .diagnostics import user_error
from .explain import anchored, reason_left
from .kernel_file import Compiled, Texts
from .options import Options
from .recording import Recorder, Snapshots, counting
from .runtime.signature import WRITABLE, Signature
from .sources import find_entry, has_script

CODE = "machine code"  # the name of the time that making it takes


def lower(module: ir.Module, target: str, options: Options) -> tuple[Compiled, list[Diagnostic]]:
    """Takes a module through all levels, in place; what was said meanwhile comes with the result.

    Where a function's versions (``version-functions``) do not suit the target, it goes without, and a warning says why.
    """
    spare = _copied(module) if target == "nvidia" and _is_open(find_entry(module, options.entry)) else None
    try:
        return _lowered(module, target, options)
    except DiagnosedError as error:
        if spare is None or not any(versions_of(function) for function in functions_of(module.operation)):
            raise
        (reason, *_) = error.diagnostics
    return _lowered(spare, target, options, reason)


def _is_open(function: ir.OpView) -> bool:
    return any(isinstance(k, ir.ShapedType) and k.has_rank and not k.has_static_shape for k in function.type.inputs)


def _copied(module: ir.Module) -> ir.Module:
    with module.context, module.operation.location:
        copy = ir.Module.create()
        for attribute in module.operation.attributes:
            copy.operation.attributes[attribute] = module.operation.attributes[attribute]
        for op in module.body.operations:
            op.operation.clone(ip=ir.InsertionPoint(copy.body))
    return copy


def _lowered(
    module: ir.Module, target: str, options: Options, unsuited: Diagnostic | None = None
) -> tuple[Compiled, list[Diagnostic]]:
    """`unsuited`: why there are to be no versions."""
    function = find_entry(module, options.entry)
    if "sym_visibility" in function.operation.attributes:
        del function.operation.attributes["sym_visibility"]  # it is called from outside
    _donate(function, options.donate)
    signature, places = Signature.of(function), places_of(module)
    texts = {"graph": print_module(module)}
    said: list[Diagnostic] = []

    def tell(found: Diagnostic) -> None:
        if found.message.startswith(NO_ATTENTION):  # what came next to one tells why
            why = [dataclasses.replace(d, severity="note") for d in said if reason_left(d.message) is not None]
            found = dataclasses.replace(found, notes=(*found.notes, *why))
        said.append(found)
        if options.listener is not None:
            options.listener(found)

    recorder = Recorder()
    listener = recorder.listener(tell)
    with module.context, module.operation.location, counting() as counter, recorder:
        hooks: list[pass_manager.Hook] = [recorder, Snapshots(pipelines.STAGE_AFTER, texts), counter]
        fusion = _fusion(module, target, options, versions=unsuited is None)
        if unsuited is not None:
            why = f"few queries have no kernels of their own, and take the time of many: {unsuited.message}"
            listener(dataclasses.replace(unsuited, severity="warning", message=why))
        levels = pipelines.STAGE_AFTER  # to verify after each pass takes a third of the time
        runtime: Any
        if target == "nvidia":
            from .runtime import nvidia

            arch, multiprocessors = _gpu(options)
            passes: list[Any] = pipelines.nvidia(
                arch,
                options.any_strides,
                options.split_keys,
                multiprocessors,
                copy_engine=options.copy_engine,
                keep_maximum=options.keep_maximum,
                stages=options.stages,
            )
            pass_manager.run([*fusion, *passes], module, hooks=hooks, listener=listener, verify=levels)
            start = time.perf_counter()
            image, code = nvidia.make_image(module, find_entry(module, symbol_of(signature.name)), arch)
            recorder.timed(CODE, time.perf_counter() - start)
            texts.update(code)
            runtime = nvidia.cuda.CudaKernel(image, signature)
        else:
            from .runtime import cpu

            passes = [*fusion, *pipelines.cpu(parts=options.split_keys, threads=options.workers)]
            pass_manager.run(passes, module, hooks=hooks, listener=listener, verify=levels)
            start = time.perf_counter()
            runtime = cpu.CpuKernel(module, signature)
            recorder.timed(CODE, time.perf_counter() - start)
    record = anchored(recorder.record, places)
    return Compiled(signature, Texts.of(texts), runtime, counter.tally, bool(said), record, target), said


def _donate(function: ir.OpView, numbers: Sequence[Any]) -> None:
    """Says in the graph which arguments may be written to."""
    kinds = function.type.inputs
    for number in numbers:
        if number >= len(kinds):
            raise user_error(f"donate: there is no argument {number} of {len(kinds)} of '{function.name.value}'")
        if not isinstance(kinds[number], ir.RankedTensorType):
            raise user_error(f"donate: argument {number} is no tensor, but of type {kinds[number]}")
    if numbers:
        attributes = function.operation.attributes
        named = attributes["arg_attrs"] if "arg_attrs" in attributes else [{}] * len(kinds)
        entries = [{a.name: a.attr for a in one} for one in named]
        with function.context:
            for number in numbers:
                entries[number][WRITABLE] = ir.BoolAttr.get(True)
            attributes["arg_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get(one) for one in entries])


def _gpu(options: Options) -> tuple[str, int]:
    """The architecture that is compiled for, and how many multiprocessors share the work."""
    return options.arch or HOPPER, options.multiprocessors or MULTIPROCESSORS


def _fusion(module: ir.Module, target: str, options: Options, versions: bool) -> list[pass_manager.Item]:
    """The pass that fuses attention: the module's script, the automatic one, or none."""
    tiling = bool(options.tile_sizes or options.tile_interchange)
    if has_script(module):
        if tiling:
            raise user_error("tile sizes are given, but the module holds a transform script, which has its own")
        return ["transform-interpreter"]
    if not options.fuse:
        if tiling:
            raise user_error("tile sizes are given, but nothing is to be fused")
        return []
    arch, multiprocessors = _gpu(options)
    few = "version-queries" if target == "cpu" else f"version-functions{{multiprocessors={multiprocessors}}}"
    try:
        return [
            f"inline-calls{{every={int(target == 'nvidia')}}}",
            pipelines.TO_SCF,
            pipelines.TO_LINALG,
            "raise-attention",
            *([few] if versions and not tiling else []),
            FuseAttention(
                tuple(options.tile_sizes),
                tuple(options.tile_interchange),
                pipelines.machine(target, arch, options.copy_engine, options.any_strides),
                multiprocessors,
            ),
        ]
    except (ValueError, PassError) as error:
        raise user_error(str(error)) from None

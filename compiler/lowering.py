"""Takes a module through all levels, to what its target's runtime loads."""

import dataclasses
import functools
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ..dialects import load
from ..dialects.assembly import print_module
from ..dialects.diagnostic import NOWHERE, DiagnosedError, Diagnostic, Place, place_of, places_of
from ..dialects.mlir import ir
from ..transforms.argument_attributes import WRITABLE
from ..transforms.attention import LEFT, find_attention
from ..transforms.fuse_attention import NO_ATTENTION, FuseAttention
from ..transforms.nvidia.architecture import HOPPER, MULTIPROCESSORS
from ..transforms.passes import PassError
from ..transforms.rewriting import functions_of
from ..transforms.symbols import symbol_of
from . import explain, pass_manager, pipelines
from .counts import count_compiled
from .diagnostics import user_error
from .kernel_file import Compiled, Texts
from .options import Options
from .recording import Recorder, Snapshots, counting
from .runtime.signature import Signature
from .sources import find_entry, has_script

CODE = "machine code"  # the name of the time that making it takes


@dataclasses.dataclass(frozen=True)
class Forgone:
    """What a module is compiled without, as no kernel could be made with it, each with the reason."""

    versions: Diagnostic | None = None  # functions for few queries
    fused: Mapping[Place, str] = dataclasses.field(default_factory=dict)  # attentions, by where root or softmax stands
    all_fused: str = ""


@dataclasses.dataclass
class _Attempt:
    """At compiling a module, in place."""

    module: ir.Module
    recorder: Recorder = dataclasses.field(default_factory=Recorder)
    said: list[Diagnostic] = dataclasses.field(default_factory=list)


def lower(module: ir.Module, target: str, options: Options) -> tuple[Compiled, list[Diagnostic]]:
    """Takes a module through all levels, maybe in place; what was said meanwhile comes with the result.

    Where there is no kernel for a GPU that does it all, a graph goes without a function's versions
    (``version-functions``), then without the fusion of the attention that the error names, then of any; where that
    suits the target, a warning says why, else the error of the fused graph is raised.
    """
    tiled = options.tile_sizes or options.tile_interchange or has_script(module)
    may_leave = options.fuse and not options.must_fuse and not tiled
    forgone, failed = Forgone(), None
    while True:
        last = target != "nvidia" or bool(forgone.all_fused)
        attempt = _Attempt(module if last else _copied(module))
        try:
            compiled = _lowered(attempt, target, options, forgone)
        except DiagnosedError as error:
            if failed is None or not (forgone.fused or forgone.all_fused):
                failed = error, attempt.said
            less = None if last else _less(forgone, error, attempt, may_leave)
            if less is None:
                error, said = failed
                _tell(said, options)
                raise error from None
            forgone = less
        else:
            _tell(attempt.said, options)
            return compiled, attempt.said


def _tell(said: Sequence[Diagnostic], options: Options) -> None:
    if options.listener is not None:
        for one in said:
            options.listener(one)


def _less(forgone: Forgone, error: DiagnosedError, attempt: _Attempt, may_leave: bool) -> Forgone | None:
    """What to compile it without after an error; None if nothing is left that could help."""
    from ..transforms.nvidia.version_functions import versions_of

    reason = error.diagnostics[0]
    if any(versions_of(function) for function in functions_of(attempt.module.operation)):
        return dataclasses.replace(forgone, versions=reason)
    if not may_leave:
        return None
    found = [one for one in explain.fused(attempt.recorder.record) if one["details"]["attention"]]
    place = (reason.file, reason.line, reason.col)
    named = [p for one in found if place in (places := explain.places_in(one)) for p in places]
    if place != NOWHERE and named and not forgone.fused.keys() & named:
        return dataclasses.replace(forgone, fused={**forgone.fused, **dict.fromkeys(named, reason.message)})
    return dataclasses.replace(forgone, all_fused=reason.message) if found else None


def _copied(module: ir.Module) -> ir.Module:
    with module.context, module.operation.location:
        copy = ir.Module.create()
        for attribute in module.operation.attributes:
            copy.operation.attributes[attribute] = module.operation.attributes[attribute]
        for op in module.body.operations:
            op.operation.clone(ip=ir.InsertionPoint(copy.body))
    return copy


def _lowered(attempt: _Attempt, target: str, options: Options, forgone: Forgone) -> Compiled:
    module, recorder, said = attempt.module, attempt.recorder, attempt.said
    function = find_entry(module, options.entry)
    if "sym_visibility" in function.operation.attributes:
        del function.operation.attributes["sym_visibility"]  # it is called from outside
    _donate(function, options.donate)
    signature, places = Signature.of(function), places_of(module)
    graph = print_module(module)
    snapshots = Snapshots(pipelines.STAGE_AFTER, unchanged=("llvm",) if target == "cpu" else ())
    code: dict[str, str] = {}  # of GPUs
    texts = functools.cache(lambda: Texts.of({"graph": graph, **snapshots.texts(), **code}))

    def tell(found: Diagnostic) -> None:
        if found.message.startswith(NO_ATTENTION):  # what came next to one tells why
            why = [dataclasses.replace(d, severity="note") for d in said if explain.reason_left(d.message) is not None]
            found = dataclasses.replace(found, notes=(*found.notes, *why))
        said.append(found)

    listener = recorder.listener(tell)
    with module.context, module.operation.location, counting() as counter, recorder:
        hooks = [_Leaving(forgone), recorder, snapshots, counter]
        fusion = _fusion(module, target, options, versions=not (forgone.versions or forgone.all_fused))
        if forgone.versions and not forgone.all_fused:
            why = f"few queries have no kernels of their own, and take the time of many: {forgone.versions.message}"
            listener(dataclasses.replace(forgone.versions, severity="warning", message=why))
        runtime: Any
        if target == "nvidia":
            from .runtime import nvidia

            load(module.context, "tile")
            arch, multiprocessors = _gpu(options)
            passes: list[Any] = pipelines.nvidia(
                arch,
                options.any_strides,
                options.split_keys,
                multiprocessors,
                copy_engine=options.copy_engine,
                keep_maximum=options.keep_maximum,
                stages=options.stages,
                added_masks=options.added_masks,
            )
            pass_manager.run(
                [*fusion, *passes], module, hooks=hooks, listener=listener, verify=pipelines.VERIFIED_AFTER
            )
            start = time.perf_counter()
            entry = find_entry(module, symbol_of(signature.name))
            image, found = nvidia.make_image(module, entry, arch, meanwhile=snapshots.texts)
            recorder.timed(CODE, time.perf_counter() - start)
            code.update(found)
            runtime = nvidia.cuda.CudaKernel(image, signature)
        else:
            from .runtime import cpu

            passes = [
                *fusion,
                *pipelines.cpu(parts=options.split_keys, threads=options.workers, added_masks=options.added_masks),
            ]
            pass_manager.run(passes, module, hooks=hooks, listener=listener, verify=pipelines.VERIFIED_AFTER)
            start = time.perf_counter()
            runtime = cpu.CpuKernel(module, signature, meanwhile=texts)
            recorder.timed(CODE, time.perf_counter() - start)
    record = explain.anchored(recorder.record, places)
    count_compiled(counter.tally)
    return Compiled(signature, texts(), runtime, counter.tally, bool(said), record, target)


class _Leaving(pass_manager.Hook):
    """Marks attentions, once they are raised, for ``fuse-attention`` to leave them."""

    def __init__(self, forgone: Forgone):
        self._forgone = forgone

    def after(self, stage: pass_manager.Stage, module: ir.Operation, failed: bool) -> None:
        if stage.name != pipelines.RAISED or failed or not (self._forgone.fused or self._forgone.all_fused):
            return
        for attention in find_attention(module):
            ends = [op for op in (attention.root, attention.softmax) if op is not None]
            of_places = (self._forgone.fused.get(place_of(op.location) or NOWHERE, "") for op in ends)
            reason = self._forgone.all_fused or next(filter(None, of_places), "")
            if reason:
                why = f"no kernel can be made of it, so that its scores are kept in memory: {reason}"
                attention.root.attributes[LEFT] = ir.StringAttr.get(why)


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
            "sink-transposes",
            "raise-attention",
            pipelines.RAISED,
            *(["infinite-masks"] if target == "nvidia" else []),
            *([few] if versions and not tiling else []),
            "join-products",
            "join-pieces",
            FuseAttention(
                tuple(options.tile_sizes),
                tuple(options.tile_interchange),
                pipelines.machine(target, arch, options.copy_engine, options.any_strides),
                multiprocessors,
                options.workers,
            ),
        ]
    except (ValueError, PassError) as error:
        raise user_error(str(error)) from None

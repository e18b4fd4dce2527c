"""Runs pipelines that mix our passes and upstream's, with one hook between passes.

    builtin.module(fuse-attention{tile-sizes=4,0,8},func.func(linalg-generalize-named-ops),canonicalize,cse)

A pipeline is a list of items: texts such as ``"cse"``, ``"convert-vector-to-llvm{enable-x86=1}"`` or
``"func.func(canonicalize,cse)"``, and passes of ours as objects (``FuseAttention(tile_sizes=(4, 0, 8))``). It is
flattened into steps, each one pass with the ops it is anchored on; each of upstream's runs in a PassManager of its
own, so that verification, printing, timing and dumping happen in one place, between the steps.
"""

import contextlib
import dataclasses
import functools
import itertools
import time
from collections.abc import Container, Iterator, Sequence
from typing import TypeAlias

from ..dialects.assembly import print_module
from ..dialects.crash_recovery import Crashed, recovered
from ..dialects.diagnostic import DiagnosedError, Diagnostic
from ..dialects.mlir import ir, passmanager
from ..dialects.tiling.structured import reading_once
from ..transforms.passes import Pass, PassError
from .diagnostics import Bug, Listener, captured_stderr, diagnostic, listening, user_error
from .pass_options import make_pass, options_text, suggestion
from .pipeline_text import Nest, Step, parse_items

NOT_BUFFERIZED = (
    "what computes with tensors is to be linalg, arith or math here; of tosa, "
    '--pass-pipeline="builtin.module(func.func(tosa-to-linalg-named,tosa-to-linalg,tosa-to-tensor,tosa-to-arith))" '
    "makes that"
)


@dataclasses.dataclass(frozen=True)
class Stage:
    """One pass, ready to run: one of ours or upstream's, under `anchors` (outermost first, the module left out)."""

    name: str
    anchors: tuple[str, ...]
    ours: Pass | None = None
    options: str = ""

    @property
    def text(self) -> str:
        """The stage as a whole pipeline."""
        return f"builtin.module({self.item})"

    @property
    def item(self) -> str:
        """The stage as a part of a pipeline."""
        options = options_text(self.ours) if self.ours else self.options
        text = self.name + (f"{{{options}}}" if options else "")
        for anchor in reversed(self.anchors):
            text = f"{anchor}({text})"
        return text

    def __str__(self) -> str:
        return self.name


Item: TypeAlias = str | Pass | Step | Nest | Stage


class PassFailure(DiagnosedError):
    """A pass failed; the listener of `run` has been told the diagnostics already."""


class Hook:
    """What happens between passes. Subclasses override what they need."""

    def before(self, stage: Stage, module: ir.Operation) -> None:
        """Called before each pass."""

    def after(self, stage: Stage, module: ir.Operation, failed: bool) -> None:
        """Called after each pass; what it changed is in `module`."""


def plan(items: Sequence[Item]) -> list[Stage]:
    """The stages of a pipeline on a module. Raises DiagnosedError for an unknown pass or a wrong option."""
    stages: list[Stage] = []
    for item in items:
        if isinstance(item, Stage):
            stages.append(item)
        elif isinstance(item, str):
            stages += _of_text(item)
        else:
            stages += _of_item(item)
    return stages


@functools.lru_cache(maxsize=1024)
def _of_text(text: str) -> tuple[Stage, ...]:
    """The stages of a pipeline's text, which each kernel asks for again: making them takes as long as 20 passes do."""
    return tuple(stage for item in parse_items(text) for stage in _of_item(item))


def _of_item(item: Pass | Step | Nest) -> list[Stage]:
    is_all = isinstance(item, Nest) and item.anchor in ("builtin.module", "any")
    return _plan(item.items if is_all else (item,), ())  # type: ignore[union-attr]


def _plan(items: Sequence[Pass | Step | Nest], anchors: tuple[str, ...]) -> list[Stage]:
    stages: list[Stage] = []
    for item in items:
        if isinstance(item, Nest):
            stages += _plan(item.items, (*anchors, item.anchor))
        elif isinstance(item, Pass):
            stages.append(Stage(_name_of(item), anchors, item))
        else:
            stages.append(_stage(item, anchors))
    return stages


def _name_of(pass_: Pass) -> str:
    return type(pass_).__module__.rpartition(".")[2].replace("_", "-")


def _stage(step: Step, anchors: tuple[str, ...]) -> Stage:
    ours = make_pass(step.name, step.options)
    if ours is not None:
        return Stage(step.name, anchors, ours)
    stage = Stage(step.name, anchors, None, step.options)
    try:
        _upstream(stage)
    except _Misplaced as misplaced:
        if anchors:
            raise user_error(
                f"pass '{step.name}' runs on '{misplaced.anchor}', not on '{anchors[-1]}'",
                f'write --pass-pipeline="builtin.module({misplaced.anchor}({step.name}))"',
            ) from None
        # As in mlir-opt, a pass that is restricted to an op is nested under it.
        stage = dataclasses.replace(stage, anchors=(misplaced.anchor,))
        _upstream(stage)
    return stage


class _Misplaced(Exception):
    def __init__(self, anchor: str):
        self.anchor = anchor


def _upstream(stage: Stage) -> passmanager.PassManager:
    """Upstream's PassManager for one of its passes, told apart from all the ways in which there is none."""
    # Of wrong values of options, upstream says on standard error what is wrong.
    with captured_stderr() if stage.options else contextlib.nullcontext(str) as said:
        try:
            return passmanager.PassManager.parse(stage.text)
        except ValueError as error:
            failure = str(error)
    if "restricted to '" in failure:
        raise _Misplaced(failure.partition("restricted to '")[2].partition("'")[0])
    if "does not refer to a registered pass" in failure:
        raise user_error(f"unknown pass '{stage.name}'{suggestion(stage.name)}", "attn-opt --list-passes lists them")
    words = [line.strip(" :\n") for line in (said() + "\n" + failure).splitlines()]
    reason = "; ".join(w.removeprefix("<Pass-Options-Parser>: ") for w in words if w and not w.startswith("failed to"))
    raise user_error(f"pass '{stage.name}' with options '{stage.options}': {reason or failure}")


def _may_hang(stage: Stage, following: Stage | None) -> bool:
    """Whether a bug of `stage` may keep the next one from ever ending: canonicalize follows values in circles."""
    return stage.ours is not None and following is not None and following.name == "canonicalize"


def run(
    items: Sequence[Item],
    module: ir.Module | ir.Operation | ir.OpView,
    *,
    hooks: Sequence[Hook] = (),
    listener: Listener | None = None,
    verify: bool | Container[str] = True,
) -> None:
    """Runs a pipeline on a module, in place; verifies it after each pass, after none, or after those of these names and
    before each canonicalize.

    `listener` is told every error, warning and remark as it comes. A failing pass raises PassFailure with the errors,
    an unknown pass or option DiagnosedError, a bug of ours Bug.
    """
    operation = module.operation
    with operation.context:
        stages = plan(items)
    errors: list[Diagnostic] = []

    def tell(found: Diagnostic) -> None:
        if found.severity == "error":
            if not found.file and stage.name not in found.message:  # then the pass is all of a place that there is
                found = dataclasses.replace(found, message=f"pass '{stage.name}': {found.message}")
            errors.append(found)
        if listener:
            listener(found)

    with operation.context, operation.location, listening(operation.context, tell), reading_once():
        known = _Known(operation)
        managers: dict[Stage, passmanager.PassManager] = {}  # canonicalize collects all dialects' patterns, once then
        for stage, following in itertools.zip_longest(stages, stages[1:]):
            check = verify if isinstance(verify, bool) else stage.name in verify or _may_hang(stage, following)
            known.before(stage)
            for hook in hooks:
                hook.before(stage, operation)
            failed = True
            try:
                if stage.ours:
                    _run_ours(stage, stage.ours, operation, tell, errors, check, known)
                else:
                    if stage not in managers:
                        managers[stage] = _upstream(stage)
                    managers[stage].enable_verifier(check)
                    recovered(managers[stage].run, operation)
                failed = False
                known.is_checked = check
            except Crashed:
                raise known.bug(f"{stage.text} crashed") from None
            except ir.MLIRError:
                if errors and "unable to schedule pass" in errors[-1].message and not stage.anchors:
                    text = f'--pass-pipeline="builtin.module(func.func({stage.name}))"'
                    tell(diagnostic("note", f"write {text} if it is a pass on functions", None))
                if errors and "op was not bufferized" in errors[-1].message:
                    tell(diagnostic("note", NOT_BUFFERIZED, None))
                if not errors:
                    tell(diagnostic("error", f"pass '{stage.name}' failed", operation.location))
                raise PassFailure(errors) from None
            finally:
                for hook in hooks:
                    hook.after(stage, operation, failed)


class _Known:
    """The module as it was before the first pass or one of ours and, where not all are verified, the passes since
    the last that was."""

    def __init__(self, module: ir.Operation):
        self.module = module
        self.is_checked = True
        self._copy: ir.Operation | None = None
        self._stages: list[Stage] = []

    def before(self, stage: Stage) -> None:
        if self._copy is None or (stage.ours and self.is_checked):  # a copy takes as long as a pass
            self._copy, self._stages = self.module.clone().operation, []
        self._stages.append(stage)

    @property
    def passes(self) -> str:
        """Those that may have made what the module is now."""
        first, last = self._stages[0].name, self._stages[-1].name
        return f"pass '{last}'" if len(self._stages) == 1 else f"a pass from '{first}' to '{last}'"

    def bug(self, what: str) -> Bug:
        """That the last stage failed: with the IR that was copied, and what to run on it."""
        text = _text(self._copy) if self._copy is not None else ""
        return Bug(what, f"builtin.module({','.join(stage.item for stage in self._stages)})", text)


def _run_ours(
    stage: Stage,
    pass_: Pass,
    module: ir.Operation,
    tell: Listener,
    errors: list[Diagnostic],
    verify: bool,
    known: _Known,
) -> None:
    try:
        for op in _anchored(module, stage.anchors):
            pass_.run(op)
    except PassError as error:
        tell(diagnostic("error", error.message, error.location))
        raise PassFailure(errors) from None
    except DiagnosedError as error:
        for found in error.diagnostics:
            tell(found)
        raise PassFailure(errors) from None
    except ir.MLIRError:
        raise  # what it says came through the diagnostic handler
    except RecursionError:
        message = f"pass '{stage.name}' gives up: too many ops in a row depend on each other, hundreds in one region"
        tell(diagnostic("error", message, module.location))
        raise PassFailure(errors) from None
    except Exception as error:
        what = f"pass '{stage.name}' raised {type(error).__name__}: {error}"
        raise known.bug(what) from error
    if verify:
        before_check = len(errors)
        try:
            valid = module.verify()
        except ir.MLIRError:
            valid = False
        if not valid:
            told = "; ".join(str(one) for one in errors[before_check:])
            raise known.bug(f"{known.passes} made invalid IR: {told}")


def _anchored(module: ir.Operation, anchors: tuple[str, ...]) -> Iterator[ir.Operation]:
    """The ops that a pass under `anchors` runs on: the module, or its children of that name, and so on."""
    if not anchors:
        yield module
        return
    for region in module.regions:
        for block in region.blocks:
            for op in list(block.operations):
                if anchors[0] in ("any", op.operation.name):
                    yield from _anchored(op.operation, anchors[1:])


def _text(op: ir.Operation) -> str:
    with contextlib.suppress(Exception):
        return print_module(op, debug_info=True)
    return op.get_asm(print_generic_op_form=True)


class Timing(Hook):
    """Wall-clock seconds of each pass, in order."""

    def __init__(self) -> None:
        self.seconds: list[tuple[str, float]] = []
        self._start = 0.0

    def before(self, stage: Stage, module: ir.Operation) -> None:
        self._start = time.perf_counter()

    def after(self, stage: Stage, module: ir.Operation, failed: bool) -> None:
        self.seconds.append((stage.name, time.perf_counter() - self._start))

    def table(self) -> str:
        total = sum(seconds for _, seconds in self.seconds) or 1e-9
        rows = [f"{s * 1e3:10.2f} ms {100 * s / total:5.1f}%  {name}" for name, s in self.seconds]
        return "\n".join(["===- Pass execution timing -===", *rows, f"{total * 1e3:10.2f} ms 100.0%  total"])

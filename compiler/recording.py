"""What is kept of a run of passes: hooks that record what was said, count what was found, keep the IR of the stages.

recorder = Recorder()
with recorder, counting() as counter:
    pass_manager.run(items, module, hooks=[recorder, counter], listener=recorder.listener(listener))
print(explain.explanation(recorder.record, "f", "cpu"))
"""

import contextlib
import copy
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

from ..dialects.assembly import print_module
from ..dialects.diagnostic import NOWHERE, Diagnostic, place_of
from ..dialects.mlir import ir
from ..transforms import passes
from .counts import NOTHING
from .diagnostics import Listener
from .explain import Record, reason_left
from .pass_manager import Hook, Stage, Timing
from .pipelines import RAISED


class Recorder(Timing):
    """Keeps what the passes report and how long each takes. A context manager: it listens within the block."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: list[dict[str, Any]] = []
        self._stage = ""
        self._listening = passes.listening(self._on_report)

    def __enter__(self) -> "Recorder":
        self._listening.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._listening.__exit__(*error)

    def before(self, stage: Stage, module: ir.Operation) -> None:
        self._stage = stage.name
        super().before(stage, module)

    def _on_report(self, report: passes.Report) -> None:
        self._add(report.severity, place_of(report.location), report.message, report.details)

    def listener(self, listener: Listener | None) -> Listener:
        """For the pass manager: keeps what upstream says too, and passes everything on."""

        def hear(found: Diagnostic) -> None:
            last = self.entries[-1] if self.entries else {}
            if (last.get("severity"), last.get("message")) != (found.severity, found.message):
                self._add(found.severity, (found.file, found.line, found.col), found.message, {})
            if listener:
                listener(found)

        return hear

    def _add(self, severity: str, place: Sequence[Any] | None, message: str, details: dict[str, Any]) -> None:
        self.entries.append(
            {
                "pass": self._stage,
                "severity": severity,
                "place": list(place or NOWHERE),
                "message": message,
                "details": details,
            }
        )

    def timed(self, name: str, seconds: float) -> None:
        """Notes how long something took that is no pass."""
        self.seconds.append((name, seconds))

    @property
    def record(self) -> Record:
        return {"entries": self.entries, "seconds": [list(one) for one in self.seconds]}


class Counting(Hook):
    """Keeps a tally of the attentions that the pipeline finds and fuses, and of what it leaves alone."""

    def __init__(self) -> None:
        self.fusable = 0
        self.tally = copy.deepcopy(NOTHING)

    def after(self, stage: Stage, module: ir.Operation, failed: bool) -> None:
        if failed:
            return
        if stage.name == RAISED:
            from ..transforms.attention import LEFT, find_attention

            found = find_attention(module)
            self.fusable = sum(LEFT not in attention.root.attributes for attention in found)
            self.tally["found"] += len(found)
        elif stage.name == "fuse-attention":
            self.tally["compiled"] += self.fusable


@contextlib.contextmanager
def counting() -> Iterator[Counting]:
    """Within the block, what passes leave alone is counted; the hook counts the rest."""
    hook = Counting()

    def listen(report: passes.Report) -> None:
        reason = reason_left(report.message)
        if reason is not None:
            hook.tally["reasons"].append(reason)

    with passes.listening(listen):
        yield hook


class Snapshots(Hook):
    """Keeps the module as it is after the passes that end a stage, which it is verified after, to print it later: to
    copy it takes a tenth of the time."""

    def __init__(self, stage_after: Mapping[str, str], unchanged: Container[str] = ()):
        """`unchanged`: stages that the module is left at, until they are printed."""
        self._stage_after, self._unchanged = stage_after, unchanged
        self._modules: dict[str, ir.Operation] = {}
        self._texts: dict[str, str] = {}

    def after(self, stage: Stage, module: ir.Operation, failed: bool) -> None:
        name = self._stage_after.get(stage.name)
        if name is not None and not failed:
            self._modules.pop(name, None)  # the last pass of the name counts, also for the order
            self._modules[name] = module if name in self._unchanged else module.clone().operation

    def texts(self) -> dict[str, str]:
        """The stages' IR by name, in order; what is printed is no longer kept as a module."""
        for name in list(self._modules):
            self._texts[name] = print_module(self._modules.pop(name), verified=True)
        return self._texts

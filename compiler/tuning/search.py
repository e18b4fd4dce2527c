"""Finds the fastest schedule of a graph by measuring, and keeps what was found on disk.

    found = tuned(text, "nvidia", options, example_args)     # Tuned: the options to compile with, and what was tried

A file ``<key>.schedule`` in the kernels' cache, whose name is made of the graph's IR without locations, the options,
the sizes of the arguments, this package, the bindings and the device.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import cache
from .. import cache_files as files
from ..cache_key import key
from ..diagnostics import user_error
from ..options import Options
from ..precompile import Job, precompile
from ..runtime.signature import Signature, as_numpy
from ..worker_process import WorkerProcess
from . import device
from .space import Schedule, steps
from .worker import write_arguments

WORKER = f"{__package__}.worker"
LONGEST = 60.0  # seconds for one schedule
FINALISTS, ROUNDS, ROUND_SECONDS = 4, 5, 0.06
GAIN = 0.02  # by less, the measurement may be wrong: the rule's schedule stays

Progress = Callable[[int, int, str], None]  # how many were tried, of how many, what happens


@dataclasses.dataclass(frozen=True)
class Trial:
    """A schedule that was tried: the seconds of a call, or why it was skipped."""

    schedule: Schedule
    seconds: float | None = None
    skipped: str = ""


@dataclasses.dataclass(frozen=True)
class Tuned:
    """`schedule`: the options to compile with; `trials`: all that was tried, the rule's schedule first."""

    schedule: Schedule
    trials: tuple[Trial, ...]
    device: str

    def apply(self, options: Options) -> Options:
        return dataclasses.replace(options, autotune=False, **self.schedule)

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return {**dataclasses.asdict(self), "trials": [dataclasses.asdict(trial) for trial in self.trials]}

    @classmethod
    def of(cls, plain: dict[str, Any]) -> Tuned:
        return cls(plain["schedule"], tuple(Trial(**trial) for trial in plain["trials"]), plain["device"])


def tuned(
    text: str,
    target: str,
    options: Options,
    example_args: Sequence[Any] | None = None,
    progress: Progress = lambda done, total, what: None,
) -> Tuned:
    """The fastest schedule for `text` (without locations), found now or before. Raises DiagnosedError."""
    on = device.name_of(target, options.workers)
    sizes = None if example_args is None else [list(np.shape(_on_host(value))) for value in example_args]
    name = hashlib.sha256(f"{key(text, 'schedule', target, options)} {on} {sizes}".encode()).hexdigest()
    found = _kept(name)
    if found is None:
        found = _Search(text, target, options, example_args, progress, on).run()
        if cache.enabled():
            files.write(f"{name}.schedule", json.dumps(found.plain()).encode())
    return found


def _kept(name: str) -> Tuned | None:
    if not cache.enabled():
        return None
    file = files.folder() / f"{name}.schedule"
    try:
        found = Tuned.of(json.loads(file.read_bytes()))
        os.utime(file)
        return found
    except (OSError, ValueError, KeyError, TypeError):
        return None


class _Search:
    def __init__(
        self,
        text: str,
        target: str,
        options: Options,
        example_args: Sequence[Any] | None,
        progress: Progress,
        on: str,
    ):
        self.text, self.target, self.options, self.on = text, target, options, on
        self.example_args, self.progress = example_args, progress
        self.given = {
            field.name: getattr(options, field.name)
            for field in dataclasses.fields(options)
            if field.name not in ("listener", "autotune") and getattr(options, field.name) != field.default
        }
        self.given = {k: v if isinstance(v, str | int | None) else [int(x) for x in v] for k, v in self.given.items()}
        self.trials: list[Trial] = []
        self.planned = 1

    def run(self) -> Tuned:
        from ..api import compile

        with tempfile.TemporaryDirectory(prefix="attn-opt-") as folder:
            # Processes share kernels by the cache; where there is none, by one for this time.
            variables = {} if cache.enabled() else {"ATTN_OPT_CACHE": "1", "ATTN_OPT_CACHE_DIR": folder}
            rule = compile(self.text, target=self.target, **self.given)
            arguments = self._arguments(rule.signature, folder)
            with WorkerProcess(WORKER, variables) as worker:
                self.start = {"text": self.text, "target": self.target, "options": self.given, "arguments": arguments}
                self._enter(worker, {})
                if self.trials[0].seconds is None:
                    raise user_error(f"autotune: the schedule by rule cannot be measured: {self.trials[0].skipped}")
                best: Schedule = {}
                for others in steps(rule.record, self.target, self.options):
                    best = self._step(worker, best, [{**best, **other} for other in others], variables)
        return Tuned(best, tuple(self.trials), self.on)

    def _arguments(self, signature: Signature, folder: str) -> str | None:
        """The folder of the arguments, where they are given; a user's error where they cannot be made up."""
        if self.example_args is None:
            slots = signature.arguments
            unknown = [i for i, slot in enumerate(slots) if slot.shape is None or None in slot.shape]
            unknown += [i for i, slot in enumerate(slots) if slot.dtype.kind in "iu"]
            if unknown:
                raise user_error(
                    f"autotune needs example_args: argument {unknown[0]} is {slots[unknown[0]]}, whose "
                    f"{'sizes' if None in (slots[unknown[0]].shape or ()) else 'values'} say how much work there is"
                )
            return None
        write_arguments(folder, signature.bind([_on_host(value) for value in self.example_args]))
        return folder

    def _step(
        self, worker: WorkerProcess, best: Schedule, others: list[Schedule], variables: dict[str, str]
    ) -> Schedule:
        """The best of `best` and others, all of which are tried."""
        others = [one for one in others if not any(trial.schedule == one for trial in self.trials)]
        self.planned += len(others)
        self._tell(f"compiling {len(others)} schedules")
        jobs = [Job(self.text, self.target, {**self.given, **schedule}) for schedule in others]
        failures = precompile(jobs, environment=variables)
        first = next(i for i, trial in enumerate(self.trials) if trial.schedule == best)
        for schedule, failed in zip(others, failures, strict=True):
            if failed is not None:
                self.trials.append(Trial(schedule, skipped=failed))
            else:
                self._enter(worker, schedule)
        now = [first, *range(len(self.trials) - len(others), len(self.trials))]
        able = sorted((i for i in now if self.trials[i].seconds is not None), key=lambda i: self.trials[i].seconds or 0)
        able = [i for i in able[:FINALISTS] if i != first]
        return self.trials[self._final(worker, first, able)].schedule

    def _final(self, worker: WorkerProcess, first: int, others: list[int]) -> int:
        """Of the fastest, measured in turn, the fastest; the first one unless another is faster beyond doubt."""
        if not others:
            return first
        numbers, times = [first, *others], []
        for number in range(ROUNDS):
            self._tell(f"round {number + 1} of {ROUNDS} of the fastest")
            answer = worker.ask({"round": numbers, "seconds": ROUND_SECONDS}, LONGEST)
            if "times" not in answer:
                return first
            times.append(answer["times"])
        best = [min(column) for column in zip(*times, strict=True)]
        for number, seconds in zip(numbers, best, strict=True):
            self.trials[number] = dataclasses.replace(self.trials[number], seconds=seconds)
        fastest = min(range(len(numbers)), key=best.__getitem__)
        return numbers[fastest] if best[fastest] < (1 - GAIN) * best[0] else first

    def _enter(self, worker: WorkerProcess, schedule: Schedule) -> None:
        """Tries one. A process that a schedule ended is started again, with those that were right."""
        number = len(self.trials)
        self._tell(words(schedule))
        if not worker.alive:
            self._restart(worker)
        answer = worker.ask({"number": number, "schedule": schedule}, LONGEST)
        reason = answer.get("failed") or answer.get("skipped") or ""
        self.trials.append(Trial(schedule, answer.get("seconds"), reason))

    def _restart(self, worker: WorkerProcess) -> None:
        answer = worker.ask(self.start, LONGEST)
        if answer:
            raise user_error(f"autotune: {answer.get('failed') or answer.get('skipped')}")
        for number, trial in enumerate(self.trials):
            if trial.seconds is not None:
                worker.ask({"number": number, "schedule": trial.schedule}, LONGEST)

    def _tell(self, what: str) -> None:
        self.progress(len(self.trials), self.planned, what)


def _on_host(value: Any) -> Any:
    """An array that may be on a GPU, as numpy has it."""
    if hasattr(value, "cpu"):  # torch
        return as_numpy(value.cpu())
    if hasattr(value, "get") and not isinstance(value, dict):  # CuPy
        return value.get()
    if type(value).__module__.partition(".")[0] in ("jax", "jaxlib"):
        return np.asarray(value)
    return as_numpy(value)


def words(schedule: Schedule) -> str:
    """A schedule for people; its loops' order is the rule's."""
    shown = {name: value for name, value in schedule.items() if name != "tile_interchange"}
    texts = [f"{name.replace('_', ' ')} {_value(value)}" for name, value in shown.items()]
    return ", ".join(texts) or "by rule"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "×".join(str(size) for size in value if size) if isinstance(value, list) else str(value)


def table(found: Tuned) -> list[str]:
    """What was tried, the fastest first; then what was skipped, and why."""
    timed = sorted((one for one in found.trials if one.seconds is not None), key=lambda one: one.seconds or math.inf)
    rule = found.trials[0].seconds or math.nan
    width = max(len(words(one.schedule)) for one in found.trials)
    lines = [f"schedules tried on {found.device}:"]
    for one in timed:
        chosen = "  chosen" if one.schedule == found.schedule else ""
        seconds = one.seconds or math.nan
        lines.append(f"  {words(one.schedule):<{width}}  {seconds * 1e3:9.4f} ms  {rule / seconds:5.2f}×{chosen}")
    lines += [f"  {words(one.schedule):<{width}}  skipped: {one.skipped}" for one in found.trials if one.skipped]
    return lines

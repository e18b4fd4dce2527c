"""The process that runs schedules: ``python -m attn_opt.compiler.tuning.worker``, one job and answer a line.

First {"text", "target", "options", "arguments": a folder or None}, then for each schedule {"number", "schedule"}: it is
compiled, or found in the cache, run on results full of NaN, compared with the first one, and timed. {"round": numbers,
"seconds"} times those in turn. A schedule that is wrong, spills or fails to launch is answered {"skipped": why}.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..accuracy import errors, tolerance
from ..runtime.signature import Signature
from ..worker_process import serve
from . import device

MEASUREMENTS, MOST_CALLS = 3, 2000
QUICK = 0.02  # seconds of the first measurement


def write_arguments(folder: str, arrays: Sequence[np.ndarray]) -> None:
    """Arrays of any type in files, for the process; a scalar has no dimensions."""
    about = [[array.dtype.name, list(array.shape)] for array in arrays]
    with open(os.path.join(folder, "arguments.json"), "w") as file:
        json.dump(about, file)
    for i, array in enumerate(arrays):
        np.ascontiguousarray(array).reshape(-1).view(np.uint8).tofile(os.path.join(folder, f"{i}.bin"))


def _read_arguments(folder: str, signature: Signature) -> list[np.ndarray]:
    with open(os.path.join(folder, "arguments.json")) as file:
        about = json.load(file)
    found = []
    for i, (slot, (_, shape)) in enumerate(zip(signature.arguments, about, strict=True)):
        data = np.fromfile(os.path.join(folder, f"{i}.bin"), np.uint8)
        found.append(data.view(slot.dtype).reshape(shape))
    return found


class Contest:
    """Schedules of one graph, on the same arguments."""

    def __init__(self, text: str, target: str, options: dict[str, Any], arguments: str | None):
        from ..api import compile

        self.compile = lambda schedule: compile(text, target=target, **{**options, **schedule})
        kernel = self.compile({})
        signature = kernel.signature
        if arguments is None:
            from ..tools.arrays import random

            inputs = random(signature, {}, 0)
        else:
            inputs = _read_arguments(arguments, signature)
        self.inputs = signature.bind(inputs)
        kinds = {slot.element for slot in (*signature.arguments, *signature.results)}
        self.tolerance = 2 * tolerance(kinds)  # of two right results, each as far off as it may be
        self.expected: list[np.ndarray] | None = None
        self.running: dict[int, device.Running] = {}
        self.run = device.runner(target, kernel, self.inputs)

    def enter(self, number: int, schedule: dict[str, Any]) -> dict[str, Any]:
        """Takes a schedule in, if it is right: {"seconds"}."""
        running = self.run(self.compile(schedule))
        if running.spilled and self.expected is not None:  # the rule's schedule is what it is
            return {"skipped": f"spills {running.spilled} bytes of registers in a thread"}
        found = running.results()
        if self.expected is None:
            self.expected = found
        worst = max((errors(a, b)[1] for a, b in zip(found, self.expected, strict=True)), default=0.0)
        if not worst <= self.tolerance:
            return {"skipped": f"wrong: differs from the rule's result by {worst:.1e}"}
        self.running[number] = running
        return {"seconds": self._timed(number, QUICK), "error": worst}

    def _timed(self, number: int, seconds: float) -> float:
        """The seconds of a call: the best of some measurements, since others may be at work on the machine."""
        once = self.running[number].seconds(1)
        calls = min(MOST_CALLS, max(1, int(seconds / MEASUREMENTS / max(once, 1e-7))))
        return min(self.running[number].seconds(calls) for _ in range(MEASUREMENTS))

    def round(self, numbers: Sequence[int], seconds: float) -> dict[str, Any]:
        """The seconds of a call of each, measured one after the other."""
        return {"times": [self._timed(number, seconds) for number in numbers]}


_contest: list[Contest] = []


def _answer(job: dict[str, Any]) -> dict[str, Any]:
    start = time.perf_counter()
    try:
        if "text" in job:
            _contest[:] = [Contest(job["text"], job["target"], job["options"], job["arguments"])]
            return {}
        if "round" in job:
            return _contest[0].round(job["round"], job["seconds"])
        return {**_contest[0].enter(job["number"], job["schedule"]), "took": time.perf_counter() - start}
    except Exception as error:
        return {"skipped": (str(error).strip().splitlines() or [type(error).__name__])[0]}


if __name__ == "__main__":
    serve(_answer)

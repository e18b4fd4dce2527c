"""A process that does jobs for us one after the other: a crash, a hang or what it imports touches no one else.

    worker = WorkerProcess("attn_opt.compiler.precompile")
    answer = worker.ask({"text": …}, timeout=60)       # its answer; {"failed": why} where it gave none

The module's other end is `serve(answer_of)`: jobs and answers are lines of JSON.
"""

from __future__ import annotations

import json
import os
import queue
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

REASON = 500  # characters


class WorkerProcess:
    """Starts with the first job, and again after one that ended it."""

    def __init__(self, module: str, environment: Mapping[str, str] | None = None):
        self.module, self.environment = module, dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._said: Any = None

    def ask(self, job: dict[str, Any], timeout: float | None = None) -> dict[str, Any]:
        """The answer; {"failed": why} where the process ended, or took longer than `timeout` seconds and was ended."""
        process = self._started()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(job).encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            return self._ended()
        line = self._line(process, timeout)
        if line is None:
            self.close()
            return {"failed": f"took longer than {timeout:.0f} s"}
        return json.loads(line) if line else self._ended()

    @property
    def alive(self) -> bool:
        return self._process is not None

    def close(self) -> None:
        """Ends the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._said.close()
            self._process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            path = os.pathsep.join(path for path in sys.path if path)  # it imports this package from where we have it
            self._said = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
            self._process = subprocess.Popen(
                [sys.executable, "-m", self.module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._said,
                bufsize=0,
                env={**os.environ, "PYTHONPATH": path, **self.environment},
            )
            self._read = b""
        return self._process

    def _line(self, process: subprocess.Popen[bytes], timeout: float | None) -> bytes | None:
        """The next line; None after `timeout`, an empty one where there is none any more."""
        assert process.stdout is not None
        end = None if timeout is None else time.monotonic() + timeout
        while b"\n" not in self._read:
            left = None if end is None else max(0.0, end - time.monotonic())
            if not select.select([process.stdout], [], [], left)[0]:
                return None
            piece = os.read(process.stdout.fileno(), 1 << 16)
            if not piece:
                return b""
            self._read += piece
        line, _, self._read = self._read.partition(b"\n")
        return line

    def _ended(self) -> dict[str, Any]:
        assert self._process is not None
        self._process.wait()
        self._said.seek(0)
        last = self._said.read().decode(errors="replace").strip().split("\n")[-1]
        status = self._process.returncode
        self.close()
        return {"failed": f"its process ended with status {status}{': ' + last if last else ''}"[:REASON]}


def ask_all(
    module: str,
    jobs: Sequence[dict[str, Any]],
    processes: int = 0,
    environment: Mapping[str, str] | None = None,
    timeout: float | None = None,
    done: Callable[[int, dict[str, Any]], None] = lambda number, answer: None,
) -> list[dict[str, Any]]:
    """The answers of several such processes to jobs that may be done in any order. `processes`: 0 = one for each
    processor; `done` is told of each answer as it comes."""
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in range(len(jobs)):
        waiting.put(number)
    answers: list[dict[str, Any]] = [{}] * len(jobs)
    lock = threading.Lock()

    def work() -> None:
        with WorkerProcess(module, environment) as worker:
            while True:
                try:
                    number = waiting.get_nowait()
                except queue.Empty:
                    return
                found = worker.ask(jobs[number], timeout)
                with lock:
                    answers[number] = found
                    done(number, found)

    threads = [threading.Thread(target=work) for _ in range(min(processes or len(os.sched_getaffinity(0)), len(jobs)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def serve(answer_of: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """The process's part: answers jobs until there are none. Whatever else is printed goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        print(json.dumps(answer_of(json.loads(line))), file=answers, flush=True)

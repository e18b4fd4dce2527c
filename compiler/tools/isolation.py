"""Runs work in a process of its own, so that a crash in upstream's C++ ends in a message and not in a dead command.

Upstream's parser and passes can crash on malformed input (``linalg.transpose … permutation = ]`` did). The child shares
a few numbers with us, by which it says how far it has come.
"""

import contextlib
import mmap
import os
import signal
import struct
import sys
import time
from collections.abc import Callable

_FORMAT = "qq"
GRACE = 2.0  # seconds that a process has to end on request


class Progress:
    """Two numbers that both processes see: the part of the input and the stage at work; stage -1 is the parser."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, struct.calcsize(_FORMAT))
        self.at(0, -1)

    def at(self, part: int, stage: int) -> None:
        self._memory[:] = struct.pack(_FORMAT, part, stage)

    @property
    def place(self) -> tuple[int, int]:
        return struct.unpack(_FORMAT, self._memory[:])


class Crash(Exception):
    """The process died of a signal."""

    def __init__(self, number: int):
        self.name = signal.strsignal(number) or f"signal {number}"
        self.number = number
        super().__init__(self.name)


def isolated(work: Callable[[], int], quiet: bool = False) -> int:
    """The value of ``work()``, called in a child process; Crash if that dies. `quiet`: without its output."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if quiet:
                nothing = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nothing, 1)
                os.dup2(nothing, 2)
            code = work()
            sys.stdout.flush()
            sys.stderr.flush()
        except KeyboardInterrupt:
            code = 130
        except SystemExit as done:  # at a request to end
            code = int(done.code or 0)
        finally:
            os._exit(code)  # no clean-up: it is the parent's to do, and takes time
    while True:
        try:
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            break
        except KeyboardInterrupt:  # the child got it too
            continue
        except SystemExit as request:  # to end, which came to us alone
            _end(child)
            return int(request.code or 0)
        except ChildProcessError:  # one of these came when the child had just ended
            status = 130
            break
    if status == -signal.SIGPIPE:
        return 128 + signal.SIGPIPE
    if status < 0:
        raise Crash(-status)
    return status


def _end(child: int) -> None:
    """Ends `child`, by force where it does not on request: a kernel or a pass that runs on lets Python hear nothing."""
    for number, seconds in ((signal.SIGTERM, GRACE), (signal.SIGKILL, None)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)
        deadline = None if seconds is None else time.monotonic() + seconds
        try:
            while deadline is None or time.monotonic() < deadline:
                if os.waitpid(child, 0 if deadline is None else os.WNOHANG)[0]:
                    return
                time.sleep(0.01)
        except ChildProcessError:  # it had just ended
            return


def crashes(work: Callable[[], object]) -> bool:
    """Whether ``work()`` kills its process."""

    def quietly() -> int:
        try:
            work()
        except Exception:
            return 1
        return 0

    try:
        isolated(quietly, quiet=True)
    except Crash:
        return True
    return False

"""The end of every tool: what went wrong is told, and becomes the exit status."""

import signal
import sys
import warnings
from collections.abc import Callable
from typing import NoReturn

from ...dialects.diagnostic import DiagnosedError
from ..diagnostics import Printer, diagnostic, file_error, report_bug, user_error
from . import streams


def ends_on_request() -> None:
    """From now on a request to end (SIGTERM, as of `timeout`) is an exit: our files and processes go too."""
    signal.signal(signal.SIGTERM, _end)


def _end(number: int, _: object) -> NoReturn:
    signal.signal(number, signal.SIG_IGN)  # once: not while it cleans up
    raise SystemExit(128 + number)


def exit_status(printer: Printer, work: Callable[[], int], saves_memory: str = "") -> int:
    """The exit status of `work`, which may fail; `saves_memory`: an option to try where memory runs out. Warnings are
    told as the tool's own."""
    try:
        try:
            with warnings.catch_warnings():
                warnings.showwarning = lambda message, *_, **__: printer(diagnostic("warning", str(message), None))
                status = work()
        except SystemExit as done:  # of argparse, after --help, or at a request to end
            status = int(done.code or 0)
        sys.stdout.flush()
        return status
    except DiagnosedError as error:
        for found in error.diagnostics:
            if found not in printer.told:  # as it happened
                printer(found)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        streams.discard_output()
        return 1
    except MemoryError:
        hint = f", or {saves_memory}" if saves_memory else ""
        printer(user_error(f"not enough memory; use smaller sizes{hint}").diagnostics[0])
        return 1
    except OSError as error:
        if error.filename is not None or error.errno not in streams.CANNOT_WRITE:
            report_bug(error, printer.tool, printer.stream)
        else:
            streams.discard_output()
            printer(file_error("<stdout>", "written", error).diagnostics[0])
        return 1
    except Exception as bug:
        report_bug(bug, printer.tool, printer.stream)
        return 1

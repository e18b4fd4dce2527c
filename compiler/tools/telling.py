"""The end of every tool: what went wrong is told, and becomes the exit status."""

import os
from collections.abc import Callable

from ...dialects.diagnostic import DiagnosedError
from ..diagnostics import Printer, report_bug, user_error


def telling(printer: Printer, work: Callable[[], int], saves_memory: str = "") -> int:
    """The exit status of `work`, which may fail; `saves_memory`: an option to try where memory runs out."""
    try:
        return work()
    except SystemExit as done:  # of argparse, after --help
        return int(done.code or 0)
    except DiagnosedError as error:
        for found in error.diagnostics:
            if found not in printer.told:  # as it happened
                printer(found)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nothing to flush at exit
        return 1
    except MemoryError:
        hint = f", or {saves_memory}" if saves_memory else ""
        printer(user_error(f"not enough memory; use smaller sizes{hint}").diagnostics[0])
        return 1
    except Exception as bug:
        report_bug(bug, printer.tool, printer.stream)
        return 1

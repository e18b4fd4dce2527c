"""Finds the line of a text on which upstream's parser crashes."""

import bisect
from collections.abc import Callable

from ...dialects import make_context
from ...dialects.assembly import parse_module
from ...dialects.diagnostic import Diagnostic
from ...dialects.mlir import ir
from .isolation import Crash, crashes


def parser_crash(
    text: str, name: str, crash: Crash, context: Callable[[], ir.Context] = make_context
) -> Diagnostic | None:
    """What to tell of a text that upstream's parser crashes on; None if it does not."""
    lines = text.split("\n")

    def crashes_on(count: int) -> bool:
        def parse() -> None:
            with context():
                parse_module("\n".join(lines[:count]), name)

        return crashes(parse)

    if not crashes_on(len(lines)):
        return None
    # The parser stops with an error at the end of a text that is cut off, or crashes before.
    number = bisect.bisect_left(range(len(lines)), True, key=crashes_on)
    line = lines[number - 1]
    column = len(line) - len(line.lstrip()) + 1
    message = f"upstream's parser crashes on this line ({crash}): it is malformed, or upstream has a bug"
    return Diagnostic("error", name, number, column, message)

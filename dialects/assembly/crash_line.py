"""Finds the line of a text on which upstream's parser crashes."""

import bisect

from ..crash_recovery import Crashed, recovered
from ..mlir import ir

# An op that is refused when it is verified, wherever it stands, and the words for that.
_REFUSED = '"arith.constant"() : () -> ()'
_REFUSAL = "'arith.constant' op requires one result"


def crash_line(text: str, allow_unregistered: bool) -> int:
    """The line of `text`, which upstream's parser crashes on, of the op that it then reads or verifies."""
    lines = text.split("\n")

    def outcome(parts: list[str]) -> str:
        return _outcome("\n".join(parts), allow_unregistered)

    if outcome([_REFUSED, *lines]) == "crash":  # as it reads
        # It stops with an error at the end of a text that is cut off, or crashes before.
        return bisect.bisect_left(range(len(lines)), True, key=lambda count: outcome(lines[:count]) == "crash")
    # It reads all, then verifies the functions, and the ops of each in order up to one that is refused.
    start = 0
    for end in range(1, len(lines) + 1):
        found = outcome(lines[:end])
        if found == "crash":
            break
        if found == "read":  # a whole function
            start = end
    lines = lines[:end]
    for count in range(start, end):
        found = outcome([*lines[:count], _REFUSED, *lines[count:]])  # an error where that is within an op
        if found == "crash":
            break
        if found == "refused":
            start = count
    while start < len(lines) - 1 and lines[start].partition("//")[0].strip() in ("", "}"):
        start += 1
    return start + 1


def _outcome(text: str, allow_unregistered: bool) -> str:
    from .. import make_context

    context = make_context()
    context.allow_unregistered_dialects = allow_unregistered
    try:
        recovered(ir.Module.parse, text, context=context)
    except (Crashed, MemoryError):
        return "crash"
    except ir.MLIRError as error:
        return "refused" if _REFUSAL in str(error) else "error"
    return "read"

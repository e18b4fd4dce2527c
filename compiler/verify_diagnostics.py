"""``--verify-diagnostics``: compares the diagnostics of a run with those that comments of the input ask for.

    // expected-error@+1 {{expects dimension in [0, 2)}}
    %0:4 = linalg_ext.softmax dimension(5) …

As in mlir-opt: ``error``, ``warning``, ``remark`` or ``note``; at this line, or at ``@+1``, ``@-1``, ``@above``,
``@below`` (the nearest line without such a comment) or ``@unknown``; the text in ``{{…}}`` is part of the message, and
with ``-re`` what stands in inner ``{{…}}`` is a regular expression.
"""

import dataclasses
import re

from ..dialects.diagnostic import Diagnostic

_EXPECTED = re.compile(
    r"expected-(error|note|remark|warning)(-re)? *(?:@([+-]\d+|above|below|unknown))? *\{\{(.*)\}\}\s*$"
)


@dataclasses.dataclass
class _Expected:
    severity: str
    line: int  # 0: unknown
    pattern: re.Pattern[str]
    text: str
    stands_at: int
    met: bool = False


def expected_in(text: str) -> list[_Expected]:
    """The diagnostics that the comments of `text` ask for."""
    lines = text.split("\n")
    found = [(number, match) for number, line in enumerate(lines, 1) if (match := _EXPECTED.search(line))]
    designators = {number for number, _ in found}
    return [
        _Expected(
            match[1], _line_of(match[3], number, designators), _pattern(match[4], bool(match[2])), match[4], number
        )
        for number, match in found
    ]


def _line_of(where: str | None, number: int, designators: set[int]) -> int:
    if where == "unknown":
        return 0
    if where in ("above", "below"):
        step = -1 if where == "above" else 1
        while number in designators:
            number += step
        return number
    return number + int(where or 0)


def _pattern(text: str, regex: bool) -> re.Pattern[str]:
    if not regex:
        return re.compile(re.escape(text))
    pieces = re.split(r"\{\{(.*?)\}\}", text)
    return re.compile("".join(f"(?:{piece})" if i % 2 else re.escape(piece) for i, piece in enumerate(pieces)))


class Verifier:
    """Is told the diagnostics of a run as they come; `problems` says afterwards what did not come as expected."""

    def __init__(self, text: str, file: str):
        self.file = file
        self.expected = expected_in(text)
        self.unexpected: list[Diagnostic] = []

    def __call__(self, found: Diagnostic) -> None:
        line = found.line if found.file == self.file else 0
        for expected in self.expected:
            if (
                not expected.met
                and expected.severity == found.severity
                and expected.line == line
                and expected.pattern.search(found.message)
            ):
                expected.met = True
                break
        else:
            # Notes are checked only if some are asked for.
            if found.severity != "note" or any(one.severity == "note" for one in self.expected):
                self.unexpected.append(found)
        for note in found.notes:
            self(note)

    def problems(self) -> list[Diagnostic]:
        """One error for each diagnostic that came and was not expected, and for each that did not come."""
        came = [
            Diagnostic("error", one.file, one.line, one.col, f"unexpected {one.severity}: {one.message}")
            for one in self.unexpected
        ]
        missing = [
            Diagnostic("error", self.file, one.stands_at, 0, f'expected {one.severity} "{one.text}" was not produced')
            for one in self.expected
            if not one.met
        ]
        return came + missing

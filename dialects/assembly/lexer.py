"""The lexical side of MLIR's text: comments, strings, brackets, types and attribute values.

Everything works on offsets into one text and its two shadows of the same length: `clean` has comments blanked out,
`mask` has the insides of strings blanked out too, so that searching `mask` never meets a bracket in a string.
"""

import bisect
import functools
import itertools
import re
from collections.abc import Iterator

_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_COMMENT_OR_STRING = re.compile(r"//[^\n]*|" + _STRING.pattern)
_OPENERS = {"(": ")", "[": "]", "{": "}", "<": ">"}
_BRACKET = re.compile(r"->|>=|<=|==|[()\[\]{}<>]")
_ARROWS = re.compile(r"->|>=|<=|==")
_DEPTH = {ord(char): 1 for char in "([{<"} | {ord(char): -1 for char in ")]}>"}
_NOT_BRACKETS = bytes(set(range(256)) - _DEPTH.keys())
_COMMA_OR_BRACKET = re.compile(r",|->|>=|<=|==|[(\[{<]")
_BLANK = re.compile(r"\s*")
_TYPE_HEAD = re.compile(r"![\w$.\-]+|[A-Za-z_]\w*")
_VALUE_ID = re.compile(r"%(?:\d+|[A-Za-z_$.\-][\w$.\-]*)(?:#\d+)?")
_NUMBER = re.compile(r"-?\s*(?:0x[0-9a-fA-F]+|\d+(?:\.\d*(?:[eE][+\-]?\d+)?)?)")
_ATTRIBUTE_HEAD = re.compile(r"[#@!]?[A-Za-z_][\w$.\-]*|#\d+")
_TOKEN = re.compile(r'"[^"\n]*"|->|::|[%^@#!]?[\w$.\-]+(?:#\d+)?|[^\s]')
_KEY = re.compile(r'"[^"]*"|[A-Za-z_][\w$.]*')

RESULT_LIST = re.compile(r"(%[\w$.\-]+(?::\d+)?(?:\s*,\s*%[\w$.\-]+(?::\d+)?)*)\s*=\s*$")
ONE_RESULT = re.compile(r"(%[\w$.\-]+)(?::(\d+))?")

DEEPEST = 500


class SyntaxProblem(Exception):
    """The text is malformed at offset `at`."""

    def __init__(self, at: int, message: str):
        super().__init__(message)
        self.at = at
        self.message = message


def line_starts(text: str) -> list[int]:
    """The offsets at which the lines of `text` start."""
    return [0, *(match.end() for match in re.finditer("\n", text))]


class Source:
    """A text with its shadows; see the module."""

    def __init__(self, text: str):
        self.text = text
        self.strings: list[tuple[int, int]] = []
        if "//" not in text and '"' not in text:
            self.clean = self.mask = text
            return
        clean: list[str] = []
        mask: list[str] = []
        last = 0
        marks = _COMMENT_OR_STRING if "//" in text else _STRING  # strings alone are found ten times as fast
        for match in marks.finditer(text):
            start, end = match.span()
            between = text[last:start]
            blank = " " * (end - start)
            if text[start] == '"':
                clean += (between, match.group())
                mask += (between, '"', blank[2:].replace(" ", "_"), '"')
                self.strings.append((start, end))
            else:
                clean += (between, blank)
                mask += (between, blank)
            last = end
        self.clean = "".join(clean) + text[last:]
        self.mask = "".join(mask) + text[last:]

    def check_depth(self) -> None:
        """Refuses brackets nested so deep that upstream's recursive parser would overflow the stack."""
        text = _ARROWS.sub("", self.mask).encode("ascii", "replace").translate(None, _NOT_BRACKETS)
        if max(itertools.accumulate(map(_DEPTH.__getitem__, text)), default=0) <= DEEPEST:
            return
        depth = 0
        for match in _BRACKET.finditer(self.mask):
            depth += _DEPTH.get(ord(match.group()[0]), 0) if len(match.group()) == 1 else 0
            if depth > DEEPEST:
                raise SyntaxProblem(match.start(), f"brackets are nested more than {DEEPEST} deep")

    @functools.cached_property
    def _string_ends(self) -> dict[int, int]:
        return dict(self.strings)

    @functools.cached_property
    def line_starts(self) -> list[int]:
        """The offsets at which lines start."""
        return line_starts(self.text)

    def line_of(self, at: int) -> int:
        """The number of the line of an offset, from 1."""
        return bisect.bisect_right(self.line_starts, at)

    def skip_blank(self, at: int) -> int:
        return _BLANK.match(self.mask, at).end()  # type: ignore[union-attr]

    def found(self, at: int) -> str:
        """What stands at `at`, in words for a message."""
        at = self.skip_blank(at)
        if at >= len(self.mask):
            return "the end of the file"
        token = _TOKEN.match(self.mask, at)
        return f"'{self.clean[at : token.end()]}'" if token else f"'{self.clean[at]}'"

    def end_of_brackets(self, at: int) -> int:
        """The offset after the bracket that closes the one at `at`."""
        stack: list[str] = []
        for match in _BRACKET.finditer(self.mask, at):
            token = match.group()
            if token in _OPENERS:
                stack.append(_OPENERS[token])
            elif len(token) == 1:
                if token != stack[-1]:
                    raise SyntaxProblem(match.start(), f"expected '{stack[-1]}' but found '{token}'")
                stack.pop()
                if not stack:
                    return match.end()
        raise SyntaxProblem(at, f"'{self.mask[at]}' is never closed")

    def end_of_value_id(self, at: int) -> int | None:
        match = _VALUE_ID.match(self.mask, at)
        return match.end() if match else None

    def end_of_type(self, at: int) -> int:
        """The offset after the type at `at`: ``f32``, ``tensor<4x?xf32, #enc>``, ``!d.t<…>``, ``(…) -> …``."""
        if self.mask.startswith("(", at):
            arrow = self.skip_blank(self.end_of_brackets(at))
            if not self.mask.startswith("->", arrow):
                raise SyntaxProblem(arrow, f"expected '->' of a function type but found {self.found(arrow)}")
            result = self.skip_blank(arrow + 2)
            if self.mask.startswith("(", result):
                return self.end_of_brackets(result)
            return self.end_of_type(result)
        head = _TYPE_HEAD.match(self.mask, at)
        if not head:
            raise SyntaxProblem(at, f"expected a type but found {self.found(at)}")
        end = head.end()
        body = end if head.group().startswith("!") else self.skip_blank(end)
        return self.end_of_brackets(body) if self.mask.startswith("<", body) else end

    def end_of_attribute(self, at: int) -> int:
        """The offset after the attribute value that starts at `at`; numbers may carry ``: type``."""
        first = self.mask[at : at + 1]
        if first == '"':
            end = self._string_ends.get(at)
            if end is None:
                raise SyntaxProblem(at, "the string is never closed")
            return end
        if first and first in "[{":
            return self.end_of_brackets(at)
        if first == "(":
            return self.end_of_type(at)
        if number := _NUMBER.match(self.mask, at):
            colon = self.skip_blank(number.end())
            if self.mask.startswith(":", colon) and not self.mask.startswith("::", colon):
                return self.end_of_type(self.skip_blank(colon + 1))
            return number.end()
        head = _ATTRIBUTE_HEAD.match(self.mask, at)
        if not head:
            raise SyntaxProblem(at, f"expected an attribute value but found {self.found(at)}")
        return self.end_of_brackets(head.end()) if self.mask.startswith("<", head.end()) else head.end()

    def split(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The pieces of [start, end) between commas outside of brackets, without blanks around them; none is empty."""
        at = piece = start
        while match := _COMMA_OR_BRACKET.search(self.mask, at, end):
            at = match.end()
            if match.group() == ",":
                yield self.strip(piece, match.start())
                piece = at
            elif match.group() in _OPENERS:
                at = self.end_of_brackets(match.start())
        if piece != start or self.skip_blank(piece) < end:
            yield self.strip(piece, end)

    def strip(self, start: int, end: int) -> tuple[int, int]:
        inside = self.mask[start:end]
        return start + len(inside) - len(inside.lstrip()), start + len(inside.rstrip())

    def dictionary(self, at: int) -> tuple[list[tuple[str, int, int, int]], int]:
        """The entries of the attribute dictionary at `at`, as (key, start, start of the value or -1, end), and its end.

        A key is given without its quotes.
        """
        end = self.end_of_brackets(at)
        entries = []
        for start, stop in self.split(at + 1, end - 1):
            key = _KEY.match(self.mask, start)
            if not key:
                raise SyntaxProblem(start, f"expected an attribute name but found {self.found(start)}")
            name = self.clean[start : key.end()].strip('"')
            equals = self.skip_blank(key.end())
            value = -1
            if equals < stop:
                if self.mask[equals] != "=":
                    raise SyntaxProblem(equals, f"expected '=', ',' or '}}' but found {self.found(equals)}")
                value = self.skip_blank(equals + 1)
            entries.append((name, start, value, stop))
        return entries, end

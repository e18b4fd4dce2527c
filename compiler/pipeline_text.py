"""The text of pipelines: ``name``, ``name{options}``, ``anchor(item,…)``, separated by commas."""

import dataclasses
import re

from .diagnostics import user_error

_NAME = re.compile(r"[A-Za-z_][\w.\-]*")


@dataclasses.dataclass(frozen=True)
class Step:
    """A pass by its name, with its options as text."""

    name: str
    options: str = ""


@dataclasses.dataclass(frozen=True)
class Nest:
    """Items that run on the ops called `anchor`."""

    anchor: str
    items: tuple["Step | Nest", ...]


class _Parser:
    def __init__(self, text: str):
        self.text = text
        self.at = 0

    def fail(self, expected: str) -> None:
        found = f"'{self.text[self.at]}'" if self.at < len(self.text) else "its end"
        raise user_error(
            f"pass pipeline: expected {expected} but found {found} at column {self.at + 1}",
            self.text,
            " " * self.at + "^",
        )

    def skip(self) -> None:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1

    def take(self, char: str) -> bool:
        self.skip()
        if self.text.startswith(char, self.at):
            self.at += 1
            return True
        return False

    def items(self, closer: str) -> tuple[Step | Nest, ...]:
        found: list[Step | Nest] = []
        self.skip()
        if self.at < len(self.text) and self.text[self.at] != closer:
            found.append(self.item())
            while self.take(","):
                found.append(self.item())
        return tuple(found)

    def item(self) -> Step | Nest:
        self.skip()
        name = _NAME.match(self.text, self.at)
        if not name:
            self.fail("the name of a pass or an op")
        self.at = name.end()  # type: ignore[union-attr]
        if self.take("("):
            inner = self.items(")")
            if not self.take(")"):
                self.fail("',' or ')'")
            return Nest(name.group(), inner)  # type: ignore[union-attr]
        options = self.options() if self.text.startswith("{", self.at) else ""
        return Step(name.group(), options)  # type: ignore[union-attr]

    def options(self) -> str:
        start, depth = self.at, 0
        quote = ""
        while self.at < len(self.text):
            char = self.text[self.at]
            self.at += 1
            if quote:
                quote = "" if char == quote else quote
            elif char in "'\"":
                quote = char
            elif char == "{":
                depth += 1
            elif char == "}":
                depth -= 1
                if not depth:
                    return self.text[start + 1 : self.at - 1].strip()
        self.at = len(self.text)
        self.fail("'}' to close the options")
        raise AssertionError


def parse_items(text: str) -> tuple[Step | Nest, ...]:
    """The items of a pipeline's text. Raises DiagnosedError with the column of what is wrong."""
    parser = _Parser(text)
    items = parser.items("")
    parser.skip()
    if parser.at < len(text):
        parser.fail("','")
    return items

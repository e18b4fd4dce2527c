"""The types of values in a text of MLIR, as far as the text that defines or uses them shows them.

The handles of a transform script have no types in the custom forms of our transform ops; upstream's parser wants them.
"""

import re

from .lexer import ONE_RESULT, RESULT_LIST, Source, SyntaxProblem

DEFAULT_HANDLE = "!transform.any_op"

# Where the next op starts: with a line that starts like one, or with the names of its results.
_STATEMENT = re.compile(
    r'\n\s*(?:"|\^|[#!][\w$]+\s*=|[A-Za-z_][\w$]*\.[\w$.]+|\bcleanup\b)|%[\w$.\-]+[^=%(){}\n]*=(?!=)'
)
_NAME_GOES_ON = re.compile(r"[\w$.\-]")
_LAST_TYPES = re.compile(r"->|:(?!:)|\b(?:to|into)\b|[(\[{<]|>=|<=|==")
_MORE_TYPES = re.compile(r"\s*(?:->|to\b|into\b)")


class ValueTypes:
    """Finds types of values; `define` tells the types of results whose text does not show them."""

    def __init__(self, source: Source):
        self.source = source
        self._defined: dict[int, list[str]] = {}  # by the offset of the first result's name

    def define(self, names_at: int, types: list[str]) -> None:
        self._defined[names_at] = types

    def type_of(self, value: str, before: int) -> str:
        """The type of the value ``%name`` or ``%name#2`` that is used at offset `before`."""
        name, _, number = value.partition("#")
        mask, at = self.source.mask, before
        # From there backwards: most values are used near their definition, and texts are long.
        while (at := mask.rfind(name, 0, at)) >= 0:
            end = at + len(name)
            if end < before and _NAME_GOES_ON.match(mask, end):
                continue
            if types := self._of_definition(at, int(number or 0)):
                return types
            if shown := self._of_annotation(end):
                return shown
        return DEFAULT_HANDLE

    def _of_definition(self, at: int, number: int) -> str | None:
        """The type of the result whose name stands at `at` in a list of results, or None if none stands there."""
        mask = self.source.mask
        start = at
        line = mask.rfind("\n", 0, at) + 1
        equals = re.compile(r"[%\w$.\-:,\s]*?=(?!=)").match(mask, at)
        if not equals:
            return None
        # A list of results may start before `at`, and on an earlier line only in theory.
        before = re.search(r"((?:%[\w$.\-]+(?::\d+)?\s*,\s*)+)$", mask[line:at])
        if before:
            start = line + before.start()
        names = RESULT_LIST.match(mask[start : equals.end()])
        if not names:
            return None
        index, total = number, 0
        for one in ONE_RESULT.finditer(mask, start, start + names.end(1)):
            if one.start() == at:
                index += total
            total += int(one.group(2) or 1)
        types = self._defined.get(start) or self._of_statement(equals.end())
        if not types:
            return None
        return types[index] if len(types) == total and index < total else types[0]

    def _of_statement(self, at: int) -> list[str]:
        """The types at the end of the op whose text starts at `at`: those after its last ``:``, ``->`` or ``to``."""
        mask = self.source.mask
        first = self.source.skip_blank(at)
        types: list[str] = []
        while match := _LAST_TYPES.search(mask, at):
            following = _STATEMENT.search(mask, max(at, first + 1))
            if (following and following.start() < match.start()) or mask.find("}", at, match.start()) >= 0:
                break
            at, token = match.end(), match.group()
            try:
                if token in "([{<":
                    at = self.source.end_of_brackets(match.start())
                elif token not in (">=", "<=", "=="):
                    types, at = self._type_list(at)
                    if not _MORE_TYPES.match(mask, at):
                        break
            except SyntaxProblem:
                continue
        return types

    def _type_list(self, at: int) -> tuple[list[str], int]:
        """The types at `at`, or the results of a function type, and the offset after them."""
        source = self.source
        at = source.skip_blank(at)
        if source.mask.startswith("(", at):
            end = source.end_of_brackets(at)
            arrow = source.skip_blank(end)
            if source.mask.startswith("->", arrow):
                return self._type_list(arrow + 2)
            return [source.clean[a:b] for a, b in source.split(at + 1, end - 1)], end
        types = []
        while True:
            end = source.end_of_type(at)
            types.append(source.clean[at:end])
            comma = source.skip_blank(end)
            if not source.mask.startswith(",", comma):
                return types, end
            at = source.skip_blank(comma + 1)

    def _of_annotation(self, at: int) -> str | None:
        """The type in ``%name : type``, as block arguments and single operands have it."""
        mask = self.source.mask
        colon = self.source.skip_blank(at)
        if not mask.startswith(":", colon):
            return None
        start = self.source.skip_blank(colon + 1)
        try:
            if not mask.startswith("(", start):
                return self.source.clean[start : self.source.end_of_type(start)]
            inputs = list(self.source.split(start + 1, self.source.end_of_brackets(start) - 1))
        except SyntaxProblem:
            return None
        return self.source.clean[slice(*inputs[0])] if len(inputs) == 1 else None

"""Generic form to custom assembly, in the text that upstream prints."""

import dataclasses
import functools
import re

from .formats import AttrDict, Attribute, Element, Form, FunctionalType, Group, Literal, Operand, Types
from .lexer import RESULT_LIST, Source, SyntaxProblem
from .value_types import ValueTypes

_NO_SPACE_BEFORE = frozenset(",)]>")
_NO_SPACE_AFTER = frozenset("([<")

SEGMENTS = "operandSegmentSizes"


@dataclasses.dataclass
class _Generic:
    """An op in generic form, taken apart; everything is text."""

    operands: dict[str, list[str]]
    attributes: dict[str, str | None]
    operand_types: dict[str, list[str]]
    result_types: list[str]
    end: int
    implicit_types: bool = False

    def types(self) -> list[str]:
        return [kind for kinds in self.operand_types.values() for kind in kinds]


def write(text: str, forms: dict[str, Form]) -> str:
    """`text` with every op that has a form written in it."""
    if not _any_of(tuple(forms)).search(text):
        return text
    source = Source(text)
    value_types = ValueTypes(source)
    pieces: list[str] = []
    last = 0
    for start, end in source.strings:
        form = forms.get(text[start + 1 : end - 1])
        if form is None or start < last or not text.startswith("(", end):
            continue
        try:
            op = _take_apart(source, form, end)
        except SyntaxProblem:
            op = None
        if op is None:
            continue
        if not form.inits:
            op.implicit_types = _types_are_implied(source, value_types, op, start)
        pieces += (text[last:start], form.name, _Printer(op).run(form.elements))
        last = op.end
    return "".join(pieces) + text[last:]


@functools.cache
def _any_of(names: tuple[str, ...]) -> re.Pattern[str]:
    """An op of one of the names, in generic form: one search, as texts are long and have few strings."""
    return re.compile('"(?:' + "|".join(map(re.escape, names)) + r')"\(')


def _take_apart(source: Source, form: Form, at: int) -> _Generic | None:
    """The op whose operands' opening bracket is at `at`, or None if the custom form cannot say all of it."""
    clean = source.clean
    end = source.end_of_brackets(at)
    values = [clean[a:b] for a, b in source.split(at + 1, end - 1)]
    attributes: dict[str, str | None] = {}
    at = source.skip_blank(end)
    if source.mask.startswith("{", at):
        entries, at = source.dictionary(at)
        attributes = {key: clean[value:stop] if value >= 0 else None for key, _, value, stop in entries}
        at = source.skip_blank(at)
    if not source.mask.startswith(":", at):
        return None  # successors, regions or properties
    at = source.skip_blank(at + 1)
    end = source.end_of_brackets(at)
    types = [clean[a:b] for a, b in source.split(at + 1, end - 1)]
    at = source.skip_blank(source.skip_blank(end) + 2)
    if source.mask.startswith("(", at):
        end = source.end_of_brackets(at)
        results = [clean[a:b] for a, b in source.split(at + 1, end - 1)]
    else:
        end = source.end_of_type(at)
        results = [clean[at:end]]
    # Operands in the order of the definition; at most one of them is variadic.
    operands: dict[str, list[str]] = {}
    operand_types: dict[str, list[str]] = {}
    fixed = sum(not operand.variadic for operand in form.operands)
    if len(values) != len(types) or (form.results is not None and len(results) != form.results):
        return None
    taken = 0
    for operand in form.operands:
        count = len(values) - fixed if operand.variadic else 1
        operands[operand.name] = values[taken : taken + count]
        operand_types[operand.name] = types[taken : taken + count]
        taken += count
    if taken != len(values) or any(attributes.get(name) is None for name in form.attributes):
        return None
    if form.inits and results != [operand_types[name][0] for name in form.inits] and form.results is None:
        return None
    return _Generic(operands, attributes, operand_types, results, end)


def _types_are_implied(source: Source, value_types: ValueTypes, op: _Generic, start: int) -> bool:
    """Whether the reader finds the types of the operands and results without being told."""
    values = [value for values in op.operands.values() for value in values]
    if any(value_types.type_of(v, start) != kind for v, kind in zip(values, op.types(), strict=True)):
        return False
    window = max(0, start - 4000)
    if names := RESULT_LIST.search(source.mask[window:start]):
        value_types.define(window + names.start(1), op.result_types)
    elif op.result_types:
        return False
    return not op.result_types or (bool(values) and all(kind == op.types()[0] for kind in op.result_types))


class _Printer:
    """Prints the elements of a form, with blanks where one would put them."""

    def __init__(self, op: _Generic):
        self.op = op
        self.text = ""

    def run(self, elements: tuple[Element, ...]) -> str:
        self._named = _attributes_of(elements)
        for element in elements:
            self._print(element)
        return self.text.rstrip()

    def _put(self, text: str) -> None:
        glued = text[0] in _NO_SPACE_BEFORE or (text[0] == "(" and self.text[-1:].isalnum())
        if not glued and self.text[-1:] not in _NO_SPACE_AFTER:
            self.text += " "
        self.text += text

    def _print(self, element: Element) -> None:
        op = self.op
        if isinstance(element, Literal):
            if element.text.strip():
                self._put(element.text)
            else:
                self.text += element.text
        elif isinstance(element, Operand):
            if op.operands[element.name]:
                self._put(", ".join(op.operands[element.name]))
        elif isinstance(element, Attribute):
            self._put((op.attributes[element.name] or "").removesuffix(" : i64"))
        elif isinstance(element, AttrDict):
            if entries := self._dictionary():
                self._put("{" + ", ".join(entries) + "}")
        elif isinstance(element, Types):
            if types := self._types(element):
                self._put(", ".join(types))
        elif isinstance(element, FunctionalType):
            self._put(self._functional_type())
        elif self._is_printed(element):
            for inner in element.elements:
                self._print(inner)

    def _dictionary(self) -> list[str]:
        rest = [(key, value) for key, value in self.op.attributes.items() if key not in self._named]
        if [key for key, _ in rest] == [SEGMENTS] and not all(self.op.operands.values()):
            return []  # operands that are left out are none
        return [_quoted(key) if value is None else f"{_quoted(key)} = {value}" for key, value in rest]

    def _types(self, element: Types) -> list[str]:
        if not element.names:
            return self.op.result_types
        return [kind for name in element.names for kind in self.op.operand_types[name]]

    def _functional_type(self) -> str:
        types, results = self.op.types(), self.op.result_types
        if types and not results and len(set(types)) == 1:
            return types[0]
        return f"({', '.join(types)}) -> ({', '.join(results)})"

    def _is_printed(self, group: Group) -> bool:
        if group.anchor is None:
            return any(isinstance(e, FunctionalType) for e in group.elements) and not self.op.implicit_types
        anchor = group.elements[group.anchor]
        if isinstance(anchor, AttrDict):
            return bool(self._dictionary())
        if isinstance(anchor, Types):
            return bool(self._types(anchor))
        if isinstance(anchor, Operand):
            return bool(self.op.operands[anchor.name])
        return True


def _attributes_of(elements: tuple[Element, ...]) -> set[str]:
    return {
        name
        for element in elements
        for name in (
            _attributes_of(element.elements)
            if isinstance(element, Group)
            else {element.name}
            if isinstance(element, Attribute)
            else ()
        )
    }


def _quoted(key: str) -> str:
    plain = key.replace(".", "").replace("$", "").replace("_", "")
    return key if (plain.isalnum() and not plain[0].isdigit() and plain.isascii()) or not plain else f'"{key}"'

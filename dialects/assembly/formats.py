"""What an op declares about its assembly, and the mini-language of ``assembly_format``.

An op class (a subclass of ``ext.Operation``) may carry

``assembly_format``
    a format in the spirit of ODS; an op without one is read and printed in generic form.
``assembly_name``
    the name in custom assembly, where it is not the op's own. An op that is called ``transform.word`` may be
    written as ``word`` inside of the regions of a transform script.
``inits``
    names of the operands whose types are the types of the results (destination style): these may then be left out.
``assembly_defaults``
    attributes, as text, that are added where the text has none.

The format is a sequence of

===================  ======================================================================================
`` `text` ``         a keyword or punctuation
`` ` ` ``            a space that is printed (nothing is read)
``$name``            an operand (a comma-separated list if variadic) or the value of an attribute
``type($a, $b)``     the types of these operands, with commas
``type(results)``    the types of the results, with commas
``functional-type``  ``(operand types) -> (result types)``, or one type that all operands and results have
``attr-dict``        the attributes that the format does not name; read after the op's name and at the end of the
                     op as well, printed here
``( … )?``           a group read if its first element is there. It is printed if the element marked ``^`` has
                     something to print, and without such a mark only if its types cannot be found otherwise
===================  ======================================================================================

Types that the text does not give are those of ``inits`` for results; a handle of a transform script has the type that
its definition gives it, and so have the results made from it.
"""

import dataclasses
import functools
import re
from typing import Any

from ..mlir import ext


@dataclasses.dataclass(frozen=True)
class Literal:
    text: str


@dataclasses.dataclass(frozen=True)
class Operand:
    name: str
    variadic: bool


@dataclasses.dataclass(frozen=True)
class Attribute:
    name: str


@dataclasses.dataclass(frozen=True)
class Types:
    """The types of operands, or of the results if `names` is empty."""

    names: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class FunctionalType:
    pass


@dataclasses.dataclass(frozen=True)
class AttrDict:
    pass


@dataclasses.dataclass(frozen=True)
class Group:
    elements: tuple["Element", ...]
    anchor: int | None


Element = Literal | Operand | Attribute | Types | FunctionalType | AttrDict | Group


@dataclasses.dataclass(frozen=True)
class Form:
    """An op's custom form; see the module."""

    op: str
    name: str
    elements: tuple[Element, ...]
    operands: tuple[Operand, ...]
    attributes: frozenset[str]
    results: int | None  # None: variadic
    inits: tuple[str, ...]
    defaults: tuple[tuple[str, str], ...]

    @property
    def bare_name(self) -> str | None:
        """The name without the dialect, for ops that may be written so in transform scripts."""
        prefix, _, word = self.name.partition(".")
        return word if prefix == "transform" and "." not in word else None


class FormatError(Exception):
    """An op class declares a format that is none: a bug of the dialect's."""


_FORMAT_TOKEN = re.compile(
    r"\s*(?:`(?P<literal>[^`]*)`|\$(?P<name>\w+)|type\((?P<types>[^)]*)\)|(?P<word>functional-type|attr-dict)"
    r"|(?P<open>\()|(?P<close>\)\?)|(?P<anchor>\^))"
)


def parse_format(op: type, text: str) -> Form:
    """The Form of an op class from its ``assembly_format``."""
    fields = {field.name: field for field in op._fields}  # type: ignore[attr-defined]
    kinds = {name: type(field).__name__ for name, field in fields.items()}
    variadic = {name: field.variadicity.name != "single" for name, field in fields.items()}
    operands = {name: Operand(name, variadic[name]) for name, kind in kinds.items() if kind == "OperandDef"}
    attributes: set[str] = set()
    stack: list[list[Any]] = [[]]
    anchors: list[int | None] = [None]
    at, text = 0, text.strip()
    while at < len(text):
        match = _FORMAT_TOKEN.match(text, at)
        if not match:
            raise FormatError(f"{op.__name__}.assembly_format: cannot read {text[at:]!r}")
        at = match.end()
        kind, value = match.lastgroup, match.group(match.lastgroup or 0)
        if kind == "literal":
            stack[-1].append(Literal(value))
        elif kind == "name":
            if value in operands:
                stack[-1].append(operands[value])
            elif kinds.get(value) == "AttributeDef":
                stack[-1].append(Attribute(value))
                attributes.add(value)
            else:
                raise FormatError(f"{op.__name__}.assembly_format: no operand or attribute is called {value!r}")
        elif kind == "types":
            names = () if value.strip() == "results" else tuple(re.findall(r"\$(\w+)", value))
            if unknown := [name for name in names if name not in operands]:
                raise FormatError(f"{op.__name__}.assembly_format: no operand is called {unknown[0]!r}")
            stack[-1].append(Types(names))
        elif kind == "word":
            stack[-1].append(FunctionalType() if value == "functional-type" else AttrDict())
        elif kind == "open":
            stack.append([])
            anchors.append(None)
        elif kind == "anchor":
            anchors[-1] = len(stack[-1]) - 1
        elif len(stack) > 1:
            group = Group(tuple(stack.pop()), anchors.pop())
            stack[-1].append(group)
        else:
            raise FormatError(f"{op.__name__}.assembly_format: ')?' closes nothing")
    if len(stack) > 1:
        raise FormatError(f"{op.__name__}.assembly_format: '(' is never closed")
    results = [name for name, kind in kinds.items() if kind == "ResultDef"]
    op_name: str = op.OPERATION_NAME  # type: ignore[attr-defined]
    return Form(
        op=op_name,
        name=getattr(op, "assembly_name", op_name),
        elements=tuple(stack[0]),
        operands=tuple(operands.values()),
        attributes=frozenset(attributes),
        results=None if any(variadic[name] for name in results) else len(results),
        inits=tuple(getattr(op, "inits", ())),
        defaults=tuple(getattr(op, "assembly_defaults", {}).items()),
    )


@functools.cache
def _form_of(op: type) -> Form:
    return parse_format(op, op.assembly_format)  # type: ignore[attr-defined]


def forms() -> dict[str, Form]:
    """The custom forms of all ops of dialects defined in Python, by the ops' own names."""
    return {
        op.OPERATION_NAME: _form_of(op)
        for dialect in ext.Dialect.__subclasses__()
        for op in dialect.operations
        if hasattr(op, "assembly_format")
    }


def dialects() -> set[str]:
    """The namespaces of dialects defined in Python."""
    return {dialect.DIALECT_NAMESPACE for dialect in ext.Dialect.__subclasses__()}

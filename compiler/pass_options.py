"""Options of our passes: the fields of their dataclasses, to and from the text of the command line.

Field ``tile_sizes: tuple[int, ...]`` is option ``tile-sizes=4,0,8``.
"""

import dataclasses
import difflib
import typing
from typing import Any

from ..transforms import passes
from ..transforms.passes import Pass
from .diagnostics import user_error

_TRUE, _FALSE = ("true", "1"), ("false", "0")


def make_pass(name: str, options: str = "") -> Pass | None:
    """Our pass of that name with these options, or None if we have none of that name."""
    if name not in passes.names():
        return None
    cls = passes.lookup(name)
    hints = typing.get_type_hints(cls)
    kinds = {field.name: hints[field.name] for field in dataclasses.fields(cls)}
    try:
        return cls(**option_values(f"pass '{name}'", options, kinds))
    except ValueError as error:
        raise user_error(f"pass '{name}': {error}") from None


def option_values(owner: str, options: str, kinds: dict[str, Any]) -> dict[str, Any]:
    """The options in a text by the names of their fields, whose types are `kinds`; `owner` is what has them."""
    values: dict[str, Any] = {}
    for key, value in split_options(options):
        field = key.replace("-", "_")
        if field not in kinds:
            close = difflib.get_close_matches(key, [f.replace("_", "-") for f in kinds], n=1)
            hint = f"; did you mean '{close[0]}'?" if close else ""
            known = ", ".join(f.replace("_", "-") for f in kinds)
            raise user_error(
                f"{owner} has no option '{key}'{hint}", f"it has {known}" if known else "it has no options"
            )
        values[field] = _value(owner, key, value, kinds[field])
    return values


def _value(owner: str, key: str, text: str | None, kind: Any) -> Any:
    optional = [one for one in typing.get_args(kind) if one is not type(None)]
    if type(None) in typing.get_args(kind) and len(optional) == 1:
        kind = optional[0]
    if kind is bool:
        if text is None or text.lower() in _TRUE:
            return True
        if text.lower() in _FALSE:
            return False
        raise user_error(f"{owner}: option '{key}' expects true or false, but found '{text}'")
    if text is None:
        raise user_error(f"{owner}: option '{key}' expects a value, as in {key}={_example(kind)}")
    if kind is str:
        return text
    try:
        if kind is int:
            return _count(text)
        if kind is float:
            return float(text)
        if typing.get_origin(kind) is tuple:
            item = _integer if typing.get_args(kind)[0] is int else typing.get_args(kind)[0]
            return tuple(item(part.strip()) for part in text.strip("[](){} ").split(",") if part.strip() or "," in text)
    except ValueError:
        raise user_error(
            f"{owner}: option '{key}' expects {_words(kind)}, as in {key}={_example(kind)}, but found '{text}'"
        ) from None
    raise TypeError(f"{owner}: options of type {kind} are not supported")


def _words(kind: Any) -> str:
    if typing.get_origin(kind) is tuple:
        return (
            "integers of 64 bits with commas between them" if typing.get_args(kind)[0] is int else "values with commas"
        )
    return "an integer from 0 to 2^63 - 1" if kind is int else "a number"


def _integer(text: str) -> int:
    """As attributes of the IR hold it."""
    if not -(1 << 63) <= int(text) < 1 << 63:
        raise ValueError
    return int(text)


def _count(text: str) -> int:
    """A number by itself always is how many of something, or how large."""
    if _integer(text) < 0:
        raise ValueError
    return _integer(text)


def _example(kind: Any) -> str:
    return {int: "4", float: "0.5", str: "NAME"}.get(kind, "4,0,8" if typing.get_args(kind)[:1] == (int,) else "a,b")


def split_options(text: str) -> list[tuple[str, str | None]]:
    """``a=1 b="x y" c={d e} f`` as pairs of a name and a value, which is None for a name alone."""
    pairs: list[tuple[str, str | None]] = []
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        start, depth, quote = at, 0, ""
        while at < len(text) and (quote or depth or not text[at].isspace()):
            char = text[at]
            if quote:
                quote = "" if char == quote else quote
            elif char in "'\"":
                quote = char
            elif char in "{[(":
                depth += 1
            elif char in "}])":
                depth -= 1
            at += 1
        key, equals, value = text[start:at].partition("=")
        if len(value) > 1 and ((value[0] == value[-1] and value[0] in "'\"") or value[0] + value[-1] == "{}"):
            value = value[1:-1]
        pairs.append((key, value if equals else None))
    return pairs


def options_text(pass_: Pass) -> str:
    """The options of a pass that differ from their defaults, as `make_pass` reads them."""
    words = []
    for field in dataclasses.fields(pass_):
        value = getattr(pass_, field.name)
        if value == field.default:
            continue
        if isinstance(value, bool):
            text = "true" if value else "false"
        elif isinstance(value, tuple):
            text = ",".join(map(str, value))
        else:
            text = f'"{value}"' if any(c.isspace() for c in str(value)) else str(value)
        words.append(f"{field.name.replace('_', '-')}={text}")
    return " ".join(words)


def suggestion(name: str) -> str:
    """``; did you mean 'cse'?`` if a pass has a name like `name`, else nothing."""
    from .upstream_passes import UPSTREAM_PASSES

    close = difflib.get_close_matches(name, [*passes.names(), *UPSTREAM_PASSES], n=3)
    return f"; did you mean {' or '.join(repr(one) for one in close)}?" if close else ""


def _summary(cls: type[Pass]) -> str:
    """The first line of the pass's docstring."""
    return (cls.__doc__ or "").strip().partition("\n")[0].rstrip(":")


def _usage(field: dataclasses.Field, kind: Any) -> str:
    """``name=value`` with the default if there is one to show, else with an example."""
    default = field.default
    shown = str(default).lower() if isinstance(default, bool | int | float) else default if default else ""
    return f"{field.name.replace('_', '-')}={shown if isinstance(shown, str) and shown else _example(kind)}"


def table() -> str:
    """All passes with their summaries and options: ours, then upstream's names."""
    from .upstream_passes import UPSTREAM_PASSES

    lines = ["Passes of attn-opt:"]
    for name in passes.names():
        cls = passes.lookup(name)
        lines.append(f"  --{name:32} {_summary(cls)}")
        hints = typing.get_type_hints(cls)
        for field in dataclasses.fields(cls):
            lines.append(f"      {_usage(field, hints[field.name]):30} {field.metadata.get('help', '')}")
    lines.append("Passes and pipelines of upstream MLIR (https://mlir.llvm.org/docs/Passes):")
    lines += [f"  --{name}" for name in UPSTREAM_PASSES]
    return "\n".join(lines)

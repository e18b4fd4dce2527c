"""The environment variables of the project: one typed table, read nowhere else."""

import dataclasses
import os
from collections.abc import Callable
from typing import Any

PREFIX = "ATTN_OPT_"


@dataclasses.dataclass(frozen=True)
class Variable:
    """``ATTN_OPT_<name>``: its default, how its text is read, what it does."""

    name: str
    default: Any
    read: Callable[[str], Any]
    help: str


def _flag(text: str) -> bool:
    return text.lower() not in ("", "0", "false", "no", "off")


VARIABLES = (
    Variable("THREADS", None, int, "threads that a CPU kernel runs on; by default all that this process may use"),
    Variable("TRACEBACK", False, _flag, "show the Python traceback of an internal error"),
)
_BY_NAME = {variable.name: variable for variable in VARIABLES}


class VariableError(ValueError):
    """A variable holds what cannot be read."""


def get(name: str) -> Any:
    """The value of ``ATTN_OPT_<name>``, or its default where it is unset or empty."""
    variable = _BY_NAME[name]
    text = os.environ.get(PREFIX + name, "")
    if not text:
        return variable.default
    try:
        return variable.read(text)
    except ValueError:
        raise VariableError(f"{PREFIX}{name}={text}: expects {variable.read.__name__}") from None

"""The environment variables of the project: one typed table, read nowhere else."""

import dataclasses
import os
from collections.abc import Callable
from typing import Any

PREFIX = "ATTN_OPT_"
FLAGS = {"0": False, "false": False, "no": False, "off": False, "1": True, "true": True, "yes": True, "on": True}
MOST_THREADS = max(1024, os.cpu_count() or 1)  # the OpenMP runtime ends the process where it gets no more of them


@dataclasses.dataclass(frozen=True)
class Variable:
    """``ATTN_OPT_<name>``: its default, how its text is read, what it does."""

    name: str
    default: Any
    read: Callable[[str], Any]
    help: str


def _flag(text: str) -> bool:
    if text.lower() not in FLAGS:
        raise ValueError
    return FLAGS[text.lower()]


_flag.__name__ = "0 or 1"


def _wish(text: str) -> bool:
    """Yes, unless it is a no: an error would hide the one that it is asked about."""
    return FLAGS.get(text.lower(), True)


def _positive(text: str) -> int:
    if int(text) < 1:
        raise ValueError
    return int(text)


_positive.__name__ = "a positive integer"


def _threads(text: str) -> int:
    if not 0 <= int(text) <= MOST_THREADS:
        raise ValueError
    return int(text)


_threads.__name__ = f"an integer from 1 to {MOST_THREADS}, or 0 for the default"
VARIABLES = (
    Variable("CACHE", True, _flag, "0: compile every kernel anew"),
    Variable("CACHE_DIR", "", str, "where compiled kernels are kept; by default attn-opt in the user's cache folder"),
    Variable("CACHE_LIMIT", 256, _positive, "megabytes on disk, beyond which the kernels unused longest are removed"),
    Variable("THREADS", None, _threads, "threads that a CPU kernel runs on; by default all that this process may use"),
    Variable("TRACEBACK", False, _wish, "show the Python traceback of an internal error"),
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

"""Files of cases: lines of a name, ``|``, options of attn-bench, and maybe ``|`` and what is known of the kernel."""

import pathlib
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..tools.attn_bench_options import Options


def read_cases(file: pathlib.Path, common: Sequence[str] = (), only: str = "") -> "list[tuple[str, Options, str]]":
    """The cases whose name holds `only`: name, options (with `common` ones), what is known. Raises DiagnosedError."""
    from ..tools.attn_bench_options import parse_options

    found = []
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            name, options, known, *_ = (part.strip() for part in [*line.split("|"), "", ""])
            if only in name:
                found.append((name, parse_options([*shlex.split(options), *common]), known))
    return found

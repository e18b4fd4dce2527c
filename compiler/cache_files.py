"""The folder that compiled kernels are kept in (see ``cache``): whole files, and no more than the limit."""

import contextlib
import os
import pathlib
import tempfile
import warnings
from typing import Any

from . import env
from .diagnostics import user_error


def setting(name: str) -> Any:
    """The value of ATTN_OPT_`name`; a user's error where it is none."""
    try:
        return env.get(name)
    except env.VariableError as error:
        raise user_error(str(error)) from None


def folder() -> pathlib.Path:
    """Where kernels are kept."""
    chosen = setting("CACHE_DIR")
    if chosen:
        return pathlib.Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (pathlib.Path(base) if os.path.isabs(base) else pathlib.Path(os.path.expanduser("~/.cache"))) / "attn-opt"


def write(name: str, data: bytes) -> None:
    """Keeps a file, whole or not at all; a folder that cannot be written to is told of where someone chose it."""
    place = folder()
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=place, prefix="new-", delete=False) as file:
            try:
                file.write(data)
                file.close()
                os.replace(file.name, place / name)
            except BaseException:
                os.unlink(file.name)
                raise
        _limit(place)
    except OSError as error:
        if setting("CACHE_DIR"):  # someone wants it there
            message = f"kernels are not cached in {place}: {error.strerror or error}"
            warnings.warn(message, stacklevel=1)  # at one place, and so once


def _limit(place: pathlib.Path) -> None:
    """Removes the files whose last use is longest ago, to three quarters of the limit, where it is exceeded."""
    files = []
    with os.scandir(place) as found:
        for entry in found:
            with contextlib.suppress(OSError):  # someone else removed it
                status = entry.stat()
                files.append((status.st_mtime_ns, status.st_size, entry.path))
    limit, total = setting("CACHE_LIMIT") << 20, sum(size for _, size, _ in files)
    if total <= limit:
        return
    for _, size, path in sorted(files):
        with contextlib.suppress(OSError):
            os.unlink(path)
        total -= size
        if total <= limit * 3 // 4:
            return

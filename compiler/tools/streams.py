"""The tools' standard streams, whatever they were started with: closed, on a full disk, in a locale without UTF-8."""

import errno
import io
import os
import sys

from ..diagnostics import file_error
from ..sources import read_text

CANNOT_WRITE = (errno.EBADF, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOSPC)


def prepare() -> None:
    """Opens the streams that are closed, lest a file gets one's number: reading or writing them fails as it did, but
    for messages, which no one sees. Characters that the output's encoding lacks are spelled out."""
    modes = (os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)
    for number, (name, mode) in enumerate(zip(("stdin", "stdout", "stderr"), modes, strict=True)):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, mode)
            if opened != number:
                os.dup2(opened, number)
            setattr(sys, name, open(number, "w" if number else "r", encoding="utf-8", closefd=False))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def read_stdin() -> tuple[str, str]:
    """The text of standard input, and its name in messages."""
    try:
        return read_text(sys.stdin.buffer, "<stdin>"), "<stdin>"
    except OSError as error:
        raise file_error("<stdin>", "read", error) from None


def discard_output() -> None:
    """Lets all that is still to be written go nowhere, at exit too."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

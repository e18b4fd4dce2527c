"""How far a search is, on a terminal."""

from __future__ import annotations

import shutil
import sys

WIDTH = 20  # of the bar


class ProgressBar:
    """A bar on a terminal's last line; nothing on a stream that is none. Gone after its block."""

    def __init__(self) -> None:
        self.shown = sys.stderr.isatty()

    def __call__(self, done: int, total: int, what: str) -> None:
        if self.shown:
            full = WIDTH * done // max(total, 1)
            bar = "█" * full + "░" * (WIDTH - full)
            width = shutil.get_terminal_size().columns - 1
            print(f"\r\033[K{f'{bar} {done}/{total} {what}'[:width]}", end="", file=sys.stderr, flush=True)

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def clear(self) -> None:
        if self.shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

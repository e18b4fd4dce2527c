"""Counts since import: what was found, compiled, left alone and why; `attn_opt.compiler.stats()` shows them."""

import collections
import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from ..dialects.mlir import ir
from ..transforms.passes import Report, listening
from .pass_manager import Hook, Stage

LEFT = ("attention is left as it is: ", "not raised to attention: ")

_lock = threading.Lock()
_counts: collections.Counter[str] = collections.Counter()
_reasons: collections.Counter[str] = collections.Counter()


def stats() -> dict[str, Any]:
    """`found`: attentions found; `compiled`: those made into kernels; `left`: what looked like one and was left alone,
    with `reasons`, each with its count; `cache_hits`: kernels that were there already when they were asked for."""
    with _lock:
        return {
            **{name: _counts[name] for name in ("found", "compiled", "left", "cache_hits")},
            "reasons": dict(_reasons),
        }


def count(name: str, number: int = 1) -> None:
    with _lock:
        _counts[name] += number


def count_left(reason: str) -> None:
    with _lock:
        _counts["left"] += 1
        _reasons[reason] += 1


class Counting(Hook):
    """Counts attentions as the pipeline finds and fuses them, and what it leaves alone."""

    def __init__(self) -> None:
        self.found = 0
        self.tally: dict[str, Any] = {"found": 0, "compiled": 0, "reasons": []}

    def after(self, stage: Stage, module: ir.Operation, failed: bool) -> None:
        if failed:
            return
        if stage.name == "raise-attention":
            from ..transforms.attention import find_attention

            self.found = len(find_attention(module))
            self.tally["found"] += self.found
            count("found", self.found)
        elif stage.name == "fuse-attention":
            self.tally["compiled"] += self.found
            count("compiled", self.found)


@contextlib.contextmanager
def counting() -> Iterator[Counting]:
    """Within the block, what passes leave alone is counted; the hook counts the rest."""
    hook = Counting()

    def listen(report: Report) -> None:
        for prefix in LEFT:
            if report.message.startswith(prefix):
                reason = report.message.removeprefix(prefix)
                hook.tally["reasons"].append(reason)
                count_left(reason)

    with listening(listen):
        yield hook


def count_cached(tally: dict[str, Any]) -> None:
    """Counts for a kernel that was there already what was counted when it was compiled."""
    count("cache_hits")
    count("found", tally["found"])
    count("compiled", tally["compiled"])
    for reason in tally["reasons"]:
        count_left(reason)

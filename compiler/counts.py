"""Counts since import: what was found, compiled, left alone and why; `attn_opt.compiler.stats()` shows them."""

import collections
import threading
from typing import Any

NOTHING: dict[str, Any] = {"found": 0, "compiled": 0, "reasons": []}  # what a compilation without attention counts
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


def count_cached(tally: dict[str, Any]) -> None:
    """Counts for a kernel that was there already what was counted when it was compiled."""
    count("cache_hits")
    count_compiled(tally)


def count_compiled(tally: dict[str, Any]) -> None:
    """Counts what a compilation did."""
    count("found", tally["found"])
    count("compiled", tally["compiled"])
    for reason in tally["reasons"]:
        count_left(reason)

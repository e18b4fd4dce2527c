"""What was found, fused, left alone and why while a module was compiled, as text.

    print(explanation(recorder.record, "f", "cpu"))

A record (`recording.Recorder`) is plain data, so that it can be kept with a compiled kernel:

    {"entries": [{"pass": "fuse-attention", "severity": "remark", "place": ["f.mlir", 3, 8], "message": …,
                  "details": {…}}],
     "seconds": [["raise-attention", 0.0021], …],
     "anchors": [[12, ["f.mlir", 3, 8]], …]}      # the number of the op in the graph that stands there
"""

import copy
from collections.abc import Sequence
from typing import Any

from ..dialects.diagnostic import NOWHERE, Place
from .counts import LEFT

Record = dict[str, Any]
WIDTH = 100
IN_VAIN = "no result is made in the memory of donated argument "  # as `return-arguments` says it


def anchored(record: Record, places: Sequence[Place]) -> Record:
    """The record with which ops of the graph its places are those of; `places`: of all ops, in their order."""
    first = {place: number for number, place in reversed(list(enumerate(places)))}
    used = dict.fromkeys(place for entry in record["entries"] for place in places_in(entry))
    found = [[first[place], list(place)] for place in used if place in first and place != NOWHERE]
    return {**record, "anchors": found}


def present(record: Record, places: Sequence[Place]) -> list[Place]:
    """Where the ops that an anchored record tells of stand in a graph that is the same but for its places."""
    return [places[number] for number, _ in record["anchors"]]


def relocated(record: Record, places: Sequence[Place]) -> Record:
    """An anchored record as it would be of a graph in which its ops stand at `places`, as `present` gives them.

    As it is where there are others: the kernel was made anew since, of a source in which ops share places or do not.
    """
    if len(places) != len(record["anchors"]):
        return record
    moved = {tuple(old): new for (_, old), new in zip(record["anchors"], places, strict=True)}
    if all(old == tuple(new) for old, new in moved.items()):
        return record  # as where the same text is compiled again
    record = copy.deepcopy(record)
    record["anchors"] = [[number, list(new)] for (number, _), new in zip(record["anchors"], places, strict=True)]
    for entry in record["entries"]:
        for owner, key in ((entry, "place"), (entry["details"], "softmax")):
            if owner.get(key):
                owner[key] = list(moved.get(tuple(owner[key]), owner[key]))
    return record


def places_in(entry: dict[str, Any]) -> list[Place]:
    """Where what an entry tells of stands; of an attention, its softmax too."""
    return [tuple(place) for place in (entry["place"], entry["details"].get("softmax")) if place]


def reason_left(message: str) -> str | None:
    """Why an attention was left alone, where a message says that it was."""
    return next((message.removeprefix(prefix) for prefix in LEFT if message.startswith(prefix)), None)


def in_vain(record: Record) -> list[str]:
    """What was said of donated arguments of which no use was made."""
    return [one["message"] for one in record["entries"] if one["message"].startswith(IN_VAIN)]


def fused(record: Record) -> list[dict[str, Any]]:
    """The entries on what was fused, each with those on the same attention as "also", in order of the passes.

    Loops of their own for few queries come with the attention's others, as "few"; what is said of both is said once.
    """
    nests = [{**e, "also": []} for e in record["entries"] if e["details"].get("kind") == "fused"]
    found = [one for one in nests if not one["details"].get("few_queries")]
    for one in found:
        one["few"] = [e for e in nests if e["details"].get("few_queries") and _same_attention(e["place"], one)]
    for entry in record["entries"]:
        if entry["details"].get("kind") in ("fused", "raised") or not _is_plain_remark(entry):
            continue
        owner = next((one for one in found if _same_attention(entry["place"], one)), None)
        if owner is not None and all(_said(entry) != _said(other) for other in owner["also"]):
            owner["also"].append(entry)
    return found


def _said(entry: dict[str, Any]) -> tuple[str, str, str]:
    return entry["pass"], entry["message"], entry["details"].get("kind", "")


def left(record: Record) -> list[dict[str, Any]]:
    """The entries on what looked like an attention and was left alone."""
    return [entry for entry in record["entries"] if reason_left(entry["message"]) is not None]


def others(record: Record) -> list[dict[str, Any]]:
    """Remarks on no attention that was fused, and not on one that was left."""
    owners = [e for e in record["entries"] if e["details"].get("kind") == "fused"]
    return [
        entry
        for entry in record["entries"]
        if _is_plain_remark(entry)
        and entry["details"].get("kind") not in ("fused", "raised")
        and not any(_same_attention(entry["place"], one) for one in owners)
    ]


def warnings(record: Record) -> list[dict[str, Any]]:
    """But for those on what was left alone."""
    return [e for e in record["entries"] if e["severity"] == "warning" and reason_left(e["message"]) is None]


def slow(record: Record) -> list[dict[str, Any]]:
    """Warnings of what takes much longer than it would have to."""
    return [e for e in warnings(record) if e["details"].get("kind") == "slow"]


def _is_plain_remark(entry: dict[str, Any]) -> bool:
    return entry["severity"] == "remark" and reason_left(entry["message"]) is None


def _same_attention(place: list[Any], one: dict[str, Any]) -> bool:
    return bool(place[1]) and list(place) in (list(one["place"]), list(one["details"].get("softmax") or []))


def at(entry: dict[str, Any]) -> str:
    """Where: file:line, as short as it is clear."""
    file, line, _ = entry["place"]
    return f"{file}:{line}" if line else file or "an unknown place"


def parallel(entry: dict[str, Any]) -> set[int]:
    """Which of the loops of what was fused run in parallel, 0 the outermost. (Of one iteration none is left.)"""
    found = [e["details"] for e in entry["also"] if e["details"].get("kind") == "parallel"]
    loops = enumerate(entry["details"]["loops"])
    left = [i for i, loop in loops if not isinstance(loop["extent"], int) or loop["extent"] > loop["tile"]]
    return {i for one in found for i in left[one["around"] : one["around"] + one["loops"]]}


def extent(loop: dict[str, Any]) -> str:
    """How far a loop goes, as text."""
    return str(loop["extent"]) if isinstance(loop["extent"], int) else "all"


def loop_lines(entry: dict[str, Any]) -> list[str]:
    """The loops of what was fused, from outer to inner."""
    loops = entry["details"]["loops"]
    width = max((len(loop["axis"]) for loop in loops), default=0)
    lines = []
    for i, loop in enumerate(loops):
        line = f"{i + 1}. {loop['axis']:<{width}}  {extent(loop)} by {loop['tile']}"
        lines.append(line + ("  in parallel" if i in parallel(entry) else ""))
    return lines


def explanation(record: Record, name: str, target: str) -> str:
    """The record as text of short lines."""
    found = fused(record)
    lines = [f"{name} for {target}: {_count(found)}"]
    for one in found:
        what = "attention" if one["details"]["attention"] else "loop nest"
        raised = any(e["details"].get("kind") == "raised" and e["place"] == one["place"] for e in record["entries"])
        what += " without a softmax" if one["details"]["attention"] and not one["details"]["has_softmax"] else ""
        lines += ["", f"{what} at {at(one)}" + (", found in its written-out form" if raised else "")]
        lines.append("  loops from outer to inner" if one["details"]["loops"] else "  no loops")
        lines += [f"    {line}" for line in loop_lines(one)]
        for few in dict.fromkeys(tuple(loop_lines(other)) for other in one["few"]):
            lines += ["  for few queries", *(f"    {line}" for line in few)]
        lines += _wrapped("  fused with ", one["details"]["fused"] or ["nothing"])
        lines += [f"  {e['pass']}: {e['message']}" for e in one["also"] if e["details"].get("kind") != "parallel"]
    for title, entries in (("left", left(record)), ("also", others(record)), ("warnings", warnings(record))):
        if entries:
            lines += ["", title]
            lines += [f"  {at(e)}: {reason_left(e['message']) or e['message']}" for e in entries]
    if record.get("tuning"):
        lines += ["", *record["tuning"]]
    total = sum(seconds for _, seconds in record["seconds"])
    if total:
        slowest = sorted(record["seconds"], key=lambda one: -one[1])[:3]
        parts = ", ".join(f"{name} {seconds * 1e3:.0f}" for name, seconds in slowest)
        lines += ["", f"compiled in {total * 1e3:.0f} ms (most of it: {parts})"]
    return "\n".join(lines)


def _count(found: list[dict[str, Any]]) -> str:
    number = sum(one["details"]["attention"] for one in found)
    if not found:
        return "nothing was fused"
    if not number:
        return f"{len(found)} loop nest{'s' * (len(found) > 1)} tiled"
    return f"{number} attention{'s' * (number > 1)} found and fused"


def _wrapped(head: str, words: Sequence[str]) -> list[str]:
    lines, line = [], head
    for i, word in enumerate(words):
        piece = word + (", " if i + 1 < len(words) else "")
        if len(line) + len(piece) > WIDTH and line.strip():
            lines.append(line.rstrip())
            line = " " * len(head)
        line += piece
    return [*lines, line]

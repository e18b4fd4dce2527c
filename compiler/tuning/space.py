"""Which schedules may be tried for a kernel: from what its compilation by rule recorded.

A schedule is what differs from the rule: some options of `compile` and their values. The search goes step by step, each
on top of the best of those before (`steps`): sizes of tiles, then how they are staged and which maximum is kept, then
into how many parts keys are split. Which of them can be compiled, and fit, the compiler knows best: it is asked.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

from ..explain import Record, fused
from ..options import Options

Schedule = dict[str, Any]  # options of `compile`, as JSON has them

# Queries and keys of a tile. For the CPU they are around the rule's, which knows the caches.
HOPPER = tuple(itertools.product((128, 192, 256), (64, 80, 96, 112, 128, 160)))
STAGES = (2, 3)
ANY_GPU = tuple(itertools.product((64, 128), (16, 32, 64, 128)))
AROUND_QUERIES, AROUND_KEYS = (0.5, 1, 2), (0.25, 0.5, 1, 2, 4)
FEWEST_QUERIES, FEWEST_KEYS = 8, 16
PARTS = (1, 2, 4, 8, 16, 32, 64)
MANY_TASKS = 1024  # of a loop nest: nothing is won by splitting keys


def steps(record: Record, target: str, options: Options) -> Iterator[list[Schedule]]:
    """The schedules of each step. What `options` fix is not tried."""
    tilings = [entry["details"]["tiling"] for entry in fused(record) if "tiling" in entry["details"]]
    engine = any(entry["pass"] == "specialize-warps" for entry in record["entries"])  # else it does not suit the loads
    # One option holds the sizes of all: they are tried where all attentions have the same loops.
    if tilings and not options.tile_sizes and all(one["axes"] == tilings[0]["axes"] for one in tilings):
        yield _tiles(tilings[0], _extents(record), target, engine)
    if engine:
        stages = [{"stages": count} for count in STAGES if count != options.stages]
        yield [{"keep_maximum": not options.keep_maximum}, *stages]
    if not options.split_keys and _tasks(record) < MANY_TASKS and (target != "cpu" or options.workers > 1):
        yield [{"split_keys": parts} for parts in PARTS]


def _tiles(tiling: dict[str, Any], extents: dict[str, int | None], target: str, engine: bool) -> list[Schedule]:
    """Other tile sizes than those of `tiling`, in its order of loops."""
    sizes, axes = tiling["sizes"], tiling["axes"]
    queries = [d for d, axis in enumerate(axes) if axis == "queries" and sizes[d]]
    keys = [d for d, axis in enumerate(axes) if axis == "keys" and sizes[d]]
    if not keys:
        return []
    rule = (sizes[queries[-1]] if queries else 1, sizes[keys[-1]])
    if target == "cpu":
        wanted: list[tuple[tuple[int, int], Schedule]] = [
            ((max(FEWEST_QUERIES, int(rule[0] * q)), max(FEWEST_KEYS, int(rule[1] * k))), {})
            for q, k in itertools.product(AROUND_QUERIES, AROUND_KEYS)
        ]
    else:
        wanted = [(pair, {"copy_engine": False} if engine else {}) for pair in ANY_GPU]
        if engine:
            wanted = [(pair, {}) for pair in HOPPER] + wanted
    found = {}
    for (m, n), others in wanted:
        m = _at_most(m, extents.get("queries"), rule[0])
        n = _at_most(n, extents.get("keys"), rule[1])
        if (m, n) == rule and not others:
            continue
        changed = list(sizes)
        for dims, size in ((queries, m), (keys, n)):
            if dims:
                changed[dims[-1]] = size
        schedule = {"tile_sizes": changed, "tile_interchange": list(tiling["order"]), **others}
        found[repr(schedule)] = schedule
    return list(found.values())


def _at_most(size: int, extent: int | None, rule: int) -> int:
    """A tile of no more than there is; where the rule takes all, that is what is taken."""
    if extent is None:
        return size
    return rule if rule == extent and size > extent else min(size, extent)


def _extents(record: Record) -> dict[str, int | None]:
    """How far the loops over queries and keys go; None where that is not known."""
    found: dict[str, int | None] = {}
    for entry in fused(record):
        for loop in entry["details"]["loops"]:
            extent = loop["extent"] if isinstance(loop["extent"], int) else None
            found[loop["axis"]] = extent if found.get(loop["axis"], extent) == extent else None
    return found


def _tasks(record: Record) -> int:
    """How many tasks the parallel loops make, of the nest with the fewest; unknown sizes count as one."""
    counts = []
    for entry in fused(record):
        loops = [one for one in entry["details"]["loops"] if one["axis"] != "keys"]
        whole = [-(-one["extent"] // one["tile"]) if isinstance(one["extent"], int) else 1 for one in loops]
        counts.append(math.prod(whole))
    return min(counts, default=MANY_TASKS)

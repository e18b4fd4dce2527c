"""The options of `compile`, and the targets."""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import env
from .diagnostics import Listener, user_error

TARGETS = ("cpu", "nvidia")


@dataclasses.dataclass(frozen=True)
class Options:
    """The options of `compile`."""

    entry: str | None = None  # the function to compile; without a name the only public one
    fuse: bool = True  # find and fuse attention, unless a transform script says what to do
    tile_sizes: Sequence[int] = ()  # one per loop of the root, 0 = not tiled; by default chosen from the caches
    tile_interchange: Sequence[int] = ()  # the root's loops from outer to inner
    threads: int | None = None  # by default ATTN_OPT_THREADS, or all that this process may use
    arch: str | None = None  # for the target nvidia: sm_80, sm_90a, …; by default this machine's GPU
    split_keys: int = 0  # into how many parts; 1 = not; 0 = where too few blocks would leave threads idle
    any_strides: bool = False  # for nvidia: rows need not be dense and aligned; made by itself where a call needs it
    copy_engine: bool = True  # for nvidia, sm_90a: warps with roles and Hopper's copy engine (docs/nvidia.md)
    listener: Listener | None = None  # is told errors, warnings and remarks as they come

    def check(self) -> None:
        """A user's error where a value has the wrong type."""
        for name in ("tile_sizes", "tile_interchange"):
            values = getattr(self, name)
            is_sequence = isinstance(values, Sequence | np.ndarray) and not isinstance(values, str)
            if not is_sequence or not all(isinstance(value, int | np.integer) for value in values):
                raise user_error(f"{name} must be a sequence of integers, but is {values!r}")
        if not isinstance(self.split_keys, int) or self.split_keys < 0:
            raise user_error(f"split_keys must be 0 (by rule), 1 (never) or how many parts, but is {self.split_keys!r}")
        if self.threads is not None and (not isinstance(self.threads, int) or self.threads < 1):
            raise user_error(f"threads must be a positive integer, but is {self.threads!r}")

    @property
    def workers(self) -> int:
        """How many threads a kernel for the CPU will run on."""
        return self.threads or default_threads() or len(os.sched_getaffinity(0))


def make_options(given: dict[str, Any]) -> Options:
    """The options of those names; a user's error where there is none of a name."""
    known = [field.name for field in dataclasses.fields(Options)]
    unknown = sorted(given.keys() - set(known))
    if unknown:
        raise user_error(f"unknown option '{unknown[0]}'; the options are: {', '.join(known)}")
    return Options(**given)


def default_threads() -> int | None:
    """ATTN_OPT_THREADS, where it is set."""
    try:
        return env.get("THREADS")
    except env.VariableError as error:
        raise user_error(str(error)) from None


def check_target(target: str) -> None:
    """A user's error if there is no such target."""
    if target not in TARGETS:
        raise user_error(f"unknown target '{target}'; the targets are: {', '.join(TARGETS)}")


def settled(target: str, options: Options) -> Options:
    """The options with all that depends on this machine chosen; a user's error where the target or one is wrong."""
    check_target(target)
    options.check()
    if target != "nvidia":
        return options
    from .runtime.arch import choose_arch

    return dataclasses.replace(options, arch=choose_arch(options.arch))

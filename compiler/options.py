"""The options of `compile`, and the targets."""

import dataclasses
import os
import typing
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..transforms.limits import MOST_MULTIPROCESSORS, MOST_PARTS
from . import env
from .diagnostics import Listener, user_error

TARGETS = ("cpu", "nvidia")


@dataclasses.dataclass(frozen=True)
class Options:
    """The options of `compile`.

    entry: the function to compile; without a name the only public one.
    fuse: find and fuse attention, unless a transform script says what to do.
    tile_sizes: one per loop of the root, 0 = not tiled; by default chosen from the caches, or for the GPU.
    tile_interchange: the root's loops from outer to inner.
    split_keys: into how many parts, at most 1024; 1 = not; 0 = where too few blocks would leave threads idle.
    added_masks: numbers from memory that are added to the scores of eight heads or more may be a mask: where there are
      many, they are looked at first, for tiles that need not be computed; False: they are known to be none.
    autotune: measure schedules here and take the fastest; kept on disk for the next time (docs/benchmarks.md).
    listener: is told errors, warnings and remarks as they come.
    donate: which arguments may be written to, by their numbers, or by the names of a model's inputs: a result that is
      one of them but for a part, as a cache with another token, is made in its memory, and nothing is copied.

    For the CPU:
    threads: by default ATTN_OPT_THREADS, or all that this process may use.

    For the target nvidia (docs/nvidia.md):
    arch: sm_80, sm_90a, …; by default this machine's GPU, and where there is none sm_90a.
    multiprocessors: how many the GPU has, which work is shared out to; by default as this machine's, and where there is
      none 132, as an H100 or H200. With others kernels are right, but slower.
    copy_engine: on sm_90a, warps with roles and Hopper's copy engine.
    keep_maximum: with these, keep the maximum of the first tile of keys, and compute again what that does not do for
      (optimistic); False: the running maximum of online softmax.
    stages: with these, how many tiles of keys, and of values, shared memory holds; 0 = by rule, two or three.
    any_strides: rows need not be dense and aligned; such a kernel is made by itself where a call needs it.
    must_fuse: an error where no kernel can be made of an attention; by default that one is left, its scores in memory,
      with a warning that says why.
    """

    entry: str | None = None
    fuse: bool = True
    tile_sizes: Sequence[int] = ()
    tile_interchange: Sequence[int] = ()
    threads: int | None = None
    donate: Sequence[int | str] = ()
    arch: str | None = None
    multiprocessors: int | None = None
    split_keys: int = 0
    added_masks: bool = True
    any_strides: bool = False
    copy_engine: bool = True
    keep_maximum: bool = True
    stages: int = 0
    must_fuse: bool = False
    autotune: bool = False
    listener: Listener | None = None

    def check(self) -> None:
        """A user's error where a value has the wrong type."""
        for name in ("tile_sizes", "tile_interchange"):
            values = getattr(self, name)
            is_sequence = isinstance(values, Sequence | np.ndarray) and not isinstance(values, str)
            if not is_sequence or not all(isinstance(value, int | np.integer) for value in values):
                raise user_error(f"{name} must be a sequence of integers, but is {values!r}")
        is_list = isinstance(self.donate, Sequence | np.ndarray) and not isinstance(self.donate, str)
        if not is_list or not all(isinstance(one, int | np.integer | str) for one in self.donate):
            raise user_error(f"donate must be a sequence of numbers or names of arguments, but is {self.donate!r}")
        if not _is_count(self.split_keys) or self.split_keys > MOST_PARTS:
            kinds = f"0 (by rule), 1 (never) or how many parts, at most {MOST_PARTS}"
            raise user_error(f"split_keys must be {kinds}, but is {self.split_keys!r}")
        if not _is_count(self.stages):
            raise user_error(f"stages must be 0 (by rule) or how many, but is {self.stages!r}")
        for name in ("fuse", "any_strides", "copy_engine", "keep_maximum", "added_masks", "must_fuse", "autotune"):
            value = getattr(self, name)
            if not isinstance(value, int) or value not in (0, 1):
                raise user_error(f"{name} must be True or False, but is {value!r}")
        if self.arch is not None and not isinstance(self.arch, str):
            raise user_error(f"arch must be a GPU's architecture, such as 'sm_90a', but is {self.arch!r}")
        count = self.multiprocessors
        if count is not None and not (_is_count(count) and 0 < count <= MOST_MULTIPROCESSORS):
            most = f"at most {MOST_MULTIPROCESSORS}"
            raise user_error(f"multiprocessors must be a positive integer, {most}, but is {count!r}")
        threads = self.threads
        if threads is not None and not (_is_count(threads) and 1 <= threads <= env.MOST_THREADS):
            raise user_error(f"threads must be a positive integer, at most {env.MOST_THREADS}, but is {threads!r}")
        if self.listener is not None and not callable(self.listener):
            raise user_error(f"listener must be a function of a diagnostic, but is {self.listener!r}")

    def without_donations(self) -> "Options":
        """The same for a kernel that writes to no argument, as those of derivatives."""
        return dataclasses.replace(self, donate=())

    def donated(self, names: Sequence[str] = (), count: int | None = None) -> tuple[int, ...]:
        """The numbers of the donated arguments, of so many that have these names. A user's error where there is none of
        such a name or number."""
        found = []
        for one in self.donate:
            if isinstance(one, str) and one not in names:
                known = f"; the inputs are: {', '.join(names)}" if names else ": a number says which"
                raise user_error(f"donate: there is no argument '{one}'{known}")
            number = names.index(one) if isinstance(one, str) else int(one)
            if number < 0 or (count is not None and number >= count):
                raise user_error(f"donate: there is no argument {number}" + (f" of {count}" if count else ""))
            found.append(number)
        return tuple(sorted(set(found)))

    @property
    def workers(self) -> int:
        """How many threads a kernel for the CPU will run on."""
        return self.threads or default_threads() or len(os.sched_getaffinity(0))


def _is_count(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= 0)


def options_of_text(text: str) -> dict[str, Any]:
    """Options of a command line, such as "keep-maximum=0 tile-sizes=1,128,0,64"; a user's error where one is wrong."""
    from .pass_options import option_values

    kinds = {name: kind for name, kind in typing.get_type_hints(Options).items() if name not in ("listener", "threads")}
    return option_values(
        "compile", text, kinds | dict.fromkeys(("tile_sizes", "tile_interchange", "donate"), tuple[int, ...])
    )


def make_options(given: dict[str, Any]) -> Options:
    """The options of those names; a user's error where there is none of a name."""
    known = [field.name for field in dataclasses.fields(Options)]
    unknown = sorted(given.keys() - set(known))
    if unknown:
        raise user_error(f"unknown option '{unknown[0]}'; the options are: {', '.join(known)}")
    plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in given.items()}
    return Options(**plain)  # numpy's scalars are as good as Python's


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
    # As tuples: arrays of numpy are neither true nor false. Its integers have another repr, which keys are made of.
    options = dataclasses.replace(
        options,
        tile_sizes=tuple(map(int, options.tile_sizes)),
        tile_interchange=tuple(map(int, options.tile_interchange)),
        donate=options.donated(),
        threads=options.threads if options.threads is None else int(options.threads),
        split_keys=int(options.split_keys),
        stages=int(options.stages),
    )
    if target != "nvidia":
        return options
    from .runtime.arch import choose_arch, choose_multiprocessors

    count = int(choose_multiprocessors(options.multiprocessors))
    return dataclasses.replace(options, arch=choose_arch(options.arch), multiprocessors=count)

"""What a pass is, and the list of ours.

A pass is a frozen dataclass in a file of its own; the file's stem is the pass's name with underscores, its fields are
the options of the command line, its docstring shows the IR before and after::

    @dataclass(frozen=True)
    class FuseAttention(Pass):
        '''Tiles and fuses attention …'''

        tile_sizes: tuple[int, ...] = option("one size per loop of the root; 0 = not tiled")

        def run(self, op: ir.Operation) -> None: ...

To add a pass, write its file and add its path to ``PASSES``. Files are imported on first use.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from typing import Any

from ..dialects.mlir import ir

PASSES = (
    "transform-interpreter",
    "inline-calls",
    "raise-attention",
    "cpu/version-queries",
    "nvidia/version-functions",
    "fuse-attention",
    "check-sizes",
    "check-elements",
    "check-calls",
    "name-functions",
    "drop-asserts",
    "convert-linalg-softmax",
    "online/fold-diag",
    "fresh-inits",
    "parallel-loops",
    "online/defer-division",
    "online/exp-to-exp2",
    "online/split-keys",
    "online/split-masked-tiles",
    "online/mark-few-rows",
    "decompose-linalg-ext",
    "cpu/peel-tails",
    "fuse-consumers",
    "widen-sums",
    "fold-copies",
    "expand-before-slices",
    "drop-units",
    "drop-results",
    "gather-windows",
    "fuse-elements",
    "cpu/fuse-rows",
    "own-inits",
    "cpu/slice-fills",
    "cpu/drop-fills",
    "cpu/widen-tiles",
    "cpu/pad-tiles",
    "cpu/lanes-innermost",
    "cpu/sink-scales",
    "cpu/unscale-maxima",
    "cpu/fuse-reductions",
    "cpu/round-results",
    "cpu/write-in-place",
    "cpu/protect-arguments",
    "cpu/return-arguments",
    "cpu/scratch",
    "cpu/copies-to-linalg",
    "cpu/view-windows",
    "cpu/forall-to-parallel",
    "cpu/parallelize-linalg",
    "cpu/collapse-loops",
    "cpu/matrix-contractions",
    "cpu/pair-contractions",
    "cpu/pair-exponentials",
    "cpu/spread-rows",
    "cpu/pack-contractions",
    "cpu/trim-masked-tiles",
    "cpu/share-scratch",
    "cpu/roll-loops",
    "cpu/stream-rows",
    "cpu/vectorize-linalg",
    "cpu/expand-pairs",
    "cpu/guard-divisions",
    "cpu/expand-float8",
    "cpu/expand-math",
    "cpu/expand-bf16",
    "cpu/outline-loops",
    "cpu/outline-parallel",
    "cpu/share-functions",
    "cpu/single-iterations",
    "cpu/dynamic-schedule",
    "cpu/lower-pair-views",
    "cpu/expand-tiles",
    "cpu/stream-tiles",
    "cpu/shift-divisions",
    "cpu/keep-rolled",
    "cpu/rotate-loops",
    "cpu/drop-arguments",
    "cpu/limit-features",
    "nvidia/round-probabilities",
    "nvidia/scans-to-linalg",
    "nvidia/scatters-to-linalg",
    "nvidia/branches-to-selects",
    "nvidia/tile-matmuls",
    "nvidia/outline-rows",
    "nvidia/outline-producers",
    "nvidia/pieces-to-elements",
    "nvidia/align-rows",
    "nvidia/outline-kernels",
    "nvidia/outline-pads",
    "nvidia/outline-elements",
    "nvidia/widen-operands",
    "nvidia/assign-layouts",
    "nvidia/stage-operands",
    "nvidia/start-scores",
    "nvidia/split-scales",
    "nvidia/mask-padding",
    "nvidia/join-loops",
    "nvidia/reverse-keys",
    "nvidia/overlap-matmuls",
    "nvidia/keep-maximum",
    "nvidia/rescale-rarely",
    "nvidia/defer-row-sums",
    "nvidia/persistent-blocks",
    "nvidia/mask-probabilities",
    "nvidia/tabulate-exponentials",
    "nvidia/divide-by-products",
    "nvidia/specialize-warps",
    "nvidia/row-sums-by-matmul",
    "nvidia/shift-low-rows",
    "nvidia/stage-loads",
    "nvidia/tiles-to-nvvm",
    "nvidia/overlap-launches",
    "nvidia/host-copies",
    "check-lowered",
)


class PassError(Exception):
    """A pass cannot go on: `message` says why and what to do, `op` (an operation or a location) says where."""

    def __init__(self, message: str, op: Any = None):
        super().__init__(message)
        self.message = message
        self.location = location_of(op)


def location_of(op: Any) -> ir.Location | None:
    """The location of an operation or OpView; a location itself; None for None."""
    if op is None or isinstance(op, ir.Location):
        return op
    return op.operation.location


@dataclasses.dataclass(frozen=True)
class Report:
    """Something to tell the user that is no error: severity is "warning" or "remark".

    `details` say the same as plain data (JSON), for explanations and pictures; most reports have none.
    """

    severity: str
    message: str
    location: ir.Location | None
    details: dict[str, Any] = dataclasses.field(default_factory=dict)


_listeners: list[Callable[[Report], None]] = []


def warn(op: Any, message: str) -> None:
    """Tells whoever listens of a slow path or a surprise, at `op`'s location."""
    _tell(Report("warning", message, location_of(op)))


def warn_slow(op: Any, message: str) -> None:
    """Warns of what takes much longer than it would have to; users of the Python interface are told, too."""
    _tell(Report("warning", message, location_of(op), {"kind": "slow"}))


def remark(op: Any, message: str, **details: Any) -> None:
    """Tells whoever listens what was done or left alone, and why, at `op`'s location; `details`: see Report."""
    _tell(Report("remark", message, location_of(op), details))


def _tell(report: Report) -> None:
    for listener in _listeners:
        listener(report)


class listening:
    """Within the block, `listener` is called with every Report::

    with listening(reports.append):
        pass_.run(module)
    """

    def __init__(self, listener: Callable[[Report], None]):
        self.listener = listener

    def __enter__(self) -> listening:
        _listeners.append(self.listener)
        return self

    def __exit__(self, *_: object) -> None:
        _listeners.remove(self.listener)


def option(help: str, default: Any = ()) -> Any:
    """A dataclass field that is also an option of the command line, with the text that --help shows."""
    return dataclasses.field(default=default, metadata={"help": help})


@dataclasses.dataclass(frozen=True)
class Pass:
    """Base of all passes; see the module. `run` rewrites `op` (a module or a function) in place."""

    def run(self, op: ir.Operation) -> None:
        raise TypeError(f"{type(self).__name__} defines no run()")


def lookup(name: str) -> type[Pass]:
    """The pass class called `name`, such as "fuse-attention"; KeyError if we have none of that name."""
    for path in PASSES:
        if path.rpartition("/")[2] == name:
            module = importlib.import_module("." + path.replace("/", ".").replace("-", "_"), __package__)
            return next(
                member
                for member in vars(module).values()
                if isinstance(member, type) and issubclass(member, Pass) and member.__module__ == module.__name__
            )
    raise KeyError(name)


def names() -> list[str]:
    """The names of all our passes, in the order of the pipelines (of the CPU's, where two differ)."""
    return [path.rpartition("/")[2] for path in PASSES]

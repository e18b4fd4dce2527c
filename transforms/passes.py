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
    "sink-transposes",
    "raise-attention",
    "share-attentions",
    "cpu/version-queries",
    "nvidia/version-functions",
    "infinite-masks",
    "join-pieces",
    "join-products",
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
    "online/fuse-siblings",
    "cpu/tensors/peel-tails",
    "fuse-consumers",
    "recompute-elements",
    "widen-sums",
    "fold-copies",
    "expand-before-slices",
    "drop-units",
    "drop-results",
    "gather-windows",
    "fuse-elements",
    "share-elements",
    "cpu/tensors/fuse-rows",
    "own-inits",
    "cpu/tensors/slice-fills",
    "cpu/tensors/drop-fills",
    "cpu/tensors/widen-tiles",
    "cpu/tensors/pad-tiles",
    "cpu/tensors/lanes-innermost",
    "cpu/tensors/sink-scales",
    "cpu/tensors/unscale-maxima",
    "cpu/tensors/fuse-reductions",
    "cpu/tensors/round-results",
    "cpu/tensors/write-in-place",
    "cpu/tensors/protect-arguments",
    "cpu/buffers/return-arguments",
    "cpu/buffers/scratch",
    "cpu/buffers/copies-to-linalg",
    "cpu/buffers/view-windows",
    "cpu/buffers/forall-to-parallel",
    "cpu/buffers/parallelize-linalg",
    "cpu/buffers/collapse-loops",
    "cpu/vectors/matrix-contractions",
    "cpu/vectors/pair-contractions",
    "cpu/vectors/pair-exponentials",
    "cpu/vectors/spread-rows",
    "cpu/vectors/pack-contractions",
    "cpu/vectors/trim-masked-tiles",
    "cpu/vectors/share-scratch",
    "cpu/vectors/roll-loops",
    "cpu/vectors/stream-rows",
    "cpu/vectors/vectorize-linalg",
    "cpu/code/expand-pairs",
    "cpu/code/guard-divisions",
    "cpu/code/expand-float8",
    "cpu/code/expand-math",
    "cpu/code/expand-bf16",
    "cpu/code/outline-loops",
    "cpu/code/outline-parallel",
    "cpu/code/share-functions",
    "cpu/code/single-iterations",
    "cpu/code/dynamic-schedule",
    "cpu/code/lower-pair-views",
    "cpu/vectors/expand-tiles",
    "cpu/vectors/stream-tiles",
    "cpu/code/shift-divisions",
    "cpu/code/keep-rolled",
    "cpu/code/rotate-loops",
    "cpu/code/drop-arguments",
    "cpu/code/limit-features",
    "nvidia/kernels/round-probabilities",
    "nvidia/kernels/scans-to-linalg",
    "nvidia/kernels/donated-writes",
    "nvidia/kernels/scatters-to-linalg",
    "nvidia/kernels/branches-to-selects",
    "nvidia/kernels/round-shared",
    "nvidia/kernels/tile-matmuls",
    "nvidia/kernels/sums-apart",
    "nvidia/kernels/sink-sums",
    "nvidia/kernels/sum-rows-first",
    "nvidia/kernels/outline-rows",
    "nvidia/kernels/outline-producers",
    "nvidia/kernels/pieces-to-elements",
    "nvidia/kernels/align-rows",
    "nvidia/kernels/outline-kernels",
    "nvidia/kernels/outline-pads",
    "nvidia/kernels/outline-elements",
    "nvidia/kernels/share-kernels",
    "nvidia/kernels/drop-roundings",
    "nvidia/schedule/widen-operands",
    "nvidia/schedule/assign-layouts",
    "nvidia/schedule/stage-operands",
    "nvidia/schedule/start-scores",
    "nvidia/schedule/split-scales",
    "nvidia/schedule/mask-padding",
    "nvidia/schedule/join-loops",
    "nvidia/schedule/reverse-keys",
    "nvidia/schedule/overlap-matmuls",
    "nvidia/schedule/delay-waits",
    "nvidia/schedule/keep-maximum",
    "nvidia/schedule/rescale-rarely",
    "nvidia/schedule/defer-row-sums",
    "nvidia/schedule/persistent-blocks",
    "nvidia/schedule/mask-probabilities",
    "nvidia/schedule/tabulate-exponentials",
    "nvidia/schedule/divide-by-products",
    "nvidia/schedule/specialize-warps",
    "nvidia/schedule/row-sums-by-matmul",
    "nvidia/schedule/shift-low-rows",
    "nvidia/schedule/elements-as-stored",
    "nvidia/schedule/stage-loads",
    "nvidia/code/tiles-to-nvvm",
    "nvidia/code/overlap-launches",
    "nvidia/kernels/host-copies",
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

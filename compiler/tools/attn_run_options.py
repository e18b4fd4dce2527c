"""The command line of ``attn-run``."""

import argparse
import dataclasses
from collections.abc import Sequence
from typing import Any, NoReturn

from ..diagnostics import Printer, user_error

DESCRIPTION = """\
Compiles a module of attention (a graph, with or without a transform script, or loops fused already), runs it and
checks the results against a float64 evaluation of the graph as it was given. Exit status 1 if the check fails.
"""

EPILOG = """\
inputs: normal floats (those of matrices over the fourth root of the last dimension: scores of about unit variance),
integers from 0 to 9, i1 true with probability 3/4; the same for the same --seed.
Dynamic dimensions that the graph makes equal get one size; by default 67, 45, 83, 29, 51, … in order of the arguments.

tolerance: the largest error over the largest magnitude of a result: 1e-5 for f32, 1e-12 for f64, 5e-3 for f16, 3e-2 for
bf16, 2e-1 for f8E4M3FN, 4e-1 for f8E5M2, or more where a plain evaluation in these types does not keep it either
(softmax of large logits, say).

arrays: .npy files in the order of the arguments and results. numpy has no bf16 and no floats of 8 bits: such arrays are
stored as uint16 and uint8, the bits of the elements (ml_dtypes: array.view("uint16")).

examples:
  attn-run examples/attention.mlir
  attn-run examples/attention.mlir --print-ir fused --bench
  attn-run examples/attention.mlir --fuse none --inputs q.npy k.npy v.npy --outputs o.npy
  attn-run examples/causal_attention.mlir --dim 0.0=1024 --dim 1.0=2048 --tile-sizes 4,0,8 --tile-interchange 2,1,0
"""


@dataclasses.dataclass(frozen=True)
class Options:
    input: str
    entry: str | None
    target: str
    check: bool
    bench: bool
    fuse: bool
    tile_sizes: tuple[int, ...]
    tile_interchange: tuple[int, ...]
    seed: int
    inputs: list[str]
    outputs: list[str]
    sizes: dict[tuple[int, int] | None, int]
    print_ir: list[str]
    threads: int | None
    tolerance: float | None
    report: str

    def compile_options(self, printer: Printer) -> Any:
        from ..options import Options as CompileOptions

        return CompileOptions(
            self.entry, self.fuse, self.tile_sizes, self.tile_interchange, self.threads, listener=printer
        )


class _Parser(argparse.ArgumentParser):
    """Errors are users' errors like all others: exit status 1."""

    def error(self, message: str) -> NoReturn:
        raise user_error(message, "attn-run --help explains the options")


def _integers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.replace(" ", "").strip("[]").split(",") if part)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expects integers separated by commas, but found '{text}'") from None


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"expects a positive integer, but found '{text}'")
    return int(text)


def _tolerance(text: str) -> float:
    try:
        if (value := float(text)) >= 0:  # not NaN
            return value
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"expects a number, 0 or more, but found '{text}'")


def _size(text: str) -> tuple[tuple[int, int] | None, int]:
    place, _, size = text.rpartition("=")
    parts = place.split(".") if place else []
    is_size = size.isdecimal() and 0 < int(size) < 1 << 63
    if not is_size or len(parts) not in (0, 2) or not all(part.isdecimal() for part in parts):
        raise argparse.ArgumentTypeError(
            f"expects ARGUMENT.DIMENSION=SIZE or SIZE, such as 0.1=1024, but found '{text}'"
        )
    return ((int(parts[0]), int(parts[1])) if parts else None), int(size)


def parse_options(arguments: Sequence[str]) -> Options:
    """The options of a command line. Raises DiagnosedError."""
    parser = _Parser(
        "attn-run", description=DESCRIPTION, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("input", metavar="INPUT.mlir", help="a file, or - for standard input")
    add("--entry", metavar="F", help="the function to run (default: the only public one)")
    add("--target", default="cpu", choices=["cpu", "nvidia"], help="what to compile for (default: cpu)")
    add("--check", action=argparse.BooleanOptionalAction, default=True, help="check the results (default)")
    add("--tolerance", metavar="X", type=_tolerance, help="relative error that passes (default: by element type)")
    add("--bench", action="store_true", help="time the kernel")
    add("--fuse", default="auto", choices=["auto", "none"], help="auto: find and fuse attention (default)")
    add("--tile-sizes", metavar="N,…", type=_integers, default=(), help="one per loop of the root, 0 = not tiled")
    add("--tile-interchange", metavar="N,…", type=_integers, default=(), help="loops from outer to inner")
    add("--threads", metavar="N", type=_positive, help="default: ATTN_OPT_THREADS, or all")
    add("--seed", metavar="N", type=int, default=0, help="of the random inputs (default: 0)")
    add(
        "--dim",
        metavar="A.D=N",
        type=_size,
        action="append",
        default=[],
        help="size of dynamic dimension D of argument A; N alone: of all",
    )
    add("--inputs", metavar="A.npy", nargs="+", default=[], help="arrays to run on")
    add("--outputs", metavar="O.npy", nargs="+", default=[], help="where to write the results")
    add("--print-ir", metavar="STAGE", action="append", default=[], help="print the IR of a stage, or 'all'")
    add(
        "--report",
        metavar="F.html",
        default="",
        help="write a page on what was found, fused and left, with the IR; F.svg: its picture of the tiles",
    )
    found = parser.parse_args(arguments)
    if found.seed < 0:
        parser.error("argument --seed: expects 0 or more")
    if found.inputs and found.dim:
        parser.error("--dim chooses the sizes of made-up inputs; it does not go with --inputs")
    fields = {**vars(found), "fuse": found.fuse == "auto", "sizes": dict(found.dim)}
    return Options(**{field.name: fields[field.name] for field in dataclasses.fields(Options)})

"""The command line of ``attn-bench``: that of CK's example_fmha_fwd, and what it lacks."""

import argparse
import dataclasses
import itertools
import math
import pathlib
from collections.abc import Sequence
from typing import Any, NoReturn

from ..bench.gpu_peers import GPU_PEERS
from ..bench.peers import PEERS
from ..diagnostics import user_error
from ..graphs import INITS, Attention

DESCRIPTION = """\
Times attention of any shape on this machine: compiles a graph of it, checks the result against float64, and compares
with what the machine can do and with other implementations, in interleaved rounds of one run.
The options of Composable Kernel's example_fmha_fwd have their names, meanings and defaults, as -b=1, -b 1 or --b 1.
"""

EPILOG = """\
masks: a query i and a key j count from 0.
  0          every key is live
  1, 2       causal: j ≤ i (top-left), or j ≤ i + s_k − s (bottom-right: the last query sees all keys)
  t:l,r      top-left window: i − l ≤ j ≤ i + r; a negative l or r is no limit
  b:l,r      bottom-right window, the same with i + s_k − s for i
  g:y,x      generic coordinates: i − y < j < i + x

FLOPs count both matmuls, and where a mask stands live scores alone.

examples:
  attn-bench -b=1 -h=16 -s=16384 -d=128
  attn-bench -b 1 -h 8 -s 2048 -d 64 -prec fp32 --threads 1 --peak --compare torch,onnxruntime
  attn-bench -b 1 -h 32 -h_k 8 -s 1 -s_k 8192 -prec bf16 --peak                     # decode
  attn-bench -b 1 -h 4 -prec fp32 -mask 1 --sweep s=512,1024,2048 d=64,128 --plot sweep.svg
"""

PRECISIONS = {
    "fp16": "f16",
    "bf16": "bf16",
    "fp32": "f32",
    "fp64": "f64",
    "f16": "f16",
    "f32": "f32",
    "f64": "f64",
}
NARROW = ("fp8", "bf8")
PEERS_HELP = f"time others too: {', '.join(PEERS)}; for nvidia: {', '.join(GPU_PEERS)}"
# Options that --sweep may vary, and what a bare --sweep varies.
SWEPT = ("b", "h", "h_k", "s", "s_k", "d", "d_v", "prec", "mask", "bias", "iperm", "operm", "vlayout", "softcap")
DEFAULT_SWEEP = ("s=512,1024,2048,4096", "d=64,128")


@dataclasses.dataclass(frozen=True)
class Options:
    cases: list[tuple[str, Attention]]  # with what a sweep varies
    validate: bool
    init: str
    seed: int
    threads: int
    compare: list[str]
    peak: bool
    rounds: int
    seconds: float
    target: str
    json: str | None
    plot: pathlib.Path | None


class _Parser(argparse.ArgumentParser):
    """Errors are users' errors like all others: exit status 1."""

    def error(self, message: str) -> NoReturn:
        raise user_error(message, "attn-bench --help explains the options")


def _choice(*values: str) -> Any:
    def read(text: str) -> str:
        if text not in values:
            raise argparse.ArgumentTypeError(f"expects {' or '.join(values)}, but found '{text}'")
        return text

    return read


def _natural(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"expects 0 or more, but found '{text}'")
    return int(text)


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"expects a positive integer, but found '{text}'")
    return int(text)


def _positive_number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expects a positive number, but found '{text}'")
    return value


def _finite(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"expects a number, but found '{text}'")
    return value


def _peers(text: str) -> list[str]:
    names = [name for name in text.split(",") if name]
    for name in names:
        if name not in PEERS and name not in GPU_PEERS:
            raise argparse.ArgumentTypeError(f"knows no '{name}'; the peers are: {', '.join(PEERS)}")
    return names


def _window(text: str, s: int, s_k: int) -> tuple[int | None, int | None]:
    """The least and the largest j − i of live scores."""
    if text in ("0", "1", "2"):
        return (None, {"0": None, "1": 0, "2": s_k - s}[text])
    kind, _, numbers = text.partition(":")
    try:
        first, second = (int(n) for n in numbers.split(","))
    except ValueError:
        kind = ""
    if kind == "g":
        return 1 - first, second - 1
    if kind not in ("t", "b"):
        raise user_error(f"argument -mask: expects 0, 1, 2, t:l,r, b:l,r or g:y,x, but found '{text}'")
    shift = s_k - s if kind == "b" else 0
    return (None if first < 0 else shift - first), (None if second < 0 else shift + second)


def _element(text: str, target: str) -> str:
    if text in NARROW:
        raise user_error(f"argument -prec: {text} is not supported on {target}; use fp16, bf16, fp32 or fp64")
    if text not in PRECISIONS:
        raise user_error(f"argument -prec: expects fp16, bf16, fp32, fp64, fp8 or bf8, but found '{text}'")
    return PRECISIONS[text]


def _layout(flag: str) -> str:
    return "bhsd" if flag == "1" else "bshd"


def _graph(found: argparse.Namespace) -> Attention:
    s_k = found.s if found.s_k < 0 else found.s_k
    try:
        return Attention(
            batch=found.b,
            heads=found.h,
            heads_kv=found.h_k,
            queries=found.s,
            keys=s_k,
            head_size=found.d,
            value_size=found.d_v,
            element=_element(found.prec, found.target),
            scale=found.scale or None,
            window=_window(found.mask, found.s, s_k),
            bias=found.bias == "1",
            softcap=found.softcap,
            alibi=found.alibi,
            input_layout=_layout(found.iperm),
            output_layout=_layout(found.operm),
            values_transposed=found.vlayout == "c",
            lse=found.lse == "1",
        )
    except ValueError as error:
        raise user_error(str(error)) from None


def _parser() -> _Parser:
    parser = _Parser(
        "attn-bench",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
        allow_abbrev=False,
    )
    flag = _choice("0", "1")
    case = parser.add_argument_group("the case (options of example_fmha_fwd)")

    def add(name: str, default: Any, kind: Any, text: str) -> None:
        case.add_argument(f"-{name}", f"--{name}", dest=name, default=default, type=kind, metavar="X", help=text)

    add("v", "1", flag, "validate the result against float64 (default: 1)")
    add("mode", "0", flag, "0: batch, 1: group, lengths differ (default: 0)")
    add("b", 2, _positive, "batch size (default: 2)")
    add("h", 8, _positive, "heads of queries (default: 8)")
    add("h_k", 0, _natural, "heads of keys and values; 0: as many as h (default: 0); fewer: GQA or MQA")
    add("s", 3328, _positive, "length of queries (default: 3328)")
    add("s_k", -1, int, "length of keys; negative: as s (default: -1)")
    add("d", 128, _positive, "head size of queries and keys (default: 128)")
    add("d_v", 0, _natural, "head size of values; 0: as d (default: 0)")
    add("scale", 0.0, _finite, "factor of the scores; 0: 1/sqrt(d) (default: 0)")
    add("iperm", "1", flag, "layout of the inputs, 1: b h s d, 0: b s h d (default: 1)")
    add("operm", "1", flag, "layout of the output (default: 1)")
    add("bias", "0", flag, "1: add a bias of b h s s_k (default: 0)")
    add("prec", "fp16", str, "fp16, bf16, fp32 or fp64 (default: fp16)")
    add("mask", "0", str, "see below (default: 0)")
    add("vlayout", "r", _choice("r", "c"), "values by rows, s d, or columns, d s (default: r)")
    add("lse", "0", flag, "1: store the log-sum-exp of each row of scores (default: 0)")
    add("init", "1", _choice("0", "1", "2"), "inputs, 0: random integers, 1: random floats, 2: cosines (default: 1)")
    more = parser.add_argument_group("more")
    option = more.add_argument
    option("-?", "--help", action="help", help="show this help")
    option("--softcap", metavar="C", type=_positive_number, default=0.0, help="scores become C*tanh(score/C)")
    option("--alibi", action="store_true", help="add slopes by the distance of query and key")
    option("--target", default="cpu", choices=["cpu", "nvidia"], help="what to compile for (default: cpu)")
    option("--threads", metavar="N", type=_positive, help="default: ATTN_OPT_THREADS, or all that this process may use")
    option("--compare", metavar="PEER,…", type=_peers, default=[], help=PEERS_HELP)
    option("--peak", action="store_true", help="measure multiply-adds and memory, and print the fraction reached")
    option("--sweep", metavar="X=…", nargs="*", help=f"a case for each combination; default: {' '.join(DEFAULT_SWEEP)}")
    option("--rounds", metavar="N", type=_positive, default=5, help="interleaved rounds (default: 5)")
    option("--seconds", metavar="T", type=_positive_number, default=0.3, help="of each in each round (default: 0.3)")
    option("--seed", metavar="N", type=_natural, default=0, help="of the random inputs (default: 0)")
    option("--json", metavar="FILE", help="write the numbers; - for standard output, in place of the table")
    option("--plot", metavar="FILE", type=pathlib.Path, help="draw roofline and peers: .png, .svg or .pdf")
    return parser


def parse_options(arguments: Sequence[str]) -> Options:
    """The options of a command line. Raises DiagnosedError."""
    parser = _parser()
    found = parser.parse_args(arguments)
    known = PEERS if found.target == "cpu" else GPU_PEERS
    for name in found.compare:
        if name not in known:
            peers = ", ".join(known)
            parser.error(f"argument --compare: knows no '{name}' for the target {found.target}; the peers are: {peers}")
    if found.mode == "1":
        parser.error("argument -mode: group mode, with a length for each entry of the batch, is not supported yet")
    if found.plot is not None and found.plot.suffix not in (".png", ".svg", ".pdf"):
        parser.error(f"argument --plot: expects a file named .png, .svg or .pdf, but found '{found.plot}'")
    for file in (found.plot, found.json if found.json != "-" else None):
        if file is not None and not pathlib.Path(file).absolute().parent.is_dir():
            parser.error(f"{file} cannot be written: there is no such folder")
    cases = _cases(parser, arguments, found)
    return Options(
        cases,
        found.v == "1",
        INITS[int(found.init)],
        found.seed,
        found.threads or 0,
        found.compare,
        found.peak or found.plot is not None,
        found.rounds,
        found.seconds,
        found.target,
        found.json,
        found.plot,
    )


def _cases(parser: _Parser, arguments: Sequence[str], found: argparse.Namespace) -> list[tuple[str, Attention]]:
    if found.sweep is None:
        return [("", _graph(found))]
    axes = []
    for text in found.sweep or DEFAULT_SWEEP:
        name, _, values = text.lstrip("-").partition("=")
        # A mask has commas of its own.
        listed = values.split(";" if name == "mask" else ",")
        if name not in SWEPT or not all(listed):
            parser.error(f"argument --sweep: expects NAME=VALUE,… with NAME of {', '.join(SWEPT)}, but found '{text}'")
        axes.append([(name, value) for value in listed])
    cases = []
    for combination in itertools.product(*axes):
        settings = [f"--{name}={value}" for name, value in combination]
        cases.append((" ".join(f"{n}={v}" for n, v in combination), _graph(parser.parse_args([*arguments, *settings]))))
    return cases

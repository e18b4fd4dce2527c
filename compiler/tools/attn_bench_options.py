"""The command line of ``attn-bench``: that of CK's example_fmha_fwd, and what it lacks."""

import argparse
import dataclasses
import itertools
import pathlib
from collections.abc import Sequence
from typing import Any, NoReturn

from ..bench.gpu_peers import GPU_PEERS
from ..bench.measure import Measuring
from ..bench.peers import PEERS
from ..diagnostics import user_error
from ..graphs import Attention
from ..options import options_of_text
from .attn_bench_case import (
    BIASES,
    INITIAL,
    RANGES,
    case_of,
    choice,
    finite,
    key_lengths,
    lengths,
    natural,
    positive,
    positive_number,
)

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
  xt:n, xb:n n keys around the query, or causal where n is not positive, as xformers has it
  g:y,x      generic coordinates: i − y < j < i + x

bias: 0 or n: none; 1 or e:2: a number for each score, of b h s s_k; e:1: of 1 h s s_k; e: of 1 1 s s_k; a or 2: ALiBi.
init: 0 or ui: random integers; 1 or uf: random numbers; 2 or tf: cosines; ni, nf: normally distributed; 3, ufq:
numbers of all of the range of fp8 or bf8.

static quantization: numbers of fp8 and bf8 (f8E4M3FN, f8E5M2) stand for others, the largest one for range_q, and so on:
scores are scaled by range_q/max·range_k/max, probabilities by max/range_p before they are rounded, the output by the
rest. fp8fp16, fp8bf16, fp8fp32: the output is of that type, and stands for itself.

FLOPs count both matmuls, under -mask live scores alone; all of --bool-mask's, so that a rate can exceed the peak.

examples:
  attn-bench -b=1 -h=16 -s=16384 -d=128
  attn-bench -b 1 -h 8 -s 2048 -d 64 -prec fp32 --threads 1 --peak --compare torch,onnxruntime
  attn-bench -b 1 -h 32 -h_k 8 -s 1 -s_k 8192 -prec bf16 --peak                     # decode
  attn-bench -mode 1 -b 3 -h 8 -s 100,900,500 -d 64 -mask 2 -prec fp32                # sequences of these lengths
  attn-bench -b 1 -h 32 -h_k 8 -s 1 -s_k 8192 --lengths 3000 -prec fp32               # a cache that is not full
  attn-bench -b 1 -h 4 -prec fp32 -mask 1 --sweep s=512,1024,2048 d=64,128 --plot sweep.svg
  attn-bench -b 4 -h 16 -s 4096 --target nvidia --options keep-maximum=0              # the online maximum
  attn-bench -b 1 -h 8 -s 2048 -prec fp32 --threads 1 --autotune
"""

PEERS_HELP = f"time others too: {', '.join(PEERS)}; for nvidia: {', '.join(GPU_PEERS)}"
# Options that --sweep may vary, and what a bare --sweep varies.
SWEPT = (
    *("mode", "b", "h", "h_k", "s", "s_k", "d", "d_v", "prec", "mask", "bias", "iperm", "operm", "vlayout", "lse"),
    *("softcap", "packed", "lengths"),
)
DEFAULT_SWEEP = ("s=512,1024,2048,4096", "d=64,128")


@dataclasses.dataclass(frozen=True)
class Options:
    cases: list[tuple[str, Attention]]  # with what a sweep varies
    threads: int
    compare: list[str]
    latency: bool
    autotune: bool
    kname: bool
    measuring: Measuring
    json: str | None
    plot: pathlib.Path | None


class _Parser(argparse.ArgumentParser):
    """Errors are users' errors like all others: exit status 1."""

    def error(self, message: str) -> NoReturn:
        raise user_error(message, "attn-bench --help explains the options")


def _live(text: str) -> tuple[int, ...]:
    return tuple(natural(part) for part in text.split(","))


def _dims(text: str) -> str:
    if not text or not set(text) <= set("bhqk"):
        raise argparse.ArgumentTypeError(f"expects some of the letters b, h, q and k, but found '{text}'")
    return text


def _peers(text: str) -> list[str]:
    names = [name for name in text.split(",") if name]
    for name in names:
        if name not in PEERS and name not in GPU_PEERS:
            raise argparse.ArgumentTypeError(f"knows no '{name}'; the peers are: {', '.join(PEERS)}")
    return names


def _parser() -> _Parser:
    parser = _Parser(
        "attn-bench",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
        allow_abbrev=False,
    )
    flag = choice("0", "1")
    case = parser.add_argument_group("the case (options of example_fmha_fwd)")

    def add(name: str, default: Any, kind: Any, text: str) -> None:
        case.add_argument(f"-{name}", f"--{name}", dest=name, default=default, type=kind, metavar="X", help=text)

    add("v", "1", flag, "validate the result against float64 (default: 1)")
    add("mode", "0", flag, "0: batch; 1: group, sequences of different lengths one after the other (default: 0)")
    add("b", 2, positive, "batch size, in group mode the number of sequences (default: 2)")
    add("h", 8, positive, "heads of queries (default: 8)")
    add("h_k", 0, natural, "heads of keys and values; 0: as many as h (default: 0); fewer: GQA or MQA")
    add("s", (3328,), lengths, "length of queries (default: 3328); in group mode their mean, or one for each: 100,64")
    add("s_k", (), key_lengths, "length of keys; negative: as s (default: -1)")
    add("d", 128, positive, "head size of queries and keys (default: 128)")
    add("d_v", 0, natural, "head size of values; 0: as d (default: 0)")
    add("scale", 0.0, finite, "factor of the scores; 0: 1/sqrt(d) (default: 0); also -scale_s")
    case.add_argument("-scale_s", "--scale_s", dest="scale", type=finite, help=argparse.SUPPRESS)
    add("iperm", "1", flag, "layout of the inputs, 1: b h s d, 0: b s h d (default: 1)")
    add("operm", "1", flag, "layout of the output (default: 1)")
    add("bias", "0", choice(*BIASES), "see below (default: 0)")
    add("prec", "fp16", str, "fp16, bf16, fp32, fp64, fp8 or bf8 (default: fp16); fp8fp16, …: with such an output")
    add("mask", "0", str, "see below (default: 0)")
    add("vlayout", "r", choice("r", "c"), "values by rows, s d, or columns, d s (default: r)")
    add("lse", "0", flag, "1: store the log-sum-exp of each row of scores (default: 0)")
    add("init", "1", choice(*INITIAL), "inputs, see below (default: 1)")
    add("seed", 0, natural, "of the random inputs and lengths (default: 0)")
    add("kname", "0", flag, "1: print what the kernel consists of (default: 0)")
    add("warmup", None, natural, "calls before each round (default: one if they are short)")
    add("repeat", None, positive, "calls in each round (default: as many as take --seconds)")
    add("timer", "cpu", choice("cpu", "gpu"), "the clock: the CPU's; gpu is of --target nvidia (default: cpu)")
    add("squant", "auto", choice("0", "1", "auto"), "static quantization; auto: with fp8 and bf8 (default: auto)")
    for name, default in RANGES.items():
        add(f"range_{name}", None, positive_number, f"the largest {name.upper()}, quantized (default: {default:g})")
    more = parser.add_argument_group("more")
    option = more.add_argument
    option("-?", "--help", action="help", help="show this help")
    option("--softcap", metavar="C", type=positive_number, default=0.0, help="scores become C*tanh(score/C)")
    option("--alibi", action="store_true", help="add slopes by the distance of query and key; as -bias=a")
    option("--packed", metavar="P", type=choice("3hd", "h3d"), help="one input, b s 3*h*d (3hd) or b s h*3*d (h3d)")
    option(
        "--lengths",
        metavar="N,…",
        type=_live,
        help="keys of each batch entry that are there, as of a cache; one: of all",
    )
    option("--bool-mask", metavar="DIMS", type=_dims, help="load a mask that has some of the dimensions b, h, q and k")
    option("--dynamic", action="store_true", help="compile for any batch and lengths")
    option("--target", default="cpu", choices=["cpu", "nvidia"], help="what to compile for (default: cpu)")
    option("--threads", metavar="N", type=positive, help="default: ATTN_OPT_THREADS, or all that this process may use")
    option("--compare", metavar="PEER,…", type=_peers, default=[], help=PEERS_HELP)
    option("--peak", action="store_true", help="measure multiply-adds and memory, and print the fraction reached")
    option("--latency", action="store_true", help="measure compiling, loading, importing and the overhead of a call")
    option("--sweep", metavar="X=…", nargs="*", help=f"a case for each combination; default: {' '.join(DEFAULT_SWEEP)}")
    option("--options", metavar="NAME=X …", default="", help="of compile: keep-maximum=0, tile-sizes=1,1,128,0,64, …")
    option("--autotune", action="store_true", help="measure schedules, print what was tried, take the fastest")
    option("--rounds", metavar="N", type=positive, default=5, help="interleaved rounds (default: 5)")
    option("--seconds", metavar="T", type=positive_number, default=0.3, help="of each in each round (default: 0.3)")
    option("--json", metavar="FILE", help="write the numbers; - for standard output, in place of the table")
    option("--plot", metavar="FILE", type=picture, help="draw roofline and peers: .png, .svg or .pdf")
    return parser


def picture(text: str) -> pathlib.Path:
    """The file that an option names for a picture."""
    if (path := pathlib.Path(text)).suffix not in (".png", ".svg", ".pdf"):
        raise argparse.ArgumentTypeError(f"expects a file named .png, .svg or .pdf, but found '{text}'")
    return path


def _parsed(parser: _Parser, arguments: Sequence[str]) -> argparse.Namespace:
    found = parser.parse_args(arguments)
    found.given = {text.lstrip("-").partition("=")[0] for text in arguments if text.startswith("-")}
    return found


def parse_options(arguments: Sequence[str]) -> Options:
    """The options of a command line. Raises DiagnosedError."""
    parser = _parser()
    found = _parsed(parser, arguments)
    known = PEERS if found.target == "cpu" else GPU_PEERS
    for name in found.compare:
        if name not in known:
            peers = ", ".join(known)
            parser.error(f"argument --compare: knows no '{name}' for the target {found.target}; the peers are: {peers}")
    if found.timer == "gpu" and found.target == "cpu":
        parser.error("argument -timer: the clock of a GPU times what runs on one, with --target nvidia; use cpu")
    for file in (found.plot, found.json if found.json != "-" else None):
        if file is not None and not pathlib.Path(file).absolute().parent.is_dir():
            parser.error(f"{file} cannot be written: there is no such folder")
    cases = _cases(parser, arguments, found)
    return Options(
        cases,
        found.threads or 0,
        found.compare,
        found.latency,
        found.autotune,
        found.kname == "1",
        Measuring(
            with_roofs=found.peak or found.plot is not None,
            validate=found.v == "1",
            rounds=found.rounds,
            seconds=found.seconds,
            warmup=found.warmup,
            repeat=found.repeat,
            init=INITIAL[found.init],
            seed=found.seed,
            target=found.target,
            options=options_of_text(found.options),
        ),
        found.json,
        found.plot,
    )


def _cases(parser: _Parser, arguments: Sequence[str], found: argparse.Namespace) -> list[tuple[str, Attention]]:
    if found.sweep is None:
        return [("", case_of(found))]
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
        cases.append((" ".join(f"{n}={v}" for n, v in combination), case_of(_parsed(parser, [*arguments, *settings]))))
    return cases

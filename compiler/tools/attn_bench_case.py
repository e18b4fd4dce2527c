"""The case that the options of ``attn-bench`` name: their values, and the graph that is measured."""

import argparse
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..diagnostics import user_error
from ..graphs import FLOAT8, Attention

PRECISIONS = {
    "fp16": "f16",
    "bf16": "bf16",
    "fp32": "f32",
    "fp64": "f64",
    "f16": "f16",
    "f32": "f32",
    "f64": "f64",
}
# Inputs of 8 bits, and what may be the output instead.
PRECISIONS |= {"fp8": "f8E4M3FN", "bf8": "f8E5M2"}
OUTPUTS = {"": "", "fp16": "f16", "bf16": "bf16", "fp32": "f32"}
NARROW = {narrow + output for narrow in ("fp8", "bf8") for output in OUTPUTS}
RANGES = {"q": 16.0, "k": 16.0, "v": 16.0, "p": 1.0, "o": 16.0}  # of static quantization, by default
# Newer versions of the executable have names in place of numbers.
INITIAL = {
    "0": "integers",
    "ui": "integers",
    "1": "uniform",
    "uf": "uniform",
    "2": "trigonometric",
    "tf": "trigonometric",
    "ni": "normal integers",
    "nf": "normal",
    "3": "quantized",
    "ufq": "quantized",
    "uf:q": "quantized",
}
BIASES = {"0": "", "n": "", "1": "bhqk", "e": "qk", "e:1": "hqk", "e:2": "bhqk", "a": "", "a:1": "", "2": ""}
ALIBI = ("a", "a:1", "2")


# Values of options.


def choice(*values: str) -> Any:
    def read(text: str) -> str:
        if text not in values:
            raise argparse.ArgumentTypeError(f"expects {' or '.join(values)}, but found '{text}'")
        return text

    return read


def natural(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"expects 0 or more, but found '{text}'")
    return int(text)


def positive(text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"expects a positive integer, but found '{text}'")
    return int(text)


def lengths(text: str) -> tuple[int, ...]:
    return tuple(positive(part) for part in text.split(","))


def key_lengths(text: str) -> tuple[int, ...]:
    """Nothing where negative."""
    if text.startswith("-") and text[1:].isdigit():
        return ()
    return lengths(text)


def positive_number(text: str) -> float:
    value = finite(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"expects a positive number, but found '{text}'")
    return value


def finite(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"expects a number, but found '{text}'")
    return value


def window(text: str) -> tuple[tuple[int | None, int | None], bool]:
    """The least and the largest j − i of live scores, and whether i counts from the bottom right."""
    if text in ("0", "1", "2"):
        return (None, None if text == "0" else 0), text == "2"
    kind, _, numbers = text.partition(":")
    try:
        if kind in ("xt", "xb"):  # as xformers has it: one size for both sides, or causal
            size = int(numbers)
            left, right = (-1, 0) if size <= 0 else (size // 2, size - 1 - size // 2)
        else:
            left, right = (int(n) for n in numbers.split(","))
    except ValueError:
        kind = ""
    if kind == "g":
        return (1 - left, right - 1), False
    if kind not in ("t", "b", "xt", "xb"):
        raise user_error(f"argument -mask: expects 0, 1, 2, t:l,r, b:l,r, xt:n, xb:n or g:y,x, but found '{text}'")
    return (None if left < 0 else -left, None if right < 0 else right), kind in ("b", "xb")


def elements(text: str) -> tuple[str, str]:
    """The type of the inputs, and that of the output, empty if it is the same."""
    if text not in PRECISIONS and text not in NARROW:
        raise user_error(f"argument -prec: expects fp16, bf16, fp32, fp64, fp8 or bf8, but found '{text}'")
    return (PRECISIONS[text[:3]], OUTPUTS[text[3:]]) if text in NARROW else (PRECISIONS[text], "")


def scales(found: argparse.Namespace, element: str, output: str) -> dict[str, Any]:
    """The factors of scores, probabilities and output.

    With static quantization the ranges of numbers are those of their types: an input, or the output, of 8 bits is
    its type's largest number where the number that it stands for is the range.
    """
    given = {name: getattr(found, f"range_{name}") for name in RANGES}
    is_quantized = found.squant == "1" or (found.squant == "auto" and element in FLOAT8)
    if is_quantized and element not in FLOAT8:
        raise user_error(f"argument -squant: static quantization is of fp8 and bf8, not of {found.prec}")
    for name, value in given.items():
        if value is not None and not is_quantized:
            raise user_error(f"argument -range_{name}: ranges are of static quantization, -squant=1 with fp8 or bf8")
    if not is_quantized:
        return {"scale": found.scale or None}
    most = FLOAT8[element]
    unit = {name: (default if (value := given[name]) is None else value) / most for name, default in RANGES.items()}
    scale = (found.scale or 1 / math.sqrt(found.d)) * unit["q"] * unit["k"]
    scale_o = unit["p"] * unit["v"] * (1.0 if output else 1 / unit["o"])
    return {"scale": scale, "scale_p": 1 / unit["p"], "scale_o": scale_o}


# The graph.


def case_of(found: argparse.Namespace) -> Attention:
    """The graph that the options name; a user's error where there is no such attention."""
    sizes = _group_mode(found) if found.mode == "1" else _batch_mode(found)
    live, bottom_right = window(found.mask)
    packed = found.packed or ""
    if packed and found.iperm == "1" and "iperm" in found.given:
        raise user_error("argument --packed: packed inputs have the layout b s h d; leave -iperm=1 out")
    if found.bias in ("1", "e", "e:1", "e:2") and found.mode == "1":
        raise user_error("argument -bias: group mode has no bias for each score; use -bias=a, or -mode=0")
    element, output = elements(found.prec)
    if INITIAL[found.init] == "quantized" and element not in FLOAT8:
        raise user_error(f"argument -init: {found.init} fills the range of fp8 or bf8, not that of {found.prec}")
    try:
        return Attention(
            **sizes,
            heads=found.h,
            heads_kv=found.h_k,
            head_size=found.d,
            value_size=found.d_v,
            element=element,
            output=output,
            **scales(found, element, output),
            window=live,
            bottom_right=bottom_right,
            bias=BIASES[found.bias],
            mask=found.bool_mask or "",
            softcap=found.softcap,
            alibi=found.alibi or found.bias in ALIBI,
            input_layout="bshd" if packed or found.iperm == "0" else "bhsd",
            output_layout="bhsd" if found.operm == "1" else "bshd",
            values_transposed=found.vlayout == "c",
            packed=packed,
            dynamic=found.dynamic,
            lse=found.lse == "1",
        )
    except ValueError as error:
        raise user_error(str(error)) from None


def _batch_mode(found: argparse.Namespace) -> dict[str, Any]:
    for name, given in (("s", found.s), ("s_k", found.s_k)):
        if len(given) > 1:
            raise user_error(f"argument -{name}: several lengths are of -mode=1; for keys of each entry use --lengths")
    s = found.s[0]
    s_k = found.s_k[0] if found.s_k else s
    chosen = found.lengths or ()
    if len(chosen) == 1:
        chosen *= found.b
    return {"batch": found.b, "queries": s, "keys": s_k, "lengths": chosen}


def _group_mode(found: argparse.Namespace) -> dict[str, Any]:
    if found.lengths:
        raise user_error("argument --lengths: in group mode keys have the lengths of -s_k")
    if found.packed:
        raise user_error("argument --packed: not in group mode")
    if found.bool_mask:
        raise user_error("argument --bool-mask: not in group mode, whose sequences mask each other")
    rng = np.random.default_rng(found.seed)
    q = _of_each("s", found.s, found.b, rng)
    k = _of_each("s_k", found.s_k, found.b, rng) if found.s_k else q
    return {"batch": 1, "queries": sum(q), "keys": sum(k), "groups": tuple(zip(q, k, strict=True))}


def _of_each(name: str, given: Sequence[int], batch: int, rng: np.random.Generator) -> tuple[int, ...]:
    """The length of each sequence: as given, or random around one number, which is their mean."""
    if len(given) not in (1, batch):
        raise user_error(
            f"argument -{name}: expects one length or {batch}, one for each sequence, but found {len(given)}"
        )
    if len(given) == batch:
        return tuple(given)
    mean = given[0]
    shares = rng.uniform(0.25, 1.75, batch)
    found = np.maximum(1, np.floor(shares / shares.sum() * mean * batch).astype(int))
    order = np.argsort(found)
    for i in range(abs(rest := mean * batch - int(found.sum()))):  # at most one for each, but for very short ones
        at = order[-1 - i % batch]
        found[at] += 1 if rest > 0 else -1
    return tuple(map(int, found))

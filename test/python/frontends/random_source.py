"""What random programs of all frameworks have in common: source that is written line by line, and its arguments.

`write` puts a program together from the parts that each framework writes in its own way. Sizes are letters, of which
b, m and n (queries and keys) may be open; t are the keys with those of a cache. Sizes that the source needs are read
from the tensors.
"""

from __future__ import annotations

import dataclasses
import linecache
import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
from attn_opt.compiler import CompileError

FLAVOURS = ("normal", "large", "masked")
LENGTHS = (7, 1, 2, 17, 33, 65, 130)
HEADS = ((1, 1), (2, 2), (3, 3), (4, 2), (6, 2), (4, 1))  # of queries, of keys
F32 = float(np.finfo(np.float32).eps)
DTYPES = {"f32": np.dtype(np.float32), "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}


@dataclasses.dataclass(frozen=True)
class Argument:
    dims: tuple[str | int, ...]  # letters of sizes, or numbers
    kind: str  # see `values`

    def values(self, sizes: Mapping[str, int], flavour: str, seed: int) -> np.ndarray:
        """Floats as float64, to be rounded to the type of the program."""
        shape = [sizes[d] if isinstance(d, str) else d for d in self.dims]
        rng = np.random.default_rng(seed)
        normal, uniform = rng.standard_normal(shape), rng.random(shape)
        match self.kind:
            case "data":
                return normal * (5 if flavour == "large" else 1)
            case "small":
                return normal / 2
            case "weight":
                return normal / math.sqrt(shape[0])
            case "positive":
                return uniform + 0.5
            case "keep":  # at least one of each row
                keep = uniform > (0.9 if flavour == "masked" else 0.4)
                keep[..., :1] = True
                return keep
            case "lengths":
                return np.ones(shape, np.int64) if flavour == "masked" else 1 + (uniform * sizes["t"]).astype(np.int64)
            case "segments":
                return np.sort((uniform * 3).astype(np.int64), -1)
            case "order":
                return uniform.argsort(-1)
            case "place":  # of a cache
                return (uniform * sizes["k"]).astype(np.int64)
            case "last":  # the place of a sequence's last key, in a cache that has room for more
                return sizes["t"] - 1 - (uniform * (sizes["t"] - sizes["k"] + 1)).astype(np.int64)
        raise ValueError(self.kind)


class RandomSource:
    """`choose(options)` picks one: of random.Random, or drawn by hypothesis. Subclasses write `lines`, `arguments` and
    `results`, and give the names that the source knows."""

    keys, past = "n", 0  # the letter of the keys' number; how many there are in a cache
    batch: str  # "b", or "" if there is none
    heads: int
    of_keys: int
    width: int
    columns: int  # of values
    model_width: int  # of the rows of a layer
    all_keys = "n"  # with those of a cache
    dims: str  # of the scores, as "bhmt"; "kg" are the heads of keys and their groups

    def __init__(self, choose: Callable[[Sequence], Any], dtypes: Sequence[str]):
        self.choose = choose
        self.lines: list[str] = []
        self.arguments: dict[str, Argument] = {}
        self.results: list[str] = []
        self.open: frozenset[str] = frozenset()
        self.dtype = choose(dtypes)

    def choose_sizes(self) -> None:
        choose = self.choose
        self.heads, self.of_keys = choose(HEADS)
        self.width = choose((8, 16, 2, 7, 17, 32, 64))
        self.columns = choose((self.width, self.width, self.width, 8, 5))
        self.sizes = {"b": choose((1, 2, 3)), "m": choose(LENGTHS), "n": choose(LENGTHS)}

    def compiled(self, names: Mapping[str, Any]) -> None:
        """Makes `function` of what was written."""
        body = "".join(f"    {line}\n" for line in [*self.lines, f"return {', '.join(self.results)}"])
        self.text = f"def attention({', '.join(self.arguments)}):\n{body}"
        self.name = f"<program {hash(self.text):x}>"
        linecache.cache[self.name] = len(self.text), None, self.text.splitlines(True), self.name
        known = dict(names)
        exec(compile(self.text, self.name, "exec"), known)
        self.function = known["attention"]

    def __repr__(self) -> str:
        given = ", ".join(f"{name}: {list(a.dims)} {a.kind}" for name, a in self.arguments.items())
        return f"# {self.dtype}, {self.sizes}, open: {''.join(sorted(self.open))}\n# {given}\n{self.text}"

    def values(self, flavour: str = "normal", **sizes: int) -> list[np.ndarray]:
        given = {**self.sizes, **sizes}
        given["k"] = given[self.keys]
        given["p"] = given.get("p", self.past)
        given["t"] = given["k"] + given["p"]
        arguments = enumerate(self.arguments.values())
        return [np.asarray(argument.values(given, flavour, seed)) for seed, argument in arguments]

    def maybe(self, one_of: int) -> bool:
        return self.choose((False,) * (one_of - 1) + (True,))

    def say(self, line: str) -> None:
        self.lines.append(line)

    def argument(self, name: str, dims: Sequence[str | int], kind: str) -> str:
        """A new one, whose name may get a number."""
        number = sum(other.rstrip("0123456789") == name for other in self.arguments)
        name = f"{name}{number}" if number else name
        self.arguments[name] = Argument(tuple(dims), kind)
        return name

    def size(self, letter: str) -> str | int:
        return {"h": self.heads, "k": self.of_keys, "g": self.heads // self.of_keys, "t": self.all_keys}.get(
            letter, letter
        )

    def write(self) -> None:
        source = self.choose(("heads", "heads", "heads", "packed", "layer", "layers"))
        if source.startswith("layer"):
            self.batch, self.columns, self.keys = "b", self.width, "m"
            self.model_width = self.heads * self.width
            self.argument("x", ("b", "m", self.model_width), "data")
            for _ in range(2 if source == "layers" else 1):
                self.layer()
            self.results.insert(0, self.of_type("x", self.choose(("f32", "f16"))) if self.maybe(8) else "x")
            return
        (self.packed if source == "packed" else self.separate)()
        self.attend()
        self.finish()

    # What queries, keys and values are made of: (b,) h, m, d and so on, whatever the layout of the arguments.

    def separate(self) -> None:
        for name, heads, length, width in (
            ("q", self.heads, "m", self.width),
            ("k", self.of_keys, "n", self.width),
            ("v", self.of_keys, "n", self.columns),
        ):
            layout = self.choose(("heads first", "tokens first", "merged", "transposed"))
            dims = {
                "heads first": (heads, length, width),
                "tokens first": (length, heads, width),
                "merged": (length, heads * width),
                "transposed": (heads, width, length),
            }[layout]
            self.argument(name, (*self.batch, *dims), "data")
            if layout == "tokens first":
                self.say(f"{name} = {self.with_heads_first(name)}")
            elif layout == "merged":
                self.say(f"{name} = {self.of_merged(name, heads, width)}")
            elif layout == "transposed":
                self.say(f"{name} = {self.turned(name)}")

    def attend(self) -> None:
        """From q, k and v to o, all with heads before tokens."""
        for _ in range(self.choose((0, 0, 1, 2))):
            self.prepare()
        self.cache()
        self.share_heads()
        self.scores()

    # Changes of the scores `s` that are the same in all frameworks.

    def biased(self) -> None:
        bias = self.argument("bias", self.broadcast(), "small")
        self.say(self.choose((f"s = s + {bias}", f"s = s - {bias} * 2", f"s += {bias}")))

    def is_masked_with(self, lowest: str) -> bool:
        """Whether scores were. What is subtracted from them then, log Σ exp(s) or a mean, rounds others away, or is
        rounded away itself, even in float64; a kernel that subtracts it elsewhere, or need not at all, does not."""
        return any(lowest in line for line in self.lines)

    def grown(self) -> None:
        self.say(f"s = s * {self.choose(('math.log(n + 1)', '(1 / (1 + n))'))}")

    def broadcast(self, last: str = "t") -> list[str | int]:
        """A shape that broadcasts to the scores', with the dimensions `last`."""
        dims = [self.size(d) if d in last or self.maybe(2) else 1 for d in self.dims]
        while dims and dims[0] == 1 and self.maybe(2):
            dims.pop(0)
        return dims


def off_by_rounding(x: Any, noise: Any, epsilon: float) -> Any:
    """An array of float64 as if it had been rounded to a narrower type (Monte Carlo arithmetic): what a program makes
    of it then says what roundings of the type come to. `noise` is from 0 to 1. Not so large numbers as masks are: what
    is added to these is rounded away, the same in each of a row."""
    return x * (1 + (noise - 0.5) * epsilon * (abs(x) < 1e6))


def check_error(
    found: np.ndarray,
    right: np.ndarray,
    rounded: Sequence[np.ndarray],
    eager: np.ndarray,
    own: float,
    program: RandomSource,
    least: float = 0,
    slack: float = 1,
) -> None:
    """Against float64. Allowed are a few times the error of the framework itself in the same type (`eager`), and of
    arguments, and what is computed of them, that are rounded once more (`rounded`, in several ways), and `own` of the
    largest result, or of `least`, if that is more; all that `slack` times.

    Where there is no number in float64 (rows without a key), or none in the framework's own type, none is asked for.
    But one of f16 has to be right: kernels compute in f32, where little overflows.
    """
    is_known = np.isfinite(right) & np.isfinite(eager)
    if program.dtype == "f16":
        is_known |= np.isfinite(right) & np.isfinite(found)
    if not is_known.any():
        return
    with np.errstate(all="ignore"):
        error, theirs, *arguments = (
            np.nan_to_num((x - right)[is_known], nan=0, posinf=0, neginf=0) for x in (found, eager, *rounded)
        )
    is_finite = bool(np.isfinite(found[is_known]).all())
    scale = max(np.abs(right[is_known]).max(), least)
    error, theirs, *arguments = (np.abs(x).max() for x in (error, theirs, *arguments))
    allowed = slack * (8 * theirs + 4 * max(arguments) + own * scale)
    problem = f"error {error:.3g}, where {allowed:.3g} is allowed, of {scale:.3g}"
    assert is_finite and error <= allowed, f"{problem}{'' if is_finite else ', NaN'}\n{program!r}"


# What no kernel for a GPU is made of yet, so that scores are kept in memory: others are failures.
NOT_YET = re.compile(
    "a tile's only row, or column, is none behind a reshape"  # a single key, with one query or its maximum subtracted
    "|a tensor is read as a whole here"  # scores that are used more than once, with two products
)


def check_code(compiled: Callable[[], Any], program: RandomSource) -> Any:
    """The kernel, of which there is PTX, and no attention left but for known reasons."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            kernel = compiled()
        except CompileError as error:
            raise AssertionError(f"{error}\n{program!r}") from error
    assert ".entry" in kernel.ir("ptx"), repr(program)
    left = [text for one in said if "no kernel can be made of it" in (text := str(one.message))]
    assert all(map(NOT_YET.search, left)), f"{left}\n{program!r}"
    return kernel

"""Attention of many kinds as a graph in MLIR text, with made-up inputs and what they should give.

    graph = Attention(batch=2, heads=32, heads_kv=8, queries=512, keys=512, head_size=128, window=(None, 0))
    kernel = compile(graph.text())
    out = kernel(*graph.inputs())                    # numpy arrays; graph.reference(…) is the same in float64

The text has two contractions as ``linalg.generic``, whose indexing maps say where a dimension stands in memory and
which queries share a head of keys: nothing is transposed or repeated. A mask is computed from indices, from lengths,
or loaded. Scores, statistics and sums are f32, or f64 for f64; probabilities are rounded to the inputs' type for the
second contraction.

With inputs of 8 bits (f8) probabilities are multiplied by `scale_p` before they are rounded, the output by `scale_o`; a
bias is f32. An output of 8 bits is kept within the range of its type.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence

import numpy as np

FLOAT8 = {"f8E4M3FN": 448.0, "f8E5M2": 57344.0}  # and the largest number
ELEMENTS = ("f16", "bf16", "f32", "f64", *FLOAT8)
BYTES = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8, "i32": 4, "i1": 1, **dict.fromkeys(FLOAT8, 1)}
INITS = ("integers", "uniform", "trigonometric", "normal integers", "normal", "quantized")
PACKINGS = ("", "3hd", "h3d")
MASK_BLOCK = 64  # made-up masks have dead blocks of this many queries and keys
FARTHEST = 2**31  # from a query, the end of a window: sums of places and windows are numbers of 64 bits


@dataclasses.dataclass(frozen=True)
class Attention:
    """softmax(modified(scale·Q·Kᵀ))·V. A key j is live for a query i if window[0] ≤ j − i ≤ window[1]; None: no limit.

    Layouts name the dimensions in memory: b(atch), h(eads), s(equence), d. With `values_transposed` the letters s and d
    of V's change places. `softcap` c makes a score s to c·tanh(s/c) before bias and mask. With `alibi` a
    score gets 2^(−8·(h+1)/heads)·(j − i) added. `lse` is a second result, ln Σ exp(score), [batch, heads, queries].

    Sequences of different lengths are told by more arguments, of i32. `lengths`: how many keys of each batch entry are
    there, [batch]; the rest is not read. `groups`: (queries, keys) of each sequence; they stand one after the other,
    batch is 1, `queries` and `keys` are their sums, and where each starts is [groups + 1], twice. With `bottom_right`
    the window is shifted by the keys that are there less the queries, so that the last query sees all keys.

    `documents`: how many tokens each document has of those that stand one after the other in each batch entry; the
    document of each token is told by a number, [batch, keys]. A query sees keys of its own document.
    """

    batch: int = 1
    heads: int = 1
    heads_kv: int = 0  # 0: as many as heads
    queries: int = 64
    keys: int = 64
    head_size: int = 64
    value_size: int = 0  # 0: as head_size
    element: str = "f32"
    output: str = ""  # the output's element; "": that of the inputs
    scale: float | None = None  # None: 1/√head_size
    scale_p: float = 1.0  # of probabilities, before they are rounded to 8 bits
    scale_o: float = 1.0  # of the output
    window: tuple[int | None, int | None] = (None, None)
    bottom_right: bool = False
    bias: str = ""  # one more argument, that is added: which of b, h, q and k it has, the others are of size 1
    mask: str = ""  # one more argument, of i1: whether a score is live; likewise
    lengths: tuple[int, ...] = ()
    groups: tuple[tuple[int, int], ...] = ()
    documents: tuple[int, ...] = ()
    softcap: float = 0.0  # 0: none
    alibi: bool = False
    input_layout: str = "bhsd"
    output_layout: str = "bhsd"
    values_transposed: bool = False
    packed: str = ""  # Q, K and V are parts of one argument: 3hd, [b, s, (h + 2·h_kv)·d], or h3d, [b, s, h·3·d]
    dynamic: bool = False  # batch and sequences have any size
    lse: bool = False

    def __post_init__(self) -> None:
        sizes = ("batch", "heads", "queries", "keys", "head_size")
        for name in sizes:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be positive, but is {getattr(self, name)}")
        if self.heads_kv < 0 or self.heads % self.kv:
            raise ValueError(f"heads must be a multiple of heads_kv, but {self.heads} is not one of {self.heads_kv}")
        if self.element not in ELEMENTS:
            raise ValueError(f"element must be one of {', '.join(ELEMENTS)}, but is {self.element}")
        if self.output not in ("", *ELEMENTS) or (self.element == "f64") != (self.output_element == "f64"):
            raise ValueError(f"the output of inputs of {self.element} cannot be {self.output}")
        if self.element not in FLOAT8 and (self.scale_p, self.scale_o) != (1.0, 1.0):
            raise ValueError(f"probabilities and outputs of inputs of {self.element} have no scale")
        for layout in (self.input_layout, self.output_layout):
            if sorted(layout) != sorted("bhsd"):
                raise ValueError(f"a layout is the letters b, h, s and d in some order, but found {layout}")
        for letters in (self.bias, self.mask):
            if not set(letters) <= set("bhqk"):
                raise ValueError(f"a bias or mask has some of the dimensions b, h, q and k, but found {letters}")
        for bound in self.window:
            if bound is not None and abs(bound) > FARTHEST:
                raise ValueError(
                    f"a window ends at most 2^31 keys from a query, but found {abs(bound)}; give it no limit"
                )
        self._check_packed()
        self._check_lengths()

    def _check_packed(self) -> None:
        if self.packed not in PACKINGS:
            raise ValueError(f"packed must be 3hd or h3d, but is {self.packed}")
        if self.packed and (self.queries != self.keys or self.d_v != self.head_size):
            raise ValueError("packed Q, K and V are of one length and one head size")
        if self.packed == "h3d" and self.kv != self.heads:
            raise ValueError("packed h3d, every head has keys of its own")
        if self.packed and (self.values_transposed or self.input_layout != "bshd"):
            raise ValueError("packed Q, K and V have the layout bshd")

    def _check_lengths(self) -> None:
        if self.lengths and (len(self.lengths) != self.batch or not all(0 <= n <= self.keys for n in self.lengths)):
            raise ValueError(f"lengths must be {self.batch} numbers from 0 to {self.keys}, but are {self.lengths}")
        if self.groups:
            if any(min(pair) < 0 for pair in self.groups):
                raise ValueError("the lengths of a group must not be negative")
            totals = tuple(map(sum, zip(*self.groups, strict=True)))
            if self.batch != 1 or totals != (self.queries, self.keys) or self.lengths:
                raise ValueError("groups stand one after the other: batch is 1, queries and keys are their sums")
        if self.documents and not (min(self.documents) >= 0 and sum(self.documents) == self.queries == self.keys):
            raise ValueError("documents stand one after the other: queries and keys are the sum of their lengths")

    @staticmethod
    def of_plain(fields: dict) -> "Attention":
        """From the fields as JSON has them."""
        tuples = {name: tuple(fields[name]) for name in ("window", "lengths", "documents") if name in fields}
        groups = tuple(map(tuple, fields.get("groups", ())))
        return Attention(**{**fields, **tuples, "groups": groups})

    @property
    def kv(self) -> int:
        return self.heads_kv or self.heads

    @property
    def d_v(self) -> int:
        return self.value_size or self.head_size

    @property
    def factor(self) -> float:
        return self.scale if self.scale is not None else 1 / math.sqrt(self.head_size)

    @property
    def output_element(self) -> str:
        return self.output or self.element

    @property
    def value_layout(self) -> str:
        swapped = str.maketrans("sd", "ds") if self.values_transposed else {}
        return self.input_layout.translate(swapped)

    def arguments(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """Shape and element of each argument, in order."""
        b, h, kv, e = self.batch, self.heads, self.kv, self.element
        found: dict[str, tuple[tuple[int, ...], str]]
        if self.packed:
            found = {"qkv": ((b, self.queries, (h + 2 * kv) * self.head_size), e)}
        else:
            found = {
                "q": (_ordered(self.input_layout, b, h, self.queries, self.head_size), e),
                "k": (_ordered(self.input_layout, b, kv, self.keys, self.head_size), e),
                "v": (_ordered(self.value_layout, b, kv, self.keys, self.d_v), e),
            }
        sizes = {"b": b, "h": h, "q": self.queries, "k": self.keys}
        for name, letters, kind in (("bias", self.bias, self.bias_element), ("mask", self.mask, "i1")):
            if letters:
                found[name] = tuple(sizes[c] if c in letters else 1 for c in "bhqk"), kind
        if self.lengths:
            found["lengths"] = ((b,), "i32")
        if self.groups:
            found |= {name: ((len(self.groups) + 1,), "i32") for name in ("seqstart_q", "seqstart_k")}
        if self.documents:
            found["documents"] = ((b, self.keys), "i32")
        return found

    @property
    def bias_element(self) -> str:
        return "f32" if self.element in FLOAT8 else self.element

    def text(self) -> str:
        """The graph, a module with one function ``@attention``."""
        from .graph_text import Writer

        return Writer(self).module()

    # Work.
    def segments(self) -> Iterator[tuple[int, int, int, int, int, int]]:
        """Queries and keys that belong together: the batch entry, where both start and end, the window's shift."""
        if self.groups:
            q = k = 0
            for m, n in self.groups:
                yield 0, q, q + m, k, k + n, n - m if self.bottom_right else 0
                q, k = q + m, k + n
            return
        for b, length in enumerate(self.lengths or (self.keys,) * self.batch):
            yield b, 0, self.queries, 0, length, length - self.queries if self.bottom_right else 0

    def ranges(self) -> tuple[np.ndarray, np.ndarray]:
        """The first live key of each query and the one after the last, [batch, queries], as windows and lengths say."""
        first, end = (np.zeros((self.batch, self.queries), np.int64) for _ in range(2))
        lower, upper = self.window
        for b, q0, q1, k0, k1, shift in self.segments():
            i = np.arange(q1 - q0) + shift + k0
            first[b, q0:q1] = k0 if lower is None else np.clip(i + lower, k0, k1)
            end[b, q0:q1] = k1 if upper is None else np.clip(i + upper + 1, k0, k1)
        return first, np.maximum(first, end)

    def live(self) -> np.ndarray:
        """The number of live keys of each query, [batch, queries]; a mask that is loaded is taken to be all live."""
        first, end = self.ranges()
        if self.documents:
            ends = np.cumsum(self.documents)
            document = np.repeat(np.arange(len(ends)), self.documents)
            first, end = np.maximum(first, (ends - self.documents)[document]), np.minimum(end, ends[document])
        return np.maximum(end - first, 0)

    def flops(self) -> int:
        """Floating-point operations of both matmuls, of live scores only."""
        return 2 * (self.head_size + self.d_v) * self.heads * int(self.live().sum())

    def bytes(self) -> int:
        """What must be read and written at least once."""
        total = sum(BYTES[kind] * math.prod(shape) for shape, kind in self.arguments().values())
        if self.lengths:  # of keys and values only those that are there
            unread = self.batch * self.keys - sum(self.lengths)
            total -= BYTES[self.element] * unread * self.kv * (self.head_size + self.d_v)
        out = self.batch * self.heads * self.queries
        return total + BYTES[self.output_element] * out * self.d_v + 4 * self.lse * out

    # Numbers.
    def inputs(self, init: str = "uniform", seed: int = 0, spans: dict[str, tuple[float, float]] | None = None) -> list:
        """The arguments, made up in one of the ways of INITS; lengths as they are.

        Integers are from −3 to 3, numbers from 0 to 1, or cosines; normal ones have variance 1; quantized ones use all
        of the range of 8 bits. `spans` gives Q, K, V or the bias another range than 0 to 1. A mask is dead in some
        blocks and some elements.
        """
        if init == "quantized":
            if self.element not in FLOAT8:
                raise ValueError(f"inputs of {self.element} are not quantized")
            most = FLOAT8[self.element]
            spans = dict.fromkeys(("q", "k", "v", "qkv"), (-most, most)) | (spans or {})
        rng, made = np.random.default_rng(seed), []
        for name, (shape, kind) in self.arguments().items():
            if kind == "i1":
                made.append(_made_up_mask(rng, shape))
            elif kind == "i32":
                made.append(self._offsets(name))
            elif init == "integers":
                made.append(rng.integers(-3, 4, shape, dtype=np.int8).astype(dtype_of(kind)))
            elif init.startswith("normal"):
                x = rng.standard_normal(shape, dtype=np.float32)
                made.append((np.rint(x) if init == "normal integers" else x).astype(dtype_of(kind)))
            elif init in ("uniform", "quantized"):
                x = rng.random(shape, dtype=np.float32)
                low, high = (spans or {}).get(name, (0.0, 1.0))
                x = x if (low, high) == (0.0, 1.0) else x * np.float32(high - low) + np.float32(low)
                made.append(x.astype(dtype_of(kind), copy=False))
            else:
                count = np.arange(math.prod(shape), dtype=np.float64)
                made.append(np.cos(count).astype(dtype_of(kind)).reshape(shape))
        return made

    def _offsets(self, name: str) -> np.ndarray:
        if name == "lengths":
            return np.array(self.lengths, np.int32)
        if name == "documents":
            documents = np.repeat(np.arange(len(self.documents), dtype=np.int32), self.documents)
            return np.tile(documents, (self.batch, 1))
        return np.cumsum([0, *(pair[name == "seqstart_k"] for pair in self.groups)]).astype(np.int32)

    @property
    def dtype(self) -> np.dtype:
        return dtype_of(self.element)

    def reference(self, inputs: Sequence[np.ndarray], rows: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The output of the queries `rows`, by default of all, [batch, heads, rows, d_v], and its lse, in float64."""
        rows = np.arange(self.queries) if rows is None else rows
        out = np.empty((self.batch, self.heads, len(rows), self.d_v))
        lse = np.empty(out.shape[:3])
        first, end = self.ranges()
        place = self.places()
        bias, mask, documents = (self.named(inputs).get(name) for name in ("bias", "mask", "documents"))
        for b, h, q, k, v in self._heads(inputs):
            for start in range(0, len(rows), 256):  # scores of a block at a time
                part = rows[start : start + 256]
                j = np.arange(self.keys)
                s = q[part].astype(np.float64) @ k.T * self.factor
                if self.softcap:
                    s = self.softcap * np.tanh(s / self.softcap)
                if self.alibi:
                    s += self.slope(h) * (j - place[b, part][:, None])
                if bias is not None:
                    s += _of_rows(bias, b, h, part).astype(np.float64)
                s[(j < first[b, part][:, None]) | (j >= end[b, part][:, None])] = -np.inf
                if documents is not None:
                    s[documents[b, part][:, None] != documents[b]] = -np.inf
                if mask is not None:
                    s = np.where(_of_rows(mask, b, h, part), s, -np.inf)
                m = s.max(-1, keepdims=True)
                p = np.exp(s - np.where(np.isneginf(m), 0, m))
                total = p.sum(-1, keepdims=True)
                out[b, h, start : start + 256] = p @ v / np.where(total == 0, 1, total)
                with np.errstate(divide="ignore"):
                    lse[b, h, start : start + 256] = (m + np.log(total))[:, 0]
        if self.element in FLOAT8:
            most = FLOAT8.get(self.output_element, np.inf)
            out = np.clip(out * (self.scale_p * self.scale_o), -most, most)
        return out, lse

    def places(self) -> np.ndarray:
        """The key that each query stands at, [batch, queries]: j − i of windows and slopes is the distance from it."""
        place = np.zeros((self.batch, self.queries), np.int64)
        for b, q0, q1, k0, _, shift in self.segments():
            place[b, q0:q1] = np.arange(q1 - q0) + k0 + shift
        return place

    def slope(self, h: int) -> float:
        return 2.0 ** (-8 * (h + 1) / self.heads)

    def _heads(self, inputs: Sequence[np.ndarray]) -> Iterator[tuple[int, int, np.ndarray, np.ndarray, np.ndarray]]:
        q, k, v = self.canonical(inputs)
        for b in range(self.batch):
            for h in range(self.heads):
                shared = h * self.kv // self.heads
                if h * self.kv % self.heads == 0:
                    k64, v64 = k[b, shared].astype(np.float64), v[b, shared].astype(np.float64)
                yield b, h, q[b, h], k64, v64

    def named(self, inputs: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        return dict(zip(self.arguments(), inputs, strict=True))

    def canonical(self, inputs: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Q, K and V as [b, h, s, d]; views."""
        named, layout = self.named(inputs), self.input_layout
        parts: Sequence[np.ndarray]
        if self.packed == "h3d":
            parts = list(np.moveaxis(named["qkv"].reshape(self.batch, self.queries, self.heads, 3, -1), 3, 0))
        elif self.packed:
            heads = named["qkv"].reshape(self.batch, self.queries, -1, self.head_size)
            parts = np.split(heads, [self.heads, self.heads + self.kv], axis=2)
        else:
            parts = [named["q"], named["k"], named["v"]]
        layouts = (layout, layout, self.value_layout)
        q, k, v = (x.transpose([at.index(c) for c in "bhsd"]) for x, at in zip(parts, layouts, strict=True))
        return q, k, v

    def canonical_output(self, output: np.ndarray) -> np.ndarray:
        return output.transpose([self.output_layout.index(c) for c in "bhsd"])


def dtype_of(element: str) -> np.dtype:
    """What numpy has for an element type."""
    from .runtime.signature import Slot

    return Slot(element, ()).dtype


def _ordered(layout: str, b: int, h: int, s: int, d: int) -> tuple[int, ...]:
    sizes = {"b": b, "h": h, "s": s, "d": d}
    return tuple(sizes[c] for c in layout)


def _of_rows(array: np.ndarray, b: int, h: int, rows: np.ndarray) -> np.ndarray:
    """The rows of a bias or mask, [b, h, q, k] with 1 for what it lacks."""
    found = array[b if array.shape[0] > 1 else 0, h if array.shape[1] > 1 else 0]
    return found[rows] if len(found) > 1 else found


def _made_up_mask(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    live = rng.random(shape, dtype=np.float32) < 0.9
    *_, q, k = shape
    blocks = rng.random((-(-q // MASK_BLOCK), -(-k // MASK_BLOCK))) < 0.6
    blocks[0, 0] = True
    return live & np.repeat(np.repeat(blocks, MASK_BLOCK, 0), MASK_BLOCK, 1)[:q, :k]

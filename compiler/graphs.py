"""Attention of many kinds as a graph in MLIR text, with made-up inputs and what they should give.

    graph = Attention(batch=2, heads=32, heads_kv=8, queries=512, keys=512, head_size=128, window=(None, 0))
    kernel = compile(graph.text())
    out = kernel(*graph.inputs())                    # numpy arrays; graph.reference(…) is the same in float64

The text has two contractions as ``linalg.generic``, whose indexing maps say where a dimension stands in memory and
which queries share a head of keys: nothing is transposed or repeated. A mask is computed from indices. Scores,
statistics and sums are f32, or f64 for f64; probabilities are rounded to the inputs' type for the second contraction.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence

import numpy as np

ELEMENTS = ("f16", "bf16", "f32", "f64")
INITS = ("integers", "uniform", "trigonometric")


@dataclasses.dataclass(frozen=True)
class Attention:
    """softmax(modified(scale·Q·Kᵀ))·V. A key j is live for a query i if window[0] ≤ j − i ≤ window[1]; None: no limit.

    Layouts name the dimensions in memory: b(atch), h(eads), s(equence), d. With `values_transposed` the letters s and d
    of V's change places. `softcap` c makes a score s to c·tanh(s/c) before bias and mask. With `alibi` a
    score gets 2^(−8·(h+1)/heads)·(j − i) added. `lse` is a second result, ln Σ exp(score), [batch, heads, queries].
    """

    batch: int = 1
    heads: int = 1
    heads_kv: int = 0  # 0: as many as heads
    queries: int = 64
    keys: int = 64
    head_size: int = 64
    value_size: int = 0  # 0: as head_size
    element: str = "f32"
    scale: float | None = None  # None: 1/√head_size
    window: tuple[int | None, int | None] = (None, None)
    bias: bool = False  # one more argument, [batch, heads, queries, keys]
    softcap: float = 0.0  # 0: none
    alibi: bool = False
    input_layout: str = "bhsd"
    output_layout: str = "bhsd"
    values_transposed: bool = False
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
        for layout in (self.input_layout, self.output_layout):
            if sorted(layout) != sorted("bhsd"):
                raise ValueError(f"a layout is the letters b, h, s and d in some order, but found {layout}")

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
    def value_layout(self) -> str:
        swapped = str.maketrans("sd", "ds") if self.values_transposed else {}
        return self.input_layout.translate(swapped)

    def shapes(self) -> list[tuple[int, ...]]:
        """Of the arguments: Q, K, V, and the bias if there is one."""
        b, h, kv = self.batch, self.heads, self.kv
        found = [
            _ordered(self.input_layout, b, h, self.queries, self.head_size),
            _ordered(self.input_layout, b, kv, self.keys, self.head_size),
            _ordered(self.value_layout, b, kv, self.keys, self.d_v),
        ]
        return [*found, (b, h, self.queries, self.keys)] if self.bias else found

    def text(self) -> str:
        """The graph, a module with one function ``@attention``."""
        from .graph_text import Writer

        return Writer(self).module()

    # Work.
    def live(self) -> np.ndarray:
        """The number of live keys of each query."""
        first, end = self._range(np.arange(self.queries))
        return np.maximum(end - first, 0)

    def _range(self, i: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        lower, upper = self.window
        first = np.zeros_like(i) if lower is None else np.clip(i + lower, 0, self.keys)
        end = np.full_like(i, self.keys) if upper is None else np.clip(i + upper + 1, 0, self.keys)
        return first, end

    def flops(self) -> int:
        """Floating-point operations of both matmuls, of live scores only."""
        return 2 * (self.head_size + self.d_v) * self.batch * self.heads * int(self.live().sum())

    def bytes(self) -> int:
        """What must be read and written at least once."""
        size = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8}[self.element]
        out = self.batch * self.heads * self.queries
        return size * (sum(map(math.prod, self.shapes())) + out * self.d_v) + 4 * self.lse * out

    # Numbers.
    def inputs(self, init: str = "uniform", seed: int = 0) -> list[np.ndarray]:
        """Q, K, V and the bias: random integers from −3 to 3, random numbers from 0 to 1, or cosines."""
        rng, dtype = np.random.default_rng(seed), self.dtype
        made: list[np.ndarray] = []
        for shape in self.shapes():
            if init == "integers":
                made.append(rng.integers(-3, 4, shape, dtype=np.int8).astype(dtype))
            elif init == "uniform":
                made.append(rng.random(shape, dtype=np.float32).astype(dtype, copy=False))
            else:
                made.append(np.cos(np.arange(math.prod(shape), dtype=np.float64)).astype(dtype).reshape(shape))
        return made

    @property
    def dtype(self) -> np.dtype:
        if self.element == "bf16":
            import ml_dtypes

            return np.dtype(ml_dtypes.bfloat16)
        return np.dtype({"f16": np.float16, "f32": np.float32, "f64": np.float64}[self.element])

    def reference(self, inputs: Sequence[np.ndarray], rows: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The output of the queries `rows`, by default of all, [batch, heads, rows, d_v], and its lse, in float64."""
        rows = np.arange(self.queries) if rows is None else rows
        out = np.empty((self.batch, self.heads, len(rows), self.d_v))
        lse = np.empty(out.shape[:3])
        for b, h, q, k, v in self._heads(inputs):
            for start in range(0, len(rows), 256):  # scores of a block at a time
                part = rows[start : start + 256]
                s = q[part].astype(np.float64) @ k.T * self.factor
                if self.softcap:
                    s = self.softcap * np.tanh(s / self.softcap)
                if self.alibi:
                    s += self.slope(h) * (np.arange(self.keys) - part[:, None])
                if self.bias:
                    s += inputs[3][b, h, part].astype(np.float64)
                first, end = self._range(part)
                j = np.arange(self.keys)
                s[(j < first[:, None]) | (j >= end[:, None])] = -np.inf
                m = s.max(-1, keepdims=True)
                p = np.exp(s - np.where(np.isneginf(m), 0, m))
                total = p.sum(-1, keepdims=True)
                out[b, h, start : start + 256] = p @ v / np.where(total == 0, 1, total)
                with np.errstate(divide="ignore"):
                    lse[b, h, start : start + 256] = (m + np.log(total))[:, 0]
        return out, lse

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

    def canonical(self, inputs: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Q, K and V as [b, h, s, d]; views."""
        layouts = (self.input_layout, self.input_layout, self.value_layout)
        q, k, v = (
            x.transpose([layout.index(c) for c in "bhsd"]) for x, layout in zip(inputs[:3], layouts, strict=True)
        )
        return q, k, v

    def canonical_output(self, output: np.ndarray) -> np.ndarray:
        return output.transpose([self.output_layout.index(c) for c in "bhsd"])


def _ordered(layout: str, b: int, h: int, s: int, d: int) -> tuple[int, ...]:
    sizes = {"b": b, "h": h, "s": s, "d": d}
    return tuple(sizes[c] for c in layout)

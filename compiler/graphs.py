"""Attention of many kinds as a graph in MLIR text, with made-up inputs and what they should give.

    graph = Attention(batch=2, heads=32, heads_kv=8, queries=512, keys=512, head_size=128, window=(None, 0))
    kernel = compile(graph.text())
    out = kernel(*graph.inputs())                    # numpy arrays; graph.reference(…) is the same in float64

The text has two contractions as ``linalg.generic``, whose indexing maps say where a dimension stands in memory and
which queries share a head of keys: nothing is transposed or repeated. A mask is computed from indices. Scores,
statistics and sums are f32, or f64 for f64; the probabilities are rounded to the inputs' type for the second one.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

ELEMENTS = ("f16", "bf16", "f32", "f64")
INITS = ("integers", "uniform", "trigonometric")
_MINUS_INFINITY = {"f32": "0xFF800000", "f64": "0xFFF0000000000000"}


@dataclasses.dataclass(frozen=True)
class Attention:
    """softmax(modified(scale·Q·Kᵀ))·V. A key j is live for a query i if window[0] ≤ j − i ≤ window[1]; None: no limit.

    Layouts name the dimensions in memory: b(atch), h(eads), s(equence), d. With `values_transposed` the last two
    letters of V's, s and d, change places. `softcap` c makes a score s to c·tanh(s/c) before bias and mask. With
    `alibi` a score gets 2^(−8·(h+1)/heads)·(j − i) added. `lse` is a second result, ln Σ exp(score), [batch, heads,
    queries].
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
        return _Writer(self).module()

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


class _Writer:
    """Loops are b, h, g (a head of its group, where heads share keys), m, n, and d or e (of values)."""

    def __init__(self, graph: Attention):
        self.g = graph
        self.acc = "f64" if graph.element == "f64" else "f32"
        self.grouped = graph.kv != graph.heads
        self.sizes = {
            "b": graph.batch,
            "h": graph.kv,
            "g": graph.heads // graph.kv,
            "m": graph.queries,
            "n": graph.keys,
            "d": graph.head_size,
            "e": graph.d_v,
        }
        self.heads = "hg" if self.grouped else "h"
        self.lines: list[str] = []

    def type(self, dims: str, element: str) -> str:
        return f"tensor<{'x'.join(str(self.sizes[c]) for c in dims)}x{element}>"

    def dims(self, layout: str, s: str, d: str, heads: str) -> str:
        """The loops that count through a tensor of that layout."""
        return layout.replace("s", "\0").replace("d", d).replace("\0", s).replace("h", heads)

    def map(self, loops: str, dims: str) -> str:
        return f"affine_map<({', '.join(loops)}) -> ({', '.join(dims)})>"

    def filled(self, name: str, value: str, dims: str) -> str:
        kind = self.type(dims, self.acc)
        self.lines += [
            f"%{name}_empty = tensor.empty() : {kind}",
            f"%{name} = linalg.fill ins({value} : {self.acc}) outs(%{name}_empty : {kind}) -> {kind}",
        ]
        return kind

    def generic(
        self,
        name: str,
        loops: str,
        reduced: str,
        ins: list[tuple[str, str, str]],
        out: tuple[str, str, str],
        body: list,
    ) -> None:
        """An op over `loops`; operands are (value, dims, element), and %in0, %in1, …, %out in the body."""
        operands = [*ins, out]
        maps = ", ".join(self.map(loops, dims) for _, dims, _ in operands)
        kinds = ", ".join('"reduction"' if c in reduced else '"parallel"' for c in loops)
        values, types = ", ".join(v for v, _, _ in ins), ", ".join(self.type(d, e) for _, d, e in ins)
        inputs = f" ins({values} : {types})" if ins else ""
        arguments = [f"%in{i}: {e}" for i, (_, _, e) in enumerate(ins)] + [f"%out: {out[2]}"]
        kind = self.type(out[1], out[2])
        lines = "\n".join(f"    {line}" for line in body)
        self.lines.append(
            f"%{name} = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}}"
            f"{inputs} outs({out[0]} : {kind}) {{\n  ^bb0({', '.join(arguments)}):\n{lines}\n  }} -> {kind}"
        )

    def contraction(self, name: str, loops: str, a: tuple[str, str, str], b: tuple[str, str, str], out: str) -> None:
        """out[…] += Σ a·b over the last loop."""
        body, names = [], []
        for i, (_, _, element) in enumerate((a, b)):
            if element != self.acc:
                body.append(f"%wide{i} = arith.extf %in{i} : {element} to {self.acc}")
            names.append(f"%in{i}" if element == self.acc else f"%wide{i}")
        body += [
            f"%product = arith.mulf {', '.join(names)} : {self.acc}",
            f"%sum = arith.addf %out, %product : {self.acc}",
            f"linalg.yield %sum : {self.acc}",
        ]
        self.generic(name, loops, loops[-1], [a, b], (f"%{name}_init", out, self.acc), body)

    def module(self) -> str:
        g, element, acc = self.g, self.g.element, self.acc
        rows, scores = f"b{self.heads}m", f"b{self.heads}mn"
        q = self.dims(g.input_layout, "m", "d", self.heads)
        k, v = self.dims(g.input_layout, "n", "d", "h"), self.dims(g.value_layout, "n", "e", "h")
        out = self.dims(g.output_layout, "m", "e", self.heads)
        self.lines += [
            f"%zero = arith.constant 0.0 : {acc}",
            f"%minus_inf = arith.constant {_MINUS_INFINITY[acc]} : {acc}",
        ]
        query = self.split("%q", q, element)
        self.filled("s_init", "%zero", scores)
        self.contraction("s", f"{scores}d", (query, q, element), ("%k", k, element), scores)
        self.modified(scores)
        square, row = self.type(scores, acc), self.type(rows, acc)
        self.lines += [f"%p_empty = tensor.empty() : {square}", f"%scale_empty = tensor.empty() : {row}"]
        self.filled("max_init", "%minus_inf", rows)
        self.filled("sum_init", "%zero", rows)
        self.lines.append(
            f"%p:4 = linalg_ext.softmax dimension({len(rows)}) ins(%modified : {square})\n"
            f"    outs(%p_empty, %max_init, %sum_init, %scale_empty : {square}, {row}, {row}, {row})\n"
            f"    : {square}, {row}, {row}, {row}"
        )
        probabilities = "%p#0"
        if element != acc:
            self.cast("p_cast", "%p#0", scores)
            probabilities = "%p_cast"
        self.filled("o_init", "%zero", out)
        loops = f"b{self.heads}men"
        self.contraction("o", loops, (probabilities, scores, element), ("%v", v, element), out)
        if element != acc:
            self.cast("o_cast", "%o", out)
        results = [self.joined("%o" if element == acc else "%o_cast", out, element)]
        if g.lse:
            self.generic(
                "lse",
                rows,
                "",
                [("%p#1", rows, acc), ("%p#2", rows, acc)],
                ("%scale_empty", rows, acc),
                [f"%log = math.log %in1 : {acc}", f"%l = arith.addf %in0, %log : {acc}", f"linalg.yield %l : {acc}"],
            )
            results.append(self.joined("%lse", rows, acc, "_lse"))
        names = ["%q", "%k", "%v", "%bias"]
        shapes = [f"tensor<{'x'.join(map(str, shape))}x{element}>" for shape in g.shapes()]
        arguments = ", ".join(f"{n}: {t}" for n, t in zip(names, shapes, strict=False))
        kinds = ", ".join(kind for _, kind in results)
        self.lines.append(f"return {', '.join(value for value, _ in results)} : {kinds}")
        body = "\n".join(f"  {line}" for line in self.lines)
        return f"func.func @attention({arguments}) -> ({kinds}) {{\n{body}\n}}\n"

    def cast(self, name: str, value: str, dims: str) -> None:
        kind = self.type(dims, self.g.element)
        self.lines.append(f"%{name}_empty = tensor.empty() : {kind}")
        body = [f"%t = arith.truncf %in0 : {self.acc} to {self.g.element}", f"linalg.yield %t : {self.g.element}"]
        self.generic(name, dims, "", [(value, dims, self.acc)], (f"%{name}_empty", dims, self.g.element), body)

    def split(self, value: str, dims: str, element: str) -> str:
        """Heads [h·g] as [h, g]: no data moves."""
        if not self.grouped:
            return value
        groups, whole = self.reassociation(dims)
        name = f"{value}_split"
        shape = ", ".join(str(self.sizes[c]) for c in dims)
        self.lines.append(
            f"{name} = tensor.expand_shape {value} {groups} output_shape [{shape}] : "
            f"{self.whole_type(whole, element)} into {self.type(dims, element)}"
        )
        return name

    def joined(self, value: str, dims: str, element: str, suffix: str = "") -> tuple[str, str]:
        if not self.grouped:
            return value, self.type(dims, element)
        groups, whole = self.reassociation(dims)
        kind = self.whole_type(whole, element)
        self.lines.append(
            f"%joined{suffix} = tensor.collapse_shape {value} {groups} : {self.type(dims, element)} into {kind}"
        )
        return f"%joined{suffix}", kind

    def reassociation(self, dims: str) -> tuple[str, list[int]]:
        groups: list[list[int]] = []
        sizes: list[int] = []
        for i, c in enumerate(dims):
            if c == "g":
                groups[-1].append(i)
                sizes[-1] *= self.sizes[c]
            else:
                groups.append([i])
                sizes.append(self.sizes[c])
        return str(groups), sizes

    def whole_type(self, sizes: list[int], element: str) -> str:
        return f"tensor<{'x'.join(map(str, sizes))}x{element}>"

    def modified(self, scores: str) -> None:
        """%modified: all that is done to a score, in one op."""
        g, acc = self.g, self.acc
        lower, upper = g.window
        ins = [("%s", scores, acc)]
        body = [f"%scaled = arith.mulf %in0, %factor : {acc}"]
        self.lines.append(f"%factor = arith.constant {_literal(g.factor)} : {acc}")
        last = "%scaled"
        if g.softcap:
            self.lines += [
                f"%cap = arith.constant {_literal(g.softcap)} : {acc}",
                f"%inverse_cap = arith.constant {_literal(1 / g.softcap)} : {acc}",
            ]
            body += [
                f"%small = arith.mulf {last}, %inverse_cap : {acc}",
                f"%tanh = math.tanh %small : {acc}",
                f"%capped = arith.mulf %tanh, %cap : {acc}",
            ]
            last = "%capped"
        if g.alibi or lower is not None or upper is not None:
            body += [
                f"%i = linalg.index {scores.index('m')} : index",
                f"%j = linalg.index {scores.index('n')} : index",
                "%distance = arith.subi %j, %i : index",
            ]
        if g.alibi:
            ins.append(("%slopes", self.heads, acc))
            self.slopes()
            word = "i64" if acc == "f64" else "i32"
            body += [
                f"%word = arith.index_cast %distance : index to {word}",
                f"%real = arith.sitofp %word : {word} to {acc}",
                f"%slanted = arith.mulf %in1, %real : {acc}",
                f"%sloped = arith.addf {last}, %slanted : {acc}",
            ]
            last = "%sloped"
        if g.bias:
            value = f"%in{len(ins)}"
            ins.append((self.split("%bias", scores, g.element), scores, g.element))
            if g.element != acc:
                body.append(f"%wide_bias = arith.extf {value} : {g.element} to {acc}")
                value = "%wide_bias"
            body.append(f"%biased = arith.addf {last}, {value} : {acc}")
            last = "%biased"
        for name, limit, test in (("lower", lower, "slt"), ("upper", upper, "sgt")):
            if limit is not None:
                self.lines.append(f"%{name} = arith.constant {limit} : index")
                body += [
                    f"%dead_{name} = arith.cmpi {test}, %distance, %{name} : index",
                    f"%in_{name} = arith.select %dead_{name}, %minus_inf, {last} : {acc}",
                ]
                last = f"%in_{name}"
        body.append(f"linalg.yield {last} : {acc}")
        self.lines.append(f"%modified_empty = tensor.empty() : {self.type(scores, acc)}")
        self.generic("modified", scores, "", ins, ("%modified_empty", scores, acc), body)

    def slopes(self) -> None:
        groups: Any = [self.g.slope(h) for h in range(self.g.heads)]
        if self.grouped:
            size = self.sizes["g"]
            groups = [groups[h : h + size] for h in range(0, self.g.heads, size)]
            values = ", ".join("[" + ", ".join(map(_literal, group)) + "]" for group in groups)
        else:
            values = ", ".join(map(_literal, groups))
        self.lines.append(f"%slopes = arith.constant dense<[{values}]> : {self.type(self.heads, self.acc)}")


def _literal(value: float) -> str:
    return f"{value:.17e}"

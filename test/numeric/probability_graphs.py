"""Graphs in which something is done to probabilities between softmax and the second matmul, and running them."""

from __future__ import annotations

import numpy as np
from attn_opt.compiler import compile
from attn_opt.compiler.linalg_text import LinalgText
from gpu_modules import run_module
from harness import relative_error

TOLERANCE = {"f32": 1e-5, "bf16": 2e-2}
SIZES = {"h": 3, "m": 37, "k": 131, "d": 16, "n": 20, "c": 2}


class Graph(LinalgText):
    """Attention over heads h, queries m and keys k, in ops on whole tensors, of which scores and sums are f32."""

    def __init__(self, kind: str, sizes: dict[str, int] = SIZES):
        super().__init__(sizes, "", "f32")
        self.kind = kind
        self.arguments: list[tuple[str, str, str]] = []

    def argument(self, name: str, dims: str, element: str = "") -> str:
        self.arguments.append((name, dims, element or self.kind))
        return f"%{name}"

    def elementwise(self, name: str, dims: str, ins: list[tuple[str, str]], body: list[str], element="f32") -> str:
        """`ins`: values and their dimensions; %in0, … in the body, as f32, which ends in %r."""
        self.empty(name, dims, element)
        given = [(value, of, self._element(value)) for value, of in ins]
        lines = []
        for i, (_, _, e) in enumerate(given):
            if e == "bf16":
                lines.append(f"%x{i} = arith.extf %in{i} : bf16 to f32")
                body = [line.replace(f"%in{i}", f"%x{i}") for line in body]
        lines += [*body, "%t = arith.truncf %r : f32 to bf16"] if element == "bf16" else body
        end = f"linalg.yield {'%t' if element == 'bf16' else '%r'} : {element}"
        self.generic(name, dims, "", given, (f"%{name}_empty", dims, element), [*lines, end])
        return f"%{name}"

    def _element(self, value: str) -> str:
        return next((e for name, _, e in self.arguments if f"%{name}" == value), "f32")

    def reduced(self, name: str, x: str, dims: str, over: str, op: str) -> str:
        left = "".join(d for d in dims if d not in over)
        self.filled(name + "_init", {"maximumf": "%lowest", "addf": "%zero"}[op], left)
        body = [f"%r = arith.{op} %in0, %out : f32", "linalg.yield %r : f32"]
        self.generic(name, dims, over, [(x, dims, "f32")], (f"%{name}_init", left, "f32"), body)
        return f"%{name}"

    def matmul(self, name: str, a: tuple[str, str, str], b: tuple[str, str, str], out: str, over: str) -> str:
        self.filled(name + "_init", "%zero", out)
        narrow = [i for i, (_, _, e) in enumerate((a, b)) if e != "f32"]
        widened = [f"%x{i} = arith.extf %in{i} : bf16 to f32" for i in narrow]
        x = ", ".join(f"%x{i}" if i in narrow else f"%in{i}" for i in (0, 1))
        body = [
            *widened,
            f"%product = arith.mulf {x} : f32",
            "%r = arith.addf %out, %product : f32",
            "linalg.yield %r : f32",
        ]
        self.generic(name, out + over, over, [a, b], (f"%{name}_init", out, "f32"), body)
        return f"%{name}"

    def scores(self, name: str, q: str, k: str, heads: str = "h") -> str:
        s = self.matmul(name + "_dot", (q, heads + "md", self.kind), (k, heads + "kd", self.kind), heads + "mk", "d")
        body = ["%c = arith.constant 0.25 : f32", "%r = arith.mulf %in0, %c : f32"]
        return self.elementwise(name, heads + "mk", [(s, heads + "mk")], body)

    def exponentials(self, name: str, s: str, heads: str = "h") -> str:
        m = self.reduced(name + "_max", s, heads + "mk", "k", "maximumf")
        body = ["%y = arith.subf %in0, %in1 : f32", "%r = math.exp %y : f32"]
        return self.elementwise(name, heads + "mk", [(s, heads + "mk"), (m, heads + "m")], body)

    def softmax(self, name: str, s: str, heads: str = "h") -> str:
        e = self.exponentials(name + "_e", s, heads)
        total = self.reduced(name + "_sum", e, heads + "mk", "k", "addf")
        ins = [(e, heads + "mk"), (total, heads + "m")]
        return self.elementwise(name, heads + "mk", ins, ["%r = arith.divf %in0, %in1 : f32"])

    def text(self, p: str, v: str) -> str:
        """The function that returns p·v, of the heads that v has."""
        return self.function(self.product(p, v))

    def product(self, p: str, v: str) -> str:
        if self.kind == "bf16":
            p = self.elementwise("narrow", "hmk", [(p, "hmk")], ["%r = arith.addf %in0, %zero : f32"], self.kind)
        return self.matmul("o", (p, "hmk", self.kind), (v, "hkn", self.kind), "hmn", "k")

    def function(self, o: str) -> str:
        """The function that returns `o`, over hmn."""
        return self.function_of({o: "hmn"})

    def function_of(self, results: dict[str, str]) -> str:
        """The function that returns values, over these dimensions."""
        arguments = ", ".join(f"%{name}: {self.type(dims, e)}" for name, dims, e in self.arguments)
        types = ", ".join(self.type(dims, "f32") for dims in results.values())
        return "\n".join(
            [
                f"func.func @f({arguments}) -> {f'({types})' if len(results) > 1 else types} {{",
                "%zero = arith.constant 0.0 : f32",
                "%lowest = arith.constant 0xFF800000 : f32",
                *self.lines,
                f"return {', '.join(results)} : {types}",
                "}",
            ]
        )

    def inputs(self, seed: int = 0) -> list[np.ndarray]:
        rng = np.random.default_rng(seed)
        made = []
        for _, dims, element in self.arguments:
            shape = [self.sizes[d] for d in dims]
            if element == "i1":
                made.append(rng.uniform(size=shape) < 0.6)
            else:
                made.append(narrowed(rng.standard_normal(shape), element))
        return made


def narrowed(x: np.ndarray, kind: str) -> np.ndarray:
    if kind == "bf16":
        import ml_dtypes

        return x.astype(ml_dtypes.bfloat16)
    return x.astype(np.float32)


def check(graph: Graph, text: str, expected: np.ndarray, softmaxes: int, inputs: list, **options) -> None:
    """The compiled kernel fuses so many attentions, and computes what is expected."""
    kernel = compile(text, threads=1, **options)
    assert kernel.ir("raised").count("linalg_ext.softmax") == softmaxes, kernel.explain()
    assert kernel.ir("fused").count("linalg_ext.softmax") == softmaxes
    assert relative_error(kernel(*inputs), expected) < TOLERANCE[graph.kind]


def check_on_gpu(text: str, expected: np.ndarray, inputs: list, kind: str, arch: str) -> None:
    """The kernels for a GPU, at the level of tiles, without one."""
    (found,) = run_module(text, [np.asarray(x, bool if x.dtype == bool else np.float64) for x in inputs], arch=arch)
    assert relative_error(found, expected) < TOLERANCE[kind]


def softmax(s: np.ndarray) -> np.ndarray:
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)

"""Attention graphs as MLIR text, of any shape and many variants, for the numeric tests."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


def tensor(shape, element: str, dynamic: bool = False) -> str:
    return f"tensor<{''.join(('?' if dynamic else str(s)) + 'x' for s in shape)}{element}>"


@dataclass(frozen=True)
class Attention:
    """softmax(mod(Q·Kᵀ))·V; `batch` dimensions, m queries, k keys, d and dv head sizes.

    `matmul`: the contraction's op: "matmul" (no batch), "batch_matmul" (one), "ext" (any) or "generic" (any).
    `layout`: of ext's first matmul. `modify`: what stands between the first matmul and softmax: none, scale or causal.
    `returns`: what is returned besides the output: "max", "accum", "scores", "result".
    """

    m: int
    k: int
    d: int
    dv: int
    batch: tuple[int, ...] = ()
    matmul: str = "ext"
    layout: str = "nn"
    modify: str = "none"
    softmax: str = "softmax"
    element: str = "f64"
    dynamic: bool = False
    returns: tuple[str, ...] = field(default=())

    def shapes(self) -> list[tuple[int, ...]]:
        """Of q, k and v."""
        q = (self.m, self.d) if self.layout[0] == "n" else (self.d, self.m)
        k = (self.d, self.k) if self.layout[1] == "n" else (self.k, self.d)
        return [(*self.batch, *q), (*self.batch, *k), (*self.batch, self.k, self.dv)]

    def inputs(self, seed: int = 0) -> list[np.ndarray]:
        rng = np.random.default_rng(seed)
        return [rng.standard_normal(s) for s in self.shapes()]

    def text(self) -> str:
        return _Writer(self).function()


class _Writer:
    def __init__(self, graph: Attention):
        self.g = graph
        self.lines: list[str] = []
        self.sizes: dict[int, str] = {}

    def t(self, *shape: int) -> str:
        return tensor(shape, self.g.element, self.g.dynamic)

    def empty(self, name: str, dims: list[str], shape: list[int]) -> None:
        sizes = ", ".join(dims) if self.g.dynamic else ""
        self.lines.append(f"%{name} = tensor.empty({sizes}) : {self.t(*shape)}")

    def filled(self, name: str, value: str, dims: list[str], shape: list[int]) -> None:
        self.empty(f"{name}_e", dims, shape)
        kind = self.t(*shape)
        self.lines.append(f"%{name} = linalg.fill ins({value} : {self.g.element}) outs(%{name}_e : {kind}) -> {kind}")

    def contraction(self, name: str, a: str, a_shape, b: str, b_shape, c: str, c_shape, layout: str) -> None:
        types = self.t(*a_shape), self.t(*b_shape), self.t(*c_shape)
        ins = f"ins({a}, {b} : {types[0]}, {types[1]}) outs({c} : {types[2]})"
        if self.g.matmul == "ext":
            self.lines.append(f'%{name} = linalg_ext.batch_matmul {ins} layout = "{layout}"')
            return
        if self.g.matmul in ("matmul", "batch_matmul"):
            assert layout == "nn"
            self.lines.append(f"%{name} = linalg.{self.g.matmul} {ins} -> {types[2]}")
            return
        rank = len(c_shape)
        loops = [f"d{i}" for i in range(rank + 1)]
        *batch, m, n, k = loops
        lhs = [m, k] if layout[0] == "n" else [k, m]
        rhs = [k, n] if layout[1] == "n" else [n, k]
        maps = ", ".join(
            f"affine_map<({', '.join(loops)}) -> ({', '.join([*batch, *dims])})>" for dims in (lhs, rhs, [m, n])
        )
        kinds = ", ".join(['"parallel"'] * rank + ['"reduction"'])
        e = self.g.element
        self.lines.append(
            f"%{name} = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}} {ins} {{\n"
            f"  ^bb0(%x: {e}, %y: {e}, %z: {e}):\n"
            f"    %prod = arith.mulf %x, %y : {e}\n    %sum = arith.addf %z, %prod : {e}\n    linalg.yield %sum : {e}\n"
            f"  }} -> {types[2]}"
        )

    def modified(self, shape) -> str:
        """The scores after scale or mask; the mask is computed from indices."""
        g, kind, rank = self.g, self.t(*shape), len(shape)
        if g.modify == "none":
            return "%s"
        loops = ", ".join(f"d{i}" for i in range(rank))
        identity = f"affine_map<({loops}) -> ({loops})>"
        kinds = ", ".join(['"parallel"'] * rank)
        body = [f"%y = arith.mulf %x, %half : {g.element}"]
        if g.modify == "causal":
            body += [
                f"%i = linalg.index {rank - 2} : index",
                f"%j = linalg.index {rank - 1} : index",
                "%dead = arith.cmpi sgt, %j, %i : index",
                f"%w = arith.select %dead, %minus_inf, %y : {g.element}",
            ]
        last = "%w" if g.modify == "causal" else "%y"
        self.empty("mod_e", self.dims(("b", "m", "k")), list(shape))
        self.lines.append(
            f"%mod = linalg.generic {{indexing_maps = [{identity}, {identity}], iterator_types = [{kinds}]}} "
            f"ins(%s : {kind}) outs(%mod_e : {kind}) {{\n  ^bb0(%x: {g.element}, %old: {g.element}):\n    "
            + "\n    ".join(body)
            + f"\n    linalg.yield {last} : {g.element}\n  }} -> {kind}"
        )
        return "%mod"

    def dims(self, names) -> list[str]:
        """SSA names of sizes: b = all batch dimensions."""
        found: list[str] = []
        for name in names:
            found += [f"%b{i}" for i in range(len(self.g.batch))] if name == "b" else [f"%n{name}"]
        return found

    def function(self) -> str:
        g, b = self.g, list(self.g.batch)
        q, k, v = g.shapes()
        scores, rows, out = [*b, g.m, g.k], [*b, g.m], [*b, g.m, g.dv]
        args = ", ".join(f"%{n}: {self.t(*s)}" for n, s in zip("qkv", (q, k, v), strict=True))
        if g.dynamic:
            for i in range(len(q)):
                self.lines.append(f"%c{i} = arith.constant {i} : index")
            for i in range(len(b)):
                self.lines.append(f"%b{i} = tensor.dim %q, %c{i} : {self.t(*q)}")
            at = len(b) + (0 if g.layout[0] == "n" else 1)
            self.lines.append(f"%nm = tensor.dim %q, %c{at} : {self.t(*q)}")
            self.lines.append(f"%nk = tensor.dim %v, %c{len(b)} : {self.t(*v)}")
            self.lines.append(f"%nd = tensor.dim %v, %c{len(b) + 1} : {self.t(*v)}")
        e = g.element
        self.lines.append(f"%zero = arith.constant 0.0 : {e}")
        self.lines.append(f"%half = arith.constant 0.5 : {e}")
        bits = {"f64": "0xFFF0000000000000", "f32": "0xFF800000", "f16": "0xFC00", "bf16": "0xFF80"}[e]
        self.lines.append(f"%minus_inf = arith.constant {bits} : {e}")
        self.filled("s0", "%zero", self.dims(("b", "m", "k")), scores)
        self.filled("m0", "%minus_inf", self.dims(("b", "m")), rows)
        self.filled("a0", "%zero", self.dims(("b", "m")), rows)
        self.filled("o0", "%zero", self.dims(("b", "m", "d")), out)
        self.empty("p0", self.dims(("b", "m", "k")), scores)
        self.empty("f0", self.dims(("b", "m")), rows)
        self.contraction("s", "%q", q, "%k", k, "%s0", scores, g.layout)
        x = self.modified(scores)
        row, square = self.t(*rows), self.t(*scores)
        self.lines.append(
            f"%p:4 = linalg_ext.{g.softmax} dimension({len(scores) - 1}) ins({x} : {square}) "
            f"outs(%p0, %m0, %a0, %f0 : {square}, {row}, {row}, {row}) : {square}, {row}, {row}, {row}"
        )
        self.contraction("o", "%p#0", scores, "%v", v, "%o0", out, "nn")
        named = {"max": ("%p#1", row), "accum": ("%p#2", row), "scores": ("%s", square), "result": ("%p#0", square)}
        results = [("%o", self.t(*out))] + [named[n] for n in g.returns]
        kinds = ", ".join(kind for _, kind in results)
        self.lines.append(f"return {', '.join(value for value, _ in results)} : {kinds}")
        body = "\n".join(self.lines)
        return f"func.func @attention({args}) -> ({kinds}) {{\n{body}\n}}\n"

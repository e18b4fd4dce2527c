"""Random graphs around attention as MLIR text, each op computed in numpy and float64 as it is written.

    graph = RandomGraph(choose)       # `choose(options)` picks one: of random.Random, or drawn by hypothesis
    graph.text                        # func.func @attention
    graph.inputs, graph.expected      # arrays; what numpy computes, independently of the compiler's evaluator

What a graph may be: any order of dimensions in memory, batch dimensions of any number, shared heads, dynamic and static
sizes side by side, named ops and generics, what stands between the matmuls in one op or several, softmax written out in
many ways (and some that are none), statistics and intermediate values returned, a second attention on the first or
on its keys.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

DTYPES = {
    "f64": np.float64,
    "f32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f8E4M3FN": ml_dtypes.float8_e4m3fn,
    "f8E5M2": ml_dtypes.float8_e5m2,
    "i1": np.bool_,
}
BITS = {"f64": "0xFFF0000000000000", "f32": "0xFF800000", "f16": "0xFC00", "bf16": "0xFF80"}
WIDTHS = {"f64": 64, "f32": 32, "f16": 16, "bf16": 16, "f8E4M3FN": 8, "f8E5M2": 8}


@dataclass(frozen=True)
class Value:
    """A tensor: its name, a letter for each dimension, the letters whose sizes its type leaves open, its numbers."""

    name: str
    dims: str
    element: str
    open: frozenset[str]
    array: np.ndarray


@dataclass(frozen=True)
class Scalar:
    """A value in the body of an op, with its numbers for all iterations."""

    name: str
    array: Any
    element: str


class Body:
    """The region of a linalg.generic over `loops`."""

    def __init__(self, graph: RandomGraph, loops: str):
        self.graph, self.loops, self.lines = graph, loops, []

    def say(self, op: str, element: str, array: Any) -> Scalar:
        name = self.graph.new("s")
        self.lines.append(f"    {name} = {op}")
        return Scalar(name, array, element)

    def constant(self, number: float, element: str) -> Scalar:
        text = BITS[element] if number == -math.inf else f"{number:.17e}"
        value = float(np.asarray(number).astype(DTYPES[element]))
        return self.say(f"arith.constant {text} : {element}", element, value)

    def binary(self, op: str, a: Scalar, b: Scalar) -> Scalar:
        function = {"addf": np.add, "subf": np.subtract, "mulf": np.multiply, "divf": np.divide}
        function |= {"maximumf": np.maximum, "maxnumf": np.maximum, "minimumf": np.minimum}
        return self.say(f"arith.{op} {a.name}, {b.name} : {a.element}", a.element, function[op](a.array, b.array))

    def unary(self, op: str, a: Scalar) -> Scalar:
        function = {"exp": np.exp, "exp2": np.exp2, "tanh": np.tanh, "log": np.log, "absf": np.abs, "sqrt": np.sqrt}
        return self.say(f"math.{op} {a.name} : {a.element}", a.element, function[op](a.array))

    def cast(self, a: Scalar, element: str) -> Scalar:
        if WIDTHS[a.element] == WIDTHS[element]:
            return a
        op = "extf" if WIDTHS[element] > WIDTHS[a.element] else "truncf"
        return self.say(f"arith.{op} {a.name} : {a.element} to {element}", element, a.array)

    def index(self, letter: str) -> Scalar:
        i = np.arange(self.graph.sizes[letter]).reshape([-1 if other == letter else 1 for other in self.loops])
        return self.say(f"linalg.index {self.loops.index(letter)} : index", "index", i)

    def number(self, i: Scalar, element: str) -> Scalar:
        wide = self.say(f"arith.index_cast {i.name} : index to i64", "i64", i.array)
        return self.say(f"arith.sitofp {wide.name} : i64 to {element}", element, i.array.astype(float))

    def less(self, a: Scalar, b: Scalar) -> Scalar:
        op = self.graph.choose(("sgt", "slt"))
        x, y = (b, a) if op == "sgt" else (a, b)
        return self.say(f"arith.cmpi {op}, {x.name}, {y.name} : {a.element}", "i1", a.array < b.array)

    def select(self, c: Scalar, a: Scalar, b: Scalar) -> Scalar:
        array = np.where(c.array, a.array, b.array)
        return self.say(f"arith.select {c.name}, {a.name}, {b.name} : {a.element}", a.element, array)


class RandomGraph:
    def __init__(self, choose: Callable[[Sequence], Any], elements: Sequence[str] = tuple(WIDTHS)):
        self.choose, self.lines, self.counter = choose, [], 0
        self.arguments: list[str] = []
        self.inputs: list[np.ndarray] = []
        self.element = choose(elements)
        self.wide = "f64" if self.element == "f64" else choose((*(["f32"] * 4), "f64"))
        if self.element in ("f16", "bf16") and choose((False, False, False, True)):
            self.wide = self.element
        self.rng = np.random.default_rng(choose(range(1000)))
        extent = (1, 2, 3, 4, 5, 7, 8, 16, 17, 33)
        self.batch = choose(("", "b", "bh", "abh", "bhg", "g"))
        self.sizes = {letter: choose((1, 2, 3)) for letter in "abhg"}
        self.sizes |= {letter: choose(extent) for letter in "mndvw"}
        empty = choose(("", *[""] * 24, "m", "b", "d"))
        if empty:
            self.sizes[empty] = 0
        self.dynamic = frozenset(letter for letter in "bhmndv" if choose((False, False, True)))
        self.symbols: dict[str, str] = {}
        results = self.build()
        kinds = ", ".join(self.type(value) for value in results)
        body = "\n".join(self.lines)
        names = ", ".join(value.name for value in results)
        head = f"func.func @attention({', '.join(self.arguments)}) -> ({kinds})"
        self.text = f"{head} {{\n{body}\n  return {names} : {kinds}\n}}\n"
        self.expected = [value.array for value in results]

    # Text.

    def new(self, prefix: str = "t") -> str:
        self.counter += 1
        return f"%{prefix}{self.counter}"

    def say(self, line: str) -> None:
        self.lines.append(f"  {line}")

    def maybe(self, one_in: int) -> bool:
        return self.choose([False] * (one_in - 1) + [True])

    def shuffled(self, dims: str) -> str:
        rest, found = list(dims), ""
        while rest:
            found += rest.pop(rest.index(self.choose(rest)))
        return found

    def type(self, value: Value) -> str:
        return self.tensor(value.dims, value.element, value.open)

    def tensor(self, dims: str, element: str, open_: frozenset[str]) -> str:
        sizes = ("?" if letter in open_ else str(self.sizes[letter]) for letter in dims)
        return f"tensor<{''.join(f'{size}x' for size in sizes)}{element}>"

    def shape(self, dims: str) -> tuple[int, ...]:
        return tuple(self.sizes[letter] for letter in dims)

    def opened(self, dims: str) -> frozenset[str]:
        """The dimensions that are dynamic here: those of unknown size, now and then others."""
        return frozenset(letter for letter in dims if letter in self.dynamic or (self.dynamic and self.maybe(12)))

    def size(self, letter: str) -> str:
        if letter not in self.symbols:
            name = self.symbols[letter] = self.new("n")
            if letter not in self.dynamic:
                self.say(f"{name} = arith.constant {self.sizes[letter]} : index")
            else:
                value = next(a for a in self.given if letter in a.dims)
                at = self.new("c")
                self.say(f"{at} = arith.constant {value.dims.index(letter)} : index")
                self.say(f"{name} = tensor.dim {value.name}, {at} : {self.type(value)}")
        return self.symbols[letter]

    def argument(self, dims: str, element: str = "", scale: float = 1.0) -> Value:
        element = element or self.element
        array = self.rng.standard_normal(self.shape(dims)) * scale
        if element == "i1":
            array = self.rng.random(self.shape(dims)) < 0.7
            if "n" in dims:
                np.moveaxis(array, dims.index("n"), 0)[:1] = True
        array = np.asarray(array).astype(DTYPES[element])
        value = Value(
            self.new("a"), dims, element, self.opened(dims), array.astype(np.float64) if element != "i1" else array
        )
        self.arguments.append(f"{value.name}: {self.type(value)}")
        self.inputs.append(array)
        self.given.append(value)
        return value

    def empty(self, dims: str, element: str, open_: frozenset[str] | None = None) -> tuple[str, frozenset[str]]:
        """`open_`: which dimensions are dynamic, where the op that writes to it leaves no choice."""
        open_ = self.opened(dims) if open_ is None else open_ & frozenset(dims)
        sizes = ", ".join(self.size(letter) for letter in dims if letter in open_)
        name = self.new()
        self.say(f"{name} = tensor.empty({sizes}) : {self.tensor(dims, element, open_)}")
        return name, open_

    def filled(self, number: float, dims: str, element: str, open_: frozenset[str] | None = None) -> Value:
        name, scalar = self.new(), self.new("c")
        text = BITS[element] if number == -math.inf else f"{number:.17e}"
        self.say(f"{scalar} = arith.constant {text} : {element}")
        out, open_ = self.empty(dims, element, open_)
        kind = self.tensor(dims, element, open_)
        self.say(f"{name} = linalg.fill ins({scalar} : {element}) outs({out} : {kind}) -> {kind}")
        return Value(name, dims, element, open_, np.full(self.shape(dims), float(number)))

    def generic(self, ins, out: Value, loops: str, over: str, body, names, array) -> Value:
        maps = ", ".join(f"affine_map<({', '.join(loops)}) -> ({', '.join(value.dims)})>" for value in (*ins, out))
        kinds = ", ".join('"reduction"' if letter in over else '"parallel"' for letter in loops)
        given = f" ins({', '.join(v.name for v in ins)} : {', '.join(map(self.type, ins))})" if ins else ""
        arguments = ", ".join(f"{name}: {value.element}" for name, value in zip(names, (*ins, out), strict=True))
        name, kind = self.new(), self.type(out)
        self.say(f"{name} = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}}{given}")
        self.say(f"    outs({out.name} : {kind}) {{\n  ^bb0({arguments}):")
        self.lines += body
        self.say(f"}} -> {kind}")
        return Value(name, out.dims, out.element, out.open, array)

    def aligned(self, value: Value, loops: str) -> np.ndarray:
        order = sorted(range(len(value.dims)), key=lambda i: loops.index(value.dims[i]))
        array = value.array.transpose(order)
        return array.reshape([self.sizes[letter] if letter in value.dims else 1 for letter in loops])

    def ordered(self, array: np.ndarray, loops: str, dims: str) -> np.ndarray:
        """`array` over loops as an array over dims, the others summed up already (of size 1)."""
        whole = np.broadcast_to(array, [self.sizes[x] if x in dims else 1 for x in loops])
        whole = whole.reshape([self.sizes[x] for x in loops if x in dims])
        kept = [x for x in loops if x in dims]
        return whole.transpose([kept.index(x) for x in dims])

    def map(self, ins: Sequence[Value], dims: str, function, element: str = "") -> Value:
        """An element-wise op: `function(body, *scalars)` says what."""
        element = element or self.wide
        name, open_ = self.empty(dims, element)
        loops = self.shuffled(dims) if self.maybe(3) else dims
        body, names = Body(self, loops), [self.new("x") for _ in range(len(ins) + 1)]
        given = [Scalar(x, self.aligned(value, loops), value.element) for x, value in zip(names, ins, strict=False)]
        result = function(body, *given)
        body.lines.append(f"    linalg.yield {result.name} : {element}")
        array = self.ordered(np.asarray(result.array), loops, dims) if dims else np.asarray(result.array).reshape(())
        out = Value(name, dims, element, open_, array)
        return self.generic(ins, out, loops, "", body.lines, names, array)

    def reduced(self, x: Value, over: str, op: str) -> Value:
        """The sum or the maximum of x over a dimension."""
        dims = "".join(letter for letter in x.dims if letter not in over)
        least = self.choose((-math.inf, -math.inf, -1e30 if x.element in ("f64", "f32", "bf16") else -6e4))
        named = self.maybe(3)
        init = self.filled(0.0 if op == "addf" else least, dims, x.element, x.open if named else None)
        axis = x.dims.index(over)
        array = x.array.sum(axis) if op == "addf" else np.max(x.array, axis, initial=least)
        kind = self.type(init)
        if named:
            name = self.new()
            self.say(
                f"{name} = linalg.reduce {{ arith.{op} }} ins({x.name} : {self.type(x)}) outs({init.name} : {kind})"
                f" dimensions = [{axis}]"
            )
            return Value(name, dims, x.element, init.open, array)
        loops = self.shuffled(x.dims) if self.maybe(4) else x.dims
        names = [self.new("x"), self.new("x")]
        a, b = names if self.maybe(2) else reversed(names)
        result = self.new("s")
        body = [f"    {result} = arith.{op} {a}, {b} : {x.element}", f"    linalg.yield {result} : {x.element}"]
        return self.generic([x], init, loops, over, body, names, array)

    def product(self, a: Value, b: Value, dims: str, over: str, element: str) -> Value:
        """The contraction of a and b over `over`, by an op of any kind that can say it."""
        array = np.einsum(f"{a.dims},{b.dims}->{dims}", a.array, b.array)
        init = self.filled(0.0, dims, element)
        batch, (m, n) = dims[:-2], dims[-2:]
        plain = a.dims == batch + m + over and a.element == b.element
        right = {batch + over + n: "nn", batch + n + over: "nt"}.get(b.dims, "")
        ops = ["generic", "generic", "contract"]
        if plain and right and (a.element == element or element == "f32"):
            ops += ["ext", "ext"]
        if plain and right == "nn" and len(batch) < 2:
            ops += ["linalg.batch_matmul" if batch else "linalg.matmul"] * 2
        op = self.choose(ops)
        ins = f"ins({a.name}, {b.name} : {self.type(a)}, {self.type(b)}) outs({init.name} : {self.type(init)})"
        loops = self.shuffled(dims + over) if self.maybe(3) else dims + over
        if op == "generic":
            names = [self.new("x") for _ in range(3)]
            body = Body(self, loops)
            x, y = (body.cast(Scalar(name, 0.0, v.element), element) for name, v in zip(names, (a, b), strict=False))
            p, s = self.new("s"), self.new("s")
            body.lines.append(f"    {p} = arith.mulf {x.name}, {y.name} : {element}")
            body.lines.append(f"    {s} = arith.addf {names[2]}, {p} : {element}\n    linalg.yield {s} : {element}")
            return self.generic([a, b], init, loops, over, body.lines, names, array)
        name = self.new()
        if op == "ext":
            self.say(f'{name} = linalg_ext.batch_matmul {ins} layout = "{right}"')
        elif op == "contract":
            maps = (f"affine_map<({', '.join(loops)}) -> ({', '.join(v.dims)})>" for v in (a, b, init))
            self.say(f"{name} = linalg.contract indexing_maps = [{', '.join(maps)}] {ins} -> {self.type(init)}")
        else:
            self.say(f"{name} = {op} {ins} -> {self.type(init)}")
        return Value(name, dims, element, init.open, array)

    # Parts of attention.

    def build(self) -> list[Value]:
        self.given: list[Value] = []
        batch = self.batch
        of_keys = batch.replace("g", "") if self.maybe(2) else batch
        narrow = 0.5 if self.element.startswith("f8") else 1.0
        q = self.argument(self.shuffled(f"{batch}md") if self.maybe(3) else f"{batch}md", scale=narrow)
        k = self.argument(self.shuffled(f"{of_keys}nd") if self.maybe(3) else f"{of_keys}{self.choose(('nd', 'dn'))}")
        v = self.argument(self.shuffled(f"{of_keys}nv") if self.maybe(3) else f"{of_keys}nv")
        q, k, v = (self.prepared(x) for x in (q, k, v))
        results, state = self.attention(q, k, v, "mn", "d", "v")
        if self.maybe(5):  # what came out goes in again, as queries over the same keys, if these have such rows
            other = self.argument(f"{of_keys}nv")
            more, _ = self.attention(results[0], other, v, "mn", "v", "v")
            results += more
        elif self.maybe(6):
            other = self.argument(f"{batch}wd")
            more, _ = self.attention(other, k, v, "wn", "d", "v")
            results += more
        if self.maybe(4):
            results[0] = self.after(results[0])
        for value in state:
            if self.maybe(12):
                results.append(value)
        return results

    def prepared(self, x: Value) -> Value:
        """What may stand before a matmul."""
        what = self.choose(("", "", "", "", "scale", "wide", "move", "shift", "exp", "slice"))
        if what == "wide" and x.element != self.wide:
            return self.map([x], x.dims, lambda body, s: body.cast(s, self.wide))
        if what == "move":
            dims = self.shuffled(x.dims)
            name, open_ = self.empty(dims, x.element, x.open)
            order = [x.dims.index(letter) for letter in dims]
            result = self.new()
            self.say(
                f"{result} = linalg.transpose ins({x.name} : {self.type(x)}) outs({name} : "
                f"{self.tensor(dims, x.element, open_)}) permutation = {order}"
            )
            return Value(result, dims, x.element, open_, x.array.transpose(order))
        if what == "slice" and x.array.size:
            return self.sliced(x)
        if self.element.startswith("f8") or what in ("", "wide", "slice"):
            return x
        if what == "shift":
            row = self.argument(x.dims[-1], x.element)
            return self.map([x, row], x.dims, lambda body, s, r: body.binary("addf", s, r), x.element)
        if what == "exp":
            half = 0.25
            return self.map(
                [x],
                x.dims,
                lambda body, s: body.unary("exp", body.binary("mulf", s, body.constant(half, s.element))),
                x.element,
            )
        return self.map([x], x.dims, lambda b, s: b.binary("mulf", s, b.constant(0.5, s.element)), x.element)

    def sliced(self, x: Value) -> Value:
        """The first elements, in a dimension, of something longer, as of a cache."""
        at = self.choose(range(len(x.dims)))
        name = self.new()
        more = self.rng.standard_normal(self.shape(x.dims)) * 0.5
        array = np.concatenate([x.array, more.astype(DTYPES[x.element])], at).astype(DTYPES[x.element])
        shape = list(array.shape)
        kind = f"tensor<{''.join(f'{size}x' for size in shape)}{x.element}>"
        whole, open_ = self.new("a"), self.opened(x.dims)
        self.arguments.append(f"{whole}: {kind}")
        self.inputs.append(array)
        sizes = ", ".join(self.size(other) if other in open_ else str(self.sizes[other]) for other in x.dims)
        zeros, ones = ", ".join("0" * len(shape)), ", ".join("1" * len(shape))
        self.say(
            f"{name} = tensor.extract_slice {whole}[{zeros}] [{sizes}] [{ones}] : {kind} to "
            f"{self.tensor(x.dims, x.element, open_)}"
        )
        return Value(name, x.dims, x.element, open_, x.array)

    def attention(self, q: Value, k: Value, v: Value, mn: str, d: str, width: str) -> tuple[list[Value], list[Value]]:
        dims = self.batch + mn
        s = self.product(q, k, dims if not self.maybe(5) else self.shuffled(dims), d, self.wide)
        if self.maybe(3) or self.wide in ("f16", "bf16"):
            s = self.map([s], s.dims, lambda b, x: b.binary("mulf", x, b.constant(0.25, x.element)))
        state = [q, k, v, s]
        for _ in range(self.choose((0, 0, 1, 1, 2, 3))):
            s = self.modified(s, mn)
            state.append(s)
        over = mn[1] if not self.maybe(25) else mn[0]
        p, divisor, statistics = self.softmax(s, over)
        state += [p, *statistics]
        kept = p
        if self.maybe(4):
            p = self.linear(p)
        if p.element != v.element and self.maybe(2):
            p = self.map([p], p.dims, lambda b, x: b.cast(x, v.element), v.element)
        out = self.batch + mn[0] + width
        o = self.product(p, v, self.shuffled(out) if self.maybe(4) else out, mn[1], self.wide)
        if divisor is not None:
            o = self.map([o, divisor], o.dims, lambda b, x, y: b.binary("divf", x, y))
        results = [o, *(value for value in (kept, *statistics) if self.maybe(15))]
        return results, state

    def linear(self, p: Value) -> Value:
        what = self.choose(("factor", "mask", "row"))
        if what == "mask":
            keep = self.argument(self.subset(p.dims), "i1")
            return self.map(
                [p, keep],
                p.dims,
                lambda b, x, c: b.select(
                    c, b.binary("mulf", x, b.constant(1.25, x.element)), b.constant(0.0, x.element)
                ),
            )
        factor = self.argument(self.subset(p.dims) if what == "factor" else p.dims[:1], self.wide)
        return self.map([p, factor], p.dims, lambda b, x, y: b.binary("mulf", x, y))

    def after(self, o: Value) -> Value:
        if self.maybe(2):
            more = self.argument(self.subset(o.dims), self.wide)
            return self.map([o, more], o.dims, lambda b, x, y: b.binary(self.choose(("addf", "mulf")), x, y))
        dims = self.shuffled(o.dims)
        return self.map([o], dims, lambda b, x: b.cast(x, self.element), self.element)

    def subset(self, dims: str) -> str:
        kept = "".join(letter for letter in dims if self.maybe(2))
        return self.shuffled(kept) if self.maybe(3) else kept

    def modified(self, s: Value, mn: str) -> Value:
        """What may be done with scores."""
        wide, (m, n) = self.wide, mn
        kind = self.choose(
            ("scale", "cap", "bias", "factor", "causal", "mask", "window", "slope", "steps", "divide", "table")
        )
        dead = self.choose((-math.inf, -math.inf, -1e9 if wide != "f16" else -3e4))
        if kind in ("bias", "factor", "divide"):
            other = self.argument(self.subset(s.dims), wide)
            if kind == "divide":
                return self.map(
                    [s, other],
                    s.dims,
                    lambda b, x, y: b.binary("divf", x, b.binary("addf", b.unary("absf", y), b.constant(1.0, wide))),
                )
            op = "addf" if kind == "bias" else "mulf"
            return self.map([s, other], s.dims, lambda b, x, y: b.binary(op, y, x))
        if kind == "mask":
            keep = self.argument("".join(x for x in s.dims if x == n or self.maybe(2)), "i1")
            return self.map([s, keep], s.dims, lambda b, x, c: b.select(c, x, b.constant(dead, wide)))
        if kind == "table":
            return self.gathered(s, m if self.maybe(3) else n)
        far, cap = self.choose((0, 1, 4)), self.choose((1.0, 3.0))

        def change(b: Body, x: Scalar) -> Scalar:
            if kind == "scale":
                return b.binary("mulf", x, b.constant(cap / 3, wide))
            if kind == "cap":
                c = b.constant(cap, wide)
                return b.binary("mulf", b.unary("tanh", b.binary("divf", x, c)), c)
            if kind == "steps":
                y = b.binary("maximumf", x, b.binary("mulf", x, b.constant(0.1, wide)))
                return b.binary("subf", y, b.unary("absf", x))
            i, j = b.index(m), b.index(n)
            if kind == "slope":
                d = b.say(f"arith.subi {j.name}, {i.name} : index", "index", j.array - i.array)
                return b.binary("addf", x, b.binary("mulf", b.number(d, wide), b.constant(-0.125, wide)))
            c = self.new("c")
            b.lines.append(f"    {c} = arith.constant {far} : index")
            end = b.say(f"arith.addi {i.name}, {c} : index", "index", i.array + far)
            gone = b.less(end, j)
            if kind == "window":  # keys far before the query too, but the first one, which all see
                begin = b.say(f"arith.addi {j.name}, {c} : index", "index", j.array + far)
                zero = self.new("c")
                b.lines.append(f"    {zero} = arith.constant 0 : index")
                first = b.less(Scalar(zero, np.zeros((), int), "index"), j)
                before = b.less(begin, i)
                before = b.say(f"arith.andi {before.name}, {first.name} : i1", "i1", before.array & first.array)
                gone = b.say(f"arith.ori {gone.name}, {before.name} : i1", "i1", gone.array | before.array)
            return b.select(gone, b.constant(dead, wide), x)

        return self.map([s], s.dims, change)

    def gathered(self, s: Value, letter: str) -> Value:
        """Scores plus what a table, which may be longer, says of a query or a key."""
        length = self.sizes[letter] + self.choose((0, 3))
        table = self.rng.standard_normal(length).astype(DTYPES[self.wide])
        name, kind = self.new("a"), f"tensor<{self.choose(('?', length))}x{self.wide}>"
        self.arguments.append(f"{name}: {kind}")
        self.inputs.append(table)

        def change(b: Body, x: Scalar) -> Scalar:
            i = b.index(letter)
            found = table.astype(float)[i.array]
            return b.binary("addf", x, b.say(f"tensor.extract {name}[{i.name}] : {kind}", self.wide, found))

        return self.map([s], s.dims, change)

    def softmax(self, s: Value, over: str) -> tuple[Value, Value | None, list[Value]]:
        """Probabilities; what is left to be divided by, if anything; statistics."""
        wide, rows = self.wide, s.dims.replace(over, "")
        form = self.choose(("op", "op", "before", "reciprocal", "after", "log", "lse", "plain"))
        if over != "n" and form == "after":
            form = "before"
        axis = s.dims.index(over)
        if form == "op" or self.sizes[over] == 0:
            out, open_ = self.empty(s.dims, wide)
            name, kind = self.new(), self.tensor(s.dims, wide, open_)
            self.say(
                f"{name} = linalg.softmax dimension({axis}) ins({s.name} : {self.type(s)}) "
                f"outs({out} : {kind}) -> {kind}"
            )
            x = s.array - s.array.max(axis, keepdims=True, initial=-1e300)
            p = np.exp(x) / np.exp(x).sum(axis, keepdims=True)
            return Value(name, s.dims, wide, open_, p), None, []
        two = self.maybe(3)

        def power(b: Body, x: Scalar) -> Scalar:
            if not two:
                return b.unary("exp", x)
            return b.unary("exp2", b.binary("mulf", x, b.constant(math.log2(math.e), wide)))

        if form == "plain":
            e, statistics, shifted = self.map([s], s.dims, power), [], s
        else:
            top = self.spread(self.reduced(s, over, self.choose(("maximumf", "maxnumf"))), s.dims)
            statistics = [top] if top.dims == rows else []
            if self.maybe(2):
                shifted = self.map([s, top], s.dims, lambda b, x, y: b.binary("subf", x, y))
                e = self.map([shifted], s.dims, power)
            else:
                e = self.map([s, top], s.dims, lambda b, x, y: power(b, b.binary("subf", x, y)))
                shifted = None
        total = self.reduced(e, over, "addf")
        statistics.append(total)
        if form == "after":
            return e, total, statistics
        wide_total = self.spread(total, s.dims)
        if form == "reciprocal":
            inverse = self.map([total], total.dims, lambda b, x: b.binary("divf", b.constant(1.0, wide), x))
            return self.map([e, inverse], s.dims, lambda b, x, y: b.binary("mulf", y, x)), None, statistics
        if form == "log" and shifted is not None and shifted is not s:
            log = self.map([total], rows, lambda b, x: b.unary("log", x))
            p = self.map([shifted, log], s.dims, lambda b, x, y: b.unary("exp", b.binary("subf", x, y)))
            return p, None, statistics
        if form == "lse" and statistics[0] is not total:
            lse = self.map([total, statistics[0]], rows, lambda b, x, y: b.binary("addf", b.unary("log", x), y))
            p = self.map([s, lse], s.dims, lambda b, x, y: power(b, b.binary("subf", x, y)))
            return p, None, [*statistics, lse]
        return self.map([e, wide_total], s.dims, lambda b, x, y: b.binary("divf", x, y)), None, statistics

    def spread(self, row: Value, dims: str) -> Value:
        """A statistic as it is, or repeated along the dimension that it lacks."""
        if not self.maybe(3):
            return row
        missing = [i for i, letter in enumerate(dims) if letter not in row.dims]
        open_ = row.open | self.opened("".join(dims[i] for i in missing))
        out, open_ = self.empty(dims, row.element, open_)
        name, kind = self.new(), self.tensor(dims, row.element, open_)
        self.say(
            f"{name} = linalg.broadcast ins({row.name} : {self.type(row)}) outs({out} : {kind}) dimensions = {missing}"
        )
        array = np.broadcast_to(np.expand_dims(row.array, tuple(missing)), self.shape(dims))
        return Value(name, dims, row.element, open_, array)

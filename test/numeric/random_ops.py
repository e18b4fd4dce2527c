"""Ops of linalg on tensors as MLIR text, in forms that are drawn; numpy computes each in float64 as it is written."""

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

    def __init__(self, graph: RandomOps, loops: str):
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


class RandomOps:
    """Writes ops one after the other into `lines`. `choose(options)` picks one of them.

    Who derives from it says what numbers are (`element`, and `wide`, in which scores are computed), how many a letter
    stands for (`sizes`), and which sizes are known at run time only (`dynamic`).
    """

    element: str
    wide: str
    sizes: dict[str, int]
    dynamic: frozenset[str]
    rng: np.random.Generator

    def __init__(self, choose: Callable[[Sequence], Any]):
        self.choose, self.counter = choose, 0
        self.lines: list[str] = []
        self.arguments: list[str] = []
        self.inputs: list[np.ndarray] = []
        self.given: list[Value] = []
        self.symbols: dict[str, str] = {}

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

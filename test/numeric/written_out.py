"""Attention written out in linalg on f64, in many forms: what raise-attention has to see through."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

LOG2E = repr(math.log2(math.e))


def tensor(shape, element: str = "f64") -> str:
    return f"tensor<{''.join(f'{s}x' for s in shape)}{element}>"


@dataclass(frozen=True)
class Written:
    """softmax(mod(Q·Kᵀ))·V over [b, h, …]; the fields say how each part is written."""

    b: int = 2
    h: int = 2
    groups: int = 1  # heads of queries per head of keys
    m: int = 5
    k: int = 7
    d: int = 4
    dv: int = 3
    matmul: str = "batch_matmul"  # batch_matmul on [b·h], generic or ext on [b, h]
    transpose: str = "op"  # of keys: op (linalg.transpose) or map
    scale: str = "scores"  # q, k, both, scores, none
    mask: str = "none"  # none, causal, bias_mk, bias_k, bias_full, bool, iota
    maximum: str = "maximumf"  # maximumf, maxnumf, select, reduce, none
    base: str = "exp"  # exp or exp2
    divide: str = "before"  # before, reciprocal, after
    keep: str = "map"  # how row statistics are broadcast: map, expand, broadcast
    softmax: str = "written"  # written, linalg
    commuted: bool = False
    guard: bool = False  # fully masked rows give 0
    lines: list[str] = field(default_factory=list, compare=False, hash=False)
    names: list[int] = field(default_factory=lambda: [0], compare=False, hash=False)

    # Text.

    def new(self) -> str:
        self.names[0] += 1
        return f"%t{self.names[0]}"

    def say(self, line: str) -> None:
        self.lines.append(f"  {line}")

    def empty(self, shape, element: str = "f64") -> str:
        name = self.new()
        self.say(f"{name} = tensor.empty() : {tensor(shape, element)}")
        return name

    def fill(self, value: str, shape, element: str = "f64") -> str:
        name, out = self.new(), self.empty(shape, element)
        kind = tensor(shape, element)
        self.say(f"{name} = linalg.fill ins({value} : {element}) outs({out} : {kind}) -> {kind}")
        return name

    def generic(self, ins, out, out_map, body, loops, reduction=(), element: str = "f64") -> str:
        """`ins`: (name, shape, map, element); `out`: (name, shape); maps are tuples of loops, "0" allowed."""
        names = [f"d{i}" for i in range(loops)]
        maps = [
            f"affine_map<({', '.join(names)}) -> ({', '.join(f'd{x}' if isinstance(x, int) else x for x in m)})>"
            for m in [*(i[2] for i in ins), out_map]
        ]
        kinds = ", ".join(f'"{"reduction" if i in reduction else "parallel"}"' for i in range(loops))
        name, kind = self.new(), tensor(out[1], element)
        inputs = f" ins({', '.join(i[0] for i in ins)} : {', '.join(tensor(i[1], i[3]) for i in ins)})" if ins else ""
        arguments = ", ".join([*(f"%x{n}: {i[3]}" for n, i in enumerate(ins)), f"%o: {element}"])
        self.say(f"{name} = linalg.generic {{indexing_maps = [{', '.join(maps)}], iterator_types = [{kinds}]}}{inputs}")
        self.say(f"    outs({out[0]} : {kind}) {{")
        self.say(f"  ^bb0({arguments}):")
        for line in body:
            self.say(f"    {line}")
        self.say(f"  }} -> {kind}")
        return name

    def elementwise(self, ins, shape, body, element: str = "f64") -> str:
        n = len(shape)
        return self.generic(ins, (self.empty(shape, element), shape), tuple(range(n)), body, n, element=element)

    def binary(self, op: str, a: str, b: str, commutes: bool = True) -> str:
        return f"{op} {b}, {a}" if self.commuted and commutes else f"{op} {a}, {b}"

    # Shapes.

    @property
    def heads(self) -> int:
        return self.h * self.groups

    @property
    def scores(self):
        return (self.b, self.heads, self.m, self.k)

    @property
    def rows(self):
        return (self.b, self.heads, self.m)

    def arguments(self):
        """(name, shape, element) of every argument."""
        found = [
            ("%q", (self.b, self.heads, self.m, self.d), "f64"),
            ("%k", (self.b, self.h, self.k, self.d), "f64"),
            ("%v", (self.b, self.h, self.k, self.dv), "f64"),
        ]
        shapes = {"bias_mk": (self.m, self.k), "bias_k": (self.b, self.k), "bias_full": self.scores}
        if self.mask in shapes:
            found.append(("%mask", shapes[self.mask], "f64"))
        if self.mask == "bool":
            found.append(("%mask", (self.b, 1, self.m, self.k), "i1"))
        return found

    def inputs(self, seed: int = 0) -> list[np.ndarray]:
        rng = np.random.default_rng(seed)
        arrays = [rng.standard_normal(s) for _, s, _ in self.arguments()]
        if self.mask == "bool":
            arrays[3] = arrays[3] > -0.5
            arrays[3][..., 0] = True
        return arrays

    # Parts.

    def repeated(self, name: str, size: int) -> str:
        """Keys or values for every head of queries."""
        if self.groups == 1:
            return name
        wide = (self.b, self.h, self.groups, self.k, size)
        source = (name, (self.b, self.h, self.k, size), (0, 1, 3, 4), "f64")
        copied = self.elementwise([source], wide, ["linalg.yield %x0 : f64"])
        result, kind = self.new(), tensor((self.b, self.heads, self.k, size))
        self.say(f"{result} = tensor.collapse_shape {copied} [[0], [1, 2], [3], [4]] : {tensor(wide)} into {kind}")
        return result

    def scaled(self, name: str, shape) -> str:
        body = [f"%y = {self.binary('arith.mulf', '%x0', '%half')} : f64", "linalg.yield %y : f64"]
        return self.elementwise([(name, shape, tuple(range(len(shape))), "f64")], shape, body)

    def product(self, a: str, a_shape, b: str, b_shape, shape, b_transposed: bool = False) -> str:
        """a[b, h, m, x]·b[b, h, x, n], or of b[b, h, n, x]."""
        if self.matmul == "batch_matmul":
            if b_transposed:
                b, b_shape = self.transposed(b, b_shape)
            flat = [self.flat(a, a_shape), self.flat(b, b_shape)]
            kinds = [tensor((s[0] * s[1], *s[2:])) for s in (a_shape, b_shape, shape)]
            zeros = self.fill("%zero", (shape[0] * shape[1], *shape[2:]))
            flat_name, name = self.new(), self.new()
            self.say(
                f"{flat_name} = linalg.batch_matmul ins({flat[0]}, {flat[1]} : {kinds[0]}, {kinds[1]}) "
                f"outs({zeros} : {kinds[2]}) -> {kinds[2]}"
            )
            self.say(
                f"{name} = tensor.expand_shape {flat_name} [[0, 1], [2], [3]] output_shape {list(shape)} : "
                f"{kinds[2]} into {tensor(shape)}"
            )
            return name
        zeros = self.fill("%zero", shape)
        if self.matmul == "ext":
            name = self.new()
            layout = "nt" if b_transposed else "nn"
            self.say(
                f"{name} = linalg_ext.batch_matmul ins({a}, {b} : {tensor(a_shape)}, {tensor(b_shape)}) "
                f'outs({zeros} : {tensor(shape)}) layout = "{layout}"'
            )
            return name
        columns = (0, 1, 3, 4) if b_transposed else (0, 1, 4, 3)
        ins = [(a, a_shape, (0, 1, 2, 4), "f64"), (b, b_shape, columns, "f64")]
        if self.commuted:
            ins.reverse()
        body = [
            f"%p = {self.binary('arith.mulf', '%x0', '%x1')} : f64",
            f"%y = {self.binary('arith.addf', '%o', '%p')} : f64",
            "linalg.yield %y : f64",
        ]
        return self.generic(ins, (zeros, shape), (0, 1, 2, 3), body, 5, reduction=(4,))

    def flat(self, name: str, shape) -> str:
        result = self.new()
        kind = tensor((shape[0] * shape[1], *shape[2:]))
        self.say(f"{result} = tensor.collapse_shape {name} [[0, 1], [2], [3]] : {tensor(shape)} into {kind}")
        return result

    def transposed(self, name: str, shape):
        shape_t = (*shape[:2], shape[3], shape[2])
        out, result = self.empty(shape_t), self.new()
        self.say(
            f"{result} = linalg.transpose ins({name} : {tensor(shape)}) outs({out} : {tensor(shape_t)}) "
            "permutation = [0, 1, 3, 2]"
        )
        return result, shape_t

    def reduced(self, name: str, kind: str) -> str:
        """Row statistics of a tensor like the scores: sum, or a maximum in one of its forms."""
        init = self.fill("%zero" if kind == "sum" else "%minus_inf", self.rows)
        if kind == "reduce":
            result = self.new()
            self.say(
                f"{result} = linalg.reduce {{ arith.maximumf }} ins({name} : {tensor(self.scores)}) "
                f"outs({init} : {tensor(self.rows)}) dimensions = [3]"
            )
            return result
        body = {
            "sum": [f"%y = {self.binary('arith.addf', '%x0', '%o')} : f64"],
            "maximumf": [f"%y = {self.binary('arith.maximumf', '%x0', '%o')} : f64"],
            "maxnumf": [f"%y = {self.binary('arith.maxnumf', '%x0', '%o')} : f64"],
            "select": ["%c = arith.cmpf ogt, %x0, %o : f64", "%y = arith.select %c, %x0, %o : f64"],
        }[kind]
        source = (name, self.scores, (0, 1, 2, 3), "f64")
        return self.generic([source], (init, self.rows), (0, 1, 2), [*body, "linalg.yield %y : f64"], 4, reduction=(3,))

    def row(self, name: str, element: str = "f64"):
        """How an element-wise op over the scores reads row statistics."""
        if self.keep == "map":
            return (name, self.rows, (0, 1, 2), element)
        if self.keep == "expand":
            result, wide = self.new(), (*self.rows, 1)
            self.say(
                f"{result} = tensor.expand_shape {name} [[0], [1], [2, 3]] output_shape {list(wide)} : "
                f"{tensor(self.rows, element)} into {tensor(wide, element)}"
            )
            return (result, wide, (0, 1, 2, "0"), element)
        out, result = self.empty(self.scores, element), self.new()
        self.say(
            f"{result} = linalg.broadcast ins({name} : {tensor(self.rows, element)}) "
            f"outs({out} : {tensor(self.scores, element)}) dimensions = [3]"
        )
        return (result, self.scores, (0, 1, 2, 3), element)

    def masked(self, s: str) -> str:
        shape, source = self.scores, (s, self.scores, (0, 1, 2, 3), "f64")
        if self.mask in ("bias_mk", "bias_k", "bias_full"):
            at = {"bias_mk": (2, 3), "bias_k": (0, 3), "bias_full": (0, 1, 2, 3)}[self.mask]
            bias = ("%mask", self.arguments()[3][1], at, "f64")
            body = [f"%y = {self.binary('arith.addf', '%x0', '%x1')} : f64", "linalg.yield %y : f64"]
            return self.elementwise([source, bias], shape, body)
        if self.mask == "bool":
            mask = ("%mask", (self.b, 1, self.m, self.k), (0, "0", 2, 3), "i1")
            body = ["%y = arith.select %x1, %x0, %minus_inf : f64", "linalg.yield %y : f64"]
            return self.elementwise([source, mask], shape, body)
        if self.mask == "iota":
            numbers = ", ".join(map(str, range(self.k)))
            self.say(f"%iota = arith.constant dense<[{numbers}]> : {tensor((self.k,), 'i64')}")
            body = [
                "%two = arith.constant 2 : i64",
                "%c = arith.cmpi slt, %x1, %two : i64",
                "%w = arith.select %c, %half, %zero : f64",
                "%y = arith.addf %x0, %w : f64",
                "linalg.yield %y : f64",
            ]
            return self.elementwise([source, ("%iota", (self.k,), (3,), "i64")], shape, body)
        body = [
            "%i = linalg.index 2 : index",
            "%j = linalg.index 3 : index",
            "%c = arith.cmpi sgt, %j, %i : index",
            "%y = arith.select %c, %minus_inf, %x0 : f64",
            "linalg.yield %y : f64",
        ]
        return self.elementwise([source], shape, body)

    def exponential(self, s: str) -> str:
        ins = [(s, self.scores, (0, 1, 2, 3), "f64")]
        body, last = [], "%x0"
        if self.maximum != "none":
            ins.append(self.row(self.reduced(s, self.maximum)))
            body.append("%s = arith.subf %x0, %x1 : f64")
            last = "%s"
        if self.base == "exp2":
            body += [f"%z = arith.mulf {last}, %log2e : f64", "%y = math.exp2 %z : f64"]
        else:
            body.append(f"%y = math.exp {last} : f64")
        return self.elementwise(ins, self.scores, [*body, "linalg.yield %y : f64"])

    def divided(self, e: str, shape, total: str) -> str:
        body = ["%y = arith.divf %x0, %x1 : f64", "linalg.yield %y : f64"]
        row = self.row(total)
        if len(row[1]) == 4 and row[1][3] != 1 and shape != self.scores:
            row = (total, self.rows, (0, 1, 2), "f64")
        if self.divide == "reciprocal":
            one = ["%r = arith.divf %one, %x0 : f64", "linalg.yield %r : f64"]
            inverse = self.elementwise([(row[0], row[1], tuple(range(len(row[1]))), "f64")], row[1], one)
            row = (inverse, *row[1:])
            body[0] = f"%y = {self.binary('arith.mulf', '%x0', '%x1')} : f64"
        return self.elementwise([(e, shape, (0, 1, 2, 3), "f64"), row], shape, body)

    def guarded(self, p: str, s: str) -> str:
        test = ["%y = arith.cmpf oeq, %x0, %minus_inf : f64", "linalg.yield %y : i1"]
        dead = self.elementwise([(s, self.scores, (0, 1, 2, 3), "f64")], self.scores, test, "i1")
        init = self.fill("%true", self.rows, "i1")
        body = ["%y = arith.andi %x0, %o : i1", "linalg.yield %y : i1"]
        source = (dead, self.scores, (0, 1, 2, 3), "i1")
        every = self.generic([source], (init, self.rows), (0, 1, 2), body, 4, reduction=(3,), element="i1")
        choice = ["%y = arith.select %x1, %zero, %x0 : f64", "linalg.yield %y : f64"]
        return self.elementwise([(p, self.scores, (0, 1, 2, 3), "f64"), self.row(every, "i1")], self.scores, choice)

    def text(self) -> str:
        self.lines.clear()
        self.names[0] = 0
        q, k, v = (a[0] for a in self.arguments()[:3])
        wide_k, wide_v = (self.b, self.heads, self.k, self.d), (self.b, self.heads, self.k, self.dv)
        q_shape, out_shape = (*self.rows, self.d), (*self.rows, self.dv)
        if self.scale in ("q", "both"):
            q = self.scaled(q, q_shape)
        if self.scale in ("k", "both"):
            k = self.scaled(k, (self.b, self.h, self.k, self.d))
        k, v = self.repeated(k, self.d), self.repeated(v, self.dv)
        if self.transpose == "op":
            k, shape_t = self.transposed(k, wide_k)
            s = self.product(q, q_shape, k, shape_t, self.scores)
        else:
            s = self.product(q, q_shape, k, wide_k, self.scores, b_transposed=True)
        if self.scale == "scores":
            s = self.scaled(s, self.scores)
        if self.mask != "none":
            s = self.masked(s)
        if self.softmax == "linalg":
            out, p = self.empty(self.scores), self.new()
            kind = tensor(self.scores)
            self.say(f"{p} = linalg.softmax dimension(3) ins({s} : {kind}) outs({out} : {kind}) -> {kind}")
            result = self.product(p, self.scores, v, wide_v, out_shape)
        else:
            e = self.exponential(s)
            total = self.reduced(e, "sum")
            if self.divide == "after":
                result = self.product(e, self.scores, v, wide_v, out_shape)
                result = self.divided(result, out_shape, total)
            else:
                p = self.divided(e, self.scores, total)
                if self.guard:
                    p = self.guarded(p, s)
                result = self.product(p, self.scores, v, wide_v, out_shape)
        arguments = ", ".join(f"{n}: {tensor(s, e)}" for n, s, e in self.arguments())
        constants = [
            "  %zero = arith.constant 0.0 : f64",
            "  %one = arith.constant 1.0 : f64",
            "  %half = arith.constant 0.5 : f64",
            f"  %log2e = arith.constant {LOG2E} : f64",
            "  %minus_inf = arith.constant 0xFFF0000000000000 : f64",
            "  %true = arith.constant true",
        ]
        kind = tensor(out_shape)
        return "\n".join(
            [
                f"func.func @attention({arguments}) -> {kind} {{",
                *constants,
                *self.lines,
                f"  return {result} : {kind}",
                "}",
            ]
        )

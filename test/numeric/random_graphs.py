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
from typing import Any

import numpy as np
from random_ops import DTYPES, WIDTHS, Body, RandomOps, Scalar, Value


class RandomGraph(RandomOps):
    def __init__(self, choose: Callable[[Sequence], Any], elements: Sequence[str] = tuple(WIDTHS)):
        super().__init__(choose)
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
        results = self.build()
        kinds = ", ".join(self.type(value) for value in results)
        body = "\n".join(self.lines)
        names = ", ".join(value.name for value in results)
        head = f"func.func @attention({', '.join(self.arguments)}) -> ({kinds})"
        self.text = f"{head} {{\n{body}\n  return {names} : {kinds}\n}}\n"
        self.expected = [value.array for value in results]

    def build(self) -> list[Value]:
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

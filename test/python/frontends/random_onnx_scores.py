"""The middle of random models of ONNX: scores, what is done with them, probabilities, the product with the values."""

from __future__ import annotations

from random_onnx_masks import RandomOnnxMasks


class RandomOnnxScores(RandomOnnxMasks):
    """Writes from q, k and v to o."""

    valid: str

    def scores(self) -> None:
        known = self.number("m"), self.number("t")
        self.knows_lengths = None not in known and self.maybe(2)
        if self.knows_lengths:
            self.say(f"m, n = {known[0]}, {known[1]}")
        else:
            self.say(f"m, n = op.size(q, {self.rank - 2}), op.size(k, {self.rank - 2})")
        if self.is_numeric and self.maybe(6):
            self.say("i, j = (op.CumSum(op.filled(op.shape(x), 1, INT64), 0) - 1 for x in (m, n))")
        else:
            self.say("i, j = op.places(m), op.places(n)")
        self.say(f"i, j = op.Unsqueeze(i, [1]), {self.choose(('j', 'op.Unsqueeze(j, [0])'))}")
        self.say("older = n - m")
        self.place_kind = self.choose(("INT64",) * 7 + ("INT32",))
        if self.place_kind == "INT32":
            self.say("i, j = op.cast(i, INT32), op.cast(j, INT32)")
            if not self.knows_lengths:
                self.say("older = op.cast(older, INT32)")
        self.product("s", "q")
        if self.maybe(5):
            self.say("s = op.cast(s, FLOAT)")
        for _ in range(self.choose((1, 0, 2, 3))):
            self.choose(self.CHANGES)(self)
        if self.valid:
            self.say(f"s = op.Where({self.valid}, s, -math.inf)")
        self.probabilities()
        self.weights()
        self.output()

    def einsum(self, left: str, right: str, result: str, operands: str) -> str:
        letters = self.choose(("bhmtdkg", "bnqkhgx", "zyxwvut"))
        equation = f"{left},{right}->{result}".translate(str.maketrans("bhmtdkg", letters))
        return f'op.Einsum({operands}, equation="{equation}")'

    def product(self, name: str, left: str) -> None:
        root = self.width**0.5
        by_size = f" / op.Sqrt(op.cast(op.size(q, {self.rank - 1}), q.kind))"
        by_power = f" * op.cast(op.size(q, {self.rank - 1}), q.kind) ** -0.5"
        scale = self.choose((f" / {root:.3f}", f" * {0.7 / root:.3f}", by_size, by_power))
        way = self.choose(("matmul", "matmul", "einsum", "before", "both", "merged", "fused", "turned"))
        d = self.dims
        if way == "einsum" and "k" not in d and self.is_numeric:
            self.say(f"{name} = {self.einsum(d[:-1] + 'd', d[:-2] + 'td', d, f'{left}, k')}{scale}")
        elif way == "before":
            self.say(f"{name} = ({left}{scale}) @ {self.turned('k', self.rank)}")
        elif way == "both":  # as torch exports its calls
            self.say(f"{name} = ({left} * {root**-0.5:.4f}) @ ({self.turned('k', self.rank)} * {root**-0.5:.4f})")
        elif way == "merged" and d == "bhmt":
            self.say(f"{name} = {left}")
            for x, at, length in ((name, 2, "m"), ("keys", 2, "t")):
                source = name if x == name else "k"
                self.say(f"{x} = op.reshape({source}, -1, {self.part(source, at, length)}, {self.width})")
            self.say(f"{name} = {name} @ op.Transpose(keys, perm=[0, 2, 1])")
            sizes = [self.part("q", 0, "b"), self.heads, self.part("q", 2, "m"), self.part("k", 2, "t")]
            self.say(f"{name} = op.reshape({name}, {', '.join(map(str, sizes))}){scale}")
        elif way == "fused":
            self.say(f'{name} = op.FusedMatMul({left}, k, transB=1, alpha={1 / root:.3f}, domain="com.microsoft")')
        elif way == "turned":
            self.say(f"{name} = {self.turned(f'(k @ {self.turned(left, self.rank)})', self.rank)}{scale}")
        else:
            self.say(f"{name} = {left} @ {self.turned('k', self.rank)}{scale}")

    def output(self) -> None:
        d = self.dims
        if self.maybe(3) and "k" not in d and self.is_numeric:
            self.say(f"o = {self.einsum(d, d[:-2] + 'td', d[:-1] + 'd', 'p, v')}")
        else:
            self.say("o = p @ v")
        if "k" in d:
            kept = [0] * len(self.batch)
            shape = [*kept, self.heads, self.part("o", len(kept) + 2, "m"), self.columns]
            self.say(f"o = op.reshape(o, {', '.join(map(str, shape))})")

    # Changes of the scores `s`.

    def scaled(self) -> None:
        self.say(f"s = {self.choose(('s * 0.5', 's * 1.7', '-s', 's / 0.7', 's * op.Sqrt(op.constant(0.3, s.kind))'))}")

    def slopes(self) -> None:
        lead = ", ".join("1" if d == "b" else str(self.size(d)) for d in self.dims[:-2])
        powers = f"np.exp2(-8 * np.arange(1, {self.heads + 1}) / {self.heads})"
        self.say(f"slopes = op.constant({powers}.reshape({lead}, 1, 1), s.kind)")
        if self.maybe(3) and self.dims == "bhmt" and self.is_numeric:  # BLOOM's
            keep = self.argument("keep", ("b", self.all_keys), "keep")
            self.types[keep] = "INT64"
            self.say(f"at = (op.CumSum({keep}, 1) - 1) * {keep}")
            self.say("s = s + slopes * op.cast(op.Unsqueeze(at, [1, 2]), s.kind)")
        else:
            self.say(f"s = s + slopes * op.cast({self.choose(('j - i', '-op.Abs(i - j)', 'j'))}, s.kind)")

    def capped(self) -> None:
        cap = self.choose((5, 20, 1.5))
        self.say(f"s = {cap} * op.Tanh(s / {cap})" if self.maybe(2) else f"s = op.Tanh(s * {1 / cap}) * {cap}")

    def bent(self) -> None:
        """A function of each score."""
        choices = [
            "op.Relu(s)",
            "op.Clip(s, -2, 3)",
            "op.Min(s, 4)",
            "op.Tanh(s)",
            "op.LeakyRelu(s, alpha=0.1)",
            "s * op.Sigmoid(s)",
            "s * (op.Erf(s / 1.4142) + 1) * 0.5",
            "op.Sigmoid(s) * 3",
            "op.Abs(s)",
            "s ** 2 * 0.1",
            "s * s * 0.1",
            "op.Max(s, s * 0.3)",
            "op.Where(s > 0, s, s * 0.2)",
            "-op.Softplus(-s)",
            "op.Sin(s)",
            "op.Sign(s) * op.Log(op.Abs(s) + 1)",
            'op.FastGelu(s, domain="com.microsoft")',
            'op.QuickGelu(s, domain="com.microsoft")',
            *(["op.Gelu(s)", 'op.Gelu(s, approximate="tanh")'] if self.opset >= 20 else []),
        ]
        self.say(f"s = {self.choose(choices)}")

    def of_places(self) -> None:
        squares = "op.cast(-((i - j) * (i - j)), s.kind)"
        terms = ("op.cast((i * 3 - j) % 5, s.kind)", squares, "op.cast(i % 7, s.kind)")
        clipped = "op.cast(op.Max(op.Min(i / 3 - j / 2, 4), -4), s.kind)"
        self.say(f"s = s + {self.choose((*terms, clipped))} * {self.choose((0.25, 0.1, 0.01))}")

    def decayed(self) -> None:
        self.say(f"s = s * op.constant(0.9, s.kind) ** op.cast({self.choose(('op.Abs(i - j)', 'j % 5'))}, s.kind)")

    def looked_up(self) -> None:
        """T5's and Swin's, of heads too: a table of distances."""
        at = self.choose(("op.Clip(i - j, -4, 4) + 4", "op.Max(op.Min(i - j, 4), -4) + 4", "(i + j) % 9"))
        if self.dims[-3] == "h" and self.maybe(2):
            table = self.argument("table", (9, self.heads), "small")
            self.say(f"found = op.Transpose(op.Gather({table}, {at}), perm=[2, 0, 1])")
        else:
            table = self.argument("table", (9,), "small")
            self.say(f"found = op.Gather({table}, {at})")
        self.say("s = s + op.cast(found, s.kind)")

    def gathered(self) -> None:
        """DeBERTa's: what queries have for each distance."""
        table = self.argument("table", (self.width, 9), "small")
        lead = [self.part("q", at, d) if d == "b" else self.size(d) for at, d in enumerate(self.dims[:-2])]
        at = f"op.Expand(op.Clip(i - j, -4, 4) + 4, op.shape({', '.join(map(str, lead))}, m, n))"
        self.say(
            f"s = s + op.cast(op.GatherElements(q @ {table}, {at}, axis={self.choose((-1, self.rank - 1))}), s.kind)"
        )

    def decomposed(self) -> None:
        """Of an image's rows and columns, as in SAM."""
        n = self.number("t")
        sides = [side for side in (2, 3, 5, 10) if n and n % side == 0 and n > side]
        if not sides or "k" in self.dims:
            return
        height = self.choose(sides)
        down, across = (self.argument("table", (self.width, size), "small") for size in (height, n // height))
        lead = ["0"] * (self.rank - 1)
        self.say(f"s = op.reshape(s, {', '.join([*lead, str(height), str(n // height)])})")
        self.say(f"s = s + op.Unsqueeze(op.cast(q @ {down}, s.kind), [-1])")
        self.say(f"s = s + op.Unsqueeze(op.cast(q @ {across}, s.kind), [{self.rank - 1}])")
        self.say(f"s = op.reshape(s, {', '.join([*lead, '-1'])})")

    def shifted(self) -> None:
        """Relative positions as in Transformer-XL: one more column, and rows that are cut elsewhere."""
        m, n = self.number("m"), self.number("t")
        if m is None or n is None or "k" in self.dims:
            return
        table = self.argument("table", (self.width, n), "small")
        pads = [*[0] * (self.rank - 1), 1, *[0] * self.rank]
        lead = [self.part("q", at, d) if d == "b" else self.size(d) for at, d in enumerate(self.dims[:-2])]
        self.say(f"r = op.Pad(q @ {table}, {pads})")
        self.say(f"r = op.cut(op.reshape(r, {', '.join(map(str, [*lead, n + 1, m]))}), {self.rank - 2}, 1, 99999)")
        self.say(f"s = s + op.cast(op.reshape(r, {', '.join(map(str, [*lead, m, n]))}), s.kind)")

    def doubled(self) -> None:
        """Another product of matrices."""
        self.product("r", self.choose(("(q * 0.5)", "op.Tanh(q)")))
        self.say("r = op.cast(r, s.kind)")
        self.say(self.choose(("s = s * r", "s = s + r", "s = s - op.Relu(r)")))

    def per_head(self) -> None:
        shape = [1 if d == "b" else self.size(d) for d in self.dims[:-2]]
        scale = self.argument("scale", (*shape, 1, 1), "positive")
        self.say(f"by = op.cast({scale}, s.kind)")
        self.say(self.choose(("s = s * by", "s = s / by", "s = s * op.Exp(by - 1)")))

    def tempered(self) -> None:
        shape = [self.size(d) if d in "bm" else 1 for d in self.dims]
        heat = self.argument("heat", self.choose(((), shape)), "positive")
        self.say(f"s = s {self.choose('/*')} op.cast({heat}, s.kind)")

    def of_keys_only(self) -> None:
        """A term for each key, or each query."""
        u = self.argument("u", (self.width, 1), "small")
        term = self.choose((self.turned(f"(k @ {u})", self.rank), f"(q @ {u})"))
        self.say(f"s = s + op.cast({term}, s.kind)")

    def centred(self) -> None:
        what = self.choose(("ReduceMean", "ReduceMax"))
        what = "ReduceMax" if self.is_masked_with(str(self.least)) else what
        self.say(f"s = s - op.{what}(s, axes=[-1], keepdims=1)")

    def halved(self) -> None:
        self.say("s = op.cast(s)")

    def biased(self) -> None:
        bias = self.argument("bias", self.broadcast(), "small")
        self.say(self.choose((f"s = s + op.cast({bias}, s.kind)", f"s = s - op.cast({bias}, s.kind) * 2")))

    CHANGES = (
        *(scaled, biased, slopes, capped, bent, bent, of_places, decayed, looked_up, doubled, per_head, tempered),
        *(of_keys_only, centred, halved, gathered, decomposed, shifted),
        *(RandomOnnxMasks.causal, RandomOnnxMasks.causal, RandomOnnxMasks.window, RandomOnnxMasks.pattern),
        *(RandomOnnxMasks.triangle, RandomOnnxMasks.buffer, RandomOnnxMasks.kept, RandomOnnxMasks.masked),
        *(RandomOnnxMasks.cached, RandomOnnxMasks.padded, RandomOnnxMasks.segments),
    )

    # Of the scores `s` the probabilities `p`.

    def probabilities(self) -> None:
        kinds = ("softmax",) * 4 + ("wide", "axis", "turned", "shifted", "plain", "log", "lse", "one more", "sinks")
        kind = self.choose((*kinds, "no NaN", "sigmoid", "relu", "difference", "twice", "power", "exp"))
        kind = "log" if kind == "lse" and self.is_masked_with(str(self.least)) else kind
        shifted = "e = op.Exp(s - op.ReduceMax(s, axes=[-1]))"
        count = str(self.number("t")) if self.knows_lengths else "op.cast(n, s.kind)"
        across = self.turned(f"op.Softmax({self.turned('s', self.rank)}, axis={self.rank - 2})", self.rank)
        lines = {
            "softmax": ["p = op.Softmax(s, axis=-1)"],
            "wide": ["p = op.cast(op.Softmax(op.cast(s, FLOAT), axis=-1))"],
            "axis": [f"p = op.Softmax(s, axis={self.rank - 1})"],
            "turned": [f"p = {across}"],
            "shifted": [shifted, "p = e / op.ReduceSum(e, axes=[-1])"],
            "plain": ["e = op.Exp(op.Tanh(s))", "p = e / op.ReduceSum(e, axes=[-1])"],
            "log": ["p = op.Exp(op.LogSoftmax(s, axis=-1))"],
            "lse": ["lse = op.ReduceLogSumExp(s, axes=[-1])", "p = op.Exp(s - lse)"],
            "one more": [shifted, "p = e / (op.ReduceSum(e, axes=[-1]) + 1)"],
            "no NaN": ["p = op.Softmax(s, axis=-1)", "p = op.Where(op.IsNaN(p), op.constant(0.0, p.kind), p)"],
            "sigmoid": ["p = op.Sigmoid(s - 2.5)"],
            "relu": [f"p = op.Relu(s) ** 2 / {count}"],
            "difference": ["p = op.Softmax(s, axis=-1) - 0.4 * op.Softmax(s * 0.5, axis=-1)"],
            "twice": ["p = op.Softmax(s, axis=-1)", "p = op.Softmax(p * 3, axis=-1)"],
            "power": [
                shifted.replace("Exp(", "Pow(op.constant(2.0, s.kind), "),
                "p = e * (1 / op.ReduceSum(e, axes=[-1]))",
            ],
            "exp": [f"p = op.Exp(op.Tanh(s)) / {count}"],
        }
        if kind == "sinks":
            self.sinks()
        else:
            self.lines += lines[kind]
        if kind == "lse" and self.maybe(3):
            self.results.append("lse")

    def sinks(self) -> None:
        shape = [1 if d == "b" else self.size(d) for d in self.dims[:-2]]
        sink = self.argument("sink", (*shape, 1, 1), "small")
        lead = [self.part("q", at, d) if d in "bm" else self.size(d) for at, d in enumerate(self.dims[:-1])]
        self.say(f"sink = op.Expand(op.cast({sink}, s.kind), op.shape({', '.join(map(str, lead))}, 1))")
        self.say("p = op.Softmax(op.Concat(s, sink, axis=-1), axis=-1)")
        self.say(f"p = op.cut(p, {self.choose((-1, self.rank - 1))}, 0, -1)")

    def weights(self) -> None:
        kinds = ("dropout", "dropped", "renormalised", "squared", "places", "heads", "clamped", "returned", "summed")
        what = self.choose((*[""] * 5, *kinds))
        if what == "dropout":
            self.say("p = op.Dropout(p)")
        elif what == "dropped":
            keep = self.argument("left", self.broadcast(last="mt"), "keep")
            self.say(f"p = op.Where({keep}, p, 0)" if self.maybe(2) else f"p = p * op.cast({keep}, p.kind) / 0.9")
        elif what == "renormalised":
            self.say("p = p * op.cast(j % 3 + 1, p.kind)" if self.maybe(2) else "p = p * p")
            self.say(f"p = p / {self.choose(('(op.ReduceSum(p, axes=[-1]) + 1e-6)', 'op.ReduceSum(p, axes=[-1])'))}")
        elif what == "squared":
            self.say("p = p * p")
        elif what == "places":
            self.say("p = p * op.constant(0.9, p.kind) ** op.cast(j, p.kind)")
        elif what == "heads":
            shape = [1 if d == "b" else self.size(d) for d in self.dims[:-2]]
            self.say(f"p = p * op.cast({self.argument('gate', (*shape, 1, 1), 'positive')}, p.kind)")
        elif what == "clamped":
            self.say("p = op.Clip(p * 1.2 - 0.1, 0, 1)")
        elif what == "returned":
            self.results.append("p")
        self.say("p = op.cast(p)")
        if what == "summed":  # now: values may be another layer's at the end
            total = self.choose(("(p, axes=[-2], keepdims=0)", "(p @ v, axes=[-1], keepdims=0)", "(p, axes=[-1])"))
            self.results.append(f"sums{len(self.results)}")
            self.say(f"{self.results[-1]} = op.{self.choose(('ReduceSum', 'ReduceMean'))}{total}")

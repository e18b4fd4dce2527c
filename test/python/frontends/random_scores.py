"""The middle of random programs: scores, what is done with them, probabilities, and the product with the values."""

from __future__ import annotations

from random_source import RandomSource


class RandomScores(RandomSource):
    """Writes from q, k and v to o."""

    width: int
    valid: str
    is_shared: bool
    drops: bool  # whether some of the probabilities are dropped at random

    def scores(self) -> None:
        self.say("m, n = q.shape[-2], k.shape[-2]")
        self.say("i, j = torch.arange(m)[:, None], torch.arange(n)")
        if self.is_shared or self.maybe(4):
            self.call()
            return
        self.product("s", "q")
        if self.maybe(5):
            self.say("s = wider(s)")
        for _ in range(self.choose((1, 0, 2, 3))):
            self.choose(self.CHANGES)(self)
        if self.valid:
            self.say(f"s = s.masked_fill(j >= {self.valid}, -torch.inf)")
        self.probabilities()
        orders = ((self.dropped, self.weights), (self.weights, self.dropped))
        for step in self.choose(orders) if self.drops else (self.weights,):
            step()
        if self.maybe(3) and "k" not in self.dims:
            d = self.dims
            self.say(f'o = torch.einsum("{d},{d[:-2]}td->{d[:-1]}d", p, v)')
        else:
            self.say("o = p @ v")
        if "k" in self.dims:
            self.say("o = o.flatten(-4, -3)")

    def product(self, name: str, left: str) -> None:
        scale = self.choose((f" / {self.width**0.5:.3f}", f" * {0.7 / self.width**0.5:.3f}"))
        way = self.choose(("matmul", "einsum", "before"))
        if way == "einsum" and "k" not in self.dims:
            d = self.dims
            self.say(f'{name} = torch.einsum("{d[:-1]}d,{d[:-2]}td->{d}", {left}, k){scale}')
        elif way == "before":
            self.say(f"{name} = ({left}{scale}) @ k.transpose(-2, -1)")
        else:
            self.say(f"{name} = {left} @ k.mT{scale}")

    def call(self) -> None:
        """F.scaled_dot_product_attention, with a mask or without."""
        mask = self.choose(("", "causal", "keep", "bias", "window"))
        said = {"causal": "is_causal=True", "window": "attn_mask=(i - j).abs() <= 3"}.get(mask, "")
        if self.valid:
            said = f"attn_mask=j.expand(m, n) < {self.valid}"
        elif mask == "keep":
            said = f"attn_mask={self.argument('keep', self.broadcast(last='mn'), 'keep')}"
        elif mask == "bias":
            said = f"attn_mask={self.argument('bias', self.broadcast(last='mn'), 'small')}"
        options = [said, "enable_gqa=True" if self.is_shared else "", f"scale={0.25}" if self.maybe(4) else ""]
        options.append("dropout_p=0.3" if self.drops else "")
        self.say(f"o = F.scaled_dot_product_attention({', '.join(['q, k, v', *filter(None, options)])})")
        if "k" in self.dims:
            self.say("o = o.flatten(-4, -3)")

    def real(self, whole: str) -> str:
        """Integers, to be combined with fractions: torch takes those for f32."""
        return f"({whole}).double()" if self.dtype == "f64" else f"({whole})"

    # Changes of the scores `s`.

    def scaled(self) -> None:
        self.say(f"s = s * {self.choose((0.5, 1.7, -1.0))}")

    def causal(self) -> None:
        hidden = self.choose(("j > i", "j > i + n - m", "j < i", "(j > i) & (j >= 4)", "~(j <= i)"))
        self.hide(hidden)

    def window(self) -> None:
        size = self.choose((0, 3, 16, 40))
        self.hide(
            self.choose((f"(i - j).abs() > {size}", f"(j > i) | (i - j > {size})", f"(i + n - m - j).abs() > {size}"))
        )

    def pattern(self) -> None:
        self.hide(self.choose(("i // 4 != j // 4", "(i - j) % 2 == 1", "(i - j) % 3 != 0", "(j * 5 + i * 3) % 7 > 4")))

    def triangle(self) -> None:
        self.hide("torch.ones(m, n, dtype=torch.bool).triu(1)", "torch.ones(m, n).tril() == 0")

    def hide(self, *hidden: str) -> None:
        """By a mask, in any way of writing that."""
        h = self.choose(hidden)
        least = "torch.finfo(s.dtype).min" if self.dtype in ("f32", "f64") else "-3e4"
        low = self.choose(("-torch.inf", "-torch.inf", "-1e4", least))
        way = self.choose(("masked_fill", "where", "added", "in place", "negated"))
        if way == "masked_fill":
            self.say(f"s = s.masked_fill({h}, {low})")
        elif way == "where":
            self.say(f"s = torch.where({h}, {low}, s)")
        elif way == "added":
            self.say(f"s = s + torch.zeros(m, n, dtype=s.dtype).masked_fill({h}, {low})")
        elif way == "in place":
            self.say(f"s = s.clone().masked_fill_({h}, {low})")
        else:
            self.say(f"s = torch.where(~({h}), s, {low})")

    def kept(self) -> None:
        keep = self.argument("keep", self.broadcast(), "keep")
        self.say(self.choose((f"s = s.masked_fill(~{keep}, -torch.inf)", f"s = torch.where({keep}, s, -1e4)")))

    def padded(self) -> None:
        ones = ", None" * (len(self.dims) - 1)
        if "b" in self.dims:
            self.say(f"s = s.masked_fill(j >= {self.argument('lengths', ('b',), 'lengths')}[:{ones}], -torch.inf)")

    def segments(self) -> None:
        keys = self.argument("segments", (self.all_keys,), "segments")
        if self.all_keys == "m":
            self.say(f"s = s.masked_fill({keys}[:, None] != {keys}, -torch.inf)")
        else:
            self.say(f"s = s.masked_fill({keys} > i, -torch.inf)")

    def slopes(self) -> None:
        lead = ", ".join("1" if d == "b" else str(self.size(d)) for d in self.dims[:-2])
        powers = f"-8 * {self.real(f'torch.arange(1, {self.heads + 1})')} / {self.heads}"
        self.say(f"slopes = torch.exp2({powers}).view({lead}, 1, 1)")
        self.say(f"s = s + (slopes * {self.choose(('(j - i)', '-(i - j).abs()', 'j'))}).to(s.dtype)")

    def capped(self) -> None:
        cap = self.choose((5, 20, 1.5))
        self.say(f"s = {cap} * torch.tanh(s / {cap})")

    def bent(self) -> None:
        """A function of each score."""
        self.say(
            "s = "
            + self.choose(
                (
                    "torch.relu(s)",
                    "s.clamp(-2, 3)",
                    "s.clamp(max=4)",
                    "torch.tanh(s)",
                    "F.leaky_relu(s, 0.1)",
                    "F.silu(s)",
                    "F.gelu(s)",
                    "torch.sigmoid(s) * 3",
                    "s.abs()",
                    "s.square() * 0.1",
                    "torch.maximum(s, 0.3 * s)",
                    "-F.softplus(-s)",
                    "torch.where(s > 0, s, 0.2 * s)",
                    "s.sin()",
                    "torch.sign(s) * torch.log1p(s.abs())",
                )
            )
        )

    def of_places(self) -> None:
        term = self.choose(
            ("(i * 3 - j) % 5", "-((i - j) ** 2)", "j % 7", "(i // 3 - j // 2).clamp(-4, 4)", "(i + j).remainder(3)")
        )
        self.say(f"s = s + ({self.real(term)} * {self.choose((0.25, 0.1, 0.01))}).to(s.dtype)")

    def decayed(self) -> None:
        self.say(f"s = s * (0.9 ** {self.real(self.choose(('(i - j).abs()', 'j % 5')))}).to(s.dtype)")

    def looked_up(self) -> None:
        table = self.argument("table", (9,), "small")
        self.say(f"s = s + {table}[{self.choose(('(i - j).clamp(-4, 4) + 4', 'j % 9', '(i + j) % 9'))}]")

    def written(self) -> None:
        """A slice of the scores is written to."""
        where = self.choose((":3", "1:", "-1:", "::2"))
        self.say("s = s.clone()")
        self.say(f"s[..., {where}] {self.choose(('*= 0.5', '+= 1', '= -1e4'))}")

    def doubled(self) -> None:
        """Another product of matrices."""
        self.product("r", self.choose(("q * 0.5", "q.flip(-2)", "torch.tanh(q)")))
        ways = ["s = s + r", "s = s - r.relu()"]
        if not self.is_masked_with("finfo"):  # of the least number a factor below 0 makes the largest one
            ways.append("s = s * r")
        self.say(self.choose(ways))

    def per_head(self) -> None:
        shape = [1 if d == "b" else self.size(d) for d in self.dims[:-2]]
        scale = self.argument("scale", (*shape, 1, 1), "positive")
        self.say(self.choose((f"s = s * {scale}", f"s = s / {scale}", f"s = s * torch.exp({scale} - 1)")))

    def tempered(self) -> None:
        shape = [self.size(d) if d in "bm" else 1 for d in self.dims]
        heat = self.argument("heat", self.choose(((), shape)), "positive")
        self.say(self.choose((f"s = s / {heat}", f"s = s * {heat}")))

    def of_keys_only(self) -> None:
        """A term for each key, or each query."""
        u = self.argument("u", (self.width,), "small")
        self.say(self.choose((f"s = s + (k @ {u}).unsqueeze(-2)", f"s = s + (q @ {u}).unsqueeze(-1)")))

    def centred(self) -> None:
        what = self.choose(("mean", "amax"))
        self.say(f"s = s - s.{'amax' if self.is_masked_with('finfo') else what}(-1, keepdim=True)")

    def halved(self) -> None:
        self.say("s = s.to(q.dtype)")

    biased, grown = RandomSource.biased, RandomSource.grown
    CHANGES = (
        *(scaled, causal, window, pattern, triangle, kept, padded, segments, biased, slopes, capped, bent, bent),
        *(of_places, decayed, looked_up, written, doubled, per_head, tempered, of_keys_only, centred, halved, grown),
    )

    # Of the scores `s` the probabilities `p`.

    def probabilities(self) -> None:
        kind = self.choose(
            (
                *(
                    "softmax",
                    "softmax",
                    "softmax",
                    "softmax",
                    "wide",
                    "shifted",
                    "plain",
                    "log",
                    "lse",
                    "one more",
                    "sinks",
                ),
                *("sigmoid", "relu", "difference", "twice", "base two", "exp"),
            )
        )
        kind = "log" if kind == "lse" and self.is_masked_with("finfo") else kind
        lines = {
            "softmax": ["p = s.softmax(-1)"],
            "wide": ["p = wider(s).softmax(-1)"],
            "shifted": ["e = torch.exp(s - s.amax(-1, keepdim=True))", "p = e / e.sum(-1, keepdim=True)"],
            "plain": ["e = torch.exp(torch.tanh(s))", "p = e / e.sum(-1, keepdim=True)"],
            "log": ["p = torch.exp(F.log_softmax(s, -1))"],
            "lse": ["lse = torch.logsumexp(s, -1, keepdim=True)", "p = torch.exp(s - lse)"],
            "one more": ["e = torch.exp(s - s.amax(-1, keepdim=True))", "p = e / (1 + e.sum(-1, keepdim=True))"],
            "sigmoid": ["p = torch.sigmoid(s - math.log(n))"],
            "relu": ["p = torch.relu(s).square() / n"],
            "difference": ["p = s.softmax(-1) - 0.4 * (s * 0.5).softmax(-1)"],
            "twice": ["p = s.softmax(-1)", "p = (p * 3).softmax(-1)"],
            "base two": ["e = torch.exp2(s - s.max(-1, keepdim=True).values)", "p = e * (1 / e.sum(-1, keepdim=True))"],
            "exp": ["p = torch.exp(torch.tanh(s)) / n"],
        }
        if kind == "sinks":
            shape = [1 if d == "b" else self.size(d) for d in self.dims[:-2]]
            sink = self.argument("sink", (*shape, 1, 1), "small")
            self.say(f"p = torch.cat([s, {sink}.expand(*s.shape[:-1], 1)], -1).softmax(-1)[..., :-1]")
        else:
            self.lines += lines[kind]
        if kind == "lse" and self.maybe(3):
            self.results.append("lse")

    def dropped(self) -> None:
        self.say(f"p = F.dropout(p, {self.choose((0.3, 0.1))})")

    def weights(self) -> None:
        what = self.choose(
            (
                "",
                "",
                "",
                "",
                "",
                "dropped",
                "renormalised",
                "squared",
                "places",
                "heads",
                "clamped",
                "returned",
                "summed",
            )
        )
        if what == "dropped":
            keep = self.argument("left", self.broadcast(last="mt"), "keep")
            self.say(f"p = p * {keep} / 0.9" if self.maybe(2) else f"p = p.masked_fill(~{keep}, 0)")
        elif what == "renormalised":
            self.say("p = p * (j % 3 + 1)" if self.maybe(2) else "p = p.square()")
            self.say(f"p = p / {self.choose(('(p.sum(-1, keepdim=True) + 1e-6)', 'p.sum(-1, keepdim=True)'))}")
        elif what == "squared":
            self.say("p = p * p")
        elif what == "places":
            self.say(f"p = p * (0.9 ** {self.real('j')}).to(p.dtype)")
        elif what == "heads":
            shape = [1 if d == "b" else self.size(d) for d in self.dims[:-2]]
            self.say(f"p = p * {self.argument('gate', (*shape, 1, 1), 'positive')}")
        elif what == "clamped":
            self.say("p = (p * 1.2 - 0.1).clamp(0, 1)")
        elif what == "returned":
            self.results.append("p")
        summed = self.choose(("p.sum(-2)", "p.amax(-1)", "p.mean(-3)", "(p @ v).sum(-1)")) if what == "summed" else ""
        self.say("p = p.to(v.dtype)")
        if summed:  # now: values may be another layer's at the end
            self.results.append(f"sums{len(self.results)}")
            self.say(f"{self.results[-1]} = {summed}")

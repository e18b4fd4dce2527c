"""The middle of random programs of JAX: scores, what is done with them, probabilities, the product with the values."""

from __future__ import annotations

from random_source import RandomSource


class RandomJaxScores(RandomSource):
    """Writes from q, k and v to o."""

    width: int
    valid: str
    is_shared: bool

    def scores(self) -> None:
        self.say("m, n = q.shape[-2], k.shape[-2]")
        if self.maybe(3):
            self.say("i, j = lax.broadcasted_iota(jnp.int32, (m, n), 0), lax.broadcasted_iota(jnp.int32, (m, n), 1)")
        else:
            self.say("i, j = jnp.arange(m)[:, None], jnp.arange(n)[None, :]")
        if self.is_shared or (self.dtype != "f16" and self.maybe(4)):
            self.call()
            return
        if self.dims == "bhmt" and self.maybe(8):
            self.mapped()
            return
        self.product("s", "q")
        if self.maybe(5):
            self.say("s = wider(s)")
        for _ in range(self.choose((1, 0, 2, 3))):
            self.choose(self.CHANGES)(self)
        if self.valid:
            self.say(f"s = jnp.where(j < {self.valid}, s, -jnp.inf)")
        self.probabilities()
        self.weights()
        self.output()

    def einsum(self, ins: tuple[str, str], out: str, operands: tuple[str, str]) -> str:
        """In any order of the operands, and with any letters."""
        letters = self.choose(("bhmtdkg", "BHTSDKG", "zyxwvut"))
        renamed = str.maketrans("bhmtdkg", letters)
        pairs = list(zip(ins, operands, strict=True))
        if self.maybe(2):
            pairs.reverse()
        subscripts = f"{','.join(one for one, _ in pairs)}->{out}".translate(renamed)
        if self.maybe(4) and ins[0].startswith("b") and "k" not in out:
            b = letters[0]
            subscripts = ",".join("..." + part.removeprefix(b) for part in subscripts.partition("->")[0].split(","))
            subscripts += "->..." + out.translate(renamed).removeprefix(b)
        return f'jnp.einsum("{subscripts}", {", ".join(x for _, x in pairs)})'

    def product(self, name: str, left: str) -> None:
        root = self.width**0.5
        by_array = f" / jnp.sqrt({self.width}.0).astype(q.dtype)"
        scale = self.choose((f" / {root:.3f}", f" * {0.7 / root:.3f}", by_array))
        way = self.choose(("matmul", "einsum", "einsum", "before", "turned", "general", "vmap"))
        d = self.dims
        if way == "einsum" and "k" not in d:
            self.say(f"{name} = {self.einsum((d[:-1] + 'd', d[:-2] + 'td'), d, (left, 'k'))}{scale}")
        elif way == "turned" and "k" not in d:  # keys × queries, which are then put in order
            turned = d[:-2] + d[:-3:-1]
            self.say(f"{name} = {self.einsum((d[:-1] + 'd', d[:-2] + 'td'), turned, (left, 'k'))}.mT{scale}")
        elif way == "general" and "k" not in d:
            lead = tuple(range(len(d) - 2))
            dims = f"((({len(d) - 1},), ({len(d) - 1},)), ({lead}, {lead}))"
            self.say(f"{name} = lax.dot_general({left}, k, {dims}){scale}")
        elif way == "vmap" and "k" not in d:
            inner = "lambda a, c: a @ c.T"
            for _ in d[:-2]:
                inner = f"jax.vmap({inner})"
            self.say(f"{name} = {inner}({left}, k){scale}")
        elif way == "before":
            self.say(f"{name} = ({left}{scale}) @ jnp.swapaxes(k, -2, -1)")
        else:
            self.say(f"{name} = jnp.matmul({left}, k.mT){scale}")

    def output(self) -> None:
        d = self.dims
        way = self.choose(("matmul", "einsum", "einsum", "turned"))
        if way != "matmul" and "k" not in d:
            out = d[:-1] + "d" if way == "einsum" else d[:-2] + "dm"
            self.say(f"o = {self.einsum((d, d[:-2] + 'td'), out, ('p', 'v'))}{'' if way == 'einsum' else '.mT'}")
        else:
            self.say("o = p @ v")
        if "k" in d:
            self.say(f"o = o.reshape(*o.shape[:-4], {self.heads}, *o.shape[-2:])")

    def call(self) -> None:
        """jax.nn.dot_product_attention, whose heads stand after tokens, with a mask or without."""
        mask = self.choose(("", "causal", "keep", "bias", "window"))
        if "k" in self.dims:
            self.say(f"q = q.reshape(*q.shape[:-4], {self.heads}, *q.shape[-2:])")
            self.say("k, v = k[..., 0, :, :], v[..., 0, :, :]")
        said = ""
        if self.columns != self.width:
            more = max(self.width - self.columns, 0)
            self.say(f"v = jnp.pad(v, [(0, 0)] * (v.ndim - 1) + [(0, {more})])[..., :{self.width}]")
        lead = ["b" if self.maybe(2) else 1] if self.batch else []
        heads = [self.heads if self.maybe(2) else 1]
        ones = "[None, None]" if self.batch else "[None]"
        if self.valid:
            said = f"mask=jnp.broadcast_to(j < {self.valid}, (m, n)){ones}"
        elif mask == "window":
            said = f"mask=(jnp.abs(i - j) <= 3){ones}"
        elif mask == "causal":
            said = "is_causal=True"
        elif mask == "keep":
            said = f"mask={self.argument('keep', (*lead, *heads, 'm', self.all_keys), 'keep')}"
        elif mask == "bias":
            said = f"bias={self.argument('bias', (*lead, *heads, 'm', self.all_keys), 'small')}"
        window = "local_window_size=(4, 1)" if self.maybe(6) and not said else ""
        options = [said, "scale=0.25" if self.maybe(4) else "", window]
        turned = ", ".join(f"{x}.swapaxes(-3, -2)" for x in "qkv")
        self.say(f"o = jax.nn.dot_product_attention({', '.join([turned, *filter(None, options)])}).swapaxes(-3, -2)")
        self.columns = self.width

    def mapped(self) -> None:
        """A function of one head, or one query, for all of them; or a loop over parts of the keys."""
        valid = f"s = jnp.where(jnp.arange(k.shape[-2]) < {self.valid}, s, -jnp.inf)" if self.valid else "s = s * 1"
        self.say("def one(q, k, v):")
        self.say(f"    s = q @ k.T / {self.width**0.5:.3f}")
        self.say(f"    {valid}")
        self.say("    return jax.nn.softmax(s, -1) @ v")
        way = self.choose(("vmap", "lax.map", "scan", "fori", "parts", "in_axes"))
        if way == "vmap":
            self.say("o = jax.vmap(jax.vmap(one))(q, k, v)")
        elif way == "in_axes":
            self.say("q, k, v = (x.swapaxes(1, 2) for x in (q, k, v))")
            self.say("o = jax.vmap(jax.vmap(one, in_axes=1, out_axes=1))(q, k, v).swapaxes(1, 2)")
        elif way == "lax.map":
            self.say("o = jax.vmap(lambda a: lax.map(lambda x: one(*x), a))((q, k, v))")
        elif way == "scan":
            self.say("_, o = lax.scan(lambda c, x: (c, jax.vmap(one)(*x)), 0, (q, k, v))")
        elif way == "fori":
            self.say("o = jnp.zeros((*q.shape[:-1], v.shape[-1]), v.dtype)")
            self.say("def write(h, o):")
            self.say("    return o.at[:, h].set(jax.vmap(one)(q[:, h], k[:, h], v[:, h]))")
            self.say("o = lax.fori_loop(0, q.shape[1], write, o)")
        else:
            hidden = f"s = jnp.where(x[2] < {self.valid}, s, -jnp.inf)" if self.valid else "s = s * 1"
            self.say("def step(c, x):")
            self.say("    top, total, o = c")
            self.say(f"    s = wider(q @ x[0].mT) / {self.width**0.5:.3f}")
            self.say(f"    {hidden}")
            self.say("    new = jnp.maximum(top, s.max(-1, keepdims=True))")
            self.say("    e, old = jnp.exp(s - new), jnp.exp(top - new)")
            self.say("    return (new, total * old + e.sum(-1, keepdims=True), o * old + e @ wider(x[1])), None")
            self.say("parts = max(d for d in range(1, 8) if n % d == 0)")
            self.say("lead = q.shape[:-1]")
            self.say("zeros = jnp.zeros(lead, wider(q).dtype)[..., None]")
            self.say("start = zeros - 1e30, zeros, zeros + jnp.zeros(v.shape[-1], zeros.dtype)")
            self.say("rows = [jnp.moveaxis(x.reshape(*x.shape[:-2], parts, n // parts, -1), -3, 0) for x in (k, v)]")
            self.say("(_, total, o), _ = lax.scan(step, start, (*rows, jnp.arange(n).reshape(parts, -1)))")
            self.say("o = (o / total).astype(v.dtype)")

    # Changes of the scores `s`.

    def scaled(self) -> None:
        self.say(f"s = s * {self.choose((0.5, 1.7, -1.0, 'jnp.float32(0.75)', 2))}")

    def causal(self) -> None:
        self.hide("j > i", "j > i + n - m", "j < i", "(j > i) & (j >= 4)", "~(j <= i)")

    def window(self) -> None:
        size = self.choose((0, 3, 16, 40))
        self.hide(f"jnp.abs(i - j) > {size}", f"(j > i) | (i - j > {size})", f"jnp.abs(i + n - m - j) > {size}")

    def pattern(self) -> None:
        self.hide("i // 4 != j // 4", "(i - j) % 2 == 1", "(i - j) % 3 != 0", "(j * 5 + i * 3) % 7 > 4")

    def triangle(self) -> None:
        self.hide(
            "jnp.triu(jnp.ones((m, n), bool), 1)", "jnp.tril(jnp.ones((m, n))) == 0", "~jnp.tri(m, n, dtype=bool)"
        )

    def hide(self, *hidden: str) -> None:
        """By a mask, in any way of writing that."""
        h = self.choose(hidden)
        least = "jnp.finfo(s.dtype).min" if self.dtype == "f32" else "-3e4"
        low = self.choose(("-jnp.inf", "-jnp.inf", "-1e4", least, "-0.7 * float(jnp.finfo(s.dtype).max)"))
        way = self.choose(("where", "added", "negated", "select", "times", "lax"))
        if way == "where":
            self.say(f"s = jnp.where({h}, {low}, s)")
        elif way == "added":
            self.say(f"s = s + jnp.where({h}, {low}, 0.0).astype(s.dtype)")
        elif way == "select":
            self.say(f"s = jnp.select([{h}], [jnp.asarray({low}, s.dtype)], s)")
        elif way == "times":
            self.say(f"s = s - 1e4 * ({h}).astype(s.dtype)")
        elif way == "lax":
            self.say(f"s = lax.select(jnp.broadcast_to({h}, s.shape), jnp.full_like(s, {low}), s)")
        else:
            self.say(f"s = jnp.where(~({h}), s, {low})")

    def kept(self) -> None:
        keep = self.argument("keep", self.broadcast(), "keep")
        self.say(
            self.choose(
                (
                    f"s = jnp.where({keep}, s, -jnp.inf)",
                    f"s = jnp.where({keep}, s, -1e4)",
                    f"s = s + jnp.log({keep}.astype(s.dtype))",
                )
            )
        )

    def padded(self) -> None:
        ones = ", None" * (len(self.dims) - 1)
        if "b" in self.dims:
            lengths = self.argument("lengths", ("b",), "lengths")
            self.say(f"s = jnp.where(j >= {lengths}[:{ones}], -jnp.inf, s)")

    def segments(self) -> None:
        keys = self.argument("segments", (self.all_keys,), "segments")
        if self.all_keys == "m":
            same = self.choose(
                (f"{keys}[:, None] == {keys}", f"(jax.nn.one_hot({keys}, 3) @ jax.nn.one_hot({keys}, 3).T) > 0.5")
            )
            self.say(f"s = jnp.where({same}, s, -jnp.inf)")
        else:
            self.say(f"s = jnp.where({keys} > i, -jnp.inf, s)")

    def slopes(self) -> None:
        lead = ", ".join("1" if d == "b" else str(self.size(d)) for d in self.dims[:-2])
        self.say(f"slopes = jnp.exp2(-8 * jnp.arange(1, {self.heads + 1}) / {self.heads}).reshape({lead}, 1, 1)")
        self.say(f"s = s + (slopes * {self.choose(('(j - i)', '-jnp.abs(i - j)', 'j'))}).astype(s.dtype)")

    def capped(self) -> None:
        cap = self.choose((5, 20, 1.5))
        self.say(f"s = {cap} * jnp.tanh(s / {cap})")

    def bent(self) -> None:
        """A function of each score."""
        self.say(
            "s = "
            + self.choose(
                (
                    "jax.nn.relu(s)",
                    "jnp.clip(s, -2, 3)",
                    "jnp.minimum(s, 4)",
                    "jnp.tanh(s)",
                    "jax.nn.leaky_relu(s, 0.1)",
                    "jax.nn.silu(s)",
                    "jax.nn.gelu(s)",
                    "jax.nn.gelu(s, approximate=False)",
                    "jax.nn.sigmoid(s) * 3",
                    "jnp.abs(s)",
                    "jnp.square(s) * 0.1",
                    "lax.integer_pow(s, 3) * 0.02",
                    "jnp.maximum(s, 0.3 * s)",
                    "-jax.nn.softplus(-s)",
                    "jax.nn.log_sigmoid(s)",
                    "jnp.where(s > 0, s, 0.2 * s)",
                    "jnp.sin(s)",
                    "jnp.sign(s) * jnp.log1p(jnp.abs(s))",
                    "lax.erf(s) * 2",
                    "jnp.arctan(s)",
                    "jnp.logaddexp(s, 0.5)",
                    "jnp.expm1(jnp.minimum(s, 1))",
                    "jnp.cbrt(jnp.square(s) + 1)",
                    "jnp.hypot(s, 1.0)",
                    "jax.nn.elu(s)",
                    "jax.nn.hard_tanh(s / 3) * 3",
                    "lax.clamp(jnp.asarray(-3, s.dtype), s, jnp.asarray(3, s.dtype))",
                )
            )
        )

    def of_places(self) -> None:
        term = self.choose(
            (
                "(i * 3 - j) % 5",
                "-((i - j) ** 2)",
                "j % 7",
                "jnp.clip(i // 3 - j // 2, -4, 4)",
                "jnp.remainder(i + j, 3)",
                "jnp.floor_divide(j - i, 2)",
            )
        )
        self.say(f"s = s + (({term}) * {self.choose((0.25, 0.1, 0.01))}).astype(s.dtype)")

    def decayed(self) -> None:
        self.say(f"s = s * (0.9 ** {self.choose(('jnp.abs(i - j)', '(j % 5)'))}).astype(s.dtype)")

    def forgotten(self) -> None:
        """What stands between a query and a key fades: a running sum."""
        gate = self.argument("gate", (self.all_keys,), "small")
        way = self.choose(
            (
                f"jnp.cumsum(wider({gate}))",
                f"lax.cumsum(wider({gate}), reverse=True)",
                f"lax.associative_scan(jnp.add, wider({gate}))",
            )
        )
        self.say(f"s = s + jax.nn.log_sigmoid({way}).astype(s.dtype)")

    def looked_up(self) -> None:
        table = self.argument("table", (9,), "small")
        place = self.choose(("jnp.clip(i - j, -4, 4) + 4", "jnp.broadcast_to(j % 9, (m, n))", "(i + j) % 9"))
        chosen = f"(jax.nn.one_hot({place}, 9, dtype={table}.dtype) @ {table})"
        self.say(f"s = s + {self.choose((f'{table}[{place}]', f'jnp.take({table}, {place})', chosen))}")

    def written(self) -> None:
        """A slice of the scores is written to."""
        where = self.choose((":3", "1:", "-1:", "::2"))
        self.say(f"s = s.at[..., {where}].{self.choose(('multiply(0.5)', 'add(1)', 'set(-1e4)', 'min(0)', 'max(-1)'))}")

    def doubled(self) -> None:
        """Another product of matrices."""
        self.product("r", self.choose(("q * 0.5", "jnp.flip(q, -2)", "jnp.tanh(q)")))
        self.say(self.choose(("s = s * r", "s = s + r", "s = s - jax.nn.relu(r)")))

    def per_head(self) -> None:
        shape = [1 if d == "b" else self.size(d) for d in self.dims[:-2]]
        scale = self.argument("scale", (*shape, 1, 1), "positive")
        self.say(self.choose((f"s = s * {scale}", f"s = s / {scale}", f"s = s * jnp.exp({scale} - 1)")))

    def tempered(self) -> None:
        shape = [self.size(d) if d in "bm" else 1 for d in self.dims]
        heat = self.argument("heat", self.choose(((), shape)), "positive")
        self.say(
            self.choose(
                (
                    f"s = s / {heat}",
                    f"s = s * {heat}",
                    f"s = lax.cond({heat}.ravel()[0] > 0, lambda s: s * 0.5, lambda s: s, s)",
                )
            )
        )

    def of_keys_only(self) -> None:
        """A term for each key, or each query."""
        u = self.argument("u", (self.width,), "small")
        self.say(self.choose((f"s = s + (k @ {u})[..., None, :]", f"s = s + jnp.expand_dims(q @ {u}, -1)")))

    def centred(self) -> None:
        what = self.choose(("mean", "max"))
        self.say(f"s = s - s.{'max' if self.is_masked_with('finfo') else what}(-1, keepdims=True)")

    def halved(self) -> None:
        self.say("s = s.astype(q.dtype)")

    def promoted(self) -> None:
        self.say(
            self.choose(
                (
                    "s = s + jnp.ones((), jnp.float32)",
                    "s = s * (j > -1)",
                    "s = s * jnp.int32(1)",
                    "s = s + jnp.zeros(n, jnp.bfloat16)",
                )
            )
        )

    def repaired(self) -> None:
        self.say(f"s = jnp.nan_to_num(jnp.where(j == 1, jnp.nan, s), nan={self.choose(('0.0', '-1e4'))})")

    biased, grown = RandomSource.biased, RandomSource.grown
    CHANGES = (
        *(
            scaled,
            causal,
            window,
            pattern,
            triangle,
            kept,
            padded,
            segments,
            biased,
            slopes,
            capped,
            bent,
            bent,
            forgotten,
        ),
        *(of_places, decayed, looked_up, written, doubled, per_head, tempered, of_keys_only, centred, halved, grown),
        *(promoted, repaired),
    )

    # Of the scores `s` the probabilities `p`.

    def probabilities(self) -> None:
        lines = {
            "softmax": ["p = jax.nn.softmax(s, -1)"],
            "wide": ["p = jax.nn.softmax(wider(s), axis=-1)"],
            "where": ["p = jax.nn.softmax(s, axis=-1, where=jnp.broadcast_to(j <= i + n, s.shape))"],
            "stopped": [
                "e = jnp.exp(s - lax.stop_gradient(s.max(-1, keepdims=True)))",
                "p = e / e.sum(-1, keepdims=True)",
            ],
            "reduce": [
                "top = lax.reduce_max(s, (s.ndim - 1,))[..., None]",
                "e = lax.exp(s - top)",
                "p = lax.div(e, jnp.broadcast_to(lax.reduce_sum(e, (s.ndim - 1,))[..., None], e.shape))",
            ],
            "plain": ["e = jnp.exp(jnp.tanh(s))", "p = e / e.sum(-1, keepdims=True)"],
            "log": ["p = jnp.exp(jax.nn.log_softmax(s, -1))"],
            "lse": ["lse = jax.nn.logsumexp(s, -1, keepdims=True)", "p = jnp.exp(s - lse)"],
            "one more": ["e = jnp.exp(s - s.max(-1, keepdims=True))", "p = e / (1 + e.sum(-1, keepdims=True))"],
            "sigmoid": ["p = jax.nn.sigmoid(s - math.log(n))"],
            "relu": ["p = jax.nn.relu(s) ** 2 / n"],
            "difference": ["p = jax.nn.softmax(s) - 0.4 * jax.nn.softmax(s * 0.5)"],
            "twice": ["p = jax.nn.softmax(s)", "p = jax.nn.softmax(p * 3)"],
            "base two": [
                "e = jnp.exp2(s - jnp.max(s, -1, keepdims=True))",
                "p = e * (1 / jnp.sum(e, -1, keepdims=True))",
            ],
            "exp": ["p = jnp.exp(jnp.tanh(s)) / n"],
            "turned": ["p = jax.nn.softmax(s.mT, axis=-2).mT"],
            "repaired": ["p = jnp.nan_to_num(jax.nn.softmax(s, -1))"],
            "jit": ["p = jax.jit(lambda s: jax.nn.softmax(s, -1))(s)"],
            "checkpoint": ["p = jax.checkpoint(jax.nn.softmax)(s)"],
        }
        kind = self.choose(("softmax", "softmax", "softmax", "sinks", *lines))
        kind = "log" if kind == "lse" and self.is_masked_with("finfo") else kind
        if kind == "sinks":
            shape = [1 if d == "b" else self.size(d) for d in self.dims[:-2]]
            sink = self.argument("sink", (*shape, 1, 1), "small")
            whole = f"jnp.concatenate([s, jnp.broadcast_to({sink}, (*s.shape[:-1], 1)).astype(s.dtype)], -1)"
            self.say(f"p = jax.nn.softmax({whole}, -1)[..., :-1]")
        else:
            self.lines += lines[kind]
        if kind == "lse" and self.maybe(3):
            self.results.append("lse")

    def weights(self) -> None:
        what = self.choose(
            (
                *("",) * 5,
                *("dropped", "renormalised", "squared", "places", "heads", "clamped", "returned", "summed", "chosen"),
            )
        )
        if what == "dropped":
            keep = self.argument("left", self.broadcast(last="mt"), "keep")
            self.say(f"p = p * {keep} / 0.9" if self.maybe(2) else f"p = jnp.where({keep}, p, 0)")
        elif what == "renormalised":
            self.say("p = p * (j % 3 + 1)" if self.maybe(2) else "p = jnp.square(p)")
            self.say(f"p = p / {self.choose(('(p.sum(-1, keepdims=True) + 1e-6)', 'p.sum(-1, keepdims=True)'))}")
        elif what == "squared":
            self.say("p = p * p")
        elif what == "places":
            self.say("p = p * (0.9 ** j).astype(p.dtype)")
        elif what == "heads":
            shape = [1 if d == "b" else self.size(d) for d in self.dims[:-2]]
            self.say(f"p = p * {self.argument('gate', (*shape, 1, 1), 'positive')}")
        elif what == "clamped":
            self.say("p = jnp.clip(p * 1.2 - 0.1, 0, 1)")
        elif what == "returned":
            self.results.append("p")
        elif what == "summed":
            self.results.append(
                self.choose(("p.sum(-2)", "p.max(-1)", "p.mean(-3)", "jnp.cumsum(p, -1)", "(p @ v).sum(-1)"))
            )
        elif what == "chosen":  # the first of the keys that a mask keeps
            keep = self.argument("left", (self.all_keys,), "keep")
            self.say(f"p = p * (j > jnp.argmax({keep}) - 1)")
        self.say("p = p.astype(v.dtype)")

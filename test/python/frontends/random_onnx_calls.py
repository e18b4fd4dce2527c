"""Operators that are attention as a whole, in random models of ONNX: onnx's own, and those of onnxruntime."""

from __future__ import annotations

from random_onnx_scores import RandomOnnxScores


class RandomOnnxCalls(RandomOnnxScores):
    """Writes from q, k and v, with heads before tokens, to o, or from the input of a layer."""

    def flat(self, name: str, heads: int, width: int) -> str:
        return f"op.reshape(op.Transpose({name}, perm=[0, 2, 1, 3]), 0, 0, {heads * width})"

    def in_heads(self, name: str, width: int) -> str:
        return f"op.Transpose(op.reshape({name}, 0, 0, {self.heads}, {width}), perm=[0, 2, 1, 3])"

    def called(self) -> bool:
        """Whether there is an operator for it, which is called then."""
        ways = [self.standard] if self.opset >= 23 else []
        ways += [self.multi_head] if self.heads == self.of_keys else []
        ways += [self.group_query] if self.keys == "m" and self.columns == self.width else []
        if not ways or not self.batch:
            return False
        self.dims, self.all_keys = "bhmt", self.keys
        self.choose(ways)()
        return True

    def pasts(self, room: bool = False) -> str:
        """Names of keys and values of a past."""
        self.past, self.all_keys = self.past or self.choose((5, 1, 16)), "t"
        names = [
            self.argument(f"past_{x}", ("b", self.of_keys, "t" if room else "p", width), "data")
            for x, width in (("k", self.width), ("v", self.columns))
        ]
        return ", ".join(names)

    def outputs(self, count: int) -> None:
        """What the operator gave besides o, some of which are results."""
        if count and self.maybe(2):
            self.results += [self.renamed(name) for name in ("present_k", "present_v")[:count]]

    def renamed(self, name: str) -> str:
        """A name that no second layer takes."""
        self.say(f"{name}{len(self.results)} = {name}")
        return f"{name}{len(self.results)}"

    def standard(self) -> None:
        h, g, d, c = self.heads, self.of_keys, self.width, self.columns
        q, k, v, said, pasts = "q", "k", "v", "", ""
        is_flat = self.maybe(2)
        if is_flat:
            q, k, v = self.flat("q", h, d), self.flat("k", g, d), self.flat("v", g, c)
            said = f", q_num_heads={h}, kv_num_heads={g}"
        if self.maybe(3):
            pasts = self.pasts()
        mask = self.choose(("None", "None", "keep", "bias", "computed"))
        if mask == "computed":
            self.say(f"m, n = op.size(q, 2), op.size(k, 2){f' + {self.past}' if pasts else ''}")
            self.say("computed = op.places(n) <= op.Unsqueeze(op.places(m), [1]) + 2")
        elif mask != "None":
            kind = "keep" if mask == "keep" else "small"
            mask = self.argument("mask", [*self.mask_lead(), "m", self.all_keys], kind)
        said += ", is_causal=1" if self.maybe(3) else ""
        said += f", scale={self.choose((0.25, 0.4))}" if self.maybe(3) else ""
        said += f", softcap={self.choose((5.0, 1.5))}" if self.maybe(4) else ""
        said += ", softmax_precision=FLOAT" if self.maybe(6) else ""
        stage = self.choose((None,) * 6 + (0, 1, 2, 3))
        said += f", qk_matmul_output_mode={stage}" if stage is not None else ""
        count = 1 if not pasts and stage is None else 3 if stage is None else 4
        names = ", ".join(("o", "present_k", "present_v", "stage")[:count])
        given = ", ".join([q, k, v, mask, *([pasts] if pasts else [])])
        self.say(f"{names} = op.Attention({given}{said}, outputs={count})")
        if count >= 3:
            self.outputs(2)
        if stage is not None:
            self.results.append(self.renamed("stage"))
        if is_flat:
            self.say(f"o = {self.in_heads('o', c)}")

    def mask_lead(self) -> list[str | int]:
        """Batches and heads of a mask, if it has any."""
        lead: list[str | int] = ["b" if self.maybe(2) else 1, self.heads if self.maybe(2) else 1]
        return self.choose((lead, [], lead[1:]))

    def multi_head(self) -> None:
        h, d, c = self.heads, self.width, self.columns
        q, k, v, said = self.flat("q", h, d), self.flat("k", h, d), self.flat("v", h, c), ""
        more = ["None"] * 5
        if self.maybe(3):
            more[0] = self.argument("b", (h * (2 * d + c),), "small")
        if self.maybe(4):
            more[3:] = self.pasts().split(", ")
        more[1] = self.padding()
        if self.maybe(3):
            lead = ["b" if self.maybe(2) else 1, h if self.maybe(2) else 1]
            more[2] = self.argument("bias", (*lead, "m", self.all_keys), "small")
        if self.keys == "m" and self.maybe(3):
            said += ", unidirectional=1"
        said += self.common()
        while more and more[-1] == "None":
            more.pop()
        names = self.choose(("o", "o, present_k, present_v")) if len(more) < 4 else "o, present_k, present_v"
        given = ", ".join((q, k, v, *more))
        call = f'op.MultiHeadAttention({given}, num_heads={h}{said}, domain="com.microsoft"'
        self.say(f"{names} = {call}, outputs={names.count(',') + 1})")
        self.outputs(names.count(","))
        self.say(f"o = {self.in_heads('o', c)}")

    def common(self) -> str:
        return f", scale={self.choose((0.25, 0.4))}" if self.maybe(3) else ""

    def padding(self) -> str:
        """A mask of onnxruntime's operators: as lengths, of keys or of scores."""
        what = self.choose(("",) * 3 + ("lengths", "keys", "scores"))
        if not what:
            return "None"
        dims = {"lengths": ("b",), "keys": ("b", self.all_keys), "scores": ("b", "m", self.all_keys)}[what]
        mask = self.argument("mask", dims, "lengths" if what == "lengths" else "keep")
        self.types[mask] = "INT32"
        return mask

    def group_query(self) -> None:
        h, g, d = self.heads, self.of_keys, self.width
        said, pasts, has_past = "", "None, None", self.maybe(2)
        if has_past:
            pasts = self.pasts(room=True)
        q, k, v = self.flat("q", h, d), self.flat("k", g, d), self.flat("v", g, d)
        if self.maybe(3):
            q, k, v = f"op.Concat({q}, {k}, {v}, axis=2)", "None", "None"
        total = f"op.size({pasts.partition(',')[0] if has_past else 'q'}, 2)"
        if has_past:
            last = self.argument("last", ("b",), "last")
            self.types[last] = "INT32"
        else:
            last = "op.Expand(op.cast(op.size(q, 2) - 1, INT32), op.size(q, 0))"
        more = ["None"] * 5
        if d % 2 == 0 and self.maybe(2):
            self.say(f"angles = np.arange(300)[:, None] * 0.9 ** np.arange({d // 2})")
            self.say("cos, sin = op.constant(np.cos(angles), q.kind), op.constant(np.sin(angles), q.kind)")
            more[:2] = ["cos", "sin"]
            said += f", do_rotary=1, rotary_interleaved={self.choose((0, 1))}"
        if self.maybe(5):
            more[4] = self.argument("sink", (h,), "small")
        elif self.maybe(5):
            said += ", smooth_softmax=1"
        said += f", local_window_size={self.choose((1, 3, 40))}" if self.maybe(3) else ""
        said += f", softcap={self.choose((5.0, 20.0))}" if self.maybe(4) else ""
        said += self.common()
        while more and more[-1] == "None":
            more.pop()
        given = ", ".join((q, k, v, pasts, last, f"op.cast({total}, INT32)", *more))
        heads = f"num_heads={h}, kv_num_heads={g}"
        self.say(
            f"o, present_k, present_v = op.GroupQueryAttention({given}, {heads}{said},"
            ' domain="com.microsoft", outputs=3)'
        )
        self.outputs(2)
        self.say(f"o = {self.in_heads('o', d)}")

    def of_layer(self, source: str) -> None:
        """onnxruntime's Attention, with its projections, from `source` to y."""
        h, d, c = self.heads, self.width, self.model_width
        self.dims, self.all_keys = "bhmt", self.keys
        value_width = d if self.maybe(2) else self.choose((8, 5))
        width = h * (2 * d + value_width)
        w = self.argument("w", (c, width), "weight")
        more, said = ["None"] * 4, self.common()
        if self.maybe(2):
            more[0] = self.argument("b", (width,), "small")
        is_past = value_width == d and self.maybe(3)
        if is_past:
            self.past, self.all_keys = self.past or self.choose((5, 1, 16)), "t"
            more[2] = self.argument("past", (2, "b", h, "p", d), "data")
        more[1] = self.padding()
        if self.maybe(4):
            lead = ["b" if self.maybe(2) else 1, h if self.maybe(2) else 1]
            more[3] = self.argument("bias", (*lead, "m", self.all_keys), "small")
        said += ", unidirectional=1" if self.maybe(3) else ""
        if value_width != d:
            said += f", qkv_hidden_sizes={[h * d, h * d, h * value_width]}"
        while more and more[-1] == "None":
            more.pop()
        given = ", ".join((source, w, *more))
        count = 2 if is_past else 1
        self.say(
            f"{'y, present_k' if is_past else 'y'} = op.Attention({given}, num_heads={h}{said},"
            f' domain="com.microsoft", outputs={count})'
        )
        self.outputs(count - 1)
        if value_width != d:
            w = self.argument("w", (h * value_width, c), "weight")
            self.say(f"y = y @ {w}")

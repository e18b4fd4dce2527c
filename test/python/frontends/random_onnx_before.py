"""What stands before the scores in random models of ONNX: heads, norms, rotations, caches, shared heads."""

from __future__ import annotations

import numpy as np
from random_onnx_calls import RandomOnnxCalls


class RandomOnnxBefore(RandomOnnxCalls):
    def length_of(self, name: str) -> str:
        return "m" if name in ("q", "x", "y") else self.keys

    def with_heads_first(self, name: str) -> str:
        lead = len(self.batch)
        return f"op.Transpose({name}, perm={[*range(lead), lead + 1, lead, lead + 2]})"

    def of_merged(self, name: str, heads: int, width: int) -> str:
        """Its sizes copied, inferred, known or computed."""
        letter = self.length_of(name)
        parts: list[str | int] = [self.choose((0, self.part(name, at, d))) for at, d in enumerate(self.batch + letter)]
        if self.maybe(3):
            parts[self.choose(range(len(parts)))] = -1
        return self.with_heads_first(f"op.reshape({name}, {', '.join(map(str, parts))}, {heads}, {width})")

    def norm(self, name: str, width: int) -> str:
        """Of rows of that width."""
        kinds = ["by hand", "rms by hand"]
        kinds += ["layer"] * 2 if self.opset >= 17 else []
        kinds += ["rms"] * 2 if self.opset >= 23 else []
        kind = self.choose(kinds)
        scale = self.argument("g", (width,), "positive")
        if kind == "rms":
            return f"op.RMSNormalization({name}, {scale}, axis=-1, epsilon=1e-3)"
        if kind == "layer":
            shift = self.argument("u", (width,), "small")
            return f"op.LayerNormalization({name}, {scale}, {shift}, axis=-1, epsilon=1e-3)"
        if kind == "rms by hand":
            wide = self.choose((name, f"op.cast({name}, FLOAT)"))
            self.say(f"wide = {wide}")
            root = self.choose(("op.Sqrt", "1 / op.Reciprocal(op.Sqrt"))
            squares = self.choose(("wide ** 2", "wide * wide"))
            mean = f"{root}(op.ReduceMean({squares}, axes=[-1]) + 1e-3)" + (")" if "Reciprocal" in root else "")
            return f"op.cast(wide / ({mean})) * {scale}"
        self.say(f"centred = {name} - op.ReduceMean({name}, axes=[-1])")
        self.say("variance = op.ReduceMean(centred ** 2, axes=[-1])")
        return f"centred / op.Sqrt(variance + 1e-3) * {scale}"

    def prepare(self) -> None:
        what = self.choose(("scale", "norm", "rotate", "rotate", "bias", "roll", "flip", "order", "cast", "branch"))
        name = self.choose("qkv") if what in ("scale", "bias", "cast", "branch") else self.choose("qk")
        axis = len(self.batch) + 1
        if what == "scale":
            self.say(f"{name} = {name} * {self.choose((0.5, 0.3, 1.5))}")
        elif what == "norm":
            for one in "qk":
                self.say(f"{one} = {self.norm(one, self.width)}")
        elif what == "rotate" and self.width % 2 == 0:
            self.rotate(axis)
        elif what == "bias":
            width = self.columns if name == "v" else self.width
            self.say(f"{name} = {name} + {self.argument('u', (width,), 'small')}")
        elif what == "roll":
            for one in self.choose(("q", "kv")):
                self.say(
                    f"{one} = op.Concat(op.cut({one}, {axis}, -1, 99999), op.cut({one}, {axis}, 0, -1), axis={axis})"
                )
        elif what == "flip":
            self.say(f"{name} = op.cut({name}, {axis}, -1, -99999, -1)")
        elif what == "order":
            order = self.argument("order", (self.length_of(name),), "order")
            self.say(f"{name} = op.Gather({name}, {order}, axis={self.choose((axis, -2))})")
        elif what == "cast":
            self.say(f"{name} = op.cast(op.cast({name}, FLOAT)) * 0.75")
        elif what == "branch":
            given = self.argument("flag", (1,), "keep")
            self.say(f"{name} = op.branch({given}, lambda: {name} * 0.5, lambda: {name} + 0.25)")

    def rotate(self, axis: int) -> None:
        """Positions in heads: by operators, or by tables as exporters write them."""
        half, is_paired = self.width // 2, self.choose((0, 0, 1))
        way = self.choose(("table", "computed", "computed", "standard", "contributed"))
        for one in "qk":
            if way in ("table", "standard", "contributed") and self.batch and (way != "standard" or self.opset >= 23):
                self.say(f"angles = np.arange(300)[:, None] * 0.9 ** np.arange({half})")
                self.say("cos, sin = op.constant(np.cos(angles), q.kind), op.constant(np.sin(angles), q.kind)")
                order = self.argument("place", ("b", self.length_of(one)), "order")
                if way == "contributed":
                    rotated = (
                        f'op.RotaryEmbedding({one}, {order}, cos, sin, interleaved={is_paired}, domain="com.microsoft")'
                    )
                    self.say(f"{one} = {rotated}")
                    continue
                if way == "standard":
                    self.say(f"{one} = op.RotaryEmbedding({one}, cos, sin, {order}, interleaved={is_paired})")
                    continue
                self.say(f"cos, sin = (op.Unsqueeze(op.Gather(x, {order}), [1]) for x in (cos, sin))")
            else:
                self.say(f"at = op.cast(op.Unsqueeze(op.places(op.size({one}, {axis})), [1]), FLOAT)")
                self.say(f"angles = at * op.constant(0.9 ** np.arange({half})[None], FLOAT)")
                self.say("cos, sin = op.cast(op.Cos(angles)), op.cast(op.Sin(angles))")
            last = axis + 1
            if is_paired:
                self.say(f"a, c = op.cut({one}, {last}, 0, 99999, 2), op.cut({one}, {last}, 1, 99999, 2)")
                parts = [f"op.Unsqueeze({x}, [-1])" for x in ("a * cos - c * sin", "a * sin + c * cos")]
                self.say(f"{one} = op.Reshape(op.Concat({', '.join(parts)}, axis=-1), op.Shape({one}))")
            elif self.maybe(2):
                self.say(f"a, c = op.cut({one}, {last}, 0, {half}), op.cut({one}, -1, {half}, 99999)")
                self.say(f"{one} = op.Concat(a * cos - c * sin, a * sin + c * cos, axis=-1)")
            else:  # x·cos + rotate_half(x)·sin
                self.say("cos, sin = op.Concat(cos, cos, axis=-1), op.Concat(sin, sin, axis=-1)")
                parts = f"-op.cut({one}, {last}, {half}, 99999), op.cut({one}, {last}, 0, {half})"
                self.say(f"turned = op.Concat({parts}, axis=-1)")
                self.say(f"{one} = {one} * cos + turned * sin")

    def cache(self) -> None:
        """Keys and values of a past, or written into a buffer; `valid` says then which keys there are."""
        g, self.valid, self.all_keys, axis = self.of_keys, "", self.keys, len(self.batch) + 1
        what = self.choose(("", "", "", "cat", "beams", "nd", "elements", "buffer", "chosen"))
        if what in ("cat", "beams"):
            self.past, self.all_keys = self.past or self.choose((5, 1, 16)), "t"
            beams = self.argument("beams", ("b",), "order") if what == "beams" and self.batch else ""
            for name, width in (("k", self.width), ("v", self.columns)):
                old = self.argument(f"past_{name}", (*self.batch, g, "p", width), "data")
                old = f"op.Gather({old}, {beams}, axis=0)" if beams else old
                self.say(f"{name} = op.Concat({old}, {name}, axis={self.choose((axis, -2))})")
            if self.maybe(3):
                self.results += [f"present{len(self.results) + i}" for i in range(2)]
                self.say(f"{', '.join(self.results[-2:])} = k, v")
        elif what == "nd":  # the keys are the new ones, of some more that are there
            place = self.argument("place", (1,), "place")
            order = [axis, *(d for d in range(axis + 2) if d != axis)]
            back = [order.index(d) for d in range(axis + 2)]
            for name in "kv":
                first = f"op.Transpose(op.cut({name}, {axis}, 0, 1), perm={order}) * 2"
                written = f"op.ScatterND(op.Transpose({name}, perm={order}), op.Unsqueeze({place}, [1]), {first})"
                self.say(f"{name} = op.Transpose({written}, perm={back})")
        elif what == "elements":
            place = self.argument("place", (1,), "place")
            for name in "kv":
                self.say(f"new = op.cut({name}, {axis}, 0, 1) * 2")
                self.say(f"at = op.Expand(op.Unsqueeze({place}, [1]), op.Shape(new))")
                self.say(f"{name} = op.ScatterElements({name}, at, new, axis={axis})")
        elif what == "chosen":
            place = self.argument("place", (1,), "place")
            for name in "kv":
                self.say(f"at = op.Unsqueeze(op.Equal(op.places(op.size({name}, {axis})), {place}), [1])")
                self.say(f"{name} = op.Where(at, op.cut({name}, {axis}, 0, 1) * 2, {name})")
        elif what == "buffer":
            filled = self.argument("filled", (1,), "lengths")
            self.valid = f"j < op.cast({filled}, j.kind)"

    def share_heads(self) -> None:
        """To scores' dimensions."""
        self.dims = "bhmt" if self.batch else "hmt"
        lead, groups = len(self.batch), self.heads // self.of_keys
        if groups == 1:
            return
        way = self.choose(("expand", "expand", "tile", "split", "gather", "idiom"))
        if way == "split":
            shape = (*[0] * lead, self.of_keys, groups, self.part("q", lead + 1, "m"), self.width)
            self.say(f"q = op.reshape(q, {', '.join(map(str, shape))})")
            self.say(f"k, v = op.Unsqueeze(k, [{lead + 1}]), op.Unsqueeze(v, [{lead + 1}])")
            self.dims = self.dims.replace("h", "kg")
            return
        for name, width in (("k", self.width), ("v", self.columns)):
            if way == "gather":
                self.say(f"{name} = op.Gather({name}, {np.repeat(range(self.of_keys), groups).tolist()}, axis={lead})")
                continue
            length = self.part(name, lead + 1, "t")
            batch = [self.part(name, 0, "b")] if lead else []
            self.say(f"wide = op.Unsqueeze({name}, [{lead + 1}])")
            whole = ", ".join(map(str, [*batch, self.of_keys, groups, length, width]))
            if way == "tile":
                self.say(f"wide = op.Tile(wide, {[1] * (lead + 1) + [groups, 1, 1]})")
            elif way == "idiom":  # torch's: sizes of −1 are as they were
                parts = ", ".join(map(str, [*[-1] * (lead + 1), groups, length, -1]))
                self.say(f"form = op.Concat(op.shape({parts}), axis=0)")
                self.say(f"ones, minus = op.constant([1] * {lead + 4}, INT64), op.constant([-1] * {lead + 4}, INT64)")
                self.say("wide = op.Expand(wide, op.Where(op.Equal(form, minus), ones, form))")
            elif self.maybe(2):
                self.say(f"wide = op.Expand(wide, {[1] * (lead + 1) + [groups, 1, 1]})")
            else:
                self.say(f"wide = op.Expand(wide, op.shape({whole}))")
            shape = ", ".join(map(str, [*batch, self.heads, self.choose((-1, length)), width]))
            self.say(f"{name} = op.reshape(wide, {shape})")

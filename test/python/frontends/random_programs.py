"""Random attention as programs of torch: readable source, its arguments, and values for these.

    program = RandomProgram(choose)        # `choose(options)` picks one: of random.Random, or drawn by hypothesis
    print(program.text)                    # def attention(q, k, v, keep): …
    program.function(*program.inputs("large"))

What a program may be: arguments in any layout (heads before or after tokens, packed, keys transposed, no batch), shared
heads in each way of writing them, what comes before (projections, norms, rotations, caches, rolls), any number of
changes of the scores (random_scores.py), softmax and what takes its place, probabilities that are used otherwise, what
follows (projections, residuals, casts, a second layer), several results. Nothing in it is a jump of what is computed,
as a comparison of scores would be, so that a rounding never makes another result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from random_scores import RandomScores

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64}


def wider(x: torch.Tensor) -> torch.Tensor:
    """As `x.float()`, for the same program in float64."""
    return x if x.dtype == torch.float64 else x.float()


class RandomProgram(RandomScores):
    def __init__(
        self,
        choose: Callable[[Sequence], Any],
        dtypes: Sequence[str] = tuple(DTYPES),
        is_open: bool = False,
        drops: bool = False,
    ):
        super().__init__(choose, dtypes)
        self.drops = drops
        self.open = frozenset(letter for letter in "bmn" if is_open and not self.maybe(3))
        self.batch = choose(("b", "b", "b", "b", "") if not self.open else ("b",))
        self.choose_sizes()
        if is_open:  # torch.export fixes sizes of 1
            self.sizes = {"b": 3, "m": self.sizes["m"] + 3, "n": self.sizes["n"] + 5}
        self.write()
        self.compiled({"torch": torch, "F": F, "math": math, "wider": wider})

    def inputs(self, flavour: str = "normal", **sizes: int) -> tuple[torch.Tensor, ...]:
        arrays = map(torch.from_numpy, self.values(flavour, **sizes))
        return tuple(x.to(DTYPES[self.dtype]) if x.is_floating_point() else x for x in arrays)

    def dynamic_shapes(self) -> tuple[dict[int, Any], ...]:
        return tuple(
            {
                at: torch.export.Dim.AUTO
                for at, d in enumerate(argument.dims)
                if (self.keys if d == "t" else d) in self.open
            }
            for argument in self.arguments.values()
        )

    def of_type(self, name: str, dtype: str) -> str:
        return f"{name}.to({DTYPES[dtype]})"

    # What queries, keys and values are made of: (b,) h, m, d and so on, whatever the layout of the arguments.

    def with_heads_first(self, name: str) -> str:
        return f"{name}.transpose(-3, -2)"

    def of_merged(self, name: str, heads: int, width: int) -> str:
        return f"{name}.unflatten(-1, ({heads}, {width})).transpose(-3, -2)"

    def turned(self, name: str) -> str:
        return f"{name}.mT"

    def packed(self) -> None:
        self.columns, self.keys = self.width, "m"
        h, g, d = self.heads, self.of_keys, self.width
        if h == g and self.maybe(2):
            self.argument("qkv", (*self.batch, "m", 3, h, d), "data")
            self.say("q, k, v = (x.transpose(-3, -2) for x in qkv.unbind(-3))")
        else:
            self.argument("qkv", (*self.batch, "m", (h + 2 * g) * d), "data")
            self.say(f"q, k, v = qkv.split([{h * d}, {g * d}, {g * d}], -1)")
            self.split_heads()

    def split_heads(self) -> None:
        for name, heads in (("q", self.heads), ("k", self.of_keys), ("v", self.of_keys)):
            if self.maybe(2):
                self.say(f"{name} = {self.of_merged(name, heads, self.width)}")
            else:
                shape = f"*{name}.shape[:-1], {heads}, {self.width}"
                self.say(f"{name} = {name}.reshape({shape}).movedim(-2, -3)")

    def layer(self) -> None:
        h, g, d, c = self.heads, self.of_keys, self.width, self.model_width
        is_before = self.maybe(2)
        self.say(f"y = {self.norm('x', c)}" if is_before else "y = x")
        if self.maybe(2):
            w = self.argument("w", (c, (h + 2 * g) * d), "weight")
            self.say(f"q, k, v = (y @ {w}).split([{h * d}, {g * d}, {g * d}], -1)")
        else:
            names = [self.argument("w", (c, heads * d), "weight") for heads in (h, g, g)]
            self.say(f"q, k, v = {', '.join(f'y @ {name}' for name in names)}")
        self.split_heads()
        self.attend()
        self.say("y = o.transpose(-3, -2).flatten(-2)")
        w = self.argument("w", (c, c), "weight")
        self.say(f"y = y @ {w}")
        self.say("x = x + y" if self.maybe(2) else "x = y")
        if not is_before:
            self.say(f"x = {self.norm('x', c)}")
        if self.maybe(3):
            up, down = self.argument("w", (c, 24), "weight"), self.argument("w", (24, c), "weight")
            activation = self.choose(("relu", "gelu", "silu", "tanh"))
            self.say(f"x = x + F.{activation}(x @ {up}) @ {down}")

    def norm(self, name: str, width: int) -> str:
        """Of rows of that width."""
        kind = self.choose(("rms", "layer", "F.rms", "group", "by hand"))
        if kind == "rms":
            weight = self.argument("g", (width,), "positive")
            return f"({name} * torch.rsqrt({name}.square().mean(-1, keepdim=True) + 1e-3)) * {weight}"
        if kind == "F.rms":
            return f"F.rms_norm({name}, ({width},), eps=1e-3)"
        if kind == "group" and name == "x":
            return f"F.group_norm({name}.flatten(0, 1), {self.heads}, eps=1e-3).view({name}.shape)"
        if kind == "by hand":
            wide = f"wider({name})"
            return f"({wide} / ({wide}.norm(dim=-1, keepdim=True) / {width**0.5:.3f} + 0.1)).to({name}.dtype)"
        weight, bias = self.argument("g", (width,), "positive"), self.argument("u", (width,), "small")
        return f"F.layer_norm({name}, ({width},), {weight}, {bias}, eps=1e-3)"

    def prepare(self) -> None:
        what = self.choose(("scale", "norm", "rotate", "bias", "roll", "flip", "order", "cast"))
        name = self.choose("qkv") if what in ("scale", "bias", "cast") else self.choose("qk")
        if what == "scale":
            self.say(f"{name} = {name} * {self.choose((0.5, 0.3, 1.5))}")
        elif what == "norm":
            self.say("q, k = " + ", ".join(self.norm(one, self.width) for one in "qk"))
        elif what == "rotate" and self.width % 2 == 0:
            half, is_paired = self.width // 2, self.maybe(3)
            self.say(f"angles = torch.outer(torch.arange({{}}), 0.9 ** {self.real(f'torch.arange({half})')})")
            angles, parts = self.lines.pop(), "stack" if is_paired else "cat"
            for one in "qk":
                self.say(angles.format(f"{one}.shape[-2]"))
                self.say(f"cos, sin = angles.cos().to({one}.dtype), angles.sin().to({one}.dtype)")
                self.say(f"a, c = {one}[..., ::2], {one}[..., 1::2]" if is_paired else f"a, c = {one}.chunk(2, -1)")
                turned = f"torch.{parts}([a * cos - c * sin, a * sin + c * cos], -1)"
                self.say(f"{one} = {turned}{'.flatten(-2)' if is_paired else ''}")
        elif what == "bias":
            width = self.columns if name == "v" else self.width
            self.say(f"{name} = {name} + {self.argument('u', (width,), 'small')}")
        elif what == "roll":
            self.say(
                f"q = q.roll({self.choose((1, 2, -1))}, -2)" if self.maybe(3) else "k, v = k.roll(1, -2), v.roll(1, -2)"
            )
        elif what == "flip":
            self.say(f"{name} = {name}.flip(-2)")
        elif what == "order":
            length = "m" if name == "q" else self.keys
            order = self.argument("order", (length,), "order")
            self.say(
                f"{name} = {name}[..., {order}, :]" if self.maybe(2) else f"{name} = {name}.index_select(-2, {order})"
            )
        elif what == "cast":
            self.say(f"{name} = wider({name}).to({name}.dtype) * 0.75")

    def cache(self) -> None:
        """Keys and values of a past, or written into a buffer; `valid` is then how many keys there are."""
        g, self.valid, self.all_keys = self.of_keys, "", self.keys
        what = self.choose(("", "", "", "cat", "index_copy", "buffer"))
        if what == "cat":
            self.past, self.all_keys = self.past or self.choose((5, 1, 16)), "t"
            for name, width in (("k", self.width), ("v", self.columns)):
                old = self.argument(f"past_{name}", (*self.batch, g, self.past, width), "data")
                self.say(f"{name} = torch.cat([{old}, {name}], -2)")
        elif what == "index_copy":  # the keys are the new ones, of some more that are there
            place = self.argument("place", (1,), "place")
            for name in "kv":
                self.say(f"{name} = {name}.index_copy(-2, {place}, {name}[..., :1, :] * 2)")
        elif what == "buffer":
            self.valid = self.argument("filled", (1,), "lengths")

    def share_heads(self) -> None:
        """To scores' dimensions; `enable_gqa` of F.scaled_dot_product_attention is one of the ways."""
        self.dims, self.is_shared = "bhmt" if self.batch else "hmt", False
        groups = self.heads // self.of_keys
        if groups == 1:
            return
        way = self.choose(("repeat", "expand", "split", "enable"))
        if way == "repeat":
            self.say(f"k, v = k.repeat_interleave({groups}, -3), v.repeat_interleave({groups}, -3)")
        elif way == "expand":
            for name in "kv":
                lead = "-1, " * len(self.batch)
                expanded = f"{name}.unsqueeze(-3).expand({lead}-1, {groups}, -1, -1)"
                self.say(f"{name} = {expanded}.flatten(-4, -3)")
        elif way == "split":
            self.say(f"q, k, v = q.unflatten(-3, ({self.of_keys}, {groups})), k.unsqueeze(-3), v.unsqueeze(-3)")
            self.dims = self.dims.replace("h", "kg")
        else:
            self.is_shared = True

    def finish(self) -> None:
        """What is done with the result of the attention, and which others there are."""
        what = self.choose(("", "", "merge", "project", "cast", "norm", "wide", "gate"))
        if what == "project":
            w = self.argument("w", (self.columns, 9), "weight")
            self.say(f"o = o @ {w}")
        elif what == "merge":
            self.say("o = o.transpose(-3, -2).flatten(-2)")
        elif what == "cast":
            self.say(f"o = {self.of_type('o', self.choose(('f32', 'f16', 'bf16')))}")
        elif what == "norm":
            self.say("o = F.rms_norm(o, o.shape[-1:], eps=1e-3)")
        elif what == "wide":
            self.say("o = wider(o).square() + 1")
        elif what == "gate":
            self.say("o = o * torch.sigmoid(o)")
        self.results.insert(0, "o")
        if self.maybe(8):
            self.results.append("k")

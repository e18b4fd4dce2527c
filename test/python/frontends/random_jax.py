"""Random attention as programs of JAX, as `random_programs.py` has it of torch: readable source, arguments, values.

    program = RandomJaxProgram(choose)
    print(program.text)                    # def attention(q, k, v, keep): …
    program.function(*program.inputs("large"))

Beside what torch's have: products by einsum in any order of letters and operands, dot_general, vmap; lax.map, scan,
fori_loop, cond, switch; slices and writes of caches (dynamic_update_slice, at[].set); promotions of types.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from random_jax_scores import RandomJaxScores
from random_source import DTYPES


def wider(x: jax.Array) -> jax.Array:
    """As `x.astype(jnp.float32)`, for the same program in float64."""
    return x if x.dtype == jnp.float64 else x.astype(jnp.float32)


class RandomJaxProgram(RandomJaxScores):
    def __init__(self, choose: Callable[[Sequence], Any], dtypes: Sequence[str] = tuple(DTYPES)):
        super().__init__(choose, dtypes)
        self.batch = choose(("b", "b", "b", "b", ""))
        self.choose_sizes()
        self.write()
        self.compiled({"jax": jax, "jnp": jnp, "lax": lax, "math": math, "wider": wider})

    def inputs(self, flavour: str = "normal") -> tuple[jax.Array, ...]:
        kind = DTYPES[self.dtype]
        arrays = self.values(flavour)
        return tuple(
            jnp.asarray(x, kind if x.dtype == float else bool if x.dtype == bool else jnp.int32) for x in arrays
        )

    def of_type(self, name: str, dtype: str) -> str:
        return f"{name}.astype(jnp.{DTYPES[dtype].name})"

    # What queries, keys and values are made of: (b,) h, m, d and so on, whatever the layout of the arguments.

    def with_heads_first(self, name: str) -> str:
        return f"{name}.swapaxes(-3, -2)"

    def of_merged(self, name: str, heads: int, width: int) -> str:
        return self.split(name, heads)

    def turned(self, name: str) -> str:
        return self.choose((f"{name}.mT", f"jnp.swapaxes({name}, -1, -2)"))

    def split(self, name: str, heads: int) -> str:
        """The heads of rows that have all of them, before the tokens."""
        shape = f"(*{name}.shape[:-1], {heads}, -1)"
        return self.choose(
            (
                f"{name}.reshape{shape}.swapaxes(-3, -2)",
                f"jnp.moveaxis(jnp.reshape({name}, {shape}), -2, -3)",
                f"jnp.stack(jnp.split({name}, {heads}, -1), -3)",
            )
        )

    def packed(self) -> None:
        self.columns, self.keys = self.width, "m"
        h, g, d = self.heads, self.of_keys, self.width
        if h == g and self.maybe(2):
            self.argument("qkv", (*self.batch, "m", 3, h, d), "data")
            self.say("q, k, v = (qkv[..., i, :, :].swapaxes(-3, -2) for i in range(3))")
        else:
            self.argument("qkv", (*self.batch, "m", (h + 2 * g) * d), "data")
            self.say(f"q, k, v = jnp.split(qkv, [{h * d}, {(h + g) * d}], axis=-1)")
            for name, heads in (("q", h), ("k", g), ("v", g)):
                self.say(f"{name} = {self.split(name, heads)}")

    def layer(self) -> None:
        h, g, d, c = self.heads, self.of_keys, self.width, self.model_width
        self.say(f"y = {self.norm('x', c)}" if self.maybe(2) else "y = x")
        for name, heads in (("q", h), ("k", g), ("v", g)):
            way = self.choose(("einsum", "matmul", "dense"))
            w = self.argument("w", (c, heads, d) if way == "einsum" else (c, heads * d), "weight")
            if way == "einsum":
                subscripts = self.choose(("bmc,chd->bhmd", "btc,cnd->bntd"))
                self.say(f'{name} = jnp.einsum("{subscripts}", y, {w})')
            else:
                bias = f" + {self.argument('u', (heads * d,), 'small')}" if way == "dense" else ""
                self.say(f"{name} = y @ {w}{bias}")
                self.say(f"{name} = {self.split(name, heads)}")
        self.attend()
        w = self.argument("w", (h, d, c), "weight")
        self.say(
            f'y = jnp.einsum("bhmd,hdc->bmc", o, {w})'
            if self.maybe(2)
            else f"y = jnp.tensordot(o, {w}, ((1, 3), (0, 1)))"
        )
        self.say("x = x + y")
        if self.maybe(3):
            up, down = self.argument("w", (c, 24), "weight"), self.argument("w", (24, c), "weight")
            self.say(f"x = x + jax.nn.{self.choose(('relu', 'gelu', 'silu', 'tanh', 'softplus'))}(x @ {up}) @ {down}")

    def norm(self, name: str, width: int) -> str:
        """Of rows of that width."""
        kind = self.choose(("rms", "layer", "standardize", "by hand"))
        if kind == "rms":
            weight = self.argument("g", (width,), "positive")
            return f"({name} * lax.rsqrt(jnp.square({name}).mean(-1, keepdims=True) + 1e-3)) * {weight}"
        if kind == "standardize":
            return f"jax.nn.standardize({name}, axis=-1, epsilon=1e-3)"
        if kind == "by hand":
            wide = f"wider({name})"
            length = f"jnp.linalg.norm({wide}, axis=-1, keepdims=True) / {width**0.5:.3f}"
            return f"({wide} / ({length} + 0.1)).astype({name}.dtype)"
        weight, bias = self.argument("g", (width,), "positive"), self.argument("u", (width,), "small")
        mean, var = f"{name}.mean(-1, keepdims=True)", f"jnp.var({name}, axis=-1, keepdims=True)"
        return f"(({name} - {mean}) / jnp.sqrt({var} + 1e-3)) * {weight} + {bias}"

    def prepare(self) -> None:
        what = self.choose(
            ("scale", "norm", "rotate", "bias", "roll", "flip", "order", "cast", "sum", "branch", "switch")
        )
        name = self.choose("qkv") if what in ("scale", "bias", "cast", "branch") else self.choose("qk")
        length = "m" if name == "q" else self.keys
        if what == "scale":
            self.say(f"{name} = {name} * {self.choose((0.5, 0.3, 'jnp.float32(1.5).astype(q.dtype)'))}")
        elif what == "norm":
            self.say("q, k = " + ", ".join(self.norm(one, self.width) for one in "qk"))
        elif what == "rotate" and self.width % 2 == 0:
            half, is_paired = self.width // 2, self.maybe(3)
            for one in "qk":
                self.say(f"angles = jnp.arange({one}.shape[-2])[:, None] * 0.9 ** jnp.arange({half})")
                self.say(f"cos, sin = jnp.cos(angles).astype({one}.dtype), jnp.sin(angles).astype({one}.dtype)")
                self.say(
                    f"a, c = {one}[..., ::2], {one}[..., 1::2]" if is_paired else f"a, c = jnp.split({one}, 2, -1)"
                )
                turned = f"jnp.{'stack' if is_paired else 'concatenate'}([a * cos - c * sin, a * sin + c * cos], -1)"
                self.say(f"{one} = {turned}{f'.reshape({one}.shape)' if is_paired else ''}")
        elif what == "bias":
            width = self.columns if name == "v" else self.width
            self.say(f"{name} = {name} + {self.argument('u', (width,), 'small')}")
        elif what == "roll":
            self.say(
                f"q = jnp.roll(q, {self.choose((1, 2, -1))}, -2)"
                if self.maybe(3)
                else "k, v = jnp.roll(k, 1, -2), jnp.roll(v, 1, -2)"
            )
        elif what == "flip":
            self.say(f"{name} = {self.choose((f'jnp.flip({name}, -2)', f'{name}[..., ::-1, :]'))}")
        elif what == "order":
            order = self.argument("order", (length,), "order")
            self.say(f"{name} = {self.choose((f'{name}[..., {order}, :]', f'jnp.take({name}, {order}, axis=-2)'))}")
        elif what == "cast":
            self.say(f"{name} = wider({name}).astype({name}.dtype) * 0.75")
        elif what == "sum":
            self.say(f"{name} = jnp.cumsum(wider({name}), -2).astype({name}.dtype)")
            self.say(f"{name} = {name} / jnp.arange(1, {name}.shape[-2] + 1, dtype={name}.dtype)[:, None]")
        elif what == "branch":
            order = self.argument("segments", ("n",), "segments")
            self.say(f"{name} = lax.cond({order}.sum() > 3, lambda x: x * 0.5, lambda x: x + 0.25, {name})")
        elif what == "switch":
            order = self.argument("segments", ("n",), "segments")
            self.say(f"{name} = lax.switch({order}[-1], [jnp.tanh, lambda x: x * 0.5, lambda x: x], {name})")

    def cache(self) -> None:
        """Keys and values of a past, or written into a buffer; `valid` is then how many keys there are."""
        g, self.valid, self.all_keys = self.of_keys, "", self.keys
        what = self.choose(("", "", "", "cat", "set", "update", "scatter", "pad", "buffer"))
        if what == "cat":
            self.past, self.all_keys = self.past or self.choose((5, 1, 16)), "t"
            for name, width in (("k", self.width), ("v", self.columns)):
                old = self.argument(f"past_{name}", (*self.batch, g, self.past, width), "data")
                self.say(f"{name} = jnp.concatenate([{old}, {name}], -2)")
        elif what == "pad":  # no keys at all, which a mask hides
            self.past, self.all_keys = self.past or 3, "t"
            self.valid = f"(k.shape[-2] - {self.past})"
            self.say(f"k, v = (jnp.pad(x, [(0, 0)] * (x.ndim - 2) + [(0, {self.past}), (0, 0)]) for x in (k, v))")
        elif what in ("set", "update", "scatter"):  # the keys are the new ones, of some more that are there
            by_batch = what == "scatter" and bool(self.batch)
            place = self.argument("place", ("b",) if by_batch else (), "place")
            for name in "kv":
                if what == "update":
                    new = f"{name}[..., :1, :] * 2"
                    self.say(f"{name} = lax.dynamic_update_slice_in_dim({name}, {new}, {place}, {len(self.batch) + 1})")
                elif by_batch:
                    write = self.choose(("set", "add"))
                    self.say(
                        f"{name} = {name}.at[jnp.arange({name}.shape[0]), :, {place}].{write}({name}[:, :, 0] * 2)"
                    )
                else:
                    self.say(f"{name} = {name}.at[..., {place}, :].set({name}[..., 0, :] * 2)")
        elif what == "buffer":
            self.valid = self.argument("filled", (1,), "lengths")

    def share_heads(self) -> None:
        """To scores' dimensions; jax.nn.dot_product_attention takes shared heads as they are."""
        self.dims, self.is_shared = "bhmt" if self.batch else "hmt", False
        groups = self.heads // self.of_keys
        if groups == 1:
            return
        # XLA's CPU backend has no products of f16 that the call asks for.
        way = self.choose(("repeat", "expand", "split", *(["call"] if self.dtype != "f16" else [])))
        if way == "repeat":
            self.say(f"k, v = jnp.repeat(k, {groups}, axis=-3), jnp.repeat(v, {groups}, axis=-3)")
        elif way == "expand":
            for name in "kv":
                shape = f"(*{name}.shape[:-2], {groups}, *{name}.shape[-2:])"
                self.say(f"{name} = jnp.broadcast_to({name}[..., None, :, :], {shape})")
                self.say(f"{name} = {name}.reshape(*{name}.shape[:-4], {self.heads}, *{name}.shape[-2:])")
        elif way == "split":
            self.say(f"q = q.reshape(*q.shape[:-3], {self.of_keys}, {groups}, *q.shape[-2:])")
            self.say("k, v = k[..., None, :, :], v[..., None, :, :]")
            self.dims = self.dims.replace("h", "kg")
        else:
            self.is_shared = True

    def finish(self) -> None:
        """What is done with the result of the attention, and which others there are."""
        what = self.choose(("", "", "merge", "project", "cast", "norm", "wide", "gate", "mean", "slice"))
        if what == "project":
            w = self.argument("w", (self.columns, 9), "weight")
            self.say(f"o = o @ {w}")
        elif what == "merge":
            self.say("o = o.swapaxes(-3, -2)")
            self.say("o = o.reshape(*o.shape[:-2], -1)")
        elif what == "cast":
            self.say(f"o = {self.of_type('o', self.choose(('f32', 'f16', 'bf16')))}")
        elif what == "norm":
            self.say("o = o / jnp.sqrt(jnp.mean(o * o, axis=-1, keepdims=True) + 1e-3)")
        elif what == "wide":
            self.say("o = wider(o) ** 2 + 1")
        elif what == "gate":
            self.say("o = o * jax.nn.sigmoid(o)")
        elif what == "mean":
            self.say(f"o = o.mean({self.choose((-2, -3))})")
        elif what == "slice":
            self.say("o = o[..., -1, :]")
        self.results.insert(0, "o")
        if self.maybe(8):
            self.results.append("k")

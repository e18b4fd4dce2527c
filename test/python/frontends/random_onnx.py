"""Random attention as models of ONNX: readable source, the model it writes, its inputs, and what they give.

    program = RandomOnnxProgram(choose)        # `choose(options)` picks one: of random.Random, or drawn by hypothesis
    print(program.text)                        # def attention(q, k, v, keep): …
    program.model, program.inputs("large")

As random_programs.py for torch: any layout, packed inputs, norms, rotations, caches and shared heads
(random_onnx_before.py), masks (random_onnx_masks.py), changes of the scores and what takes the place of softmax
(random_onnx_scores.py), what is around, several results; as exporters write them, and as calls of operators
(random_onnx_calls.py). Constants are nodes or initializers, sizes known, computed, or open.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto
from onnx_numpy import evaluate
from onnx_writing import Writer
from random_onnx_before import RandomOnnxBefore
from random_source import DTYPES

KINDS = {name: getattr(TensorProto, name) for name in ("FLOAT", "FLOAT16", "BFLOAT16", "INT32", "INT64", "BOOL")}
OWN = {"f32": "FLOAT", "f16": "FLOAT16", "bf16": "BFLOAT16"}
OPEN_NAMES = {"b": "batch", "m": "queries", "n": "keys", "p": "past", "t": "all_keys"}
OPSETS = (17, 13, 14, 15, 16, 18, 19, 20, 21, 22, 23, 23, 23)


class RandomOnnxProgram(RandomOnnxBefore):
    def __init__(self, choose: Callable[[Sequence], Any], dtypes: Sequence[str] = tuple(DTYPES), is_open: bool = False):
        super().__init__(choose, dtypes)
        self.opset = choose(OPSETS if self.dtype != "bf16" else (23, 22))  # older ones have operators without bf16
        self.open = frozenset(letter for letter in "bmnp" if is_open and not self.maybe(3))
        self.batch = choose(("b", "b", "b", "b", "")) if not self.open else "b"
        self.least = float(ml_dtypes.finfo(DTYPES[self.dtype]).min)
        self.types: dict[str, str] = {}  # of inputs that are not of the program's
        self.choose_sizes()
        self.write()
        known = [name for name, a in self.arguments.items() if not any(isinstance(d, str) for d in a.dims)]
        self.fixed = {n for n in known if self.arguments[n].kind in ("weight", "small", "positive") and self.maybe(2)}
        self.compiled({"np": np, "math": math, **KINDS, "op": self._writer()})
        self.model = self._model()

    def _writer(self) -> Writer:
        ways = self.choose(("Gather", "Slice", "Shape"))
        self.writer = Writer(self.opset, KINDS[OWN[self.dtype]], self.choose((False, True)), ways)
        return self.writer

    def _model(self) -> onnx.ModelProto:
        arrays = dict(zip(self.arguments, self.arrays(), strict=True))
        values = []
        for name, argument in self.arguments.items():
            if name in self.fixed:
                values.append(self.writer.weight(name, arrays[name]))
                continue
            dims = [d if isinstance(d, int) else self.declared(d) for d in argument.dims]
            values.append(self.writer.input(name, dims, onnx.helper.np_dtype_to_tensor_dtype(arrays[name].dtype)))
        found = self.function(*values)
        model = self.writer.model(found if isinstance(found, tuple) else (found,))
        shapes = [x.shape for x in evaluate(model, self.inputs(), is_wide=True)]
        for value, shape in zip(model.graph.output, shapes, strict=True):
            declared = [f"{value.name} {d}" for d in range(len(shape))] if self.open else list(shape)
            value.CopyFrom(onnx.helper.make_tensor_value_info(value.name, value.type.tensor_type.elem_type, declared))
        return model

    def declared(self, letter: str) -> int | str:
        given = {**self.sizes, "k": self.sizes[self.keys], "p": self.past}
        given["t"] = given["k"] + self.past
        is_open = letter in self.open or (letter == "t" and (self.keys in self.open or "p" in self.open))
        letter = self.keys if letter == "k" else letter
        return OPEN_NAMES[letter] if is_open else given[letter]

    def arrays(self, flavour: str = "normal", **sizes: int) -> list[np.ndarray]:
        """Of all arguments, in the types of the model."""
        found = []
        for name, x in zip(self.arguments, self.values(flavour, **sizes), strict=True):
            kind = KINDS[self.types[name]] if name in self.types else None
            own = x.dtype if x.dtype.kind in "bi" else DTYPES[self.dtype]
            found.append(x.astype(own if kind is None else onnx.helper.tensor_dtype_to_np_dtype(kind)))
        return found

    def inputs(self, flavour: str = "normal", **sizes: int) -> list[np.ndarray]:
        """Of the model: what is not a weight of it."""
        return [
            x for name, x in zip(self.arguments, self.arrays(flavour, **sizes), strict=True) if name not in self.fixed
        ]

    def __repr__(self) -> str:
        fixed = f", fixed: {', '.join(sorted(self.fixed))}" if self.fixed else ""
        return f"# opset {self.opset}, types: {self.types}{fixed}\n{super().__repr__()}"

    def of_type(self, name: str, dtype: str) -> str:
        return f"op.cast({name}, {OWN[dtype]})"

    def packed(self) -> None:
        self.columns, self.keys = self.width, "m"
        h, g, d, lead = self.heads, self.of_keys, self.width, len(self.batch)
        if h == g and self.maybe(2):
            self.argument("qkv", (*self.batch, "m", 3 * h * d), "data")
            lengths = [self.choose((0, self.part("qkv", at, d))) for at, d in enumerate(self.batch + "m")]
            self.say(f"qkv = op.reshape(qkv, {', '.join(map(str, lengths))}, 3, {h}, {d})")
            order = [lead + 1, *range(lead), lead + 2, lead, lead + 3]
            self.say(f"qkv = op.Transpose(qkv, perm={order})")
            if self.maybe(2):
                self.say("q, k, v = (op.Gather(qkv, at, axis=0) for at in range(3))")
            else:
                self.say("q, k, v = (op.Squeeze(x, [0]) for x in op.Split(qkv, axis=0, outputs=3))")
            return
        self.argument("qkv", (*self.batch, "m", (h + 2 * g) * d), "data")
        self.split("qkv")
        self.split_heads()

    def split(self, name: str) -> None:
        h, g, d = self.heads, self.of_keys, self.width
        axis = self.choose((-1, len(self.batch) + 1))
        ends = [0, h * d, (h + g) * d, (h + 2 * g) * d]
        way = self.choose(("split", "slice", "equal" if h == g else "split"))
        if way == "split":
            self.say(f"q, k, v = op.Split({name}, {[h * d, g * d, g * d]}, axis={axis}, outputs=3)")
        elif way == "equal":
            self.say(f"q, k, v = op.Split({name}, axis={axis}, outputs=3)")
        else:
            cuts = [f"op.cut({name}, {axis}, {a}, {b})" for a, b in itertools.pairwise(ends)]
            self.say(f"q, k, v = {', '.join(cuts)}")

    def split_heads(self) -> None:
        for name, heads in (("q", self.heads), ("k", self.of_keys), ("v", self.of_keys)):
            self.say(f"{name} = {self.of_merged(name, heads, self.width)}")

    def projected(self, source: str, width: int, result: int) -> str:
        """Rows of `width` as rows of `result`."""
        w = self.argument("w", (width, result), "weight")
        way = self.choose(("plain", "bias", "gemm"))
        if way == "plain":
            return f"{source} @ {w}"
        bias = self.argument("u", (result,), "small")
        if way == "bias":
            return self.choose((f"{source} @ {w} + {bias}", f"{bias} + {source} @ {w}"))
        if self.maybe(2):
            self.say(f"turned = op.Transpose({w}, perm=[1, 0])")
            self.say(f"rows = op.Gemm(op.reshape({source}, -1, {width}), turned, {bias}, transB=1)")
        else:
            self.say(f"rows = op.Gemm(op.reshape({source}, -1, {width}), {w}, {bias})")
        return f"op.reshape(rows, {self.part('x', 0, 'b')}, {self.part('x', 1, 'm')}, {result})"

    def layer(self) -> None:
        h, g, d, c = self.heads, self.of_keys, self.width, self.model_width
        is_before = self.maybe(2)
        self.say(f"y = {self.norm('x', c)}" if is_before else "y = x")
        if self.maybe(6):
            self.of_layer("y")
        else:
            if self.maybe(2):
                self.say(f"qkv = {self.projected('y', c, (h + 2 * g) * d)}")
                self.split("qkv")
                self.split_heads()
            else:
                for name, heads in zip("qkv", (h, g, g), strict=True):
                    if self.is_numeric and self.maybe(4):
                        w = self.argument("w", (c, heads, d), "weight")
                        self.say(f'{name} = op.Einsum(y, {w}, equation="bmc,chd->bhmd")')
                    else:
                        self.say(f"{name} = {self.projected('y', c, heads * d)}")
                        self.say(f"{name} = {self.of_merged(name, heads, d)}")
            self.attend()
            self.say("y = op.Transpose(o, perm=[0, 2, 1, 3])")
            self.say(f"y = op.reshape(y, {self.choose((0, self.part('x', 0, 'b')))}, {self.choose((0, -1))}, {c})")
        self.say(f"y = {self.projected('y', c, c)}")
        self.joined(is_before)
        if self.maybe(3):
            self.feed_forward(c)

    def joined(self, is_before: bool) -> None:
        """With the residual, and a norm behind it."""
        c = self.model_width
        if not is_before and self.maybe(4):
            weights = [self.argument("g", (c,), "positive")]
            way = self.choose(("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"))
            weights += [self.argument("u", (c,), "small")] if way == "SkipLayerNormalization" else []
            self.say(f'x = op.{way}(x, y, {", ".join(weights)}, epsilon=1e-3, domain="com.microsoft")')
            return
        self.say(self.choose(("x = x + y", "x = y + x", "x = y")))
        if not is_before:
            self.say(f"x = {self.norm('x', c)}")

    def feed_forward(self, c: int) -> None:
        up = self.argument("w", (c, 24), "weight")
        self.say(f"z = x @ {up}")
        choices = ["op.Relu(z)", "z * op.Sigmoid(z)", "op.Tanh(z)", "z * 0.5 * (op.Erf(z / 1.41421) + 1)"]
        choices += ["op.Gelu(z)"] if self.opset >= 20 else []
        choices += ['op.Gelu(z, domain="com.microsoft")', 'op.FastGelu(z, domain="com.microsoft")']
        self.say(f"z = {self.choose(choices)}")
        if self.maybe(4):
            bias = self.argument("u", (24,), "small")
            self.say(f'z = op.BiasGelu(z, {bias}, domain="com.microsoft")')
        self.say(f"x = x + z @ {self.argument('w', (24, c), 'weight')}")

    def attend(self) -> None:
        for _ in range(self.choose((0, 0, 1, 2))):
            self.prepare()
        if self.maybe(3) and self.called():
            return
        self.cache()
        self.share_heads()
        self.scores()

    def finish(self) -> None:
        """What is done with the result of the attention, and which others there are."""
        what = self.choose(("", "", "merge", "project", "cast", "norm", "wide", "gate", "mean", "slice"))
        lead = len(self.batch)
        if what == "project":
            self.say(f"o = o @ {self.argument('w', (self.columns, 9), 'weight')}")
        elif what == "merge":
            self.say(f"o = {self.with_heads_first('o')}")
            self.say(f"o = op.reshape(o, {'0, ' * (lead + 1)}{self.choose((-1, self.heads * self.columns))})")
        elif what == "cast":
            self.say(f"o = {self.of_type('o', self.choose(('f32', 'f16', 'bf16')))}")
        elif what == "norm":
            self.say(f"o = {self.norm('o', self.columns)}")
        elif what == "wide":
            self.say("o = op.cast(o, FLOAT) ** 2 + 1")
        elif what == "gate":
            self.say("o = o * op.Sigmoid(o)")
        elif what == "mean":
            self.say(f"o = op.ReduceMean(o, axes=[{self.choose((-2, -3))}], keepdims=0)")
        elif what == "slice":
            self.say(f"o = op.Gather(o, -1, axis={lead + 1})")
        self.results.insert(0, "o")
        if self.maybe(8):
            self.results.append("k")

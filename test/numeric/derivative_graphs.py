"""Derivatives of attention by queries, keys, values and what is learned beside, as torch and JAX write them, and what
they are in float64."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from probability_graphs import Graph

CAUSAL = [
    "%i = linalg.index 1 : index",
    "%j = linalg.index 2 : index",
    "%is = arith.cmpi sle, %j, %i : index",
    "%r = arith.select %is, %in0, %OTHER : f32",
]
CAPPED = [
    "%cap = arith.constant 2.0 : f32",
    "%ratio = arith.divf %in0, %cap : f32",
    "%t = math.tanh %ratio : f32",
    "%r = arith.mulf %t, %cap : f32",
]
CAPPED_BACK = [  # of the derivative and the score
    *("%one = arith.constant 1.0 : f32", *CAPPED[:3]),
    *("%square = arith.mulf %t, %t : f32", "%slope = arith.subf %one, %square : f32"),
    "%r = arith.mulf %slope, %in1 : f32",
]
KEPT = ["%c = arith.constant 0.6 : f32", "%share = arith.divf %in0, %c : f32", "%r = arith.mulf %share, %in1 : f32"]
LOADED = {"loaded": "hmk", "shared": "mk"}  # masks in memory, and which dimensions they have
RESULTS = {"dq": "hmd", "dk": "hkd", "dv": "hkn"}
# What is learned beside: which dimensions it has.
LEARNED = {
    "bias": "mk",
    "bias of each head": "hmk",
    "bias of keys": "k",
    "temperature of each query": "hm",
    "temperature of each head": "h",
    "temperature": "",
}


@dataclass(frozen=True)
class Case:
    """`way`: how the softmax's derivative is written: of probabilities ("torch"), or of exponentials and their sum
    ("jax"). `masked`: by positions, by −∞ ("causal") or a low number ("low"), or by a tensor, rows as a whole among
    others ("loaded", or "shared" by all heads).
    `modified`: scores by a cap, or probabilities by a dropout. `learned`: what else there is a derivative by. `wide`:
    the derivative of scores is multiplied as f32, whatever queries and keys are, as in JAX where scores are f32."""

    sizes: dict[str, int]
    kind: str = "f32"
    way: str = "torch"
    masked: str = ""
    modified: str = ""
    learned: str = ""
    wide: bool = False

    def graph(self) -> tuple[str, list[np.ndarray]]:
        """The text, and inputs."""
        g = Graph(self.kind, self.sizes)
        q, k, v, by = (g.argument(n, dims) for n, dims in (("q", "hmd"), ("k", "hkd"), ("v", "hkn"), ("g", "hmn")))
        score = s = plain = g.scores("s", q, k)
        if self.learned:
            other = (g.argument("learned", LEARNED[self.learned], "f32"), LEARNED[self.learned])
            op = "mulf" if self.is_factor else "addf"
            score = s = g.elementwise("learning", "hmk", [(s, "hmk"), other], [f"%r = arith.{op} %in0, %in1 : f32"])
        if self.modified == "capped":
            s = g.elementwise("capped", "hmk", [(s, "hmk")], CAPPED)
        s = self._masked(g, "masked", s, "lowest")
        e = g.exponentials("e", s)
        total = g.reduced("total", e, "hmk", "k", "addf")
        p = g.elementwise("p", "hmk", [(e, "hmk"), (total, "hm")], ["%r = arith.divf %in0, %in1 : f32"])
        dv = g.matmul(
            "dv", (self._narrow(g, self._kept(g, "w", p)), "hmk", self.kind), (by, "hmn", self.kind), "hkn", "m"
        )
        dp = g.matmul("dp", (by, "hmn", self.kind), (v, "hkn", self.kind), "hmk", "n")
        ds = self._of_softmax(g, self._kept(g, "dw", dp), p, e, total)
        ds = self._masked(g, "ds_masked", ds, "zero")
        if self.modified == "capped":
            ds = g.elementwise("ds_capped", "hmk", [(score, "hmk"), (ds, "hmk")], CAPPED_BACK)
        by_learned = []
        if self.learned:
            by_learned.append(self._summed(g, self._times(g, "by_factor", ds, (plain, "hmk"))))
            ds = self._times(g, "ds_of_product", ds, other)
        scaled = ["%c = arith.constant 0.25 : f32", "%r = arith.mulf %in0, %c : f32"]
        ds = g.elementwise("ds_scaled", "hmk", [(ds, "hmk")], scaled)
        factor = (ds, "hmk", "f32") if self.wide else (self._narrow(g, ds), "hmk", self.kind)
        dq = g.matmul("dq", factor, (k, "hkd", self.kind), "hmd", "k")
        dk = g.matmul("dk", factor, (q, "hmd", self.kind), "hkd", "m")
        results = dict(zip((dq, dk, dv), RESULTS.values(), strict=True))
        text = g.function_of(results | dict.fromkeys(by_learned, LEARNED.get(self.learned, "")))
        inputs = g.inputs()
        if self.masked in LOADED:
            inputs[5 if self.learned else 4][..., -1, :] = False  # a row without a key
        return text, inputs

    @property
    def is_factor(self) -> bool:
        return self.learned.startswith("temperature")

    def _times(self, g: Graph, name: str, ds: str, other: tuple[str, str]) -> str:
        """The derivative of scores times `other`, if what is learned is a factor of them."""
        return (
            g.elementwise(name, "hmk", [(ds, "hmk"), other], ["%r = arith.mulf %in0, %in1 : f32"])
            if self.is_factor
            else ds
        )

    def _summed(self, g: Graph, ds: str) -> str:
        """The derivative by what is learned."""
        over = "".join(d for d in "hmk" if d not in LEARNED[self.learned])
        return g.reduced("by_learned", ds, "hmk", over, "addf") if over else ds

    def _of_softmax(self, g: Graph, dp: str, p: str, e: str, total: str) -> str:
        whole, row = "hmk", "hm"
        if self.way == "torch":
            t = g.elementwise("weighted", whole, [(dp, whole), (p, whole)], ["%r = arith.mulf %in0, %in1 : f32"])
            sums = g.reduced("sums", t, whole, "k", "addf")
            body = ["%x = arith.mulf %in1, %in2 : f32", "%r = arith.subf %in0, %x : f32"]
            return g.elementwise("ds", whole, [(t, whole), (p, whole), (sums, row)], body)
        square = [
            "%one = arith.constant 1.0 : f32",
            "%x = arith.mulf %in0, %in0 : f32",
            "%r = arith.divf %one, %x : f32",
        ]
        inverse = g.elementwise("inverse", row, [(total, row)], square)
        body = ["%x = arith.mulf %in0, %in1 : f32", "%r = arith.mulf %x, %in2 : f32"]
        t = g.elementwise("weighted", whole, [(dp, whole), (inverse, row), (e, whole)], body)
        sums = g.reduced("sums", t, whole, "k", "addf")
        body = ["%x = arith.divf %in0, %in1 : f32", "%y = arith.subf %x, %in2 : f32", "%r = arith.mulf %y, %in3 : f32"]
        return g.elementwise("ds", whole, [(dp, whole), (total, row), (sums, row), (e, whole)], body)

    def _masked(self, g: Graph, name: str, x: str, other: str) -> str:
        if dims := LOADED.get(self.masked):
            if not any(given == "mask" for given, _, _ in g.arguments):
                g.argument("mask", dims, "i1")
            chosen = [f"%r = arith.select %in0, %in1, %{other} : f32"]
            return g.elementwise(name, "hmk", [("%mask", dims), (x, "hmk")], chosen)
        body = [line.replace("OTHER", other) for line in CAUSAL]
        if self.masked == "low" and other == "lowest":
            body = ["%low = arith.constant -2.38e+38 : f32", *(line.replace("lowest", "low") for line in body)]
        return g.elementwise(name, "hmk", [(x, "hmk")], body) if self.masked else x

    def _kept(self, g: Graph, name: str, x: str) -> str:
        """Times the mask of a dropout."""
        if self.modified != "dropped":
            return x
        if name == "w":
            g.argument("kept", "hmk", "f32")
        return g.elementwise(name, "hmk", [(x, "hmk"), ("%kept", "hmk")], KEPT)

    def _narrow(self, g: Graph, x: str) -> str:
        if self.kind == "f32":
            return x
        return g.elementwise(x[1:] + "_narrow", "hmk", [(x, "hmk")], ["%r = arith.addf %in0, %zero : f32"], self.kind)

    def expected(self, inputs: list[np.ndarray]) -> list[np.ndarray]:
        """The three derivatives in float64; rows without a key have none."""
        q, k, v, by, *others = (x.astype(np.float64) for x in inputs)
        s = plain = 0.25 * q @ k.swapaxes(1, 2)
        if self.learned:
            own = LEARNED[self.learned]
            learned = others.pop(0).reshape([s.shape["hmk".index(d)] if d in own else 1 for d in "hmk"])
            s = s * learned if self.is_factor else s + learned
        t = np.tanh(s / 2)
        seen = np.ones(s.shape, bool)
        if self.masked:
            causal = np.arange(s.shape[2]) <= np.arange(s.shape[1])[:, None]
            seen = others.pop(0) > 0 if self.masked in LOADED else np.broadcast_to(causal, s.shape)
        kept = others[0] / 0.6 if self.modified == "dropped" else 1.0
        x = np.where(seen, 2 * t if self.modified == "capped" else s, -np.inf)
        largest = x.max(-1, keepdims=True)
        e = np.exp(x - np.where(np.isinf(largest), 0, largest))
        total = e.sum(-1, keepdims=True)
        p = e / np.where(total == 0, 1, total)
        dp = by @ v.swapaxes(1, 2) * kept
        ds = p * (dp - (p * dp).sum(-1, keepdims=True))
        if self.modified == "capped":
            ds = ds * (1 - t**2)
        found = []
        if self.learned:
            whole = ds * plain if self.is_factor else ds
            found.append(whole.sum(tuple(i for i, d in enumerate("hmk") if d not in own)))
            ds = ds * learned if self.is_factor else ds
        ds = 0.25 * ds
        return [ds @ k, ds.swapaxes(1, 2) @ q, (p * kept).swapaxes(1, 2) @ by, *found]

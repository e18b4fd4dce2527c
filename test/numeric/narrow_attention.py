"""Attention graphs in f16 and bf16 with f32 scores, in many variants, for tests of the GPU target."""

from __future__ import annotations

from dataclasses import dataclass


def shape_of(sizes, element: str) -> str:
    return f"tensor<{''.join(('?' if s is None else str(s)) + 'x' for s in sizes)}{element}>"


@dataclass(frozen=True)
class NarrowAttention:
    """softmax(mod(Q·Kᵀ))·V of f16 or bf16, scores in f32.

    `batch`: leading dimensions. `groups`: queries per key head, as a dimension of Q after `batch` (GQA). `bias`: the
    dimensions of an added bias among "b" (batch), "g", "m" and "k"; the last two change places in memory where it is
    `bias_transposed`. `transposed`: K is stored d × keys, `values_transposed`: V likewise. `out`: the type of
    the result. `stored`: the type of K and V in memory, cast to `element` before use. `key_scale`: K is multiplied by a
    factor for each key, `value_bias`: a row is added to V. `page`: K and V are in pages of so many keys, which a table
    for each entry of the batch lists.
    """

    m: int
    k: int
    d: int
    dv: int
    batch: tuple[int, ...] = (2,)
    groups: int = 1
    element: str = "bf16"
    out: str = ""
    scale: float | None = None
    causal: bool = False
    window: int = 0
    softcap: float = 0.0
    bias: str = ""
    bias_element: str = "f32"
    bias_transposed: bool = False
    mask: bool = False
    transposed: bool = False
    values_transposed: bool = False
    dynamic: bool = False
    stored: str = ""
    key_scale: bool = False
    value_bias: bool = False
    page: int = 0

    def text(self) -> str:
        return _Text(self).function()


class _Text:
    def __init__(self, g: NarrowAttention):
        self.g = g
        self.lines: list[str] = []
        self.b = [f"b{i}" for i in range(len(g.batch))]
        self.g_dim = ["g"] if g.groups > 1 else []
        self.rows = [*self.b, *self.g_dim, "m"]
        self.sizes = dict(zip(self.b, g.batch, strict=True)) | {"g": g.groups, "m": g.m, "k": g.k, "d": g.d, "e": g.dv}

    def kind(self, dims, element: str) -> str:
        known = [None if self.g.dynamic and d in "mk" else self.sizes[d] for d in dims]
        return shape_of(known, element)

    def empty(self, name: str, dims, element: str) -> None:
        dynamic = ", ".join(f"%n{d}" for d in dims if self.g.dynamic and d in "mk")
        self.lines.append(f"%{name} = tensor.empty({dynamic}) : {self.kind(dims, element)}")

    def filled(self, name: str, value: str, dims) -> None:
        self.empty(f"{name}_e", dims, "f32")
        kind = self.kind(dims, "f32")
        self.lines.append(f"%{name} = linalg.fill ins(%{value} : f32) outs(%{name}_e : {kind}) -> {kind}")

    def generic(self, name: str, loops, ins, out, body: list[str], reduced=()) -> None:
        """`ins`: (value, dims, element); `out` likewise."""
        every = ", ".join(loops)
        maps = ", ".join(f"affine_map<({every}) -> ({', '.join(dims)})>" for _, dims, _ in [*ins, out])
        kinds = ", ".join('"reduction"' if d in reduced else '"parallel"' for d in loops)
        inputs = ", ".join(f"%{v}" for v, _, _ in ins) + " : " + ", ".join(self.kind(d, e) for _, d, e in ins)
        inputs = f"ins({inputs})" if ins else ""
        result = self.kind(out[1], out[2])
        arguments = ", ".join(f"%x{i}: {e}" for i, (_, _, e) in enumerate([*ins, out]))
        self.lines.append(
            f"%{name} = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}} "
            f"{inputs} outs(%{out[0]} : {result}) {{\n  ^bb0({arguments}):\n    "
            + "\n    ".join(body)
            + f"\n  }} -> {result}"
        )

    def contraction(self, name: str, a, b, out, loops, reduced: str) -> None:
        e = self.g.element
        narrow = e != "f32"
        body = [
            *([f"%p = arith.extf %x0 : {e} to f32", f"%q1 = arith.extf %x1 : {e} to f32"] if narrow else []),
            f"%r = arith.mulf {'%p, %q1' if narrow else '%x0, %x1'} : f32",
            "%t = arith.addf %x2, %r : f32",
            "linalg.yield %t : f32",
        ]
        self.generic(name, loops, [a, b], out, body, [reduced])

    def cast(self, name: str, value: str, dims, element: str) -> str:
        if element == "f32":
            return value
        self.empty(f"{name}_e", dims, element)
        body = [f"%t = arith.truncf %x0 : f32 to {element}", f"linalg.yield %t : {element}"]
        self.generic(name, dims, [(value, dims, "f32")], (f"{name}_e", dims, element), body)
        return name

    def widened(self, value: str, element: str, body: list[str]) -> str:
        """A value as f32."""
        if element == "f32":
            return value
        body.append(f"{value}w = arith.extf {value} : {element} to f32")
        return f"{value}w"

    def made(self, name: str, dims, extra: str, extra_dims, op: str) -> str:
        """K or V as matmuls take it: from pages, cast, with another operand."""
        g = self.g
        stored, ins, body = g.stored or g.element, [], []
        if g.page:
            self.lines.append(f"%{name}_page = arith.constant {g.page} : index")
            keys, column = dims.index("k"), len(dims) - 1
            entry = [f"%{name}_b{i}" for i in range(len(self.b))]
            body += [f"{v} = linalg.index {i} : index" for i, v in enumerate(entry)]
            body += [
                f"%j = linalg.index {keys} : index",
                f"%c = linalg.index {column} : index",
                f"%jp = arith.divui %j, %{name}_page : index",
                f"%jr = arith.remui %j, %{name}_page : index",
                f"%t32 = tensor.extract %table[{', '.join([*entry, '%jp'])}] : {self.table}",
                "%t = arith.index_cast %t32 : i32 to index",
                f"%x = tensor.extract %{name}[%t, %jr, %c] : {self.pool(dims[-1])}",
            ]
            last = "%x"
        else:
            ins, last = [(name, dims, stored)], "%x0"
        last = self.widened(last, stored, body)
        if extra:
            ins.append((extra, extra_dims, "f32"))
            body.append(f"%y = arith.{op} {last}, %x{len(ins) - 1} : f32")
            last = "%y"
        if g.element != "f32":
            body.append(f"%n = arith.truncf {last} : f32 to {g.element}")
            last = "%n"
        body.append(f"linalg.yield {last} : {g.element}")
        self.empty(f"{name}_made_e", dims, g.element)
        self.generic(f"{name}_made", dims, ins, (f"{name}_made_e", dims, g.element), body)
        return f"{name}_made"

    @property
    def table(self) -> str:
        return shape_of([*self.g.batch, -(-self.g.k // self.g.page)], "i32")

    def pool(self, column: str) -> str:
        return shape_of([None, self.g.page, self.sizes[column]], self.g.stored or self.g.element)

    @property
    def stored_bias(self) -> list[str]:
        dims = [d for d in [*self.rows, "k"] if d[0] in self.g.bias]
        return [*dims[:-2], *reversed(dims[-2:])] if self.g.bias_transposed else dims

    def modified(self) -> str:
        """What stands between the first matmul and softmax, as one element-wise op."""
        g, dims = self.g, [*self.rows, "k"]
        ins, body, last = [("s", dims, "f32")], [], "%x0"
        if g.scale is not None:
            self.lines.append(f"%scale = arith.constant {g.scale} : f32")
            body.append(f"%scaled = arith.mulf {last}, %scale : f32")
            last = "%scaled"
        if g.softcap:
            self.lines.append(f"%cap = arith.constant {g.softcap} : f32")
            body += [
                f"%c = arith.divf {last}, %cap : f32",
                "%c1 = math.tanh %c : f32",
                "%c2 = arith.mulf %c1, %cap : f32",
            ]
            last = "%c2"
        if g.bias:
            bias_dims = [d for d in dims if d[0] in g.bias]
            bias = "bias"
            if g.bias_transposed:
                bias = "bias_straight"
                self.empty(f"{bias}_e", bias_dims, g.bias_element)
                stored = ("bias", self.stored_bias, g.bias_element)
                body_of_move = [f"linalg.yield %x0 : {g.bias_element}"]
                self.generic(bias, bias_dims, [stored], (f"{bias}_e", bias_dims, g.bias_element), body_of_move)
            ins.append((bias, bias_dims, g.bias_element))
            if g.bias_element != "f32":
                body.append(f"%bf = arith.extf %x{len(ins) - 1} : {g.bias_element} to f32")
            value = "%bf" if g.bias_element != "f32" else f"%x{len(ins) - 1}"
            body.append(f"%biased = arith.addf {last}, {value} : f32")
            last = "%biased"
        if g.causal or g.window:
            body += [f"%i = linalg.index {len(dims) - 2} : index", f"%j = linalg.index {len(dims) - 1} : index"]
        if g.causal:
            body += ["%dead = arith.cmpi sgt, %j, %i : index", f"%v0 = arith.select %dead, %minus_inf, {last} : f32"]
            last = "%v0"
        if g.window:
            self.lines.append(f"%window = arith.constant {g.window} : index")
            body += [
                "%reach = arith.addi %j, %window : index",
                "%old = arith.cmpi slt, %reach, %i : index",
                f"%v1 = arith.select %old, %minus_inf, {last} : f32",
            ]
            last = "%v1"
        if g.mask:
            mask_dims = [*self.b, "m", "k"]
            ins.append(("mask", mask_dims, "i1"))
            body.append(f"%v2 = arith.select %x{len(ins) - 1}, {last}, %minus_inf : f32")
            last = "%v2"
        if not body:
            return "s"
        self.empty("mod_e", dims, "f32")
        body.append(f"linalg.yield {last} : f32")
        self.generic("mod", dims, ins, ("mod_e", dims, "f32"), body)
        return "mod"

    def function(self) -> str:
        g, rows = self.g, self.rows
        q_dims, v_dims = [*rows, "d"], [*self.b, *("ek" if g.values_transposed else "ke")]
        k_dims = [*self.b, "d", "k"] if g.transposed else [*self.b, "k", "d"]
        stored = g.stored or g.element
        arguments = [("q", q_dims, g.element), ("k", k_dims, stored), ("v", v_dims, stored)]
        if g.key_scale:
            arguments.append(("key_scale", ["k"], "f32"))
        if g.value_bias:
            arguments.append(("value_bias", ["e"], "f32"))
        if g.bias:
            arguments.append(("bias", self.stored_bias, g.bias_element))
        if g.mask:
            arguments.append(("mask", [*self.b, "m", "k"], "i1"))
        if g.dynamic:
            self.lines += [f"%at{n} = arith.constant {n} : index" for n in range(6)]
            self.lines.append(f"%nm = tensor.dim %q, %at{q_dims.index('m')} : {self.kind(q_dims, g.element)}")
            self.lines.append(f"%nk = tensor.dim %v, %at{v_dims.index('k')} : {self.kind(v_dims, g.element)}")
        self.lines += ["%zero = arith.constant 0.0 : f32", "%minus_inf = arith.constant 0xFF800000 : f32"]
        scores, out = [*rows, "k"], [*rows, "e"]
        self.filled("s0", "zero", scores)
        loops = [*rows, "k", "d"]
        e = g.element
        key, value = "k", "v"
        if g.stored or g.key_scale or g.page:
            key = self.made("k", k_dims, "key_scale" if g.key_scale else "", ["k"], "mulf")
        if g.stored or g.value_bias or g.page:
            value = self.made("v", v_dims, "value_bias" if g.value_bias else "", ["e"], "addf")
        self.contraction("s", ("q", q_dims, e), (key, k_dims, e), ("s0", scores, "f32"), loops, "d")
        x = self.modified()
        self.empty("p0", scores, "f32")
        self.filled("m0", "minus_inf", rows)
        self.filled("a0", "zero", rows)
        self.empty("f0", rows, "f32")
        square, row = self.kind(scores, "f32"), self.kind(rows, "f32")
        self.lines.append(
            f"%sm:4 = linalg_ext.softmax dimension({len(rows)}) ins(%{x} : {square}) "
            f"outs(%p0, %m0, %a0, %f0 : {square}, {row}, {row}, {row}) : {square}, {row}, {row}, {row}"
        )
        narrow = self.cast("pn", "sm#0", scores, e)
        self.filled("o0", "zero", out)
        self.contraction(
            "o", (narrow, scores, e), (value, v_dims, e), ("o0", out, "f32"), [*rows, "e", "k"], "k"
        )  # fmt: skip
        element = g.out or e
        result = "o" if element == "f32" else self.cast("on", "o", out, element)
        kinds = {n: self.kind(d, t) for n, d, t in arguments}
        if g.page:
            kinds |= {"k": self.pool("d"), "v": self.pool("e"), "table": self.table}
        text = ", ".join(f"%{n}: {t}" for n, t in kinds.items())
        kind = self.kind(out, element)
        body = "\n".join([*self.lines, f"return %{result} : {kind}"])
        return f"func.func @attention({text}) -> {kind} {{\n{body}\n}}\n"

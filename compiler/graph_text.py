"""The MLIR text of an Attention (see ``graphs.py``)."""

from typing import TYPE_CHECKING, Any

from .graphs import FLOAT8
from .linalg_text import LinalgText, literal

if TYPE_CHECKING:
    from .graphs import Attention

_MINUS_INFINITY = {"f32": "0xFF800000", "f64": "0xFFF0000000000000"}


class Writer(LinalgText):
    """Loops are b, h, g (a head of its group, where heads share keys), m, n, d or e (of values); w are sequences."""

    def __init__(self, graph: "Attention"):
        self.g = graph
        self.grouped = graph.kv != graph.heads
        sizes = {
            "b": graph.batch,
            "h": graph.kv,
            "g": graph.heads // graph.kv,
            "m": graph.queries,
            "n": graph.keys,
            "d": graph.head_size,
            "e": graph.d_v,
            "w": len(graph.groups),
            "0": 1,
        }
        # What is known at run time only; a batch of sequences that stand one after the other is one.
        dynamic = ("mnw" if graph.groups else "bmn") if graph.dynamic else ""
        self.heads = "hg" if self.grouped else "h"
        super().__init__(sizes, dynamic, "f64" if graph.element == "f64" else "f32")

    def dims(self, layout: str, s: str, d: str, heads: str) -> str:
        """The loops that count through a tensor of that layout."""
        return layout.replace("s", "\0").replace("d", d).replace("\0", s).replace("h", heads)

    def module(self) -> str:
        g, element, acc = self.g, self.g.element, self.acc
        rows, scores = f"b{self.heads}m", f"b{self.heads}mn"
        q = self.dims(g.input_layout, "m", "d", self.heads)
        k, v = self.dims(g.input_layout, "n", "d", "h"), self.dims(g.value_layout, "n", "e", "h")
        out = self.dims(g.output_layout, "m", "e", self.heads)
        arguments = self.arguments()
        self.lines += [
            f"%zero = arith.constant 0.0 : {acc}",
            f"%minus_inf = arith.constant {_MINUS_INFINITY[acc]} : {acc}",
        ]
        if g.packed:
            self.unpack(arguments["qkv"])
        query = self.split("%q", q, element)
        self.filled("s_init", "%zero", scores)
        self.contraction("s", f"{scores}d", (query, q, element), ("%k", k, element), scores)
        if g.groups:
            self.groups()
        self.modified(scores)
        square, row = self.empty("p", scores, acc), self.empty("scale", rows, acc)
        self.filled("max_init", "%minus_inf", rows)
        self.filled("sum_init", "%zero", rows)
        self.lines.append(
            f"%p:4 = linalg_ext.softmax dimension({len(rows)}) ins(%modified : {square})\n"
            f"    outs(%p_empty, %max_init, %sum_init, %scale_empty : {square}, {row}, {row}, {row})\n"
            f"    : {square}, {row}, {row}, {row}"
        )
        probabilities = "%p#0"
        if element != acc:
            self.cast("p_cast", "%p#0", scores, element, g.scale_p)
            probabilities = "%p_cast"
        self.filled("o_init", "%zero", out)
        loops = f"b{self.heads}men"
        self.contraction("o", loops, (probabilities, scores, element), ("%v", v, element), out)
        result = "%o"
        if g.output_element != acc or g.scale_o != 1.0:
            self.cast("o_cast", "%o", out, g.output_element, g.scale_o, FLOAT8.get(g.output_element))
            result = "%o_cast"
        results = [self.joined(result, out, g.output_element)]
        if g.lse:
            self.generic(
                "lse",
                rows,
                "",
                [("%p#1", rows, acc), ("%p#2", rows, acc)],
                ("%scale_empty", rows, acc),
                [f"%log = math.log %in1 : {acc}", f"%l = arith.addf %in0, %log : {acc}", f"linalg.yield %l : {acc}"],
            )
            results.append(self.joined("%lse", rows, acc, "_lse"))
        kinds = ", ".join(kind for _, kind in results)
        self.lines.append(f"return {', '.join(value for value, _ in results)} : {kinds}")
        body = "\n".join(f"  {line}" for line in self.lines)
        listed = ", ".join(f"%{name}: {kind}" for name, kind in arguments.items())
        return f"func.func @attention({listed}) -> ({kinds}) {{\n{body}\n}}\n"

    def arguments(self) -> dict[str, str]:
        """Their types. Sizes that are not known are those of dimensions of arguments."""
        g = self.g
        layouts = {
            "q": self.dims(g.input_layout, "m", "0", "0"),
            "k": self.dims(g.input_layout, "n", "0", "0"),
            "v": self.dims(g.value_layout, "n", "0", "0"),
            "qkv": "bm0",
            "bias": "".join(c if l in g.bias else "0" for c, l in zip("b0mn", "bhqk", strict=True)),
            "mask": "".join(c if l in g.mask else "0" for c, l in zip("b0mn", "bhqk", strict=True)),
            "lengths": "b",
            "documents": "bn",
        }
        kinds, places = {}, {"n": ("qkv", 1)} if g.packed else {}
        for name, (shape, element) in g.arguments().items():
            dims = layouts.get(name, "0" * len(shape))
            for d, c in enumerate(dims):
                places.setdefault(c, (name, d))
            sizes = ["?" if c in self.dynamic else str(n) for c, n in zip(dims, shape, strict=True)]
            if name.startswith("seqstart") and g.dynamic:
                sizes = ["?"]
            kinds[name] = f"tensor<{'x'.join(sizes)}x{element}>"
        for c in self.dynamic.replace("w", ""):
            name, d = places[c]
            self.lines += [
                f"%at_{c} = arith.constant {d} : index",
                f"%size_{c} = tensor.dim %{name}, %at_{c} : {kinds[name]}",
            ]
        return kinds

    def unpack(self, whole: str) -> None:
        """%q, %k and %v as slices of one argument, [b, s, heads, d]."""
        g, e = self.g, self.g.element
        b, m, h, d = self.size("b"), self.size("m"), g.heads, g.head_size
        vb, vm = self.value("b"), self.value("m")
        if g.packed == "h3d":
            dims, sizes, groups = [h, 3, d], [h, 1, d], "[[0], [1], [2, 3, 4]]"
        else:
            dims = sizes = [h + 2 * g.kv, d]
            groups = "[[0], [1], [2, 3]]"
        heads = f"tensor<{b}x{m}x{'x'.join(map(str, dims))}x{e}>"
        shape = ", ".join([vb, vm, *map(str, dims)])
        self.lines.append(f"%heads = tensor.expand_shape %qkv {groups} output_shape [{shape}] : {whole} into {heads}")
        first = 0
        for i, (name, count) in enumerate((("q", g.heads), ("k", g.kv), ("v", g.kv))):
            offsets = [0, i, 0] if g.packed == "h3d" else [first, 0]
            taken = sizes if g.packed == "h3d" else [count, d]
            kind = f"tensor<{b}x{m}x{count}x{d}x{e}>"
            ones = ", ".join("1" * (2 + len(dims)))
            self.lines.append(
                f"%{name} = tensor.extract_slice %heads[{', '.join(map(str, [0, 0, *offsets]))}]"
                f" [{', '.join([vb, vm, *map(str, taken)])}] [{ones}] : {heads} to {kind}"
            )
            first += count

    def groups(self) -> None:
        """%first, %end: the keys of each query's sequence; %shift: from its place among the queries to that of keys.

        Sequences start where the ones before end, so they are the last start up to the query, the first end beyond it.
        """
        whole = "tensor<?xi32>" if self.g.dynamic else f"tensor<{self.sizes['w'] + 1}xi32>"
        if self.g.dynamic:
            self.lines += [
                "%at_w = arith.constant 0 : index",
                "%one_w = arith.constant 1 : index",
                f"%starts = tensor.dim %seqstart_q, %at_w : {whole}",
                "%size_w = arith.subi %starts, %one_w : index",
            ]
        for name, offset in (("starts", 0), ("ends", 1)):
            for side in "qk":
                self.lines.append(
                    f"%{name}_{side} = tensor.extract_slice %seqstart_{side}[{offset}] [{self.value('w')}] [1] : "
                    f"{whole} to {self.type('w', 'i32')}"
                )
        self.lines += ["%least = arith.constant 0 : i32", "%most = arith.constant 2147483647 : i32"]
        self.bound("first", "starts", "k")
        self.bound("end", "ends", "k")
        known = ("q_end", "ends", "%end") if self.g.bottom_right else ("q_first", "starts", "%first")
        self.bound(known[0], known[1], "q")
        self.empty("shift", "m", "i32")
        ins = [(known[2], "m", "i32"), (f"%{known[0]}", "m", "i32")]
        body = ["%moved = arith.subi %in0, %in1 : i32", "linalg.yield %moved : i32"]
        self.generic("shift", "m", "", ins, ("%shift_empty", "m", "i32"), body)

    def bound(self, name: str, places: str, side: str) -> None:
        """The greatest start up to each query, or the least end beyond it: `places` among the queries or the keys."""
        neutral, test, reduce = ("%least", "sle", "maxsi") if places == "starts" else ("%most", "sgt", "minsi")
        self.filled(f"{name}_init", neutral, "m", "i32")
        body = [
            "%i = linalg.index 0 : index",
            "%query = arith.index_cast %i : index to i32",
            f"%counts = arith.cmpi {test}, %in0, %query : i32",
            f"%place = arith.select %counts, %in1, {neutral} : i32",
            f"%bound = arith.{reduce} %out, %place : i32",
            "linalg.yield %bound : i32",
        ]
        ins = [(f"%{places}_q", "w", "i32"), (f"%{places}_{side}", "w", "i32")]
        self.generic(name, "mw", "w", ins, (f"%{name}_init", "m", "i32"), body)

    def split(self, value: str, dims: str, element: str) -> str:
        """Heads [h·g] as [h, g]: no data moves."""
        if not self.grouped:
            return value
        groups, whole = self.reassociation(dims)
        name = f"{value}_split"
        shape = ", ".join(self.value(c) for c in dims)
        self.lines.append(
            f"{name} = tensor.expand_shape {value} {groups} output_shape [{shape}] : "
            f"{self.whole_type(whole, element)} into {self.type(dims, element)}"
        )
        return name

    def joined(self, value: str, dims: str, element: str, suffix: str = "") -> tuple[str, str]:
        if not self.grouped:
            return value, self.type(dims, element)
        groups, whole = self.reassociation(dims)
        kind = self.whole_type(whole, element)
        self.lines.append(
            f"%joined{suffix} = tensor.collapse_shape {value} {groups} : {self.type(dims, element)} into {kind}"
        )
        return f"%joined{suffix}", kind

    def reassociation(self, dims: str) -> tuple[str, list[str]]:
        groups: list[list[int]] = []
        sizes: list[str] = []
        for i, c in enumerate(dims):
            if c == "g":
                groups[-1].append(i)
                sizes[-1] = str(self.g.heads)
            else:
                groups.append([i])
                sizes.append(self.size(c))
        return str(groups), sizes

    def broadcast(self, value: str, letters: str, element: str) -> tuple[str, str, str]:
        """A bias or mask as an operand of the ops on scores."""
        dims = "".join(c if l in letters else "0" for c, l in zip(["b", self.heads, "m", "n"], "bhqk", strict=True))
        return (self.split(value, dims, element) if "g" in dims else value), dims, element

    def modified(self, scores: str) -> None:
        """%modified: all that is done to a score, in one op."""
        g, acc = self.g, self.acc
        lower, upper = g.window
        ins = [("%s", scores, acc)]
        body = [f"%scaled = arith.mulf %in0, %factor : {acc}"]
        self.lines.append(f"%factor = arith.constant {literal(g.factor)} : {acc}")
        last = "%scaled"

        def operand(value: str, dims: str, element: str) -> str:
            ins.append((value, dims, element))
            return f"%in{len(ins) - 1}"

        def dead(condition: str, name: str) -> str:
            body.append(f"%{name} = arith.select {condition}, %minus_inf, {last} : {acc}")
            return f"%{name}"

        if g.softcap:
            self.lines += [
                f"%cap = arith.constant {literal(g.softcap)} : {acc}",
                f"%inverse_cap = arith.constant {literal(1 / g.softcap)} : {acc}",
            ]
            body += [
                f"%small = arith.mulf {last}, %inverse_cap : {acc}",
                f"%tanh = math.tanh %small : {acc}",
                f"%capped = arith.mulf %tanh, %cap : {acc}",
            ]
            last = "%capped"
        if g.alibi or g.lengths or g.groups or g.window != (None, None):
            body += [
                f"%i = linalg.index {scores.index('m')} : index",
                f"%j = linalg.index {scores.index('n')} : index",
                "%straight = arith.subi %j, %i : index",
            ]
        limits = {}
        for name, dims in {"first": "m", "end": "m", "shift": "m"}.items() if g.groups else ():
            limits[name] = f"%at_{name}"
            body.append(f"%at_{name} = arith.index_cast {operand(f'%{name}', dims, 'i32')} : i32 to index")
        if g.lengths:
            limits["end"] = "%length"
            body.append(f"%length = arith.index_cast {operand('%lengths', 'b', 'i32')} : i32 to index")
        if g.alibi or g.window != (None, None):
            body.append(f"%distance = arith.subi %straight, {self.shift(body, limits)} : index")
        if g.alibi:
            slope = operand("%slopes", self.heads, acc)
            self.slopes()
            word = "i64" if acc == "f64" else "i32"
            body += [
                f"%word = arith.index_cast %distance : index to {word}",
                f"%real = arith.sitofp %word : {word} to {acc}",
                f"%slanted = arith.mulf {slope}, %real : {acc}",
                f"%sloped = arith.addf {last}, %slanted : {acc}",
            ]
            last = "%sloped"
        if g.bias:
            value = operand(*self.broadcast("%bias", g.bias, g.bias_element))
            if g.bias_element != acc:
                body.append(f"%wide_bias = arith.extf {value} : {g.bias_element} to {acc}")
                value = "%wide_bias"
            body.append(f"%biased = arith.addf {last}, {value} : {acc}")
            last = "%biased"
        for name, limit, test in (("lower", lower, "slt"), ("upper", upper, "sgt")):
            if limit is not None:
                self.lines.append(f"%{name} = arith.constant {limit} : index")
                body.append(f"%dead_{name} = arith.cmpi {test}, %distance, %{name} : index")
                last = dead(f"%dead_{name}", f"in_{name}")
        for name, test in (("first", "slt"), ("end", "sge")):
            if name in limits:
                body.append(f"%beyond_{name} = arith.cmpi {test}, %j, {limits[name]} : index")
                last = dead(f"%beyond_{name}", f"in_{name}")
        if g.documents:
            own, other = (operand("%documents", dims, "i32") for dims in ("bm", "bn"))
            body.append(f"%is_foreign = arith.cmpi ne, {own}, {other} : i32")
            last = dead("%is_foreign", "in_document")
        if g.mask:
            value = operand(*self.broadcast("%mask", g.mask, "i1"))
            body.append(f"%in_mask = arith.select {value}, {last}, %minus_inf : {acc}")
            last = "%in_mask"
        body.append(f"linalg.yield {last} : {acc}")
        self.empty("modified", scores, acc)
        self.generic("modified", scores, "", ins, ("%modified_empty", scores, acc), body)

    def shift(self, body: list[str], limits: dict[str, str]) -> str:
        """How far after its own index the key stands that a query stands at."""
        g = self.g
        if g.groups:
            return limits["shift"]
        if g.bottom_right and (g.lengths or g.dynamic):
            for c in "mn":
                if c not in self.dynamic:
                    self.lines.append(f"%size_{c} = arith.constant {self.sizes[c]} : index")
            body.append(f"%late = arith.subi {limits.get('end', '%size_n')}, %size_m : index")
            return "%late"
        self.lines.append(f"%late = arith.constant {g.keys - g.queries if g.bottom_right else 0} : index")
        return "%late"

    def slopes(self) -> None:
        groups: Any = [self.g.slope(h) for h in range(self.g.heads)]
        if self.grouped:
            size = self.sizes["g"]
            groups = [groups[h : h + size] for h in range(0, self.g.heads, size)]
            values = ", ".join("[" + ", ".join(map(literal, group)) + "]" for group in groups)
        else:
            values = ", ".join(map(literal, groups))
        self.lines.append(f"%slopes = arith.constant dense<[{values}]> : {self.type(self.heads, self.acc)}")

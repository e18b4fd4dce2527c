"""The MLIR text of an Attention (see ``graphs.py``)."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .graphs import Attention

_MINUS_INFINITY = {"f32": "0xFF800000", "f64": "0xFFF0000000000000"}


class Writer:
    """Loops are b, h, g (a head of its group, where heads share keys), m, n, and d or e (of values)."""

    def __init__(self, graph: "Attention"):
        self.g = graph
        self.acc = "f64" if graph.element == "f64" else "f32"
        self.grouped = graph.kv != graph.heads
        self.sizes = {
            "b": graph.batch,
            "h": graph.kv,
            "g": graph.heads // graph.kv,
            "m": graph.queries,
            "n": graph.keys,
            "d": graph.head_size,
            "e": graph.d_v,
        }
        self.heads = "hg" if self.grouped else "h"
        self.lines: list[str] = []

    def type(self, dims: str, element: str) -> str:
        return f"tensor<{'x'.join(str(self.sizes[c]) for c in dims)}x{element}>"

    def dims(self, layout: str, s: str, d: str, heads: str) -> str:
        """The loops that count through a tensor of that layout."""
        return layout.replace("s", "\0").replace("d", d).replace("\0", s).replace("h", heads)

    def map(self, loops: str, dims: str) -> str:
        return f"affine_map<({', '.join(loops)}) -> ({', '.join(dims)})>"

    def filled(self, name: str, value: str, dims: str) -> str:
        kind = self.type(dims, self.acc)
        self.lines += [
            f"%{name}_empty = tensor.empty() : {kind}",
            f"%{name} = linalg.fill ins({value} : {self.acc}) outs(%{name}_empty : {kind}) -> {kind}",
        ]
        return kind

    def generic(
        self,
        name: str,
        loops: str,
        reduced: str,
        ins: list[tuple[str, str, str]],
        out: tuple[str, str, str],
        body: list,
    ) -> None:
        """An op over `loops`; operands are (value, dims, element), and %in0, %in1, …, %out in the body."""
        operands = [*ins, out]
        maps = ", ".join(self.map(loops, dims) for _, dims, _ in operands)
        kinds = ", ".join('"reduction"' if c in reduced else '"parallel"' for c in loops)
        values, types = ", ".join(v for v, _, _ in ins), ", ".join(self.type(d, e) for _, d, e in ins)
        inputs = f" ins({values} : {types})" if ins else ""
        arguments = [f"%in{i}: {e}" for i, (_, _, e) in enumerate(ins)] + [f"%out: {out[2]}"]
        kind = self.type(out[1], out[2])
        lines = "\n".join(f"    {line}" for line in body)
        self.lines.append(
            f"%{name} = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}}"
            f"{inputs} outs({out[0]} : {kind}) {{\n  ^bb0({', '.join(arguments)}):\n{lines}\n  }} -> {kind}"
        )

    def contraction(self, name: str, loops: str, a: tuple[str, str, str], b: tuple[str, str, str], out: str) -> None:
        """out[…] += Σ a·b over the last loop."""
        body, names = [], []
        for i, (_, _, element) in enumerate((a, b)):
            if element != self.acc:
                body.append(f"%wide{i} = arith.extf %in{i} : {element} to {self.acc}")
            names.append(f"%in{i}" if element == self.acc else f"%wide{i}")
        body += [
            f"%product = arith.mulf {', '.join(names)} : {self.acc}",
            f"%sum = arith.addf %out, %product : {self.acc}",
            f"linalg.yield %sum : {self.acc}",
        ]
        self.generic(name, loops, loops[-1], [a, b], (f"%{name}_init", out, self.acc), body)

    def module(self) -> str:
        g, element, acc = self.g, self.g.element, self.acc
        rows, scores = f"b{self.heads}m", f"b{self.heads}mn"
        q = self.dims(g.input_layout, "m", "d", self.heads)
        k, v = self.dims(g.input_layout, "n", "d", "h"), self.dims(g.value_layout, "n", "e", "h")
        out = self.dims(g.output_layout, "m", "e", self.heads)
        self.lines += [
            f"%zero = arith.constant 0.0 : {acc}",
            f"%minus_inf = arith.constant {_MINUS_INFINITY[acc]} : {acc}",
        ]
        query = self.split("%q", q, element)
        self.filled("s_init", "%zero", scores)
        self.contraction("s", f"{scores}d", (query, q, element), ("%k", k, element), scores)
        self.modified(scores)
        square, row = self.type(scores, acc), self.type(rows, acc)
        self.lines += [f"%p_empty = tensor.empty() : {square}", f"%scale_empty = tensor.empty() : {row}"]
        self.filled("max_init", "%minus_inf", rows)
        self.filled("sum_init", "%zero", rows)
        self.lines.append(
            f"%p:4 = linalg_ext.softmax dimension({len(rows)}) ins(%modified : {square})\n"
            f"    outs(%p_empty, %max_init, %sum_init, %scale_empty : {square}, {row}, {row}, {row})\n"
            f"    : {square}, {row}, {row}, {row}"
        )
        probabilities = "%p#0"
        if element != acc:
            self.cast("p_cast", "%p#0", scores)
            probabilities = "%p_cast"
        self.filled("o_init", "%zero", out)
        loops = f"b{self.heads}men"
        self.contraction("o", loops, (probabilities, scores, element), ("%v", v, element), out)
        if element != acc:
            self.cast("o_cast", "%o", out)
        results = [self.joined("%o" if element == acc else "%o_cast", out, element)]
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
        names = ["%q", "%k", "%v", "%bias"]
        shapes = [f"tensor<{'x'.join(map(str, shape))}x{element}>" for shape in g.shapes()]
        arguments = ", ".join(f"{n}: {t}" for n, t in zip(names, shapes, strict=False))
        kinds = ", ".join(kind for _, kind in results)
        self.lines.append(f"return {', '.join(value for value, _ in results)} : {kinds}")
        body = "\n".join(f"  {line}" for line in self.lines)
        return f"func.func @attention({arguments}) -> ({kinds}) {{\n{body}\n}}\n"

    def cast(self, name: str, value: str, dims: str) -> None:
        kind = self.type(dims, self.g.element)
        self.lines.append(f"%{name}_empty = tensor.empty() : {kind}")
        body = [f"%t = arith.truncf %in0 : {self.acc} to {self.g.element}", f"linalg.yield %t : {self.g.element}"]
        self.generic(name, dims, "", [(value, dims, self.acc)], (f"%{name}_empty", dims, self.g.element), body)

    def split(self, value: str, dims: str, element: str) -> str:
        """Heads [h·g] as [h, g]: no data moves."""
        if not self.grouped:
            return value
        groups, whole = self.reassociation(dims)
        name = f"{value}_split"
        shape = ", ".join(str(self.sizes[c]) for c in dims)
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

    def reassociation(self, dims: str) -> tuple[str, list[int]]:
        groups: list[list[int]] = []
        sizes: list[int] = []
        for i, c in enumerate(dims):
            if c == "g":
                groups[-1].append(i)
                sizes[-1] *= self.sizes[c]
            else:
                groups.append([i])
                sizes.append(self.sizes[c])
        return str(groups), sizes

    def whole_type(self, sizes: list[int], element: str) -> str:
        return f"tensor<{'x'.join(map(str, sizes))}x{element}>"

    def modified(self, scores: str) -> None:
        """%modified: all that is done to a score, in one op."""
        g, acc = self.g, self.acc
        lower, upper = g.window
        ins = [("%s", scores, acc)]
        body = [f"%scaled = arith.mulf %in0, %factor : {acc}"]
        self.lines.append(f"%factor = arith.constant {_literal(g.factor)} : {acc}")
        last = "%scaled"
        if g.softcap:
            self.lines += [
                f"%cap = arith.constant {_literal(g.softcap)} : {acc}",
                f"%inverse_cap = arith.constant {_literal(1 / g.softcap)} : {acc}",
            ]
            body += [
                f"%small = arith.mulf {last}, %inverse_cap : {acc}",
                f"%tanh = math.tanh %small : {acc}",
                f"%capped = arith.mulf %tanh, %cap : {acc}",
            ]
            last = "%capped"
        if g.alibi or lower is not None or upper is not None:
            body += [
                f"%i = linalg.index {scores.index('m')} : index",
                f"%j = linalg.index {scores.index('n')} : index",
                "%distance = arith.subi %j, %i : index",
            ]
        if g.alibi:
            ins.append(("%slopes", self.heads, acc))
            self.slopes()
            word = "i64" if acc == "f64" else "i32"
            body += [
                f"%word = arith.index_cast %distance : index to {word}",
                f"%real = arith.sitofp %word : {word} to {acc}",
                f"%slanted = arith.mulf %in1, %real : {acc}",
                f"%sloped = arith.addf {last}, %slanted : {acc}",
            ]
            last = "%sloped"
        if g.bias:
            value = f"%in{len(ins)}"
            ins.append((self.split("%bias", scores, g.element), scores, g.element))
            if g.element != acc:
                body.append(f"%wide_bias = arith.extf {value} : {g.element} to {acc}")
                value = "%wide_bias"
            body.append(f"%biased = arith.addf {last}, {value} : {acc}")
            last = "%biased"
        for name, limit, test in (("lower", lower, "slt"), ("upper", upper, "sgt")):
            if limit is not None:
                self.lines.append(f"%{name} = arith.constant {limit} : index")
                body += [
                    f"%dead_{name} = arith.cmpi {test}, %distance, %{name} : index",
                    f"%in_{name} = arith.select %dead_{name}, %minus_inf, {last} : {acc}",
                ]
                last = f"%in_{name}"
        body.append(f"linalg.yield {last} : {acc}")
        self.lines.append(f"%modified_empty = tensor.empty() : {self.type(scores, acc)}")
        self.generic("modified", scores, "", ins, ("%modified_empty", scores, acc), body)

    def slopes(self) -> None:
        groups: Any = [self.g.slope(h) for h in range(self.g.heads)]
        if self.grouped:
            size = self.sizes["g"]
            groups = [groups[h : h + size] for h in range(0, self.g.heads, size)]
            values = ", ".join("[" + ", ".join(map(_literal, group)) + "]" for group in groups)
        else:
            values = ", ".join(map(_literal, groups))
        self.lines.append(f"%slopes = arith.constant dense<[{values}]> : {self.type(self.heads, self.acc)}")


def _literal(value: float) -> str:
    return f"{value:.17e}"

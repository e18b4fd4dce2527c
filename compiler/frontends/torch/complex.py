"""Complex tensors as pairs of real ones: rotary positions are often written as products of complex numbers.

    torch.polar(r, a)          r·cos a, r·sin a
    torch.view_as_complex(x)   x[…, 0], x[…, 1]
    x * y                      re·re − im·im, re·im + im·re
    x[…], x.unsqueeze(0), …    the same of both parts

Arguments that are complex are passed as `torch.view_as_real` has them.
"""

from collections.abc import Callable
from typing import Any

import torch

from ...diagnostics import user_error
from .casts import forget_asserts

aten = torch.ops.aten
# What does the same to both parts.
LINEAR = {
    getattr(aten, name)
    for name in (
        *("unsqueeze", "squeeze", "view", "_unsafe_view", "reshape", "expand", "permute", "transpose", "t", "slice"),
        *("select", "index", "index_select", "gather", "cat", "clone", "alias", "detach", "flip", "roll", "repeat"),
        *("sum", "mean", "neg", "contiguous", "lift_fresh_copy", "cumsum"),
    )
}
SAME = (aten.resolve_conj, aten.resolve_neg, aten.lift_fresh)

Part = Any  # a node, a number, or None for a part that is 0
Pair = tuple[Part, Part]


def split(graph: torch.fx.Graph) -> None:
    """Rewrites all of `graph` that this knows; complex values that no one reads go, others stay to be refused."""
    if not any(_is_complex(node) for node in graph.nodes):
        return
    forget_asserts(graph)
    splitter = _Splitter(graph)
    for node in list(graph.nodes):
        splitter.visit(node)
    for node in reversed(list(graph.nodes)):
        if node.op == "call_function" and not node.users and _is_complex(node):
            graph.erase_node(node)


def _is_complex(value: Any) -> bool:
    if isinstance(value, torch.fx.Node):
        value = value.meta.get("val")
    return isinstance(value, complex) or (isinstance(value, torch.Tensor) and value.is_complex())


class _Splitter:
    def __init__(self, graph: torch.fx.Graph):
        self.graph = graph
        self.pairs: dict[torch.fx.Node, Pair] = {}

    def visit(self, node: torch.fx.Node) -> None:
        if node.op == "placeholder" and _is_complex(node):
            node.meta["val"] = torch.view_as_real(node.meta["val"])
            node.meta.pop("tensor_meta", None)
            with self.graph.inserting_after(self.graph.find_nodes(op="placeholder")[-1]):
                self.pairs[node] = self._halves(node)
        elif node.op == "output":
            found = [n for n in node.all_input_nodes if n in self.pairs]
            if found:
                raise user_error(
                    f"results that are complex are not supported, such as '{found[0].name}'; "
                    "return torch.view_as_real of it, and call torch.view_as_complex on the kernel's result"
                )
        elif node.op == "call_function" and (_is_complex(node) or any(n in self.pairs for n in node.all_input_nodes)):
            write = RULES.get(getattr(node.target, "overloadpacket", None))
            with self.graph.inserting_before(node):
                made = write(self, node) if write is not None else None
            if isinstance(made, tuple):
                self.pairs[node] = made
            elif made is not None:
                node.replace_all_uses_with(made)
                self.graph.erase_node(node)

    def call(self, target: Any, *args: Any, **kwargs: Any) -> torch.fx.Node:
        new = self.graph.call_function(target, args, kwargs)
        values = torch.fx.map_arg((args, kwargs), lambda n: n.meta["val"])
        new.meta["val"] = target(*values[0], **values[1])
        return new

    def parts(self, value: Any) -> Pair:
        if isinstance(value, torch.fx.Node):
            return self.pairs.get(value, (value, None))
        return (value.real, value.imag) if isinstance(value, complex) else (value, None)

    def whole(self, node: torch.fx.Node) -> tuple[torch.fx.Node, torch.fx.Node]:
        """The parts, zeros where one is none."""
        re, im = self.pairs[node]
        return re, self.call(aten.mul.Tensor, re, 0.0) if im is None else im

    def _halves(self, x: torch.fx.Node) -> Pair:
        return tuple(self.call(aten.select.int, x, x.meta["val"].dim() - 1, i) for i in range(2))  # type: ignore[return-value]

    def times(self, a: Part, b: Part) -> Part:
        if a is None or b is None:
            return None
        if not isinstance(a, torch.fx.Node):
            a, b = b, a
        return self.call(aten.mul.Tensor, a, b) if isinstance(a, torch.fx.Node) else a * b

    def plus(self, a: Part, b: Part, target: Any = aten.add.Tensor) -> Part:
        if b is None:
            return a
        if a is None:
            return b if target is aten.add.Tensor else self.times(b, -1)
        return self.call(target, a, b)

    # Rules by op: the pair that it is, or the real node that takes its place; None leaves it as it is.

    def linear(self, node: torch.fx.Node) -> Any:
        def of(number: int) -> torch.fx.Node:
            chosen = torch.fx.map_arg(
                (node.args, node.kwargs), lambda n: self.whole(n)[number] if n in self.pairs else n
            )
            return self.call(node.target, *chosen[0], **chosen[1])

        if any(_is_complex(n) and n not in self.pairs for n in node.all_input_nodes):
            return None
        return of(0), of(1)

    def same(self, node: torch.fx.Node) -> Any:
        return self.pairs.get(node.args[0])

    def polar(self, node: torch.fx.Node) -> Pair:
        r, angle = node.args
        return tuple(self.times(r, self.call(f, angle)) for f in (aten.cos.default, aten.sin.default))  # type: ignore[return-value]

    def exp(self, node: torch.fx.Node) -> Any:
        if node.args[0] not in self.pairs:
            return None
        re, im = self.parts(node.args[0])
        if im is None:
            return self.call(aten.exp.default, re), None
        turn: tuple[Part, Part] = self.call(aten.cos.default, im), self.call(aten.sin.default, im)
        size = None if re is None else self.call(aten.exp.default, re)
        return turn if size is None else (self.times(size, turn[0]), self.times(size, turn[1]))

    def as_complex(self, node: torch.fx.Node) -> Pair:
        return self._halves(node.args[0])

    def as_real(self, node: torch.fx.Node) -> Any:
        if node.args[0] not in self.pairs:
            return None
        rank = node.meta["val"].dim() - 1
        parts = [self.call(aten.unsqueeze.default, part, rank) for part in self.whole(node.args[0])]
        return self.call(aten.cat.default, parts, rank)

    def real(self, node: torch.fx.Node) -> Any:
        return self.whole(node.args[0])[0] if node.args[0] in self.pairs else None

    def imag(self, node: torch.fx.Node) -> Any:
        return self.whole(node.args[0])[1] if node.args[0] in self.pairs else None

    def conj(self, node: torch.fx.Node) -> Any:
        re, im = self.parts(node.args[0])
        return re, self.times(im, -1)

    def absolute(self, node: torch.fx.Node) -> Any:
        if node.args[0] not in self.pairs:
            return None
        re, im = self.parts(node.args[0])
        squares = self.plus(self.times(re, re), self.times(im, im))
        return self.call(aten.sqrt.default, squares)

    def multiply(self, node: torch.fx.Node) -> Any:
        (a, b), (c, d) = (self.parts(v) for v in node.args[:2])
        re = self.plus(self.times(a, c), self.times(b, d), aten.sub.Tensor)
        return re, self.plus(self.times(a, d), self.times(b, c))

    def divide(self, node: torch.fx.Node) -> Any:
        (a, b), (c, d) = (self.parts(v) for v in node.args[:2])
        if d is not None or node.kwargs:
            return None
        return self.call(aten.div.Tensor, a, c), None if b is None else self.call(aten.div.Tensor, b, c)

    def added(self, node: torch.fx.Node) -> Any:
        (a, b), (c, d) = (self.parts(v) for v in node.args[:2])
        if node.kwargs:
            return None
        return self.plus(a, c, node.target), self.plus(b, d, node.target)

    def converted(self, node: torch.fx.Node) -> Any:
        """To another complex type, or from a real one."""
        to = node.args[1] if len(node.args) > 1 else node.kwargs.get("dtype")
        if to is None:
            return self.pairs.get(node.args[0])
        if not to.is_complex:
            return None
        convert = torch.ops.prims.convert_element_type.default
        return tuple(p and self.call(convert, p, to.to_real()) for p in self.parts(node.args[0]))


RULES: dict[Any, Callable[[_Splitter, torch.fx.Node], Any]] = {
    **dict.fromkeys(LINEAR, _Splitter.linear),
    **dict.fromkeys(SAME, _Splitter.same),
    **dict.fromkeys((aten._conj, aten.conj, aten._conj_physical, aten.conj_physical), _Splitter.conj),
    **dict.fromkeys((aten.add, aten.sub), _Splitter.added),
    **dict.fromkeys((aten._to_copy, torch.ops.prims.convert_element_type), _Splitter.converted),
    aten.polar: _Splitter.polar,
    aten.complex: lambda splitter, node: (node.args[0], node.args[1]),
    aten.exp: _Splitter.exp,
    aten.view_as_complex: _Splitter.as_complex,
    aten.view_as_real: _Splitter.as_real,
    aten.real: _Splitter.real,
    aten.imag: _Splitter.imag,
    aten.abs: _Splitter.absolute,
    aten.mul: _Splitter.multiply,
    aten.div: _Splitter.divide,
}

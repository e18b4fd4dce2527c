"""How much work a part of a graph is: the floating-point operations of its matmuls, from the sizes of its inputs."""

import operator
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch

from .calls import ATTENTIONS, is_matmul, name_of
from .sizes import combination, dimensions

UNKNOWN = 10**18
INTEGER_FUNCTIONS = {"FloorDiv": operator.floordiv, "CleanDiv": operator.floordiv, "Mod": operator.mod}  # of torch


def flops(part: torch.fx.GraphModule) -> Callable[[Sequence[Any]], int]:
    """A function from inputs of `part` to the operations; where sizes depend on data, they are taken to be many."""
    total: Any = sympy.Integer(0)
    for node in part.graph.nodes:
        total += _of(node)
    values = [node.meta.get("example_value") for node in part.graph.find_nodes(op="placeholder")]
    places: dict[Any, tuple[int, int | None]] = {
        **{value.node.expr: (i, None) for i, value in enumerate(values) if isinstance(value, torch.SymInt)},
        **dimensions(enumerate(values)),
    }
    told = {symbol: combination(symbol, list(places)) for symbol in total.free_symbols}
    if not told or not all(told.values()) or not _functions(total) <= INTEGER_FUNCTIONS.keys():
        fixed = UNKNOWN if told else int(total)
        return lambda inputs: fixed
    sizes = dict(zip(sympy.symbols(f"size:{len(places)}"), places.values(), strict=True))
    written = {symbol: sum(map(operator.mul, factors or (), (*sizes, 1))) for symbol, factors in told.items()}
    total = total.subs(written)
    read = sorted(total.free_symbols, key=str)
    formula = sympy.lambdify(read, total, modules=[INTEGER_FUNCTIONS, "math"])
    sources = [sizes[size] for size in read]
    return lambda inputs: formula(*[inputs[i] if d is None else inputs[i].shape[d] for i, d in sources])


def _functions(expr: Any) -> set[str]:
    return {type(f).__name__ for f in expr.atoms(sympy.Function)}


def _of(node: torch.fx.Node) -> Any:
    name = name_of(node)
    nodes: list[torch.fx.Node] = []
    torch.fx.map_arg((node.args, node.kwargs), nodes.append)  # each as often as it is an argument
    tensors = [v for n in nodes if isinstance(v := n.meta.get("example_value"), torch.Tensor)]
    if name in ATTENTIONS and len(tensors) >= 3:
        query, key, value = tensors[:3]
        return 2 * _elements(query.shape[:-1]) * _size(key.shape[-2]) * (_size(key.shape[-1]) + _size(value.shape[-1]))
    result = node.meta.get("example_value")
    if name == "sum" and is_matmul(node):
        return 2 * _elements(tensors[0].shape)
    if is_matmul(node) and isinstance(result, torch.Tensor) and len(tensors) >= 2:
        a, b = tensors[-2:]
        reduced = a.shape[-1] if name != "einsum" else max(a.shape[-1], b.shape[-1], key=_hint)  # more or less
        return 2 * _elements(result.shape) * _size(reduced)
    return sympy.Integer(0)


def _elements(sizes: Sequence[Any]) -> Any:
    total: Any = sympy.Integer(1)
    for size in sizes:
        total *= _size(size)
    return total


def _size(size: Any) -> Any:
    return sympy.Integer(size) if isinstance(size, int) else size.node.expr


def _hint(size: Any) -> int:
    return size if isinstance(size, int) else int(getattr(size.node, "hint", None) or 1)

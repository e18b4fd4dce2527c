"""How much work a part of a graph is: the floating-point operations of its matmuls, from the sizes of its inputs."""

from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch

from .dynamo_regions import ATTENTIONS, MATMULS, name_of

UNKNOWN = 10**18


def flops(part: torch.fx.GraphModule) -> Callable[[Sequence[Any]], int]:
    """A function from inputs of `part` to the operations; where sizes depend on data, they are taken to be many."""
    total: Any = sympy.Integer(0)
    for node in part.graph.nodes:
        total += _of(node)
    at = _symbols(part)
    free = sorted(total.free_symbols, key=str)
    if not free or not set(free) <= at.keys():
        fixed = UNKNOWN if free else int(total)
        return lambda inputs: fixed
    formula = sympy.lambdify(free, total)
    places = [at[symbol] for symbol in free]
    return lambda inputs: formula(*[inputs[i] if d is None else inputs[i].shape[d] for i, d in places])


def _of(node: torch.fx.Node) -> Any:
    name = name_of(node)
    tensors = [v for n in node.all_input_nodes if isinstance(v := n.meta.get("example_value"), torch.Tensor)]
    if name in ATTENTIONS and len(tensors) >= 3:
        query, key, value = tensors[:3]
        return 2 * _elements(query.shape[:-1]) * _size(key.shape[-2]) * (_size(key.shape[-1]) + _size(value.shape[-1]))
    result = node.meta.get("example_value")
    if name in MATMULS and isinstance(result, torch.Tensor) and len(tensors) >= 2:
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


def _symbols(part: torch.fx.GraphModule) -> dict[Any, tuple[int, int | None]]:
    """Where each symbol is a size of an input, as (input, dimension), or an input itself, as (input, None)."""
    found: dict[Any, tuple[int, int | None]] = {}
    for i, node in enumerate(part.graph.find_nodes(op="placeholder")):
        value = node.meta.get("example_value")
        if isinstance(value, torch.SymInt):
            found.setdefault(value.node.expr, (i, None))
        elif isinstance(value, torch.Tensor):
            for d, size in enumerate(value.shape):
                if not isinstance(size, int):
                    found.setdefault(size.node.expr, (i, d))
    return found

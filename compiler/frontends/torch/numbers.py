"""Numbers that open sizes tell, computed by what has a lowering: of torch's symbols the importer knows sums, products,
quotients and comparisons of whole numbers.

    s / k.shape[-2] ** 0.5, s * max(n, 8), x[: n - n % 16]
"""

import math
import operator
from typing import Any

import torch

aten = torch.ops.aten
EQUIVALENTS = {
    torch.sym_float: aten.Float.Scalar,
    torch.sym_max: torch.ops.prim.max.int,
    torch.sym_min: torch.ops.prim.min.int,
    math.ceil: aten.ceil.float,
}
POWERS = (pow, operator.pow)
ROOTS = (0.5, -0.5)


def write_out(graph: torch.fx.Graph) -> None:
    """See the module. What there is nothing to write for is left to the importer, which names it."""
    for node in list(graph.nodes):
        if node.op != "call_function" or not isinstance(node.meta.get("val"), (torch.SymInt, torch.SymFloat)):
            continue
        written = None
        with graph.inserting_before(node):
            if node.target in EQUIVALENTS and (len(node.args) == 1 or all(map(_is_whole, node.args))):
                node.target = EQUIVALENTS[node.target]
            elif node.target is operator.mod and all(map(_is_whole, node.args)):  # what there is has the sign of x
                x, y = node.args
                written = _made(
                    node, operator.sub, x, _made(node, operator.mul, _made(node, operator.floordiv, x, y), y)
                )
            elif node.target is torch._sym_sqrt and _is_whole(x := _unconverted(node.args[0])):
                written = _made(node, aten.sqrt.int, x)
            elif node.target in POWERS:
                written = _power(node, *node.args)
        if written is not None:
            node.replace_all_uses_with(written)
            graph.erase_node(node)


def _power(node: torch.fx.Node, x: Any, exponent: Any) -> Any:
    """A small power as products, or a root of a whole number; None if it is neither."""
    if exponent in (1, 2, 3, 4):
        power = x
        for _ in range(int(exponent) - 1):
            power = _made(node, operator.mul, power, x)
        return power
    if exponent in ROOTS and _is_whole(whole := _unconverted(x)):
        root = _made(node, aten.sqrt.int, whole)
        return root if exponent > 0 else _made(node, operator.truediv, 1.0, root)
    return None


def _made(like: torch.fx.Node, target: Any, *args: Any) -> torch.fx.Node:
    made = like.graph.call_function(target, args)
    made.meta = dict(like.meta)
    return made


def _unconverted(number: Any) -> Any:
    """The whole number that one of float64 is made from."""
    is_made = isinstance(number, torch.fx.Node) and number.target is EQUIVALENTS[torch.sym_float]
    return number.args[0] if is_made else number


def _is_whole(number: Any) -> bool:
    return isinstance(number.meta.get("val") if isinstance(number, torch.fx.Node) else number, (int, torch.SymInt))

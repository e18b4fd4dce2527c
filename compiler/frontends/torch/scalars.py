"""Numbers that are computed from open sizes, as tensors of no dimension where tensors are combined with them::

    %n = aten.sym_size.int(%x, 1)                      %n = aten.scalar_tensor(aten.sym_size.int(%x, 1), dtype=float64)
    %r = %n ** -0.5                              to    %r = aten.pow.Tensor_Tensor(%n, %c), %c of −0.5
    %y = aten.mul.Tensor(%x, %r)                       %y = aten.mul.Tensor(%x, %r)

Of what is left by `torch/numbers.py`, such as powers of any kind and roundings, the importer knows none. Numbers that
are sizes of tensors stay numbers.
"""

import math
import operator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from .shapes import emitted

aten = torch.ops.aten
UNARY: dict[Any, Any] = {
    operator.neg: aten.neg.default,
    math.ceil: aten.ceil.default,
    math.floor: aten.floor.default,
    math.trunc: aten.trunc.default,
    round: aten.round.default,
    torch.sym_int: aten.trunc.default,
    torch.sym_sqrt: aten.sqrt.default,
    aten.sqrt.int: aten.sqrt.default,
    aten.ceil.float: aten.ceil.default,
    **{
        getattr(torch, f"_sym_{name}"): getattr(aten, name).default
        for name in ("sqrt", "log2", "sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan")
        if hasattr(torch, f"_sym_{name}")
    },
}
BINARY: dict[Any, Any] = {
    operator.add: aten.add.Tensor,
    operator.sub: aten.sub.Tensor,
    operator.mul: aten.mul.Tensor,
    operator.truediv: aten.div.Tensor,
    operator.mod: aten.remainder.Tensor,
    operator.pow: aten.pow.Tensor_Tensor,
    torch.sym_max: aten.maximum.default,
    torch.sym_min: aten.minimum.default,
    torch.ops.prim.max.int: aten.maximum.default,
    torch.ops.prim.min.int: aten.minimum.default,
}
CONVERSIONS = (torch.sym_float, aten.Float.Scalar)  # to float64
IMPORTED = (  # as they stand
    *(operator.add, operator.sub, operator.mul, operator.floordiv, operator.truediv),
    *(aten.Float.Scalar, aten.sqrt.int, aten.ceil.float, torch.ops.prim.max.int, torch.ops.prim.min.int),
)
# What takes a number, and the same for a tensor in its place.
OF_TENSORS = {
    **{(op := getattr(aten, name)).Tensor: op.Tensor for name in ("add", "sub", "mul", "div", "remainder")},
    **{(op := getattr(aten, name)).Scalar: op.Tensor for name in ("add", "sub", "mul", "div", "remainder", "rsub")},
    **{(op := getattr(aten, name)).Scalar: op.Tensor for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    aten.pow.Tensor_Scalar: aten.pow.Tensor_Tensor,
    aten.clamp.default: aten.clamp.Tensor,
}
FILLED = (aten.full.default, aten.full_like.default)


def as_tensors(graph: torch.fx.Graph) -> None:
    """Replaces each such number that an op computes a tensor of."""
    known: dict[torch.fx.Node, torch.fx.Node] = {}
    given = (node.meta.get("val") for node in graph.find_nodes(op="placeholder"))
    mode = next((value.fake_mode for value in given if isinstance(value, FakeTensor)), None)
    if mode is None:
        return
    for node in list(graph.nodes):
        if node.target not in (*OF_TENSORS, *FILLED, aten.scalar_tensor.default):
            continue
        is_first = node.target in OF_TENSORS  # of operands, it must be a tensor in any case
        foreign = [
            i for i, one in enumerate(node.args) if _is_number(one) and ((is_first and i == 0) or not _is_imported(one))
        ]
        if not foreign:
            continue
        with graph.inserting_before(node), mode:
            made = {i: _as_tensor(graph, node.args[i], known) for i in foreign}
            if node.target in OF_TENSORS:
                for i, one in made.items():
                    node.update_arg(i, one)
                node.target = OF_TENSORS[node.target]
                continue
            (one,) = made.values()
            result = emitted(graph, aten._to_copy.default, one, dtype=node.meta["val"].dtype)
            if node.target in FILLED:
                zeros = emitted(graph, node.target, node.args[0], 0, dtype=node.meta["val"].dtype)
                result = emitted(graph, aten.add.Tensor, zeros, result)
            node.replace_all_uses_with(result)
    graph.eliminate_dead_code()


def _is_number(value: Any) -> bool:
    """Whether it is a number of open sizes, and computed as we know how to."""
    is_number = isinstance(value, torch.fx.Node) and isinstance(value.meta.get("val"), torch.SymInt | torch.SymFloat)
    return is_number and _knows(value)


def _knows(number: torch.fx.Node) -> bool:
    if number.target is aten.sym_size.int:
        return True
    if number.target is round and any(digits is not None for digits in number.args[1:]):
        return False
    known = number.target in (*CONVERSIONS, operator.floordiv, *UNARY, *BINARY)
    return known and all(map(_knows, number.all_input_nodes))


def _is_imported(number: torch.fx.Node) -> bool:
    if number.target is aten.sym_size.int:
        return True
    return number.target in IMPORTED and all(map(_is_imported, number.all_input_nodes))


def _as_tensor(
    graph: torch.fx.Graph, number: torch.fx.Node, known: dict[torch.fx.Node, torch.fx.Node]
) -> torch.fx.Node:
    """In float64, which sizes are exact in; of an integer in int64."""
    found = _computed(graph, number, known)
    if isinstance(number.meta["val"], torch.SymInt):
        return emitted(graph, aten._to_copy.default, found, dtype=torch.int64)
    return found


def _computed(graph: torch.fx.Graph, number: Any, known: dict[torch.fx.Node, torch.fx.Node]) -> torch.fx.Node:
    if not isinstance(number, torch.fx.Node) or _is_imported(number):
        return emitted(graph, aten.scalar_tensor.default, number, dtype=torch.float64)
    if number not in known:
        operands = [_computed(graph, one, known) for one in number.args if one is not None]
        if number.target in CONVERSIONS:
            (known[number],) = operands
        elif number.target is operator.floordiv:
            quotient = emitted(graph, aten.div.Tensor, *operands)
            known[number] = emitted(graph, aten.floor.default, quotient)
        else:
            target = UNARY.get(number.target) or BINARY[number.target]
            known[number] = emitted(graph, target, *operands)
    return known[number]

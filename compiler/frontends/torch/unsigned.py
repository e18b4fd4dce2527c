"""Arithmetic on tensors of 8 bits without a fraction, in a graph of torch.export, as arithmetic on wider integers.

The importer forgets that a tensor of uint8 has no sign where it is combined with another type, and ends the process on
some ops. It moves and converts them right, so these stay. Of int8 it computes most ops right, and ends the process on
`CRASHING`.

    %0 = gt(%x, 100)                    %w = _to_copy(%x, dtype=int32)   %0 = gt(%w, 100)
    %1 = mul(%x, %y) : uint8    →       %m = mul(%w, %v) : int32         %1 = _to_copy(%m, dtype=uint8)
"""

import operator
from typing import Any

import torch

aten = torch.ops.aten
MOVING = (
    "alias clone detach expand flatten flip gather index index_select lift_fresh_copy permute repeat reshape roll "
    "select slice split_with_sizes squeeze t transpose unflatten unfold unsqueeze view _reshape_alias _to_copy "
    "_unsafe_view"
)  # ops that hand elements on, and conversions
RIGHT = {getattr(aten, name) for name in MOVING.split(" ")}
ARITHMETIC = "addmm baddbmm bmm div dot floor_divide fmod matmul mm mul mv remainder sub"
CRASHING = {getattr(aten, name) for name in ARITHMETIC.split(" ")}
BYTES = (torch.uint8, torch.int8)
NARROW = (*BYTES, torch.int16)  # results that become int32 where an operand does


def widen(graph: torch.fx.Graph) -> None:
    """Rewrites `graph`, in place."""
    wide: set[torch.fx.Node] = set()
    for node in list(graph.nodes):
        if node.op != "call_function" or "val" not in node.meta:
            continue
        if node.target is operator.getitem:
            is_wide = node.args[0] in wide
        else:
            packet = getattr(node.target, "overloadpacket", None)
            values = (node, *node.all_input_nodes)
            is_wide = packet not in RIGHT and any(_has(value, (torch.uint8,)) for value in values)
            is_wide |= packet in CRASHING and any(_has(value, BYTES) for value in values)
        if is_wide:
            wide.add(node)
            _widen_operands(graph, node)
            _narrow(graph, node)


def _widen_operands(graph: torch.fx.Graph, node: torch.fx.Node) -> None:
    with graph.inserting_before(node):
        wide = {n: _converted(graph, n, torch.int32) for n in node.all_input_nodes if _has(n, BYTES)}
    node.args, node.kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda n: wide.get(n, n))
    if node.kwargs.get("dtype") in BYTES:
        node.kwargs = {**node.kwargs, "dtype": torch.int32}


def _narrow(graph: torch.fx.Graph, node: torch.fx.Node) -> None:
    """Converts the wide result of `node` to the type that it had; parts of a tuple where they are taken out of it."""
    value = node.meta["val"]
    _set_value(node, torch.utils._pytree.tree_map(_widened, value))
    if isinstance(value, torch.Tensor) and value.dtype in NARROW:
        with graph.inserting_after(node):
            narrow = _converted(graph, node, value.dtype)
        node.replace_all_uses_with(narrow, delete_user_cb=lambda user: user is not narrow)


def _widened(value: Any) -> Any:
    return value.to(torch.int32) if isinstance(value, torch.Tensor) and value.dtype in NARROW else value


def _converted(graph: torch.fx.Graph, node: torch.fx.Node, dtype: torch.dtype) -> torch.fx.Node:
    made = graph.call_function(aten._to_copy.default, (node,), {"dtype": dtype})
    made.meta = dict(node.meta)
    _set_value(made, node.meta["val"].to(dtype))
    return made


def _set_value(node: torch.fx.Node, value: Any) -> None:
    node.meta["val"] = value
    node.meta.pop("tensor_meta", None)  # it would come first


def _has(node: torch.fx.Node, types: tuple[torch.dtype, ...]) -> bool:
    """Whether the node's value, or one of its values, is a tensor of one of `types`."""
    value = node.meta.get("val")
    values = value if isinstance(value, tuple | list) else (value,)
    return any(isinstance(v, torch.Tensor) and v.dtype in types for v in values)

"""Functions mapped by torch.vmap, written out: dynamo hands over the mapped function between marks of where it begins
and ends; what it computes on whole tensors is traced.

    _vmap_increment_nesting(4); %a = _add_batch_dim(%q, 0, 1); …; %c = matmul(%a, %b)     # of one of the four
    %d = _remove_batch_dim(%c, 1, 4, 0); _vmap_decrement_nesting()
  becomes
    %d = aten.bmm(%q, %k)
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..lowering import first_line
from .calls import ATTENTIONS, EXPONENTIALS, name_of
from .multihead import in_mode_of, inline, without_constants

MAP = "_vmap_increment_nesting"
NESTING = {"_increment_nesting": 1, "_decrement_nesting": -1}


def transforms(graph: torch.fx.Graph) -> Iterator[torch.fx.Node]:
    """The nodes that transforms of torch.func apply to, maps and derivatives, with the marks around them."""
    depth = 0
    for node in graph.nodes:
        change = _change(node)
        depth += change
        if depth or change:
            yield node


def _change(node: torch.fx.Node) -> int:
    """By how much it makes the nesting of transforms deeper."""
    return next((by for end, by in NESTING.items() if name_of(node).endswith(end)), 0)


def write_out_maps(graph: torch.fx.GraphModule) -> list[str]:
    """Replaces each outermost map, see the module; returns why others that attend are left as they are."""
    depth, span, left = 0, list[torch.fx.Node](), list[str]()
    for node in list(transforms(graph.graph)):
        depth += _change(node)
        span.append(node)
        if not depth:
            reason = _write_out(graph, span)
            if reason and any(name_of(n) in ATTENTIONS or name_of(n) in EXPONENTIALS for n in span):
                left.append(reason)
            span = []
    return left


def _write_out(graph: torch.fx.GraphModule, span: list[torch.fx.Node]) -> str:
    """Replaces the map `span`, or says why it does not."""
    if any(_change(node) > 0 and name_of(node) != MAP for node in span):
        return "torch.func differentiates it"
    inside = set(span)
    inputs = list(dict.fromkeys(i for n in span for i in n.all_input_nodes if i not in inside))
    outputs = [n for n in span if any(u not in inside for u in n.users)]
    values = [n.meta.get("example_value") for n in inputs]
    if any(not isinstance(v, torch.Tensor) or any(not isinstance(s, int) for s in v.shape) for v in values):
        return "it is mapped by torch.vmap over tensors whose sizes are symbols"
    mapped = torch.fx.Graph()
    copies = {node: mapped.placeholder(node.name) for node in inputs}
    for node in span:
        copies[node] = mapped.node_copy(node, lambda n: copies[n])
    mapped.output(tuple(copies[n] for n in outputs))
    module = torch.fx.GraphModule(graph, mapped)

    def run(*tensors: torch.Tensor) -> Any:
        return module(*tensors)

    try:
        with in_mode_of(values), sdpa_kernel(SDPBackend.MATH):
            traced = without_constants(make_fx(run)(*values).graph)
    except Exception as error:
        return f"it is mapped by torch.vmap, and cannot be traced: {first_line(error)}"
    with graph.graph.inserting_before(span[-1]):
        results = inline(graph.graph, inputs, traced)
    for node, result in zip(outputs, results, strict=True):
        node.replace_all_uses_with(result)
    for node in reversed(span):
        graph.graph.erase_node(node)
    return ""

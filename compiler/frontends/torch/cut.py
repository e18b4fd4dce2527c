"""Where a graph of a function and its derivative is cut in two so that little memory lies between them.

    y = x @ w; h = gelu(y); o = h @ u;  dh = do @ uᵀ; dy = gelu'(y)·dh; dw = xᵀ @ dy; du = hᵀ @ do
  becomes
    y = x @ w; o = gelu(y) @ u                                  x, y lie between
    h = gelu(y); dh = do @ uᵀ; dy = gelu'(y)·dh; …              h is computed again

What is computed element by element, or only moved, is computed again where that saves memory; products and sums are
not. Scores and probabilities, between the products of queries and keys and that with values, are always computed again,
in the loops that read them. The least memory is a minimum cut (as of activations by torch's partitioner).
"""

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import networkx
import torch
from torch.fx import Graph, Node

from . import dropout_masks as dropout_masks  # has an op
from .derivatives import is_tensor
from .kept import SOFTMAXES

aten = torch.ops.aten
PRODUCTS = (
    *(aten.matmul.default, aten.mm.default, aten.bmm.default, aten.addmm.default, aten.baddbmm.default),
    *(aten.mv.default, aten.addmv.default, aten.convolution.default),
)
MOVES = (
    *(aten._to_copy, aten._unsafe_view, aten.cat, aten.stack, aten.constant_pad_nd, aten.flip, aten.roll, aten.repeat),
    *(aten.full, aten.full_like, aten.scalar_tensor, aten.zeros, aten.zeros_like, aten.ones, aten.ones_like),
    *(aten.arange, aten.tril, aten.triu, aten.lift_fresh_copy, aten.slice_scatter, aten.select_scatter),
    *(aten.index, aten.index_select, aten.gather, aten.embedding, aten.reshape),
)
AGAIN = (*MOVES, torch.ops.attn_opt.is_kept)  # masks of dropouts are functions of places
UNCUT = math.inf
PARTS = 1024  # of a byte: what tells equal sizes apart


def halves(
    graph: Graph, gradients: Sequence[Node], count: int, marks: Any, size: Callable[[torch.Tensor], int]
) -> tuple[Graph, Graph, list[Node]]:
    """The graph that gives the first `count` results of `graph` and what else is kept, that of the others, which takes
    the placeholders but the `gradients`, what is kept, and these; and what is kept, results among it. `marks`: what is
    kept as it is; `size`: the bytes of a tensor."""
    placeholders = [node for node in graph.find_nodes(op="placeholder") if node not in gradients]
    output = graph.output_node()
    results, found = output.args[0][:count], output.args[0][count:]  # type: ignore[index]
    behind = _reached(gradients, lambda node: node.users) - {output}
    before = [node for node in graph.nodes if node not in behind and node is not output]
    read = {node for node in before if node in found or not behind.isdisjoint(node.users)}
    kept = _cut(before, read, results, marks, size)
    first = _extracted(graph, placeholders, [*results, *(node for node in kept if node not in results)])
    return first, _extracted(graph, [*placeholders, *kept, *gradients], found), kept


def _cut(
    before: list[Node], read: set[Node], results: Sequence[Any], marks: Any, size: Callable[[torch.Tensor], int]
) -> list[Node]:
    """Which of the nodes `before` are kept for who reads those that are `read`: placeholders and results are there
    anyway, and read alone."""
    inside, own = _between_products(before), set(before)
    needed = _reached(read, lambda node: node.all_input_nodes)
    flow = networkx.DiGraph()
    for node in before:
        value, is_given = node.meta.get("val"), node.op == "placeholder"
        can_lie = is_tensor(value) and node not in inside and node.op != "get_attr"
        times = 1 if is_given or node in results else 2
        moved = PARTS * times * size(value) + _views(node) if can_lie else UNCUT
        flow.add_edge((node, "made"), (node, "read"), capacity=moved)
        if is_given or not (node in inside or _is_made_again(node)):
            flow.add_edge("given", (node, "made"), capacity=UNCUT)
        if node in read or (node.target is marks and node in needed):
            flow.add_edge((node, "read"), "derivative", capacity=UNCUT)
        for user in own & set(node.users):
            flow.add_edge((node, "read"), (user, "made"), capacity=UNCUT)
    if "given" not in flow or "derivative" not in flow:
        return []
    # Of cuts that are equally small that next to the derivative, behind what is fused with a product.
    _, (side, _) = networkx.minimum_cut(flow, "given", "derivative")
    return [n for n in before if (n, "made") in side and (n, "read") not in side and n.op != "placeholder"]


def _between_products(before: Iterable[Node]) -> set[Node]:
    """Scores, with the products that make them, and probabilities: what lies on ways from one product to the next
    through a softmax."""
    found = set[Node]()
    for softmax in before:
        if softmax.target in SOFTMAXES:
            behind = _reached([softmax], _weights)
            if any(user.target in PRODUCTS for node in behind for user in node.users):
                found |= behind
                found |= _reached([softmax], lambda n: [] if n.target in PRODUCTS else n.all_input_nodes)
    return {node for node in found if node.op == "call_function"}


def _weights(node: Node) -> list[Node]:
    """What is made of probabilities element by element, as many."""
    made = [user for user in node.users if user.target not in PRODUCTS and _is_made_again(user)]
    return [user for user in made if is_tensor(v := user.meta.get("val")) and v.numel() == node.meta["val"].numel()]


def _views(node: Node) -> int:
    """Through how many views it is seen: as a product has left it, it lies in memory anyway."""
    count = 0
    while _is_view(node):
        node, count = node.all_input_nodes[0], count + 1
    return count


def _is_view(node: Node) -> bool:
    if node.target is operator.getitem:
        return _is_view(node.args[0])  # type: ignore[arg-type]
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    return any(returned.alias_info is not None for returned in node.target._schema.returns)


def _is_made_again(node: Node) -> bool:
    """Whether it is computed by element, or moves elements, or is a number."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or isinstance(node.meta.get("val"), int | torch.SymInt):
        return True
    return torch.Tag.pointwise in target.tags or _is_view(node) or target.overloadpacket in AGAIN


def _reached(start: Iterable[Node], next_of: Callable[[Node], Iterable[Node]]) -> set[Node]:
    found, pending = set(start), [*start]
    while pending:
        new = [node for node in next_of(pending.pop()) if node not in found]
        found.update(new)
        pending += new
    return found


def _extracted(graph: Graph, given: Sequence[Node], results: Sequence[Any]) -> Graph:
    """The part of a graph that computes `results` of what is `given`."""
    part, copies = Graph(), dict[Node, Node]()
    for node in given:
        copies[node] = part.placeholder(node.name)
        copies[node].meta = dict(node.meta)
    ends = [node for node in results if isinstance(node, Node)]
    needed = _reached(ends, lambda node: [] if node in copies else node.all_input_nodes)
    for node in graph.nodes:
        if node in needed and node not in copies:
            copies[node] = part.node_copy(node, copies.__getitem__)
    part.output(tuple(copies.get(node, node) if isinstance(node, Node) else node for node in results))
    return part

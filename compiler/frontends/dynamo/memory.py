"""What memory the values of a graph of torch's calls lie in, and calls that write to it.

A region's own values may be written to: the kernel is traced by torch.export, which makes new values of such writes.
What a region reads may not be written to before the region runs, which is at the place of its last call.
"""

from collections.abc import Callable
from typing import Any

import torch

from ..torch.shapes import OTHER_SHAPES, SHAPE_WRITES
from .calls import VIEWS, name_of, written_by
from .multihead import WRITTEN_OUT, in_mode_of

OUTSIDE = "outside"  # inputs may share their memory with each other


class Memory:
    """Which values of a graph may share memory; all that may is one class."""

    def __init__(self, graph: torch.fx.Graph):
        self._parents: dict[Any, Any] = {}
        for node in graph.nodes:
            for other in _sharing(node):
                self._parents[self.of(node)] = self.of(other)
        self.outside = self.of(OUTSIDE)
        self.members: dict[Any, list[torch.fx.Node]] = {}
        for node in graph.nodes:
            self.members.setdefault(self.of(node), []).append(node)
        self.written = {n: {self.of(target) for target in targets} for n in graph.nodes if (targets := written_by(n))}

    def of(self, key: Any) -> Any:
        """The class of what a node gives, or of a storage."""
        while key in self._parents and self._parents[key] != key:
            key = self._parents[key]
        return key

    def touches(self, node: torch.fx.Node, writer: torch.fx.Node) -> bool:
        """Whether what `node` gives or reads is written to by the call `writer`."""
        return any(self.of(n) in self.written[writer] for n in (node, *node.all_input_nodes))


def _sharing(node: torch.fx.Node) -> list[Any]:
    """What the value of a node may share memory with: storages and nodes before it."""
    found: list[Any] = []
    if node.op in ("placeholder", "get_attr"):
        found.append(OUTSIDE)
    elif name_of(node).startswith("dropout"):  # what its example value does not tell
        found += node.all_input_nodes[:1]
    else:  # nodes that were traced by us have storages of their own
        found += [n for n in node.all_input_nodes if (WRITTEN_OUT in n.meta) != (WRITTEN_OUT in node.meta)]
    return [*found, *_storages(node.meta.get("example_value"))]


def follow_writes(graph: torch.fx.Graph) -> None:
    """Lets calls after one that changes a value read that one's result, so that it is on the way to them.

        s = zeros(…); bmm(q, k, out=s); softmax(s)   →   s = zeros(…); t = bmm(q, k, out=s); softmax(t)

    One that changes only the shape becomes a view. Dynamo's example value has the last shape then; the nodes before get
    one with theirs.

        o = matmul(p, v); o.unsqueeze_(1); cat((o, …))   →   o = matmul(p, v); t = o.unsqueeze(1); cat((t, …))
    """
    # By tensor: lists of the nodes that give it, a new one where its shape changes.
    same: dict[int, list[list[torch.fx.Node]]] = {}
    order = {node: i for i, node in enumerate(graph.nodes)}
    held = {id(node.meta.get("example_value")) for node in graph.nodes if node.op in ("placeholder", "get_attr")}
    for node in graph.nodes:
        value = node.meta.get("example_value")
        if not isinstance(value, torch.Tensor) or id(value) in held:
            continue
        lists = same.setdefault(id(value), [[]])
        if lists[-1] and written_by(node):
            for before in lists[-1]:
                before.replace_all_uses_with(node, lambda user, at=order[node]: order[user] > at)
            if node.op == "call_method" and node.target in SHAPE_WRITES:
                node.target = node.target[:-1]
                lists.append([])
        lists[-1].append(node)
    before_last = [nodes for lists in same.values() for nodes in lists[:-1]]
    for nodes in sorted(before_last, key=lambda nodes: order[nodes[0]]):
        _give_own_shape(nodes)


def take_views_where_read(graph: torch.fx.Graph, parts: dict[torch.fx.Node, int]) -> None:
    """Takes views of memory that is written to in each part of a graph that reads them: a part whose arguments lie in
    the same memory, and that writes there and returns a view, is more than torch's AOT can do. `parts` has the parts'
    numbers, in the order of the nodes.

        part 0: w = o[:, 0]    part 1: a = attention(…)    part 2: w += a            →
                               part 1: a = attention(…)    part 2: w = o[:, 0]; w += a
    """
    memory = Memory(graph)
    written = set().union(*memory.written.values())
    reshaped = {m for node, to in memory.written.items() if name_of(node) in OTHER_SHAPES for m in to}
    views: list[torch.fx.Node] = []
    first: dict[int, torch.fx.Node] = {}
    for node in graph.nodes:
        first.setdefault(parts[node], node)
    for node in reversed(list(graph.nodes)):
        if memory.of(node) not in written - reshaped or not _is_view(node):
            continue
        copies: dict[int, torch.fx.Node] = {}
        views.append(node)
        for user in list(node.users):
            part = parts[user]
            if user.op == "output" or part == parts[node]:
                continue
            if part not in copies:
                with graph.inserting_before(first[part]):
                    first[part] = copies[part] = graph.node_copy(node)
                parts[copies[part]] = part
            user.replace_input_with(node, copies[part])
    for node in views:
        if not node.users:
            graph.erase_node(node)


def _is_view(node: torch.fx.Node) -> bool:
    """Whether it makes nothing but tensors in the memory of what it reads."""
    made = _storages(node.meta.get("example_value"))
    return (
        name_of(node) in VIEWS
        and bool(made)
        and not written_by(node)
        and made <= _storages([n.meta.get("example_value") for n in node.all_input_nodes])
    )


def _storages(values: Any) -> set[Any]:
    """The memory of the tensors in `values`; OUTSIDE for what does not tell."""
    found = set[Any]()
    for value in torch.utils._pytree.tree_leaves(values):
        try:
            found |= {value.untyped_storage()._cdata} if isinstance(value, torch.Tensor) else set()
        except NotImplementedError:  # of sparse tensors, and under torch.func
            found.add(OUTSIDE)
    return found


def _give_own_shape(nodes: list[torch.fx.Node]) -> None:
    """Gives `nodes`, whose tensor has a later shape, an example value with the shape that the first of them makes."""
    value = nodes[0].meta["example_value"]
    try:
        args, kwargs = torch.fx.map_arg((nodes[0].args, nodes[0].kwargs), lambda n: n.meta["example_value"])
        with in_mode_of([value]):
            made = _call(nodes[0])(*args, **kwargs)
            own = value.as_strided(made.shape, made.stride(), made.storage_offset())
    except Exception:  # such as of sizes that depend on data: the region is left to torch, with a reason
        return
    for node in nodes:
        node.meta["example_value"] = own


def _call(node: torch.fx.Node) -> Callable:
    target: Any = node.target
    return (
        target if node.op == "call_function" else lambda self, *args, **kwargs: getattr(self, target)(*args, **kwargs)
    )

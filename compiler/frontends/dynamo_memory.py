"""What memory the values of a graph of torch's calls lie in, and calls that write to it.

A region's own values may be written to: the kernel is traced by torch.export, which makes new values of such writes.
What a region reads may not be written to before the region runs, which is at the place of its last call.
"""

from collections.abc import Callable
from typing import Any

import torch

from .dynamo_calls import name_of, written_by
from .dynamo_multihead import WRITTEN_OUT, in_mode_of

# Views that a call changes its argument's own shape to.
SHAPE_WRITES = {f"{name}_" for name in ("unsqueeze", "squeeze", "transpose", "t", "swapaxes", "swapdims")}
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
    for value in torch.utils._pytree.tree_leaves(node.meta.get("example_value")):
        try:
            found += [value.untyped_storage()._cdata] if isinstance(value, torch.Tensor) else []
        except NotImplementedError:  # of sparse tensors, and under torch.func
            found.append(OUTSIDE)
    return found


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

"""Functions under torch.utils.checkpoint, whose attention is looked for as in the graph around them.

  %y = tag_activation_checkpoint(%body, %x)          # dynamo's form, which torch's partitioner would act on
becomes, where there is attention in the body,
  %y = Checkpointed(body)(%x)                        # torch.utils.checkpoint, with kernels in the body
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from .calls import name_of
from .memory import Memory

CONTEXT = "_checkpoint_context_fn"  # in the meta of bodies of which it is chosen what is computed anew


class Checkpointed(torch.nn.Module):
    """Runs a body, of which nothing but its inputs is kept for its gradients."""

    def __init__(self, body: Callable, settings: dict[str, Any]):
        super().__init__()
        self.body, self.settings = body, settings

    def forward(self, *inputs: Any, **named: Any) -> Any:
        if not torch.is_grad_enabled():
            return self.body(*inputs, **named)
        return checkpoint(self.body, *inputs, use_reentrant=False, **self.settings, **named)


def checkpoints(graph: torch.fx.GraphModule) -> list[tuple[torch.fx.Node, torch.fx.GraphModule]]:
    """The calls of functions under a checkpoint, with their bodies."""
    calls = [node for node in graph.graph.nodes if name_of(node) == "tag_activation_checkpoint"]
    return [(node, graph.get_submodule(str(node.args[0].target))) for node in calls]


def why_not(body: torch.fx.GraphModule) -> str | None:
    """Why the attention of a body stays with torch, None if it need not."""
    memory = Memory(body.graph)
    if any(memory.outside in written for written in memory.written.values()):
        return "a function under torch.utils.checkpoint writes to what it is given"
    return "torch.utils.checkpoint has a context_fn" if CONTEXT in body.meta else None


def replace(graph: torch.fx.GraphModule, node: torch.fx.Node, body: Callable) -> None:
    """Has the call `node` run `body` under torch's own checkpoint."""
    settings, named = torch.ops.higher_order.tag_activation_checkpoint.divide_kwargs(node.kwargs)
    settings.pop("use_reentrant", None)
    name = f"checkpointed_{sum(1 for child, _ in graph.named_children() if child.startswith('checkpointed_'))}"
    graph.add_submodule(name, Checkpointed(body, settings))
    with graph.graph.inserting_after(node):
        call = graph.graph.call_module(name, tuple(node.args[1:]), named)
    call.meta = dict(node.meta)
    node.replace_all_uses_with(call)
    graph.graph.erase_node(node)

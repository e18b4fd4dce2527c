"""flex_attention in torch's own terms: two matmuls around a softmax, score_mod and mask_mod inlined.

The modifications are graphs on scalars; ``torch.vmap`` applies them to tensors of all scores and indices. A block mask
only says which blocks its mask_mod leaves empty, so mask_mod alone is what counts.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch._higher_order_ops.flex_attention import flex_attention as flex_attention_op
from torch._higher_order_ops.flex_attention import math_attention
from torch.export import Dim, ExportedProgram

from .casts import forget_asserts


def has_flex_attention(module: torch.nn.Module) -> bool:
    return any(
        node.target is flex_attention_op
        for part in module.modules()
        if isinstance(part, torch.fx.GraphModule)
        for node in part.graph.nodes
    )


def without_flex_attention(program: ExportedProgram) -> ExportedProgram:
    """The program with every flex_attention in it written out, on flat inputs; itself if there is none."""
    if not has_flex_attention(program.graph_module):
        return program
    flat, _ = torch.utils._pytree.tree_flatten(program.example_inputs)
    values = [n.meta["val"] for n in program.graph.find_nodes(op="placeholder")]
    values = values[len(values) - len(flat) :]
    module = program.run_decompositions({}).module(check_guards=False)  # {}: without mutation, and calls of vmap
    _forget_blocks(module.graph)
    inlined = _Inlined(module)
    return torch.export.export(inlined, tuple(flat), dynamic_shapes=(tuple(_dimensions(v) for v in values),))


def _forget_blocks(graph: torch.fx.Graph) -> None:
    """Erases what computes the tables of block masks: counts and sorted lists of blocks, which no one reads here."""
    for node in list(graph.nodes):
        if node.target is flex_attention_op:
            *tables, mask_mod = node.args[4]
            node.update_arg(4, (*(None for _ in tables), mask_mod))
    forget_asserts(graph)
    graph.eliminate_dead_code()


def _dimensions(value: Any) -> dict[int, Any] | None:
    if not isinstance(value, torch.Tensor):
        return None
    return {d: Dim.AUTO for d, size in enumerate(value.shape) if not isinstance(size, int)} or None


class _Inlined(torch.nn.Module):
    """Runs a graph with flex_attention computed by matmuls."""

    def __init__(self, module: torch.fx.GraphModule):
        super().__init__()
        self.module = module

    def forward(self, *inputs: Any) -> Any:
        return _Interpreter(self.module).run(*inputs)


class _Interpreter(torch.fx.Interpreter):
    def call_function(self, target: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if target is not flex_attention_op:
            return super().call_function(target, tuple(args), kwargs)
        query, key, value, score_mod, block_mask, scale, options, *buffers = args
        *tables, mask_mod = block_mask
        inlined = (*tables, _runner(mask_mod))
        return math_attention(query, key, value, _runner(score_mod), inlined, scale, options, *buffers)


def _runner(graph: torch.fx.GraphModule) -> Any:
    """The graph of a modification as a function that vmap can trace."""
    return lambda *scalars: torch.fx.Interpreter(graph).run(*scalars)

"""The backend of ``torch.compile``: attention goes to us, everything else stays with torch.

    fast = torch.compile(model, backend="attn_opt")
    fast = torch.compile(model, backend="attn_opt", options={"rest": "inductor"})

The name is an entry point of the installed package, which torch registers itself. Where the package is not installed (a
tree on PYTHONPATH), importing this module registers it.

Dynamo hands over a graph of torch's calls. The parts that may be attention (dynamo/regions.py) are taken out of it and
become kernels at their first call (dynamo/attention.py), if the pass ``raise-attention`` finds attention in them: for
the CPU, or for the NVIDIA GPU that their tensors are on. Where gradients go back through them, their derivatives become
kernels too (dynamo/gradients.py). The rest is run as it was, by torch itself or by inductor.
"""

import importlib.metadata
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ....dialects.diagnostic import DiagnosedError
from ...api import CompileError, Options, make_options
from ...diagnostics import user_error
from ..torch.masks import substitute
from .attention import AttentionCall
from .checkpoints import Checkpointed, checkpoints, replace
from .checkpoints import why_not as why_not_under
from .dropouts import draw_seeds
from .gradients import DifferentiableCall
from .kernel import TARGETS, count_left
from .memory import follow_writes, take_views_where_read
from .multihead import WRITTEN_OUT, write_out
from .regions import Region, find_regions, spell_sizes_out
from .vmap import transforms, write_out_maps

REST = ("eager", "inductor")
OURS = (AttentionCall, Checkpointed)  # modules in a graph that inductor is not given
TRANSFORMED = "torch.func or forward-mode differentiation transforms it"


def backend(graph: torch.fx.GraphModule, example_inputs: Sequence[Any], **keywords: Any) -> Callable:
    """See the module. `options`: "rest" says who runs what is no attention; attention of fewer operations than
    "min_flops" stays with torch; others are those of `compile`."""
    settings = dict(keywords.get("options") or {})
    rest = settings.pop("rest", "eager")
    least = settings.pop("min_flops", 0)
    if rest not in REST:
        raise _compile_error(f"rest must be one of {', '.join(REST)}, but is {rest!r}")
    if not isinstance(least, int | float) or least < 0:
        raise _compile_error(f"min_flops must be how many operations, but is {least!r}")
    try:
        options = make_options({**settings, "must_fuse": True})  # what is not fused stays with torch
        options.check()
        if options.donate:
            raise user_error("donate is for kernels that are called; torch.compile's graphs say what they write to")
    except DiagnosedError as error:
        raise CompileError(error.diagnostics) from None
    _take_attention_out(graph, options, least, rest)
    return _runner(graph, rest)


def _take_attention_out(
    graph: torch.fx.GraphModule, options: Options, least: float, rest: str, refused: str | None = None
) -> bool:
    """Replaces attention by calls of kernels; whether there is any. `refused`: why all of it stays with torch."""
    for written in (*write_out_maps(graph), *write_out(graph)):
        count_left(written)
    spell_sizes_out(graph.graph)
    follow_writes(graph.graph)
    carriers, transformed = carrying_gradients(graph.graph), set(transforms(graph.graph))
    found = False
    for region in find_regions(graph, carriers):
        reason = refused or _why_not(region)
        if region.output in transformed or torch.autograd.forward_ad._current_level >= 0:
            reason = reason or TRANSFORMED
        if reason is None:
            _take_out(graph, region, carriers, options, least)
            found = True
        else:
            count_left(reason)
    for node, body in checkpoints(graph):
        if _take_attention_out(body, options, least, rest, refused or why_not_under(body)):
            replace(graph, node, _runner(body, rest))
            found = True
    graph.graph.lint()
    graph.recompile()
    return found


def _runner(graph: torch.fx.GraphModule, rest: str) -> Callable:
    return _with_inductor(graph) if rest == "inductor" else graph.forward


def _compile_error(message: str) -> CompileError:
    return CompileError(user_error(message).diagnostics)


def _why_not(region: Region) -> str | None:
    """Why a region stays with torch, None if it need not."""
    if region.refused:
        return region.refused
    values = [n.meta.get("example_value") for n in region.inputs]
    tensors = [v for v in values if isinstance(v, torch.Tensor)]
    devices = {t.device.type for t in tensors}
    if not devices <= TARGETS.keys() or len(devices) > 1:
        return f"its tensors are on {', '.join(sorted(devices))}"
    if devices == {"cuda"} and torch.version.hip:
        return "its tensors are on a GPU that is not NVIDIA's"
    return None


def carrying_gradients(graph: torch.fx.Graph) -> set[torch.fx.Node]:
    """The nodes through whose values gradients go back. Dynamo says of its own values whether they need one; what we
    wrote out was traced without gradients, and needs one where an operand does."""
    found: set[torch.fx.Node] = set()
    enabled = torch.is_grad_enabled()
    for node in graph.nodes:
        if node.target is torch._C._set_grad_enabled:
            enabled = bool(node.args[0])
        value = node.meta.get("example_value")
        if WRITTEN_OUT in node.meta:
            is_float = not isinstance(value, torch.Tensor) or value.is_floating_point()
            carries = is_float and any(i in found for i in node.all_input_nodes)
        else:
            values = value if isinstance(value, tuple | list) else (value,)
            carries = any(isinstance(v, torch.Tensor) and v.requires_grad for v in values)
        if carries and (enabled or node.op in ("placeholder", "get_attr")):
            found.add(node)
    return found


def _take_out(
    graph: torch.fx.GraphModule, region: Region, carriers: set[torch.fx.Node], options: Options, least: float
) -> None:
    """Replaces the region by one call of a kernel, at the place of its last node."""
    needs_gradient = any(result in carriers for result in region.results)
    draw_seeds(graph.graph, region)
    part = region.as_module(graph, carriers if needs_gradient else frozenset())
    number = sum(1 for name, _ in graph.named_children() if name.startswith("attention_"))
    name = f"attention_{number}"
    expected = [result.meta["example_value"] for result in region.results]
    arguments = part, expected, TARGETS[expected[0].device.type], options, least
    if needs_gradient:
        carrying = [result in carriers for result in region.results]
        call: AttentionCall = DifferentiableCall(*arguments, carrying=carrying, keeps=not region.is_changed)
    else:
        call = AttentionCall(*arguments)
    graph.add_submodule(name, call)
    with graph.graph.inserting_after(region.output):
        node = graph.graph.call_module(name, tuple(region.inputs))
    results = [node]
    if region.others:
        node.meta["example_value"] = tuple(expected)
        for i in range(len(expected)):
            with graph.graph.inserting_after(results[-1]):
                results.append(graph.graph.call_function(operator.getitem, (node, i)))
        del results[0]
    for user in reversed(region.late):
        results[-1].append(user)
    for result, found in zip(region.results, results, strict=True):
        found.meta = dict(result.meta)
        result.replace_all_uses_with(found)
    for node in reversed(region.nodes):
        if not node.users:
            graph.graph.erase_node(node)


def _with_inductor(graph: torch.fx.GraphModule) -> Callable:
    """The graph with everything between the attention calls compiled by inductor, at its first call."""
    from torch.fx.passes.split_module import split_module

    part = 0
    parts: dict[torch.fx.Node, int] = {}
    for node in graph.graph.nodes:
        is_call = node.op == "call_module" and isinstance(graph.get_submodule(str(node.target)), OURS)
        part += is_call
        parts[node] = part
        part += is_call
    take_views_where_read(graph.graph, parts)
    split = split_module(graph, graph, lambda node: parts[node], keep_original_order=True)
    for name, child in list(split.named_children()):
        if not any(isinstance(m, OURS) for m in child.modules()):
            setattr(split, name, torch.compile(child, backend="inductor"))
    return split.forward


substitute()

if "attn_opt" not in importlib.metadata.entry_points(group="torch_dynamo_backends").names:
    torch._dynamo.register_backend(backend, name="attn_opt")  # twice would be an error of torch's

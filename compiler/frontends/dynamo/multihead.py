"""Multi-head attention in a single call of torch, written out: projections, attention, projection.

    %out = torch.nn.functional.multi_head_attention_forward(%x, %x, %x, 64, 4, %w, %b, …)
  becomes
    %qkv = aten.linear(%x, %w, %b); …; %a = aten.scaled_dot_product_attention(%q, %k, %v); …; %out = aten.linear(…)

nn.MultiheadAttention, nn.TransformerEncoderLayer and nn.Transformer end in one of these calls.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.proxy_tensor import make_fx

from ..lowering import first_line

WRITTEN_OUT = "attn_opt_written_out"  # in the meta of nodes that were traced, without gradients, from one of dynamo's


def native_multi_head_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    embed_dim: int,
    heads: int,
    qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor,
    out_weight: torch.Tensor,
    out_bias: torch.Tensor,
    mask: torch.Tensor | None = None,
    need_weights: bool = True,
    average_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """torch._native_multi_head_attention, batch first. `mask_type`: 0 of the scores, 1 of padding, 2 of both."""
    first = query.transpose(0, 1)
    second = first if key is query else key.transpose(0, 1)
    third = first if value is query else value.transpose(0, 1)
    if mask is not None and mask_type == 2:
        mask = mask.flatten(0, 1)
    masks = {"key_padding_mask" if mask_type == 1 else "attn_mask": mask}
    weights = {"need_weights": need_weights, "average_attn_weights": average_weights}
    held = (qkv_weight, qkv_bias, None, None, False, 0.0, out_weight, out_bias)
    result, probabilities = F.multi_head_attention_forward(
        first, second, third, embed_dim, heads, *held, training=False, **masks, **weights
    )
    return result.transpose(0, 1), probabilities


def transformer_encoder_layer(
    x: torch.Tensor,
    embed_dim: int,
    heads: int,
    qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor,
    out_weight: torch.Tensor,
    out_bias: torch.Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    weight1: torch.Tensor,
    bias1: torch.Tensor,
    weight2: torch.Tensor,
    bias2: torch.Tensor,
    up_weight: torch.Tensor,
    up_bias: torch.Tensor,
    down_weight: torch.Tensor,
    down_bias: torch.Tensor,
    mask: torch.Tensor | None = None,
    mask_type: int | None = None,
) -> torch.Tensor:
    """torch._transformer_encoder_layer_fwd."""

    def norm1(y: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(y, (embed_dim,), weight1, bias1, eps)

    def norm2(y: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(y, (embed_dim,), weight2, bias2, eps)

    def attended(y: torch.Tensor) -> torch.Tensor:
        held = (embed_dim, heads, qkv_weight, qkv_bias, out_weight, out_bias)
        return native_multi_head_attention(y, y, y, *held, mask, False, mask_type=mask_type)[0]

    def fed_forward(y: torch.Tensor) -> torch.Tensor:
        y = F.linear(y, up_weight, up_bias)
        return F.linear(F.gelu(y) if use_gelu else F.relu(y), down_weight, down_bias)

    if norm_first:
        x = x + attended(norm1(x))
        return x + fed_forward(norm2(x))
    x = norm1(x + attended(x))
    return norm2(x + fed_forward(x))


_FUNCTIONS: dict[Any, Callable] = {
    F.multi_head_attention_forward: F.multi_head_attention_forward,
    torch._native_multi_head_attention: native_multi_head_attention,
    torch._transformer_encoder_layer_fwd: transformer_encoder_layer,
}


def write_out(graph: torch.fx.GraphModule) -> list[str]:
    """Replaces each such call, see the module; returns why others are left as they are."""
    left = []
    for node in list(graph.graph.nodes):
        function = _FUNCTIONS.get(node.target) if node.op == "call_function" else None
        if function is None:
            continue
        inputs = list(dict.fromkeys(node.all_input_nodes))
        values = [n.meta.get("example_value") for n in inputs]
        if node.kwargs.get("training") is False:
            # The probability of a dropout, which may be a symbol, is of no use then.
            values = [0.0 if isinstance(v, torch.SymFloat) else v for v in values]
        if any(v != 0.0 if not isinstance(v, torch.Tensor) else v.is_nested for v in values):
            left.append("a call of multi-head attention has symbols or nested tensors among its arguments")
        else:
            try:
                traced = _traced(node, function, inputs, values)
            except Exception as error:
                left.append(f"a call of multi-head attention cannot be traced: {first_line(error)}")
            else:
                _replace(graph.graph, node, inputs, traced)
    return left


def _traced(node: torch.fx.Node, function: Callable, inputs: list[torch.fx.Node], values: list[Any]) -> torch.fx.Graph:
    def call(*tensors: torch.Tensor) -> Any:
        known = dict(zip(inputs, tensors, strict=True))
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), known.__getitem__)
        return function(*args, **kwargs)

    with in_mode_of(values):
        return without_constants(make_fx(call, pre_dispatch=True)(*values).graph)


def without_constants(traced: torch.fx.Graph) -> torch.fx.Graph:
    """`traced`, for `inline`. Raises ValueError where it holds tensors of its own, which were made up for tracing."""
    if traced.find_nodes(op="get_attr"):
        raise ValueError("it makes tensors of numbers")
    return traced


@contextlib.contextmanager
def in_mode_of(values: list[Any]) -> Iterator[None]:
    """Operations on the fake tensors `values` can be traced within."""
    mode = next((v.fake_mode for v in values if isinstance(v, FakeTensor)), contextlib.nullcontext())
    with torch.no_grad(), mode:
        yield


def _replace(graph: torch.fx.Graph, node: torch.fx.Node, inputs: list[torch.fx.Node], traced: torch.fx.Graph) -> None:
    """The call `node` by the nodes of `traced`; a result of the call that is needed is one of its outputs."""
    with graph.inserting_before(node):
        result = inline(graph, inputs, traced)
    if isinstance(result, torch.fx.Node):
        node.replace_all_uses_with(result)
    else:
        for user in list(node.users):
            part = result[user.args[1]]
            if part is not None:
                user.replace_all_uses_with(part)
            graph.erase_node(user)
    graph.erase_node(node)


def inline(graph: torch.fx.Graph, inputs: list[torch.fx.Node], traced: torch.fx.Graph) -> Any:
    """Copies what the result of `traced` needs to the current insertion point of `graph`; returns the result."""
    traced.eliminate_dead_code()
    copies = dict(zip(traced.find_nodes(op="placeholder"), inputs, strict=True))
    for inner in traced.nodes:
        if inner.op == "call_function":
            copies[inner] = graph.node_copy(inner, copies.__getitem__)
            copies[inner].meta = {**inner.meta, "example_value": inner.meta.get("val"), WRITTEN_OUT: True}
    return torch.fx.map_arg(traced.output_node().args[0], copies.__getitem__)

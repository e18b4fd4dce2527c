"""Attention on an NVIDIA GPU, ours and others', as contenders: (graph, tensors) → (call, results), as in `peers`.

`tensors` are torch's, in the graph's own layouts. A call only launches; results are tensors [batch, heads, queries,
d_v].
"""

from collections.abc import Callable, Sequence
from typing import Any

from ..graphs import Attention
from .peers import Unsupported, is_causal, refuse

Contender = tuple[Callable[[], Any], Callable[[Any], list[Any]]]


def attn_opt(graph: Attention, tensors: Sequence[Any]) -> Contender:
    from .. import api

    kernel = api.compile(graph.text(), target="nvidia")
    order = [graph.output_layout.index(c) for c in "bhsd"]

    def results(found: Any) -> list[Any]:
        found = found if isinstance(found, tuple) else (found,)
        return [found[0].permute(order), *found[1:]]

    return lambda: kernel(*tensors), results


def _canonical(graph: Attention, tensors: Sequence[Any]) -> list[Any]:
    layouts = (graph.input_layout, graph.input_layout, graph.value_layout)
    return [x.permute([layout.index(c) for c in "bhsd"]) for x, layout in zip(tensors, layouts, strict=False)]


def _added(graph: Attention, tensors: Sequence[Any]) -> Any:
    """All that is added to the scores, in the inputs' type; None if nothing is."""
    import torch

    total = tensors[3] if graph.bias else None
    i = torch.arange(graph.queries, device="cuda")[:, None]
    j = torch.arange(graph.keys, device="cuda")
    if graph.alibi:
        slopes = torch.tensor([graph.slope(h) for h in range(graph.heads)], device="cuda")[:, None, None]
        slanted = (slopes * (j - i)).to(tensors[0].dtype)[None]
        total = slanted if total is None else total + slanted
    if graph.window != (None, None) and not is_causal(graph):
        lower, upper = graph.window
        dead = torch.zeros(graph.queries, graph.keys, dtype=torch.bool, device="cuda")
        dead |= dead if lower is None else j - i < lower
        dead |= dead if upper is None else j - i > upper
        masked = torch.zeros(1, 1, graph.queries, graph.keys, dtype=tensors[0].dtype, device="cuda")
        masked.masked_fill_(dead, float("-inf"))
        total = masked if total is None else total + masked
    return total


def _sdpa(backend: str | None) -> Callable[[Attention, Sequence[Any]], Contender]:
    def contender(graph: Attention, tensors: Sequence[Any]) -> Contender:
        refuse("torch's SDPA", softcap=bool(graph.softcap))
        import torch
        from torch.nn.attention import SDPBackend, sdpa_kernel

        q, k, v = _canonical(graph, tensors)
        mask = _added(graph, tensors)
        chosen = None if backend is None else SDPBackend[backend]
        options = {"is_causal": is_causal(graph), "scale": graph.factor, "enable_gqa": graph.kv != graph.heads}

        def call() -> Any:
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, **options)

        def with_backend() -> Any:
            with sdpa_kernel(chosen):
                return call()

        run = call if chosen is None else with_backend
        try:
            run()
        except RuntimeError as error:
            raise Unsupported(f"not this case ({str(error).splitlines()[0][:80]})") from None
        return run, lambda out: [out]

    return contender


def flex(graph: Attention, tensors: Sequence[Any]) -> Contender:
    """FlexAttention, compiled, with a block mask."""
    refuse("FlexAttention", **{f"{graph.element} in tensor cores": graph.element not in ("f16", "bf16")})
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    torch._dynamo.config.recompile_limit = 4096
    q, k, v = _canonical(graph, tensors)
    lower, upper = graph.window
    block_mask = None
    if graph.window != (None, None):

        def live(b: Any, h: Any, i: Any, j: Any) -> Any:
            inside = j - i <= upper if upper is not None else j >= 0
            return inside & (j - i >= lower) if lower is not None else inside

        block_mask = create_block_mask(live, None, None, graph.queries, graph.keys, device="cuda")
    bias = tensors[3] if graph.bias else None
    slopes = torch.tensor([graph.slope(h) for h in range(graph.heads)], device="cuda")

    def modified(score: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        if graph.softcap:
            score = graph.softcap * torch.tanh(score / graph.softcap)
        if graph.alibi:
            score = score + slopes[h] * (j - i)
        return score + bias[b, h, i, j] if bias is not None else score

    modify = modified if graph.softcap or graph.alibi or graph.bias else None
    compiled = torch.compile(flex_attention, dynamic=False)
    grouped, scale = graph.kv != graph.heads, graph.factor
    return (
        lambda: compiled(q, k, v, score_mod=modify, block_mask=block_mask, scale=scale, enable_gqa=grouped),
        lambda out: [out],
    )


def flash_attn_4(graph: Attention, tensors: Sequence[Any]) -> Contender:
    """The package flash-attn-4 (flash_attn.cute)."""
    window = graph.window != (None, None) and not is_causal(graph)
    refuse("flash-attn-4 here", bias=graph.bias, alibi=graph.alibi, window=window, softcap=bool(graph.softcap))
    from flash_attn.cute import flash_attn_func

    q, k, v = (x.transpose(1, 2) for x in _canonical(graph, tensors))
    causal, scale = is_causal(graph), graph.factor

    def results(out: Any) -> list[Any]:
        return [(out[0] if isinstance(out, tuple) else out).transpose(1, 2)]

    return lambda: flash_attn_func(q, k, v, causal=causal, softmax_scale=scale), results


GPU_PEERS: dict[str, Callable[[Attention, Sequence[Any]], Contender]] = {
    "torch-cudnn": _sdpa("CUDNN_ATTENTION"),
    "torch-flash": _sdpa("FLASH_ATTENTION"),
    "torch-efficient": _sdpa("EFFICIENT_ATTENTION"),
    "torch": _sdpa(None),
    "flex": flex,
    "flash-attn-4": flash_attn_4,
}

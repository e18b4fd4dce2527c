"""Attention on an NVIDIA GPU, ours and others', as contenders: (graph, inputs) → (call, results), as in `peers`.

A call only launches; results are tensors [batch, heads, queries, d_v].
"""

import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..graphs import Attention
from ..runtime.signature import is_numpys
from .peers import Unsupported, added_bias, is_causal, refuse

Contender = tuple[Callable[[], Any], Callable[[Any], list[Any]]]


def on_gpu(array: np.ndarray) -> Any:
    """A tensor of torch with the array's elements and strides."""
    import torch

    if not is_numpys(array.dtype):  # ml_dtypes has torch's names
        bits = array.view(f"i{array.itemsize}")
        return torch.from_numpy(bits).cuda().view(getattr(torch, array.dtype.name))
    return torch.from_numpy(array).cuda()


def attn_opt(
    graph: Attention, arrays: Sequence[np.ndarray], options: dict[str, Any], file: pathlib.Path | None
) -> Contender:
    """Ours, with these options of `compile`; from a file that it was saved in, where there is one."""
    from ..api import compile
    from ..kernel import load

    kernel = compile(graph.text(), target="nvidia", must_fuse=True, **options) if file is None else load(file)
    tensors = [on_gpu(array) for array in arrays]
    order = [graph.output_layout.index(c) for c in "bhsd"]

    def results(found: Any) -> list[Any]:
        found = found if isinstance(found, tuple) else (found,)
        return [found[0].permute(order), *found[1:]]

    return lambda: kernel(*tensors), results


def _sdpa(backend: str | None) -> Callable[[Attention, Sequence[np.ndarray]], Contender]:
    def contender(graph: Attention, arrays: Sequence[np.ndarray]) -> Contender:
        refuse("torch's SDPA", graph, softcap=bool(graph.softcap))
        import torch
        from torch.nn.attention import SDPBackend, sdpa_kernel

        q, k, v = map(on_gpu, graph.canonical(arrays))
        bias = added_bias(graph, arrays, graph.dtype)
        mask = None if bias is None else on_gpu(bias)
        chosen = None if backend is None else getattr(SDPBackend, backend)
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


def flex(graph: Attention, arrays: Sequence[np.ndarray]) -> Contender:
    """FlexAttention, compiled, with a block mask."""
    refuse(
        "FlexAttention here",
        graph,
        lengths=bool(graph.lengths),
        mask=bool(graph.mask),
        **{f"{graph.element} in tensor cores": graph.element not in ("f16", "bf16")},
    )
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    torch._dynamo.config.recompile_limit = 4096
    q, k, v = map(on_gpu, graph.canonical(arrays))
    lower, upper = graph.window
    block_mask = None
    if graph.window != (None, None):

        def live(b: Any, h: Any, i: Any, j: Any) -> Any:
            inside = j - i <= upper if upper is not None else j >= 0
            return inside & (j - i >= lower) if lower is not None else inside

        block_mask = create_block_mask(live, None, None, graph.queries, graph.keys, device="cuda")
    bias = None
    if graph.bias:
        whole = (graph.batch, graph.heads, graph.queries, graph.keys)
        bias = on_gpu(graph.named(arrays)["bias"]).expand(whole)
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


def flash_attn_4(graph: Attention, arrays: Sequence[np.ndarray]) -> Contender:
    """The package flash-attn-4 (flash_attn.cute)."""
    window = graph.window != (None, None) and not is_causal(graph)
    others = {"lengths": bool(graph.lengths), "mask": bool(graph.mask), "softcap": bool(graph.softcap)}
    refuse("flash-attn-4 here", graph, bias=bool(graph.bias), alibi=graph.alibi, window=window, **others)
    from flash_attn.cute import flash_attn_func

    q, k, v = (on_gpu(x).transpose(1, 2) for x in graph.canonical(arrays))
    causal, scale = is_causal(graph), graph.factor

    def results(out: Any) -> list[Any]:
        return [(out[0] if isinstance(out, tuple) else out).transpose(1, 2)]

    return lambda: flash_attn_func(q, k, v, causal=causal, softmax_scale=scale), results


GPU_PEERS: dict[str, Callable[[Attention, Sequence[np.ndarray]], Contender]] = {
    "torch-cudnn": _sdpa("CUDNN_ATTENTION"),
    "torch-flash": _sdpa("FLASH_ATTENTION"),
    "torch-efficient": _sdpa("EFFICIENT_ATTENTION"),
    "torch": _sdpa(None),
    "flex": flex,
    "flash-attn-4": flash_attn_4,
}

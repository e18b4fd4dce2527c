"""Other implementations of attention, as contenders: each takes a graph and its inputs in the layout that suits it.

A peer is a function (graph, inputs, threads) → (call, results): `call()` computes once and returns when it is done,
`results(…)` of what it returns are numpy arrays: the output as [batch, heads, queries, d_v], perhaps the lse. What a
peer cannot compute is `Unsupported`. Moving inputs to a peer's favourite layout is not part of a call.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..graphs import FLOAT8, Attention
from ..worker_process import REASON

Contender = tuple[Callable[[], Any], Callable[[Any], list[np.ndarray]]]


class Unsupported(Exception):
    """The peer has no such attention; the message says what it lacks."""


def refusal(error: Exception) -> dict[str, str]:
    """What to tell of a contender that could not be prepared: {"skipped": why}, or {"failed": why}."""
    match error:
        case Unsupported():
            return {"skipped": str(error)}
        case ImportError():
            return {"skipped": f"not installed ({error.name or error})"}
        case MemoryError():
            return {"skipped": "not enough memory"}
        case _:
            first = str(error).strip().split("\n")[0]
            return {"failed": f"{type(error).__name__}: {first}"[:REASON]}


def refuse(peer: str, graph: Attention, **lacks: bool) -> None:
    of_all = {"sequences_one_after_the_other": bool(graph.groups), "floats_of_8_bits": graph.element in FLOAT8}
    for what, there in {**lacks, **of_all}.items():
        if there:
            raise Unsupported(f"{peer} has no {what.replace('_', ' ')}")


def is_causal(graph: Attention) -> bool:
    return graph.window == (None, 0) and graph.queries == graph.keys and not graph.lengths


def added_bias(graph: Attention, inputs: Sequence[np.ndarray], dtype: Any) -> np.ndarray | None:
    """All that is added to scores, as one array that broadcasts to [b, h, queries, keys]; what is masked as −∞."""
    named = graph.named(inputs)
    total: np.ndarray | None = named["bias"].astype(np.float32) if graph.bias else None
    j = np.arange(graph.keys)
    if graph.alibi:
        slopes = np.array([graph.slope(h) for h in range(graph.heads)], np.float32)[:, None, None]
        slanted = slopes * (j - graph.places()[:, None, :, None]).astype(np.float32)
        total = slanted if total is None else total + slanted
    dead = ~named["mask"] if graph.mask else None
    if (graph.window != (None, None) and not is_causal(graph)) or graph.lengths:
        first, end = (x[:, None, :, None] for x in graph.ranges())
        beyond = (j < first) | (j >= end)
        dead = beyond if dead is None else dead | beyond
    if dead is not None:
        total = np.where(dead, np.float32(-np.inf), np.float32(0) if total is None else total)
    return None if total is None else total.astype(dtype)


def attn_opt(graph: Attention, inputs: Sequence[np.ndarray], threads: int, options: dict[str, Any]) -> Contender:
    """Ours, with these options of `compile`."""
    from .. import api

    kernel = api.compile(graph.text(), threads=threads, **options)
    arrays = kernel.bind(inputs)

    def call() -> Any:
        return kernel.run(arrays)

    call.kernel = kernel.explain()  # type: ignore[attr-defined]
    return call, lambda found: [graph.canonical_output(found[0]), *found[1:]]


def torch(graph: Attention, inputs: Sequence[np.ndarray], threads: int) -> Contender:
    """``torch.nn.functional.scaled_dot_product_attention``."""
    refuse("torch's SDPA", graph, softcap=bool(graph.softcap))
    import torch as library

    library.set_num_threads(threads)

    def tensor(array: np.ndarray) -> Any:
        if graph.element == "bf16":
            return library.from_numpy(array.view(np.int16)).view(library.bfloat16)
        return library.from_numpy(array)

    q, k, v = map(tensor, graph.canonical(inputs))
    bias = added_bias(graph, inputs, graph.dtype)
    mask = None if bias is None else tensor(bias)
    grouped = graph.kv != graph.heads
    scale = graph.factor

    def call() -> Any:
        with library.inference_mode():
            return library.nn.functional.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, is_causal=is_causal(graph), scale=scale, enable_gqa=grouped
            )

    return call, lambda out: [out.to(library.float64).numpy()]


def onnxruntime(graph: Attention, inputs: Sequence[np.ndarray], threads: int) -> Contender:
    """The operator com.microsoft.MultiHeadAttention on the CPU."""
    refuse(
        "ONNX Runtime's MultiHeadAttention",
        graph,
        grouped_heads=graph.kv != graph.heads,
        softcap=bool(graph.softcap),
        **{f"{graph.element}_kernel": graph.element != "f32"},
    )
    import onnx
    import onnxruntime as library

    q, k, v = (
        np.ascontiguousarray(x.transpose(0, 2, 1, 3)).reshape(graph.batch, x.shape[2], -1)
        for x in graph.canonical(inputs)
    )
    feeds = {"q": q, "k": k, "v": v}
    bias = added_bias(graph, inputs, np.float32)
    names = ["q", "k", "v"]
    if bias is not None:
        names += ["", "", "bias"]
        feeds["bias"] = bias
    make, float32 = onnx.helper, onnx.TensorProto.FLOAT
    options = {"num_heads": graph.heads, "scale": graph.factor, "unidirectional": int(is_causal(graph))}
    node = make.make_node("MultiHeadAttention", names, ["o"], domain="com.microsoft", **options)
    value = make.make_tensor_value_info
    arguments = [value(name, float32, array.shape) for name, array in feeds.items()]
    result = value("o", float32, [graph.batch, graph.queries, graph.heads * graph.d_v])
    opsets = [make.make_opsetid("", 20), make.make_opsetid("com.microsoft", 1)]
    model = make.make_model(
        make.make_graph([node], "attention", arguments, [result]), opset_imports=opsets, ir_version=10
    )
    settings = library.SessionOptions()
    settings.intra_op_num_threads = threads
    session = library.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    shape = (graph.batch, graph.queries, graph.heads, graph.d_v)
    return lambda: session.run(None, feeds), lambda outs: [outs[0].reshape(shape).transpose(0, 2, 1, 3)]


def jax(graph: Attention, inputs: Sequence[np.ndarray], threads: int) -> Contender:
    """``jax.nn.dot_product_attention``, jitted."""
    refuse("jax.nn.dot_product_attention", graph, softcap=bool(graph.softcap), f64=graph.element == "f64")
    import jax as library

    if graph.d_v != graph.head_size:
        raise Unsupported("jax.nn.dot_product_attention has no values of another head size")
    q, k, v = (library.numpy.asarray(x.transpose(0, 2, 1, 3)) for x in graph.canonical(inputs))
    found = added_bias(graph, inputs, graph.dtype)
    bias = None if found is None else library.numpy.asarray(found)
    causal, scale = is_causal(graph), graph.factor
    attention = library.nn.dot_product_attention
    function = library.jit(lambda q, k, v, bias: attention(q, k, v, bias=bias, is_causal=causal, scale=scale))
    return (
        lambda: function(q, k, v, bias).block_until_ready(),
        lambda out: [np.asarray(out).astype(np.float64).transpose(0, 2, 1, 3)],
    )


def iree(graph: Attention, inputs: Sequence[np.ndarray], threads: int) -> Contender:
    """The op iree_linalg_ext.attention, compiled for this CPU."""
    refuse(
        "IREE's attention op on a CPU",
        graph,
        grouped_heads=graph.kv != graph.heads,
        softcap=bool(graph.softcap),
        bias_or_mask=bool(graph.bias or graph.mask or graph.lengths or graph.alibi or graph.window != (None, None)),
        bf16_here=graph.element == "bf16",
    )
    import iree.compiler as compiler
    import iree.runtime as runtime

    arrays = [np.ascontiguousarray(x) for x in graph.canonical(inputs)]
    shape = (graph.batch, graph.heads, graph.queries, graph.d_v)
    e = graph.element
    q, k, v, o = (f"tensor<{'x'.join(map(str, s))}x{e}>" for s in (*(x.shape for x in arrays), shape))
    loops = "(b, h, m, n, d, s)"
    dims = ("b, h, m, d", "b, h, s, d", "b, h, s, n", "", "b, h, m, n")
    maps = ", ".join(f"affine_map<{loops} -> ({d})>" for d in dims)
    text = f"""
func.func @attention(%q: {q}, %k: {k}, %v: {v}) -> {o} {{
  %scale = arith.constant {graph.factor:.17e} : {e}
  %empty = tensor.empty() : {o}
  %o = iree_linalg_ext.attention <{{indexing_maps = [{maps}]}}>
    ins(%q, %k, %v, %scale : {q}, {k}, {v}, {e}) outs(%empty : {o}) {{
    ^bb0(%x: f32):
      iree_linalg_ext.yield %x : f32
  }} -> {o}
  return %o : {o}
}}"""
    flags = ["--iree-llvmcpu-target-cpu=host", "--iree-opt-level=O3"]
    code = compiler.compile_str(text, target_backends=["llvm-cpu"], extra_args=flags)
    runtime.flags.parse_flags(f"--task_topology_max_group_count={threads}")
    config = runtime.Config("local-sync" if threads == 1 else "local-task")
    context = runtime.SystemContext(config=config)
    context.add_vm_module(runtime.VmModule.copy_buffer(context.instance, code))
    function = context.modules.module["attention"]
    moved = [runtime.asdevicearray(config.device, x) for x in arrays]
    return lambda: function(*moved), lambda out: [np.asarray(out.to_host()).astype(np.float64)]


PEERS = {"torch": torch, "onnxruntime": onnxruntime, "jax": jax, "iree": iree}


def environment(threads: int) -> dict[str, str]:
    """The variables by which contenders are told their threads, where they cannot be told otherwise."""
    single = "" if threads > 1 else "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    return {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads), "XLA_FLAGS": single}

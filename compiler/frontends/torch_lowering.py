"""From a program of torch.export to linalg on tensors, by the importer and the passes of the bindings.

Decompositions are chosen so that attention stays recognisable and sizes stay sizes: ``aten.matmul`` is kept whole (as
``view`` and ``bmm`` its batch dimensions would be lost where they are dynamic), scaled_dot_product_attention becomes
two of them around a softmax, flex_attention too, with its modifications inlined.
"""

import dataclasses
import functools
import math
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from ...dialects import make_context
from ...dialects.mlir import ir
from ..diagnostics import user_error
from . import torch_shapes, torch_sinks, torch_unsigned
from .lowering import check_lowered, first_line, ops, run
from .sequential import to_loops

TO_BACKEND = (
    "builtin.module(func.func(torch-match-quantized-custom-ops),"
    "torchdynamo-export-to-torch-backend-pipeline"
    "{extra-library= backend-legal-ops=aten.flatten.using_ints,aten.unflatten.int})"  # they would become views again
)
TO_LINALG = "builtin.module(torch-backend-to-linalg-on-tensors-backend-pipeline{allow-non-finites=true})"
WAY_OUT = "leave that op to torch, by torch.compile(…, backend='attn_opt')"
HINTS = {"ml_program.global": f"random numbers are drawn there, as by dropout: call eval() on the model, or {WAY_OUT}"}
KEPT_WHOLE = (torch.ops.aten.matmul,)


def scaled_dot_product_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """aten.scaled_dot_product_attention in two matmuls; rows that are masked as a whole give zeros, as torch's do."""
    if dropout_p:
        weights = _scores(query, key, attn_mask, is_causal, scale, enable_gqa).softmax(-1)
        weights = torch.nn.functional.dropout(weights, dropout_p)
    else:
        weights = torch._safe_softmax(_scores(query, key, attn_mask, is_causal, scale, enable_gqa), -1)
    return torch.matmul(weights.to(value.dtype), _repeated(value, query, enable_gqa))


def flash_attention_for_cpu(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: torch.Tensor | None = None,
    scale: float | None = None,
) -> Any:
    """What scaled_dot_product_attention is to torch's own kernel: the output and, in f32, its log-sum-exp."""
    if dropout_p:
        return NotImplemented
    scores = _scores(query, key, attn_mask, is_causal, scale, enable_gqa=False)
    weights = torch._safe_softmax(scores, -1)
    return torch.matmul(weights.to(value.dtype), value), torch.logsumexp(scores.to(torch.float32), -1)


def _scores(
    query: torch.Tensor,
    key: torch.Tensor,
    attn_mask: torch.Tensor | None,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> torch.Tensor:
    factor = 1 / math.sqrt(query.size(-1)) if scale is None else scale
    scores = torch.matmul(query, _repeated(key, query, enable_gqa).transpose(-2, -1)) * factor
    if is_causal:
        rows = torch.arange(query.size(-2), device=query.device).unsqueeze(-1)
        columns = torch.arange(key.size(-2), device=query.device)
        scores = torch.where(columns <= rows, scores, -math.inf)
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            scores = torch.where(attn_mask, scores, -math.inf)
        else:
            scores = scores + attn_mask
    return scores


def _repeated(keys: torch.Tensor, query: torch.Tensor, enable_gqa: bool) -> torch.Tensor:
    """Keys or values, repeated for the queries' heads; the copies vanish when attention is raised."""
    groups = query.size(-3) // keys.size(-3) if enable_gqa else 1
    if groups == 1:
        return keys
    batch, heads, length, size = keys.shape[:-3], keys.size(-3), keys.size(-2), keys.size(-1)
    repeated = keys.unsqueeze(-3).expand(*batch, heads, groups, length, size)
    return repeated.reshape(*batch, heads * groups, length, size)


NARROW = (torch.int8, torch.int16, torch.int32)


def index(x: torch.Tensor, indices: list[torch.Tensor | None]) -> Any:
    """aten.index by narrow integers, which tables of pages have, by wide ones: others have no lowering."""
    narrow = [i is not None and i.dtype in NARROW for i in indices]
    if not any(narrow):
        return NotImplemented
    wide = [i.to(torch.int64) if n and i is not None else i for i, n in zip(indices, narrow, strict=True)]
    return torch.ops.aten.index.Tensor(x, wide)


def index_copy(x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """aten.index_copy as a choice per element: what a key-value cache is written with. A scatter is a loop.

    Of an index that is given more than once the last one counts, as where elements are written one after the other.
    """
    size = x.size(dim)
    hits = torch.arange(size, device=x.device).unsqueeze(1) == index.reshape(1, -1)
    last = torch.where(hits, torch.arange(index.numel(), device=x.device), -1).amax(1)
    from_source = source.index_select(dim, last.clamp(min=0))
    shape = [size if d == dim % x.dim() else 1 for d in range(x.dim())]
    return torch.where((last >= 0).view(shape), from_source, x)


def index_put(
    x: torch.Tensor, indices: list[torch.Tensor | None], values: torch.Tensor, accumulate: bool = False
) -> Any:
    """aten.index_put along one dimension, or of one value where a mask says; others are left as they are."""
    given = [d for d, index in enumerate(indices) if index is not None]
    index = indices[given[0]] if len(given) == 1 else None
    if index is not None and index.dtype == torch.bool and values.numel() == 1 and not accumulate:
        after = x.dim() - given[0] - index.dim()
        return torch.where(index.reshape(*index.shape, *([1] * after)), values.reshape([]), x)
    if index is None or index.dim() != 1 or index.dtype == torch.bool or accumulate:
        return NotImplemented
    shape = [index.size(0) if d == given[0] else size for d, size in enumerate(x.shape)]
    index = torch.where(index < 0, index + x.size(given[0]), index)  # counted from the end
    return index_copy(x, given[0], index, values.expand(shape))


def power(x: torch.Tensor, exponent: float) -> Any:
    """aten.pow with a small whole exponent as products; other exponents are left as they are."""
    whole = isinstance(exponent, int) and x.dtype != torch.bool
    if not (x.dtype.is_floating_point or whole) or exponent not in (2, 3, 4):
        return NotImplemented
    square = x * x
    return {2: lambda: square, 3: lambda: square * x, 4: lambda: square * square}[int(exponent)]()


@functools.cache
def decompositions() -> dict[Any, Callable]:
    """What becomes of each op that has no lowering of its own, or a worse one."""
    from torch_mlir.extras.fx_decomp_util import get_decomposition_table

    table = {op: f for op, f in get_decomposition_table().items() if op._overloadpacket not in KEPT_WHOLE}
    table[torch.ops.aten.scaled_dot_product_attention.default] = scaled_dot_product_attention
    table[torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default] = flash_attention_for_cpu
    table[torch.ops.aten.pow.Tensor_Scalar] = power
    table[torch.ops.aten.isfinite.default] = lambda x: x.abs() < float("inf")
    table[torch.ops.aten.index.Tensor] = index
    table[torch.ops.aten.index_copy.default] = index_copy
    table[torch.ops.aten.index_put.default] = index_put
    table[torch.ops.aten.expand.default] = torch_shapes.expand
    return table


@dataclasses.dataclass(frozen=True)
class Lowered:
    """A program as a module whose function ``main`` takes the tensors `arguments` and returns those of `results`.

    An argument is a tensor that the program holds (a parameter, a buffer, a constant) or the number of a user's input;
    `results` has the number of the function's result for every output of the program's graph, None for what is no
    tensor.
    """

    module: ir.Module
    arguments: list[torch.Tensor | int]
    program: ExportedProgram
    results: list[int | None]


def lower(program: ExportedProgram) -> Lowered:
    """Linalg on tensors for a program of torch.export. A user's error where there is no way."""
    from .torch_flex import without_flex_attention

    program = without_flex_attention(program)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # torch's own, about its own trees
            program = program.run_decompositions(decompositions())
    except Exception as error:
        raise user_error(f"torch cannot decompose the program: {first_line(error)}") from error
    graph = program.graph_module.graph
    _refuse(graph)
    arguments = _arguments(program)
    _forget_devices(graph)
    torch_unsigned.widen(graph)
    torch_shapes.split_and_merge(graph)
    torch_sinks.write_out(graph)
    results = _tensor_outputs(graph)
    module = _imported(graph)
    run(module, TO_BACKEND, WAY_OUT)
    run(module, TO_LINALG, WAY_OUT)
    _erase_asserts(module)
    to_loops(module)
    run(module, "builtin.module(canonicalize,cse)", WAY_OUT)
    check_lowered(module, ("tm_tensor", "torch", "torch_c", "ml_program"), WAY_OUT, HINTS)
    return Lowered(module, arguments, program, results)


def _arguments(program: ExportedProgram) -> list[torch.Tensor | int]:
    """What to pass for each placeholder. Scalar constants and inputs that are no tensors become part of the graph."""
    graph = program.graph_module.graph
    held = {**program.state_dict, **program.constants}
    arguments: list[torch.Tensor | int] = []
    user_inputs = 0
    for node, spec in zip(graph.find_nodes(op="placeholder"), program.graph_signature.input_specs, strict=True):
        if spec.kind == InputKind.USER_INPUT:
            number, user_inputs = user_inputs, user_inputs + 1
            if isinstance(node.meta.get("val"), torch.Tensor):
                arguments.append(number)
            elif not node.users:
                graph.erase_node(node)
            else:
                raise user_error(f"argument {number} is a symbolic number, which is not supported; pass it as a tensor")
            continue
        value = held[spec.target]
        if spec.kind == InputKind.CONSTANT_TENSOR and value.numel() == 1:
            with graph.inserting_before(node):
                scalar = graph.call_function(
                    torch.ops.aten.full.default, (list(value.shape), value.item()), {"dtype": value.dtype}
                )
            scalar.meta = dict(node.meta)
            node.replace_all_uses_with(scalar)
            # Placeholders come first.
            last = graph.find_nodes(op="placeholder")[-1]
            if scalar < last:
                last.append(scalar)
            graph.erase_node(node)
        else:
            arguments.append(value)
    return arguments


def _forget_devices(graph: torch.fx.Graph) -> None:
    """Where a tensor is made is for the target to say; the importer's passes know no device but the CPU."""
    cpu = torch.device("cpu")
    for node in list(graph.nodes):
        if node.target == torch.ops.prims.device_put.default:
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
            continue
        arguments = (node.args, node.kwargs)
        forgotten = torch.utils._pytree.tree_map_only(torch.device, lambda _: cpu, arguments)
        node.args, node.kwargs = forgotten


def _tensor_outputs(graph: torch.fx.Graph) -> list[int | None]:
    """Makes the graph return each tensor; see `lower`."""
    node = graph.output_node()
    tensors: list[torch.fx.Node] = []
    numbers: list[int | None] = []
    for value in node.args[0]:
        is_tensor = isinstance(value, torch.fx.Node) and isinstance(value.meta.get("val"), torch.Tensor)
        numbers.append(len(tensors) if is_tensor else None)
        if is_tensor:
            tensors.append(value)
    node.args = (tuple(tensors),)
    return numbers


def _refuse(graph: torch.fx.Graph) -> None:
    for node in graph.nodes:
        if str(node.target).startswith("auto_functionalized"):
            raise user_error(f"{node.args[0]}, a custom op that writes to its arguments, has no lowering; {WAY_OUT}")
        if node.target is torch.ops.higher_order.with_effects:
            raise user_error(f"{node.args[1]} has an effect beside its results, which no kernel has; {WAY_OUT}")
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and value.is_complex():
            raise user_error(f"complex numbers are not supported, such as '{node.name}'; {WAY_OUT}")
        tags = getattr(node.target, "tags", ())
        if torch.Tag.dynamic_output_shape in tags and isinstance(value, torch.Tensor) and free_unbacked_symbols(value):
            raise user_error(f"how many elements '{node.name}', of {node.target}, has depends on data; {WAY_OUT}")


def _imported(graph: torch.fx.Graph) -> ir.Module:
    """The graph in the torch dialect, in a context of its own."""
    from torch_mlir.dialects import torch as torch_dialect
    from torch_mlir.extras.fx_importer import FxImporter

    context = make_context()
    torch_dialect.register_dialect(context)
    importer = FxImporter(context=context)
    try:
        importer.import_stateless_graph(graph, func_name="main")
    except Exception as error:
        raise user_error(f"the graph of torch.export cannot be imported: {first_line(error)}") from error
    return importer.module


def _erase_asserts(module: ir.Module) -> None:
    """Sizes that do not match have been refused by then: torch.export's constraints are checked at every call."""
    for op in ops(module):
        if op.name == "cf.assert":
            op.erase()

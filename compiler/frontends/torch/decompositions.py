"""What ops of torch become before they are imported: such as have no lowering of their own, or a worse one.

Chosen so that attention stays recognisable and sizes stay sizes: ``aten.matmul`` is kept whole (as ``view`` and ``bmm``
its batch dimensions would be lost where they are dynamic), scaled_dot_product_attention becomes two of them around a
softmax. What is written to by index becomes a choice per element.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import get_decompositions
from torch.fx.experimental.symbolic_shapes import statically_known_true

from . import dropout_masks
from . import experts as torch_experts
from . import searches as torch_searches
from . import shapes as torch_shapes
from . import windows as torch_windows
from .einsums import einsum
from .narrow import HALVES, not_narrow

KEPT_WHOLE = (torch.ops.aten.matmul,)
ROOTS = {0.5: torch.sqrt, -0.5: torch.rsqrt}
FEW = 16  # elements that are written to a row: of more, a loop over them takes less time on CPUs


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
    weights = torch._safe_softmax(masked_scores(query, key, attn_mask, is_causal, scale, enable_gqa), -1)
    if dropout_p:
        weights = torch.nn.functional.dropout(weights, dropout_p)
    return attended(weights, query, value, enable_gqa)


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
    scores = masked_scores(query, key, attn_mask, is_causal, scale, enable_gqa=False)
    weights = torch._safe_softmax(scores, -1)
    return torch.matmul(weights.to(value.dtype), value), torch.logsumexp(scores.to(torch.float32), -1)


def attended(weights: torch.Tensor, query: torch.Tensor, value: torch.Tensor, enable_gqa: bool) -> torch.Tensor:
    """What scaled_dot_product_attention makes of probabilities and values."""
    return torch.matmul(weights.to(value.dtype), _repeated(value, query, enable_gqa))


def masked_scores(
    query: torch.Tensor,
    key: torch.Tensor,
    attn_mask: torch.Tensor | None,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> torch.Tensor:
    factor = 1 / math.sqrt(query.size(-1) or 1) if scale is None else scale  # of no elements the scores are 0
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


def power_of_tensors(x: torch.Tensor, y: torch.Tensor) -> Any:
    """aten.pow of tensors of two types, such as ALiBi's slopes of whole exponents, in the type of its result: the
    importer takes float64, for which GPUs have no function."""
    kind = torch.result_type(x, y)
    if x.dtype == y.dtype or kind not in (torch.float32, *HALVES):
        return NotImplemented
    return torch.pow(x.to(kind), y.to(kind))


def index_copy(x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """aten.index_copy, which a key-value cache is written with, as a write along the first dimension, which becomes a
    loop over its windows (`sequential.py`). Of open sizes it is a choice per element.

    Of an index that is given more than once the last one counts, as where elements are written one after the other.
    """
    size = x.size(dim)
    if all(isinstance(s, int) for s in (*x.shape, *index.shape)):
        rows = torch.ops.aten.index_put(x.movedim(dim, 0), [index.reshape(-1)], source.movedim(dim, 0))
        return rows.movedim(0, dim)
    hits = torch.arange(size, device=x.device).unsqueeze(1) == index.reshape(1, -1)
    last = torch.where(hits, torch.arange(index.numel(), device=x.device), -1).amax(1)
    from_source = source.index_select(dim, last.clamp(min=0))
    shape = [size if d == dim % x.dim() else 1 for d in range(x.dim())]
    return torch.where((last >= 0).view(shape), from_source, x)


def index_fill(x: torch.Tensor, dim: int, index: torch.Tensor, value: Any) -> Any:
    """aten.index_fill, also the derivative of index_copy, as such a copy. torch's own rule, before version 2.13, writes
    the result into memory that is laid out as `x`, which no rule may."""
    if not x.dim():
        return NotImplemented
    value = value if isinstance(value, torch.Tensor) else torch.scalar_tensor(value, dtype=x.dtype, device=x.device)
    shape = [index.numel() if d == dim % x.dim() else size for d, size in enumerate(x.shape)]
    return torch.index_copy(x, dim, index, value.expand(shape))


def index_put(
    x: torch.Tensor, indices: list[torch.Tensor | None], values: torch.Tensor, accumulate: bool = False
) -> Any:
    """aten.index_put along one dimension, or where one mask says, or along dimensions that others lie between, such as
    ``x[batch, :, position] = values``, moved to the front; others are left as they are."""
    given = [d for d, index in enumerate(indices) if index is not None]
    found = [index for index in indices if index is not None]
    if len(given) > 1 and given[-1] - given[0] >= len(given) and all(index.dtype != torch.bool for index in found):
        first = list(range(len(given)))  # where values have them already
        return torch.ops.aten.index_put(x.movedim(given, first), found, values, accumulate).movedim(first, given)
    index = found[0] if len(given) == 1 else None
    if index is not None and index.dtype == torch.bool:
        return _put_where(x, given[0], index, values, accumulate)
    is_open = not all(isinstance(s, int) for s in x.shape)
    if index is None or accumulate or (given[0] == 0 and not is_open) or (index.dim() != 1 and is_open):
        return NotImplemented
    dim = given[0]
    values = values.expand(*x.shape[:dim], *index.shape, *x.shape[dim + 1 :])
    values = values.reshape(*x.shape[:dim], index.numel(), *x.shape[dim + 1 :])
    index = torch.where(index < 0, index + x.size(dim), index) if is_open else index  # counted from the end
    return index_copy(x, dim, index, values)


def _put_where(x: torch.Tensor, dim: int, mask: torch.Tensor, values: torch.Tensor, accumulate: bool) -> torch.Tensor:
    """A choice by `mask`, which stands for the dimensions of x from `dim` on. Values have one in place of these, for
    each true element in turn, or broadcast along it."""
    after = x.dim() - dim - mask.dim()
    place = values.dim() - after - 1
    if place >= 0:
        if values.size(place) != 1:
            number = mask.reshape(-1).cumsum(0) - 1
            values = values.index_select(place, number.clamp(min=0, max=values.size(place) - 1))
        kept = mask.shape if values.size(place) != 1 else [1] * mask.dim()
        values = values.reshape(*values.shape[:place], *kept, *values.shape[place + 1 :])
    return torch.where(mask.reshape(*mask.shape, *[1] * after), x + values if accumulate else values, x)


def scatter(x: torch.Tensor, dim: int, index: torch.Tensor, source: Any) -> Any:
    """aten.scatter by an index that is expanded, as one of each sequence's tokens is to heads and columns, as a write
    at the indices that differ; of few elements for each row, such as a mask of experts that are chosen, as a choice per
    element for each of them in turn. Others are loops over all that is written."""
    if not x.dim() or index.dim() != x.dim():
        return NotImplemented
    dim, shape = dim % x.dim(), list(index.shape)
    others = (s == index.size(d) for d, s in enumerate(x.shape) if d != dim)
    if not isinstance(shape[dim], int) or not all(map(statically_known_true, others)):
        return NotImplemented
    varying = [d for d, size in enumerate(shape) if d == dim or (size != 1 and index.stride(d) != 0)]
    is_expanded = any(size != 1 for d, size in enumerate(shape) if d not in varying)
    is_static = all(isinstance(size, int) for size in (*shape, *x.shape))
    if isinstance(source, torch.Tensor) and is_expanded and is_static:
        for d in set(range(x.dim())) - set(varying):
            index = index.narrow(d, 0, 1)
        indices: list[torch.Tensor | None] = [None] * x.dim()
        for d in varying:
            indices[d] = torch.arange(shape[d], device=x.device).view([-1 if e == d else 1 for e in varying])
        indices[dim] = index.reshape([shape[d] for d in varying])
        first = list(range(len(varying)))
        rows = source[tuple(slice(size) for size in shape)].movedim(varying, first)
        written = torch.ops.aten.index_put(x.movedim(varying, first), [indices[d] for d in varying], rows)
        return written.movedim(first, varying)
    if shape[dim] > FEW:
        return NotImplemented
    if isinstance(source, torch.Tensor):
        for d, size in enumerate(shape):
            source = source.narrow(d, 0, size)
    else:
        source = torch.full((), source, dtype=x.dtype, device=x.device).expand(shape)
    place = torch.arange(x.size(dim), device=x.device).view([-1 if d == dim else 1 for d in range(x.dim())])
    for i in range(shape[dim]):
        x = torch.where(place == index.narrow(dim, i, 1), source.narrow(dim, i, 1), x)
    return x


def put(x: torch.Tensor, index: torch.Tensor, source: torch.Tensor, accumulate: bool = False) -> torch.Tensor:
    """aten.put, which counts through all elements, as a write along one dimension."""
    flat = torch.ops.aten.index_put(x.reshape(-1), [index.reshape(-1)], source.reshape(-1), accumulate)
    return flat.view(x.shape)


def remainder_of_sign(x: torch.Tensor, y: Any) -> Any:
    """aten.fmod, whose sign is that of x. The importer divides, and takes the whole part of what is rounded."""
    kind = torch.result_type(x, y)
    if not kind.is_floating_point:
        return x - torch.div(x, y, rounding_mode="trunc") * y
    x, y = x.to(kind), y.to(kind) if isinstance(y, torch.Tensor) else torch.full((), y, dtype=kind)
    return torch.remainder(x, torch.where(x < 0, -y.abs(), y.abs()))  # whose sign is that of what it divides by


def floor_divide(x: torch.Tensor, y: Any) -> Any:
    """aten.floor_divide as torch and Python have it, which is ⌊x/y⌋ of the exact quotient, and NaN of ∞; the importer
    takes that of what is rounded."""
    kind = torch.result_type(x, y)
    if not kind.is_floating_point:
        return NotImplemented
    x = not_narrow(x.to(kind))
    if not isinstance(y, torch.Tensor):  # of comparisons of constants of float64 the importer crashes
        rest = torch.fmod(x, y)
        is_below = rest > 0 if y < 0 else rest < 0
    else:
        y = not_narrow(y.to(kind))
        rest = torch.fmod(x, y)
        is_below = torch.where(y < 0, rest > 0, rest < 0)
    plain = x / y
    whole = torch.round((x - rest) / y - is_below.to(x.dtype))
    whole = torch.where(whole == 0, plain * 0, whole)
    if isinstance(y, torch.Tensor):
        whole = torch.where(y == 0, plain, whole)
    return (plain if not isinstance(y, torch.Tensor) and y == 0 else whole).to(kind)


def divide(x: torch.Tensor, y: Any, *, rounding_mode: str | None) -> Any:
    return floor_divide(x, y) if rounding_mode == "floor" else NotImplemented


def equal(x: torch.Tensor, y: torch.Tensor) -> Any:
    """aten.eq of floats, which the importer takes for true of a tensor and itself, where it may be NaN."""
    return torch.ne(x, y).logical_not() if torch.result_type(x, y).is_floating_point else NotImplemented


def isclose(x: torch.Tensor, y: torch.Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Any:
    """aten.isclose, of whose operands the importer has NaN and ∞ close to anything."""
    if not x.dtype.is_floating_point:
        return NotImplemented
    difference = (x - y).abs()
    found = (x == y) | ((difference < math.inf) & (difference <= atol + (rtol * y).abs()))
    return found | (x.isnan() & y.isnan()) if equal_nan else found


def signbit(x: torch.Tensor) -> torch.Tensor:
    """aten.signbit without a look at bits: −0 is told by its reciprocal. The sign of a NaN is taken to be plus."""
    if not x.dtype.is_floating_point:
        return x < 0
    return (x < 0) | ((x == 0) & (x.reciprocal() < 0))


def copysign(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    kind = torch.result_type(x, y)
    size = x.abs().to(kind if kind.is_floating_point else torch.get_default_dtype())
    return torch.where(signbit(y), -size, size)


def addmv(x: torch.Tensor, matrix: torch.Tensor, vector: torch.Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    if not x.dtype.is_floating_point:
        return NotImplemented
    product = torch.matmul(matrix, vector) * alpha
    return product if beta == 0 else product + x * beta


def power(x: torch.Tensor, exponent: float) -> Any:
    """aten.pow with a small whole exponent as products, and as a root where it is one to torch, of −0 and −∞, too;
    other exponents are left as they are."""
    if exponent in ROOTS and x.dtype in (torch.float32, torch.float64, torch.bfloat16):
        return ROOTS[exponent](x)
    whole = isinstance(exponent, int) and x.dtype != torch.bool
    if not (x.dtype.is_floating_point or whole) or exponent not in (2, 3, 4):
        return NotImplemented
    square = x * x
    return {2: lambda: square, 3: lambda: square * x, 4: lambda: square * square}[int(exponent)]()


def gelu(x: torch.Tensor, *, approximate: str = "none") -> Any:
    """aten.gelu by tanh, of which the importer has √(2/π) in four digits."""
    if approximate != "tanh":
        return NotImplemented
    wide = not_narrow(x)
    return (0.5 * wide * (1 + torch.tanh(math.sqrt(2 / math.pi) * (wide + 0.044715 * wide * wide * wide)))).to(x.dtype)


def elu(x: torch.Tensor, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> torch.Tensor:
    """aten.elu by expm1: exp less 1 has no digits left where x is small."""
    wide = not_narrow(x)
    return torch.where(wide > 0, wide * scale, torch.expm1(wide * input_scale) * (alpha * scale)).to(x.dtype)


def var_mean(
    x: torch.Tensor, dim: list[int] | None = None, *, correction: Any = None, keepdim: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """aten.var_mean, of which norms of layers are made, in float32: the importer takes float64, in which that is twice
    as slow. Of fewer elements than `correction`, it is divided by 0."""
    wide, dims = not_narrow(x), [d % x.dim() for d in dim or range(x.dim())]
    correction = 1 if correction is None else correction
    rest = math.prod(x.size(d) for d in dims) - (int(correction) if correction == int(correction) else correction)
    mean = wide.mean(dims, keepdim=True)
    squares = torch.square(wide - mean).sum(dims, keepdim=keepdim)
    found = squares / rest if isinstance(rest, torch.SymInt) or rest > 0 else squares * math.inf
    return found.to(x.dtype), mean.reshape(squares.shape).to(x.dtype)


def var(x: torch.Tensor, dim: list[int] | None = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    return var_mean(x, dim, correction=correction, keepdim=keepdim)[0] if x.dtype.is_floating_point else NotImplemented


def native_group_norm(
    x: torch.Tensor, weight: Any, bias: Any, batch: int, channels: int, inner: int, groups: int, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """aten.native_group_norm by sums over groups as rows, and a number of each channel for its elements: torch's own
    form for CPUs sums over two dimensions, and gathers factors that it makes of all channels before."""
    split = (batch, groups, channels // groups, inner)
    rows = not_narrow(x.reshape(batch, groups, split[2] * inner))
    var, mean = torch.ops.aten.var_mean.correction(rows, [2], correction=0, keepdim=True)
    rstd = torch.rsqrt(var + eps)
    result = (not_narrow(x.reshape(split)) - mean.unsqueeze(3)) * rstd.unsqueeze(3)
    if weight is not None:
        result = result * weight.reshape(1, *split[1:3], 1)
    if bias is not None:
        result = result + bias.reshape(1, *split[1:3], 1)
    result = result.to(x.dtype).reshape(x.shape)
    return result, mean.squeeze(2).to(x.dtype), rstd.squeeze(2).to(x.dtype)


def native_layer_norm(
    x: torch.Tensor, shape: list[int], weight: Any, bias: Any, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """aten.native_layer_norm with its sums as wide as they are computed, which torch rounds to halves on CPUs."""
    wide = not_narrow(x)
    var, mean = torch.ops.aten.var_mean.correction(wide, list(range(-len(shape), 0)), correction=0, keepdim=True)
    rstd = torch.rsqrt(var + eps)
    result = (wide - mean) * rstd
    if weight is not None:
        result = result * weight
    if bias is not None:
        result = result + bias
    return result.to(x.dtype), mean, rstd


def fused_rms_norm(
    x: torch.Tensor, shape: list[int], weight: Any = None, eps: float | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """aten._fused_rms_norm, as rms_norm is differentiated on GPUs: squares of halves are beyond their type from 256
    on."""
    wide = not_narrow(x)
    squares = (wide * wide).mean(list(range(-len(shape), 0)), keepdim=True)
    rstd = torch.rsqrt(squares + (torch.finfo(wide.dtype).eps if eps is None else eps))
    result = wide * rstd
    return (result if weight is None else result * weight).to(x.dtype), rstd


def rms_norm(x: torch.Tensor, shape: list[int], weight: Any = None, eps: float | None = None) -> torch.Tensor:
    return fused_rms_norm(x, shape, weight, eps)[0]


def in_float32(op: Any) -> Callable:
    """Sums and products of halves in float32, and rounded once, as torch does: the importer adds up halves, which are
    too few digits for many, and a mean's sum may be infinite where the mean is not."""

    def computed(x: torch.Tensor, *arguments: Any, **keywords: Any) -> Any:
        kind = keywords.pop("dtype", None) or x.dtype
        if x.dtype not in HALVES or kind not in HALVES:
            return NotImplemented
        return op(x.to(torch.float32), *arguments, **keywords).to(kind)

    return computed


def softmax_gradient(gradient: torch.Tensor, y: torch.Tensor, dim: int, dtype: torch.dtype) -> torch.Tensor:
    """aten._softmax_backward_data: y is the softmax. Of halves in float32, as torch computes it."""
    wide, own = not_narrow(gradient), not_narrow(y)
    return (own * (wide - (wide * own).sum(dim, keepdim=True))).to(dtype)


def hypot(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """aten.hypot, without squares that are too large or too small."""
    wide, other = not_narrow(x).abs(), not_narrow(y).abs()
    large, small = torch.maximum(wide, other), torch.minimum(wide, other)
    ratio = small / torch.where(large == 0, 1, large)
    ratio = torch.where(small.isinf(), 1, ratio)
    found = large * torch.sqrt(1 + ratio * ratio)
    return torch.where(wide.isinf() | other.isinf(), math.inf, found).to(torch.promote_types(x.dtype, y.dtype))


aten = torch.ops.aten
SUMS = (
    *(aten.sum.default, aten.sum.dim_IntList, aten.mean.default, aten.mean.dim, aten.prod.default, aten.prod.dim_int),
    *(aten.cumsum.default, aten.cumprod.default, aten.linalg_vector_norm.default),
)


@functools.cache
def decompositions() -> dict[Any, Callable]:
    """What becomes of each op that has no lowering of its own, or a worse one."""
    from torch_mlir.extras.fx_decomp_util import get_decomposition_table

    table = {op: f for op, f in get_decomposition_table().items() if op._overloadpacket not in KEPT_WHOLE}
    table[torch.ops.aten.scaled_dot_product_attention.default] = scaled_dot_product_attention
    table[torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default] = flash_attention_for_cpu
    table[torch.ops.attn_opt.is_kept.default] = dropout_masks.written_out
    table[torch.ops.aten.pow.Tensor_Scalar] = power
    table[torch.ops.aten.pow.Tensor_Tensor] = power_of_tensors
    table[torch.ops.aten.isfinite.default] = lambda x: x.abs() < float("inf")
    table[torch.ops.aten.index.Tensor] = index
    table[torch.ops.aten.index_copy.default] = index_copy
    table[torch.ops.aten.index_fill.int_Scalar] = table[torch.ops.aten.index_fill.int_Tensor] = index_fill
    table[torch.ops.aten.index_put.default] = index_put
    table[torch.ops.aten.einsum.default] = einsum
    table[torch.ops.aten.expand.default] = torch_shapes.expand
    table[torch.ops.aten.as_strided.default] = torch_shapes.as_strided
    table[torch.ops.aten.as_strided_scatter.default] = torch_shapes.as_strided_scatter
    table[torch.ops.aten.resize.default] = torch_shapes.resize
    table[torch.ops.aten.constant_pad_nd.default] = torch_shapes.constant_pad_nd
    table[torch.ops.aten.roll.default] = torch_shapes.roll
    table[torch.ops.aten.select_scatter.default] = torch_shapes.select_scatter
    table[torch.ops.aten.split_with_sizes.default] = torch_shapes.split_with_sizes
    table[torch.ops.aten.empty_strided.default] = lambda size, stride, **kind: torch.empty(size, **kind)
    table[torch.ops.prims.copy_strided.default] = lambda x, stride: x.clone()
    table[torch.ops.aten.put.default] = put
    table[torch.ops.aten.scatter.src] = table[torch.ops.aten.scatter.value] = scatter
    table[torch.ops.aten.fmod.Scalar] = table[torch.ops.aten.fmod.Tensor] = remainder_of_sign
    table[torch.ops.aten.floor_divide.default] = table[torch.ops.aten.floor_divide.Scalar] = floor_divide
    table[torch.ops.aten.div.Tensor_mode] = table[torch.ops.aten.div.Scalar_mode] = divide
    table[torch.ops.aten.eq.Tensor] = equal
    table[torch.ops.aten.isclose.default] = isclose
    table[torch.ops.aten.signbit.default] = signbit
    table[torch.ops.aten.copysign.Tensor] = copysign
    table[torch.ops.aten.fmax.default] = lambda x, y: torch.where(y.isnan() | (x >= y), x, y)
    table[torch.ops.aten.fmin.default] = lambda x, y: torch.where(y.isnan() | (x <= y), x, y)
    table[torch.ops.aten.all.dims] = lambda x, dim=None, keepdim=False: ~torch.any(~x.bool(), dim, keepdim)
    table[torch.ops.aten.addmv.default] = addmv
    table[torch.ops.aten.gelu.default] = gelu
    table[torch.ops.aten.elu.default] = elu
    table[torch.ops.aten.native_group_norm.default] = native_group_norm
    table[torch.ops.aten.rms_norm.default] = rms_norm
    table[torch.ops.aten._fused_rms_norm.default] = fused_rms_norm
    table.update(get_decompositions([torch.ops.aten._fused_rms_norm_backward]))
    table.update({op: in_float32(op) for op in SUMS})
    table[torch.ops.aten.hypot.default] = hypot
    table[torch.ops.aten.var_mean.correction] = var_mean
    table[torch.ops.aten.var.correction] = var
    table[torch.ops.aten._softmax_backward_data.default] = softmax_gradient
    table[torch.ops.aten._neg_view.default] = torch.neg
    table.update(torch_searches.DECOMPOSITIONS)
    table.update(torch_experts.DECOMPOSITIONS)
    table.update(torch_windows.DECOMPOSITIONS)
    return table

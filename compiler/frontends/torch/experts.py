"""What mixtures of experts are made of: products of groups of rows with a matrix each, and counts per expert.

Rows are sorted by their group, `offs` has where each group ends. How many a group has is known at run time only, and
sizes that depend on data have no lowering: so either each row gets its matrix, or each matrix all rows, those of other
groups as zeros; whichever makes less. Rows beyond the last group give zeros.
"""

from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten


def grouped_mm(
    x: torch.Tensor, matrices: torch.Tensor, offs: Any = None, bias: Any = None, out_dtype: Any = None
) -> Any:
    """aten._grouped_mm of rows [t, k] and matrices [e, k, n]; other forms are left as they are."""
    if x.dim() != 2 or matrices.dim() != 3 or offs is None or bias is not None:
        return NotImplemented
    rows, groups = x.size(0), matrices.size(0)
    ends = offs.to(torch.int64)
    group = (ends.unsqueeze(0) <= torch.arange(rows, device=x.device).unsqueeze(1)).sum(1)
    if isinstance(rows, int) and rows <= groups:
        chosen = matrices.index_select(0, group.clamp(max=groups - 1))
        result = torch.matmul(x.unsqueeze(1), chosen).squeeze(1)
        result = torch.where((group < groups).unsqueeze(1), result, 0.0)
    else:
        is_in = group.unsqueeze(0) == torch.arange(groups, device=x.device).unsqueeze(1)
        result = torch.matmul(torch.where(is_in.unsqueeze(2), x.unsqueeze(0), 0.0), matrices).sum(0)
    return result.to(out_dtype or x.dtype)


def histc(x: torch.Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Any:
    """aten.histc between numbers that are given; the last bin has its end too."""
    if min >= max:
        return NotImplemented
    wide = x.reshape(-1).to(torch.float32) if x.dtype != torch.float64 else x.reshape(-1)
    at = ((wide - min) * bins / (max - min)).floor().clamp(max=bins - 1)
    at = torch.where((wide >= min) & (wide <= max), at, -1.0)
    counts = at.unsqueeze(1) == torch.arange(bins, device=x.device).to(at.dtype)
    return counts.sum(0).to(x.dtype)


def products() -> dict[Any, Callable]:
    """Products of groups of rows: torch's, and what libraries register when they are imported: transformers has one
    where torch has no kernel of its own."""
    packet = getattr(torch.ops.transformers, "grouped_mm_fallback", None)
    return {aten._grouped_mm.default: grouped_mm} | ({} if packet is None else {packet.default: grouped_mm})


DECOMPOSITIONS: dict[Any, Callable] = {aten.histc.default: histc}

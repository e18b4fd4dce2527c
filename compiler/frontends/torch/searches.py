"""Ops of torch that search and scan: searchsorted, bucketize, cummax, cummin, logcumsumexp, embedding_bag, topk, ….

searchsorted(s, x)   the number of elements of s that are less than x
cummax, …            log2(n) steps, each of which combines elements with those 1, 2, 4, … before them
topk, kthvalue, …    parts of a sort, which `sorting.py` lowers
embedding_bag        a product of the rows that are looked up with a matrix that says which bag each is in
"""

import math
from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten


def searchsorted(
    sorted_sequence: torch.Tensor,
    values: torch.Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: torch.Tensor | None = None,
) -> torch.Tensor:
    """aten.searchsorted as a count; as in torch, NaN comes after all numbers."""
    if sorter is not None:
        sorted_sequence = sorted_sequence.gather(-1, sorter)
    if sorted_sequence.dim() > 1:
        sorted_sequence = sorted_sequence.unsqueeze(-2)
    candidates = values.unsqueeze(-1)
    before = sorted_sequence > candidates if right or side == "right" else sorted_sequence >= candidates
    return before.logical_not().sum(-1, dtype=torch.int32 if out_int32 else torch.int64)


def bucketize(x: torch.Tensor, boundaries: torch.Tensor, *, out_int32: bool = False, right: bool = False) -> Any:
    return searchsorted(boundaries, x, out_int32=out_int32, right=right)


def running_extremum(better: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Callable:
    """aten.cummax or cummin: of equal elements the index of the last counts, and a NaN stays. `better(new, old)`."""

    def scan(x: torch.Tensor, dim: int) -> Any:
        if not x.dim() or not isinstance(x.size(dim), int):
            return NotImplemented
        n = x.size(dim)
        shape = [n if d == dim % x.dim() else 1 for d in range(x.dim())]
        values, indices = x, torch.arange(n, device=x.device).view(shape).expand(x.shape)
        step = 1
        while step < n:
            old, new = values.narrow(dim, 0, n - step), values.narrow(dim, step, n - step)
            taken = better(new, old)
            if x.dtype.is_floating_point:
                taken = new.isnan() | (taken & old.isnan().logical_not())
            at = torch.where(taken, indices.narrow(dim, step, n - step), indices.narrow(dim, 0, n - step))
            indices = torch.cat((indices.narrow(dim, 0, step), at), dim)
            values = torch.cat((values.narrow(dim, 0, step), torch.where(taken, new, old)), dim)
            step *= 2
        return values, indices

    return scan


def logcumsumexp(x: torch.Tensor, dim: int) -> Any:
    """aten.logcumsumexp without exponentials of elements as they are, which are infinite above 88."""
    if not x.dim() or not isinstance(x.size(dim), int):
        return NotImplemented
    step = 1
    while step < x.size(dim):
        rest = x.size(dim) - step
        sums = torch.logaddexp(x.narrow(dim, 0, rest), x.narrow(dim, step, rest))
        x = torch.cat((x.narrow(dim, 0, step), sums), dim)
        step *= 2
    return x


def sort(x: torch.Tensor, dim: int = -1, descending: bool = False) -> Any:
    """aten.sort of what the importer has no comparison for."""
    if not x.dim():
        return x, torch.zeros_like(x, dtype=torch.int64)
    if x.dtype != torch.bool:
        return NotImplemented
    values, indices = aten.sort.default(x.to(torch.int32), dim, descending)
    return values.to(torch.bool), indices


def stable_sort(x: torch.Tensor, *, stable: bool | None, dim: int = -1, descending: bool = False) -> Any:
    return aten.sort.default(x, dim, descending)  # which ours always is


def topk(x: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    if not x.dim():
        return sort(x)
    values, indices = aten.sort.default(x, dim, largest)
    return values.narrow(dim, 0, k), indices.narrow(dim, 0, k)


def kthvalue(x: torch.Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    if not x.dim():
        return sort(x)
    values, indices = aten.sort.default(x, dim)
    values, indices = values.narrow(dim, k - 1, 1), indices.narrow(dim, k - 1, 1)
    return (values, indices) if keepdim else (values.squeeze(dim), indices.squeeze(dim))


def median_along(x: torch.Tensor, dim: int, keepdim: bool = False) -> Any:
    """aten.median.dim: the lower one of two, and the first NaN where there is any."""
    if not x.dim():
        return sort(x)
    values, indices = kthvalue(x, (x.size(dim) + 1) // 2, dim, keepdim)
    if x.dtype.is_floating_point:
        is_nan = x.isnan()
        values = torch.where(is_nan.any(dim, keepdim), math.nan, values)
        indices = torch.where(is_nan.any(dim, keepdim), is_nan.to(torch.int32).argmax(dim, keepdim), indices)
    return values, indices


def median(x: torch.Tensor) -> torch.Tensor:
    return median_along(x.reshape(-1), 0)[0]


SUM, MEAN, MAX = range(3)  # modes of embedding_bag


def embedding_bag(
    weight: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = SUM,
    sparse: bool = False,
    per_sample_weights: torch.Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """aten._embedding_bag; its last result, where a maximum was found, is for its gradient, and not computed."""
    starts = offsets[:-1] if include_last_offset else offsets
    bag = (starts.unsqueeze(0) <= torch.arange(indices.size(0), device=indices.device).unsqueeze(1)).sum(1) - 1
    counted = (indices != padding_idx) if padding_idx >= 0 else torch.ones_like(indices, dtype=torch.bool)
    is_in = (bag.unsqueeze(0) == torch.arange(starts.size(0), device=indices.device).unsqueeze(1)) & counted
    sizes = is_in.sum(1)
    rows = aten.embedding(weight, indices)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(1)
    if mode == MAX:
        found = torch.where(is_in.unsqueeze(2), rows.unsqueeze(0), -math.inf).amax(1)
        result = torch.where((sizes > 0).unsqueeze(1), found, 0.0)
    else:
        result = torch.where(is_in.unsqueeze(2), rows.unsqueeze(0), 0.0).sum(1)
        if mode == MEAN:
            result = result / sizes.clamp(min=1).unsqueeze(1).to(result.dtype)
    return result.to(weight.dtype), bag, sizes, torch.zeros_like(sizes)


DECOMPOSITIONS = {
    aten.searchsorted.Tensor: searchsorted,
    aten.bucketize.Tensor: bucketize,
    aten.cummax.default: running_extremum(torch.ge),
    aten.cummin.default: running_extremum(torch.le),
    aten.logcumsumexp.default: logcumsumexp,
    aten.sort.default: sort,
    aten.sort.stable: stable_sort,
    aten.topk.default: topk,
    aten.kthvalue.default: kthvalue,
    aten.median.dim: median_along,
    aten.median.default: median,
    aten._embedding_bag.default: embedding_bag,
    aten._embedding_bag_forward_only.default: embedding_bag,
}

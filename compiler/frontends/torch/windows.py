"""What derivatives of convolutions, pools and upsampling become before they are imported.

Pools and upsampling are linear along each dimension by itself, y = x·A for a row: the gradient of x is that of y times
Aᵀ, a matrix of sizes alone. The gradient of a convolution's weights is, for each place in the window, the product of
what came and of the elements that are read there.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from .narrow import not_narrow

aten = torch.ops.aten
CUBIC = -0.75  # as torch has it


# Convolutions, whose windows read every `stride`-th place.


def convolution(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: Any,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
) -> Any:
    """aten.convolution: transposed ones of channels by themselves, which the importer does not know, as plain ones of
    what has zeros between its elements."""
    if not transposed or groups == 1 or x.shape[1] != groups:
        return NotImplemented
    window = weight.shape[2:]
    for d, step in enumerate(stride):
        x = _with_zeros_between(x, 2 + d, step)
    first = [t * (k - 1) - p for t, k, p in zip(dilation, window, padding, strict=True)]
    around = [(low, low + more) for low, more in zip(first, output_padding, strict=True)]
    x = F.pad(x, [n for pair in reversed(around) for n in pair])
    own = weight.flip(list(range(2, weight.dim()))).reshape(-1, 1, *window)
    plain = [1] * len(window), [0] * len(window), dilation, False, [0] * len(window), groups
    return aten.convolution.default(x, own, bias, *plain)


def convolution_backward(
    gradient: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias_sizes: Any,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
    wanted: list[bool],
) -> Any:
    """aten.convolution_backward of groups of channels, and of transposed convolutions; others the importer knows."""
    if groups == 1 and not transposed:
        return NotImplemented
    of_x = of_weight = of_bias = None
    more = [0] * len(stride)
    if wanted[0]:
        if not transposed:
            places = zip(x.shape[2:], gradient.shape[2:], stride, padding, dilation, weight.shape[2:], strict=True)
            more = [n - ((m - 1) * s - 2 * p + t * (k - 1) + 1) for n, m, s, p, t, k in places]
        rest = stride, padding, dilation, not transposed, more, groups
        of_x = aten.convolution.default(gradient, weight, None, *rest)
    if wanted[1]:
        rows, read = (x, gradient) if transposed else (gradient, x)
        of_weight = _of_weights(rows, read, weight, stride, padding, dilation, groups)
    if wanted[2]:
        of_bias = gradient.sum([0, *range(2, gradient.dim())])
    return of_x, of_weight, of_bias


def _of_weights(
    rows: torch.Tensor,
    read: torch.Tensor,
    weight: torch.Tensor,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
) -> torch.Tensor:
    """Σ over entries and places of `rows`, of one channel, times what windows `read` there, of another one of its
    group."""
    batch, window, places = rows.shape[0], weight.shape[2:], rows.shape[2:]
    read = F.pad(not_narrow(read), [n for p in reversed(padding) for n in (p, p)])
    left = not_narrow(rows).reshape(batch, groups, rows.shape[1] // groups, -1)
    parts = []
    for at in itertools.product(*map(range, window)):
        seen = read
        for d, (k, step, t, count) in enumerate(zip(at, stride, dilation, places, strict=True)):
            seen = aten.slice.Tensor(seen, 2 + d, k * t, k * t + (count - 1) * step + 1, step)
        right = seen.reshape(batch, groups, read.shape[1] // groups, -1)
        if left.shape[2] == right.shape[2] == 1:  # no product of matrices
            parts.append((left * right).sum([0, 3]).unsqueeze(2))
        else:
            parts.append(left.permute(1, 2, 0, 3).flatten(2) @ right.permute(1, 0, 3, 2).flatten(1, 2))
    return torch.stack(parts, -1).reshape(weight.shape).to(weight.dtype)


def _with_zeros_between(x: torch.Tensor, dim: int, step: int) -> torch.Tensor:
    if step == 1:
        return x
    apart = F.pad(x.movedim(dim, -1).unsqueeze(-1), [0, step - 1]).flatten(-2)
    return aten.slice.Tensor(apart, -1, 0, (x.shape[dim] - 1) * step + 1).movedim(-1, dim)


# Pools and upsampling: matrices of (places of x, places of y).


def adaptive(inner: Any, outer: Any, like: torch.Tensor) -> torch.Tensor:
    """Means of windows that share all places, as nearly as they can."""
    x, y = _places(inner, outer, like)
    first, end = (y * inner) // outer, ((y + 1) * inner + outer - 1) // outer
    return ((x >= first) & (x < end)) / (end - first)


def pool(
    inner: Any, outer: Any, like: torch.Tensor, window: int, step: int, padding: int, whole: bool, sums: bool
) -> Any:
    """Means of windows, of what is in x or, where padding counts, in that and the padding (`whole`); or sums."""
    x, y = _places(inner, outer, like)
    first = y * step - padding
    end = (first + window).clamp(max=inner + padding)
    inside = ((x >= first) & (x < end)).to(torch.float32)
    if sums:
        return inside
    return inside / (end - first if whole else end.clamp(max=inner) - first.clamp(min=0))


def linear(inner: Any, outer: Any, like: torch.Tensor, corners: bool, scale: float | None) -> torch.Tensor:
    x, at = _places(inner, outer, like)[0], _sources(inner, outer, like, corners, scale)
    at = at.clamp(min=0)
    low = at.floor()
    part = at - low
    return torch.where(x == low, 1 - part, 0) + torch.where(x == (low + 1).clamp(max=inner - 1), part, 0)


def cubic(inner: Any, outer: Any, like: torch.Tensor, corners: bool, scale: float | None) -> torch.Tensor:
    """Keys' polynomials of four places."""
    x, at = _places(inner, outer, like)[0], _sources(inner, outer, like, corners, scale)
    low = at.floor()

    def near(t: torch.Tensor) -> torch.Tensor:
        return ((CUBIC + 2) * t - (CUBIC + 3)) * t * t + 1

    def far(t: torch.Tensor) -> torch.Tensor:
        return ((CUBIC * t - 5 * CUBIC) * t + 8 * CUBIC) * t - 4 * CUBIC

    part = at - low
    factors = (far(part + 1), near(part), near(1 - part), far(2 - part))
    rows = [torch.where(x == (low + n).clamp(0, inner - 1), f, 0) for n, f in zip(range(-1, 3), factors, strict=True)]
    return rows[0] + rows[1] + rows[2] + rows[3]


def _places(inner: Any, outer: Any, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = (torch.arange(n, device=like.device) for n in (inner, outer))
    return x.unsqueeze(1), y.unsqueeze(0)


def _sources(inner: Any, outer: Any, like: torch.Tensor, corners: bool, scale: float | None) -> torch.Tensor:
    """Where in x what upsampling gives comes from."""
    y = torch.arange(outer, device=like.device).to(torch.float32).unsqueeze(0)
    if corners:
        return y * ((inner - 1) / (outer - 1) if outer > 1 else 0.0)
    return (y + 0.5) * (inner / outer if scale is None else 1 / scale) - 0.5


def _times(gradient: torch.Tensor, matrices: Sequence[torch.Tensor]) -> torch.Tensor:
    """The gradient, along its last dimensions, times a matrix each."""
    found = not_narrow(gradient)
    for dim, matrix in enumerate(matrices, gradient.dim() - len(matrices)):
        found = (found.movedim(dim, -1) @ matrix.to(found.dtype).mT).movedim(-1, dim)
    return found.to(gradient.dtype)


def _adaptive_backward(gradient: torch.Tensor, x: torch.Tensor, dims: int) -> torch.Tensor:
    sizes = zip(x.shape[-dims:], gradient.shape[-dims:], strict=True)
    return _times(gradient, [adaptive(inner, outer, x) for inner, outer in sizes])


def _pool_backward(
    gradient: torch.Tensor,
    x: torch.Tensor,
    window: list[int],
    stride: list[int],
    padding: list[int],
    ceil_mode: bool,
    whole: bool,
    divisor: int | None,
    dims: int,
) -> torch.Tensor:
    window, padding = (list(n) * (dims if len(n) == 1 else 1) for n in (window, padding))
    stride = list(stride) * (dims if len(stride) == 1 else 1) or window
    along = zip(x.shape[-dims:], gradient.shape[-dims:], window, stride, padding, strict=True)
    found = _times(gradient, [pool(n, m, x, k, s, p, whole, divisor is not None) for n, m, k, s, p in along])
    return found if divisor is None else found / divisor


def _upsampled(matrix: Callable, dims: int) -> Callable:
    def backward(gradient: torch.Tensor, outer: list[int], inner: list[int], corners: bool, *scales: Any) -> Any:
        scales = (*scales, *[None] * (dims - len(scales)))
        along = zip(inner[-dims:], outer[-dims:], scales, strict=True)
        return _times(gradient, [matrix(n, m, gradient, corners, scale) for n, m, scale in along])

    return backward


def _of_dims(function: Callable, dims: int) -> Callable:
    return lambda *arguments: function(*arguments, dims)


DECOMPOSITIONS = {
    aten.convolution.default: convolution,
    aten.convolution_backward.default: convolution_backward,
    aten._adaptive_avg_pool2d_backward.default: _of_dims(_adaptive_backward, 2),
    aten._adaptive_avg_pool3d_backward.default: _of_dims(_adaptive_backward, 3),
    aten.avg_pool2d_backward.default: _of_dims(_pool_backward, 2),
    aten.avg_pool3d_backward.default: _of_dims(_pool_backward, 3),
    aten.upsample_linear1d_backward.default: _upsampled(linear, 1),
    aten.upsample_bilinear2d_backward.default: _upsampled(linear, 2),
    aten.upsample_trilinear3d_backward.default: _upsampled(linear, 3),
    aten.upsample_bicubic2d_backward.default: _upsampled(cubic, 2),
}

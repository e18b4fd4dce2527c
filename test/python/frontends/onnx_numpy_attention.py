"""What operators of attention compute, in numpy: that of onnx, and those of onnxruntime's own domain."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

Attributes = Mapping[str, Any]
Optional = np.ndarray | None


def softmax(x: np.ndarray, axis: int = -1) -> np.ndarray:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def in_heads(x: np.ndarray, heads: int) -> np.ndarray:
    return x.reshape(*x.shape[:2], heads, x.shape[2] // heads).swapaxes(1, 2)


def merged(x: np.ndarray) -> np.ndarray:
    return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], -1)


def with_past(past: Optional, new: np.ndarray) -> np.ndarray:
    return new if past is None else np.concatenate([past, new], 2)


def capped(s: np.ndarray, cap: float) -> np.ndarray:
    return np.tanh(s / cap) * cap if cap else s


def attention_of_opset_23(
    a: Attributes,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    mask: Optional = None,
    past_k: Optional = None,
    past_v: Optional = None,
) -> tuple[np.ndarray, ...]:
    """The result, keys and values with their past, and one of the stages of the scores. Rows without a key are 0."""
    is_flat = q.ndim == 3
    if is_flat:
        q, k, v = in_heads(q, a["q_num_heads"]), in_heads(k, a["kv_num_heads"]), in_heads(v, a["kv_num_heads"])
    past = 0 if past_k is None else past_k.shape[2]
    k, v = with_past(past_k, k), with_past(past_v, v)
    groups = q.shape[1] // k.shape[1]
    keys, values = np.repeat(k, groups, 1), np.repeat(v, groups, 1)
    products = q @ keys.swapaxes(-1, -2) * a.get("scale", 1 / math.sqrt(q.shape[-1]))
    s = after_cap = capped(products, a.get("softcap", 0.0))
    if mask is not None:
        s = np.where(mask, s, -np.inf) if mask.dtype == bool else s + mask
    if a.get("is_causal"):
        seen = np.arange(s.shape[-1]) <= np.arange(s.shape[-2])[:, None] + past
        s = np.where(seen, s, -np.inf)
    p = np.where((s == -np.inf).all(-1, keepdims=True), 0, softmax(s))
    o = p @ values
    return merged(o) if is_flat else o, k, v, (products, after_cap, s, p)[a.get("qk_matmul_output_mode", 0)]


def padding(mask: np.ndarray, batch: int, keys: int, low: float) -> np.ndarray:
    """Of lengths, of keys, or of scores."""
    if mask.ndim == 1 and mask.size == batch:
        mask = np.arange(keys) < mask[:, None]
    elif mask.ndim == 1:  # ends, then starts
        ends, starts = mask.reshape(2, batch, 1)
        mask = (np.arange(keys) < ends) & (np.arange(keys) >= starts)
    return np.where(mask[:, None] if mask.ndim == 3 else mask[:, None, None], 0, low)


def _attended(a: Attributes, q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: Optional, bias: Optional) -> np.ndarray:
    """Of heads, for onnxruntime's operators: with their masks, and with queries at the end of the keys."""
    s = q @ k.swapaxes(-1, -2) * (a.get("scale") or 1 / math.sqrt(q.shape[-1]))
    s = s if bias is None else s + bias
    if mask is not None:
        s = s + padding(mask, len(q), k.shape[2], a.get("mask_filter_value", -10000.0))
    if a.get("unidirectional"):
        m, n = s.shape[-2:]
        s = np.where(np.arange(n) <= np.arange(m)[:, None] + n - m, s, -np.inf)
    return merged(softmax(s) @ v)


def multi_head(
    a: Attributes,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    b: Optional = None,
    mask: Optional = None,
    bias: Optional = None,
    past_k: Optional = None,
    past_v: Optional = None,
) -> tuple[np.ndarray, ...]:
    heads, width = a["num_heads"], q.shape[2]
    bq, bk, bv = (0.0, 0.0, 0.0) if b is None else np.split(b, (width, 2 * width))
    q = in_heads(q + bq, heads)
    if k.ndim == 3:
        k, v = in_heads(k + bk, heads), in_heads(v + bv, heads)
    k, v = with_past(past_k, k), with_past(past_v, v)
    return _attended(a, q, k, v, mask, bias), k, v


def contributed_attention(
    a: Attributes,
    x: np.ndarray,
    w: np.ndarray,
    b: Optional = None,
    mask: Optional = None,
    past: Optional = None,
    bias: Optional = None,
) -> tuple[np.ndarray, ...]:
    widths = a.get("qkv_hidden_sizes") or [w.shape[1] // 3] * 3
    packed = x @ w + (0.0 if b is None else b)
    q, k, v = (in_heads(part, a["num_heads"]) for part in np.split(packed, np.cumsum(widths)[:-1], -1))
    if past is not None:
        k, v = with_past(past[0], k), with_past(past[1], v)
    present = np.stack([k, v]) if k.shape == v.shape else k
    return _attended(a, q, k, v, mask, bias), present


def turned(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, is_paired: bool) -> np.ndarray:
    """The first elements of heads [heads, length, size] by tables [length, half of so many elements]."""
    width = 2 * cos.shape[-1]
    part, rest = x[..., :width], x[..., width:]
    left, right = (part[..., ::2], part[..., 1::2]) if is_paired else np.split(part, 2, -1)
    parts = left * cos - right * sin, left * sin + right * cos
    part = np.stack(parts, -1).reshape(part.shape) if is_paired else np.concatenate(parts, -1)
    return np.concatenate([part, rest], -1)


def contributed_rotary(a: Attributes, x: np.ndarray, at: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    heads = x if x.ndim == 4 else in_heads(x, a.get("num_heads") or x.shape[2] // (2 * cos.shape[1]))
    at = at + np.arange(heads.shape[2])[None] if at.ndim == 1 else at
    at = np.broadcast_to(at, (len(x), heads.shape[2]))
    found = np.stack([turned(h, cos[p], sin[p], bool(a.get("interleaved"))) for h, p in zip(heads, at, strict=True)])
    return found if x.ndim == 4 else merged(found)


def group_query(
    a: Attributes,
    q: np.ndarray,
    k: Optional,
    v: Optional,
    past_k: Optional,
    past_v: Optional,
    last: np.ndarray,
    total: np.ndarray,
    cos: Optional = None,
    sin: Optional = None,
    at: Optional = None,
    bias: Optional = None,
    sinks: Optional = None,
) -> tuple[np.ndarray, ...]:
    """Sequence by sequence: `last` is the place of the last key of each, and the queries stand at the end."""
    heads, groups = a["num_heads"], a["kv_num_heads"]
    if k is None:
        packed = in_heads(q, heads + 2 * groups)
        q, k, v = np.split(packed, (heads, heads + groups), 1)
    else:
        q, k, v = in_heads(q, heads), in_heads(k, groups), in_heads(v, groups)
    length = q.shape[2]
    room = max(int(total.reshape(())), 0 if past_k is None else past_k.shape[2])
    present = [np.zeros((*x.shape[:2], room, x.shape[3]), x.dtype) for x in (k, v)]
    rows = []
    for i, end in enumerate(last.reshape(-1) + 1):
        before = max(int(end) - length, 0)
        places = np.arange(before, before + length)
        own_q, own_k = q[i], k[i]
        if a.get("do_rotary"):
            tables = cos[places], sin[places]
            own_q, own_k = (turned(x, *tables, bool(a.get("rotary_interleaved"))) for x in (own_q, own_k))
        for whole, past, new in zip(present, (past_k, past_v), (own_k, v[i]), strict=True):
            if past is not None:
                whole[i, :, : past.shape[2]] = past[i]
            whole[i, :, places] = new.swapaxes(0, 1)
        keys, values = (np.repeat(whole[i], heads // groups, 0) for whole in present)
        s = own_q @ keys.swapaxes(-1, -2) * (a.get("scale") or 1 / math.sqrt(q.shape[-1]))
        s = capped(s, a.get("softcap", 0.0))
        j = np.arange(room)
        seen = j <= places[:, None]
        window = a.get("local_window_size", -1)
        if window >= 0:
            seen &= j > places[:, None] - window
        s = np.where(seen, s if bias is None else s + bias[min(i, len(bias) - 1)], -np.inf)
        if sinks is not None or a.get("smooth_softmax"):
            sink = np.zeros(heads) if sinks is None else sinks
            s = np.concatenate([s, np.broadcast_to(sink[:, None, None], (*s.shape[:2], 1))], -1)
            p = softmax(s)[..., :-1]
        else:
            p = softmax(s)
        rows.append((p @ values).swapaxes(0, 1).reshape(length, -1))
    return np.stack(rows), *present

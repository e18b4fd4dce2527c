"""GroupQueryAttention of onnxruntime's own domain as a function of standard operators; see ``onnx/contrib.py``.

  Y, K, V = com.microsoft.GroupQueryAttention<num_heads = 4, kv_num_heads = 2>(q, k, v, past_k, past_v, last, total)
becomes
  K = Where(place is new, k moved there, past_k);  S = MatMul(q in heads, Transpose(copies of K));
  P = Softmax(Where(key ≤ query, S, -∞)); …
"""

from .contrib_attention import in_heads, merged_heads, scores_of, turned_heads, with_past
from .text import Attributes, Has, arange, ints, number, rms_norm

# The inputs of GroupQueryAttention.
PAST_KEYS, PAST_VALUES, LAST, TOTAL, COS, SIN, POSITIONS, BIAS, SINKS = 3, 4, 5, 6, 7, 8, 9, 10, 11
SCALES, NORMS = (12, 13), (14, 15)


def group_query_attention(a: Attributes, has: Has) -> str | None:
    """Queries follow on a past of `LAST` + 1 − length keys, one number a batch; `TOTAL` is the largest of the sums."""
    quantized = any(a.get(f"{name}_quant_type", b"NONE") != b"NONE" for name in "kv") or any(map(has, SCALES))
    if quantized or a.get("qk_output") or a.get("sliding_window_cache") or has(1) != has(2):
        return None
    if has(PAST_KEYS) != has(PAST_VALUES) or has(NORMS[0]) != has(NORMS[1]) or not has(LAST) or not has(TOTAL):
        return None
    text = _queries_keys_values(a, has)
    text += f"last64 = Cast<to = 7>(x{LAST})\ntotal64 = Cast<to = 7>(x{TOTAL})\n" + ints("one", 1) + ints("minus", -1)
    text += "longest = Reshape(total64, minus)\n"
    text += "last1 = Reshape(last64, minus)\ntotal = Add(last1, one)\nlength = Shape<start = 2, end = 3>(q_heads)\n"
    text += (
        "before0 = Sub(total, length)\nzero = Constant<value_int = 0>()\nbefore = Max(before0, zero)\n"  # 0: padding
    )
    text += arange("row", "length") + "before1 = Unsqueeze(before, one)\nat = Add(row, before1)\n"
    q, k = "q_heads", "k_heads"
    if a.get("do_rotary"):
        turned = _rotated(a, has)
        if turned is None:
            return None
        text += turned
        q, k = "q_turned", "k_turned"
    past = a["shapes"][PAST_KEYS]
    if has(PAST_KEYS) and (past is None or past[2] != 0):
        text += with_past(a, "y1", k, PAST_KEYS) + with_past(a, "y2", "v_heads", PAST_VALUES)
    else:
        text += f"y1 = Identity({k})\ny2 = Identity(v_heads)\n"
    return text + f"q0 = Identity({q})\n" + _grouped(a, has)


def _queries_keys_values(a: Attributes, has: Has) -> str:
    """`q_heads`, `k_heads` and `v_heads`, each [batch, heads, length, size], normalised where the node says so."""
    heads, groups = a["num_heads"], a["kv_num_heads"]
    normed = has(NORMS[0])
    names = ("q_own", "k_own", "v_heads") if normed else ("q_heads", "k_heads", "v_heads")
    if has(1):
        text = "".join(
            in_heads(name, f"x{i}", count)
            for i, (name, count) in enumerate(zip(names, (heads, groups, groups), strict=True))
        )
    else:
        text = in_heads("packed", "x0", heads + 2 * groups) + ints("counts", heads, groups, groups)
        text += f"{', '.join(names)} = Split<axis = 1>(packed, counts)\n"
    if normed:
        epsilon = a.get("qk_norm_epsilon", 1e-6)
        text += rms_norm(a, "q_own", f"x{NORMS[0]}", epsilon, result="q_heads")
        text += rms_norm(a, "k_own", f"x{NORMS[1]}", epsilon, result="k_heads")
    return text


def _rotated(a: Attributes, has: Has) -> str | None:
    """`q_turned` and `k_turned`. Of positions that are given, a first prompt takes the first only."""
    table, x = a["shapes"][COS], a["shapes"][0]
    if not (has(COS) and has(SIN)) or table is None or table[1] is None or x is None or x[2] is None:
        return None
    heads = a["num_heads"] + (0 if has(1) else 2 * a["kv_num_heads"])
    width, size = 2 * table[1], x[2] // heads
    text = f"cos_table = Identity(x{COS})\nsin_table = Identity(x{SIN})\n"
    if has(POSITIONS):
        text += f"is_first = Equal(longest, length)\nflat_at = Reshape(x{POSITIONS}, minus)\n"
        text += "first_at = Gather(flat_at, zero)\nfrom_first = Add(row, first_at)\n"
        text += f"place = Where(is_first, from_first, x{POSITIONS})\n"
    else:
        text += "place = Identity(at)\n"
    for name in "qk":
        parts = (width, size - width)
        text += turned_heads(a, f"{name}_turned", f"{name}_heads", parts, "place", bool(a.get("rotary_interleaved")))
    return text


def _grouped(a: Attributes, has: Has) -> str:
    """From q0, and the keys y1 and values y2 of its groups, to y0."""
    heads, groups = a["num_heads"], a["kv_num_heads"]
    text, sources = "q = Identity(q0)\n", ["y1", "y2"]
    if has(BIAS) and has(PAST_KEYS):  # it ends with the sequences, not with the buffer
        text += ints("start", 0) + ints("axes", 2)
        text += "".join(f"{y}_used = Slice({y}, start, longest, axes)\n" for y in sources)
        sources = [f"{y}_used" for y in sources]
    if heads == groups:
        text += "".join(f"{name} = Identity({y})\n" for name, y in zip("kv", sources, strict=True))
    else:
        text += ints("third", 2) + ints("copies", 1, 1, heads // groups, 1, 1)
        text += f"batch = Shape<start = 0, end = 1>(y1)\nkeys = Shape<start = 2, end = 3>({sources[0]})\n"
        text += ints("all_heads", heads)
        for name, source in zip("kv", sources, strict=True):
            text += f"{name}_outer = Unsqueeze({source}, third)\n{name}_copies = Expand({name}_outer, copies)\n"
            text += f"{name}_size = Shape<start = 3, end = 4>({source})\n"
            text += f"{name}_form = Concat<axis = 0>(batch, all_heads, keys, {name}_size)\n"
            text += f"{name} = Reshape({name}_copies, {name}_form)\n"
    text += scores_of(a, f"x{BIAS}" if has(BIAS) else None)
    text += "keys_end = Shape<start = 2, end = 3>(k)\n" + arange("column", "keys_end")
    text += ints("row_axes", 1, 3) + "at4 = Unsqueeze(at, row_axes)\n"  # [batch, 1, queries, 1]
    if a.get("causal", 1):
        text += "seen0 = LessOrEqual(column, at4)\n"
    else:
        text += ints("inner", 1, 2, 3) + "total4 = Unsqueeze(total, inner)\nseen0 = Less(column, total4)\n"
    window = a.get("local_window_size", -1)
    if window >= 0:
        text += ints("window", window) + "oldest = Sub(at4, window)\nnear = Greater(column, oldest)\n"
        text += "seen = And(seen0, near)\n"
    else:
        text += "seen = Identity(seen0)\n"
    text += "masked = Constant<value_float = -inf>()\nlow = CastLike(masked, x0)\ns2 = Where(seen, s1, low)\n"
    if has(SINKS) or a.get("smooth_softmax"):
        text += _softmax_with_sinks(a, has)
    else:
        text += "p = Softmax<axis = -1>(s2)\n"
    return text + "o = MatMul(p, v)\n" + merged_heads("y0", "o")


def _softmax_with_sinks(a: Attributes, has: Has) -> str:
    """p: the softmax of s2 beside one more score per head, which is 0 or a sink, and has no value.

    It is not concatenated: of an open number of keys that would hide the scores.
    """
    if has(SINKS):
        text = ints("sink_shape", 1, -1, 1, 1) + f"sink = Reshape(x{SINKS}, sink_shape)\n"
    else:
        text = number("sink", 0.0)
    if a["opset"] < 18:
        text += "highest = ReduceMax<axes = [-1]>(s2)\n"
    else:
        text += ints("last_axis", -1) + "highest = ReduceMax(s2, last_axis)\n"
    text += ints("sum_axis", -1) + "most = Max(highest, sink)\nshifted = Sub(s2, most)\ne = Exp(shifted)\n"
    text += "sum_of_keys = ReduceSum(e, sum_axis)\nsink_shifted = Sub(sink, most)\nof_sink = Exp(sink_shifted)\n"
    return text + "sum_of_all = Add(sum_of_keys, of_sink)\np = Div(e, sum_of_all)\n"

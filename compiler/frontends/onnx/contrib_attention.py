"""Attention of onnxruntime's own domain as functions of standard operators; see ``onnx/contrib.py``.

    Y = com.microsoft.MultiHeadAttention<num_heads = 4>(q, k, v)
  becomes
    S = MatMul(q in heads, Transpose(k in heads));  P = Softmax(S / √size);  Y = heads of MatMul(P, v in heads) merged

Each writer gives the text of a function's body, for the inputs x0, x1, … that the node has, to the outputs y0, y1, …
"""

import re
from collections.abc import Callable, Sequence

from .text import Attributes, Has, arange, ints, number, split


def in_heads(name: str, source: str, heads: int) -> str:
    """[batch, length, heads·size] as [batch, heads, length, size]."""
    return (
        ints(f"{name}_shape", 0, 0, heads, -1)
        + f"{name}_split = Reshape({source}, {name}_shape)\n{name} = Transpose<perm = [0, 2, 1, 3]>({name}_split)\n"
    )


def merged_heads(name: str, source: str) -> str:
    """[batch, heads, length, size] as [batch, length, heads·size]."""
    return (
        f"{name}_t = Transpose<perm = [0, 2, 1, 3]>({source})\n"
        + ints(f"{name}_merged", 0, 0, -1)
        + f"{name} = Reshape({name}_t, {name}_merged)\n"
    )


def scores_of(a: Attributes, bias: str | None) -> str:
    """From q and k in heads: the scores `s1`, scaled, capped and biased."""
    text = "kt = Transpose<perm = [0, 1, 3, 2]>(k)\nproducts = MatMul(q, kt)\n"
    if a.get("scale"):
        text += number("factor", a["scale"]) + "s0 = Mul(products, factor)\n"
    else:
        text += (
            "size_int = Shape<start = 3, end = 4>(q)\nsize = CastLike(size_int, q)\nroot = Sqrt(size)\n"
            "s0 = Div(products, root)\n"
        )
    capped = "s0"
    if a.get("softcap"):
        text += (
            number("cap", a["softcap"]) + "s_of_cap = Div(s0, cap)\ntanh = Tanh(s_of_cap)\ncapped = Mul(tanh, cap)\n"
        )
        capped = "capped"
    return text + (f"s1 = Add({capped}, {bias})\n" if bias else f"s1 = Identity({capped})\n")


def _scores_and_output(a: Attributes, mask: str, bias: str | None, causal: bool) -> str:
    """From q, k and v in heads to y0; `mask`: lines that make the additive mask `m`, or nothing."""
    text = scores_of(a, bias)
    text += f"{mask}s2 = Add(s1, m)\n" if mask else "s2 = Identity(s1)\n"
    if causal:  # a query has at least one key, so that none of the others counts, whatever the mask's value is
        text += "masked = Constant<value_float = -inf>()\nlow = CastLike(masked, x0)\n" + (
            "q_end = Shape<start = 2, end = 3>(q)\nk_end = Shape<start = 2, end = 3>(k)\n"
            + arange("rows", "q_end")
            + arange("columns", "k_end")
            + "past = Sub(k_end, q_end)\nrow_ends = Add(rows, past)\nsecond = Constant<value_ints = [1]>()\n"
            "row_column = Unsqueeze(row_ends, second)\nseen = LessOrEqual(columns, row_column)\n"
            "s3 = Where(seen, s2, low)\n"
        )
    else:
        text += "s3 = Identity(s2)\n"
    return text + "p = Softmax<axis = -1>(s3)\no = MatMul(p, v)\n" + merged_heads("y0", "o")


def _padding(a: Attributes, i: int) -> str | None:
    """The additive mask of input `i`: ones and zeros [batch, keys] or [batch, queries, keys], or numbers in one list.

    These are where each sequence ends, and then where each begins, or what says of packed sequences where they are.
    """
    shape = a["shapes"][i]
    if shape is None or len(shape) > 3:
        return None
    text = f"kept = Identity(x{i})\n"
    if len(shape) == 1:
        per_sequence = _numbers_per_sequence(a, i)
        if per_sequence is None:
            return None
        text = "keys_end = Shape<start = 2, end = 3>(k)\n" + arange("key", "keys_end") + ints("last", 1)
        text += f"list64 = Cast<to = 7>(x{i})\n" + ints("list_start", 0)
        text += "batch = Shape<start = 0, end = 1>(x0)\nends0 = Slice(list64, list_start, batch)\n"
        text += "ends = Unsqueeze(ends0, last)\n"
        if per_sequence == 2:
            text += "twice = Add(batch, batch)\nstarts0 = Slice(list64, batch, twice)\n"
            text += "starts = Unsqueeze(starts0, last)\nbefore = Less(key, ends)\n"
            text += "after = GreaterOrEqual(key, starts)\nkept = And(before, after)\n"
        else:
            text += "kept = Less(key, ends)\n"
    return (
        text
        + ints("inner", *((1,) if len(shape) == 3 else (1, 2)))
        + number("fill", a.get("mask_filter_value", -10000.0))
        + number("unit", 1.0)
        + "mask4 = Unsqueeze(kept, inner)\nmask_float = CastLike(mask4, x0)\nabsent = Sub(unit, mask_float)\n"
        + "m = Mul(absent, fill)\n"
    )


def _numbers_per_sequence(a: Attributes, i: int) -> int | None:
    """How many numbers the list that is input `i` has for each sequence; 3 where there are two more."""
    count, batch = a["shapes"][i][0], (a["shapes"][0] or [None])[0]
    if count is None or batch is None:
        names = [a["names"][j][:1] for j in (0, i)]
        return 1 if names[0] == names[1] != [""] else None
    return {batch: 1, 2 * batch: 2, 3 * batch + 2: 3}.get(count)


def _unpacked(a: Attributes, names: str, source: str) -> str:
    """The parts of [batch, length, heads, parts, size], each [batch, length, heads·size]."""
    packed = [f"{name}_packed" for name in names]
    return (
        split(a, packed, source, 3)
        + ints("flat", 0, 0, -1)
        + "".join(f"{name}_flat = Reshape({p}, flat)\n" for name, p in zip(names, packed, strict=True))
    )


def _multi_head_attention(a: Attributes, has: Has) -> str | None:
    ranks = [None if shape is None else len(shape) for shape in a["shapes"]]
    if has(9) or has(6) != has(7) or (has(8) and not has(6)) or "num_heads" not in a:
        return None
    names, text = ["x0", "x1", "x2"], ""
    if ranks[0] == 5 and not has(1) and not has(2):
        text, names = _unpacked(a, "qkv", "x0"), ["q_flat", "k_flat", "v_flat"]
        ranks[:3] = [3, 3, 3]
    elif ranks[1] == 5 and not has(2):
        text, names = _unpacked(a, "kv", "x1"), ["x0", "k_flat", "v_flat"]
        ranks[1:3] = [3, 3]
    if ranks[0] != 3 or ranks[1] not in (3, 4) or ranks[1] != ranks[2]:
        return None
    if has(3):
        text += _split_bias(a)
        biases = list(zip(names, ("bq", "bk", "bv"), strict=True))[: 1 if ranks[1] == 4 else 3]
        text += "".join(f"{n}b = Add({n}, {b})\n" for n, b in biases)
        names = [f"{n}b" for n, _ in biases] + names[len(biases) :]
    for name, source, rank in zip("qkv", names, ranks[:3], strict=True):
        own = name if name == "q" else f"{name}_new"
        text += f"{own} = Identity({source})\n" if rank == 4 else in_heads(own, source, a["num_heads"])
    if has(8):
        text += _past_in_buffer(a)
    else:
        for name, past in (("k", 6), ("v", 7)):
            joined = f"Concat<axis = 2>(x{past}, {name}_new)" if has(past) else f"Identity({name}_new)"
            text += f"{name} = {joined}\n"
        text += "y1 = Identity(k)\ny2 = Identity(v)\n"
    mask = _padding(a, 4) if has(4) else ""
    if mask is None or (a.get("unidirectional") and _is_unaligned(a, ranks)):
        return None
    return text + _scores_and_output(a, mask, "x5" if has(5) else None, bool(a.get("unidirectional")))


def _split_bias(a: Attributes) -> str:
    """Those of queries, keys and values, of which the last may have another width: it is what the others leave."""
    parts, x, b = ("bq", "bk", "bv"), a["shapes"][0], a["shapes"][3]
    width, whole = x[2] if x is not None and len(x) == 3 else None, b[0] if b is not None else None
    if width is None or whole is None or whole == 3 * width:
        return split(a, parts, "x3", 0)
    return ints("bias_widths", width, width, whole - 2 * width) + f"{', '.join(parts)} = Split(x3, bias_widths)\n"


def _past_in_buffer(a: Attributes) -> str:
    """The buffers x6 and x7 with k_new and v_new after the first x8 keys, as y1 and y2; and what is used of them."""
    text = ints("vector", -1) + ints("one", 1) + "past64 = Cast<to = 7>(x8)\npast = Reshape(past64, vector)\n"
    text += "batches = Shape<start = 0, end = 1>(x0)\nbefore = Expand(past, batches)\n"
    text += "before1 = Unsqueeze(before, one)\nzero = Constant<value_int = 0>()\n"
    text += "length = Shape<start = 2, end = 3>(k_new)\nlongest = Add(past, length)\n"
    text += with_past(a, "y1", "k_new", 6) + with_past(a, "y2", "v_new", 7) + ints("start", 0) + ints("axes", 2)
    return text + "k = Slice(y1, start, longest, axes)\nv = Slice(y2, start, longest, axes)\n"


def with_past(a: Attributes, result: str, new: str, i: int) -> str:
    """What input `i` holds, with `new` from `before` on, as long as the longer one of the buffer and the total."""
    r = f"{result}_"
    text = f"{r}all = Concat<axis = 2>(x{i}, {new})\n{r}size = Shape<start = 2, end = 3>(x{i})\n"
    text += f"{r}end = Max({r}size, longest)\n"
    text += ints(f"{r}start", 0) + ints(f"{r}axes", 2) + f"{r}kept = Slice({r}all, {r}start, {r}end, {r}axes)\n"
    text += arange(f"{r}key", f"{r}end") + f"{r}of_new = Sub({r}key, before1)\n"  # [batch, keys]
    text += f"{r}is_late = GreaterOrEqual({r}of_new, zero)\n{r}is_early = Less({r}of_new, length)\n"
    text += ints(f"{r}inner", 1, 3) + f"{r}is_new2 = And({r}is_late, {r}is_early)\n"
    text += f"{r}is_new = Unsqueeze({r}is_new2, {r}inner)\n"
    x = a["shapes"][0]
    if x is not None and x[1] == 1:
        return text + f"{result} = Where({r}is_new, {new}, {r}kept)\n"
    text += f"{r}last = Sub(length, one)\n{r}low = Max({r}of_new, zero)\n{r}place = Min({r}low, {r}last)\n"
    text += f"{r}place4 = Unsqueeze({r}place, {r}inner)\n{r}form = Shape({r}kept)\n"
    text += f"{r}places = Expand({r}place4, {r}form)\n{r}moved = GatherElements<axis = 2>({new}, {r}places)\n"
    return text + f"{result} = Where({r}is_new, {r}moved, {r}kept)\n"


def _is_unaligned(a: Attributes, ranks: Sequence[int | None]) -> bool:
    """Whether it is not clear which keys come before a query: their numbers differ, which onnxruntime's providers take
    differently."""
    queries, keys = (a["shapes"][i][2 if ranks[i] == 4 else 1] if a["shapes"][i] else None for i in (0, 1))
    return None not in (queries, keys) and queries not in (1, keys)


def _attention(a: Attributes, has: Has) -> str | None:
    if has(6) or a.get("do_rotary") or a.get("past_present_share_buffer"):
        return None
    text = "packed0 = MatMul(x0, x1)\n" + ("packed = Add(packed0, x2)\n" if has(2) else "packed = Identity(packed0)\n")
    rest = _attention_of_packed(a, has)
    return None if rest is None else text + rest


def _quantized_attention(a: Attributes, has: Has) -> str | None:
    """Attention, of whose projections the inputs x0 and x1 are whole numbers with scales x3, x4 and zero points x6, x7.

    The mask is x5, the past x8.
    """
    if a.get("do_rotary") or a.get("past_present_share_buffer") or (has(7) and not has(6)):
        return None
    zeros = "".join(f", x{i}" for i in (6, 7) if has(i))
    text = f"whole = MatMulInteger(x0, x1{zeros})\nproduct = CastLike(whole, x3)\nscales = Mul(x3, x4)\n"
    text += "scaled = Mul(product, scales)\npacked = Add(scaled, x2)\nx = CastLike(x0, x3)\n"
    places = {0: 0, 3: 5, 4: 8}  # of what the rest reads
    shapes, names = ({i: a[key][place] for i, place in places.items()} for key in ("shapes", "names"))
    float_attributes = a | {"shapes": [shapes.get(i) for i in range(6)], "names": [names.get(i, ()) for i in range(6)]}
    rest = _attention_of_packed(float_attributes, lambda i: i in places and has(places[i]))
    if rest is None:
        return None
    return text + re.sub(r"\bx(\d)\b", lambda m: f"x{places[int(m[1])]}" if m[1] != "0" else "x", rest)


def _attention_of_packed(a: Attributes, has: Has) -> str | None:
    """From `packed`, [batch, length, widths of queries, keys and values], to y0 and, with a past, y1."""
    text = ""
    if a.get("qkv_hidden_sizes"):
        text += ints("widths", *a["qkv_hidden_sizes"]) + "fq, fk, fv = Split<axis = -1>(packed, widths)\n"
    else:
        text += split(a, ("fq", "fk", "fv"), "packed", -1)
    for name, own in zip("qkv", ("q", "k_new", "v_new"), strict=True):
        text += in_heads(own, f"f{name}", a["num_heads"])
    for place, name in enumerate("kv"):
        if has(4):  # [2, batch, heads, past, size]
            text += f"{name}_at = Constant<value_int = {place}>()\n{name}_past = Gather(x4, {name}_at)\n"
            text += f"{name} = Concat<axis = 2>({name}_past, {name}_new)\n"
        else:
            text += f"{name} = Identity({name}_new)\n"
    widths = a.get("qkv_hidden_sizes") or [0, 0]
    if widths[1] == widths[-1]:  # what is present, as one tensor
        text += ints("outer", 0) + "k_outer = Unsqueeze(k, outer)\nv_outer = Unsqueeze(v, outer)\n"
        text += "y1 = Concat<axis = 0>(k_outer, v_outer)\n"
    mask = _padding(a, 3) if has(3) else ""
    if mask is None:
        return None
    return text + _scores_and_output(a, mask, "x5" if has(5) else None, bool(a.get("unidirectional")))


def turned_heads(a: Attributes, result: str, source: str, widths: tuple[int, int], at: str, interleaved: bool) -> str:
    """Heads whose first elements, as many as the first of `widths`, are turned by the angles of the positions `at`.

    Pairs of elements, halves of them or neighbours, are turned by the tables `cos_table` and `sin_table`; the other
    elements, as many as the second of `widths`, stay.
    """
    (width, others), r, text = widths, f"{result}_", ""
    if others:
        text += ints(f"{r}widths", width, others)
        text += f"{r}h, {r}rest = Split<axis = -1>({source}, {r}widths)\n"
    else:
        text += f"{r}h = Identity({source})\n"
    text += ints(f"{r}heads_axis", 1) + f"{r}cos0 = Gather(cos_table, {at})\n{r}sin0 = Gather(sin_table, {at})\n"
    text += f"{r}cos = Unsqueeze({r}cos0, {r}heads_axis)\n{r}sin = Unsqueeze({r}sin0, {r}heads_axis)\n"
    if interleaved:
        text += ints(f"{r}pairs_shape", 0, 0, 0, width // 2, 2) + f"{r}pairs0 = Reshape({r}h, {r}pairs_shape)\n"
        text += f"{r}pairs = Transpose<perm = [0, 1, 2, 4, 3]>({r}pairs0)\n" + ints(f"{r}axis", -2)
        text += split(a, (f"{r}a0", f"{r}b0"), f"{r}pairs", -2)
        text += f"{r}a = Squeeze({r}a0, {r}axis)\n{r}b = Squeeze({r}b0, {r}axis)\n"
    else:
        text += split(a, (f"{r}a", f"{r}b"), f"{r}h", -1)
    text += f"{r}ac = Mul({r}a, {r}cos)\n{r}bs = Mul({r}b, {r}sin)\n{r}bc = Mul({r}b, {r}cos)\n"
    text += f"{r}as = Mul({r}a, {r}sin)\n{r}c = Sub({r}ac, {r}bs)\n{r}d = Add({r}bc, {r}as)\n"
    turned = f"{r}turned" if others else result
    if interleaved:
        text += ints(f"{r}back", 0, 0, 0, width) + ints(f"{r}last", -1)
        text += f"{r}c1 = Unsqueeze({r}c, {r}last)\n{r}d1 = Unsqueeze({r}d, {r}last)\n"
        text += f"{r}joined = Concat<axis = -1>({r}c1, {r}d1)\n{turned} = Reshape({r}joined, {r}back)\n"
    else:
        text += f"{turned} = Concat<axis = -1>({r}c, {r}d)\n"
    return text + (f"{result} = Concat<axis = -1>({turned}, {r}rest)\n" if others else "")


def _rotary(a: Attributes, has: Has) -> str | None:
    x, positions, table = a["shapes"][:3]
    if x is None or positions is None or table is None or table[1] is None:
        return None
    if a.get("is_packed_batching") or a.get("scale", 1.0) != 1.0:
        return None
    width, flat = 2 * table[1], len(x) == 3
    size, heads = x[-1], a.get("num_heads") or None
    if flat:  # all of a head is turned, unless it is said how many heads there are
        size = width if heads is None else None if size is None else size // heads
    if size is None or size < width:
        return None
    text = "h = Identity(x0)\n"
    if flat:
        text = ints("split_shape", 0, 0, -1, size) + "split = Reshape(x0, split_shape)\n"
        text += "h = Transpose<perm = [0, 2, 1, 3]>(split)\n"
    if len(positions) == 1:  # where the first one stands
        text += "length = Shape<start = 2, end = 3>(h)\n" + arange("row", "length") + ints("none", 0)
        text += "at0 = Add(row, x1)\nat = Unsqueeze(at0, none)\n"
    else:
        text += "at = Identity(x1)\n"
    text += "cos_table = Identity(x2)\nsin_table = Identity(x3)\n"
    text += turned_heads(a, "turned", "h", (width, size - width), "at", bool(a.get("interleaved")))
    return text + (merged_heads("y0", "turned") if flat else "y0 = Identity(turned)\n")


WRITERS: dict[str, Callable[[Attributes, Has], str | None]] = {
    "Attention": _attention,
    "MultiHeadAttention": _multi_head_attention,
    "QAttention": _quantized_attention,
    "RotaryEmbedding": _rotary,
}

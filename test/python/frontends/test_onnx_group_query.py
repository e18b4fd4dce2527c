"""GroupQueryAttention of onnxruntime's domain, and what its other attentions have of packed inputs and pasts."""

import numpy as np
import pytest
from attn_opt.compiler.api import CompileError, compile
from attn_opt.compiler.counts import stats

onnx = pytest.importorskip("onnx", reason="the extra 'onnx' is not installed")

from onnx import helper  # noqa: E402
from onnx_harness import assert_close, contributed, random, softmax  # noqa: E402

HEADS, GROUPS, SIZE = 4, 2, 16
ANGLES = 8 * random(40, SIZE // 2)
INPUTS = ["q", "k", "v", "past_k", "past_v", "last", "total", "cos", "sin", "positions", "bias", "sinks"]


def in_heads(x, heads):
    return x.astype(np.float64).reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)


def turned(x, at, angles, interleaved):
    """The first elements of [heads, length, size] turned by their positions' angles."""
    width = 2 * angles.shape[1]
    x, rest = x[..., :width], x[..., width:]
    a, b = (x[..., ::2], x[..., 1::2]) if interleaved else np.split(x, 2, -1)
    cos, sin = np.cos(angles)[at], np.sin(angles)[at]
    parts = a * cos - b * sin, b * cos + a * sin
    x = np.stack(parts, -1).reshape(x.shape) if interleaved else np.concatenate(parts, -1)
    return np.concatenate([x, rest], -1)


def expected(given, lengths, angles, attributes):
    """Outputs, keys and values, batch by batch, in float64; only what is defined of them."""
    q = given["q"]
    if "k" not in given:
        q, k, v = np.split(q, np.array([HEADS, HEADS + GROUPS]) * SIZE, -1)
    else:
        k, v = given["k"], given["v"]
    q, k, v = in_heads(q, HEADS), in_heads(k, GROUPS), in_heads(v, GROUPS)
    for b, total in enumerate(lengths):
        new = q.shape[2]
        before = max(total - new, 0)
        at = np.arange(new) + before
        q0, k0, v0 = q[b], k[b], v[b]
        if angles is not None:
            q0, k0 = (turned(x, at, angles, attributes.get("rotary_interleaved")) for x in (q0, k0))
        if "past_k" in given:
            k0, v0 = (np.concatenate([given[n][b, :, :before], x], 1) for n, x in (("past_k", k0), ("past_v", v0)))
        rows = min(new, total)
        all_k, all_v = (np.repeat(x[:, :total], HEADS // GROUPS, 0) for x in (k0, v0))
        s = q0[:, :rows] @ all_k.swapaxes(1, 2) * attributes.get("scale", SIZE**-0.5)
        cap = attributes.get("softcap")
        s = cap * np.tanh(s / cap) if cap else s
        s = s + given["bias"][0][:, :rows, :total] if "bias" in given else s
        near = at[:rows, None] - np.arange(total)
        seen = (near >= 0 if attributes.get("causal", 1) else np.full(near.shape, True)) & (
            near < attributes.get("local_window_size", 10**6)
        )
        sinks = given.get("sinks", np.zeros(HEADS) if attributes.get("smooth_softmax") else None)
        s = np.where(seen, s, -np.inf)
        if sinks is not None:
            s = np.concatenate([s, np.broadcast_to(sinks[:, None, None], (*s.shape[:2], 1))], -1)
        o = softmax(s)[..., :total] @ all_v
        yield o.swapaxes(0, 1).reshape(rows, -1), k0[:, :total], v0[:, :total]


def made(length, past, lengths, packed=False, angles=None, bias=False, sinks=False, opened=False, **attributes):
    """The model of one node, its inputs, and what they should give."""
    batch, total = len(lengths), max(lengths)
    given = {"q": 4 * random(batch, length, (HEADS + 2 * GROUPS * packed) * SIZE)}
    if not packed:
        given |= {name: 4 * random(batch, length, GROUPS * SIZE, seed=i) for i, name in enumerate("kv")}
    if past is not None:
        given |= {f"past_{name}": 4 * random(batch, GROUPS, past, SIZE, seed=i) for i, name in enumerate("kv", 5)}
    given["last"] = np.array(lengths, np.int32) - 1
    given |= {"bias": random(1, HEADS, length, total)} if bias else {}
    given |= {"sinks": 8 * random(HEADS)} if sinks else {}
    constants = {"total": np.array(total, np.int32)}
    if angles is not None:
        constants |= {"cos": np.cos(angles).astype(np.float32), "sin": np.sin(angles).astype(np.float32)}
        attributes["do_rotary"] = 1
    if opened == "total":
        given["total"] = constants.pop("total")
    names = [name if name in given or name in constants else "" for name in INPUTS]
    node = helper.make_node(
        "GroupQueryAttention",
        names,
        ["y", "new_k", "new_v"],
        domain="com.microsoft",
        num_heads=HEADS,
        kv_num_heads=GROUPS,
        **attributes,
    )
    infos = []
    for name in [name for name in names if name in given]:
        kind, shape = helper.np_dtype_to_tensor_dtype(given[name].dtype), list(given[name].shape)
        if opened and shape and name != "sinks":
            shape[0] = "batch" if len(shape) < 4 or "past" in name else 1
            shape[1:-1] = [GROUPS, "past"] if "past" in name else ["length"] * (len(shape) == 3)
        infos.append(helper.make_tensor_value_info(name, kind, shape))
    outputs = [helper.make_tensor_value_info(name, 1, [None] * r) for name, r in (("y", 3), ("new_k", 4), ("new_v", 4))]
    graph = helper.make_graph(
        [node], "g", infos, outputs, [onnx.numpy_helper.from_array(v, k) for k, v in constants.items()]
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    inputs = [given[info.name] for info in infos]
    return model, inputs, expected(given, lengths, angles, attributes)


PROMPT, STEP = {"length": 9, "past": None, "lengths": [9, 5]}, {"length": 1, "past": 12, "lengths": [13, 8]}
BUFFER = {"length": 1, "past": 30, "lengths": [7, 13]}
CASES = {
    "prompt": PROMPT,
    "prompt into a buffer": {**PROMPT, "past": 30},
    "prompt with an empty past": {**PROMPT, "past": 0},
    "step": STEP,
    "step in a buffer": BUFFER,
    "several steps": {"length": 4, "past": 12, "lengths": [16]},
    "several steps in a buffer": {"length": 4, "past": 30, "lengths": [11, 20]},
    "rotary": {**PROMPT, "angles": ANGLES},
    "neighbours turned": {**STEP, "angles": ANGLES, "rotary_interleaved": 1},
    "half of a head turned": {**BUFFER, "angles": ANGLES[:, : SIZE // 4]},
    "packed": {**PROMPT, "packed": True},
    "packed, turned": {**STEP, "packed": True, "angles": ANGLES},
    "window": {**PROMPT, "local_window_size": 3},
    "window of a step": {**BUFFER, "local_window_size": 3},
    "softcap": {**PROMPT, "softcap": 2.0, "scale": 0.5},
    "bias": {**PROMPT, "bias": True, "softcap": 2.0},
    "bias in a buffer": {**BUFFER, "bias": True},
    "sinks": {**PROMPT, "sinks": True},
    "softmax plus one": {**STEP, "smooth_softmax": 1},
    "not causal": {**PROMPT, "causal": 0},
    "open sizes": {**PROMPT, "opened": True},
    "open sizes of a step": {**STEP, "opened": True},
    "a total that is an input": {**BUFFER, "opened": "total", "angles": ANGLES},
    "sinks beside an open number of keys": {**BUFFER, "opened": "total", "sinks": True},
}


SLOW = ("open sizes", "prompt with an empty past", "several steps", "window of a step", "softmax plus one")


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if n in SLOW else ()) for n in CASES])
def test_group_query_attention(name):
    model, inputs, wanted = made(**CASES[name])
    before = stats()
    y, *caches = compile(model)(*inputs)
    assert stats()["compiled"] - before["compiled"] == 1
    past, lengths = CASES[name]["past"] or 0, CASES[name]["lengths"]
    assert all(cache.shape[2] == max(past, *lengths) for cache in caches)
    for b, (rows, *kept) in enumerate(wanted):
        assert_close(y[b, : len(rows)], [rows.astype(np.float32)])
        for cache, own in zip(caches, kept, strict=True):
            assert_close(cache[b, :, : own.shape[1]], [own.astype(np.float32)])


def test_normalised_queries_and_keys():
    model, inputs, _ = made(**PROMPT)
    scales = [1 + random(SIZE, seed=i) for i in range(2)]
    node = model.graph.node[0]
    node.input.extend([""] * (14 - len(node.input)) + ["q_scale", "k_scale"])
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(s, f"{n}_scale") for s, n in zip(scales, "qk", strict=True)
    )
    plain, own, _ = made(**PROMPT)
    for i, (scale, heads) in enumerate(zip(scales, (HEADS, GROUPS), strict=True)):
        x = own[i].reshape(2, 9, heads, SIZE)
        own[i] = (x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * scale).reshape(own[i].shape)
    assert_close(compile(model)(*inputs), compile(plain)(*own))


@pytest.mark.parametrize("attribute", [{"qk_output": 1}, {"k_quant_type": "PER_TENSOR"}, {"sliding_window_cache": 1}])
def test_what_is_not_covered_is_refused(attribute):
    model, _, _ = made(**STEP, **attribute)
    with pytest.raises(CompileError, match=r"com.microsoft.GroupQueryAttention of ONNX \(node 'y'\) has no lowering"):
        compile(model)


X = 4 * random(2, 9, 32)


def whole(q, k, v):
    """Of heads [batch, heads, length, size]: their attention, [batch, length, heads·size]."""
    o = softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])) @ v
    return o.swapaxes(1, 2).reshape(2, 9, -1).astype(np.float32)


def test_packed_inputs_of_multi_head_attention():
    parts = [in_heads(4 * random(2, 9, 32, seed=i), 4) for i in range(3)]
    q, k, v = (p.swapaxes(1, 2).astype(np.float32) for p in parts)
    source = contributed("y = com.microsoft.MultiHeadAttention<num_heads=4>(x)", "float[2,9,4,3,8] x")
    assert_close(compile(source)(np.stack([q, k, v], 3)), [whole(*parts)])
    source = contributed(
        "y = com.microsoft.MultiHeadAttention<num_heads=4>(x, z)", "float[2,9,32] x, float[2,9,4,2,8] z"
    )
    assert_close(compile(source)(q.reshape(2, 9, 32), np.stack([k, v], 3)), [whole(*parts)])


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize(("queries", "past"), [(1, 0), (1, 6), (3, 0), (3, 9)])
def test_a_past_in_a_buffer_of_multi_head_attention(queries, past, causal):
    q, k, v = (4 * random(2, queries, 32, seed=i) for i in range(3))
    buffers = [random(2, 4, 12, 8, seed=i) for i in (3, 4)]
    bias = random(2, 1, queries, past + queries, seed=5)
    source = contributed(
        f"y, k, v = com.microsoft.MultiHeadAttention<num_heads=4, unidirectional={causal}>(q, x, z, , , a, pk, pv, n)",
        f"float[2,{queries},32] q, float[2,{queries},32] x, float[2,{queries},32] z,"
        f"float[2,1,{queries},{past + queries}] a, float[2,4,12,8] pk, float[2,4,12,8] pv, int32[1] n",
        f"float[2,{queries},32] y, float[2,4,12,8] k, float[2,4,12,8] v",
    )
    present = [buffer.copy() for buffer in buffers]
    for buffer, new in zip(present, (k, v), strict=True):
        buffer[:, :, past : past + queries] = in_heads(new, 4)
    keys, values = (buffer[:, :, : past + queries].astype(np.float64) for buffer in present)
    seen = np.arange(past + queries) <= np.arange(queries)[:, None] + past
    s = in_heads(q, 4) @ keys.swapaxes(-1, -2) / np.sqrt(8) + bias
    o = softmax(np.where(seen | (not causal), s, -np.inf)) @ values
    before = stats()["compiled"]
    found = compile(source)(q, k, v, bias, *buffers, np.array([past], np.int32))
    assert stats()["compiled"] == before + 1
    assert_close(found, [o.swapaxes(1, 2).reshape(2, queries, -1).astype(np.float32), *present])


def test_a_past_of_packed_attention():
    """Keys and values in one tensor; queries and keys of another size than the values."""
    w, past = random(32, 16 + 16 + 48), 4 * random(2, 2, 4, 5, 4)
    source = contributed(
        "y, z = com.microsoft.Attention<num_heads=4>(x, w, , , p)",
        "float[2,9,32] x, float[2,2,4,5,4] p",
        "float[2,9,16] y, float[2,2,4,14,4] z",
        w=w[:, :48],
    )
    q, k, v = (in_heads(part, 4) for part in np.split(X @ w[:, :48], 3, -1))
    both = np.stack([np.concatenate([p, x], 2) for p, x in zip(past, (k, v), strict=True)]).astype(np.float32)
    assert_close(compile(source)(X, past), [whole(q, *both), both])
    body = "y = com.microsoft.Attention<num_heads=4, qkv_hidden_sizes=[16, 16, 48]>(x, w)"
    source = contributed(body, "float[2,9,32] x", "float[2,9,48] y", w=w)
    q, k, v = (in_heads(part, 4) for part in np.split(X @ w, [16, 32], -1))
    assert_close(compile(source)(X), [whole(q, k, v)])


def test_a_part_of_each_head_is_turned():
    body = "y = com.microsoft.RotaryEmbedding<num_heads=2, rotary_embedding_dim=8>(x, p, c, s)"
    angles, at = 8 * random(20, 4), np.arange(18).reshape(2, 9)
    source = contributed(body, "float[2,9,32] x, int64[2,9] p, float[20,4] c, float[20,4] s")
    tables = [f(angles).astype(np.float32) for f in (np.cos, np.sin)]
    wanted = [
        turned(x, p, angles, False).swapaxes(0, 1).reshape(9, 32) for x, p in zip(in_heads(X, 2), at, strict=True)
    ]
    assert_close(compile(source)(X, at, *tables), [np.stack(wanted).astype(np.float32)])

"""Attention on an NVIDIA GPU against float64: features, odd sizes, strides. Without a GPU only compiled."""

import dataclasses
import math
import re
import warnings

import numpy as np
import pytest
from attn_opt.compiler import compile
from attn_opt.compiler.graphs import Attention as Graph
from attn_opt.compiler.runtime import cuda_driver, ptx
from attn_opt.compiler.runtime.signature import Signature
from attn_opt.compiler.sources import find_entry, load_text
from attn_opt.compiler.tools import arrays, checking
from gpu import have_gpu, needs_gpu
from gpu import poisoned as poisoned
from harness import crossed
from narrow_attention import NarrowAttention as Attention

CASES = {
    "d64": Attention(256, 256, 64, 64),
    "d128": Attention(256, 384, 128, 128),
    "d128_f16": Attention(256, 384, 128, 128, element="f16"),
    "odd": Attention(129, 75, 64, 64),
    "head_sizes_differ": Attention(451, 387, 64, 80, out="f32"),
    "d80": Attention(200, 333, 80, 80, element="f16"),
    "d40": Attention(77, 133, 40, 40),
    "d36": Attention(77, 133, 36, 36),
    "d32": Attention(100, 512, 32, 32),
    "d256": Attention(130, 150, 256, 256),
    "small": Attention(5, 3, 64, 64),
    "one_block": Attention(64, 64, 64, 64, batch=(1,)),
    "one_block_of_loops": Attention(50, 200, 64, 64, batch=(1,), causal=True),
    "one_query": Attention(1, 300, 64, 64),
    "causal": Attention(300, 300, 64, 64, causal=True, scale=0.125),
    "causal_cross": Attention(300, 200, 64, 64, causal=True),
    "window": Attention(300, 300, 64, 64, causal=True, scale=0.125, window=70),
    "softcap": Attention(200, 300, 128, 128, softcap=20.0, scale=0.3),
    "bias": Attention(200, 300, 64, 64, bias="bmk", scale=0.125),
    "bias_of_keys": Attention(200, 300, 64, 64, bias="k", bias_element="bf16"),
    "bias_of_queries": Attention(200, 300, 64, 64, bias="bm"),
    "mask": Attention(200, 300, 64, 64, mask=True),
    "gqa": Attention(150, 200, 64, 64, batch=(2, 2), groups=3, causal=True),
    "keys_transposed": Attention(150, 208, 64, 64, transposed=True),
    "keys_transposed_odd": Attention(150, 201, 64, 64, transposed=True),
    "dynamic": Attention(300, 277, 64, 64, dynamic=True, causal=True),
    "wide_logits": Attention(130, 600, 64, 64, scale=20.0),
    "d37": Attention(70, 90, 37, 33),
    "d1": Attention(70, 90, 1, 1),
    "d250": Attention(70, 90, 250, 249, element="f16"),
    "f32": Attention(150, 200, 64, 64, element="f32", causal=True),
    "f32_d128": Attention(70, 90, 128, 128, element="f32", softcap=5.0),
    "f32_odd": Attention(77, 133, 37, 33, element="f32", bias="mk"),
    "f32_d256": Attention(70, 90, 256, 256, element="f32"),
    "f32_transposed": Attention(70, 96, 64, 64, element="f32", transposed=True),
    "cast": Attention(70, 90, 64, 64, element="f16", stored="f32"),
    "cast_odd": Attention(70, 91, 37, 33, element="f16", stored="f32"),
    "f8": Attention(70, 150, 64, 64, element="f16", stored="f8E4M3FN", key_scale=True),
    "f8_d128": Attention(70, 150, 128, 128, element="bf16", stored="f8E4M3FN", causal=True),
    "key_scale": Attention(70, 150, 64, 64, key_scale=True),
    "key_scale_transposed": Attention(70, 152, 64, 64, transposed=True, key_scale=True),
    "value_bias": Attention(70, 150, 64, 80, value_bias=True, key_scale=True, causal=True),
    "value_bias_dynamic": Attention(70, 150, 64, 64, value_bias=True, key_scale=True, dynamic=True),
    "value_bias_f32": Attention(70, 150, 64, 64, element="f32", value_bias=True, key_scale=True),
    "pages": Attention(70, 150, 64, 64, page=16),
    "pages_f8": Attention(1, 300, 128, 128, page=64, stored="f8E4M3FN", element="f16"),
    "pages_odd": Attention(70, 90, 36, 20, page=7, causal=True),
    # Biases and masks that the copy engine brings, of every width, and next to what else there is.
    "bias_staged": Attention(200, 304, 64, 64, bias="bmk", bias_element="bf16", scale=0.125),
    "bias_staged_f32": Attention(130, 308, 64, 64, bias="bmk", scale=0.125, softcap=20.0),
    "bias_staged_f16": Attention(333, 264, 128, 128, element="f16", bias="mk", bias_element="f16", scale=0.1),
    "bias_staged_f8": Attention(200, 320, 64, 64, bias="bmk", bias_element="f8E4M3FN", scale=0.125),
    "bias_staged_causal": Attention(300, 304, 64, 64, bias="bmk", bias_element="bf16", scale=0.125, causal=True),
    "bias_and_mask": Attention(
        400, 400, 64, 64, bias="bmk", bias_element="bf16", scale=0.125, mask=True, causal=True, window=170
    ),
    "bias_staged_d256": Attention(200, 304, 256, 256, bias="bmk", bias_element="bf16", scale=0.06),
    "bias_staged_d256_f32": Attention(200, 304, 256, 256, bias="bmk", scale=0.06),
    "bias_groups": Attention(
        150, 208, 64, 64, batch=(2, 2), groups=3, bias="gmk", bias_element="bf16", scale=0.125, causal=True
    ),
    "bias_few_keys": Attention(300, 40, 64, 64, bias="bmk", bias_element="bf16", scale=0.125),
    "bias_transposed": Attention(304, 200, 64, 64, bias="bmk", bias_element="bf16", bias_transposed=True, scale=0.125),
    "bias_transposed_f32": Attention(304, 200, 64, 64, bias="bmk", bias_transposed=True, scale=0.125),
    "bias_dynamic": Attention(200, 304, 64, 64, bias="bmk", bias_element="bf16", scale=0.125, dynamic=True),
    # Those whose rows are not aligned: read by threads, or copied to aligned rows: masks, and what heads share.
    "bias_copied": Attention(200, 301, 64, 64, bias="mk", bias_element="bf16", scale=0.125),
    "bias_copied_causal": Attention(333, 301, 128, 128, element="f16", bias="mk", scale=0.1, causal=True),
    "bias_copied_transposed": Attention(
        301, 200, 64, 64, bias="mk", bias_element="bf16", bias_transposed=True, scale=0.125
    ),
    "bias_copied_and_mask": Attention(
        401, 403, 64, 64, bias="mk", bias_element="bf16", scale=0.125, mask=True, causal=True, window=170
    ),
    "bias_copied_groups": Attention(
        150, 209, 64, 64, batch=(2, 2), groups=3, bias="gmk", bias_element="bf16", scale=0.125, causal=True
    ),
    "bias_copied_d256": Attention(197, 197, 256, 256, bias="mk", bias_element="bf16", scale=0.06),
    "bias_copied_dynamic": Attention(200, 301, 64, 64, bias="mk", bias_element="bf16", scale=0.125, dynamic=True),
    "bias_unaligned": Attention(200, 301, 64, 64, bias="bmk", bias_element="bf16", scale=0.125),
    "bias_unaligned_even": Attention(200, 302, 64, 64, bias="bmk", bias_element="bf16", scale=0.125, causal=True),
    "bias_unaligned_causal": Attention(300, 301, 64, 64, bias="bmk", bias_element="bf16", scale=0.125, causal=True),
    "bias_unaligned_to_8": Attention(333, 308, 128, 128, element="f16", bias="mk", bias_element="f16", scale=0.1),
    "bias_unaligned_f32": Attention(130, 307, 64, 64, bias="bmk", scale=0.125, softcap=20.0),
    "bias_unaligned_few_keys": Attention(300, 33, 64, 64, bias="bmk", bias_element="bf16", scale=0.125),
    "bias_unaligned_transposed": Attention(
        301, 200, 64, 64, bias="bmk", bias_element="bf16", bias_transposed=True, scale=0.125
    ),
    "bias_unaligned_and_mask": Attention(
        401, 403, 64, 64, bias="bmk", bias_element="bf16", scale=0.125, mask=True, causal=True, window=170
    ),
    "bias_unaligned_dynamic": Attention(201, 577, 64, 64, bias="bmk", bias_element="bf16", scale=0.125, dynamic=True),
    "mask_unaligned": Attention(200, 301, 128, 128, mask=True, scale=0.1),
    "mask_staged": Attention(200, 304, 128, 128, mask=True, scale=0.1),
    "mask_staged_few_keys": Attention(200, 48, 64, 64, mask=True, scale=0.125),
    "bias_copied_long": Attention(130, 4095, 64, 64, bias="mk", bias_element="bf16", scale=0.125),
    "bias_copied_f32": Attention(200, 577, 64, 64, batch=(4,), bias="mk", scale=0.125),
    "mask_copied": Attention(130, 4095, 64, 64, element="f16", mask=True, scale=0.125),
    "mask_copied_dynamic": Attention(201, 577, 64, 64, mask=True, scale=0.125, dynamic=True),
    # Heads whose rows are not aligned: copied to rows that are, where enough queries read them.
    "d33": Attention(333, 401, 33, 33, batch=(2, 2), element="f16"),
    "d36_copied": Attention(260, 300, 36, 36),
    "d20": Attention(260, 513, 20, 20, element="f16"),
    "d65_causal": Attention(300, 300, 65, 65, element="f16", causal=True, scale=0.125),
    "d101_softcap": Attention(200, 333, 101, 99, element="f16", softcap=20.0, scale=0.1),
    "d130": Attention(200, 333, 130, 130),
    "d255_causal": Attention(150, 150, 255, 255, element="f16", causal=True, scale=0.06),
    "d2": Attention(300, 300, 2, 2),
    "d33_window": Attention(300, 300, 33, 33, causal=True, scale=0.125, window=70),
    "d33_groups": Attention(150, 200, 33, 33, batch=(2, 2), groups=3, causal=True),
    "d33_dynamic": Attention(300, 277, 33, 33, dynamic=True, causal=True),
    "d36_dynamic": Attention(300, 277, 36, 36, element="f16", dynamic=True),
    "d33_bias": Attention(200, 301, 33, 33, bias="mk", bias_element="bf16", scale=0.125),
    "d33_bias_unaligned": Attention(200, 301, 33, 33, bias="bmk", bias_element="bf16", scale=0.125),
    "d33_mask": Attention(200, 577, 33, 33, mask=True, scale=0.125),
    "d33_values": Attention(200, 300, 64, 33),
    "d33_keys": Attention(200, 300, 33, 64, out="f32"),
    "d33_transposed": Attention(200, 301, 33, 33, transposed=True),
    "d33_wide_logits": Attention(130, 600, 33, 33, scale=20.0),
    # Caps, also such that scores are far below and above the first maximum.
    "softcap_causal": Attention(200, 300, 64, 64, element="f16", softcap=20.0, causal=True, scale=0.3),
    "softcap_bf16": Attention(200, 600, 64, 64, softcap=20.0, scale=0.3),
    "softcap_wide": Attention(200, 600, 128, 128, element="f16", softcap=300.0, scale=20.0),
    "masked_rows": Attention(300, 100, 64, 64, causal=True, window=20),
}

# Matmuls of 8 bits: what tensor cores take as it is, and what becomes wider.
CASES |= {
    f"eight_bits_{name}": dataclasses.replace(case, element="f8E4M3FN", out="f16")
    for name, case in {
        "d128": Attention(256, 1000, 128, 128, scale=0.1),
        "d64": Attention(500, 1000, 64, 64, batch=(70,), scale=0.125),
        "odd": Attention(129, 75, 64, 64, scale=0.125),
        "two_tiles": Attention(150, 200, 64, 64, scale=0.125),  # known padding: equal halves of words
        "d32": Attention(300, 333, 32, 32),
        "head_sizes_differ": Attention(200, 333, 48, 80),
        "causal": Attention(300, 300, 128, 128, batch=(50,), causal=True, scale=0.1),
        "causal_cross": Attention(300, 200, 64, 64, causal=True, scale=0.125),
        "window": Attention(300, 300, 64, 64, causal=True, scale=0.125, window=70),
        "gqa": Attention(150, 200, 64, 64, batch=(2, 2), groups=3, causal=True, scale=0.125),
        "softcap": Attention(200, 300, 128, 128, softcap=20.0, scale=0.3),
        "bias": Attention(200, 304, 64, 64, bias="bmk", bias_element="bf16", scale=0.125),
        "mask": Attention(200, 304, 64, 64, mask=True, scale=0.125),
        "dynamic": Attention(300, 277, 64, 64, dynamic=True, causal=True, scale=0.125),
        "wide_logits": Attention(200, 600, 64, 64, batch=(70,), scale=2.0),
        "values_transposed": Attention(150, 336, 64, 64, values_transposed=True, scale=0.125),
        "values_transposed_causal": Attention(300, 304, 128, 128, values_transposed=True, causal=True, scale=0.1),
        "keys_transposed": Attention(150, 208, 64, 64, transposed=True, scale=0.125),
        "d36": Attention(77, 133, 36, 36),
        "d256": Attention(130, 150, 256, 256, scale=0.06),
        "one_query": Attention(1, 300, 64, 64, scale=0.125),
    }.items()
}
CASES["five_bits_of_exponent"] = Attention(300, 333, 64, 64, element="f8E5M2", out="f16", scale=0.125)

TOLERANCE = {"f16": 5e-3, "bf16": 2e-2, "f32": 1e-5, "f8E4M3FN": 8e-2, "f8E5M2": 1e-1}


def inputs_of(case: Attention, seed: int):
    module = load_text(case.text(), "case")
    signature = Signature.of(find_entry(module, None))
    sizes = {(0, len(case.batch)): case.m, (1, len(case.batch)): case.k} if case.dynamic else {}
    inputs = signature.bind(arrays.random(signature, sizes, seed))
    if case.page:  # the table is the last argument; pages stand anywhere in the pools
        table = inputs[-1]
        table[:] = np.random.default_rng(seed).integers(0, min(len(a) for a in inputs[1:3]), table.shape)
    (expected,), _ = checking.reference(module, signature.name, inputs)
    return inputs, expected


@needs_gpu
@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("name", CASES)
def test_against_float64(name, arch, poisoned):
    if arch.endswith("a") and cuda_driver.device_arch() != arch:
        pytest.skip(f"no {arch}")
    case = CASES[name]
    kernel = compile(case.text(), target="nvidia", arch=arch)
    for seed in (1, 2):
        inputs, expected = inputs_of(case, seed)
        out = kernel(*inputs)
        absolute, relative = checking.errors(out, expected)
        assert relative < TOLERANCE[case.element], (absolute, relative)
        np.testing.assert_array_equal(np.asarray(out).view(np.uint8), np.asarray(kernel(*inputs)).view(np.uint8))


STAGED = ["bias_staged", "bias_staged_causal", "bias_and_mask", "bias_transposed", "mask_staged"]
STAGED += ["bias_unaligned", "bias_unaligned_even", "bias_unaligned_and_mask", "mask_unaligned"]


@needs_gpu
@pytest.mark.parametrize("warpgroups", [3, 4])
@pytest.mark.parametrize("name", STAGED)
def test_staged_operands_of_many_warpgroups(name, warpgroups, poisoned):
    """Their threads have too few registers to hold a tile's bias, which stays in shared memory for longer."""
    case = CASES[name]
    tiles = [*[1] * len(case.batch), 64 * warpgroups, 0, 64]
    kernel = compile(case.text(), target="nvidia", arch="sm_90a", tile_sizes=tiles)
    for seed in (1, 2):
        inputs, expected = inputs_of(case, seed)
        out = kernel(*inputs)
        assert checking.errors(out, expected)[1] < TOLERANCE[case.element]
        np.testing.assert_array_equal(np.asarray(out).view(np.uint8), np.asarray(kernel(*inputs)).view(np.uint8))


@pytest.mark.skipif(ptx.find_tool("ptxas") is None, reason="no ptxas")
@pytest.mark.parametrize(("head_size", "values_transposed"), crossed([32, 64, 128], [False, True]))
def test_matmuls_of_8_bits(head_size, values_transposed):
    """Of what each thread has throughout, some words are kept in memory that is its own; no matmul is serialised."""
    case = Attention(4096, 4096, head_size, head_size, batch=(64,), element="f8E4M3FN", out="f16")
    case = dataclasses.replace(case, values_transposed=values_transposed)
    text = compile(case.text(), target="nvidia", arch="sm_90a").ir("ptx")
    assert "e4m3.e4m3" in text and "f16.f16" not in text and "cp.async.bulk.tensor" in text
    made = ptx.assemble(text, "sm_90a")
    assert made is not None and made.spills <= 64, made
    assert not [line for line in made.warnings if "C75" in line], made.log


@needs_gpu
@pytest.mark.parametrize("element", ["f16", "f32"])
def test_little_shared_memory(element, poisoned):
    """99 KiB a block: smaller tiles, and in f32 no copies ahead."""
    case = Attention(130, 200, 256, 256, causal=True, element=element)
    kernel = compile(case.text(), target="nvidia", arch="sm_86", split_keys=1)
    inputs, expected = inputs_of(case, 3)
    assert checking.errors(kernel(*inputs), expected)[1] < TOLERANCE[element]


@needs_gpu
@pytest.mark.parametrize("d", [64, 33, 36])
@pytest.mark.parametrize("layout", ["bhsd", "bshd", "packed"])
def test_torch_tensors_in_place(layout, d):
    torch = pytest.importorskip("torch")
    b, h, s = 2, 3, 200
    kernel = compile(Attention(s, s, d, d, batch=(b, h), scale=0.125, element="f16").text(), target="nvidia")
    if layout == "bhsd":
        q, k, v = torch.randn(3, b, h, s, d, device="cuda", dtype=torch.float16)
    elif layout == "bshd":
        q, k, v = (x.transpose(1, 2) for x in torch.randn(3, b, s, h, d, device="cuda", dtype=torch.float16))
    else:
        q, k, v = torch.randn(b, s, 3, h, d, device="cuda", dtype=torch.float16).permute(2, 0, 3, 1, 4)
    out = kernel(q, k, v)
    right = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double(), scale=0.125)
    assert out.is_cuda and (out.double() - right).abs().max() / right.abs().max() < TOLERANCE["f16"]


@needs_gpu
def test_tensors_that_are_no_dense_rows():
    torch = pytest.importorskip("torch")
    kernel = compile(Attention(70, 90, 64, 64, batch=(2,), scale=0.125, element="f16").text(), target="nvidia")
    q = torch.randn(2, 64, 70, device="cuda", dtype=torch.float16).transpose(1, 2)
    k = torch.randn(2 * 90 * 64 + 1, device="cuda", dtype=torch.float16)[1:].view(2, 90, 64)
    v = torch.randn(2, 90, 67, device="cuda", dtype=torch.float16)[:, :, :64]
    with pytest.warns(UserWarning, match="reads element by element"):
        out = kernel(q, k, v)
    right = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double(), scale=0.125)
    assert (out.double() - right).abs().max() / right.abs().max() < TOLERANCE["f16"]
    target = torch.full((2, 64, 70), float("nan"), device="cuda", dtype=torch.float16).transpose(1, 2)
    kernel(q, k, v, out=target)
    assert torch.equal(out, target)


@needs_gpu
def test_heads_that_are_parts_of_larger_ones():
    """Rows of 33 elements from any one on, of 35 elements and of 1 · 33: in place, no byte of them from elsewhere."""
    torch = pytest.importorskip("torch")
    kernel = compile(Attention(170, 90, 33, 33, batch=(2,), scale=0.125, element="f16").text(), target="nvidia")
    q = torch.randn(2, 170, 35, device="cuda", dtype=torch.float16)[:, :, 1:34]
    k = torch.randn(2 * 90 * 33 + 1, device="cuda", dtype=torch.float16)[1:].view(2, 90, 33)
    v = torch.randn(90, 4, 33, device="cuda", dtype=torch.float16).transpose(0, 1)[1:3]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        out = kernel(q, k, v)
    right = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double(), scale=0.125)
    assert (out.double() - right).abs().max() / right.abs().max() < TOLERANCE["f16"]


@needs_gpu
def test_biases_that_are_parts_of_larger_ones():
    """Rows of an odd stride from any element on, for all heads of an entry, in place."""
    torch = pytest.importorskip("torch")
    b, h, m, k = 2, 3, 150, 201
    case = Attention(m, k, 64, 64, batch=(b, h), scale=0.125, element="f16", bias="bmk", bias_element="f16")
    kernel = compile(case.text(), target="nvidia")
    q, keys, v = (torch.randn(b, h, n, 64, device="cuda", dtype=torch.float16) for n in (m, k, k))
    whole = torch.randn(b, h, 333, 335, device="cuda", dtype=torch.float16)
    for bias in (whole[:, :, 7 : 7 + m, 11 : 11 + k], whole[:1, :, :m, 1 : 1 + k].expand(b, h, m, k)):
        right = torch.nn.functional.scaled_dot_product_attention(
            q.double(), keys.double(), v.double(), attn_mask=bias.double(), scale=0.125
        )
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            out = kernel(q, keys, v, bias)
        assert (out.double() - right).abs().max() / right.abs().max() < TOLERANCE["f16"]


# What the maximum of the first tile of keys tells nothing of: scores far from 0, and one that outweighs each other one.
FAR = {
    "causal_rows_without_keys_in_it": (
        Graph(batch=32, heads=8, queries=256, keys=256, head_size=256, window=(None, 0)),
        -50,
    ),
    "causal": (Graph(batch=32, heads=8, queries=384, keys=384, head_size=64, window=(None, 0)), -50),
    "causal_up": (Graph(batch=32, heads=8, queries=384, keys=384, head_size=64, window=(None, 0)), 50),
    "softcap": (Graph(batch=32, heads=8, queries=300, keys=300, softcap=60.0, window=(None, 0)), -50),
    "masked_first_tile": (Graph(batch=32, heads=8, queries=256, keys=384, mask="bk"), -50),
    "one_above_all": (Graph(batch=16, heads=16, queries=256, keys=16384), 0),
    "one_above_all_last": (Graph(batch=16, heads=16, queries=256, keys=16384), 1),
}


@needs_gpu
@pytest.mark.parametrize("element", ["f16", "bf16"])
@pytest.mark.parametrize("name", FAR)
def test_scores_far_from_those_of_the_first_tile(name, element):
    """Probabilities of f16 below 2^-24 are 0: sums are right only if that is seen."""
    torch = pytest.importorskip("torch")
    graph, level = FAR[name]
    graph = dataclasses.replace(graph, element=element)
    b, h, m, n, d = graph.batch, graph.heads, graph.queries, graph.keys, graph.head_size
    kind = {"f16": torch.float16, "bf16": torch.bfloat16}[element]
    generator = torch.Generator("cuda").manual_seed(0)
    q, k, v = (torch.randn(b, h, s, d, device="cuda", generator=generator) for s in (m, n, n))
    q[..., 0] = 1.0
    if name.startswith("one_above_all"):
        # Of others each has 2^-17.5 of its weight, and all together a twelfth.
        q[..., 1:], k[...] = 0.0, 0.0
        k[:, :, -1 if level else 0, 0] = 17.5 * math.log(2) / graph.factor
        v += 1.0
    else:
        k[..., 0] = level / graph.factor
    q, k, v = (x.to(kind) for x in (q, k, v))
    masks = []
    if graph.mask:
        mask = torch.ones(b, 1, 1, n, dtype=torch.bool, device="cuda")
        mask[..., :200] = False
        masks.append(mask)
    out = compile(graph.text(), target="nvidia")(q, k, v, *masks)
    for entry in range(b):  # the scores of all would take 8 GB
        scores = q[entry].double() @ k[entry].double().transpose(-1, -2) * graph.factor
        if graph.softcap:
            scores = graph.softcap * torch.tanh(scores / graph.softcap)
        if graph.window == (None, 0):
            scores.masked_fill_(torch.ones(m, n, dtype=torch.bool, device="cuda").triu(1), -math.inf)
        for mask in masks:
            scores.masked_fill_(~mask[entry], -math.inf)
        right = torch.softmax(scores, -1) @ v[entry].double()
        assert (out[entry].double() - right).abs().max() / right.abs().max() < TOLERANCE[element]


GRAPHS = {
    "heads_in_groups": Graph(batch=2, heads=8, heads_kv=2, queries=70, keys=90, element="f16", window=(None, 20)),
    "alibi": Graph(heads=6, queries=130, keys=130, element="bf16", alibi=True),
    "bshd": Graph(batch=2, heads=3, queries=70, keys=90, element="f16", input_layout="bshd", output_layout="bshd"),
    "values_transposed": Graph(heads=3, queries=70, keys=96, element="f16", values_transposed=True),
    "f32_heads_in_groups": Graph(heads=4, heads_kv=2, queries=70, keys=90, element="f32", softcap=3.0),
    "bias_window": Graph(heads=2, queries=200, keys=300, element="f16", bias="hqk", window=(-50, 10)),
    "lengths": Graph(batch=3, heads=2, queries=70, keys=90, element="f16", lengths=(5, 90, 0)),
    "one_length": Graph(batch=2, heads=2, queries=1, keys=300, element="bf16", lengths=(77, 300)),
    "dynamic": Graph(batch=2, heads=2, queries=120, keys=200, element="f16", dynamic=True, window=(None, 5)),
    "softcap_window": Graph(batch=2, heads=2, queries=700, keys=704, element="bf16", softcap=30.0, window=(-300, 0)),
    "softcap_open": Graph(
        batch=2, heads=3, queries=500, keys=501, element="f16", softcap=30.0, window=(None, 1), dynamic=True
    ),
    "softcap_wide": Graph(heads=3, queries=500, keys=501, head_size=96, element="f16", softcap=30.0, window=(None, 1)),
    "window_wide": Graph(heads=3, queries=900, keys=905, head_size=128, element="bf16", window=(-200, 30)),
    "packed": Graph(batch=2, heads=2, queries=90, keys=90, element="f16", packed="3hd", input_layout="bshd"),
    "packed_by_head": Graph(batch=2, heads=2, queries=90, keys=90, element="f16", packed="h3d", input_layout="bshd"),
    "packed_by_head_of_one": Graph(  # element a head: no dimension of the memory
        batch=2, heads=2, queries=257, keys=257, head_size=1, element="f16", packed="h3d", input_layout="bshd"
    ),
    "packed_unaligned": Graph(  # rows are aligned to 16 bytes, heads in them to 8
        batch=2, heads=2, queries=90, keys=90, head_size=36, element="f16", packed="3hd", input_layout="bshd"
    ),
    "packed_odd": Graph(
        batch=2, heads=3, queries=90, keys=90, head_size=33, element="f16", packed="3hd", input_layout="bshd"
    ),
    "odd": Graph(batch=3, heads=4, heads_kv=2, queries=300, keys=301, head_size=33, element="f16", input_layout="bshd"),
    "odd_lengths": Graph(batch=3, heads=2, queries=270, keys=290, head_size=33, element="f16", lengths=(5, 290, 0)),
    "odd_groups": Graph(
        heads=2, queries=320, keys=400, head_size=20, element="f16", groups=((120, 250), (200, 150)), window=(None, 0)
    ),
    "odd_values_transposed": Graph(
        batch=2, heads=3, queries=200, keys=301, element="f16", values_transposed=True, dynamic=True
    ),
    "odd_bias": Graph(batch=2, heads=3, queries=200, keys=301, head_size=36, element="f16", bias="hqk", dynamic=True),
    "groups": Graph(heads=2, queries=120, keys=200, element="f16", groups=((20, 50), (100, 150)), window=(None, 0)),
    "mask": Graph(batch=2, heads=2, queries=70, keys=90, element="f16", mask="qk"),
    "bias_shared": Graph(batch=2, heads=3, queries=700, keys=704, element="f16", bias="qk"),
    "bias_shared_causal": Graph(batch=2, heads=3, queries=700, keys=704, element="f16", bias="qk", window=(None, 0)),
    "bias_of_heads": Graph(batch=3, heads=2, queries=700, keys=704, element="bf16", bias="hqk", window=(None, 0)),
    "bias_of_batch": Graph(batch=2, heads=3, queries=700, keys=704, element="bf16", bias="bqk", window=(-300, 0)),
    "bias_of_all": Graph(batch=2, heads=3, queries=300, keys=304, head_size=128, element="bf16", bias="bhqk"),
    "mask_of_batch": Graph(batch=2, heads=3, queries=300, keys=304, element="f16", mask="bqk"),
    # Tiles of 256 queries; of 192.
    "bias_of_many": Graph(batch=8, heads=9, queries=500, keys=304, element="bf16", bias="qk"),
    "bias_of_many_causal": Graph(heads=9, queries=4096, keys=256, element="f16", bias="qk", window=(None, 0)),
    "mask_of_many": Graph(batch=8, heads=9, queries=500, keys=304, element="f16", mask="bqk"),
    "mask_of_many_causal": Graph(heads=9, queries=4096, keys=256, element="bf16", mask="bqk", window=(None, 0)),
    "softcap": Graph(heads=70, queries=500, keys=300, element="f16", softcap=20.0),
    "softcap_causal": Graph(heads=17, queries=2048, keys=530, element="bf16", softcap=20.0, window=(None, 0)),
    "causal": Graph(heads=17, queries=2048, keys=700, element="f16", window=(None, 0)),
    "softcap_d128": Graph(heads=3, queries=380, keys=333, head_size=128, element="f16", softcap=20.0),
    "mask_of_keys": Graph(batch=2, heads=3, queries=300, keys=304, element="f16", mask="bk"),
    "bias_in_groups": Graph(
        batch=2, heads=8, heads_kv=2, queries=300, keys=304, element="f16", bias="hqk", window=(None, 0)
    ),
}

# What is decoded, and statistics, with and without keys split into parts.
SPLIT = {
    "one_query": Graph(batch=2, heads=3, queries=1, keys=700, head_size=128, element="bf16"),
    "group": Graph(batch=2, heads=8, heads_kv=2, queries=1, keys=1000, head_size=128, element="bf16", lse=True),
    "window": Graph(heads=2, queries=70, keys=500, element="f16", window=(None, 300), lse=True),
    "masked_rows": Graph(heads=2, queries=70, keys=500, element="f16", window=(-60, -10), lse=True),
    "bias": Graph(heads=2, queries=100, keys=333, element="f16", bias="hqk", softcap=5.0),
    "f32": Graph(heads=2, queries=20, keys=300, element="f32", lse=True),
    "bshd": Graph(heads=4, heads_kv=2, queries=1, keys=300, element="f16", input_layout="bshd", output_layout="bshd"),
    "dynamic": Graph(batch=2, heads=2, queries=90, keys=300, element="f16", dynamic=True, lse=True),
    # Parts without a key at the mask's edge: nothing is read behind the last one (memcheck).
    "causal": Graph(heads=8, heads_kv=2, queries=1024, keys=1024, head_size=128, element="f16", window=(None, 0)),
    "more_queries": Graph(heads=2, queries=320, keys=192, head_size=128, element="f16", window=(None, 0)),
    "more_queries_f32": Graph(heads=2, queries=320, keys=192, element="f32", window=(None, 0), bottom_right=True),
}


@pytest.mark.parametrize(("name", "parts", "arch"), crossed(list(SPLIT), [1, 4], ["sm_80", "sm_90a"]))
def test_split_keys(name, parts, arch, request):
    graph = SPLIT[name]
    kernel = compile(graph.text(), target="nvidia", arch=arch, split_keys=parts)
    assert kernel.ir("ptx").count(".entry") == (1 if parts == 1 else 2)
    if not have_gpu():
        return
    request.getfixturevalue("poisoned")
    inputs = graph.inputs()
    output, lse = graph.reference(inputs)
    found = kernel(*inputs)
    if graph.lse:
        found, found_lse = found
        np.testing.assert_allclose(np.asarray(found_lse, np.float64), lse, rtol=1e-3, atol=2e-3)
    found = graph.canonical_output(np.asarray(found, np.float64))
    assert np.abs(found - output).max() / np.abs(output).max() < TOLERANCE[graph.element]


def quick(names: list[str]) -> list:
    """All of them where there is a GPU; without one, where they are only compiled, the most part is slow."""
    return [n if have_gpu() or i % 3 == 0 else pytest.param(n, marks=pytest.mark.slow) for i, n in enumerate(names)]


@pytest.mark.parametrize("name", quick(list(GRAPHS)))
def test_graphs(name, request):
    graph = GRAPHS[name]
    kernel = compile(graph.text(), target="nvidia", arch=None if have_gpu() else "sm_90a", split_keys=1)
    if not have_gpu():
        return
    request.getfixturevalue("poisoned")
    inputs = graph.inputs()
    right, _ = graph.reference(inputs)
    found = graph.canonical_output(np.asarray(kernel(*inputs)))
    assert np.abs(found - right).max() / np.abs(right).max() < TOLERANCE[graph.element]


def surrounded() -> str:
    """Attention whose queries are made by a matmul, and whose output goes through another one, a bias and a sum."""
    text = Attention(70, 90, 64, 64, element="f16", out="f32", scale=0.125).text()
    text = text.replace("%q: tensor<2x70x64xf16>", "%x: tensor<2x70x32xf16>, %wq: tensor<32x64xf16>")
    text = text.replace(
        "%v: tensor<2x90x64xf16>)", "%v: tensor<2x90x64xf16>, %wo: tensor<64x5xf32>, %b: tensor<5xf32>)"
    )
    text = text.replace(
        "-> tensor<2x70x64xf32> {\n",
        """-> (tensor<2x70x5xf32>, tensor<2x70xf32>) {
%qz = arith.constant 0.0 : f16
%qe = tensor.empty() : tensor<2x70x64xf16>
%q0 = linalg.fill ins(%qz : f16) outs(%qe : tensor<2x70x64xf16>) -> tensor<2x70x64xf16>
%q = linalg.generic {indexing_maps = [affine_map<(b, m, n, k) -> (b, m, k)>, affine_map<(b, m, n, k) -> (k, n)>,
    affine_map<(b, m, n, k) -> (b, m, n)>], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
    ins(%x, %wq : tensor<2x70x32xf16>, tensor<32x64xf16>) outs(%q0 : tensor<2x70x64xf16>) {
  ^bb0(%a: f16, %w: f16, %acc: f16):
    %product = arith.mulf %a, %w : f16
    %sum = arith.addf %acc, %product : f16
    linalg.yield %sum : f16
} -> tensor<2x70x64xf16>
""",
        1,
    )
    return text.replace(
        "return %o : tensor<2x70x64xf32>",
        """%ye = tensor.empty() : tensor<2x70x5xf32>
%y0 = linalg.generic {indexing_maps = [affine_map<(b, m, n) -> (n)>, affine_map<(b, m, n) -> (b, m, n)>],
    iterator_types = ["parallel", "parallel", "parallel"]} ins(%b : tensor<5xf32>) outs(%ye : tensor<2x70x5xf32>) {
  ^bb0(%c: f32, %old: f32):
    linalg.yield %c : f32
} -> tensor<2x70x5xf32>
%y = linalg.generic {indexing_maps = [affine_map<(b, m, n, k) -> (b, m, k)>, affine_map<(b, m, n, k) -> (k, n)>,
    affine_map<(b, m, n, k) -> (b, m, n)>], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
    ins(%o, %wo : tensor<2x70x64xf32>, tensor<64x5xf32>) outs(%y0 : tensor<2x70x5xf32>) {
  ^bb0(%a: f32, %w: f32, %acc: f32):
    %product = arith.mulf %a, %w : f32
    %sum = arith.addf %acc, %product : f32
    linalg.yield %sum : f32
} -> tensor<2x70x5xf32>
%re = tensor.empty() : tensor<2x70xf32>
%r0 = linalg.fill ins(%zero : f32) outs(%re : tensor<2x70xf32>) -> tensor<2x70xf32>
%r = linalg.generic {indexing_maps = [affine_map<(b, m, n) -> (b, m, n)>, affine_map<(b, m, n) -> (b, m)>],
    iterator_types = ["parallel", "parallel", "reduction"]} ins(%y : tensor<2x70x5xf32>) outs(%r0 : tensor<2x70xf32>) {
  ^bb0(%a: f32, %acc: f32):
    %sum = arith.addf %acc, %a : f32
    linalg.yield %sum : f32
} -> tensor<2x70xf32>
return %y, %r : tensor<2x70x5xf32>, tensor<2x70xf32>""",
    )


def test_other_ops_around_attention(request):
    kernel = compile(surrounded(), target="nvidia", arch=None if have_gpu() else "sm_90a", split_keys=1)
    assert sum(step.kind == "launch" for step in kernel._runtime.image.program.steps) >= 4
    if not have_gpu():
        return
    request.getfixturevalue("poisoned")
    module = load_text(surrounded(), "case")
    signature = Signature.of(find_entry(module, None))
    inputs = signature.bind(arrays.random(signature, {}, 1))
    expected, _ = checking.reference(module, signature.name, inputs)
    for found, right in zip(kernel(*inputs), expected, strict=True):
        assert checking.errors(found, right)[1] < TOLERANCE["f16"]


def with_constants() -> str:
    """Attention whose queries are scaled by a table and moved by a number, and whose probabilities are not rounded."""
    text = Attention(70, 90, 64, 64, element="f16", out="f32", scale=0.125).text()
    text = text.replace("%q: tensor<2x70x64xf16>", "%x: tensor<1x70x64xf16>")
    text = re.sub(r"%pn_e = .*?-> tensor<2x70x90xf16>$", "", text, flags=re.DOTALL | re.MULTILINE)
    text = text.replace("ins(%pn, %v : tensor<2x70x90xf16>", "ins(%sm#0, %v : tensor<2x70x90xf32>")
    head, matmul = text.split("ins(%sm#0, %v", 1)
    matmul = matmul.replace("^bb0(%x0: f16", "^bb0(%x0: f32", 1).replace("%p = arith.extf %x0 : f16 to f32\n", "", 1)
    text = f"{head}ins(%sm#0, %v{matmul.replace('mulf %p,', 'mulf %x0,', 1)}"
    made = """{
%table = arith.constant dense<[0.5, 1.5]> : tensor<2xf16>
%same = arith.constant dense<0.25> : tensor<64xf16>
%qe = tensor.empty() : tensor<2x70x64xf16>
%q = linalg.generic {indexing_maps = [affine_map<(b, m, d) -> (0, m, d)>, affine_map<(b, m, d) -> (b)>,
    affine_map<(b, m, d) -> (d)>, affine_map<(b, m, d) -> (b, m, d)>],
    iterator_types = ["parallel", "parallel", "parallel"]}
    ins(%x, %table, %same : tensor<1x70x64xf16>, tensor<2xf16>, tensor<64xf16>) outs(%qe : tensor<2x70x64xf16>) {
  ^bb0(%a: f16, %t: f16, %c: f16, %old: f16):
    %wide = arith.extf %a : f16 to f32
    %factor = arith.extf %t : f16 to f32
    %more = arith.extf %c : f16 to f32
    %product = arith.mulf %wide, %factor : f32
    %sum = arith.addf %product, %more : f32
    %n = arith.truncf %sum : f32 to f16
    linalg.yield %n : f16
} -> tensor<2x70x64xf16>
"""
    return text.replace("{\n", made, 1)


def test_constants_and_probabilities_of_f32(request):
    kernel = compile(with_constants(), target="nvidia", arch=None if have_gpu() else "sm_90a", split_keys=1)
    assert "xf32>, tensor<2x90x64xf16>)" in kernel.ir("raised")  # the second matmul
    if not have_gpu():
        return
    request.getfixturevalue("poisoned")
    module = load_text(with_constants(), "case")
    signature = Signature.of(find_entry(module, None))
    inputs = signature.bind(arrays.random(signature, {}, 1))
    (expected,), _ = checking.reference(module, signature.name, inputs)
    assert checking.errors(kernel(*inputs), expected)[1] < TOLERANCE["f16"]


@needs_gpu
@pytest.mark.parametrize("name", ["d64", "causal", "dynamic", "pages"])
def test_host_code(name):
    inputs, expected = inputs_of(CASES[name], 3)
    kernel = compile(CASES[name].text(), target="nvidia")
    (out,) = kernel.on_host().run(inputs)
    np.testing.assert_array_equal(out.view(np.uint8), np.asarray(kernel(*inputs)).view(np.uint8))
    assert checking.errors(out, expected)[1] < TOLERANCE["bf16"]


def cached(length: str, d: int = 64) -> str:
    """Keys and values are a part of a cache, as long as an argument says; the number of queries is open."""
    text = Attention(1, 512, d, d, dynamic=True, element="f16", scale=0.125).text()
    part = f"[0, 0, 0] [2, %len, {d}] [1, 1, 1] : tensor<2x512x{d}xf16> to tensor<2x?x{d}xf16>"
    read = ""
    if length == "tensor<i32>":
        read = "%l32 = tensor.extract %length[] : tensor<i32>\n%len = arith.index_cast %l32 : i32 to index\n"
    slices = f"%k = tensor.extract_slice %kc{part}\n%v = tensor.extract_slice %vc{part}\n"
    name = "%length" if read else "%len"
    arguments = f"%kc: tensor<2x512x{d}xf16>, %vc: tensor<2x512x{d}xf16>, {name}: {length}"
    head = f"%k: tensor<2x?x{d}xf16>, %v: tensor<2x?x{d}xf16>"
    return text.replace(head, arguments).replace("{\n", f"{{\n{read}{slices}", 1)


@pytest.mark.parametrize("length", ["index", "tensor<i32>"])
def test_length_of_a_cache_is_a_kernels_parameter(length):
    kernel = compile(cached(length), target="nvidia", arch="sm_80")
    assert kernel._runtime.image.program.sizing() == {0}


@needs_gpu
@pytest.mark.parametrize("length", ["index", "tensor<i32>"])
@pytest.mark.parametrize(("m", "d"), [(1, 64), (70, 33), (70, 36)])
def test_cache_with_a_current_length(m, d, length, poisoned):
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal(s).astype(np.float16) for s in ((2, m, d), (2, 512, d), (2, 512, d)))
    kernel = compile(cached(length, d), target="nvidia")
    for n in (1, 63, 64, 65, 512):
        out = kernel(q, k, v, n if length == "index" else np.array(n, np.int32))
        scores = 0.125 * q.astype(np.float64) @ k[:, :n].astype(np.float64).transpose(0, 2, 1)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        right = p / p.sum(-1, keepdims=True) @ v[:, :n].astype(np.float64)
        assert np.abs(out - right).max() / np.abs(right).max() < TOLERANCE["f16"]


@needs_gpu
@pytest.mark.parametrize("d", [64, 33])
def test_cuda_graph_and_streams(d):
    torch = pytest.importorskip("torch")
    kernel = compile(Attention(128, 192, d, d, batch=(2,), scale=0.125, element="f16").text(), target="nvidia")
    q, k, v = (torch.randn(2, s, d, device="cuda", dtype=torch.float16) for s in (128, 192, 192))
    out = torch.zeros_like(q)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):  # also the first call, which loads the code
        given = kernel(q, k, v, out=out)
        made = kernel(q, k, v)
    assert given is out and not out.any()
    graph.replay()
    right = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double(), scale=0.125)
    for found in (out, made):
        assert (found.double() - right).abs().max() / right.abs().max() < TOLERANCE["f16"]
    q.copy_(torch.randn_like(q))
    graph.replay()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        again = kernel(q, k, v)
    torch.cuda.synchronize()
    assert torch.equal(again, out)


@needs_gpu
@pytest.mark.parametrize("name", ["cupy", "jax"])
def test_arrays_of_other_libraries(name):
    library = pytest.importorskip(name)
    kernel = compile(Attention(70, 90, 64, 64, batch=(2,), scale=0.125, element="f16").text(), target="nvidia")
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, s, 64)).astype(np.float16) for s in (70, 90, 90))
    asarray = library.asarray if name == "cupy" else library.numpy.asarray
    out = kernel(*map(asarray, (q, k, v)))
    assert isinstance(out, library.ndarray if name == "cupy" else library.Array)
    found = library.asnumpy(out) if name == "cupy" else np.asarray(out + 0)
    np.testing.assert_array_equal(found, kernel(q, k, v))
    for _ in range(20):  # memory comes and goes
        out = kernel(*map(asarray, (q, k, v)))
    np.testing.assert_array_equal(library.asnumpy(out) if name == "cupy" else np.asarray(out), found)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_compiles_anywhere(name):
    for arch in ("sm_90a", "sm_80"):
        code = compile(CASES[name].text(), target="nvidia", arch=arch).ir("ptx")
        assert f".target {arch}" in code
        assembled = ptx.assemble(code, arch)  # where there is a ptxas
        assert assembled is None or not assembled.warnings

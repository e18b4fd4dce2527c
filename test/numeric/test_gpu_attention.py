"""Attention on an NVIDIA GPU against float64: features, odd sizes, types. Without a GPU only compiled."""

import dataclasses
import itertools

import numpy as np
import pytest
from attn_opt.compiler import compile
from attn_opt.compiler.runtime import cuda_driver, ptx
from attn_opt.compiler.runtime.signature import Signature
from attn_opt.compiler.sources import find_entry, load_text
from attn_opt.compiler.tools import arrays, checking
from gpu import TOLERANCE, needs_gpu
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


@pytest.mark.sampled(5)
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
@pytest.mark.parametrize("name", ["d64", "causal", "dynamic", "pages"])
def test_host_code(name):
    inputs, expected = inputs_of(CASES[name], 3)
    kernel = compile(CASES[name].text(), target="nvidia")
    (out,) = kernel.on_host().run(inputs)
    np.testing.assert_array_equal(out.view(np.uint8), np.asarray(kernel(*inputs)).view(np.uint8))
    assert checking.errors(out, expected)[1] < TOLERANCE["bf16"]


@pytest.mark.slow
@pytest.mark.parametrize("name, arch", zip(CASES, itertools.cycle(["sm_90a", "sm_80"]), strict=False))
def test_compiles_anywhere(name, arch):
    """For one of the two in turn: it takes seconds, and what needs a GPU compiles all for both."""
    code = compile(CASES[name].text(), target="nvidia", arch=arch).ir("ptx")
    assert f".target {arch}" in code
    assembled = ptx.assemble(code, arch)  # where there is a ptxas
    assert assembled is None or not assembled.warnings

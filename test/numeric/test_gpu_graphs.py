"""Graphs on an NVIDIA GPU against float64: what stands around attention, split keys, far scores. Without a GPU only
compiled."""

import dataclasses
import math
import re

import numpy as np
import pytest
from attn_opt.compiler import compile
from attn_opt.compiler.graphs import Attention as Graph
from attn_opt.compiler.runtime.signature import Signature
from attn_opt.compiler.sources import find_entry, load_text
from attn_opt.compiler.tools import arrays, checking
from gpu import TOLERANCE, have_gpu, needs_gpu
from gpu import poisoned as poisoned
from harness import crossed
from narrow_attention import NarrowAttention as Attention

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


@pytest.mark.sampled(6)
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


@pytest.mark.sampled(30)
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

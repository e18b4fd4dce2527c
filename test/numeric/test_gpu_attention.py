"""Attention on an NVIDIA GPU against float64: features, odd sizes, strides. Without a GPU only compiled."""

import ctypes

import numpy as np
import pytest
from attn_opt.compiler import compile
from attn_opt.compiler.api import Signature, find_entry, load_text
from attn_opt.compiler.runtime import cuda_driver
from attn_opt.compiler.tools import arrays, checking
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
}

TOLERANCE = {"f16": 5e-3, "bf16": 2e-2}


def have_gpu() -> bool:
    try:
        return cuda_driver.device_arch() != ""
    except cuda_driver.CudaError:
        return False


needs_gpu = pytest.mark.skipif(not have_gpu(), reason="no NVIDIA GPU")


@pytest.fixture
def poisoned(monkeypatch):
    """Results start as NaN: what is not written shows."""
    plain = cuda_driver.Driver.allocate

    def allocate(self, size):
        pointer = plain(self, size)
        self.call("cuMemsetD8_v2", ctypes.c_uint64(pointer), 0xFF, ctypes.c_size_t(size))
        return pointer

    monkeypatch.setattr(cuda_driver.Driver, "allocate", allocate)


def inputs_of(case: Attention, seed: int):
    module = load_text(case.text(), "case")
    signature = Signature.of(find_entry(module, None))
    sizes = {(0, len(case.batch)): case.m, (1, len(case.batch)): case.k} if case.dynamic else {}
    inputs = signature.bind(arrays.random(signature, sizes, seed))
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


@needs_gpu
@pytest.mark.parametrize("layout", ["bhsd", "bshd", "packed"])
def test_torch_tensors_in_place(layout):
    torch = pytest.importorskip("torch")
    b, h, s, d = 2, 3, 200, 64
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


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_compiles_anywhere(name):
    for arch in ("sm_90a", "sm_80"):
        assert f".target {arch}" in compile(CASES[name].text(), target="nvidia", arch=arch).ir("ptx")

"""Arrays that kernels on an NVIDIA GPU take as they are: tensors of torch and others, views, caches, streams."""

import warnings

import numpy as np
import pytest
from attn_opt.compiler import compile
from gpu import TOLERANCE, needs_gpu
from gpu import poisoned as poisoned
from narrow_attention import NarrowAttention as Attention


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
    q = torch.randn(2, 70, 128, device="cuda", dtype=torch.float16)[:, :, ::2]
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
@pytest.mark.parametrize("moved", [(0,), (1,), (2,), (0, 1, 2)], ids=str)
@pytest.mark.parametrize("queries, keys", [(70, 90), (200, 333), (256, 1024)])
def test_tensors_whose_rows_are_another_dimension(moved, queries, keys):
    torch = pytest.importorskip("torch")
    kernel = compile(Attention(queries, keys, 64, 64, batch=(2, 3), scale=0.125, element="f16").text(), target="nvidia")
    given = [torch.randn(2, 3, n, 64, device="cuda", dtype=torch.float16) for n in (queries, keys, keys)]
    for i in moved:
        given[i] = given[i].transpose(2, 3).contiguous().transpose(2, 3)
    with warnings.catch_warnings():
        if not any(x.shape[2] % 8 for x in given):
            warnings.simplefilter("error")
        out = kernel(*given)
    right = torch.nn.functional.scaled_dot_product_attention(*(x.double() for x in given), scale=0.125)
    assert (out.double() - right).abs().max() / right.abs().max() < TOLERANCE["f16"]


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


@pytest.mark.sampled(2)
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

"""Calls of kernels that were traced from torch: what arguments may be, and what comes back."""

import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra attn_opt[torch]")

import torch.nn.functional as F  # noqa: E402
from attn_opt.compiler import CompileError, compile  # noqa: E402
from attn_opt.compiler.frontends.torch.arguments import Arguments  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.autograd import forward_ad  # noqa: E402
from torch_harness import SHAPES, check, close, sdpa, tensors, wide  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")


def test_tangents_are_refused():
    (q,) = tensors((2, 3, 5, 8))
    kernel = compile(lambda x: x * 2, (q,))
    with forward_ad.dual_level(), pytest.raises(CompileError, match="has a tangent of forward-mode differentiation"):
        kernel(forward_ad.make_dual(q, q))


def test_arguments_and_results_keep_their_structure():
    def function(inputs, *, scale):
        q, k = inputs["q"], inputs["k"]
        return {"out": (q @ k.mT * scale).softmax(-1) @ k, "sum": (q + 1,)}

    q, k = tensors((9, 8), (13, 8))
    kernel = compile(function, ({"q": q, "k": k},), example_kwargs={"scale": torch.tensor(0.3)})
    found = kernel({"q": q, "k": k}, scale=torch.tensor(0.5))
    close(found["out"], (q.double() @ k.double().mT * 0.5).softmax(-1) @ k.double())
    close(found["sum"][0], q.double() + 1)


def test_arguments_that_were_one_tensor():
    """torch.export would take them to be one in every call."""
    layer = torch.nn.Linear(8, 8, bias=False)
    (x,) = tensors((3, 8))
    other, third = x + 1, x - 1
    with torch.no_grad():
        close(compile(lambda a, b: a @ b.T, (x, x))(x, other), x.double() @ other.double().T)
        found = compile(lambda a, b: layer(a) - a @ b[0].T, (x, [layer.weight]))(x, [torch.ones(8, 8)])
        close(found, (layer(x) - x @ torch.ones(8, 8)).double())
        pair = compile(lambda d, b: d["a"] - b, ({"a": x}, x))({"a": other}, third)
        close(pair, torch.full((3, 8), 2.0, dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_views_are_read_where_they_stand(dtype):
    (packed,) = tensors((2, 70, 3, 4, 32), dtype=dtype)
    args = packed.permute(2, 0, 3, 1, 4).unbind(0)
    kernel = compile(sdpa(), args)
    arrays = kernel.program.arguments(args)
    assert all(np.shares_memory(a, wide_view(packed)) for a in arrays)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = kernel(*args)
        last = kernel(*args[:2], args[2].mT.contiguous().mT)
    expected = sdpa()(*(a.double() for a in args))
    close(found, expected, dtype)
    close(last, expected, dtype)


def wide_view(tensor):
    return tensor.view(torch.int16 if tensor.dtype is torch.bfloat16 else tensor.dtype).numpy()


def test_parameters_may_change_and_move():
    layer = torch.nn.Linear(8, 16).eval()
    (x,) = tensors((3, 8))
    with torch.no_grad():
        kernel = compile(layer, (x,))
        for change in (
            lambda: layer.weight.mul_(2),
            lambda: setattr(layer.weight, "data", torch.ones(16, 8)),
            lambda: setattr(layer.weight, "data", torch.randn(8, 16).t()),
            lambda: setattr(layer.bias, "data", layer.bias.data.flip(0)),
        ):
            close(kernel(x), layer(x).double())
            change()
            close(kernel(x), layer(x).double())


def test_numpy_in_numpy_out():
    args = tensors(*SHAPES)
    kernel = compile(sdpa(), args)
    found = kernel(*(a.numpy() for a in args))
    assert isinstance(found, np.ndarray)
    np.testing.assert_allclose(found, kernel(*args).numpy())


def test_calls_that_do_not_fit():
    q, k, v = tensors(*SHAPES)
    kernel = compile(sdpa(), (q, k, v))
    for args, message in (
        ((q, k), "was traced for 3 arguments, but called with 2 arguments"),
        ((q, k, [v]), "was traced for 3 arguments in this structure"),
        ((q, k, v.double()), "must be"),
        ((q, k, v[:, :, 1:]), "must be"),
    ):
        with pytest.raises(CompileError, match=message):
            kernel(*args)


def test_names_that_do_not_fit():
    q, k, v = tensors(*SHAPES)
    with pytest.raises(CompileError, match="for 3 arguments, but called with 2 arguments and 'value' by name"):
        compile(sdpa(), (q, k, v))(q, k, value=v)


def test_constants_are_those_of_the_trace():
    """Numbers, flags and None are constants: what is called with others must not get the results of the first."""
    q, k, v = tensors(*SHAPES)

    def attention(q, k, v, scale, mask=None, causal=False):
        return F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, scale=scale)

    kernel = compile(attention, (q, k, v, 0.5), example_kwargs={"causal": True})
    close(kernel(q, k, v, 0.5, causal=True), attention(*map(wide, (q, k, v)), 0.5, causal=True))
    for scale, causal, message in (
        (0.5, False, "argument 4 was True when the function was traced, and is False now"),
        (0.25, True, "argument 3 was 0.5 when the function was traced, and is 0.25 now"),
        (q, True, "argument 3 was 0.5 when the function was traced, and is a tensor now"),
    ):
        with pytest.raises(CompileError, match=message):
            kernel(q, k, v, scale, causal=causal)


def test_tensors_without_elements_in_memory():
    """Each says what it is; only of what is on a device, how that is compiled for."""
    q, k, v = tensors(*SHAPES)
    kernel = compile(sdpa(), (q, k, v))
    for other in (q.to("meta"), q.to_sparse(), FakeTensorMode().from_tensor(q)):
        with pytest.raises(CompileError, match=r"argument .* (is|has) no ") as caught:
            kernel(other, k, v)
        assert "nvidia" not in str(caught.value)


@pytest.mark.parametrize("traced", [True, False])
def test_tensors_that_torch_transforms(traced):
    """torch.func's tensors stand for others: kernels are not called with them, and say what can be done instead."""
    q, k, v = tensors(*SHAPES)
    graph = "func.func @f(%x: tensor<3xf32>) -> tensor<3xf32> { return %x : tensor<3xf32> }"
    kernel = compile(lambda x: x * 2, (q,)) if traced else compile(graph)
    for call, message in (
        (lambda: torch.vmap(kernel)(q[None]), r"under torch\.vmap.*\n.*compile\(torch\.vmap\(fn\), args\)"),
        (lambda: torch.func.grad(lambda x: kernel(x).sum())(q), "where kernels have no derivative"),
        (lambda: torch.func.functionalize(kernel)(q), "torch.func transforms"),
        (lambda: torch.jit.trace(lambda x: kernel(x), (q,)), "would take the results of a kernel for constants"),
    ):
        with pytest.raises(CompileError, match=message):
            call()
    close(compile(torch.vmap(sdpa()), (q[None], k[None], v[None]))(q[None], k[None], v[None])[0], sdpa()(q, k, v))


@pytest.mark.parametrize(("taken", "put"), [(0, 0), (1, 1), (1, -1), (0, 2)])
def test_functions_that_map_along_any_dimension(taken, put):
    """torch.export cannot run one that puts its results elsewhere than first: dynamo reads it."""
    check(lambda q, k, v: torch.vmap(sdpa(), taken, put)(q, k, v), tensors((2, 2, 9, 8), (2, 2, 13, 8), (2, 2, 13, 5)))


@pytest.mark.parametrize("backend", ["eager", "attn_opt"])
def test_kernels_in_what_torch_compiles(backend):
    """A kernel is called as it is, between what is compiled before and after it."""
    q, k, v = tensors(*SHAPES)
    kernel = compile(sdpa(), (q, k, v))
    compiled = torch.compile(lambda q, k, v: kernel(q * 2, k, v) + 1, backend=backend)
    close(compiled(q, k, v), sdpa()(*map(wide, (q * 2, k, v))) + 1)


def test_a_cache_that_is_donated():
    class Step(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(tensors((8, 8))[0])

        def forward(self, q, cache, token):
            cache = torch.slice_scatter(cache, token @ self.weight, 1, 5, 6)
            return F.scaled_dot_product_attention(q, cache, cache), cache

    step, (q, cache, token) = Step(), tensors((2, 1, 8), (2, 9, 8), (2, 1, 8))
    with torch.no_grad():
        expected = step(q, cache, token)
        kernel = compile(step, (q, cache, token), donate=[1])
        given = cache.clone()
        for one, other in zip(kernel(q, given, token), expected, strict=True):
            torch.testing.assert_close(one, other)
        assert kernel(q, given, token)[1].data_ptr() == given.data_ptr()
        with pytest.raises(CompileError, match="donate: there is no argument 3 that is a tensor, and read"):
            compile(step, (q, cache, token), donate=[3])


def test_tensors_elsewhere_are_told_of():
    args = tensors(*SHAPES)
    kernel = compile(sdpa(), args)
    with pytest.raises(CompileError, match=r"argument 0, of type Tensor, is no array in .*: .* meta"):
        kernel(*(x.to("meta") for x in args))


@pytest.mark.parametrize("write", [lambda t: t.mul_(3), lambda t: setattr(t, "data", t * 3)])
def test_what_the_host_holds_is_copied_again_where_it_was_written_to(write):
    """To where the copy is, which a captured graph reads. (Another place on the host stands for a GPU.)"""
    tensor, on = torch.nn.Parameter(torch.ones(4)), torch.device("cpu")
    arguments = Arguments([tensor], [torch.float32])
    copy = arguments._moved(tensor, on)
    assert arguments._moved(tensor, on) is copy and copy.data_ptr() != tensor.data_ptr()
    with torch.no_grad():
        write(tensor)
    assert arguments._moved(tensor, on) is copy and not copy.requires_grad
    torch.testing.assert_close(copy, torch.full((4,), 3.0))

"""Functions of torch for a GPU, by a driver that notes down what is launched."""

import pytest

torch = pytest.importorskip("torch", reason="needs the extra attn_opt[torch]")

import torch.nn.functional as F  # noqa: E402
from attn_opt.compiler import compile  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch_harness import sdpa, tensors  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")


def test_a_function_for_the_gpu(gpu):
    args = tensors((2, 4, 200, 64), (2, 4, 200, 64), (2, 4, 200, 64), dtype=torch.float16)
    kernel = compile(sdpa(is_causal=True), args, target="nvidia")
    out = kernel(*args)
    assert out.shape == args[0].shape and out.dtype == torch.float16
    assert [launch.kernel for launch in gpu.launches] == ["main_0"], "the kernel rounds its output"
    assert kernel.ir("raised").count("linalg_ext.softmax") == 1


def test_gradients_through_a_kernel_for_the_gpu(gpu):
    """Row sums of what came times the output, queries' gradients, keys' and values'."""
    args = [x.requires_grad_() for x in tensors(*[(2, 4, 200, 64)] * 3, dtype=torch.float16)]
    with torch.enable_grad():
        out = compile(sdpa(is_causal=True), args, target="nvidia")(*args)
        assert len(gpu.launches) == 1
        out.backward(torch.ones_like(out))
    assert len(gpu.launches) == 4 and all(x.grad.shape == x.shape and x.grad.dtype == x.dtype for x in args)


def test_tiles_of_equal_sizes_for_the_gpu(gpu):
    """Transposes of queries, whose rows are rows, and of keys, whose rows are columns, go to tensors of one shape."""

    def packed(x):
        q, k, v = x.unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)

    args = tensors((2, 64, 3 * 2 * 64), dtype=torch.float16)
    kernel = compile(packed, args, target="nvidia")
    assert kernel(*args).shape == (2, 64, 128) and len(gpu.launches) == 1


@pytest.mark.parametrize("batch, queries", [(0, 20), (2, 0)])
def test_no_elements_for_the_gpu(batch, queries, gpu):
    args = tensors((batch, 3, queries, 16), (batch, 3, 20, 16), (batch, 3, 20, 16))
    out = compile(sdpa(), args, target="nvidia")(*args)
    assert out.shape == args[0].shape and out.dtype == torch.float32 and not gpu.launches
    sums = lambda q, k, v: (sdpa()(q, k, v), k.sum(0))  # noqa: E731
    out, total = compile(sums, args, target="nvidia")(*args)
    assert out.shape == args[0].shape and total.shape == args[1].shape[1:] and len(gpu.launches) == 1


def test_a_traced_graph_knows_no_devices():
    with FakeTensorMode():
        args = tuple(torch.empty(2, 4, 128, 64, device="cuda", dtype=torch.float16) for _ in range(3))
        kernel = compile(sdpa(is_causal=True), args, target="nvidia", arch="sm_90a")
    assert "wgmma" in kernel.ir("ptx")


def test_projections_beside_an_attention_of_one_tile():
    """One block cannot compute both: tokens are rows of queries' matmul, and columns of scores."""

    class OneHead(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = torch.nn.Linear(64, 192), torch.nn.Linear(64, 64)

        def forward(self, x):
            q, k, v = self.qkv(x).chunk(3, -1)
            return x + self.out(F.scaled_dot_product_attention(q, k, v))

    args = tensors((1, 64, 64), dtype=torch.float16)
    kernel = compile(OneHead().half().eval(), args, target="nvidia", arch="sm_90a")
    assert kernel.explain().count("tiled by") >= 3 and "no tile for one block" not in kernel.explain()


def test_projections_without_bias():
    """torch makes batches of them, with the weights repeated for each."""
    layer = torch.nn.Linear(256, 512, bias=False).half()
    for shape in ((1, 1, 256), (8, 1, 256), (4, 32, 256)):
        kernel = compile(layer, tensors(shape, dtype=torch.float16), target="nvidia", arch="sm_90a")
        assert "tiled by" in kernel.explain() and "wgmma" in kernel.ir("ptx")


@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("tokens", [4, 8, 20, 33])
def test_few_queries_that_are_projected(tokens, arch):
    """Heads that share keys are rows of one tile with their queries, which are columns of the projection."""

    def block(x, wq, wkv):
        heads = lambda t, h: t.unflatten(-1, (h, -1)).transpose(1, 2)  # noqa: E731
        k, v = (heads(t, 2) for t in (x @ wkv).chunk(2, -1))
        return F.scaled_dot_product_attention(heads(x @ wq, 4), k, v, enable_gqa=True, is_causal=True)

    args = tensors((2, tokens, 64), (64, 64), (64, 64), dtype=torch.float16)
    assert "mma" in compile(block, args, target="nvidia", arch=arch).ir("ptx")


@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("name", ["argument", "computed", "of positions"])
def test_one_vector_along_queries_and_keys(name, arch):
    """Of masks of segments, or chunks, in one tile: rows of it are not its columns."""

    def masked(q, k, v, c):
        c = {"argument": c, "computed": c * c, "of positions": torch.arange(64) // 16}[name]
        return F.scaled_dot_product_attention(q, k, v, attn_mask=c[:, None] == c)

    args = (*tensors(*[(2, 4, 64, 64)] * 3, dtype=torch.float16), torch.arange(64) % 5)
    assert "mma" in compile(masked, args, target="nvidia", arch=arch).ir("ptx")


TWICE = {
    "two attentions": lambda q, k, v: (
        F.scaled_dot_product_attention(q, k, v) + F.scaled_dot_product_attention(q, k, v, is_causal=True)
    ),
    "two values": lambda q, k, v: (p := (q @ k.mT / 8).softmax(-1)) @ v + p @ q,
    "a residual": lambda q, k, v: v + F.scaled_dot_product_attention(q, k, v),
}


@pytest.mark.parametrize("tokens", [20, 64, 200])
@pytest.mark.parametrize("name", TWICE)
def test_parts_of_a_projection_that_are_read_twice(name, tokens):
    """They stay views of it, whatever loops read them as well."""
    args = x, w = tensors((2, tokens, 64), (64, 192))
    function = lambda x, w: TWICE[name](*(x @ w / 8).chunk(3, -1))  # noqa: E731
    assert "mma" in compile(function, args, target="nvidia", arch="sm_90a").ir("ptx")
    right = function(x.double(), w.double())
    torch.testing.assert_close(compile(function, args)(x, w).double(), right, rtol=1e-4, atol=1e-4)


def test_norms_of_groups_of_channels():
    """Statistics of groups are one kernel, which reads a group once; what follows is computed by element with it."""

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.convolution = torch.nn.GroupNorm(4, 16), torch.nn.Conv2d(16, 16, 3, padding=1)

        def forward(self, x):
            return self.convolution(F.silu(self.norm(x)))

    (x,) = tensors((2, 16, 8, 8), dtype=torch.float16)
    ptx = compile(Block().half().eval(), (x,), target="nvidia", arch="sm_90a").ir("ptx")
    assert ptx.count(".entry main_rows") == 1
    assert ptx.count(".entry main_elements") == 2  # the norm, and the windows of the convolution


def test_a_mask_of_the_experts_that_are_chosen():
    """A scatter of few elements for each row is a choice for each element, no loop."""

    def masked(scores):
        chosen = torch.zeros_like(scores).scatter_(1, scores.topk(2).indices, 1)
        return scores.masked_fill(chosen == 0, -torch.inf).softmax(-1)

    kernel = compile(masked, tensors((16, 8)), target="nvidia", arch="sm_90a")
    assert "scf.for" not in kernel.ir("graph") and ".entry" in kernel.ir("ptx")


@pytest.mark.parametrize("dim", [0, 1])
def test_open_sizes_of_what_is_put_together(dim):
    """Of a part of queries and keys that positions turn: how many rows there are, slices and concatenations hand on."""

    def block(x, w):
        t = (x @ w).unflatten(-1, (4, 16)).transpose(1, 2)
        turned = torch.cat((-t[..., :4], t[..., 4:]), -1)
        return F.scaled_dot_product_attention(turned, turned, t).transpose(1, 2).flatten(2) @ w

    args = tensors((3, 32, 64), (64, 64), dtype=torch.float16)
    sizes = ({dim: torch.export.Dim("n", max=32)}, None)
    assert "wgmma" in compile(block, args, dynamic_shapes=sizes, target="nvidia", arch="sm_90a").ir("ptx")


def test_powers_of_two_types():
    """Of slopes, as BLOOM makes them: they are of the type that torch gives them, of which GPUs have the function."""

    def slopes(base, exponents):
        return torch.pow(base, exponents)

    args = torch.tensor(0.7), torch.arange(1, 5, dtype=torch.int32)
    torch.testing.assert_close(compile(slopes, args)(*args), slopes(*args))
    assert ".entry" in compile(slopes, args, target="nvidia", arch="sm_90a").ir("ptx")


@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("after", ["norm", "product"])
def test_sums_over_the_rows_of_one_tile(after, arch):
    """Of squares, or of products of elements: no product of matrices, whose rows would meet columns."""

    def attention(q, k, v):
        o = F.scaled_dot_product_attention(q, k, v)
        return F.rms_norm(o, o.shape[-1:]) if after == "norm" else o * (o * q).sum(-1, keepdim=True)

    args = tensors((1, 7, 16), (1, 33, 16), (1, 33, 16), dtype=torch.float16)
    assert compile(attention, args, target="nvidia", arch=arch).ir("ptx").count(".entry") == 1

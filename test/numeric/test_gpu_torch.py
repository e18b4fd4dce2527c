"""Functions and models of torch on an NVIDIA GPU: traced as a whole, and by torch.compile, against torch in float64."""

import copy
import math

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no NVIDIA GPU", allow_module_level=True)

from attn_opt.compiler import CompileError, compile, stats  # noqa: E402
from attn_opt.compiler.frontends import dynamo  # noqa: E402, F401
from attn_opt.compiler.graphs import Attention  # noqa: E402
from torch.nn import functional as F  # noqa: E402

TOLERANCE = {torch.float16: 5e-3, torch.bfloat16: 2e-2, torch.float32: 1e-5}


def tensors(*shapes, dtype=torch.float16):
    generator = torch.Generator("cuda").manual_seed(0)
    return tuple(torch.randn(s, device="cuda", generator=generator).to(dtype) for s in shapes)


def close(found, right, dtype):
    return (found.double() - right.double()).abs().max() / right.double().abs().max() < TOLERANCE[dtype]


def kernels():
    """How many were compiled, or taken from those that were."""
    return stats()["compiled"] + stats()["cache_hits"]


def causal(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def written_out(q, k, v):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    scores = 20 * torch.tanh(scores / 20)
    i, j = torch.arange(q.size(-2), device=q.device)[:, None], torch.arange(k.size(-2), device=q.device)
    return scores.masked_fill(i - j > 70, -math.inf).float().softmax(-1).to(v.dtype) @ v


def masked_by_a_number(q, k, v):
    i, j = torch.arange(q.size(-2), device=q.device)[:, None], torch.arange(k.size(-2), device=q.device)
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    return scores.masked_fill((j > i) | (j < i - 70), -65504).softmax(-1) @ v


def grouped(q, k, v):
    return F.scaled_dot_product_attention(q, k[:, :2], v[:, :2], enable_gqa=True)


def with_slopes(q, k, v):
    slopes = torch.tensor([0.5, 0.25, 0.125, 0.0625])  # held on the host
    distance = torch.arange(k.size(-2), device=q.device) - torch.arange(q.size(-2), device=q.device)[:, None]
    bias = slopes.to(q.device)[:, None, None] * distance
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias.to(q.dtype))


def normed_and_rotated(q, k, v):
    """As in Qwen 3: sums of rows, and what is made of halves of rows, before the loops."""

    def prepared(x):
        wide = x if x.dtype == torch.float64 else x.float()
        normed = (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype)
        places = torch.arange(x.size(-2), device=x.device, dtype=wide.dtype)[:, None]
        half = x.size(-1) // 2
        angles = places * 0.9 ** torch.arange(half, device=x.device)
        cos, sin = (f(torch.cat([angles, angles], -1)).to(x.dtype) for f in (torch.cos, torch.sin))
        return normed * cos + torch.cat([-normed[..., half:], normed[..., :half]], -1) * sin

    return F.scaled_dot_product_attention(prepared(q), prepared(k), v)


FUNCTIONS = [causal, written_out, masked_by_a_number, grouped, with_slopes, normed_and_rotated]


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_functions_are_traced_for_the_gpu(function, dtype):
    q, k, v = tensors((2, 4, 200, 64), (2, 4, 200, 64), (2, 4, 200, 64), dtype=dtype)
    kernel = compile(function, (q, k, v), target="nvidia")
    assert kernel.target == "nvidia" and "fused" in kernel.stages()
    out = kernel(q, k, v)
    assert out.is_cuda and out.dtype == dtype
    assert close(out, function(q.double(), k.double(), v.double()), dtype)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_attention_of_compiled_functions(function, dtype):
    q, k, v = tensors((2, 4, 300, 64), (2, 4, 300, 64), (2, 4, 300, 64), dtype=dtype)
    torch.compiler.reset()
    before = kernels()
    out = torch.compile(function, backend="attn_opt")(q, k, v)
    assert kernels() > before
    assert out.is_cuda and out.stride() == function(q, k, v).stride()
    assert close(out, function(q.double(), k.double(), v.double()), dtype)


def test_row_statistics_and_distances():
    """Heads in groups, batch entries, biases by distance, and torch's log-sum-exp, which compares with an f64."""

    def function(q, k, v):
        s = q @ k.repeat_interleave(2, 1).mT / 8
        i, j = torch.arange(q.size(-2), device=q.device)[:, None], torch.arange(k.size(-2), device=q.device)
        s = F.gelu(s) - torch.log1p((i - j).abs().to(s.dtype))
        return torch.softmax(s, -1) @ v.repeat_interleave(2, 1), torch.logsumexp(s, -1)

    q, k, v = tensors((2, 6, 100, 64), (2, 3, 130, 64), (2, 3, 130, 64), dtype=torch.float32)
    kernel = compile(function, (q, k, v), target="nvidia")
    for found, right in zip(kernel(q, k, v), function(q.double(), k.double(), v.double()), strict=True):
        assert found.is_cuda and close(found, right, torch.float32)


SHARED = {
    "q, q, q": (lambda q, k, v: F.scaled_dot_product_attention(q, q, q)),
    "q, k, k": (lambda q, k, v: F.scaled_dot_product_attention(q, k, k)),
    "tanh(v), tanh(v), v": (lambda q, k, v: (v.tanh() @ v.tanh().mT / 8).softmax(-1) @ v),
}


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("length", [64, 100, 300])
@pytest.mark.parametrize("name", SHARED)
def test_one_tensor_as_queries_and_keys(name, length, dtype):
    q, k, v = tensors(*[(1, 2, length, 64)] * 3, dtype=dtype)
    out = compile(SHARED[name], (q, k, v), target="nvidia")(q, k, v)
    assert close(out, SHARED[name](q.double(), k.double(), v.double()), dtype)


def sdpa(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)


AROUND = {
    "two that share all": lambda q, k, v: torch.stack([sdpa(q, k, v), sdpa(q + 1, k, v)]),
    "one after the other": lambda q, k, v: sdpa(sdpa(q, k, v), k, v),
    "keys that are returned": lambda q, k, v: torch.cat([sdpa(q, k.tanh(), v), k.tanh()], -1),
    "a cache that grows": lambda q, k, v: sdpa(q, torch.cat([k, q[:, :, -1:]], 2), torch.cat([v, q[:, :, :1]], 2)),
    "padded": lambda q, k, v: F.pad(sdpa(q, k, v), (0, 0, 2, 5)),
    "a part": lambda q, k, v: sdpa(q, k, v)[:, :, 3:10],
    "a gate": lambda q, k, v: sdpa(q, k, v) * k.sigmoid(),
    "parts, twice": lambda q, k, v: sdpa(*(x := torch.cat([q, k, v], -1)[:, 0].chunk(3, -1))) + sdpa(*x) + x[2],
}


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", AROUND)
def test_what_stands_around(name, dtype):
    q, k, v = tensors(*[(1, 2, 200, 64)] * 3, dtype=dtype)
    out = compile(AROUND[name], (q, k, v), target="nvidia")(q, k, v)
    assert close(out, AROUND[name](q.double(), k.double(), v.double()), dtype)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("keys", [2, 77, 1000])
@pytest.mark.parametrize("batch", [(1, 4), (3, 4), ()], ids=str)
def test_one_query(batch, keys, dtype):
    """Without heads in groups: nothing but the query itself is a row."""
    q, k, v = tensors((*batch, 1, 64), (*batch, keys, 64), (*batch, keys, 80), dtype=dtype)
    out = compile(F.scaled_dot_product_attention, (q, k, v), target="nvidia")(q, k, v)
    assert close(out, F.scaled_dot_product_attention(q.double(), k.double(), v.double()), dtype)


def test_without_elements():
    """In f32; of others torch 2.11 itself makes None."""
    dtype = torch.float32
    torch.compiler.reset()
    q, k = tensors((0, 4, 100, 64), (0, 4, 77, 64), dtype=dtype)
    out = torch.compile(F.scaled_dot_product_attention, backend="attn_opt")(q, k, k)
    assert out.shape == q.shape and out.dtype == dtype


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_autocast(dtype):
    """The casts that torch makes are in the kernel."""
    q, k, v = tensors(*[(2, 4, 200, 64)] * 3, dtype=torch.float32)
    torch.compiler.reset()
    before = kernels()
    with torch.autocast("cuda", dtype):
        out = torch.compile(written_out, backend="attn_opt")(q, k, v)
    assert kernels() > before and out.dtype == dtype
    assert close(out, written_out(q.double(), k.double(), v.double()), dtype)


class Block(torch.nn.Module):
    """Self-attention between projections, heads split and merged by views."""

    def __init__(self, size: int = 256, heads: int = 4):
        super().__init__()
        self.heads, self.qkv, self.out = heads, torch.nn.Linear(size, 3 * size), torch.nn.Linear(size, size)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class Small(torch.nn.Module):
    """A block whose matmuls are as small as a tile, but for some, between norms."""

    def __init__(self, size: int, heads: int):
        super().__init__()
        self.attention, self.norms = Block(size, heads), torch.nn.ModuleList(torch.nn.LayerNorm(size) for _ in "ab")
        self.up, self.down = torch.nn.Linear(size, 4 * size), torch.nn.Linear(4 * size, size)
        self.last = torch.nn.Linear(size, size, bias=False)

    def forward(self, x):
        x = self.attention(self.norms[0](x))
        x = x + self.down(F.gelu(self.up(self.norms[1](x))))
        return x + self.last(x)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize(("size", "heads"), [(64, 1), (64, 4), (128, 1)])
@pytest.mark.parametrize(("batch", "tokens"), [(1, 64), (1, 16), (1, 100), (3, 64)])
def test_small_blocks(batch, tokens, size, heads, dtype):
    torch.manual_seed(0)
    model = Small(size, heads).cuda().to(dtype).eval()
    (x,) = tensors((batch, tokens, size), dtype=dtype)
    with torch.no_grad():
        out = compile(model, (x,), target="nvidia")(x)
        assert close(out, model.double()(x.double()), dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("tokens", [1, 40, 64, 100, 300])
def test_a_residual_of_a_matmuls_own_rows(tokens, dtype):
    """Its columns are what the matmul sums over, and its results' columns."""

    def function(x, w):
        x = x @ w + x
        return torch.relu(x @ w) @ w + x

    x, w = tensors((tokens, 64), (64, 64), dtype=dtype)
    w = w / 8
    assert close(compile(function, (x, w), target="nvidia")(x, w), function(x.double(), w.double()), dtype)


def grouped_block(x, wq, wkv):
    heads = lambda t, h: t.unflatten(-1, (h, -1)).transpose(1, 2)  # noqa: E731
    k, v = (heads(t, 2) for t in (x @ wkv).chunk(2, -1))
    return F.scaled_dot_product_attention(heads(x @ wq, 8), k, v, enable_gqa=True, is_causal=True)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("tokens", [40, 64, 100])
def test_one_vector_along_queries_and_keys(tokens, dtype):
    def chunks(q, k, v, c):
        i = torch.arange(tokens, device=q.device) // 16
        mask = (i[:, None] == i) | (c[:, None] == c)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    (*qkv,) = tensors(*[(2, 4, tokens, 64)] * 3, dtype=dtype)
    c = torch.arange(tokens, device="cuda") % 5
    out = compile(chunks, (*qkv, c), target="nvidia")(*qkv, c)
    assert close(out, chunks(*(x.double() for x in qkv), c), dtype)


BESIDE = {
    "keys": (lambda x, w: sdpa(x[:, :64], x @ w, x)),
    "result": (lambda x, w: sdpa(x[:, :64], x, x) @ w),
    "result of heads": (
        lambda x, w: torch.einsum(
            "bhnd,hde->bne", sdpa(*[x[:, :40].unflatten(-1, (4, -1)).transpose(1, 2)] * 3), w.unflatten(0, (4, -1))
        )
    ),
}


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", BESIDE)
def test_one_tile_beside_loops(name, dtype):
    """Its loop over keys, or along the sum, stands beside loops over tiles."""
    x, w = tensors((1, 177, 128), (128, 128), dtype=dtype)
    w = w / 8
    out = compile(BESIDE[name], (x, w), target="nvidia")(x, w)
    assert close(out, BESIDE[name](x.double(), w.double()), dtype)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("tokens", [1, 4, 8, 20, 33, 64])
def test_few_queries_that_are_projected(tokens, dtype):
    args = tuple(x / 4 for x in tensors((2, tokens, 256), (256, 256), (256, 128), dtype=dtype))  # scores of a few
    out = compile(grouped_block, args, target="nvidia")(*args)
    assert close(out, grouped_block(*(a.double() for a in args)), dtype)


def feed_forward(x, v, w):
    return x + F.gelu(F.layer_norm(x, x.shape[-1:]) @ v) @ w


@pytest.mark.parametrize("rows", [1, 64, 300])
def test_weights_that_were_just_written(rows):
    """Kernels behind the first one copy them without waiting for it: what was launched before the call must be done."""
    x, v, w = tensors((rows, 512), (512, 2048), (2048, 512))
    kernel = compile(feed_forward, (x, v, w), target="nvidia")
    found, right = [], []
    for number in range(100):
        scale = 0.02 + 0.001 * (number * 37 % 100)
        x = kernel(x, v * scale, w * scale) if number % 10 else x  # in memory that the allocator gives again
        found.append(kernel(x, v * scale, w * scale))
        right.append((x, scale))
    for y, (x, scale) in zip(found, right, strict=True):
        assert close(y, feed_forward(x.double(), (v * scale).double(), (w * scale).double()), torch.float16)


@pytest.mark.parametrize("rest", ["eager", "inductor"])
@pytest.mark.parametrize("model", [Block, lambda: torch.nn.TransformerEncoderLayer(256, 4, 512, batch_first=True)])
def test_models_by_torch_compile(model, rest):
    torch.manual_seed(0)
    model = model().cuda().half().eval()
    (x,) = tensors((3, 150, 256))
    torch.compiler.reset()
    before = kernels()
    with torch.no_grad():
        fast = torch.compile(model, backend="attn_opt", options={"rest": rest})
        out = fast(x)
        assert kernels() > before
        assert close(out, model.double()(x.double()), torch.float16)


def test_sizes_that_torch_takes_to_be_open():
    """The lengths, from the second call on, which is with another one."""
    torch.compiler.reset()
    fast = torch.compile(causal, backend="attn_opt")
    counts = []
    for length in (64, 90, 201, 513):
        q, k, v = tensors((2, 4, length, 64), (2, 4, length, 64), (2, 4, length, 64))
        assert close(fast(q, k, v), causal(q.double(), k.double(), v.double()), torch.float16)
        counts.append(stats()["compiled"])
    assert counts[1] > counts[0] and counts[-1] == counts[1]


@pytest.mark.filterwarnings("error::UserWarning")
def test_gradients():
    """Those of a sum have no dense rows: a single number is expanded."""
    inputs = [x.requires_grad_() for x in tensors((2, 4, 64, 64), (2, 4, 64, 64), (2, 4, 64, 64))]
    exact = [x.detach().double().requires_grad_() for x in inputs]
    torch.compiler.reset()
    torch.compile(causal, backend="attn_opt")(*inputs).sum().backward()
    causal(*exact).sum().backward()
    for found, expected in zip(inputs, exact, strict=True):
        assert close(found.grad, expected.grad, torch.float16)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_gradients_through_kernels(function, dtype):
    args = [x.requires_grad_() for x in tensors(*[(2, 4, 130, 48)] * 3, dtype=dtype)]
    exact = [x.detach().double().requires_grad_() for x in args]
    (given,) = tensors((2, 4, 130, 48), dtype=dtype)
    found = torch.autograd.grad(compile(function, args, target="nvidia")(*args), args, given)
    right = torch.autograd.grad(function(*exact), exact, given.double())
    for one, other in zip(found, right, strict=True):
        assert one.dtype == dtype and close(one, other, dtype)


def test_gradients_of_norms_behind_exponentials():
    """Whose derivative computes all anew, the norm, which torch has a kernel of, too."""

    def function(q, k, v):
        weights = torch.exp(q @ k.mT / 7)
        return F.rms_norm(weights @ v / weights.sum(-1, keepdim=True), (48,))

    args = [x.requires_grad_() for x in tensors(*[(2, 4, 130, 48)] * 3, dtype=torch.float32)]
    exact = [x.detach().double().requires_grad_() for x in args]
    (given,) = tensors((2, 4, 130, 48), dtype=torch.float32)
    found = torch.autograd.grad(compile(function, args, target="nvidia")(*args), args, given)
    right = torch.autograd.grad(function(*exact), exact, given.double())
    assert all(close(one, other, torch.float32) for one, other in zip(found, right, strict=True))


class Projected(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.project = torch.nn.Linear(48, 48)

    def forward(self, q, k, v):
        return causal(self.project(q), k, v)


def test_gradients_in_a_cuda_graph():
    """It sees what parameters are by then, and may be captured in any stream."""
    model = Projected().cuda()
    args = [x.requires_grad_() for x in tensors(*[(2, 4, 130, 48)] * 3, dtype=torch.float32)]
    learned = [*args, *model.parameters()]
    kernel = compile(model, args, target="nvidia")

    def gradients(model, args, learned):
        out = model(*args)
        return torch.autograd.grad(out, learned, torch.ones_like(out))

    with torch.cuda.stream(torch.cuda.Stream()):
        gradients(kernel, args, learned)
        torch.cuda.current_stream().synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = gradients(kernel, args, learned)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= 1.25
    graph.replay()
    exact, wide = copy.deepcopy(model).double(), [x.detach().double().requires_grad_() for x in args]
    for one, other in zip(found, gradients(exact, wide, [*wide, *exact.parameters()]), strict=True):
        assert close(one, other, torch.float32)


@pytest.mark.parametrize("p", [0.0, 0.1])
def test_a_model_in_training(p):
    """All of it in kernels, forward and backward: projections, norms, residuals, dropouts."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(128, 2, 512, dropout=p, batch_first=True, norm_first=True)
    model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).cuda().bfloat16().train()
    x, given = tensors((2, 256, 128), (2, 256, 128), dtype=torch.bfloat16)
    kernel = compile(model, (x,), target="nvidia")
    learned = [*model.parameters()]
    found = torch.autograd.grad(kernel(x), learned, given)
    if p:
        torch.manual_seed(1)
        first = torch.autograd.grad(kernel(x), learned, given)
        torch.manual_seed(1)
        again = torch.autograd.grad(kernel(x), learned, given)
        assert all(map(torch.equal, first, again)) and not any(map(torch.equal, found, first))
        return
    exact = copy.deepcopy(model).double()
    right = torch.autograd.grad(exact(x.double()), [*exact.parameters()], given.double())
    eager = torch.autograd.grad(model(x), learned, given)
    for one, other, theirs in zip(found, right, eager, strict=True):
        error, allowed = ((other - y.double()).abs().max() for y in (one, theirs))
        assert error < 2 * allowed + 1e-2 * other.abs().max()


class Gated(torch.nn.Module):
    """A block as Llama's: norms of roots of mean squares, of queries and keys, too, and a gated layer."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.own = (torch.nn.RMSNorm(n, eps=1e-5) for n in (128, 128, 64))
        self.qkv, self.out = torch.nn.Linear(128, 384, bias=False), torch.nn.Linear(128, 128, bias=False)
        self.gate, self.up = (torch.nn.Linear(128, 352, bias=False) for _ in range(2))
        self.down = torch.nn.Linear(352, 128, bias=False)

    def forward(self, x):
        batch, tokens, width = x.shape
        q, k, v = self.qkv(self.first(x)).view(batch, tokens, 3, 2, 64).permute(2, 0, 3, 1, 4)
        o = F.scaled_dot_product_attention(self.own(q), self.own(k), v, is_causal=True)
        x = x + self.out(o.transpose(1, 2).reshape(batch, tokens, width))
        h = self.second(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_a_gated_block_in_training(dtype):
    torch.manual_seed(0)
    model = torch.nn.Sequential(Gated(), Gated()).cuda().to(dtype)
    x, given = tensors((2, 150, 128), (2, 150, 128), dtype=dtype)
    kernel, exact, wide = compile(model, (x,), target="nvidia"), copy.deepcopy(model).double(), x.double()
    wanted, wide = [x.requires_grad_(), *model.parameters()], wide.requires_grad_()
    found = torch.autograd.grad(kernel(x), wanted, given)
    eager = torch.autograd.grad(model(x), wanted, given)
    right = torch.autograd.grad(exact(wide), [wide, *exact.parameters()], given.double())
    for one, theirs, other in zip(found, eager, right, strict=True):
        error, allowed = ((other - y.double()).abs().max() for y in (one, theirs))
        assert error < 2 * allowed + TOLERANCE[dtype] * other.abs().max()


def test_a_kernel_of_the_cpu_says_where_its_arguments_are():
    q, k, v = tensors((1, 2, 64, 64), (1, 2, 64, 64), (1, 2, 64, 64), dtype=torch.float32)
    kernel = compile(causal, (q.cpu(), k.cpu(), v.cpu()))
    with pytest.raises(CompileError, match="nvidia"):
        kernel(q, k, v)


@pytest.mark.parametrize("precision", ["fp8", "bf8"])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_floats_of_8_bits_as_attn_bench_has_them(arch, precision, capsys):
    """Inputs, probabilities and results of 8 bits, checked against float64."""
    from attn_opt.compiler.tools.attn_bench import main

    shape = ["-b=1", "-h=2", "-s=500", "-d=64", "-mask=1", "-warmup=1", "-repeat=2"]
    assert main([*shape, f"-prec={precision}", "--target=nvidia", "--options", f"arch={arch}"]) == 0
    assert "PASS" in capsys.readouterr().out


def test_tensors_that_are_not_what_their_memory_holds():
    x = torch.randn(2, 2, 100, 64, dtype=torch.complex64, device="cuda").conj().imag
    kernel = compile(Attention(batch=2, heads=2, queries=100, keys=100).text(), target="nvidia")
    with pytest.raises(CompileError, match="resolve_neg"):
        kernel(x, x, x)
    dense = x.resolve_neg()
    with torch._subclasses.fake_tensor.FakeTensorMode() as mode, pytest.raises(CompileError, match="no memory"):
        kernel(*[mode.from_tensor(dense)] * 3)


def added(q, k, v, mask):
    return ((q @ k.transpose(-1, -2)) * 0.125 + mask).softmax(-1) @ v


def chosen(q, k, v, mask):
    scores = (q @ k.transpose(-1, -2)) * 0.125
    return torch.where(mask == 0, scores, torch.finfo(scores.dtype).min).softmax(-1) @ v


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("size", [(300, 64), (700, 128), (65, 17)])
@pytest.mark.parametrize("form", [added, chosen, F.scaled_dot_product_attention])
def test_masks_of_the_least_number(form, size, dtype):
    """The first half of the keys is padding; later queries alone, some of which have no key."""
    keys, head = size
    low = torch.finfo(dtype).min
    q, k, v = tensors(*[(2, 3, keys, head)] * 3, dtype=dtype)
    mask = torch.zeros(2, 1, keys, keys, device="cuda", dtype=dtype)
    mask[0, :, :, : keys // 2] = low
    mask[1].masked_fill_(torch.ones(keys, keys, device="cuda").triu(1) > 0, low)
    mask[1, :, 5:9] = low
    given = q, k, v, mask
    found = compile(form, given, target="nvidia")(*given).cpu()
    wide, added_to = [x.double().cpu() for x in given[:3]], mask.double().cpu()
    scores = wide[0] @ wide[1].mT * (head**-0.5 if form is F.scaled_dot_product_attention else 0.125)
    masked = torch.where(added_to != 0, added_to, scores) if form is chosen else scores + added_to
    assert close(found, masked.softmax(-1) @ wide[2], dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("size", [(300, 64), (300, 128), (700, 32), (65, 17)])
@pytest.mark.parametrize("number", [-1e9, -1e12, -1e20, -1e30, torch.finfo(torch.float32).min])
def test_rows_without_a_key(number, size, dtype):
    """Products of low numbers are rounded, or infinite: all probabilities of such a row are the same nevertheless, also
    where gradients are computed of its maximum."""
    keys, head = size
    torch.compiler.reset()
    q, k, v, gradient = tensors(*[(2, 3, keys, head)] * 4, dtype=dtype)
    length = torch.tensor([keys // 2, 0], device="cuda")

    def masked(q, k, v, length):
        scores = (q @ k.mT).to(torch.promote_types(q.dtype, torch.float32)) * 0.125
        live = torch.arange(keys, device="cuda") < length[:, None, None, None]
        return torch.where(live, scores, number).softmax(-1).to(v.dtype) @ v

    inputs = [x.requires_grad_() for x in (q, k, v)]
    wide = [x.detach().double().requires_grad_() for x in inputs]
    found, right = torch.compile(masked, backend="attn_opt")(*inputs, length), masked(*wide, length)
    found.backward(gradient)
    right.backward(gradient.double())
    assert close(found, right, dtype)
    for one, other in zip(inputs, wide, strict=True):
        assert close(one.grad, other.grad, dtype if dtype != torch.float32 else torch.float16)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("is_traced", [False, True])
def test_dropout_in_training(is_traced, dtype, is_causal):
    """The mask is a function of a seed, which torch draws: that of the reference, too."""
    from attn_opt.compiler.frontends.torch import dropout

    q, k, v, gradient = tensors(*[(2, 3, 517, 64)] * 4, dtype=dtype)
    args = [x.requires_grad_() for x in (q, k, v)]
    before = kernels()
    function = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, dropout_p=0.3, is_causal=is_causal)  # noqa: E731
    fast = compile(function, args, target="nvidia") if is_traced else torch.compile(function, backend="attn_opt")
    torch.manual_seed(5)
    out = fast(*args)
    found = out, *torch.autograd.grad(out, args, gradient)
    torch.manual_seed(5)
    seed = torch.randint(-(2**31), 2**31, (2,), dtype=torch.int32, device="cuda")
    wide = [x.detach().double().requires_grad_() for x in args]
    scores = wide[0] @ wide[1].mT / 8
    if is_causal:
        scores = scores.masked_fill(torch.ones(517, 517, dtype=torch.bool, device="cuda").triu(1), -math.inf)
    right = dropout.dropped(scores.softmax(-1), 0.3, seed) @ wide[2]
    right = right, *torch.autograd.grad(right, wide, gradient.double())
    assert kernels() - before >= 2 and all(close(a, b, dtype) for a, b in zip(found, right, strict=True))

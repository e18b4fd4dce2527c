"""torch.compile(…, backend="attn_opt"): attention in kernels, everything else as torch has it."""

import collections
import copy
import math
import subprocess
import sys
import threading
import warnings

import pytest

torch = pytest.importorskip("torch", reason="needs the extra attn_opt[torch]")

import attn_opt.compiler.frontends.dynamo as dynamo  # noqa: E402
import sympy  # noqa: E402
import torch.func as func  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from attn_opt.compiler import stats  # noqa: E402
from attn_opt.compiler.frontends import dynamo_kernel  # noqa: E402
from attn_opt.compiler.frontends.dynamo_sizes import combination  # noqa: E402
from attn_opt.compiler.runtime.cpu import CpuKernel  # noqa: E402
from models import MODELS, Decoder  # noqa: E402
from test_torch import close, tensors, wide  # noqa: E402
from torch.nn.attention.flex_attention import create_block_mask, flex_attention  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore:flex_attention called")


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    with torch.no_grad():
        yield


@pytest.mark.parametrize("before", ["", "from attn_opt.compiler import compile; compile(f, (x, x, x))"])
def test_the_backend_is_known_by_its_name(before):
    """In a process that has not imported it: torch finds it among the entry points of what is installed."""
    code = f"""
import torch
def f(q, k, v):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v)
x = torch.randn(1, 2, 16, 8)
{before}
torch.testing.assert_close(torch.compile(f, backend="attn_opt")(x, x, x), f(x, x, x))
from attn_opt.compiler import stats
assert stats()["found"] > 0
"""
    subprocess.run([sys.executable, "-c", code], check=True)


class Counts:
    """What stats() has counted since this was made."""

    def __init__(self):
        self.before = stats()

    def __getattr__(self, name):
        after = stats()
        if name == "reasons":
            return [r for r, n in after["reasons"].items() if n > self.before["reasons"].get(r, 0)]
        return after[name] - self.before[name]

    @property
    def kernels(self):
        return self.compiled + self.cache_hits


def compiled(function, **options):
    return torch.compile(function, backend="attn_opt", **options)


@pytest.mark.parametrize("name", MODELS)
def test_models(name):
    model, args, attentions = MODELS[name]()
    reference = copy.deepcopy(model).double()
    counts = Counts()
    close(compiled(model)(*args), reference(*map(wide, args)))
    assert (counts.kernels, counts.left) == (attentions, 0)


@pytest.mark.parametrize("rest", ["eager", "inductor"])
def test_decoding_with_a_cache(rest):
    """A prompt, then token after token; each new length is a new graph for dynamo."""
    torch.manual_seed(0)
    model = Decoder().eval()
    reference = copy.deepcopy(model)
    fast = compiled(model, options={"rest": rest})
    start = 0
    for length in (7, 1, 1, 3, 4):
        tokens, positions = torch.randint(0, 50, (1, length)), torch.arange(start, start + length)
        torch.testing.assert_close(fast(tokens, positions), reference(tokens, positions), rtol=1e-5, atol=1e-5)
        start += length


def test_the_rest_is_called_as_it_is():
    """Only the attention is taken out of the graph; reshapes of its inputs go with it."""
    calls = []

    def spy(graph, inputs, **keywords):
        result = dynamo.backend(graph, inputs, **keywords)
        calls.extend(str(n.target) for n in graph.graph.nodes if n.op.startswith("call"))
        return result

    def block(x, w):
        q, k, v = (x @ w).view(2, 9, 3, 4, 8).permute(2, 0, 3, 1, 4)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return torch.relu(out.transpose(1, 2).reshape(2, 9, 32))

    x, w = tensors((2, 9, 32), (32, 96))
    close(torch.compile(block, backend=spy)(x, w), block(x.double(), w.double()))
    assert [c for c in calls if "attention" in c] == ["attention_0"]
    assert not any(name in str(calls) for name in ("softmax", "permute", "scaled_dot_product"))


def test_one_kernel_for_equal_layers():
    def layers(x):
        for _ in range(4):
            x = x + F.scaled_dot_product_attention(x, x, x)
        return x

    counts = Counts()
    compiled(layers)(*tensors((2, 3, 11, 8)))
    assert (counts.compiled, counts.cache_hits) == (1, 3)


def test_new_sizes():
    def attention(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    fast, counts = compiled(attention), Counts()
    for n in (5, 9, 33, 70, 12):
        args = tensors((2, 3, n, 8), (2, 3, n, 8), (2, 3, n, 8))
        close(fast(*args), attention(*map(wide, args)))
    assert counts.compiled == 2, "one for the first size and one for all others"


def test_sizes_that_happen_to_be_equal():
    def attention(q, k):
        return (q @ k.mT).softmax(-1) @ k

    fast = compiled(attention, dynamic=True)
    for m, n in ((8, 8), (8, 12), (5, 8)):
        args = tensors((2, m, 8), (2, n, 8))
        close(fast(*args), attention(*map(wide, args)))


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("masked", [False, True])
def test_sizes_of_kernels_for_the_gpu(gpu, monkeypatch, masked, dynamic):
    """One kernel for all lengths; where torch takes all sizes to be open, only those that change are: a kernel must
    know its head size."""

    def attention(q, k, v, mask=None):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=not masked)

    monkeypatch.setattr(dynamo, "TARGETS", {"cpu": "nvidia"})
    monkeypatch.setattr(dynamo_kernel, "_kernels", collections.OrderedDict())  # those of other drivers
    fast, counts, kernels = compiled(attention, dynamic=dynamic), Counts(), []
    for n, size in ((64, 64), (90, 64), (201, 64), (513, 64), (300, 64), (300, 32)):
        shape = (2, 4, n, size)
        args = tensors(shape, shape, shape, *[(1, 4, n, n)] * masked, dtype=torch.float16)
        assert fast(*args).shape == shape
        kernels.append(counts.kernels)
        assert {launch.kernel for launch in gpu.launches} <= {"main_0", "main_1", "main_pad_0"} and gpu.launches
        gpu.launches.clear()
    assert kernels[4] == kernels[2] < kernels[5] and counts.left == 0


def test_graph_break():
    def two(x):
        x = F.scaled_dot_product_attention(x, x, x)
        torch._dynamo.graph_break()
        return F.scaled_dot_product_attention(x, x, x)

    counts = Counts()
    (x,) = tensors((2, 3, 6, 8))
    close(compiled(two)(x), two(x.double()))
    assert counts.kernels == 2


@pytest.mark.parametrize("kind", ["score_mod", "plain"])
def test_flex_attention(kind):
    def attention(q):
        modification = (lambda s, b, h, i, j: s - (i - j).abs()) if kind == "score_mod" else None
        return flex_attention(q, q, q, score_mod=modification)

    (q,) = tensors((1, 2, 32, 16))
    counts = Counts()
    found = compiled(attention)(q)
    scores = q.double() @ q.double().mT / 4
    if kind == "score_mod":
        i = torch.arange(32)
        scores = scores - (i[:, None] - i).abs()
    close(found, scores.softmax(-1) @ q.double())
    assert counts.kernels == 1


def test_numbers_that_flex_attention_captures():
    """The position of a token, in a mask_mod: one kernel for all."""

    def step(q, keys, values, position):
        def seen(b, h, row, column):
            return column <= row + position

        blocks = create_block_mask(seen, None, None, q.shape[2], keys.shape[2], device="cpu", BLOCK_SIZE=128)
        return flex_attention(q, keys, values, block_mask=blocks)

    def reference(q, keys, values, position):
        seen = torch.arange(keys.shape[2]) <= torch.arange(q.shape[2])[:, None] + position
        return F.scaled_dot_product_attention(*map(wide, (q, keys, values)), attn_mask=seen)

    fast, counts = compiled(step), Counts()
    for position in (3, 4, 5, 9):
        args = tensors((2, 3, 2, 16), (2, 3, 12, 16), (2, 3, 12, 16))
        close(fast(*args, position), reference(*args, position))
    assert (counts.kernels, counts.left) == (2, 0), "one for the number that dynamo takes as it is, one for all others"


def test_gradients_stay_with_torch():
    (x,) = tensors((2, 3, 6, 8))
    x.requires_grad_()
    fast, counts = compiled(lambda q: F.scaled_dot_product_attention(q, q, q)), Counts()
    dynamo_kernel._warned.clear()
    with torch.enable_grad(), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(2):
            fast(x).sum().backward()
            torch._dynamo.reset()
    assert x.grad is not None and counts.compiled == 0 and dynamo.GRADIENT in counts.reasons
    assert sum("needs a gradient" in str(w.message) for w in told) == 1
    with torch.no_grad():
        close(fast(x), F.scaled_dot_product_attention(*(x.double().detach(),) * 3))
    assert counts.kernels == 1


def layers():
    """Modules that are written out before regions are cut out."""
    options = {"batch_first": True, "dropout": 0.0}
    yield torch.nn.MultiheadAttention(32, 4, **options), lambda m, x: m(x, x, x, need_weights=False)[0]
    yield torch.nn.TransformerEncoderLayer(32, 4, 48, **options), lambda m, x: m(x)
    yield torch.nn.TransformerEncoderLayer(32, 4, 48, **options).eval(), lambda m, x: m(x)


@pytest.mark.parametrize("number", range(3))
def test_parameters_get_their_gradients(number):
    """What is written out is traced without gradients; it was taken for what needs none."""
    (x,) = tensors((2, 9, 32))
    module, call = list(layers())[number]
    fast, counts = compiled(lambda x: call(module, x)), Counts()
    with torch.no_grad():
        fast(x)
    assert counts.kernels == 1
    with torch.enable_grad():
        fast(x).square().sum().backward()
        found = [p.grad.clone() for p in module.parameters()]
        module.zero_grad()
        call(module, x).square().sum().backward()
    for one, parameter in zip(found, module.parameters(), strict=True):
        torch.testing.assert_close(one, parameter.grad, rtol=1e-5, atol=1e-5)


def test_gradients_that_a_function_turns_on_and_off():
    (x,) = tensors((2, 3, 6, 8))
    x.requires_grad_()

    def switched(on):
        def function(x):
            with torch.set_grad_enabled(on):
                y = F.scaled_dot_product_attention(x, x, x)
            return y + 1.0

        return function

    counts = Counts()
    with torch.no_grad():
        assert compiled(switched(True))(x).requires_grad == switched(True)(x).requires_grad
    assert counts.kernels == 0
    with torch.enable_grad():
        assert not compiled(switched(False))(x).requires_grad
    assert counts.kernels == 1


def by_hand(q, k, v):
    return torch.softmax(q @ k.mT, -1) @ v


def dual(function, q, *others):
    from torch.autograd import forward_ad

    with forward_ad.dual_level():
        return forward_ad.unpack_dual(function(forward_ad.make_dual(q, q), *others)).tangent


TRANSFORMED = {
    "grad": lambda q, k, v: func.grad(lambda q: by_hand(q, k, v).square().sum())(q),
    "per sample": lambda q, k, v: func.vmap(func.grad(lambda q, k, v: by_hand(q, k, v).square().sum()))(q, k, v),
    "of a factor": lambda w, k, v: func.vmap(func.grad(lambda w, k, v: (w.sum() * by_hand(k, k, v)).sum()))(w, k, v),
    "jvp": lambda q, k, v: func.jvp(lambda q: by_hand(q, k, v), (q,), (q,))[1],
    "jacrev": lambda q, k, v: func.jacrev(by_hand)(q[0, 0], k[0, 0], v[0, 0]),
    "constant": lambda q, k, v: func.vmap(lambda q, k, v: by_hand(q * torch.tensor(0.5), k, v))(q, k, v),
}


@pytest.mark.parametrize("enabled", [False, True])
@pytest.mark.parametrize("name", TRANSFORMED)
def test_derivatives_of_torch_func(name, enabled):
    args, function = tensors((2, 3, 6, 8), (2, 3, 7, 8), (2, 3, 7, 8)), TRANSFORMED[name]
    with torch.set_grad_enabled(enabled):
        torch.testing.assert_close(compiled(function)(*args), function(*args), rtol=1e-4, atol=1e-4)


def test_forward_mode_derivatives():
    args = tensors((2, 3, 6, 8), (2, 3, 7, 8), (2, 3, 7, 8))
    torch.testing.assert_close(dual(compiled(by_hand), *args), dual(by_hand, *args), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "made",
    [
        lambda x: torch.tensor_split(x, 2, 1),
        lambda x: (x, torch.topk(x, 4, 1).values),
        lambda x: (x, torch.sort(x, 1)[0]),
        lambda x: (x - torch.max(x, -1, keepdim=True)[0], x),
    ],
)
def test_parts_of_tuples_that_are_made_outside(made):
    """A region had the tuple itself as an input."""
    (x,), counts = tensors((2, 9, 8)), Counts()

    def function(x):
        q, k = made(x)
        return torch.softmax(q @ k.mT, -1) @ k

    close(compiled(function)(x), function(x.double()))
    assert counts.kernels == 1


def multi_head(**options):
    torch.manual_seed(0)
    module = torch.nn.MultiheadAttention(32, 4, batch_first=True, **options).eval()
    return lambda q, k, *mask: module(q, k, k, *mask, need_weights=False)[0]


def encoder_layer():
    torch.manual_seed(0)
    return torch.nn.TransformerEncoderLayer(32, 4, 48, batch_first=True, norm_first=True).eval()


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("options", [{}, {"add_bias_kv": True, "add_zero_attn": True}], ids=str)
def test_multi_head_attention(options, dynamic):
    q, k = tensors((2, 9, 32), (2, 13, 32))
    padding = torch.arange(13) > torch.tensor([[12], [7]])
    function, counts = multi_head(**options), Counts()
    expected = function(q, k, padding)
    torch.testing.assert_close(compiled(function, dynamic=dynamic)(q, k, padding), expected, rtol=1e-5, atol=1e-5)
    assert counts.kernels and not counts.left


def test_transformer_layer():
    (x,) = tensors((2, 9, 32))
    layer, counts = encoder_layer(), Counts()
    found = compiled(layer)(x)
    close(found, copy.deepcopy(layer).double()(x.double()))
    assert (counts.kernels, counts.left) == (1, 0)


def test_mapped():
    def heads(q, k):
        return torch.vmap(lambda a, b: (a @ b.T).softmax(-1) @ b)(q, k)

    q, k = tensors((3, 9, 8), (3, 13, 8))
    counts = Counts()
    close(compiled(heads)(q, k), heads(q.double(), k.double()))
    assert (counts.kernels, counts.left) == (1, 0)


def test_masks_that_need_the_shape_of_the_scores():
    def attention(q, k, mask):
        s = q @ k.mT
        s.masked_fill_((mask == 0).view(2, 1, 1, 13).expand_as(s), torch.finfo(s.dtype).min)
        return s.float().softmax(-1).type_as(s) @ k

    q, k = tensors((2, 3, 9, 8), (2, 3, 13, 8))
    mask = torch.arange(13) < torch.tensor([[13], [6]])
    counts = Counts()
    close(compiled(attention)(q, k, mask), attention(q.double(), k.double(), mask))
    assert (counts.kernels, counts.left) == (1, 0)


def test_a_bias_that_takes_many_calls():
    """A relative bias whose buckets are computed in a hundred calls (LayoutLM's): they are none between the matmuls."""

    def attention(q, k, table, boxes):
        buckets = boxes[:, None, :] - boxes[:, :, None]
        for i in range(100):
            buckets = torch.where(buckets == i + 50, i, buckets)
        bias = table[buckets.clamp(0, 30)].permute(0, 3, 1, 2)
        return (q @ k.mT + bias).softmax(-1) @ k

    q, k, table = tensors((2, 3, 9, 8), (2, 3, 9, 8), (31, 3))
    boxes = torch.randint(0, 100, (2, 9))
    counts = Counts()
    close(compiled(attention)(q, k, table, boxes), attention(*map(wide, (q, k, table)), boxes))
    assert (counts.kernels, counts.left) == (1, 0)


def test_too_many_calls_between_the_matmuls():
    def attention(q, k):
        s = q @ k.mT
        for i in range(100):
            s = s + i / 100
        return s.softmax(-1) @ k

    q, k = tensors((2, 3, 9, 8), (2, 3, 9, 8))
    counts = Counts()
    close(compiled(attention)(q, k), attention(q.double(), k.double()))
    assert counts.reasons == ["more than 80 calls stand between its matmuls"]


def test_sizes_that_are_symbols():
    """A view to sizes that come as a tuple, and as numbers from the mask: one kernel for all."""

    def attention(x, mask):
        b, _, n, _ = mask.shape
        y = x.view((*mask.size()[:1], n, 24))
        q, k, v = (t.view(b, n, -1, 8).transpose(1, 2) for t in (y, y + 1, y - 1))
        return (q @ k.mT + mask).softmax(-1) @ v

    fast, counts = compiled(attention, dynamic=True), Counts()
    for b, n in ((2, 5), (2, 9), (3, 12)):
        x, mask = tensors((b * n, 24), (b, 1, n, n))
        close(fast(x, mask), attention(x.double(), mask.double()))
    assert (counts.kernels, counts.left) == (1, 0)


@pytest.mark.parametrize("shifted", ["", "max", "amax"])
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sinks_beside_an_open_number_of_keys(shifted, count, dtype):
    """gpt-oss: scores that each head has learned, in the softmax and not before the values, while a cache grows."""

    def attention(q, k, v, sinks, mask):
        s = q @ k.mT + mask
        s = torch.cat((s, *[sinks.reshape(1, 3, 1, 1).expand(2, 3, q.shape[2], 1)] * count), -1)
        if shifted == "max":
            s = s - s.max(-1, keepdim=True).values
        elif shifted:
            s = s - s.amax(-1, keepdim=True)
        return s.softmax(-1)[..., :-count] @ v

    fast, counts = compiled(attention), Counts()
    for n in (5, 9, 12, 33):
        args = [x.to(dtype) for x in tensors((2, 3, 2, 8), (2, 3, n, 8), (2, 3, n, 8), (3,), (2, 1, 2, n))]
        args[4][1, 0, 1] = -math.inf  # a row that is all sinks
        tolerance = {} if dtype == torch.float32 else {"rtol": 2e-2, "atol": 2e-2}
        torch.testing.assert_close(fast(*args), attention(*map(wide, args)).to(dtype), **tolerance)
    assert (counts.compiled, counts.left) == (2, 0)


def test_numbers_that_sizes_tell():
    """A causal mask made of the length that a cache had before: one kernel for all lengths."""

    def step(x, keys, values):
        past, new = keys.shape[2], x.shape[2]
        keys, values = torch.cat((keys, x + 1), 2), torch.cat((values, x - 1), 2)
        seen = torch.arange(past + new) <= (torch.arange(new) + past)[:, None]
        return F.scaled_dot_product_attention(x, keys, values, attn_mask=seen)

    fast, counts = compiled(step), Counts()
    for past, new in ((5, 3), (8, 4), (12, 2), (40, 5), (77, 6)):
        args = tensors((2, 3, new, 8), *[(2, 3, past, 8)] * 2)
        close(fast(*args), step(*map(wide, args)))
    assert counts.kernels == 2, "one for the first sizes and one for all others"


@pytest.mark.parametrize("window", [5, 1000])
def test_numbers_that_no_size_tells(window):
    """A window over a cache that is no longer than it: the positions in the mask are the same kernel's arguments."""

    def step(q, keys, values, position, first):
        rows, columns = position + torch.arange(q.shape[2])[:, None], torch.arange(keys.shape[2]) + first
        seen = (columns <= rows) & (rows - window < columns)
        return F.scaled_dot_product_attention(q, keys, values, attn_mask=seen)

    fast, counts = compiled(step), Counts()
    for position in (9, 10, 11, 25, 400):
        args = tensors((2, 3, 2, 8), (2, 3, 12, 8), (2, 3, 12, 8))
        where = (position, max(position - 10, 0))
        close(fast(*args, *where), step(*map(wide, args), *where))
    assert counts.kernels <= 3 and counts.left == 0, "two for numbers that dynamo takes as they are, one for all others"


@pytest.mark.parametrize(
    "wanted, known, expected",
    [
        ("s", ["s"], [1, 0]),
        ("s", ["t", "s + 1"], [0, 1, -1]),
        ("s", ["s + t", "t"], [1, -1, 0]),
        ("2*s*t - 3", ["s", "s*t + 1"], [0, 2, -5]),
        ("s", ["2*s"], None),
        ("s", ["t"], None),
        ("s", [], None),
    ],
)
def test_sizes_by_other_sizes(wanted, known, expected):
    assert combination(sympy.sympify(wanted), [sympy.sympify(one) for one in known]) == expected


def test_threads_are_torchs():
    seen = []
    fast, (q,) = compiled(lambda q: F.scaled_dot_product_attention(q, q, q)), tensors((1, 2, 300, 32))
    before, invoke = torch.get_num_threads(), CpuKernel.invoke
    try:
        CpuKernel.invoke = lambda kernel, arrays, threads=None: seen.append(threads) or invoke(kernel, arrays, threads)
        for threads in (1, 2):
            torch.set_num_threads(threads)
            fast(q)
        fast(q[:, :, :4])
    finally:
        CpuKernel.invoke = invoke
        torch.set_num_threads(before)
    assert seen == [1, 2, 1], "too little work is not shared"


def test_first_calls_of_many_threads():
    """Each traces its own size, and torch is traced in one thread at a time."""
    fast, found = compiled(F.scaled_dot_product_attention), []

    def call(length):
        with torch.no_grad():
            for batch in (1, 2, 3):
                (q,) = tensors((batch, 2, length, 16))
                found.append((fast(q, q, q), q))

    threads = [threading.Thread(target=call, args=(length,)) for length in range(30, 36)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 18
    for result, q in found:
        close(result, F.scaled_dot_product_attention(*(q.double(),) * 3))


@pytest.mark.parametrize(
    "shapes", [((0, 2, 5, 8), (0, 2, 6, 8)), ((1, 2, 0, 8), (1, 2, 6, 8)), ((1, 2, 5, 8), (1, 2, 0, 8))]
)
def test_without_elements(shapes):
    q, k = tensors(*shapes)
    found, expected = compiled(F.scaled_dot_product_attention)(q, k, k), F.scaled_dot_product_attention(q, k, k)
    torch.testing.assert_close(found, expected, check_stride=True)


def test_too_little_work():
    fast = compiled(lambda q: F.scaled_dot_product_attention(q, q, q), options={"min_flops": 100_000})
    counts = Counts()
    for n, kernels in ((8, 0), (100, 1)):
        (q,) = tensors((1, 2, n, 16))
        close(fast(q), F.scaled_dot_product_attention(*(q.double(),) * 3))
        assert counts.kernels == kernels
    assert counts.left == 1 and "fewer than min_flops" in counts.reasons[0]


def weights_too(q):
    p = (q @ q.mT).softmax(-1)
    return p @ q, p


def wrong_axis(q):
    return (q @ q.mT).softmax(-2) @ q


def heads_mixed(q):
    p = F.linear((q @ q.mT).softmax(-1).permute(0, 2, 3, 1), torch.eye(3, dtype=q.dtype)).permute(0, 3, 1, 2)
    return p @ q


def probabilities_of_a_layer(q):
    return F.linear(q, torch.eye(8, dtype=q.dtype)[:6]).softmax(-1) @ q


def weights_of_multi_head(q):
    x = q[:, 0].tile(1, 1, 4)
    module = torch.nn.MultiheadAttention(32, 4, batch_first=True, dtype=q.dtype).eval()
    torch.nn.init.constant_(module.in_proj_weight, 0.1)
    torch.nn.init.constant_(module.out_proj.weight, 0.1)
    return module(x, x, x)


def written_between(q):
    s = q @ q.mT
    q.add_(1)
    return s.softmax(-1) @ q


def with_dropout(q):
    return F.scaled_dot_product_attention(q, q, q, dropout_p=0.99)


@pytest.mark.parametrize(
    "function, reason",
    [
        (weights_too, "its scores or probabilities are used elsewhere too"),
        (wrong_axis, "it is normalised along another dimension"),
        (heads_mixed, "a layer stands between its probabilities and the values"),
        (probabilities_of_a_layer, "its scores are not made by a matmul alone, but by a layer"),
        (weights_of_multi_head, "its probabilities are used elsewhere too"),
        (written_between, "memory is written to between its matmuls"),
    ],
)
def test_left_alone(function, reason):
    (q,) = tensors((2, 3, 6, 8))
    counts = Counts()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found, expected = compiled(function)(q.clone()), function(q.double())
    for a, b in zip(*((x,) if isinstance(x, torch.Tensor) else x for x in (found, expected)), strict=True):
        close(a, b)
    assert counts.compiled == 0 and any(reason in r for r in counts.reasons)


def test_dropout_is_left_alone():
    counts = Counts()
    (q,) = tensors((2, 3, 6, 8))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = compiled(with_dropout)(q)
    assert counts.compiled == 0 and (found == 0).any()


def test_writes_to_the_scores_and_before_them():
    def function(q, cache, row):
        cache[:, :, 3] = row
        s = torch.matmul(q, cache.transpose(-1, -2))
        s /= math.sqrt(8)
        s.masked_fill_(torch.arange(9) > 6, -math.inf)
        return torch.softmax(s, -1) @ cache

    q, cache, row = tensors((2, 3, 6, 8), (2, 3, 9, 8), (2, 3, 8))
    counts = Counts()
    mine, theirs = cache.clone(), cache.double()
    close(compiled(function)(q, mine, row), function(q.double(), theirs, row.double()))
    close(mine, theirs)
    assert counts.kernels == 1


def test_layout_of_the_result():
    """Torch's own attention returns a transposed layout, on which a view may rely."""

    def function(x):
        q = x.view(2, 6, 3, 8).transpose(1, 2)
        return F.scaled_dot_product_attention(q, q, q).transpose(1, 2).view(2, 6, 24)

    (x,) = tensors((2, 6, 24))
    close(compiled(function)(x), function(x.double()))


def test_bfloat16():
    args = tensors((2, 3, 9, 8), (2, 3, 9, 8), (2, 3, 9, 8), dtype=torch.bfloat16)
    found = compiled(F.scaled_dot_product_attention)(*args)
    close(found, F.scaled_dot_product_attention(*map(wide, args)), torch.bfloat16)


@pytest.mark.parametrize("rest", ["eager", "inductor"])
@pytest.mark.parametrize("inside", [False, True], ids=["around the model", "inside of it"])
def test_autocast(inside, rest):
    """The casts that torch makes are part of the kernel; the same attention without them has another one."""

    def attention(q, k, v):
        return ((q @ k.mT) / math.sqrt(8)).softmax(-1) @ torch.relu(v)

    def cast(q, k, v):
        with torch.autocast("cpu", torch.bfloat16):
            return attention(q, k, v)

    def fast(*args):
        with torch.autocast("cpu", torch.bfloat16, enabled=not inside):
            return compiled(cast if inside else attention, options={"rest": rest})(*args)

    args = tensors((2, 3, 9, 8), (2, 3, 9, 8), (2, 3, 9, 8))
    plain, half = attention(*args), cast(*args)
    counts = Counts()
    for _ in range(2):
        torch.testing.assert_close(compiled(attention, options={"rest": rest})(*args), plain)
        torch.testing.assert_close(fast(*args), half)
    assert counts.kernels >= 2 and counts.left == 0


@pytest.mark.parametrize(
    "options, message",
    [
        ({"rest": "somebody"}, "rest must be one of"),
        ({"tile": 3}, "unknown option 'tile'; the options are: entry, fuse"),
        ({"threads": -1}, "threads must be a positive integer"),
        ({"min_flops": "many"}, "min_flops must be how many operations, but is 'many'"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(Exception, match=message):
        compiled(lambda x: x + 1, options=options)(torch.zeros(2))


def test_what_is_left_is_told_once():
    (q,) = tensors((2, 3, 6, 8))
    dynamo_kernel._warned.clear()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for function in (weights_too, wrong_axis):
            for _ in range(2):
                torch._dynamo.reset()
                compiled(function)(q)
    about = [str(w.message) for w in told if "attention is left to torch" in str(w.message)]
    assert len(about) == 2 and "used elsewhere too" in about[0] and "along another dimension" in about[1]


def test_a_single_key_is_no_attention():
    """The first token of a decoder: its weight is 1, and nothing is worth a warning."""
    q, k = tensors((2, 3, 4, 8), (2, 3, 1, 8))
    counts = Counts()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="attn_opt")
        close(compiled(lambda q, k: (q @ k.mT).softmax(-1) @ k)(q, k), k.double().expand(2, 3, 4, 8))
    assert counts.kernels == 0

"""torch.compile(…, backend="attn_opt"): attention in kernels, everything else as torch has it."""

import copy
import math
import subprocess
import sys
import threading

import pytest

torch = pytest.importorskip("torch", reason="needs the extra attn_opt[torch]")

import attn_opt.compiler.frontends.dynamo.entry as dynamo  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from attn_opt.compiler.frontends.dynamo.regions import Region  # noqa: E402
from attn_opt.compiler.runtime.cpu import CpuKernel  # noqa: E402
from dynamo_harness import Counts, compiled, fresh  # noqa: E402, F401
from models import MODELS, Decoder  # noqa: E402
from torch.nn.attention.flex_attention import flex_attention  # noqa: E402
from torch_harness import close, tensors, wide  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore:flex_attention called")


pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore:flex_attention called")


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


@pytest.mark.parametrize("name", MODELS)
def test_models(name):
    model, args, attentions = MODELS[name]()
    reference = copy.deepcopy(model).double()
    counts = Counts()
    close(compiled(model)(*args), reference(*map(wide, args)))
    assert (counts.kernels, counts.left) == (attentions, 0)


@pytest.mark.parametrize("rest, lengths", [("eager", (7, 1, 1, 3, 4)), ("inductor", (7, 1))])
def test_decoding_with_a_cache(rest, lengths):
    """A prompt, then token after token; the second length is a new graph for dynamo, which takes inductor 8 s."""
    torch.manual_seed(0)
    model = Decoder().eval()
    reference = copy.deepcopy(model)
    fast = compiled(model, options={"rest": rest})
    start = 0
    for length in lengths:
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


PADDING = torch.arange(80) >= torch.tensor([[0], [30]])
DOCUMENTS = torch.arange(80).expand(2, -1) // 20
LITTLE = {
    "padding": (PADDING.long(), lambda there, i, j: there.to(torch.bool)[:, None, None, :] & (j <= i)),
    "subscripts of padding": (PADDING, lambda there, i, j: there[torch.arange(2)[:, None, None, None], j] & (j <= i)),
    "documents": (DOCUMENTS, lambda of, i, j: (of[:, None, :, None] == of[:, None, None, :]) & (j <= i)),
}


@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize("name", LITTLE)
def test_masks_of_few_numbers_are_computed_by_each_layer(name, added, monkeypatch):
    """They are never made, though all layers share them."""
    data, mask = LITTLE[name]

    def layers(q, k, v, data):
        i, j = torch.arange(80)[None, None, :, None], torch.arange(80)[None, None, None, :]
        live = mask(data, i, j).expand(2, -1, 80, 80)
        low = torch.where(live, torch.zeros((), dtype=q.dtype), torch.finfo(torch.float32).min)
        for _ in range(2):
            scores = q @ k.mT
            scores = scores + low if added else scores.masked_fill(~live, -1e9)
            q = scores.softmax(-1) @ v
        return q

    sizes = []
    cut_out = Region.as_module
    monkeypatch.setattr(Region, "as_module", lambda self, *rest: sizes.append(self.inputs) or cut_out(self, *rest))
    q, k, v = tensors((2, 3, 80, 8), (2, 3, 80, 8), (2, 3, 80, 8))
    counts = Counts()
    close(compiled(layers)(q, k, v, data), layers(q.double(), k.double(), v.double(), data))
    assert (counts.kernels, counts.left) == (2, 0)
    assert all(node.meta["example_value"].shape[-2:] != (80, 80) for inputs in sizes for node in inputs)


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


def test_an_attention_in_the_midst_of_what_looks_like_one():
    """Squares between matmuls may be probabilities; what these need goes through an attention, which is one already."""

    def block(x, w, u, g):
        x = x @ w
        q = x.unflatten(-1, (4, 16)).transpose(1, 2)
        x = x + F.scaled_dot_product_attention(q, q, q).transpose(1, 2).flatten(-2) @ u
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-3) @ g

    args, counts = tensors((2, 9, 64), (64, 64), (64, 64), (64, 24)), Counts()
    torch.testing.assert_close(compiled(block)(*args), block(*args), rtol=1e-4, atol=1e-4)
    assert (counts.kernels, counts.left) == (1, 0)

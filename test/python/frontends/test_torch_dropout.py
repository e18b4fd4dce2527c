"""Kernels of functions of torch in which dropouts are active: against float64, with the masks of the seeds drawn."""

import contextlib
import copy

import pytest

torch = pytest.importorskip("torch", reason="needs the extra attn_opt[torch]")

import torch.nn.functional as F  # noqa: E402
from attn_opt.compiler import CompileError, compile  # noqa: E402
from attn_opt.compiler.frontends.torch import dropout as by_seed  # noqa: E402
from attn_opt.compiler.frontends.torch.seeds import draw  # noqa: E402
from torch_harness import sdpa, tensors  # noqa: E402
from torch_harness import with_gradients as with_gradients  # noqa: E402
from training_harness import SQUARE, assert_like_float64, needy  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "error:attn_opt")


@contextlib.contextmanager
def seeds_of(seed, monkeypatch):
    """Within it, torch's dropouts have the masks that those of a kernel's call have, one after the other."""
    torch.manual_seed(seed)
    seeds = iter(draw(100))

    def dropout(x, p=0.5, training=True, inplace=False):
        return by_seed.dropped(x, p, next(seeds), inplace) if training else x

    def attention(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False):
        return by_seed.scaled_dot_product_attention(q, k, v, next(seeds), attn_mask, dropout_p, is_causal)

    with monkeypatch.context() as patched, by_seed.seeded():
        patched.setattr(F, "dropout", dropout)
        patched.setattr(F, "scaled_dot_product_attention", attention)
        yield


def seeded(kernel, seed):
    def call(*args):
        torch.manual_seed(seed)
        return kernel(*args)

    return call


def by_hand(q, k, v):
    return F.dropout(torch.softmax(q @ k.mT, -1), 0.3) @ v


def of_result(q, k, v):
    return F.dropout(F.dropout(q, 0.2) @ k.mT, 0.1, inplace=True).tanh() @ v


@pytest.mark.parametrize(
    "function",
    [
        by_hand,
        of_result,
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.4),
        lambda q, k, v: F.dropout(by_hand(q, k, v), 0.25) + q,
    ],
)
def test_results_and_gradients(function, monkeypatch):
    args = needy(*SQUARE)
    kernel = seeded(compile(function, args), 3)

    def like(*args):
        with seeds_of(3, monkeypatch):
            return function(*args)

    assert_like_float64(function, args, fast=kernel, like=like)


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(16, 2, dropout=0.2, batch_first=True)
        self.norm, self.drop = torch.nn.LayerNorm(16), torch.nn.Dropout(0.1)

    def forward(self, x, *, mask=None):
        attended, _ = self.attention(x, x, x, need_weights=False, attn_mask=mask)
        return x + self.drop(self.norm(attended))


def test_a_module_in_training(monkeypatch):
    torch.manual_seed(0)
    model, (x,) = Layer(), tensors((2, 7, 16))
    like = copy.deepcopy(model).double()
    mask = torch.ones(7, 7, dtype=torch.bool).triu(1)
    kernel = compile(model, (x,), example_kwargs={"mask": mask})
    torch.manual_seed(5)
    found = kernel(x, mask=mask)
    with seeds_of(5, monkeypatch):
        expected = like(x.double(), mask=mask)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
    for out in (found, expected):
        out.square().sum().backward()
    for one, other in zip(model.parameters(), like.parameters(), strict=True):
        torch.testing.assert_close(one.grad.double(), other.grad, rtol=1e-4, atol=1e-4)


def test_each_call_draws():
    """And its gradients are those of its own masks, whatever is drawn in between."""
    args = needy(*SQUARE)
    kernel = compile(by_hand, args)
    first, other, again = (seeded(kernel, seed)(*args) for seed in (1, 2, 1))
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert not torch.equal(kernel(*args), kernel(*args))
    found = [torch.autograd.grad(out.sum(), args) for out in (other, first, again)]
    assert all(map(torch.equal, found[1], found[2])) and not any(map(torch.equal, found[0], found[1]))


def test_one_number():
    x = torch.ones(())
    kernel = compile(lambda x: F.dropout(x, 0.5), (x,))
    assert {kernel(x).item() for _ in range(64)} == {0.0, 2.0}


@pytest.mark.parametrize("shape", [(8, 64, 65), (40_000,)])
@pytest.mark.parametrize("p", [0.0, 0.25, 1.0])
def test_how_many_are_kept(p, shape):
    x = torch.ones(shape)
    out = compile(lambda x: F.dropout(x, p), (x,))(x)
    assert abs((out == 0).float().mean() - p) < 0.01
    if p < 1:
        torch.testing.assert_close(out[out != 0], torch.full_like(out[out != 0], 1 / (1 - p)))


def test_none_is_drawn_where_none_is_active():
    """As of modules that are asked for their evaluation."""
    (x,) = tensors((2, 7, 16))
    kernel = compile(Layer().eval(), (x,))
    state = torch.get_rng_state()
    assert torch.equal(kernel(x), kernel(x)) and torch.equal(state, torch.get_rng_state())


def test_open_sizes(monkeypatch):
    length = torch.export.Dim("length", min=2)
    kernel = compile(by_hand, needy(*[(2, 4, 10, 8)] * 3), dynamic_shapes=({2: length},) * 3)
    for size in (10, 7, 33):

        def like(*args, size=size):
            with seeds_of(size, monkeypatch):
                return by_hand(*args)

        assert_like_float64(by_hand, needy(*[(2, 4, size, 8)] * 3), fast=seeded(kernel, size), like=like)


def test_programs_and_arrays():
    """A program of torch.export is left as it is; arrays of numpy are taken, too."""
    (x,) = tensors((2, 7, 16))
    program = torch.export.export(Layer(), (x,))
    text = str(program.graph)
    kernel = compile(program)
    assert str(program.graph) == text and len(program.graph_signature.user_inputs) == 1
    assert not torch.equal(kernel(x), kernel(x))
    args = tensors(*SQUARE)
    found = compile(by_hand, args)(*(x.numpy() for x in args))
    assert type(found).__module__ == "numpy" and found.shape == SQUARE[0]


def test_a_module_without_arguments():
    class Alone(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.numbers = torch.nn.Parameter(torch.ones(64))

        def forward(self):
            return F.dropout(self.numbers, 0.5) * 3

    model = Alone()
    out = compile(model, ())()
    out.sum().backward()
    torch.testing.assert_close(out, model.numbers.grad)
    assert set(out.tolist()) == {0.0, 6.0}


def test_a_wrong_call_counts_no_seeds():
    kernel = compile(by_hand, tensors(*SQUARE))
    with pytest.raises(CompileError, match="was traced for 3 arguments, but called with 2 arguments"):
        kernel(*tensors(*SQUARE)[:2])


def test_dropouts_for_the_gpu(gpu):
    args = [x.requires_grad_() for x in tensors(*[(2, 4, 200, 64)] * 3, dtype=torch.float16)]
    kernel = compile(sdpa(is_causal=True, dropout_p=0.1), args, target="nvidia")
    out = kernel(*args)
    assert kernel.ir("raised").count("linalg_ext.softmax") == 1 and len(gpu.launches) == 1
    out.backward(torch.ones_like(out))
    assert len(gpu.launches) == 4

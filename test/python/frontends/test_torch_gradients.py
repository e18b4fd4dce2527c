"""Gradients through kernels of functions of torch: those of the function in float64."""

import copy
import functools
import itertools
import warnings

import pytest

torch = pytest.importorskip("torch", reason="needs the extra attn_opt[torch]")

import torch.nn.functional as F  # noqa: E402
from attn_opt.compiler import CompileError, compile  # noqa: E402
from attn_opt.compiler.frontends.torch import derivatives as own_derivatives  # noqa: E402
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402
from torch_harness import sdpa, tensors  # noqa: E402
from torch_harness import with_gradients as with_gradients  # noqa: E402
from training_harness import (  # noqa: E402
    GROUPS,
    PLAIN,
    SQUARE,
    assert_like_float64,
    by_hand,
    changed_afterwards,
    merged_heads,
    needy,
)

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "error:attn_opt")


def learned(q, k, v, bias, temperature):
    return torch.softmax(q @ k.mT * temperature.exp() + bias, -1) @ v


def capped(q, k, v):
    return torch.softmax(20 * torch.tanh(q @ k.mT / 20), -1) @ v


def masked(q, k, v, mask):
    return torch.softmax((q @ k.mT).masked_fill(~mask, -torch.inf), -1) @ v


def padded(q, k, v):
    return torch.softmax((q @ k.mT).masked_fill(torch.arange(k.shape[-2]) > 4, -torch.inf), -1) @ v


def written_at(q, k):
    k = k.unflatten(-1, (3, 8)).transpose(-3, -2)
    k = (k + 1).index_copy(-2, torch.tensor([0]), k[..., :1, :] * 2)
    return by_hand(q.unsqueeze(1), k, k)


def two_attentions(q, k, v):
    return by_hand(by_hand(q, k, v), k, v) + q


def gated(q, k, v, gate):
    """Its factor is read behind it, too, from another form of the gate."""
    out = torch.einsum("bhmt,bhtd->bhmd", torch.softmax(q @ k.mT, -1) * gate, v)
    return out * torch.sigmoid(out)


CASES = {
    "by hand": (by_hand, PLAIN),
    "sdpa, causal": (sdpa(is_causal=True), SQUARE),
    "sdpa, grouped": (sdpa(enable_gqa=True), GROUPS),
    "learned bias and temperature": (learned, [*PLAIN, (4, 5, 7), ()]),
    "softcap": (capped, PLAIN),
    "one query": (lambda q, k, v: padded(q, k, v).square(), [(1, 1, 1, 8), *[(1, 1, 7, 8)] * 2]),
    "index_copy of what is transposed": (written_at, [(3, 5, 8), (3, 1, 24)]),
    "gate": (gated, [*[(1, 1, 7, 8)] * 3, (1, 1, 1, 1)]),
    "merged heads": (merged_heads, [(2, 9, 48)]),
    "more than one attention": (two_attentions, SQUARE),
    "written to afterwards": (changed_afterwards, PLAIN),
    "no attention": (lambda x, y: torch.sin(x) @ y, [(5, 7), (7, 3)]),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients(name):
    function, shapes = CASES[name]
    args = needy(*shapes)
    assert_like_float64(function, args, fast=compile(function, args))


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_gradients_of_what_is_read_between_pixels(mode, padding):
    def function(x, places):
        y = F.grid_sample(x, places, mode, padding, align_corners=False).flatten(2).mT
        return by_hand(y, y, y)

    torch.manual_seed(0)
    args = [torch.randn(2, 8, 5, 6).requires_grad_(), (torch.rand(2, 4, 3, 2) * 2.4 - 1.2).requires_grad_()]
    assert_like_float64(function, args, fast=compile(function, args), atol=5e-6)


@pytest.mark.parametrize("padding", [None, 3])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_gradients_of_bags(mode, padding):
    def function(rows, numbers, starts):
        y = F.embedding_bag(numbers, rows, starts, mode=mode, padding_idx=padding) * 0.25
        return by_hand(y, y, y)

    torch.manual_seed(0)
    starts = torch.tensor([0, 4, 4, 11, 25])
    args = [torch.randn(20, 16).requires_grad_(), torch.randint(0, 20, (30,)), starts]
    assert_like_float64(function, args, fast=compile(function, args), atol=5e-6)


@pytest.mark.parametrize("of", ["pixels", "bags"])
def test_gradients_of_one_of_two_results(of):
    """Which a derivative gives that computes all anew, of the function as it is written."""

    def function(x, places):
        y = F.grid_sample(x, places, align_corners=True).flatten(2).mT if of == "pixels" else F.embedding_bag(places, x)
        return by_hand(y, y, y), y.sum(-1)

    torch.manual_seed(0)
    x, places = torch.randn(2, 8, 5, 6), torch.rand(2, 4, 3, 2) * 2 - 1
    if of == "bags":
        x, places = torch.randn(20, 16), torch.randint(0, 20, (5, 4))
    found, wanted = [], []
    for kind, gradients in ((torch.float32, found), (torch.float64, wanted)):
        x = x.detach().to(kind).requires_grad_()
        args = x, places.to(kind) if of == "pixels" else places
        first, _ = compile(function, args)(*args) if gradients is found else function(*args)
        gradients += torch.autograd.grad(first.square().sum(), x)
    torch.testing.assert_close(found[0].double(), wanted[0], rtol=5e-6, atol=5e-5)


@pytest.mark.parametrize("capped_at", [None, 60.0])
@pytest.mark.parametrize("is_whole", [True, False])
def test_large_scores(is_whole, capped_at):
    """Probabilities of the derivative are those of the forward: scores are relative to one of them, not to a number
    that was rounded otherwise. These scores are not, or as torch rounds them."""

    def function(q, k, v):
        s = q @ k.mT / 4
        return torch.softmax(s if capped_at is None else capped_at * torch.tanh(s / capped_at), -1) @ v

    def errors(found):
        return [float((a.double() - b).abs().max()) for a, b in zip(found, exact, strict=True)]

    torch.manual_seed(0)
    torch._dynamo.reset()
    q, k = (torch.randint(-9, 10, (2, 4, n, 8)).float() for n in (24, 40))  # scores of up to 100
    args = [q.requires_grad_(), k.requires_grad_(), torch.randn(2, 4, 40, 32, requires_grad=True)]
    weights = torch.randn(2, 4, 24, 32)
    wide = [a.detach().double().requires_grad_() for a in args]
    exact = torch.autograd.grad(function(*wide), wide, weights.double())
    fast = compile(function, args) if is_whole else torch.compile(function, backend="attn_opt")
    ours = torch.autograd.grad(fast(*args), args, weights)
    eager = torch.autograd.grad(function(*args), args, weights)
    for own, other in zip(errors(ours), errors(eager), strict=True):
        assert own <= 2.5 * other


def test_gradients_of_what_is_rounded():
    """They are computed of what is rounded, not of what it is rounded to."""
    args = needy(*PLAIN)
    kernel = compile(lambda q, k, v: by_hand(q, k, v).bfloat16(), args)
    weights = torch.linspace(-1, 2, args[0].numel()).reshape(args[0].shape).bfloat16()
    found = torch.autograd.grad(kernel(*args), args, weights)
    wide = [a.detach().double().requires_grad_() for a in args]
    wanted = torch.autograd.grad(by_hand(*wide), wide, weights.double())
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=2e-5, atol=2e-5)


@given(*[st.integers(1, 40)] * 2, st.integers(1, 20), st.integers(1, 20), st.booleans())
@settings(deadline=None, max_examples=10)
def test_gradients_of_any_sizes(queries, keys, columns, of_values, bias):
    args = needy((2, queries, columns), (2, keys, columns), (2, keys, of_values), (queries, keys), ())
    function = learned if bias else by_hand
    args = args if bias else args[:3]
    assert_like_float64(function, args, fast=compile(function, args), atol=5e-6)


@given(st.lists(st.integers(0, 12), min_size=1, max_size=4), st.sampled_from([0, 1, -1]), st.data())
@settings(deadline=None, max_examples=12)
def test_gradients_of_what_is_read_in_parts(cuts, dim, data):
    """By slices, single elements among them, some of which may be read twice or not at all (``join-pieces``)."""
    cuts = [0, *sorted(cuts), 13]
    parts = [slice(a, b) for a, b in itertools.pairwise(cuts)]
    parts = data.draw(st.permutations([*parts, *data.draw(st.lists(st.sampled_from(parts), max_size=1))]))
    parts = parts[: data.draw(st.integers(1, len(parts)))]
    has_whole, element = data.draw(st.booleans()), data.draw(st.sampled_from([None, 0, 12, -1]))

    def function(x):
        x = x.movedim(0, dim)
        found = [(x.movedim(dim, 0)[part] * (n + 1.5)).sin().sum(0) for n, part in enumerate(parts)]
        found += [] if element is None else [x.select(dim, element).cos()]
        return sum(found) + (x.exp().sum(dim) if has_whole else 0)

    args = needy((13, 4, 5))
    assert_like_float64(function, args, fast=compile(function, args), atol=5e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types(dtype):
    args = [x.to(dtype).requires_grad_() for x in tensors(*SQUARE)]
    function = sdpa(is_causal=True)
    assert_like_float64(function, args, fast=compile(function, args), atol=8e-3)


def derivatives(kernel):
    """Each that was compiled as what it is by, of, and whether it takes what is kept."""
    halves = [
        (needed, of, True)
        for (needed, of), kernels in kernel.gradients._halves.items()
        for one in (*kernels.of_any, *kernels.by_shapes.values())
        if one is not None and vars(one).get("derivative") is not None
    ]
    anew = [
        (*key, False)
        for key, kernels in kernel.gradients.derivatives.items()
        for _ in (*kernels.of_any, *kernels.by_shapes.values())
    ]
    return halves + anew


@pytest.mark.parametrize("function", [sdpa(is_causal=True), two_attentions])
def test_what_is_kept_of_attentions(function):
    """Their outputs, and a number of each row: the derivative has no softmax to find them anew."""
    args = needy(*SQUARE)
    kernel = compile(function, args)
    kernel(*args).sum().backward()
    assert derivatives(kernel) == [((0, 1, 2), (0,), True)]


def test_other_shapes_are_refused():
    kernel = compile(by_hand, needy(*PLAIN))
    with pytest.raises(CompileError, match="argument 0 must be"):
        kernel(*needy((2, 4, 6, 8), *PLAIN[1:]))


def test_no_more_than_is_needed():
    q, k, v = tensors(*PLAIN)
    kernel, needing = compile(by_hand, (q, k, v)), k.clone().requires_grad_()
    assert not kernel(q, k, v).requires_grad
    with torch.no_grad():
        assert not kernel(q, needing, v).requires_grad
    with torch.inference_mode():
        assert not kernel(q, needing, v).requires_grad
    assert "gradients" not in vars(kernel)
    assert_like_float64(by_hand, [q, needing, v], fast=kernel)
    every = needy(*PLAIN)
    (found,) = torch.autograd.grad(kernel(*every).sum(), every[:1])
    (wanted,) = torch.autograd.grad(by_hand(*every).sum(), every[:1])
    torch.testing.assert_close(found, wanted)
    assert [needed for needed, _, _ in derivatives(kernel)] == [(1,), (0, 1, 2)]


def test_mask_that_needs_none():
    args = needy(*PLAIN)
    mask = torch.ones(5, 7, dtype=torch.bool).tril(2)
    assert_like_float64(masked, [*args, mask], fast=compile(masked, [*args, mask]))


def several(q, k, v):
    scores = q @ k.mT
    return {"out": torch.softmax(scores, -1) @ v, "lse": scores.logsumexp(-1)}, k * 2, q.argmax(-1), v.detach()


@pytest.mark.parametrize("read", [["out"], ["lse"], ["out", "lse", "k"]])
def test_several_results(read):
    def total(function):
        def summed(*args):
            found, doubled, places, detached = function(*args)
            assert not places.requires_grad and not detached.requires_grad
            return sum({**found, "k": doubled}[name].sin().sum() for name in read)

        return summed

    args = needy(*PLAIN)
    args[2].requires_grad_("lse" not in read)  # it has none by that alone
    kernel = compile(several, args)
    assert_like_float64(total(several), args, fast=total(kernel), atol=5e-6)
    assert len(derivatives(kernel)) == 1


def test_results_without_gradient():
    x = needy((3, 4))[0]
    kernel = compile(lambda x: (x.argmax(-1), x.detach() * 2, torch.ones(3)), (x,))
    assert not any(result.requires_grad for result in kernel(x))


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.project, self.out = torch.nn.LayerNorm(16), torch.nn.Linear(16, 48), torch.nn.Linear(16, 16)
        self.register_buffer("scale", torch.tensor(0.4))
        self.frozen = torch.nn.Parameter(torch.ones(16), requires_grad=False)

    def forward(self, x):
        q, k, v = self.project(self.norm(x)).chunk(3, -1)
        return x * self.frozen + self.out(F.scaled_dot_product_attention(q, k, v, scale=self.scale.item()))


class Tempered(Block):
    def forward(self, x):
        q, k, v = self.project(self.norm(x)).chunk(3, -1)
        return x * self.frozen + self.out(torch.softmax(q @ k.mT * self.scale, -1) @ v)


@pytest.mark.parametrize("training", [True, False])
def test_parameters_are_learned(training):
    """Whatever the mode is, as in torch; weights are read as they are at each call."""
    torch.manual_seed(0)
    model = Tempered().train(training)
    like = copy.deepcopy(model).double()
    (x,) = tensors((2, 7, 16))
    kernel = compile(model, (x,))
    steps = [torch.optim.SGD(m.parameters(), 0.1) for m in (model, like)]
    for _ in range(3):
        for step, loss in zip(steps, (kernel(x).square().mean(), like(x.double()).square().mean()), strict=True):
            step.zero_grad()
            loss.backward()
        for one, other in zip(model.parameters(), like.parameters(), strict=True):
            assert (one.grad is None) == (other.grad is None)
            if one.grad is not None:
                torch.testing.assert_close(one.grad.double(), other.grad, rtol=1e-4, atol=1e-6)
        for step in steps:
            step.step()
        with torch.no_grad():
            model.scale += 0.2
            like.scale += 0.2
    assert len(derivatives(kernel)) == 1


def test_batch_norm_in_training():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.Tanh())
    like, (x,) = copy.deepcopy(model).double(), needy((5, 6))
    kernel = compile(model, (x,))
    for _ in range(2):
        kernel(x).square().sum().backward()
        like(x.double()).square().sum().backward()
    pairs = [*zip(model.buffers(), like.buffers(), strict=True)]
    pairs += [(a.grad, b.grad) for a, b in zip(model.parameters(), like.parameters(), strict=True)]
    for one, other in pairs:
        torch.testing.assert_close(one.double(), other.double(), rtol=1e-5, atol=1e-5)
    assert not any(buffer.requires_grad for buffer in model.buffers())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("eps", [None, 1e-3])
def test_fused_rms_norm(eps, dtype):
    """As rms_norm becomes on GPUs where it is differentiated: its sums alone are kept."""

    def attended(q, k, v, weight):
        q, k = (torch.ops.aten._fused_rms_norm(x, [16], w, eps)[0] for x, w in ((q, weight), (k, None)))
        return F.scaled_dot_product_attention(q, k, v)

    q, k, v, w = (x.detach().to(dtype).requires_grad_() for x in needy((2, 9, 16), (2, 11, 16), (2, 11, 16), (16,)))
    wide = [x.detach().double().requires_grad_() for x in (q, k, v, w)]
    compile(attended, (q, k, v, w))(q, k, v, w).square().sum().backward()
    attended(*wide).square().sum().backward()
    for one, other in zip((q, k, v, w), wide, strict=True):
        error = (one.grad.double() - other.grad).norm() / other.grad.norm()
        assert error < (1e-5 if dtype == torch.float32 else 2e-2)


outside = torch.nn.Parameter(torch.linspace(-1, 1, 64).view(8, 8))


def helped(x):
    return x @ outside


def test_what_a_function_refers_to():
    torch.manual_seed(0)
    inside, plain = torch.nn.Linear(8, 8), torch.randn(8, 8, requires_grad=True)
    number = torch.nn.Parameter(torch.tensor(0.7))

    def function(model, x):
        return helped(model(x)) @ plain * number

    class Called:
        def __init__(self):
            self.layers = {"first": torch.nn.Linear(8, 8), "scale": torch.nn.Parameter(torch.ones(8))}

        def __call__(self, x):
            return self.layers["first"](x) * self.layers["scale"]

    model, called = torch.nn.Linear(8, 8), Called()
    partial = functools.partial(function, torch.nn.Sequential(inside, model))
    method = torch.nn.Bilinear(8, 8, 4).forward
    (x,) = tensors((5, 8))
    for traced, learned in (
        (partial, [*inside.parameters(), *model.parameters(), plain, outside, number]),
        (lambda x: method(x, x), [*method.__self__.parameters()]),
        (called, [*called.layers["first"].parameters(), called.layers["scale"]]),
        (called.__call__, [*called.layers["first"].parameters(), called.layers["scale"]]),
    ):
        kernel = compile(traced, (x,))
        for _ in range(2):
            found = torch.autograd.grad(kernel(x).square().sum(), learned)
            wanted = torch.autograd.grad(traced(x).square().sum(), learned)
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
            with torch.no_grad():
                for one in learned:
                    one *= 1.5


def test_a_weight_of_two_layers():
    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
            self.second.weight = self.first.weight

        def forward(self, x):
            return self.second(self.first(x).tanh())

    model, (x,) = Tied(), tensors((3, 8))
    found = torch.autograd.grad(compile(model, (x,))(x).square().sum(), [*model.parameters()])
    torch.testing.assert_close(found, torch.autograd.grad(model(x).square().sum(), [*model.parameters()]))


def test_flex_attention():
    """Which torch has no gradients of on a CPU."""
    from torch.nn.attention.flex_attention import flex_attention

    class Flex(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.project, self.slopes = torch.nn.Linear(8, 8), torch.nn.Parameter(torch.linspace(0.1, 1, 4))

        def forward(self, q, k, v):
            return flex_attention(self.project(q), k, v, lambda s, b, h, i, j: s + self.slopes[h] * (i - j))

    class ByHand(Flex):
        def forward(self, q, k, v):
            distances = torch.arange(6)[:, None] - torch.arange(6)
            scores = self.project(q) @ k.mT / 8**0.5 + self.slopes[:, None, None] * distances
            return torch.softmax(scores, -1) @ v

    model, args = Flex(), tensors(*SQUARE)
    like = ByHand().double()
    like.load_state_dict(model.state_dict())
    kernel = compile(model, args)
    kernel(*args).square().sum().backward()
    like(*(x.double() for x in args)).square().sum().backward()
    for one, other in zip(model.parameters(), like.parameters(), strict=True):
        torch.testing.assert_close(one.grad.double(), other.grad, rtol=1e-4, atol=1e-4)


def test_what_a_tensor_was_computed_from():
    """That the function refers to."""
    weight = torch.randn(8, 8, requires_grad=True)
    computed, (x,) = weight.exp(), tensors((5, 8))
    found = torch.autograd.grad(compile(lambda x: x @ computed, (x,))(x).sum(), weight)
    torch.testing.assert_close(found, torch.autograd.grad((x @ weight.exp()).sum(), weight))


def test_layout_of_gradients():
    """Gradients lie in memory as what they are of, as torch's own do; gradients that come need not."""
    q, k, v = (x.transpose(1, 2).requires_grad_() for x in tensors(*[(2, 9, 4, 8)] * 3))
    kernel = compile(by_hand, (q, k, v))
    found = torch.autograd.grad(kernel(q, k, v).transpose(1, 3).tanh().sum(), (q, k, v))
    assert [g.stride() for g in found] == [x.stride() for x in (q, k, v)]
    wanted = torch.autograd.grad(by_hand(q, k, v).tanh().sum(), (q, k, v))
    torch.testing.assert_close(found, wanted)


def test_open_sizes():
    """One kernel of each kind for all of them."""
    batch, length = torch.export.Dim("batch", min=2), torch.export.Dim("length", min=2)
    kernel = compile(by_hand, needy(*[(3, 4, 10, 8)] * 3), dynamic_shapes=({0: batch, 2: length},) * 3)
    for shape in ((3, 4, 10, 8), (2, 4, 33, 8), (5, 4, 7, 8)):
        assert_like_float64(by_hand, needy(*[shape] * 3), fast=kernel)
    assert derivatives(kernel) == [((0, 1, 2), (0,), True)]


def test_autocast():
    args = needy(*SQUARE)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        kernel = compile(by_hand, args)
        wanted = torch.autograd.grad(by_hand(*args).sum(), args)
    found = torch.autograd.grad(kernel(*args).sum(), args)
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one, other, rtol=0.03, atol=0.03)


def test_checkpoints_and_hooks():
    args = needy(*SQUARE)
    kernel = compile(by_hand, args)
    assert_like_float64(
        by_hand,
        args,
        fast=lambda *a: checkpoint(kernel, *a, use_reentrant=False).sin().sum(),
        like=lambda *a: by_hand(*a).sin().sum(),
    )
    with torch.autograd.graph.save_on_cpu():
        assert_like_float64(by_hand, args, fast=kernel)


def test_arrays_of_numpy_have_none():
    model = torch.nn.Linear(4, 4)
    kernel = compile(model, tensors((2, 4)))
    assert type(kernel(tensors((2, 4))[0].numpy())).__module__ == "numpy"


def test_writes_between_forward_and_backward():
    q, k, v = needy(*PLAIN)
    kernel = compile(by_hand, (q, k, v))
    out = kernel(q, k, v)
    with torch.no_grad():
        k += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()
    model, (x,) = torch.nn.Linear(4, 4), needy((2, 4))
    kernel = compile(model, (x,))
    for parameter, refused in ((model.bias, False), (model.weight, True)):
        out = kernel(x)
        with torch.no_grad():
            parameter += 1
        if not refused:
            out.sum().backward()
            continue
        with pytest.raises(RuntimeError, match=r"of shape \(4, 4\), which the gradients of a call of 'main' depend on"):
            out.sum().backward()


def test_kernels_that_write_to_arguments_have_none():
    def step(cache, x):
        return torch.slice_scatter(cache, x, 0, 1, 2)

    cache, x = tensors((4, 6), (1, 6))
    x.requires_grad_()
    kernel = compile(step, (cache, x), donate=[0])
    with pytest.warns(UserWarning, match="results of a kernel that writes to its arguments have none") as told:
        assert not kernel(cache, x).requires_grad
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernel(cache, x)  # once

    def doubled(x, y):
        return x.mul_(2) @ y

    kernel = compile(doubled, tensors((4, 6), (6, 3)))
    with pytest.warns(UserWarning, match="results of a kernel that writes to its arguments have none"):
        assert not kernel(*tensors((4, 6)), *needy((6, 3))).requires_grad


def test_programs_without_examples_have_none():
    program = torch.export.export(torch.nn.Linear(4, 4), tensors((2, 4)))
    program.example_inputs = None
    kernel = compile(program)
    with pytest.warns(UserWarning, match="results of a program without example inputs have none"):
        assert not kernel(*tensors((2, 4))).requires_grad


def test_derivatives_without_a_kernel():
    """They are errors where gradients are asked for; calls alone are fine."""
    args = (tensors((3, 4))[0].to(torch.complex64).requires_grad_(),)
    kernel = compile(lambda x: x.abs(), args)
    out = kernel(*args)
    torch.testing.assert_close(out, args[0].abs())
    with pytest.raises(
        CompileError, match="gradients go back through 'main', whose derivative has no kernel"
    ) as caught:
        out.sum().backward()
    assert str(caught.value).count("leave that op to torch, by torch.compile(…, backend='attn_opt')") == 1


def test_second_derivatives_are_refused():
    """Where they are asked for: first ones may be computed so that they could have some."""
    args = needy(*PLAIN)
    kernel = compile(by_hand, args)
    found = torch.autograd.grad(kernel(*args).sum(), args, create_graph=True)
    torch.testing.assert_close(found, torch.autograd.grad(by_hand(*args).sum(), args))
    with pytest.raises(RuntimeError, match="kernels are differentiable once"):
        found[0].square().sum().backward()


@pytest.mark.parametrize("kind", ["GRU", "LSTM"])
def test_recurrent_layers_are_written_step_by_step(kind, monkeypatch):
    """On a GPU autograd would see one op of cuDNN."""
    written = []
    for op, steps in own_derivatives.STEP_BY_STEP.items():
        monkeypatch.setitem(
            own_derivatives._WRITTEN, op, lambda *args, steps=steps: written.append(steps) or steps(*args)
        )

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.recurrent = getattr(torch.nn, kind)(16, 16, batch_first=True)
            self.attention = torch.nn.MultiheadAttention(16, 2, batch_first=True)

        def forward(self, x):
            y = self.recurrent(x)[0]
            return self.attention(y, y, y, need_weights=False)[0]

    torch.manual_seed(0)
    model, x = Model(), torch.randn(2, 2, 16, requires_grad=True)
    inputs = [x, *model.parameters()]
    out = compile(model, (x,))(x)
    wanted = torch.randn_like(out)
    found, right = (torch.autograd.grad(y, inputs, wanted) for y in (out, model(x)))
    assert written
    for one, other in zip(found, right, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)

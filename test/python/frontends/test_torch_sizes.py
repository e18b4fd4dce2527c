"""Functions of torch whose sizes are open (torch.export's dynamic_shapes)."""

import copy
import math

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra attn_opt[torch]")

import torch.nn.functional as F  # noqa: E402
from attn_opt.compiler import CompileError, compile  # noqa: E402
from torch.export import Dim  # noqa: E402
from torch_harness import close, sdpa, tensors, wide  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")


@pytest.mark.parametrize("causal", [False, True])
def test_dynamic_sizes(causal):
    batch, queries, keys = Dim("batch"), Dim("queries"), Dim("keys")
    shapes = ({0: batch, 2: queries}, {0: batch, 2: keys}, {0: batch, 2: keys})

    def attention(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)

    kernel = compile(attention, tensors((2, 4, 9, 8), (2, 2, 13, 8), (2, 2, 13, 8)), dynamic_shapes=shapes)
    for b, m, n in ((2, 9, 13), (1, 70, 70), (3, 1, 129)):
        args = tensors((b, 4, m, 8), (b, 2, n, 8), (b, 2, n, 8))
        close(kernel(*args), attention(*map(wide, args)))


@pytest.mark.parametrize(
    ("shapes", "condition", "fitting", "other", "message"),
    [
        ({0: Dim.AUTO}, lambda n: n > 4, 70, 3, r"q\.size\(\)\[0\] >= 5"),
        ({0: Dim.AUTO}, lambda n: n % 2 == 0, 70, 71, r"q\.size\(\)\[0\] % 2 == 0"),
        ({0: Dim("rows", max=64)}, lambda n: n <= 64, 64, 65, r"q\.size\(\)\[0\] <= 64"),
    ],
)
def test_sizes_that_lead_elsewhere_are_refused(shapes, condition, fitting, other, message):
    def attention(q, k):
        return (q @ k.mT).softmax(-1) @ k if condition(q.shape[0]) else q

    kernel = compile(attention, tensors((8, 8), (13, 8)), dynamic_shapes=(shapes, {}))
    args = tensors((fitting, 8), (13, 8))
    close(kernel(*args), attention(*map(wide, args)))
    for wrong in (tensors((other, 8), (13, 8)), [np.zeros((other, 8), np.float32), np.zeros((13, 8), np.float32)]):
        with pytest.raises(CompileError, match=f"was traced for sizes with {message}"):
            kernel(*wrong)


@pytest.mark.parametrize("split", [lambda x: x.chunk(2), lambda x: x.split([3, x.shape[0] - 3])])
def test_parts_of_open_sizes(split):
    def attention(x):
        q, k = split(x)
        return (q @ k.mT).softmax(-1) @ k

    kernel = compile(attention, tensors((8, 8)), dynamic_shapes=({0: Dim.AUTO},))
    for rows in (18, 130):
        (x,) = tensors((rows, 8))
        close(kernel(x), attention(wide(x)))


@pytest.mark.parametrize(
    "number",
    [
        lambda n: n**-0.5 + n**0.5 + float(n) + math.sqrt(n),
        lambda n: n**3 + (n / 2) ** 2,
        lambda n: n % 3 + (-n) % 4,
        lambda n: max(n, 8) - min(n, 8) + math.ceil(n / 3),
    ],
)
def test_numbers_that_sizes_tell(number):
    kernel = compile(lambda x: x * number(x.shape[0]), tensors((9, 4)), dynamic_shapes=({0: Dim.DYNAMIC},))
    for rows in (1, 5, 8, 13):
        (x,) = tensors((rows, 4))
        close(kernel(x), x.double() * number(rows))


@pytest.mark.parametrize("shift", [3, -9])
def test_rolled_by_more_than_an_open_size(shift):
    kernel = compile(lambda x: x.roll(shift, 0), tensors((8, 4)), dynamic_shapes=({0: Dim.DYNAMIC},))
    for rows in (0, 2, 8, 20):
        (x,) = tensors((rows, 4))
        torch.testing.assert_close(kernel(x), x.roll(shift, 0))


def test_values_of_an_open_length_that_are_read_backwards():
    """In bf16 they are packed in pairs, by a body that is no vector's."""

    def attention(q, k, v):
        return (q @ k.mT).softmax(-1) @ v.flip(1)

    traced = tensors(*[(2, 7, 16)] * 3, dtype=torch.bfloat16)
    kernel = compile(attention, traced, dynamic_shapes=({1: Dim.AUTO},) * 3)
    for length in (7, 64, 33):
        args = tensors(*[(2, length, 16)] * 3, dtype=torch.bfloat16)
        close(kernel(*args), attention(*map(wide, args)), torch.bfloat16)


@pytest.mark.parametrize(
    ("scores", "output", "shape_of_q", "shape_of_k", "open_sizes"),
    [
        ("bgrnd,bgmd->bgrnm", "bgrnm,bgmd->bngrd", (2, 2, 3, 9, 8), (2, 2, 7, 8), ({0: "b", 3: "n"}, {0: "b", 2: "m"})),
        ("...nd,...md->...nm", "...nm,...md->...nd", (2, 3, 9, 8), (2, 3, 11, 8), ({0: "b", 2: "n"}, {0: "b", 2: "m"})),
        ("bncd,bmcd->bnm", "bnm,bmcd->bncd", (2, 9, 3, 8), (2, 11, 3, 8), ({0: "b", 1: "n"}, {0: "b", 1: "m"})),
    ],
    ids=["groups of heads", "dots", "sum over two"],
)
def test_einsums_of_open_sizes(scores, output, shape_of_q, shape_of_k, open_sizes):
    def attention(q, k):
        return torch.einsum(output, torch.einsum(scores, q, k).softmax(-1), k)

    shapes = [dict.fromkeys(of, Dim.AUTO) for of in open_sizes]
    kernel = compile(attention, tensors(shape_of_q, shape_of_k), dynamic_shapes=shapes)
    assert "1 attention found and fused" in kernel.explain()
    for sizes in ({"b": 2, "n": 9, "m": 11}, {"b": 5, "n": 17, "m": 70}):
        args = tensors(
            *(
                [sizes[of[d]] if d in of else size for d, size in enumerate(shape)]
                for shape, of in zip((shape_of_q, shape_of_k), open_sizes, strict=True)
            )
        )
        close(kernel(*args), attention(*map(wide, args)))


@pytest.mark.parametrize("equation", ["bnm,bn->bm", "bnm->m", "bnm,bnm->b", "bnm,md->nd"])
def test_einsums_of_open_sizes_that_sum_more(equation):
    terms = equation.partition("->")[0].split(",")
    shapes = tuple({i: Dim.AUTO for i, c in enumerate(term) if c in "bn"} for term in terms)
    sizes = {"b": 2, "n": 7, "m": 5, "d": 3}
    function = lambda *args: torch.einsum(equation, *args)  # noqa: E731
    kernel = compile(function, tensors(*([sizes[c] for c in term] for term in terms)), dynamic_shapes=(shapes,))
    sizes |= {"b": 3, "n": 11}
    args = tensors(*([sizes[c] for c in term] for term in terms))
    close(kernel(*args), function(*map(wide, args)))


def test_a_reshape_of_open_sizes_that_hides_softmax_is_told_of():
    def attention(q, k):  # queries in two dimensions, which the product merges
        return torch.einsum("bxyhm,bmhd->bxyhd", torch.einsum("bxyhd,bmhd->bxyhm", q, k).softmax(-1), k)

    args = tensors((2, 3, 5, 4, 8), (2, 11, 4, 8))
    with pytest.warns(match="a reshape that merges several open sizes, or makes several of one, hides it"):
        kernel = compile(attention, args, dynamic_shapes=[{1: Dim.AUTO, 2: Dim.AUTO}, {1: Dim.AUTO}])
    close(kernel(*args), attention(*map(wide, args)))


def test_differences_of_probabilities_of_open_sizes():
    def attention(q, k, v):
        a, b = ((x @ y.mT).softmax(-1) for x, y in zip(q.chunk(2, -1), k.chunk(2, -1), strict=True))
        return (a - 0.3 * b) @ v

    kernel = compile(attention, tensors((2, 9, 16), (2, 13, 16), (2, 13, 8)), dynamic_shapes=[{1: Dim.AUTO}] * 3)
    assert "2 attentions found and fused" in kernel.explain()
    for n, m in ((9, 13), (70, 5)):
        args = tensors((2, n, 16), (2, m, 16), (2, m, 8))
        close(kernel(*args), attention(*map(wide, args)))


def test_expanded_by_open_sizes_and_kept_ones():
    def attention(q, k, sink):
        column = sink.view(1, -1, 1, 1).expand(q.shape[0], -1, q.shape[2], 1)
        return torch.cat((q @ k.mT, column), -1).softmax(-1)[..., :-1] @ k

    shapes = ({0: Dim.AUTO, 2: Dim.AUTO}, {0: Dim.AUTO, 2: Dim.AUTO}, {})
    kernel = compile(attention, tensors((2, 3, 9, 8), (2, 3, 13, 8), (3,)), dynamic_shapes=shapes)
    for b, m, n in ((2, 9, 13), (4, 70, 5)):
        args = tensors((b, 3, m, 8), (b, 3, n, 8), (3,))
        close(kernel(*args), attention(*map(wide, args)))


@pytest.mark.parametrize("target", ["cpu", "nvidia"])
def test_layers_of_open_batches_and_lengths(target):
    """torch merges both around a layer's product with its bias, and takes them apart again."""

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.qkv, self.out = torch.nn.LayerNorm(32), torch.nn.Linear(32, 96), torch.nn.Linear(32, 32)

        def forward(self, x):
            q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
            return x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))

    block = Block().eval().requires_grad_(False)
    options = {"target": target, "dynamic_shapes": ({0: Dim("batch"), 1: Dim("tokens")},)}
    kernel = compile(block, tensors((2, 9, 32)), **options)
    assert "1 attention found and fused" in kernel.explain()
    if target == "cpu":
        for shape in ((2, 9, 32), (1, 70, 32), (5, 17, 32)):
            (x,) = tensors(shape)
            close(kernel(x), copy.deepcopy(block).double()(wide(x)))
    else:
        assert "tiled by" in kernel.explain() and "mma" in kernel.ir("ptx")


NUMBERS = {
    "a quotient": lambda x: x * (1.0 / x.shape[1]),
    "powers": lambda x: x.abs() ** (1.0 / x.shape[1]) / x.shape[1] ** 0.5,
    "a difference": lambda x: x.shape[1] ** 0.5 - x,
    "the larger one": lambda x: x * max(x.shape[1] // 2, 9) - min(x.shape[0] * x.shape[1], 100),
    "roundings": lambda x: x * math.ceil(x.shape[1] / 3) + round(x.shape[1] / 7) - math.floor(x.shape[1] / 2.5),
    "remainders": lambda x: x * (torch.arange(x.shape[1]) % (x.shape[1] % 7 + 1))[:, None],
    "a root": lambda x: x * torch.sym_sqrt(x.shape[1] * x.shape[2]),
    "comparisons": lambda x: x * (torch.arange(x.shape[1]) < x.shape[1] ** 0.5)[:, None],
    "a bound": lambda x: x.clamp(max=x.shape[1] ** -0.5),
    "a choice": lambda x: torch.where(x > 0, x, x.shape[1] ** -0.5).masked_fill(x < -1, -(x.shape[1] ** 0.5)),
    "filled": lambda x: (torch.full((x.shape[1],), 1.0 / x.shape[1]) @ x)[:, None] + torch.full_like(x, 2 / x.shape[1]),
    "a scale of scores": lambda x: (x @ x.mT * x.shape[1] ** -0.5).softmax(-1) @ x,
    "sigmoids": lambda x: torch.sigmoid(x @ x.mT - x.shape[1] ** 0.5) @ x,
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_that_sizes_tell_are_combined_with_tensors(name):
    kernel = compile(NUMBERS[name], tensors((2, 20, 8)), dynamic_shapes=({1: Dim.AUTO},))
    for rows in (20, 33, 7):
        (x,) = tensors((2, rows, 8))
        found, right = kernel(x), NUMBERS[name](x)
        assert found.dtype == right.dtype
        torch.testing.assert_close(found, right, rtol=1e-5, atol=1e-6)


def test_numbers_that_sizes_tell_are_results():
    def attention(q, k):
        rows, size = q.shape
        return (q @ k.mT).softmax(-1) @ k, {"next": rows + 1, "half": k.shape[0] / 2, "size": size, "step": -rows // 2}

    kernel = compile(attention, tensors((9, 8), (13, 8)), dynamic_shapes=({0: Dim.AUTO}, {0: Dim.AUTO}))
    for m, n in ((9, 13), (1, 1), (70, 5)):
        args = tensors((m, 8), (n, 8))
        (found, numbers), (expected, of_torch) = kernel(*args), attention(*map(wide, args))
        close(found, expected)
        assert numbers == of_torch


@pytest.mark.parametrize("target", ["cpu", "nvidia"])
def test_open_lengths_leave_no_scores_in_memory(target):
    args = tensors((2, 4, 50, 64), (2, 4, 60, 64), (2, 4, 60, 64), dtype=torch.float16)
    kernel = compile(sdpa(is_causal=True), args, target=target, dynamic_shapes=[{2: Dim.AUTO}] * 3)
    assert "stays outside" not in kernel.explain()


def test_sizes_are_not_negative():
    """The importer asks whether they are, where it broadcasts: other sizes would not be known to be the same."""

    def embedded(x, ids, w):
        return x + torch.nn.functional.embedding(ids.expand(x.size(0), 8), w)

    args = torch.randn(3, 8, 4), torch.arange(8)[None], torch.randn(8, 4)
    kernel = compile(embedded, args, dynamic_shapes=({0: torch.export.Dim("batch")}, None, None))
    assert "arith.select" not in kernel.ir("graph")
    torch.testing.assert_close(kernel(*args), embedded(*args))


@pytest.mark.parametrize(
    "function", [lambda s, n: s - math.log(n), lambda s, n: s if n == 7 else -s], ids=["log", "if"]
)
def test_sizes_that_the_function_fixes(function):
    """They are as fixed in what is made of an argument, and beside sizes that stay open."""

    def attention(q, k, v):
        v = v.unflatten(-1, (3, 2)).transpose(-3, -2)
        return torch.sigmoid(function(q @ k.mT, k.shape[-2])) @ v

    open_ = Dim.AUTO
    args = tensors((3, 3, 9, 2), (3, 3, 7, 2), (3, 7, 6))
    kernel = compile(attention, args, dynamic_shapes=({0: open_}, {0: open_, 2: open_}, {0: open_, 1: open_}))
    for batch in (3, 5):
        args = tensors((batch, 3, 9, 2), (batch, 3, 7, 2), (batch, 7, 6))
        close(kernel(*args), attention(*map(wide, args)))
    with pytest.raises(CompileError, match=r"must be 7|traced for sizes with"):
        kernel(*tensors((3, 3, 9, 2), (3, 3, 8, 2), (3, 8, 6)))

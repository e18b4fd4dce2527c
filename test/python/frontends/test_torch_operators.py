"""Operators of torch that are written out before the importer, which has no lowering for them, a wrong one, or ends the
process on them."""

import functools
import math

import pytest
from attn_opt.compiler import CompileError, compile

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")
F = torch.nn.functional

torch.manual_seed(0)
X, Y = torch.randn(4, 6), torch.randn(4, 6)
WHOLE = torch.randint(-9, 9, (4, 6))
THREE = torch.tensor([True, False, True, True])
FIVE = X.flatten().sort().values[-5] <= X  # as many elements are true
SIGNS = torch.tensor([0.0, -0.0, 1.0, -1.0, math.inf, -math.inf])
NANS = torch.tensor([math.nan, -3, 0.5, 3, math.nan, math.nan])
FAR = torch.tensor([0.0, -0.0, 1, -1, 0.3, -7.5, 1e10, -1e-3, math.inf, -math.inf, math.nan])
PLACED = torch.randn(3, 7, 19)
PLACED[1, 4], PLACED[2, 3], PLACED[2, 6, 4] = -math.inf, math.inf, math.inf
for place in ((0, 2, 5), (0, 2, 11), (1, slice(None), 18), (2, 0, 0), (2, 6, 3), (0, 0, 1), (0, 1, 0)):
    PLACED[place] = math.nan
ROWS, STARTS = torch.tensor([0, 1, 2, 1, 3]), torch.tensor([0, 2, 2])


def written(x, mask, value):
    x = x.clone()
    x[:, mask] = value
    return x


SEARCHES = {
    "searchsorted": (lambda x: torch.searchsorted(torch.tensor([0.0, 1, 2]), x), X),
    "searchsorted right": (lambda x: torch.searchsorted(torch.tensor([0.0, 1]), x, right=True), X.round()),
    "searchsorted in int32": (lambda x: torch.searchsorted(torch.tensor([0.0, 1]), x, out_int32=True), X),
    "searchsorted of rows": (lambda s, x: torch.searchsorted(s, x, side="left"), X.sort(-1).values, Y.round()),
    "searchsorted of NaN": (torch.searchsorted, X.sort(-1).values, torch.full((4, 1), math.nan)),
    "bucketize": (lambda x: torch.bucketize(x, torch.tensor([-1.0, 0, 1])), X),
    "cummax": (lambda x: torch.cummax(x, -1), X.round()),
    "cummax of NaN": (lambda x: torch.cummax(x, 0), torch.tensor([1, math.nan, 2, 3, math.nan, 4])),
    "cummin of integers": (lambda x: torch.cummin(x, 0), WHOLE),
    "logcumsumexp of large": (lambda x: x.logcumsumexp(-1), torch.tensor([[1e4, 1, 1e4], [-math.inf, -math.inf, 3]])),
}
BAGS = {
    f"embedding_bag, {mode}, {padding}": (
        lambda x, mode=mode, padding=padding: F.embedding_bag(ROWS, x, STARTS, mode=mode, padding_idx=padding),
        X,
    )
    for mode in ("sum", "mean", "max")
    for padding in (None, 1)
}
BAGS["embedding_bag of a matrix"] = (lambda x: F.embedding_bag(ROWS[:4].view(2, 2), x), X)
BAGS["embedding_bag, weighted"] = (
    lambda x, w: F.embedding_bag(ROWS, x, STARTS, mode="sum", per_sample_weights=w),
    X,
    Y[0, :5],
)
WRITES = {
    "put": (lambda x: torch.put(x, torch.tensor([0, 1, 7, -1]), torch.ones(4)), X),
    "put, accumulated": (lambda x: torch.put(x, torch.tensor([[0, -1], [-2, 3]]), torch.ones(2, 2), True), X),
    "added where a mask says": (lambda x, m, v: x.index_put([m], v, accumulate=True), X, THREE, Y[0]),
    "rows where a mask says": (lambda x, m, v: x.index_put([m], v), X, THREE, Y[:3]),
    "elements where a mask says": (lambda x, m, v: x.index_put([m], v), X, FIVE, Y[0, :5]),
    "columns where a mask says": (written, X.mT.contiguous(), THREE, torch.randn(6, 3)),
    "one column where a mask says": (written, X.mT.contiguous(), THREE, Y[0][:, None]),
    "fill_diagonal_": (lambda x: x.masked_fill(torch.zeros(4, 6, dtype=torch.bool).fill_diagonal_(True), -1), X),
    "as_strided": (lambda x: x.as_strided((3, 2, 2), (6, 1, 2), 1), X),
    "resize to more": (lambda x: torch.ops.aten.resize(x, [5, 6])[:4], X),
    "resize before a copy": (lambda x: torch.empty(3).resize_(x.shape).copy_(x), X),
    "resize to less": (lambda x: (x * 2).resize_(2, 3) + 1, X),
    "out of another size": (lambda x: torch.mul(x, x, out=torch.empty(0)), X),
    "scatter to the last": (lambda x, i: x.scatter(-1, i, 1.0), X, WHOLE.abs() % 6),
    "scatter_add to the last": (lambda x, i: x.scatter_add(-1, i, x), X, WHOLE.abs() % 6),
    "scatter_reduce to the last": (lambda x, i: x.scatter_reduce(-1, i, x, "amax"), X, WHOLE.abs() % 6),
}
ELEMENTS = {
    "fmod of integers": (lambda x, y: torch.fmod(x, y), WHOLE, WHOLE.abs() + 1),
    "fmod by a number": (lambda x: (torch.fmod(x, 3), torch.fmod(x, -3), torch.fmod(x, 2.5)), WHOLE),
    "fmax": (torch.fmax, X, torch.where(X[:1] > 0, math.nan, X[:1])),
    "fmin": (torch.fmin, torch.where(X[:1] > 0, math.nan, X[:1]), X),
    "copysign": (lambda x, y: torch.copysign(x[:, None], y), X, SIGNS),
    "signbit": (torch.signbit, SIGNS),
    "gelu by tanh": (lambda x: 100 * F.gelu(x, approximate="tanh"), X),
    "gelu by tanh of bfloat16": (lambda x: F.gelu(x, approximate="tanh"), X.bfloat16()),
    "elu of small numbers": (lambda x: 1e4 * F.elu(1e-4 * x), X),
    "selu of small numbers": (lambda x: 1e4 * F.selu(1e-4 * x), X),
    "maxima and minima of NaN": (lambda x, y: (x.maximum(y), x.minimum(y), y.max(x)), NANS, NANS.roll(1)),
    "clamps of NaN": (lambda x: (x.clamp(-1, 1), x.clamp_min(0), x.clamp_max(0), F.hardtanh(x), F.relu6(x)), NANS),
    "clamps by NaN": (lambda x, y: (x.clamp(min=y), x.clamp(max=y)), NANS, NANS.roll(1)),
    "places of NaN": (lambda x: (x.max(-1), x.min(1, keepdim=True), x.argmax(0), x.argmin(), x.argmax(1)), PLACED),
    "places of NaN of bfloat16": (lambda x: (x.max(1), x.argmin(-1)), PLACED.bfloat16()),
    "places of NaN in windows": (lambda x: F.max_pool2d(x[None], 2, return_indices=True), PLACED),
    "NaN equal to itself": (lambda x: (x == x, x != x, 2 * x == x * 2, x <= x), NANS),
    "isclose": (lambda x, y: torch.isclose(x[:, None], y), FAR, FAR * (1 + 1e-6)),
    "isclose with NaN": (lambda x: torch.isclose(x[:, None], x, atol=0.2, equal_nan=True), FAR),
    "fmod of floats": (lambda x, y: torch.fmod(x[:, None], y), FAR, FAR),
    "floor_divide": (lambda x, y: (x[:, None] // y, x // 1.5, torch.div(x, -2, rounding_mode="floor")), FAR, FAR),
    "floor_divide of what is rounded": (lambda x: (x // 0.1, x // 1e-3), torch.arange(-3.0, 9, 0.5).double()),
    "roots as powers": (lambda x: (x**0.5, x**-0.5), FAR),
    "hypot": (torch.hypot, X, Y[:1]),
    "hypot of extremes": (
        lambda x, y: torch.hypot(x[:, None], y),
        torch.tensor([0.0, 1e-30, 1e30, math.inf, -math.inf, math.nan]),
        torch.tensor([0.0, -2e-30, 2e30, 3, math.inf, math.nan]),
    ),
    "hypot of bfloat16": (torch.hypot, X.bfloat16(), Y.bfloat16()),
    "an imaginary part that is negated lazily": (lambda x: torch.view_as_complex(x.view(4, 3, 2)).conj().imag * 2, X),
    "all of several dimensions": (lambda x: x.all((0, 1)), FIVE),
    "addmv": (lambda x, a, b: torch.addmv(x, a, b, alpha=2, beta=0.5), X[:, 0], X, Y[0]),
    "matrices times a vector": (lambda x, y: torch.stack((x, y)) @ y[0], X, Y),
    "a vector times matrices": (lambda x, y: y[:, 0] @ torch.stack((x, y)), X, Y),
    "block_diag": (torch.block_diag, X, Y),
    "padded by less than nothing": (lambda x: (F.pad(x, (-1, 2)), F.pad(x, (-2, -3, 1, -1), value=3)), X),
    "roll by more than there are": (lambda x: (x.roll(9, 0), x.roll(-7, 1), x.roll(30)), X),
    "roll of several dimensions": (lambda x: x.roll((5, -1, 3), (0, -1, 0)), X),
}
SIZES = {"b": 2, "h": 3, "n": 4, "m": 5, "l": 2, "s": 4, "d": 6}
EINSUMS = {
    equation: (functools.partial(torch.einsum, equation), *(torch.randn([SIZES[c] for c in term]) for term in terms))
    for equation in (
        *("nm->n", "nm->", "nmd->nd", "nn", "bnn->b", "nnn->n", "nmn->m", "nm,nd->n", "nmm,md", "n,m->", "nm,nm->"),
        *("nm,nm,nm->n", "bhnm,bhn,bhnd->bhmd", "bln,bsn,bhls,bshd->blhd", "hn,nm,md->hd", "nm,bd,hd->"),
    )
    for terms in [equation.partition("->")[0].split(",")]
}
EINSUMS["dots"] = (lambda x, y, z: torch.einsum("...n,...nm,m", x, y, z), X.T[:, None, :], torch.ones(3, 4, 6), Y[0])
EINSUMS["a repeated sum"] = (lambda x, y: torch.einsum("nm,md->nd", x[:, :1], y), X, Y)
EMPTY = {
    "group_norm": (lambda x: F.group_norm(x, 2), torch.empty(0, 4, 3)),
    "linear": (F.linear, torch.empty(0, 6), X),
    "bilinear": (F.bilinear, torch.empty(0, 6), torch.empty(0, 6), torch.ones(2, 6, 6)),
    "attention": (
        lambda x: F.scaled_dot_product_attention(*[x.view(0, 5, 2, 3).mT] * 3).transpose(1, 2).reshape(0, 2, 15),
        torch.empty(0, 5, 6),
    ),
    "a sum": (lambda x: x.sum(0), torch.empty(0, 6)),
    "einsum": (lambda p, v: torch.einsum("bnm,bmd->bnd", p, v), torch.empty(2, 5, 0), torch.empty(2, 0, 6)),
    "roll": (lambda x: (x.roll(2, 0), x.roll(-1, 1)), torch.empty(0, 6)),
}


@pytest.mark.parametrize("name", cases := {**SEARCHES, **BAGS, **WRITES, **ELEMENTS, **EINSUMS, **EMPTY})
def test_as_torch_has_it(name):
    function, *args = cases[name]
    torch.testing.assert_close(compile(function, tuple(args))(*args), function(*args), equal_nan=True)


def test_the_error_names_the_op_and_not_its_operands():
    expected = r"test_torch_operators\.py:\d+:.*no pattern matches 'torch\.aten\.view\.dtype'"
    with pytest.raises(CompileError, match=expected):
        compile(lambda x: x.view(torch.int32) + 1, (X,))


@pytest.mark.parametrize("reshape", [lambda x: x.resize_(2, 3), lambda x: x.resize_(9, 9), lambda x: x.t_()])
def test_another_shape_of_an_argument_is_refused(reshape):
    def function(x):
        reshape(x)
        return x.add_(1).sum()

    with pytest.raises(CompileError, match=r"_ gives argument 'x' another shape.*x\.clone\(\)"):
        compile(function, (X.clone(),))


def test_what_torch_cannot_decompose_has_a_way_out():
    def function(x):
        y = x * 2
        y.resize_(9, 9)
        return y[:2]

    with pytest.raises(CompileError, match=r"(?s)cannot decompose.*leave that op to torch, by torch\.compile"):
        compile(function, (X,))


def test_a_view_and_its_base():
    def function(row, whole, column):
        return row + whole * column[:, None]

    args = (X[1], X, X[:, 2])
    torch.testing.assert_close(compile(function, args)(*args), function(*args))

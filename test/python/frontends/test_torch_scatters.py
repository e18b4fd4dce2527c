"""Running sums and scatters of torch: computed in order, indices given more than once among them."""

import pytest
from attn_opt.compiler import compile

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")

TWICE = torch.tensor([0, 1, 1, 1, -1])
GRID = torch.tensor([[0, 1, 1, 1], [0, 0, 1, 1], [5, 5, 5, 0]])
ONCE = torch.tensor([[0, 1, 1, 1], [1, 0, 2, 2], [5, 5, 5, 0]])
FORMS = {
    "accumulate": lambda x, v: x.index_put((TWICE,), v, accumulate=True),
    "accumulate a number": lambda x, v: x.index_put((TWICE,), torch.tensor(2.0), accumulate=True),
    "accumulate columns": lambda x, v: torch.ops.aten.index_put(x, [None, TWICE[:3]], v[:1, :3].expand(6, 3), True),
    "accumulate elements": lambda x, v: x.index_put((TWICE, TWICE.clamp(0, 3)), v[:, 0], accumulate=True),
    "others between": lambda x, v: torch.ops.aten.index_put(x.view(3, 2, 4), [ONCE[0], None, ONCE[1]], v[:4, :2]),
    "accumulate, others between": lambda x, v: torch.ops.aten.index_put(
        x.view(3, 2, 4), [TWICE, None, TWICE.clamp(0, 3)], v[:, 2:], True
    ),
    "a number, others between": lambda x, v: torch.ops.aten.index_put(x.view(3, 2, 4), [TWICE, None, TWICE], v[0, 0]),
    "the last one counts": lambda x, v: x.index_put((TWICE,), v),
    "index_copy": lambda x, v: x.index_copy(0, TWICE[:4], v[:4]),
    "index_fill": lambda x, v: x.mT.index_fill(-1, TWICE[:4], 2.5),
    "index_fill with a tensor": lambda x, v: x[:, None].movedim(1, 2).index_fill(0, TWICE[1], v[1, 1]),
    "index_add": lambda x, v: x.index_add(0, TWICE[:4], v[:4]),
    "scatter": lambda x, v: x.scatter(0, ONCE, v),
    "scatter along the last": lambda x, v: x.scatter(
        -1, GRID[:, :2].clamp(max=3).repeat(2, 1), v.mT[:2, :2].repeat(3, 1)
    ),
    "scatter a number": lambda x, v: x.long().scatter(0, GRID, 7),
    "scatter to a part": lambda x, v: x.scatter(0, ONCE[:, :3], v),
    "scatter many": lambda x, v: x.repeat(1, 9).scatter(1, torch.arange(20).expand(6, 20), 3.0),
    "scatter_add": lambda x, v: x.scatter_add(0, GRID, v),
    "scatter_reduce": lambda x, v: x.scatter_reduce(0, GRID, v, "amax"),
    "cumsum": lambda x, v: (x.cumsum(0), x.cumsum(-1), (x > 0).cumsum(-1)),
    "cumprod": lambda x, v: x.cumprod(1),
    "logcumsumexp": lambda x, v: x.logcumsumexp(1),
    "positions": lambda x, v: ((x > 0).long().cumsum(-1) - 1).clamp(min=0) * v[:1].long(),
}


@pytest.mark.parametrize("form", FORMS)
def test_as_torch_has_it(form):
    torch.manual_seed(0)
    args = torch.randn(6, 4), torch.randn(5, 4)
    torch.testing.assert_close(compile(FORMS[form], args)(*args), FORMS[form](*args))


@pytest.mark.parametrize("form", ["accumulate elements", "index_add", "scatter to a part", "scatter_reduce"])
def test_reach_machine_code_of_gpus(form):
    assert compile(FORMS[form], (torch.randn(6, 4), torch.randn(5, 4)), target="nvidia").ir("ptx")


def test_attention_beside_them():
    def attention(q, k, v, padding, slots):
        positions = padding.long().cumsum(-1)
        keys = torch.zeros_like(k).index_put((slots,), k, accumulate=True)
        scores = q @ keys.mT + (positions[:, None] - positions[..., None]).float() * 0.1
        return scores.softmax(-1) @ v

    args = *torch.randn(3, 3, 9, 8, dtype=torch.float64), torch.rand(3, 9) > 0.3, torch.tensor([2, 0, 2])
    kernel = compile(attention, args)
    torch.testing.assert_close(kernel(*args), attention(*args))

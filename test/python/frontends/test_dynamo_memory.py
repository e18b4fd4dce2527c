"""Calls that write to memory, in and around attention under torch.compile(…, backend="attn_opt")."""

import math

import pytest

torch = pytest.importorskip("torch", reason="needs the extra attn_opt[torch]")

import torch.nn.functional as F  # noqa: E402
from dynamo_harness import Counts, compiled, fresh  # noqa: E402, F401
from torch_harness import close, tensors  # noqa: E402


def added(q, k, v, bias):
    s = q @ k.mT
    s *= 0.3
    s += bias
    return s.softmax(-1) @ v


def methods(q, k, v, bias):
    s = (q @ k.mT).mul_(0.3).add_(bias)
    s.masked_fill_(bias < -1, -math.inf)
    return s.softmax(-1) @ v


def through_a_view(q, k, v, bias):
    s = q @ k.mT
    s.view(2, -1).mul_(0.3)
    return s.softmax(-1) @ v


def into_memory(q, k, v, bias):
    s = torch.empty(2, 3, 9, 9, dtype=q.dtype)
    torch.matmul(q, k.mT, out=s)
    torch.add(s, bias, out=s)
    return s.softmax(-1) @ v


def baddbmm_into_memory(q, k, v, bias):
    q, k, v, bias = (x.flatten(0, 1) for x in (q, k, v, bias))
    s = torch.empty(6, 9, 9, dtype=q.dtype)
    torch.baddbmm(bias, q, k.mT, alpha=0.3, out=s)
    return torch.bmm(torch.softmax(s, -1), v)


def baddbmm_of_zeros(q, k, v, bias):
    q, k, v = (x.flatten(0, 1) for x in (q, k, v))
    s = torch.zeros(6, 9, 9, dtype=q.dtype).baddbmm_(q, k.mT)
    return torch.bmm(torch.softmax(s, -1), v)


def softmax_into_the_scores(q, k, v, bias):
    s = q @ k.mT
    torch.softmax(s, -1, out=s)
    return s @ v


def inplace_argument(q, k, v, bias):
    s = q @ k.mT
    F.relu(s, inplace=True)
    F.dropout(s, 0.1, False, True)
    return s.softmax(-1) @ v


def divided_afterwards(q, k, v, bias):
    e = (q @ k.mT).exp_()
    o = e @ v
    o /= e.sum(-1, keepdim=True)
    return o


def cleared_afterwards(q, k, v, bias):
    s = q @ k.mT
    p = s.softmax(-1)
    s.zero_()
    return p @ v


def mask_made_meanwhile(q, k, v, bias):
    """As relative positions are: subscripts written piece by piece, to memory that the attention does not read yet."""
    s = q @ k.mT
    index = torch.zeros(9, 9, dtype=torch.long)
    index[:, 3:] = 1
    index[0] += 2
    s = s + bias[0, 0, 0][index]
    return s.softmax(-1) @ v, index


def result_written_to(q, k, v, bias):
    o = F.scaled_dot_product_attention(q, k, v)
    o += 1
    o[:, 0] = 0
    return o


def result_reshaped(q, k, v, bias):
    o = (q @ k.mT).softmax(-1) @ v
    o.unsqueeze_(2)
    return torch.cat([o, o], 2)


def result_reshaped_twice(q, k, v, bias):
    o = (q @ k.mT).softmax(-1) @ v
    o.transpose_(1, 2)
    first = o[:, 0]
    o *= 2
    o.unsqueeze_(0)
    o.squeeze_(0)
    return o.flatten(2), first


def scores_reshaped(q, k, v, bias):
    s = q @ k.mT
    k = k + 1
    s.unsqueeze_(1).squeeze_(1)
    s += bias
    k.unsqueeze_(0)
    return s.softmax(-1) @ v, k


@pytest.mark.parametrize(
    "function",
    [
        *(added, methods, through_a_view, into_memory, baddbmm_into_memory, baddbmm_of_zeros, softmax_into_the_scores),
        *(inplace_argument, divided_afterwards, cleared_afterwards, mask_made_meanwhile, result_written_to),
        *(result_reshaped, result_reshaped_twice, scores_reshaped),
    ],
)
def test_writes_to_what_is_made(function):
    counts = Counts()
    check(function)
    assert counts.kernels and not counts.left


@pytest.mark.parametrize(
    "settings", [{"dynamic": True}, {"options": {"rest": "inductor"}}], ids=["any size", "inductor"]
)
@pytest.mark.parametrize("function", [into_memory, mask_made_meanwhile, result_written_to, result_reshaped_twice])
def test_otherwise_compiled(function, settings):
    counts = Counts()
    check(function, **settings)
    assert counts.kernels and not counts.left


def head_by_head(q, k, v, bias):
    o = torch.zeros_like(q)
    for i in range(3):
        o[:, i] += F.scaled_dot_product_attention(q[:, i], k[:, i], v[:, i])
    return o, o[0]


def into_views_made_before(q, k, v, bias):
    o = torch.zeros_like(q)
    flat, heads = o.view(2, -1), o.unbind(1)
    for i, head in enumerate(heads):
        before = k[:, i]
        head += F.scaled_dot_product_attention(q[:, i], k[:, i], v[:, i])
        flat.mul_(1.5)
        before[:, 0] += q[:, 1, i]
    return o, heads[1]


@pytest.mark.parametrize("function", [head_by_head, into_views_made_before])
def test_written_piece_by_piece_with_inductor(function):
    counts = Counts()
    check(function, options={"rest": "inductor"})
    assert counts.kernels == 3 and not counts.left


def columns_written(q, k, v, bias):
    s = q @ k.mT
    s[..., 2:6] = bias[..., 1:5]
    s[..., 4:8] *= 2
    return s.softmax(-1) @ v


def odd_columns_written(q, k, v, bias):
    s = q @ k.mT
    s[..., 1::3] = q[..., :3]
    return s.softmax(-1) @ v


def block_written(q, k, v, bias):
    s = q @ k.mT
    s[:, 1:, 2:4, 3:7] = 0.5
    return s.softmax(-1) @ v


@pytest.mark.parametrize("function", [columns_written, odd_columns_written, block_written])
def test_parts_of_scores_written_are_fused_or_left_with_a_word(function):
    counts = Counts()
    check(function)
    assert counts.kernels if function == block_written else any("'tensor.insert_slice'" in r for r in counts.reasons)


def keys_written(q, k, v, bias):
    s = q @ k.mT
    k.add_(1)
    return s.softmax(-1) @ v


def own_values_written(q, k, v, bias):
    x = torch.relu(v)
    p = (q @ x.mT).softmax(-1)
    x.mul_(2)
    return p @ x


def mask_written(q, k, v, bias):
    mask = torch.relu(bias)
    s = q @ k.mT + mask
    mask.add_(1)
    return s.softmax(-1) @ v, mask


def mask_written_through_a_view(q, k, v, bias):
    mask = torch.relu(bias)
    row = mask.detach()[0].unsqueeze(0)
    s = q @ k.mT + mask
    row.add_(1)
    return s.softmax(-1) @ v, mask


def scores_added_to_another(q, k, v, bias):
    mask = torch.relu(bias)
    first = mask[0]
    mask += q @ k.mT
    return mask.softmax(-1) @ v, first


def probabilities_written_elsewhere(q, k, v, bias):
    p = (q @ k.mT).softmax(-1)
    o = p @ v
    p += bias
    return o, p


def written_before_the_values(q, k, v, bias):
    p = (q @ k.mT).softmax(-1)
    bias += p.sum()
    return p @ v, bias


def scores_in_an_input(q, k, v, bias):
    torch.matmul(q, k.mT, out=bias)
    return bias.softmax(-1) @ v


def keys_by_an_embedding(q, k, v, bias):
    s = q @ k.mT
    e = F.embedding(torch.tensor([1, 2, 2]), k[0, 0], max_norm=0.1)
    return s.softmax(-1) @ v, e


def keys_by_a_batch_norm(q, k, v, bias):
    s = q @ k.mT
    x = F.batch_norm(v, k[0, 0, 0, :3], k[0, 0, 1, :3].abs_(), training=True)
    return s.softmax(-1) @ v, x


def keys_by_an_aten_batch_norm(q, k, v, bias):
    s = q @ k.mT
    x = torch.batch_norm(v, None, None, k[0, 0, 0, :3], k[0, 0, 1, :3], True, 0.1, 1e-5, False)
    return s.softmax(-1) @ v, x


def keys_by_an_instance_norm(q, k, v, bias):
    s = q @ k.mT
    x = F.instance_norm(v, k[0, 0, 0, :3], k[0, 0, 1, :3])
    return s.softmax(-1) @ v, x


def normalised_beside(q, k, v, bias):
    """Nothing is written to."""
    s = q @ k.mT
    x = F.batch_norm(v, k[0, 0, 0, :3], k[0, 0, 1, :3].abs())
    e = F.embedding(torch.tensor([1, 2, 2]), k[0, 0])
    return s.softmax(-1) @ v, x, e


@torch.library.custom_op("attn_opt_test::double", mutates_args={"x"})
def double(x: torch.Tensor) -> None:
    x.mul_(2)


@torch.library.custom_op("attn_opt_test::double_others", mutates_args={"xs"})
def double_others(x: torch.Tensor, xs: list[torch.Tensor]) -> torch.Tensor:
    for other in xs:
        other.mul_(2)
    return x.clone()


double_others.register_fake(lambda x, xs: torch.empty_like(x))


def keys_by_a_custom_op(q, k, v, bias):
    s = q @ k.mT
    double(k)
    return s.softmax(-1) @ v


def values_by_a_custom_op(q, k, v, bias):
    x = torch.relu(v)
    s = q @ x.mT
    other = double_others(q, [bias, x])
    return s.softmax(-1) @ x, other


def scores_by_a_custom_op(q, k, v, bias):
    s = q @ k.mT
    double(s)
    return s.softmax(-1) @ v


def keys_in_a_checkpoint(q, k, v, bias):
    s = q @ k.mT
    other = torch.utils.checkpoint.checkpoint(lambda x: x.mul_(2).relu(), k, use_reentrant=False)
    return s.softmax(-1) @ v, other


def mask_by_a_custom_op(q, k, v, bias):
    mask = torch.ones(9, 9, dtype=q.dtype)
    double(mask[:, 3:])
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def around_custom_ops(q, k, v, bias):
    double(q)
    o = F.scaled_dot_product_attention(q, k, v)
    double(o)
    double(k)
    return o


@pytest.mark.parametrize("function", [mask_by_a_custom_op, around_custom_ops, normalised_beside])
def test_custom_ops_beside_attention(function):
    counts = Counts()
    check(function)
    assert counts.kernels and not counts.left


WRITTEN = "memory is written to between its matmuls"


@pytest.mark.parametrize(
    "function, reason",
    [
        (keys_written, WRITTEN),
        (own_values_written, WRITTEN),
        (mask_written, WRITTEN),
        (mask_written_through_a_view, WRITTEN),
        (scores_added_to_another, WRITTEN),
        (probabilities_written_elsewhere, "its scores or probabilities are used elsewhere too, and written to"),
        (
            written_before_the_values,
            "its scores or probabilities are used elsewhere too, where memory is written to or",
        ),
        (scores_in_an_input, ""),
        (keys_by_a_custom_op, WRITTEN),
        (values_by_a_custom_op, WRITTEN),
        (
            scores_by_a_custom_op,
            "attn_opt_test.double.default, a custom op that writes",
        ),
        (keys_in_a_checkpoint, WRITTEN),
        (keys_by_an_embedding, WRITTEN),
        (keys_by_a_batch_norm, WRITTEN),
        (keys_by_an_aten_batch_norm, WRITTEN),
        (keys_by_an_instance_norm, WRITTEN),
    ],
)
def test_other_writes_are_left_alone(function, reason):
    counts = Counts()
    check(function)
    assert counts.kernels == 0 and any(reason in r for r in counts.reasons)


def test_inputs_that_share_their_memory():
    def function(q, keys, cache):
        s = q @ keys.mT
        cache[:, :, 0] = 3
        return s.softmax(-1) @ keys

    q, cache = tensors((2, 3, 6, 8), (2, 3, 9, 8))
    mine, theirs = cache.clone(), cache.double()
    close(compiled(function)(q, mine[:, :, :7], mine), function(q.double(), theirs[:, :, :7], theirs))
    close(mine, theirs)


def check(function, **settings):
    """Against float64: results, and what the arguments are then."""
    args = tensors((2, 3, 9, 8), (2, 3, 9, 8), (2, 3, 9, 8), (2, 3, 9, 9))
    wide = [x.double() for x in args]
    expected = function(*wide)
    found = compiled(function, **settings)(*args)
    pairs = zip(*((x,) if isinstance(x, torch.Tensor) else x for x in (found, expected)), strict=True)
    for a, b in [*pairs, *zip(args, wide, strict=True)]:
        assert a.shape == b.shape
        close(a, b) if a.is_floating_point() else torch.testing.assert_close(a, b)

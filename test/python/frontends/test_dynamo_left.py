"""Attention that is left to torch, and what is said of it."""

import warnings

import pytest

torch = pytest.importorskip("torch", reason="needs the extra attn_opt[torch]")

import torch.nn.functional as F  # noqa: E402
from attn_opt.compiler.frontends.dynamo import kernel as dynamo_kernel  # noqa: E402
from dynamo_harness import Counts, compiled, fresh  # noqa: E402, F401
from torch_harness import close, tensors  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore:flex_attention called")


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


def test_too_little_work():
    fast = compiled(lambda q: F.scaled_dot_product_attention(q, q, q), options={"min_flops": 100_000})
    counts = Counts()
    for n, kernels in ((8, 0), (100, 1)):
        (q,) = tensors((1, 2, n, 16))
        close(fast(q), F.scaled_dot_product_attention(*(q.double(),) * 3))
        assert counts.kernels == kernels
    assert counts.left == 1 and "fewer than min_flops" in counts.reasons[0]


def wrong_axis(q):
    return (q @ q.mT).softmax(-2) @ q


def heads_mixed(q):
    p = F.linear((q @ q.mT).softmax(-1).permute(0, 2, 3, 1), torch.eye(3, dtype=q.dtype)).permute(0, 3, 1, 2)
    return p @ q


def probabilities_of_a_layer(q):
    return F.linear(q, torch.eye(8, dtype=q.dtype)[:6]).softmax(-1) @ q


def written_between(q):
    s = q @ q.mT
    q.add_(1)
    return s.softmax(-1) @ q


@pytest.mark.parametrize(
    "function, reason",
    [
        (wrong_axis, "it is normalised along another dimension"),
        (heads_mixed, "a layer stands between its probabilities and the values"),
        (probabilities_of_a_layer, "its scores are not made by a matmul alone, but by a layer"),
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


def test_what_is_left_is_told_once():
    (q,) = tensors((2, 3, 6, 8))
    dynamo_kernel._warned.clear()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for function in (heads_mixed, wrong_axis):
            for _ in range(2):
                torch._dynamo.reset()
                compiled(function)(q)
    about = [str(w.message) for w in told if "attention is left to torch" in str(w.message)]
    assert len(about) == 2 and "a layer stands between" in about[0] and "along another dimension" in about[1]


def test_a_single_key_is_no_attention():
    """The first token of a decoder: its weight is 1, and nothing is worth a warning."""
    q, k = tensors((2, 3, 4, 8), (2, 3, 1, 8))
    counts = Counts()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="attn_opt")
        close(compiled(lambda q, k: (q @ k.mT).softmax(-1) @ k)(q, k), k.double().expand(2, 3, 4, 8))
    assert counts.kernels == 0

"""Which values need gradients under torch.compile(…, backend="attn_opt"), and derivatives that stay with torch."""

import pytest

torch = pytest.importorskip("torch", reason="needs the extra attn_opt[torch]")

import torch.func as func  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from dynamo_harness import Counts, compiled, fresh  # noqa: E402, F401
from torch_harness import tensors  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore:flex_attention called")


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
    with torch.enable_grad():
        assert not compiled(switched(False))(x).requires_grad
    assert counts.kernels >= 2


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

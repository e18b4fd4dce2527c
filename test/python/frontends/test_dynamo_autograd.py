"""What autograd does with attention under torch.compile(…, backend="attn_opt"): checkpoints, errors."""

import collections
import threading

import pytest

torch = pytest.importorskip("torch", reason="needs the extra attn_opt[torch]")

import torch.nn.functional as F  # noqa: E402
from attn_opt.compiler.diagnostics import Bug  # noqa: E402
from attn_opt.compiler.frontends.dynamo import derivatives as derivatives_of_kernels  # noqa: E402
from attn_opt.compiler.frontends.dynamo import kernel as dynamo_kernel  # noqa: E402
from dynamo_harness import Counts, compiled, fresh  # noqa: E402, F401
from torch_harness import tensors  # noqa: E402
from training_harness import (  # noqa: E402
    PLAIN,
    assert_like_float64,
    by_hand,
    changed_afterwards,
    merged_heads,
    needy,
    with_gradients,  # noqa: F401
)

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "error:attn_opt")  # what is left is an error


def test_retained_graphs_accumulate():
    args = needy(*PLAIN)
    out = compiled(by_hand)(*args)
    out.sum().backward(retain_graph=True)
    first = [a.grad.clone() for a in args]
    out.sum().backward()
    for one, arg in zip(first, args, strict=True):
        torch.testing.assert_close(arg.grad, 2 * one)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        out.sum().backward()


def test_derivatives_have_no_derivative():
    args = needy(*PLAIN)
    (gradient,) = torch.autograd.grad(compiled(by_hand)(*args).square().sum(), args[:1], create_graph=True)
    with pytest.raises(RuntimeError, match="kernels are differentiable once"):
        gradient.sum().backward()


def test_inputs_changed_before_the_gradients():
    args = needy(*PLAIN)
    keys = args[1] * 1
    out = compiled(by_hand)(args[0], keys, args[2])
    keys.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_results_changed_before_the_gradients(kept):
    """As torch has it: scaled_dot_product_attention keeps its result, too."""
    for function in (F.scaled_dot_product_attention, compiled(F.scaled_dot_product_attention)):
        out = function(*needy(*PLAIN))
        out += 1
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.sum().backward()
    assert_like_float64(changed_afterwards, needy(*PLAIN))
    assert kept() == [kept.of_rows, [(3, 3)]]  # of the former


def test_nothing_of_the_size_of_the_scores_is_kept():
    kept = []
    args = needy((1, 1, 64, 4), (1, 1, 64, 4), (1, 1, 64, 4))
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.numel()) or x, lambda x: x):
        compiled(by_hand)(*args).sum().backward()
    assert kept and max(kept) == 256


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_around_it(reentrant):
    fast, counts = compiled(by_hand), Counts()

    def checkpointed(*args):
        return torch.utils.checkpoint.checkpoint(fast, *args, use_reentrant=reentrant)

    assert_like_float64(by_hand, needy(*PLAIN), fast=checkpointed)
    assert counts.kernels >= 1


@pytest.mark.parametrize("rest", ["eager", "inductor"])
def test_checkpoints_within_it(rest):
    """Nothing but a layer's inputs is kept until its gradients are computed, by its kernels once more."""

    def layer(x, w):
        return torch.relu(merged_heads(torch.sin(x @ w))) + 1

    def model(x, w, v):
        for _ in range(2):
            x = torch.utils.checkpoint.checkpoint(layer, x, w, use_reentrant=False) @ v
        return x

    kept, counts = [], Counts()
    fast = compiled(model, options={"rest": rest})
    args = [(0.3 * x).detach().requires_grad_() for x in needy((2, 6, 12), (12, 48), (16, 12))]
    assert_like_float64(model, args, fast=fast)
    assert counts.kernels >= 2
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.numel()) or x, lambda x: x):
        out = fast(*args)
    assert kept and max(kept) <= 12 * 48, "q, k, v of 2·6·48, or more"  # by what is outside of the checkpoints
    assert out.grad_fn is not None
    with torch.no_grad():
        torch.testing.assert_close(fast(*args), out)


def test_checkpoints_that_stay_with_torch():
    def layer(x, scale):
        scale.mul_(1)
        return F.scaled_dot_product_attention(x, x, x) * scale

    (x, scale), counts = tensors((1, 2, 4, 8), (8,)), Counts()
    with pytest.warns(UserWarning, match="writes to what it is given"):
        compiled(lambda x: torch.utils.checkpoint.checkpoint(layer, x, scale, use_reentrant=False))(x.requires_grad_())
    assert counts.compiled == 0


def test_another_thread():
    args, found = needy(*PLAIN), []
    out = compiled(by_hand)(*args)
    thread = threading.Thread(target=lambda: found.extend(torch.autograd.grad(out.sum(), args)))
    thread.start()
    thread.join()
    for one, other in zip(found, torch.autograd.grad(by_hand(*args).sum(), args), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_with_inductor():
    def layer(x, w):
        y = torch.relu(x @ w)
        return (merged_heads(y) * 2).sin()

    fast, counts = compiled(layer, options={"rest": "inductor"}), Counts()
    assert_like_float64(layer, needy((2, 6, 12), (12, 48)), fast=fast, atol=1e-5)
    assert counts.kernels >= 1


def test_without_gradients_nothing_is_kept():
    args, fast = needy(*PLAIN), compiled(by_hand)
    with torch.no_grad():
        assert fast(*args).grad_fn is None
    assert fast(*(a.detach() for a in args)).grad_fn is None
    assert fast(*args).grad_fn is not None


def test_derivatives_without_a_kernel_leave_attention_to_torch(monkeypatch):
    def refused(*arguments):
        return "no lowering"

    monkeypatch.setattr(derivatives_of_kernels, "_kernel", refused)
    monkeypatch.setattr(dynamo_kernel, "_kernels", collections.OrderedDict())
    counts, fast = Counts(), compiled(by_hand)
    with pytest.warns(UserWarning, match="attention is left to torch: of its derivative: no lowering"):
        assert_like_float64(by_hand, needy(*PLAIN), fast=fast)
    assert counts.reasons == ["of its derivative: no lowering"]
    with torch.no_grad():
        fast(*tensors(*PLAIN))
    assert counts.kernels >= 2


def test_an_internal_error_leaves_attention_to_torch(monkeypatch, capfd):
    def broken(*arguments):
        raise Bug("pass 'cse' crashed", "builtin.module(cse)", "module {}")

    monkeypatch.setattr(derivatives_of_kernels, "_kernel", broken)
    monkeypatch.setattr(dynamo_kernel, "_kernels", collections.OrderedDict())
    with pytest.warns(
        UserWarning, match="left to torch: of its derivative: an internal error of attn_opt: pass 'cse' crash"
    ):
        assert_like_float64(by_hand, needy(*PLAIN))
    assert "--pass-pipeline='builtin.module(cse)'" in capfd.readouterr().err


def test_ops_that_torch_cannot_differentiate(monkeypatch):
    def broken(*arguments):
        raise RuntimeError("no formula")

    monkeypatch.setattr(torch.autograd, "grad", broken)
    monkeypatch.setattr(dynamo_kernel, "_kernels", collections.OrderedDict())
    with pytest.warns(UserWarning, match="torch cannot write its derivative down"):
        assert_like_float64(by_hand, needy(*PLAIN))

"""Attention is found in every way of writing it (variants/), and stays what it is."""

import math

import pytest

torch = pytest.importorskip("torch", reason="needs the extra attn_opt[torch]")

import attn_opt.compiler.frontends.dynamo.entry  # noqa: E402, F401
from attn_opt.compiler import compile, stats  # noqa: E402
from attn_opt.compiler.frontends.torch.tracing import trace  # noqa: E402
from attn_opt.dialects.assembly import print_module  # noqa: E402
from attn_opt.dialects.reference import evaluate  # noqa: E402
from attn_opt.transforms.raise_attention import RaiseAttention  # noqa: E402
from torch_harness import close, tensors, wide  # noqa: E402
from variants import GROUPED, VARIANTS  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")
SEVERAL = {"blocks_of_queries": 2, "heads_in_a_loop": 2, "difference": 2, "difference_of_pairs": 2}


def arguments(name):
    heads = 2 if name in GROUPED else 4
    return tensors((2, 4, 9, 8), (2, heads, 13, 8), (2, heads, 13, 8))


@pytest.mark.parametrize("name", VARIANTS)
def test_found(name):
    args = arguments(name)
    program = trace(VARIANTS[name], args)
    with program.module.context, program.module.operation.location:
        RaiseAttention().run(program.module.operation)
        assert program.module.operation.verify()
        text = print_module(program.module)
        assert text.count("linalg_ext.softmax") == SEVERAL.get(name, 1), text
        held = [v.numpy() if isinstance(v, torch.Tensor) else v for v in program.arguments(args)]
        (found,) = evaluate(program.module, held)
    close(torch.from_numpy(found).float(), VARIANTS[name](*map(wide, args)))


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("way", ["compile", "backend"])
def test_run(name, way):
    args, before = arguments(name), stats()
    torch._dynamo.reset()
    with torch.no_grad():
        function = VARIANTS[name]
        fast = compile(function, args) if way == "compile" else torch.compile(function, backend="attn_opt")
        close(fast(*args), function(*map(wide, args)))
    after = stats()
    kernels = sum(after[what] - before[what] for what in ("compiled", "cache_hits"))
    assert kernels >= SEVERAL.get(name, 1), after["reasons"]


def rows_and_columns(q, k, v):
    """Relative positions of an image's rows and of its columns, 3 and 5 (MViT, SAM)."""
    rows, columns = (torch.einsum(f"bhwc,{a}kc->bhwk", q.unflatten(1, (3, 5)), t) for a, t in TABLES.items())
    s = (q @ k.mT).unflatten(1, (3, 5)).unflatten(3, (3, 5))
    s = s + rows[..., None] + columns[..., None, :]
    return s.flatten(3).flatten(1, 2).softmax(-1) @ v


def padded_rows(q, k, v):
    """A mask of the image's rows."""
    s = (q @ k.mT).unflatten(2, (3, 5)).masked_fill(k.reshape(4, 3, 5, 8)[:, None, :, :1, 0] > 1, -torch.inf)
    return s.flatten(2).softmax(-1) @ v


def clipped(q, k, v):
    """A function of the probabilities of an image's keys."""
    s = (q @ k.mT).unflatten(2, (3, 5)) + torch.arange(5) / 4
    return (s.flatten(2).softmax(-1) * 1.2 - 0.1).clamp(0, 1) @ v


TABLES = {"h": tensors((3, 3, 8))[0], "w": tensors((5, 5, 8))[0]}


@pytest.mark.parametrize("function", [rows_and_columns, padded_rows, clipped])
def test_keys_of_an_image(function):
    args, before = tensors((4, 15, 8), (4, 15, 8), (4, 15, 8)), stats()
    with torch.no_grad():
        found = compile(function, args)(*args)
        TABLES.update({name: wide(table) for name, table in TABLES.items()})
        close(found, function(*map(wide, args)))
    loops = 2 if function is clipped else 1
    assert stats()["compiled"] - before["compiled"] == loops


def off_by_a_factor(q, k, v):
    """The shift beside the sum is another than that of the scores."""
    s = q @ k.mT
    highest = s.amax(-1, keepdim=True)
    e = torch.exp(s - highest)
    return e / (e.sum(-1, keepdim=True) + torch.exp(-2 * highest)) @ v


def number_beside(q, k, v):
    """Relative to the maximum of all scores, not to that of the row."""
    s = q @ k.mT
    e = torch.exp(s - s.max())
    return e / (e.sum(-1, keepdim=True) + 1e-3) @ v


def renormalised_over_part(q, k, v):
    e = torch.exp(q @ k.mT)
    return e / e[..., :-2].sum(-1, keepdim=True) @ v


@pytest.mark.parametrize("function", [off_by_a_factor, number_beside, renormalised_over_part])
def test_what_is_almost_attention_stays(function):
    args = arguments(function.__name__)
    program = trace(function, args)
    with program.module.context, program.module.operation.location:
        RaiseAttention().run(program.module.operation)
        assert "linalg_ext.softmax" not in print_module(program.module)
        (found,) = evaluate(program.module, [a.numpy() for a in args])
    close(torch.from_numpy(found).float(), function(*map(wide, args)))
    assert math.isfinite(found.sum())

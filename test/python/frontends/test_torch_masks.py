"""Masks of nn.Transformer and its parts, which torch looks at and warns of before it attends."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="needs the extra attn_opt[torch]")

from attn_opt.compiler import compile, stats  # noqa: E402
from torch import nn  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")

LENGTH = 17
CAUSAL = nn.Transformer.generate_square_subsequent_mask(LENGTH)
PADDING = torch.arange(LENGTH) >= torch.tensor([[LENGTH], [11]])
MASKS = {
    "causal": {"mask": CAUSAL},
    "causal as bool": {"mask": CAUSAL < 0},
    "window": {"mask": CAUSAL + CAUSAL.mT.roll(5, 1)},
    "with padding of another type": {"mask": CAUSAL, "src_key_padding_mask": PADDING},
    "causal as the caller says": {"mask": CAUSAL, "is_causal": True},
}


def way_in(name, module, args, masks):
    if name == "compile":
        return compile(module, args, example_kwargs=masks)
    torch._dynamo.reset()
    return torch.compile(module, backend="attn_opt")


def check(name, module, args, masks, attentions):
    wide = {n: m.double() if isinstance(m, torch.Tensor) and m.is_floating_point() else m for n, m in masks.items()}
    expected = copy.deepcopy(module).double()(*(a.double() for a in args), **wide)
    before = stats()
    with torch.no_grad():
        found = way_in(name, module, args, masks)(*args, **masks)
    after = stats()
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
    kernels = [after[n] - before[n] for n in ("found", "cache_hits", "left")]
    assert kernels[0] + (kernels[1] if name == "dynamo" else 0) >= attentions and not kernels[2], kernels


@pytest.mark.parametrize("way", ["compile", "dynamo"])
@pytest.mark.parametrize("name", MASKS)
def test_encoder(name, way):
    torch.manual_seed(0)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 48, batch_first=True), 2).eval()
    check(way, encoder, (torch.randn(2, LENGTH, 32),), MASKS[name], 2)


@pytest.mark.parametrize("way", ["compile", "dynamo"])
def test_transformer(way):
    torch.manual_seed(0)
    module = nn.Transformer(32, 4, 1, 1, 48, batch_first=True).eval()
    masks = {"tgt_mask": CAUSAL, "src_key_padding_mask": PADDING, "memory_key_padding_mask": PADDING}
    check(way, module, (torch.randn(2, LENGTH, 32), torch.randn(2, LENGTH, 32)), masks, 3)


def test_other_backends_compute_the_same():
    """What dynamo is told of masks holds for all of them, and of calls that are not traced nothing changes."""
    torch._dynamo.reset()
    module = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 48, batch_first=True), 1).eval()
    x = torch.randn(2, LENGTH, 32)
    masks = MASKS["with padding of another type"]
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(module, backend="eager")(x, **masks), module(x, **masks))
    with pytest.warns(UserWarning, match="mismatched"):
        module(x, **masks)
    assert nn.modules.transformer._detect_is_causal_mask(CAUSAL)

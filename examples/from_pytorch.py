"""Attention as one would write it in PyTorch, with score modifications of one's own, compiled into one kernel.

pip install 'attn-opt[torch]'
python examples/from_pytorch.py            # on a GPU: python examples/from_pytorch.py cuda
"""

import sys
import time

import torch
from attn_opt.compiler import compile

HEADS, LENGTH, SIZE, WINDOW = 8, 1024, 64, 256


def attention(q, k, v, slopes):
    """A cap on the scores, ALiBi, and a sliding window: no kernel library has this combination."""
    scores = q @ k.transpose(-2, -1) / SIZE**0.5
    scores = 20 * torch.tanh(scores / 20)
    i = torch.arange(q.shape[-2], device=q.device)[:, None]
    j = torch.arange(k.shape[-2], device=q.device)[None, :]
    scores = scores - slopes[:, None, None] * (i - j)
    scores = scores.masked_fill((j > i) | (i - j >= WINDOW), float("-inf"))
    return torch.softmax(scores, dim=-1) @ v


def seconds(call):
    """The best time of several calls."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        call()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return min(times)


def main():
    device = sys.argv[1] if len(sys.argv) > 1 else "cpu"
    kind = torch.float16 if device == "cuda" else torch.float32
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, HEADS, LENGTH, SIZE, dtype=kind, device=device) for _ in range(3))
    slopes = torch.tensor([2.0 ** (-8 * (h + 1) / HEADS) for h in range(HEADS)], dtype=kind, device=device)

    kernel = compile(attention, (q, k, v, slopes), target="nvidia" if device == "cuda" else "cpu")
    print(kernel.explain())

    out = kernel(q, k, v, slopes)
    expected = attention(q.double(), k.double(), v.double(), slopes.double())
    print(f"largest error against float64: {(out.double() - expected).abs().max():.1e}")
    eager, ours = seconds(lambda: attention(q, k, v, slopes)), seconds(lambda: kernel(q, k, v, slopes))
    print(f"eager {eager * 1e3:.1f} ms, compiled {ours * 1e3:.1f} ms")

    # Gradients go back through the kernel, those of the slopes too.
    slopes.requires_grad_()
    kernel(q, k, v, slopes).float().square().mean().backward()
    print(f"gradient of the slopes: {[f'{g:.1e}' for g in slopes.grad.tolist()]}")
    slopes.requires_grad_(False)

    # The same by torch.compile: what is attention goes to attn-opt, the rest stays with torch.
    compiled = torch.compile(attention, backend="attn_opt")
    torch.testing.assert_close(compiled(q, k, v, slopes), out)


if __name__ == "__main__":
    main()

"""Small models, as people write them: each with example arguments and the number of attentions in it."""

import math

import torch
import torch.nn.functional as F
from torch import nn


def rotated(x: torch.Tensor) -> torch.Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat((-b, a), -1)


class RmsNorm(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


class DecoderLayer(nn.Module):
    """Grouped queries, rotary positions, a cache for keys and values, a gated MLP."""

    def __init__(self, size: int = 64, heads: int = 4, key_heads: int = 2):
        super().__init__()
        self.heads, self.key_heads, self.head = heads, key_heads, size // heads
        self.q = nn.Linear(size, size, bias=False)
        self.k = nn.Linear(size, key_heads * self.head, bias=False)
        self.v = nn.Linear(size, key_heads * self.head, bias=False)
        self.o = nn.Linear(size, size, bias=False)
        self.norm1, self.norm2 = RmsNorm(size), RmsNorm(size)
        self.gate, self.up = nn.Linear(size, 96, bias=False), nn.Linear(size, 96, bias=False)
        self.down = nn.Linear(96, size, bias=False)

    def repeated(self, x):
        b, h, n, d = x.shape
        groups = self.heads // h
        return x[:, :, None].expand(b, h, groups, n, d).reshape(b, self.heads, n, d)

    def forward(self, x, cos, sin, keys, values, positions, mask):
        b, t, size = x.shape
        y = self.norm1(x)
        q = self.q(y).view(b, t, self.heads, self.head).transpose(1, 2)
        k = self.k(y).view(b, t, self.key_heads, self.head).transpose(1, 2)
        v = self.v(y).view(b, t, self.key_heads, self.head).transpose(1, 2)
        q, k = q * cos + rotated(q) * sin, k * cos + rotated(k) * sin
        keys.index_copy_(2, positions, k)
        values.index_copy_(2, positions, v)
        weights = torch.matmul(q, self.repeated(keys).transpose(2, 3)) * self.head**-0.5 + mask
        weights = F.softmax(weights, dim=-1, dtype=x.dtype)
        attended = torch.matmul(weights, self.repeated(values)).transpose(1, 2).contiguous().reshape(b, t, size)
        x = x + self.o(attended)
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Decoder(nn.Module):
    """Llama-like: called with some tokens and their positions, it keeps what came before in its caches."""

    def __init__(self, layers: int = 2, longest: int = 24):
        super().__init__()
        self.embedding = nn.Embedding(50, 64)
        self.layers = nn.ModuleList(DecoderLayer() for _ in range(layers))
        self.norm, self.head = RmsNorm(64), nn.Linear(64, 50, bias=False)
        self.longest = longest
        for i in range(layers):
            self.register_buffer(f"keys{i}", torch.zeros(1, 2, longest, 16))
            self.register_buffer(f"values{i}", torch.zeros(1, 2, longest, 16))

    def forward(self, tokens, positions):
        x = self.embedding(tokens)
        frequencies = 1 / 10000 ** (torch.arange(0, 8) / 8)
        angles = (positions[:, None] * frequencies).repeat(1, 2)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        seen = torch.arange(self.longest) <= positions[:, None]
        mask = torch.where(seen, 0.0, torch.finfo(torch.float32).min).to(x.dtype)
        for i, layer in enumerate(self.layers):
            x = layer(x, cos, sin, getattr(self, f"keys{i}"), getattr(self, f"values{i}"), positions, mask)
        return self.head(self.norm(x))


class VisionTransformer(nn.Module):
    """ViT: patches, a class token, queries, keys and values from one projection."""

    def __init__(self, size: int = 48, heads: int = 4):
        super().__init__()
        self.heads = heads
        self.patches = nn.Conv2d(3, size, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, size))
        self.positions = nn.Parameter(torch.randn(1, 17, size))
        self.norm, self.qkv, self.out = nn.LayerNorm(size), nn.Linear(size, 3 * size), nn.Linear(size, size)

    def forward(self, image):
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(x.shape[0], -1, -1), x), 1) + self.positions
        b, n, d = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        weights = ((q * (d // self.heads) ** -0.5) @ k.transpose(-2, -1)).softmax(dim=-1)
        return x + self.out((weights @ v).transpose(1, 2).reshape(b, n, d))


class Encoder(nn.Module):
    """BERT: a padding mask of 0 and 1, dropout that is not active."""

    def __init__(self, size: int = 32, heads: int = 4):
        super().__init__()
        self.heads = heads
        self.embedding = nn.Embedding(30, size)
        self.q, self.k, self.v = (nn.Linear(size, size) for _ in range(3))
        self.norm, self.dropout = nn.LayerNorm(size), nn.Dropout(0.1)

    def split(self, x):
        return x.view(*x.shape[:2], self.heads, -1).permute(0, 2, 1, 3)

    def forward(self, tokens, mask):
        x = self.embedding(tokens)
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        bias = (1.0 - mask[:, None, None, :].to(x.dtype)) * torch.finfo(torch.float32).min
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(q.shape[-1]) + bias
        context = torch.matmul(self.dropout(F.softmax(scores, dim=-1)), v).permute(0, 2, 1, 3).contiguous()
        return self.norm(x + context.view(*context.shape[:2], -1))


class CrossAttention(nn.Module):
    """Stable-Diffusion-like: pixels ask a text; heads folded into the batch, baddbmm and bmm."""

    def __init__(self, channels: int = 64, text: int = 40, heads: int = 4):
        super().__init__()
        self.heads = heads
        self.norm = nn.GroupNorm(8, channels)
        self.q = nn.Linear(channels, channels, bias=False)
        self.k, self.v = nn.Linear(text, channels, bias=False), nn.Linear(text, channels, bias=False)
        self.out = nn.Linear(channels, channels)

    def split(self, x):
        b, n, c = x.shape
        return x.reshape(b, n, self.heads, c // self.heads).permute(0, 2, 1, 3).reshape(b * self.heads, n, -1)

    def forward(self, image, text):
        b, c, height, width = image.shape
        pixels = self.norm(image).permute(0, 2, 3, 1).reshape(b, height * width, c)
        q, k, v = self.split(self.q(pixels)), self.split(self.k(text)), self.split(self.v(text))
        start = torch.zeros(q.shape[0], q.shape[1], k.shape[1], dtype=q.dtype)
        scores = torch.baddbmm(start, q, k.transpose(-1, -2), beta=0, alpha=(c // self.heads) ** -0.5)
        out = torch.bmm(scores.softmax(-1), v).reshape(b, self.heads, height * width, -1)
        out = out.permute(0, 2, 1, 3).reshape(b, height * width, c)
        return image + self.out(out).reshape(b, height, width, c).permute(0, 3, 1, 2)


def seeded(make):
    def made():
        torch.manual_seed(0)
        model, args, attentions = make()
        return model.eval(), args, attentions

    return made


MODELS = {
    "decoder": seeded(lambda: (Decoder(), (torch.randint(0, 50, (1, 7)), torch.arange(7)), 2)),
    "vision": seeded(lambda: (VisionTransformer(), (torch.randn(2, 3, 16, 16),), 1)),
    "encoder": seeded(
        lambda: (
            Encoder(),
            (torch.randint(0, 30, (2, 9)), (torch.arange(9) < torch.tensor([[9], [5]])).long()),
            1,
        )
    ),
    "cross": seeded(lambda: (CrossAttention(), (torch.randn(2, 64, 6, 6), torch.randn(2, 11, 40)), 1)),
}

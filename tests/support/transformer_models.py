"""Small transformers as people write them in PyTorch: one for images, one for audio."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Block(nn.Module):
    """Attention and two dense layers, each behind a normalization and beside a short cut."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.dense = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        y = self.before(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        result: Tensor = x + self.dense(self.between(x))
        return result


class TinyViT(nn.Module):
    """Patches of a picture, a token for the class before them, and where each lies."""

    def __init__(self, side: int = 32, patch: int = 4, width: int = 32, heads: int = 2, blocks: int = 2) -> None:
        super().__init__()
        tokens = (side // patch) ** 2 + 1
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token, self.places = nn.Parameter(torch.randn(1, 1, width)), nn.Parameter(torch.randn(1, tokens, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(blocks)))
        self.last, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        patches = self.patches(x).flatten(2).transpose(1, 2)
        y = torch.cat([self.token.expand(x.shape[0], -1, -1), patches], dim=1) + self.places
        result: Tensor = self.head(self.last(self.blocks(y))[:, 0])
        return result


class SpokenWords(nn.Module):
    """Time by frequency, as the keyword-spotting transformer has it; attention by hand, the mean of all times."""

    def __init__(self, times: int = 40, bands: int = 16, width: int = 32, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.embed, self.places = nn.Linear(bands, width), nn.Parameter(torch.randn(1, times, width) * 0.5)
        self.three, self.joined = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)
        self.after, self.last = nn.LayerNorm(width), nn.LayerNorm(width)
        self.dense = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.head = nn.Linear(width, 6)

    def attend(self, x: Tensor) -> Tensor:
        n, times, width = x.shape
        parts = self.three(x).reshape(n, times, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = parts[0], parts[1], parts[2]
        seen = nn.functional.scaled_dot_product_attention(q, k, v)
        joined: Tensor = self.joined(seen.transpose(1, 2).reshape(n, times, width))
        return joined

    def forward(self, x: Tensor) -> Tensor:
        y = self.embed(x) + self.places
        y = self.after(y + self.attend(y))  # normalized behind the short cut, as the first transformer was
        y = self.last(y + self.dense(y))
        result: Tensor = self.head(y.mean(dim=1))
        return result

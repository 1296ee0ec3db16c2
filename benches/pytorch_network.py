"""One network in PyTorch, for pytorch.py beside it: BLOCKS WIDTH SEQUENCES TOKENS; prints seconds and CPU seconds."""

import sys
import time

import torch
import torch.nn.functional as F


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.heads = width // 64
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(width) for _ in range(2))
        shapes = [(width, width)] * 4 + [(4 * width, width), (width, 4 * width)]
        self.maps = torch.nn.ModuleList(torch.nn.utils.skip_init(torch.nn.Linear, i, o) for o, i in shapes)
        for linear in self.maps:
            torch.nn.init.xavier_normal_(linear.weight)
            torch.nn.init.zeros_(linear.bias)

    def forward(self, x):
        batch, tokens, width = x.shape
        y = self.norms[0](x)
        q, k, v = (m(y).view(batch, tokens, self.heads, 64).transpose(1, 2) for m in self.maps[:3])
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape)
        x = x + self.maps[3](y)
        return x + self.maps[5](F.gelu(self.maps[4](self.norms[1](x))))


def moments(x):
    """Mean, variance, and mean product of different tokens."""
    batch, tokens, width = x.shape
    squares = x.square().sum()
    pairs = x.sum(1).square().sum() - squares
    return x.mean(), x.var(), pairs / (batch * tokens * (tokens - 1) * width)


def run(blocks, width, batch, tokens):
    """Wall and CPU seconds of one network."""
    start, cpu = time.perf_counter(), time.process_time()
    network = [Block(width).requires_grad_(False) for _ in range(blocks)]
    told = []
    first = x = torch.randn(batch, tokens, width, requires_grad=True)
    for block in network:
        x = block(x)
        told.append(moments(x.detach()))
        x.register_hook(lambda gradient: told.append(moments(gradient)))
    x.backward(torch.randn_like(x))
    assert first.grad is not None and len(told) == 2 * blocks
    return time.perf_counter() - start, time.process_time() - cpu


if __name__ == "__main__":
    print(*run(*map(int, sys.argv[1:])))

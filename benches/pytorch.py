"""The cases of benches/engine.rs in PyTorch, beside the engine.

    pip install torch
    python benches/pytorch.py [ROUNDS]

The same work: all weights drawn, forward, backward to the input, mean, variance and token
correlation of the signal and second moment and token correlation of the gradient after every
block. Weights ask for no gradient. Runs of both alternate, each in a process of its own; printed
are the engine's median, PyTorch's, and the median of the ratios of the rounds.
"""

import json
import os
import statistics
import subprocess
import sys
import time

import torch
import torch.nn.functional as F

CASES = {"12x768": (12, 768, 4, 256), "24x1024": (24, 1024, 4, 256), "192x256": (192, 256, 4, 128)}


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


def measured(command):
    """What a child prints, its CPU seconds and its largest memory in GiB."""
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    printed = [float(word) for word in child.stdout.read().split()]
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, command)
    return printed, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 2**20


def theirs(case):
    # Importing the library is not part of the work.
    (seconds, cpu), _, memory = measured([sys.executable, __file__, case])
    return seconds, cpu, memory


def ours(engine, case):
    (seconds,), cpu, memory = measured([engine, case])
    return seconds, cpu, memory


def build_engine():
    command = ["cargo", "bench", "--bench", "engine", "--no-run", "--message-format", "json"]
    lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    executables = (json.loads(line).get("executable") for line in lines)
    return [path for path in executables if path][-1]


def main():
    if sys.argv[1:] and sys.argv[1] in CASES:
        print(*run(*CASES[sys.argv[1]]))
        return
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    engine = build_engine()
    print(f"PyTorch {torch.__version__}, {torch.get_num_threads()} threads, medians of {rounds} rounds")
    print(f"{'':8} {'seconds':^24} {'CPU seconds':^24} {'peak GiB':^24}")
    for case in CASES:
        pairs = [(theirs(case), ours(engine, case)) for _ in range(rounds)]
        cells = []
        for measure in range(3):
            other, own = (statistics.median(run[measure] for run in column) for column in zip(*pairs))
            ratio = statistics.median(own[measure] / other[measure] for other, own in pairs)
            cells.append(f"{own:7.2f} / {other:5.2f} = {ratio:5.2f}")
        print(f"{case:8} " + "    ".join(cells), flush=True)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Compare two builds of the command: CPU time as ratios of paired runs, with absolute figures.

    git worktree add ../before COMMIT && (cd ../before && cargo build --release)
    cargo build --release
    python benches/paired.py ../before/target/release/sigprop target/release/sigprop [--runs 5] [--only TEXT]

Both builds run the same command in turn, so that a shared machine disturbs both alike. A row has the median ratio of
user and system time (after / before), its range, the smallest CPU time of both, the wall time over the CPU time of the
second build, and the peak memory of both. Python's standard library suffices (Unix).
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
ZOO = ROOT / "data/models/zoo"
TEXT = "The variance of a sum is the sum of the variances where its terms are independent of each other. " * 2

COMMANDS = {
    "768 blocks, dslm": "predict --layers 768 --scheme dslm",
    "768 blocks, dslm, infinite width": "predict --layers 768 --scheme dslm --theory mean-field",
    "1000 blocks, xavier": "predict --layers 1000 --scheme xavier",
    "one block, xavier": "predict --layers 1 --scheme xavier",
    "llama-3-8b, 512 tokens": f"predict {ZOO}/llama-3-8b.json --seq-len 512",
    "llama-3-8b, 8192 tokens": f"predict {ZOO}/llama-3-8b.json --seq-len 8192",
    "qwen3-0.6b, 8192 tokens": f"predict {ZOO}/qwen3-0.6b.json --seq-len 8192",
    "gpt2, 1024 tokens": "predict gpt2 --seq-len 1024",
    "mistral-7b, 32768 tokens": "predict mistral-7b --seq-len 32768",
    "gemma-3-1b, 32768 tokens": f"predict {ZOO}/gemma-3-1b.json --seq-len 32768",
    "bloom-560m, 2048 tokens": f"predict {ZOO}/bloom-560m.json --seq-len 2048",
    "compare, 48 blocks": "compare --layers 48",
    "recommend llama-7b": "recommend llama-7b",
    "phase, 30 × 30 cells": "phase --layers 12 --scheme xavier --x weight-gain=0.5..2:30 --y branch-scale=0.1..1:30",
    "gemma-2-9b, dropped branches": "predict gemma-2-9b --seq-len 64 --train --drop-path 0.9",
    "ALiBi without causal mask": "predict {folder}/alibi.toml --scheme xavier",
    "gpt2, given ids": "predict gpt2 --text {folder}/text.txt --seq-len 128",
}

ALIBI = """n_layers = 4
d_model = 256
n_heads = 8
vocab_size = 1000
seq_len = 1000
positions = "alibi"
"""


class Run(NamedTuple):
    """One run of a command: seconds, and MiB."""

    cpu: float
    wall: float
    memory: float


def run(binary: str, arguments: list[str]) -> Run:
    """Runs a command without its output; an exit code of a usage error ends the comparison."""
    start = time.perf_counter()
    child = os.fork()
    if child == 0:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        os.execv(binary, [binary, *arguments])
    _, status, usage = os.wait4(child, 0)
    wall = time.perf_counter() - start
    if os.waitstatus_to_exitcode(status) not in (0, 1):
        sys.exit(f"{binary} {' '.join(arguments)}: exit code {os.waitstatus_to_exitcode(status)}")
    return Run(usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss / 1024)


def compare(binaries: list[str], arguments: list[str], runs: int) -> str:
    """A row of the table."""
    found: list[list[Run]] = [[], []]
    for index in range(runs):
        for side in (0, 1) if index % 2 == 0 else (1, 0):
            found[side].append(run(binaries[side], arguments))
    ratios = [after.cpu / before.cpu for before, after in zip(*found, strict=True)]
    before, after = (min(of.cpu for of in side) for side in found)
    memory = [max(of.memory for of in side) for side in found]
    wall = statistics.median(of.wall / of.cpu for of in found[1])
    return (
        f"{statistics.median(ratios):.3f} | {min(ratios):.3f} to {max(ratios):.3f} | {before:.3f} | {after:.3f} | "
        f"{wall:.2f} | {memory[0]:.0f} | {memory[1]:.0f} |"
    )


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", help="the command as it was")
    parser.add_argument("after", help="the command as it is")
    parser.add_argument("--runs", type=int, default=5, help="pairs of runs per command")
    parser.add_argument("--only", default="", help="commands whose name contains this text")
    options = parser.parse_args()
    binaries = [os.path.abspath(path) for path in (options.before, options.after)]
    print("| command | CPU ratio | range | before, s | after, s | wall/CPU | before, MiB | after, MiB |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "alibi.toml").write_text(ALIBI, encoding="utf-8")
        Path(folder, "text.txt").write_text(TEXT[:128], encoding="utf-8")
        for name, command in COMMANDS.items():
            if options.only in name:
                arguments = [part.replace("{folder}", folder) for part in command.split(" ")]
                print(f"| {name} | {compare(binaries, [*arguments, '--quiet'], options.runs)}", flush=True)


if __name__ == "__main__":
    main()

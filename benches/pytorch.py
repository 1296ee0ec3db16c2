"""The cases of benches/engine.rs in PyTorch, beside the engine.

    pip install torch
    python benches/pytorch.py [ROUNDS]

The same work: all weights drawn, forward, backward to the input, mean, variance and token
correlation of the signal and second moment and token correlation of the gradient after every
block. Weights ask for no gradient. Runs of both alternate, each in a process of its own; printed
are the engine's median, PyTorch's, and the median of the ratios of the rounds.
"""

import importlib.metadata
import json
import os
import pathlib
import statistics
import subprocess
import sys

CASES = {"12x768": (12, 768, 4, 256), "24x1024": (24, 1024, 4, 256), "192x256": (192, 256, 4, 128)}
NETWORK = pathlib.Path(__file__).with_name("pytorch_network.py")


def measured(command):
    """What a child prints, its CPU seconds and its largest memory in GiB (never below this process's own)."""
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    printed = [float(word) for word in child.stdout.read().split()]
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, command)
    return printed, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 2**20


def theirs(case):
    # Importing the library is not part of the work.
    (seconds, cpu), _, memory = measured([sys.executable, NETWORK, *map(str, CASES[case])])
    return seconds, cpu, memory


def ours(engine, case):
    (seconds,), cpu, memory = measured([engine, case])
    return seconds, cpu, memory


def build_engine():
    command = ["cargo", "bench", "--bench", "engine", "--no-run", "--message-format", "json"]
    lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    built = (json.loads(line) for line in lines)
    return next(one["executable"] for one in built if one.get("target", {}).get("kind") == ["bench"] and one["executable"])


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    engine = build_engine()
    print(f"PyTorch {importlib.metadata.version('torch')}, medians of {rounds} rounds")
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

"""Compares networks of `sigprop.torch.build` with those of the engine, on every stack of a folder: two samples of one distribution.

    SIGPROP_STACKS=stacks cargo test --release --test sigprop twins      # writes the stacks of the twin tests
    python python/tests/stacks.py stacks [--networks 200] [--only PART]

Every moment of every site, forward and backward, and of the gradient of every tensor is compared by the z-score of the
difference, with jackknife errors of both. For all cells of a stack together α = 1e-3 (Bonferroni, Student's t). Cells
whose relative errors are below 1e-4 are constants and must agree to 1e-3. Exits with 1 if a stack fails.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch

import sigprop
import sigprop.torch

ALPHA = 1e-3
# The same as in the twins of the rules.
EXACT, CONSTANT = 1e-4, 1e-3
# The rounding error of zero in f32, relative to the largest cell of a quantity.
ROUNDING = 1e-12
QUANTITIES = (
    "mean", "variance", "token_correlation", "grad_variance", "grad_token_correlation", "weight_grad_second_moment",
)


def quantile(cells: int, networks: int) -> float:
    """The |z| that any of this number of cells exceeds with probability ALPHA, for the degrees of freedom of one sample."""
    from scipy.stats import t

    return float(t.ppf(1.0 - ALPHA / (2 * cells), networks - 1))


def measured(path: Path, networks: int) -> dict[tuple[str, str], tuple[float, float]]:
    """Moments measured by the engine."""
    return cells(sigprop.measure(stack=path, replicates=networks, sites="all", weights=True))


def cells(table: sigprop.Table) -> dict[tuple[str, str], tuple[float, float]]:
    """Value and standard error, by site and quantity."""
    columns = (table[name].tolist() for name in ("site", "quantity", "observed", "std_error"))
    rows = zip(*columns, strict=True)
    return {(site, quantity): (value, error) for site, quantity, value, error in rows if quantity in QUANTITIES}


def probed(stack: dict[str, Any], networks: int) -> dict[tuple[str, str], tuple[float, float]]:
    """Moments measured with PyTorch."""
    generator = torch.Generator().manual_seed(1)
    torch.manual_seed(1)
    torch.set_num_threads(1)
    network = sigprop.torch.build(stack, generator=generator)
    found: list[Any] = []
    for _ in range(networks):
        network.reset_parameters(generator)
        found += sigprop.torch.probe(network, network.sample(1, generator), sites="all", generator=generator).networks
    return cells(sigprop.torch.Observed(found))


def differences(path: Path, networks: int) -> list[str]:
    """The cells that differ."""
    expected, got = measured(path, networks), probed(json.loads(path.read_text()), networks)
    found = [f"{site} {quantity}: only one has it" for site, quantity in sorted(expected.keys() ^ got.keys())]
    both = sorted(expected.keys() & got.keys())
    bound = quantile(max(len(both), 1), networks)
    largest = {quantity: max((abs(expected[cell][0]) for cell in both if cell[1] == quantity), default=0.0)
               for quantity in QUANTITIES}
    for cell in both:
        (one, one_error), (other, other_error) = expected[cell], got[cell]
        error = (one_error**2 + other_error**2) ** 0.5
        size = max(abs(one), abs(other))
        allowed = CONSTANT * size if error <= EXACT * size else bound * error
        if not abs(one - other) <= allowed + ROUNDING * largest[cell[1]]:
            found.append(f"{cell[0]} {cell[1]}: engine {one:.5g} ± {one_error:.2g}, torch {other:.5g} ± {other_error:.2g}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--networks", type=int, default=200)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    paths = sorted(path for path in arguments.folder.glob("*.json") if arguments.only in path.name)
    failed = 0
    for number, path in enumerate(paths, 1):
        found = differences(path, arguments.networks)
        failed += bool(found)
        print(f"[{number}/{len(paths)}] {path.stem}: {'fails' if found else 'agrees'}", flush=True)
        for line in found[:8]:
            print(f"    {line}")
    print(f"{len(paths) - failed} of {len(paths)} stacks agree")
    return 1 if failed or not paths else 0


if __name__ == "__main__":
    sys.exit(main())

"""Runs of `sigprop validate --suite models` with different seeds as one measurement.

    for seed in 1 2 3; do
        sigprop validate --suite models --max-replicates 64 --seed $seed -o runs/$seed
    done
    python3 tests/pool.py runs/*                      # predictions are those of the last run
    python3 tests/pool.py --predicted new runs/*      # or of another one, as of a later version

A cell is the average over all networks, weighted by how many a run had. Of variances and weight gradients relative
errors are told, of token correlations differences of covariances over the variance, as by the suite. A cell counts where
the standard error (of a covariance: of its variance too) is at most --largest-error, so that percentiles are of
predictions and not of noise; |z| < 2 is told of every run by itself, all cells.
"""

import argparse
import csv
import math
import pathlib
from collections import defaultdict

CORRELATION = "token_correlation"


def cells(folder):
    with open(pathlib.Path(folder) / "cells.csv", newline="") as file:
        for row in csv.DictReader(file):
            key = (row["group"], row["case"], row["site"], row["quantity"])
            observed, replicates = float(row["observed"]), int(row["replicates"])
            yield key, float(row["predicted"]), observed, float(row["std_error"] or "nan"), replicates, row["z"] != ""


def pooled(runs):
    sums = defaultdict(lambda: [0.0, 0.0, 0])
    for run in runs:
        for key, _, observed, std_error, replicates, _ in run:
            total = sums[key]
            total[0] += replicates * observed
            total[1] += (replicates * std_error) ** 2
            total[2] += replicates
    return {key: (total / n, math.sqrt(square) / n) for key, (total, square, n) in sums.items()}


def percentile(values, share):
    """Nearest rank."""
    return sorted(values)[max(math.ceil(share * len(values)) - 1, 0)]


def r_squared(pairs):
    average = sum(observed for _, observed in pairs) / len(pairs)
    total = sum((observed - average) ** 2 for _, observed in pairs)
    return 1.0 - sum((predicted - observed) ** 2 for predicted, observed in pairs) / total


def compared(key, predicted, observed):
    """Error, standard error, and predicted and observed value of a cell; None of one that is nothing."""
    value, std_error = observed[key]
    quantity = key[3]
    if quantity.endswith(CORRELATION):
        own = key[:3] + (quantity.replace(CORRELATION, "variance"),)
        variance, variance_error = observed[own]
        covariances = (predicted[key] * predicted[own], value * variance)
        error = (covariances[0] - covariances[1]) / variance
        return error, max(std_error, abs(value) * variance_error / variance), covariances
    if value == 0.0 or predicted[key] == 0.0:
        return None
    return predicted[key] / value - 1.0, std_error / abs(value), (predicted[key], value)


def shares_within_two(runs, predicted, quantity):
    """The share of |z| < 2 of every run."""
    for run in runs:
        scores = [
            abs(predicted[key] - observed) / std_error
            for key, _, observed, std_error, _, has_score in run
            if key[3] == quantity and has_score
        ]
        yield sum(score < 2.0 for score in scores) / len(scores)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", help="what `sigprop validate --suite models -o` wrote")
    parser.add_argument("--predicted", metavar="FOLDER", help="whose predictions [default: those of the last folder]")
    parser.add_argument("--largest-error", type=float, default=0.015, metavar="E", help="[default: 0.015]")
    arguments = parser.parse_args()
    runs = [list(cells(folder)) for folder in arguments.folders]
    predicted = {key: value for key, value, *_ in cells(arguments.predicted or arguments.folders[-1])}
    # Cases of other versions are left out.
    runs = [[cell for cell in run if cell[0] in predicted] for run in runs]
    observed = pooled(runs)
    rows = defaultdict(list)
    for key in observed:
        row = compared(key, predicted, observed)
        if row is not None:
            rows[key[3]].append(row)
    print("| what | cells that count | median error | 90 % | 99 % | median standard error | R² ln | R² linear | within 2 se, per run |")
    print("|---|---|---|---|---|---|---|---|---|")
    for quantity, found in rows.items():
        counted = [row for row in found if row[1] <= arguments.largest_error]
        errors = [abs(error) for error, _, _ in counted]
        pairs = [pair for _, _, pair in counted]
        percentiles = " | ".join(f"{100.0 * percentile(errors, share):.2f} %" for share in (0.5, 0.9, 0.99))
        noise = 100.0 * percentile([std_error for _, std_error, _ in counted], 0.5)
        logarithms = ""
        if not quantity.endswith(CORRELATION):
            logarithms = f"{r_squared([(math.log(p), math.log(o)) for p, o in pairs]):.5f}"
        shares = sorted(shares_within_two(runs, predicted, quantity))
        within = f"{100.0 * shares[0]:.0f} to {100.0 * shares[-1]:.0f} %"
        print(
            f"| {quantity} | {len(counted)} of {len(found)} | {percentiles} | {noise:.2f} % | {logarithms} "
            f"| {r_squared(pairs):.5f} | {within} |"
        )


if __name__ == "__main__":
    main()

"""`python -m sigprop.lab trainability`: the verdicts on many small networks, compared with their training."""

from __future__ import annotations

import argparse
import csv
import glob
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from ._drawn import drawn
from ._lab import Claim
from ._outcome import MODES, NOTHING, Record, Signs, came_true, claims, happened, matrix, named, thresholds, training, verdict_of
from ._run import say
from ._trial import Trial, train

# Factors on the scheme's rate, tried one after the other until a network learns. The first is the scheme's rate itself.
RATES = (1.0, 0.25, 4.0)
GRADES = ("healthy", "trainable_with_care", "not_trainable")
COLUMNS = ("index", "network", "grade", "failures", "happened", "came_true", "headline", "forward", "backward", "correlation",
           "attended", "target", "first_loss")


def trainability(
    networks: int = 120,
    seed: int = 1,
    steps: int = 200,
    output: str = "lab",
    shard: tuple[int, int] = (1, 1),
    resume: bool = False,
    only: str | None = None,
    rates: Sequence[float] = RATES,
    device: str = "cpu",
    tell: Callable[[str], None] = print,
) -> list[Claim]:
    """Generates random networks, predicts and trains each, and reports how many verdicts came true.

    Args:
        networks: The number of networks.
        seed: The seed of the networks. A network depends only on the seed and its number.
        steps: The steps of every training, fewer if the network learns earlier.
        output: Folder for a journal of networks, and for trainability.csv, .json and .png.
        shard: The number of the part, from 1, and the number of parts. A part writes only its journal.
        resume: Takes over the networks in the journals of the folder.
        only: Restricts the networks to this grade, one of GRADES.
        rates: Factors on the scheme's rate, the first of them 1. A network that does not learn at one is trained at the next.
        device: The device of torch.
        tell: Receives lines of text.

    Raises:
        ValueError: If there is nothing to do, or if the folder has a journal of another run, or one without `resume`.
    """
    number, count = shard
    if min(networks, steps) < 1:
        raise ValueError(f"expected networks and steps from 1 on, got {networks} and {steps}")
    if not 1 <= number <= count:
        raise ValueError(f"shard: expected a part from 1 to {count}, got {number}")
    if only not in (None, *GRADES):
        raise ValueError(f"only: expected one of {', '.join(GRADES)}, got {only}")
    if list(rates[:1]) != [1.0] or min(rates) <= 0.0:
        raise ValueError(f"rates: expected 1 and then others above 0, got {', '.join(f'{rate:g}' for rate in rates) or 'none'}")
    run = {"seed": seed, "steps": steps, "only": only, "rates": list(rates)}
    # One thread, so that results do not depend on the number of threads. Parts can run in parallel instead.
    torch.set_num_threads(1)
    os.makedirs(output, exist_ok=True)
    records = {record["index"]: record for record in _journals(output, resume, run)}
    journal = os.path.join(output, f"trainability.journal.{number}-of-{count}")
    with open(journal, "a") as file:
        for index in range(number - 1, networks, count):
            if index not in records:
                records[index] = _record(run, index, device, tell)
                # Only whole lines are written, so that no partial line is read.
                file.write(json.dumps(records[index]) + "\n")
                file.flush()
                tell(f"{index:4} {_line(records[index])}")
    if count > 1:
        tell(f"written: {journal}; the same command without --shard gathers")
        return []
    found = [records[index] for index in range(networks)]
    return _report(found, rates, output, tell)


def _journals(folder: str, resume: bool, run: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), "trainability.journal.*"))):
        if not resume:
            raise ValueError(f"{path}: there is a journal; --resume takes it over")
        with open(path) as file:
            text = file.read()
        # The last network of a killed process is trained again.
        whole = text[: text.rfind("\n") + 1]
        if whole != text:
            with open(path, "w") as file:
                file.write(whole)
        for line in whole.splitlines():
            record = json.loads(line)
            for name, value in run.items():
                if record.get(name) != value:
                    raise ValueError(f"{path}: a journal of another run: expected {name} {value}, got {record.get(name)}")
            yield record


def _record(run: dict[str, Any], index: int, device: str, tell: Callable[[str], None]) -> dict[str, Any]:
    trial, prediction = drawn(run["seed"], index, run["steps"], run["only"])
    trainings: list[dict[str, Any]] = []
    for rate in run["rates"]:
        trainings.append(_train(replace(trial, lr=trial.lr * rate), run["seed"] + index, device, tell))
        if trainings[-1]["has_learned"]:
            break
    return {
        **run,
        "index": index,
        "network": trial.name,
        "flags": dict(trial.flags),
        "grade": prediction.grade,
        "failures": named(prediction),
        "headline": prediction.verdict,
        "signs": vars(Signs.of_prediction(prediction)),
        "target": trial.task().target,
        "trainings": trainings,
    }


def _train(trial: Trial, seed: int, device: str, tell: Callable[[str], None]) -> dict[str, Any]:
    for course in train(trial, trial.steps, seed, device):
        if course.losses:
            tell(f"\r  {trial.name}: step {len(course.losses)} of {trial.steps}, loss {course.losses[-1]:.4g}   ")
        # A network that has learned needs no more steps.
        if len(course.losses) >= trial.steps // 10 and course.has_learned:
            break
    return training(course)


def _line(record: Record) -> str:
    losses = ", ".join("not a number" if tried["final_loss"] is None else f"{tried['final_loss']:.3g}" for tried in record["trainings"])
    sign = {True: "came true", False: "DID NOT COME TRUE", None: "nothing claimed"}[came_true(record)]
    return f"{sign}: {record['network']}: {verdict_of(record)}; {happened(record)} (loss {losses}, target {record['target']:.3g})"


def _report(records: Sequence[Record], rates: Sequence[float], output: str, tell: Callable[[str], None]) -> list[Claim]:
    counts, found = matrix(records), claims(records)
    columns = ["learned", *MODES, NOTHING]
    tell(f"{'said, and what happened':24}" + "".join(f"{column:>18}" for column in columns))
    for name, row in counts.items():
        tell(f"{name:24}" + "".join(f"{row[column]:18}" for column in columns))
    for line in thresholds(records):
        tell(line)
    for claim in found:
        tell(f"{'reached' if claim.came_true else 'NOT REACHED'}: {claim.text}")
    tell("written: " + ", ".join(_write(records, rates, counts, found, output)))
    return found


def _write(
    records: Sequence[Record],
    rates: Sequence[float],
    counts: dict[str, dict[str, int]],
    found: Sequence[Claim],
    output: str,
) -> list[str]:
    paths = [os.path.join(output, f"trainability.{kind}") for kind in ("csv", "json", "png")]
    with open(paths[0], "w", newline="") as file:
        writer = csv.DictWriter(file, [*COLUMNS, *map(_final, rates)])
        writer.writeheader()
        writer.writerows(_row(record, rates) for record in records)
    with open(paths[1], "w") as file:
        json.dump({"matrix": counts, "claims": [vars(claim) for claim in found], "networks": records}, file, indent=2)
    return paths if _draw(paths[2], records) else paths[:2]


def _final(rate: float) -> str:
    return f"final_loss_{rate:g}"


def _row(record: Record, rates: Sequence[float]) -> dict[str, Any]:
    finals = {_final(rate): tried["final_loss"] for rate, tried in zip(rates, record["trainings"], strict=False)}
    kept = {name: record[name] for name in ("index", "network", "grade", "headline", "target")}
    return {
        **kept, **record["signs"], **finals, "failures": " ".join(record["failures"]), "happened": happened(record),
        "came_true": came_true(record), "first_loss": record["trainings"][0]["first_loss"],
    }


def _draw(path: str, records: Sequence[Record]) -> bool:
    """Plots the final loss at the scheme's rate over the quantities of the verdict."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    figure = Figure(figsize=(11, 3.6), layout="constrained")
    panels = figure.subplots(1, 3, sharey=True)
    signs = (("forward", "ln of variance over the deeper half"), ("backward", "ln of gradient variance, likewise"),
             ("correlation", "token correlation at the end"))
    for axes, (sign, label) in zip(panels, signs, strict=True):
        for color, grade in enumerate(GRADES):
            some = [record for record in records if record["grade"] == grade and record["signs"][sign] is not None]
            # Losses that are not finite are at the upper edge.
            heights = [min((r["trainings"][0]["final_loss"] or 1e9) / r["target"], 10.0) for r in some]
            axes.plot([r["signs"][sign] for r in some], heights, ".", color=f"C{(0, 1, 3)[color]}", label=grade.replace("_", " "))
        axes.axhline(1.0, color="gray", linewidth=0.8)
        axes.set(xlabel=label, yscale="log")
        if sign != "correlation":
            axes.set_xscale("symlog", linthresh=10.0)
    panels[0].set_ylabel("final loss / what is asked")
    panels[0].legend()
    figure.savefig(path, dpi=80)
    return True


def main(arguments: Sequence[str]) -> int:
    """Runs the command and returns its exit status."""
    parser = argparse.ArgumentParser(
        "python -m sigprop.lab trainability",
        description="Draws small networks, predicts and trains each, and counts how many verdicts come true.",
    )
    parser.add_argument("--networks", type=int, default=120, help="how many are drawn [default: 120]")
    parser.add_argument("--seed", type=int, default=1, help="of what is drawn [default: 1]")
    parser.add_argument("--steps", type=int, default=200, help="of every training, fewer where it learns before [default: 200]")
    parser.add_argument("-o", "--output", default="lab", help="folder for journal, rows, summary and picture [default: lab]")
    parser.add_argument("--resume", metavar="DIR", help="the same, taking over what the journals in it hold")
    parser.add_argument("--shard", type=_shard, default=(1, 1), metavar="I/N", help="trains a part, whose journal --resume gathers")
    parser.add_argument("--only", choices=GRADES, help="draws networks of this grade alone")
    parser.add_argument("--rates", type=_rates, default=RATES, metavar="LIST",
                        help="times the scheme's learning rate, tried until a network learns [default: 1,0.25,4]")
    parser.add_argument("--device", default="cpu", help="of torch")
    given = parser.parse_args(arguments)
    folder = given.resume or given.output
    try:
        found = trainability(given.networks, given.seed, given.steps, folder, given.shard, bool(given.resume), given.only, given.rates,
                             given.device, say)
    except ValueError as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        print(f"\nwhat was done is kept: --resume {folder} goes on")
        return 130
    return 0 if all(claim.came_true for claim in found) else 1


def _shard(text: str) -> tuple[int, int]:
    number, _, count = text.partition("/")
    if not (number.isdigit() and count.isdigit() and 1 <= int(number) <= int(count)):
        raise argparse.ArgumentTypeError(f"expected a part of how many, as 2/4, got {text}")
    return int(number), int(count)


def _rates(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(rate) for rate in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected numbers as 1,0.25,4, got {text}") from None

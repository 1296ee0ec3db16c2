"""The output of a lab: rows, a summary, a picture."""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ._lab import Claim, Lab
from ._trial import Course

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = ("network", "step", "site", "loss", "variance", "token_correlation", "score_std", "attended", "grad_norm", "grad_variance")


def write(folder: str, name: str, lab: Lab, courses: Sequence[Course], claims: Sequence[Claim]) -> list[str]:
    """Writes lab.csv, lab.json and lab.png into a folder and returns their paths."""
    os.makedirs(folder, exist_ok=True)
    paths = [os.path.join(folder, f"{name}.{kind}") for kind in ("csv", "json", "png")]
    with open(paths[0], "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for course in courses:
            writer.writerows(course.rows)
    summary = {
        "lab": name,
        # JSON has no NaN and no infinities.
        "networks": [
            {**course.summary(), "losses": [loss if math.isfinite(loss) else None for loss in course.losses]}
            for course in courses
        ],
        "claims": [{"text": claim.text, "came_true": claim.came_true} for claim in claims],
    }
    with open(paths[1], "w") as file:
        json.dump(summary, file, indent=2)
    return paths if _draw(paths[2], lab, courses) else paths[:2]


def _draw(path: str, lab: Lab, courses: Sequence[Course]) -> bool:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    figure = Figure(figsize=(11, 7), layout="constrained")
    (lab.draw or _curves)(figure, courses)
    figure.savefig(path, dpi=80)
    return True


def _curves(figure: Figure, courses: Sequence[Course]) -> None:
    (losses, variances), (norms, correlations) = figure.subplots(2, 2)
    for index, course in enumerate(courses):
        color = f"C{index}"
        # A line of one point would be invisible.
        losses.plot(course.losses, "-" if len(course.losses) > 2 else "o", color=color, label=course.trial.name)
        _stream(variances, course, "variance", color)
        _stream(correlations, course, "token_correlation", color)
        for step, style in _first_and_last(course):
            norms.plot([row["grad_norm"] for row in course.at(step) if row["grad_norm"]], style, color=color)
    losses.set(xlabel="step", ylabel="loss", yscale="log", xlim=(-1, None))
    losses.legend()
    norms.set(xlabel="block", ylabel="gradient norm (first step, last dashed)", yscale="log")
    variances.set(xlabel="block", ylabel="variance of the stream (dots: predicted)", yscale="log")
    correlations.set(xlabel="block", ylabel="token correlation (dots: predicted)")


def _stream(axes: Any, course: Course, quantity: str, color: str) -> None:
    axes.plot(course.prediction[quantity], ".", color=color)
    for step, style in _first_and_last(course):
        axes.plot([row[quantity] for row in course.at(step)], style, color=color)


def _first_and_last(course: Course) -> list[tuple[int, str]]:
    steps = sorted({row["step"] for row in course.rows})
    return [(step, style) for step, style in zip(steps[:1] + steps[-1:], ("-", "--"), strict=False)]

"""Runs a lab: predictions, training, claims."""

from __future__ import annotations

import sys
from collections.abc import Callable

from ._lab import Claim, claims_of
from ._labs import LABS
from ._output import write
from ._trial import Course, train


def run(
    lab: str,
    output: str | None = None,
    seed: int = 0,
    device: str = "cpu",
    steps: int | None = None,
    tell: Callable[[str], None] = print,
) -> list[Claim]:
    """Trains the networks of a lab and returns its claims.

    Args:
        lab: One of `LABS`.
        output: Folder for lab.csv, lab.json and lab.png (with matplotlib) [default: nothing is written].
        seed: Of weights, batches and masks.
        device: Of torch.
        steps: Of every network [default: what the lab says].
        tell: Takes lines of text.

    Raises:
        ValueError: There is no such lab.
        KeyboardInterrupt: After what was done was written.
    """
    if lab not in LABS:
        raise ValueError(f"lab: expected one of {', '.join(LABS)}, got {lab}")
    tell(LABS[lab].about)
    courses: list[Course] = []
    claims: list[Claim] = []
    try:
        for trial in LABS[lab].trials:
            course, goal = None, steps if steps is not None else trial.steps
            for course in train(trial, goal, seed, device):
                if not course.losses:
                    courses.append(course)
                    tell(f"  {trial.name}: {course.prediction.verdict}")
                else:
                    tell(f"\r    step {len(course.losses)} of {goal}, loss {course.losses[-1]:.4g}   ")
        claims = claims_of(LABS[lab], courses)
        for claim in claims:
            tell(f"{'came true' if claim.came_true else 'DID NOT COME TRUE'}: {claim.text}")
    finally:
        if output is not None:
            tell("written: " + ", ".join(write(output, lab, LABS[lab], courses, claims)))
    return claims


def say(line: str) -> None:
    """Lines of progress stand over each other, on a terminal."""
    if not line.startswith("\r"):
        print(line, flush=True)
    elif sys.stderr.isatty():
        print(line, end="", file=sys.stderr, flush=True)

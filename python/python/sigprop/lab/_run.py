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
        seed: The seed of weights, batches and masks.
        device: The device of torch.
        steps: The steps of every network [default: those of the lab].
        tell: Receives lines of text.

    Raises:
        ValueError: If there is no such lab.
        KeyboardInterrupt: If it is interrupted, after the results so far were written.
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
    """Prints a line. On a terminal, lines of progress overwrite each other."""
    if not line.startswith("\r"):
        print(line, flush=True)
    elif sys.stderr.isatty():
        print(line, end="", file=sys.stderr, flush=True)

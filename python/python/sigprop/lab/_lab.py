"""What an experiment is: networks, and what is claimed of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ._tasks import VECTORS
from ._trial import Course, Trial, failures

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Claim:
    """Something that was predicted, and whether it came true."""

    text: str
    came_true: bool


@dataclass(frozen=True)
class Lab:
    """Networks, and what is claimed of each or of all beside the verdicts."""

    about: str
    trials: Sequence[Trial]
    claims: Callable[[Sequence[Course]], list[Claim]] = lambda courses: []
    # Whether verdicts are claimed to come true: not where rates are looked for that are too large.
    are_judged: bool = True
    # In place of curves over steps and depth.
    draw: Callable[[Figure, Sequence[Course]], None] | None = None


def claims_of(lab: Lab, courses: Sequence[Course]) -> list[Claim]:
    """Of every network that its first step is as predicted and its verdict comes true, and what the lab adds."""
    rules = (_first_step, _verdict) if lab.are_judged else (_first_step,)
    each = [claim for course in courses for rule in rules if (claim := rule(course)) is not None]
    return [*each, *lab.claims(courses)]


# Standard deviations that one network may stray from the mean of all, and the share that is allowed besides.
STRAYS, BESIDES = 4.0, 0.1


def _first_step(course: Course) -> Claim | None:
    """Of the variance of the stream, in ln."""
    seen = {row["site"]: row["variance"] for row in course.at(0)}
    if not seen:
        return None
    worst = 0.0
    for row in course.prediction.rows:
        # Beyond the numbers of f32 nothing is measured.
        if row["site"] in seen and 1e-30 < row["variance"] < 1e30:
            off = abs(math.log(max(seen[row["site"]], 1e-45) / row["variance"]))
            worst = max(worst, off / math.hypot(row.get("ln_variance_std") or 0.0, BESIDES))
    text = f"the variance of every block begins as predicted (at most {worst:.1f} of the standard deviations of one network)"
    return Claim(f"{course.trial.name}: {text}", worst <= STRAYS)


def _verdict(course: Course) -> Claim | None:
    name, grade = course.trial.name, course.prediction.grade
    if len(course.losses) <= 1 or grade not in ("healthy", "not_trainable"):
        # Of what is trainable with care nothing is claimed, nor of what was only looked at.
        return None
    came = f"loss {course.losses[0]:.3g} to {course.final:.3g}, learned below {course.target:.3g}"
    if grade == "healthy":
        return Claim(f"{name}: healthy, so it learns ({came})", course.has_learned)
    why = ", ".join(kind.replace("_", " ") for kind in failures(course.prediction))
    return Claim(f"{name}: not trainable ({why}), so it does not learn ({came})", not course.has_learned)


def mlp(name: str, layers: int, optimizer: Literal["sgd", "adam"] = "adam", **flags: Any) -> Trial:
    """Of width 128."""
    return Trial(name, {"model": "mlp", "layers": layers, "width": 128, "seq_len": VECTORS, **flags}, 200, 1e-3, optimizer)


SMALL: Mapping[str, Any] = {"width": 64, "heads": 4, "seq_len": 32}


def transformer(name: str, layers: int, steps: int = 100, lr: float = 1e-3, **flags: Any) -> Trial:
    """Causal, of width 64."""
    return Trial(name, {"layers": layers, **SMALL, **flags}, steps, lr)

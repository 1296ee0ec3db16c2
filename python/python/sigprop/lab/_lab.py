"""Definition of an experiment: networks, and claims about them."""

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
    """A prediction in words. `came_true` is true if it came true."""

    text: str
    came_true: bool


@dataclass(frozen=True)
class Lab:
    """Networks, and claims about each or all of them, in addition to the verdicts."""

    about: str
    trials: Sequence[Trial]
    claims: Callable[[Sequence[Course]], list[Claim]] = lambda courses: []
    # True if verdicts are claimed to come true. They are not if the lab looks for rates that are too large.
    are_judged: bool = True
    # Draws the picture; by default curves over steps and depth.
    draw: Callable[[Figure, Sequence[Course]], None] | None = None


def claims_of(lab: Lab, courses: Sequence[Course]) -> list[Claim]:
    """The claims that the first step of every network is as predicted and its verdict comes true, and the claims of the lab."""
    rules = (_first_step, _verdict) if lab.are_judged else (_first_step,)
    each = [claim for course in courses for rule in rules if (claim := rule(course)) is not None]
    return [*each, *lab.claims(courses)]


# The allowed deviation of one network from the mean, in standard deviations, and an additional relative tolerance.
STRAYS, BESIDES = 4.0, 0.1


def _first_step(course: Course) -> Claim | None:
    """The claim about the variance of the stream, whose deviation is measured in ln."""
    seen = {row["site"]: row["variance"] for row in course.at(0)}
    if not seen:
        return None
    worst = 0.0
    for row in course.prediction.rows:
        # Nothing is measured beyond the range of f32.
        if row["site"] in seen and 1e-30 < row["variance"] < 1e30:
            off = abs(math.log(max(seen[row["site"]], 1e-45) / row["variance"]))
            worst = max(worst, off / math.hypot(row.get("ln_variance_std") or 0.0, BESIDES))
    text = f"the variance of every block begins as predicted (at most {worst:.1f} of the standard deviations of one network)"
    return Claim(f"{course.trial.name}: {text}", worst <= STRAYS)


def _verdict(course: Course) -> Claim | None:
    name, grade = course.trial.name, course.prediction.grade
    if len(course.losses) <= 1 or grade not in ("healthy", "not_trainable"):
        # Nothing is claimed about networks that are trainable with care, or that were not trained.
        return None
    came = f"loss {course.losses[0]:.3g} to {course.final:.3g}, learned below {course.target:.3g}"
    if grade == "healthy":
        return Claim(f"{name}: healthy, so it learns ({came})", course.has_learned)
    why = ", ".join(kind.replace("_", " ") for kind in failures(course.prediction))
    return Claim(f"{name}: not trainable ({why}), so it does not learn ({came})", not course.has_learned)


def mlp(name: str, layers: int, optimizer: Literal["sgd", "adam"] = "adam", **flags: Any) -> Trial:
    """An MLP of width 128."""
    return Trial(name, {"model": "mlp", "layers": layers, "width": 128, "seq_len": VECTORS, **flags}, 200, 1e-3, optimizer)


SMALL: Mapping[str, Any] = {"width": 64, "heads": 4, "seq_len": 32}


def transformer(name: str, layers: int, steps: int = 100, lr: float = 1e-3, **flags: Any) -> Trial:
    """A causal Transformer of width 64."""
    return Trial(name, {"layers": layers, **SMALL, **flags}, steps, lr)

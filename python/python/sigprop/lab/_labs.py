"""The experiments: which networks, and what is claimed of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ._tasks import VECTORS
from ._trial import Course, Trial, failures


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


def claims_of(lab: Lab, courses: Sequence[Course]) -> list[Claim]:
    """Of every network that its first step is as predicted and its verdict comes true, and what the lab adds."""
    each = [claim for course in courses for claim in (_first_step(course), _verdict(course)) if claim is not None]
    return [*each, *lab.claims(courses)]


# Standard deviations that one network may stray from the mean of all, and the share that is allowed besides.
STRAYS, BESIDES = 4.0, 0.1


def _first_step(course: Course) -> Claim | None:
    """Of the variance of the stream, in ln."""
    seen = {row["site"]: row["variance"] for row in course.rows if row["step"] == 0}
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


def _mlp(name: str, layers: int, optimizer: Literal["sgd", "adam"] = "adam", **flags: Any) -> Trial:
    return Trial(name, {"model": "mlp", "layers": layers, "width": 128, "seq_len": VECTORS, **flags}, 200, 1e-3, optimizer)


SMALL: Mapping[str, Any] = {"width": 64, "heads": 4, "seq_len": 32}


def _transformer(name: str, layers: int, steps: int = 100, lr: float = 1e-3, **flags: Any) -> Trial:
    return Trial(name, {"layers": layers, **SMALL, **flags}, steps, lr)


def _not_a_number(courses: Sequence[Course]) -> list[Claim]:
    ends = next((step for step, loss in enumerate(courses[1].losses) if not math.isfinite(loss)), None)
    found = "it never was" if ends is None else f"it was at step {ends}"
    return [Claim(f"{courses[1].trial.name}: the loss is not a number by step 50 ({found})", ends is not None and ends <= 50)]


def _tokens_collapse(courses: Sequence[Course]) -> list[Claim]:
    """Of Dong et al. 2021: without skip connections tokens become one vector, with them they do not."""
    claims = []
    for course in courses:
        seen = next(row["token_correlation"] for row in reversed(course.rows) if row["step"] == 0)
        predicted = float(course.prediction["token_correlation"][-1])
        text = f"{course.trial.name}: token correlation at the end {seen:.4f}, predicted {predicted:.4f}"
        claims.append(Claim(text, abs(seen - predicted) < 0.1))
    return claims


LABS: Mapping[str, Lab] = {
    "textbook": Lab(
        "Two classic questions: 30 layers of GELU with RMSNorm, skip connections and Kaiming train smoothly; 30 layers of ReLU with "
        "neither and U(-1, 1) blow up.",
        [
            _mlp("GELU, RMSNorm, residual, Kaiming", 30, activation="gelu", norm="rmsnorm", residual=True, scheme="kaiming"),
            # Adam takes the same step however large gradients are; SGD does not.
            _mlp("ReLU, U(-1, 1)", 30, "sgd", activation="relu", scheme="uniform:1"),
        ],
        _not_a_number,
    ),
    "variance-walk": Lab(
        "How the variance of the stream walks through 48 blocks under three initialisations; nothing is trained.",
        [_transformer(scheme, 48, 1, scheme=scheme) for scheme in ("xavier", "gpt2", "dslm")],
    ),
    "init": Lab(
        "Three initialisations of 30 layers of ReLU (He et al. 2015), three loss curves.",
        [_mlp(scheme, 30, activation="relu", scheme=scheme) for scheme in ("normal:0.01", "kaiming", "uniform:1")],
    ),
    "norm": Lab(
        "Twelve blocks with and without norms.",
        [_transformer("pre-norm", 12, scheme="xavier"), _transformer("no norm", 12, scheme="xavier", norm="none")],
    ),
    "residual": Lab(
        "Fifty layers with skip connections and without.",
        [
            _mlp("residual", 50, activation="relu", norm="rmsnorm", residual=True, scheme="lecun"),
            _mlp("plain", 50, activation="relu", scheme="lecun"),
        ],
    ),
    "depth": Lab(
        "Tanh networks whose signals fall block by block (Schoenholz et al. 2017): how deep is too deep?",
        [_mlp(f"{layers} layers", layers, activation="tanh", scheme="normal:0.06") for layers in (4, 16, 64)],
    ),
    "rank-collapse": Lab(
        "Tokens of attention without skip connections become one vector (Dong et al. 2021); nothing is trained.",
        [
            _transformer("with skips", 12, 1, scheme="xavier", norm_placement="post", positions="none"),
            _transformer("without", 12, 1, scheme="xavier", norm_placement="post", positions="none", skip_scale=0.0),
        ],
        _tokens_collapse,
    ),
    "stochastic-depth": Lab(
        "Branches dropped in training (Huang et al. 2016), none and half of them in the last block.",
        [_transformer(f"drop path {rate}", 8, scheme="xavier", drop_path=rate, train=True) for rate in (0.0, 0.5)],
    ),
}

"""The experiments: their networks, and the claims about them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ._lab import Claim, Lab, mlp, transformer
from ._literature import LITERATURE
from ._trial import Course


def _the_first_learns(courses: Sequence[Course]) -> list[Claim]:
    """The claim that the first network learns, even if the verdict asks for care."""
    first = courses[0]
    text = f"{first.trial.name}: it learns (loss {first.losses[0]:.3g} to {first.final:.3g}, learned below {first.target:.3g})"
    return [Claim(text, first.has_learned)]


def _textbook(courses: Sequence[Course]) -> list[Claim]:
    ends = next((step for step, loss in enumerate(courses[1].losses) if not math.isfinite(loss)), None)
    found = "it never was" if ends is None else f"it was at step {ends}"
    return [*_the_first_learns(courses), Claim(f"{courses[1].trial.name}: the loss is not a number by step 50 ({found})", ends is not None and ends <= 50)]


EXPERIMENTS: Mapping[str, Lab] = {
    "textbook": Lab(
        "Two classic questions: 30 layers of GELU with RMSNorm, skip connections and Kaiming train smoothly; 30 layers of ReLU with "
        "neither and U(-1, 1) blow up.",
        [
            mlp("GELU, RMSNorm, residual, Kaiming", 30, activation="gelu", norm="rmsnorm", residual=True, scheme="kaiming"),
            # The steps of Adam do not depend on the size of gradients; those of SGD do.
            mlp("ReLU, U(-1, 1)", 30, "sgd", activation="relu", scheme="uniform:1"),
        ],
        _textbook,
    ),
    "variance-walk": Lab(
        "How the variance of the stream walks through 48 blocks under three initialisations; nothing is trained.",
        [transformer(scheme, 48, 1, scheme=scheme) for scheme in ("xavier", "gpt2", "dslm")],
    ),
    "init": Lab(
        "Three initialisations of 30 layers of ReLU (He et al. 2015), three loss curves.",
        [mlp(scheme, 30, activation="relu", scheme=scheme) for scheme in ("normal:0.01", "kaiming", "uniform:1")],
    ),
    "norm": Lab(
        "Twelve blocks with and without norms.",
        [transformer("pre-norm", 12, scheme="xavier"), transformer("no norm", 12, scheme="xavier", norm="none")],
    ),
    "residual": Lab(
        "Fifty layers with skip connections and without.",
        [
            mlp("residual", 50, activation="relu", norm="rmsnorm", residual=True, scheme="lecun"),
            mlp("plain", 50, activation="relu", scheme="lecun"),
        ],
        _the_first_learns,
    ),
    "depth": Lab(
        "Tanh networks whose signals fall block by block (Schoenholz et al. 2017): how deep is too deep?",
        [mlp(f"{layers} layers", layers, activation="tanh", scheme="normal:0.06") for layers in (4, 16, 64)],
    ),
    "stochastic-depth": Lab(
        "Branches dropped in training (Huang et al. 2016), none and half of them in the last block.",
        [transformer(f"drop path {rate}", 8, scheme="xavier", drop_path=rate, train=True) for rate in (0.0, 0.5)],
    ),
}

LABS: Mapping[str, Lab] = {**EXPERIMENTS, **LITERATURE}

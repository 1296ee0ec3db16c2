"""Random small networks, each determined by a seed and a number."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

from .. import Prediction, predict, schemes
from ._tasks import VECTORS
from ._trial import Trial

WIDTH = 64
# Learning rates of Adam. u-muP defines rates for weights of variance 1, and divides those of hidden maps by the width.
RATE, UNIT_RATE = 1e-3, 1e-3 * WIDTH
LAYERS = (4, 8, 16, 32, 64)
# Schemes with arguments. They are chosen twice as often as each scheme without arguments.
ARGUMENTS = ("normal:0.02", "normal:0.1", "uniform:0.05", "uniform:0.3", "uniform:1")
# The number of schemes that are tried, and of architectures for each: many schemes fit few architectures.
TRIES = 40


def drawn(seed: int, index: int, steps: int, only: str | None = None) -> tuple[Trial, Prediction]:
    """The network with this number, an MLP or a causal Transformer. With `only`, the first one of this grade for the number.

    Raises:
        ValueError: If no candidate is accepted.
    """
    for again in range(TRIES * TRIES):
        # Seeded by a text, so that neighbouring seeds share nothing.
        source = random.Random(f"{seed}/{index}" + (f"/{again}" if again else ""))
        trial, prediction = _accepted(source, steps)
        if only in (None, prediction.grade):
            return trial, prediction
    raise ValueError(f"network {index} of seed {seed}: none of {TRIES * TRIES} is {only}")


def _accepted(source: random.Random, steps: int) -> tuple[Trial, Prediction]:
    kind = source.choice((_mlp, _transformer))
    for _ in range(TRIES):
        scheme = source.choice([*schemes()["name"], *ARGUMENTS, *ARGUMENTS])
        for _ in range(TRIES):
            flags = {**kind(source), "scheme": scheme}
            trial = Trial(_name(flags), flags, steps, UNIT_RATE if scheme == "u-mup" else RATE)
            with suppress(ValueError):
                prediction = predict(**trial.whole())
                if all(caveat["kind"] != "scheme" for caveat in prediction.caveats):
                    return trial, prediction
    raise ValueError(f"none of {TRIES * TRIES} networks was accepted")


def _mlp(source: random.Random) -> dict[str, Any]:
    return {
        "model": "mlp",
        "layers": source.choice(LAYERS),
        "width": 128,
        "seq_len": VECTORS,
        "activation": source.choice(("relu", "gelu", "silu", "tanh")),
        "norm": source.choice(("none", "none", "layernorm", "rmsnorm", "batchnorm")),
        "residual": source.choice((True, False)),
    }


def _transformer(source: random.Random) -> dict[str, Any]:
    norm = source.choice(("none", "layernorm", "rmsnorm"))
    placement = source.choice(("pre", "post", "sandwich"))
    return {
        "layers": source.choice(LAYERS),
        "width": WIDTH,
        "heads": 4,
        # Enough tokens to distinguish sharp attention from attention to a short sequence.
        "seq_len": 40,
        "activation": source.choice(("relu", "gelu", "swiglu")),
        "norm": norm,
        **({} if norm == "none" else {"norm_placement": placement}),
    }


def _name(flags: dict[str, Any]) -> str:
    kind = "MLP" if flags.get("model") == "mlp" else "Transformer"
    norm = "no norm" if flags["norm"] == "none" else " ".join(filter(None, (flags.get("norm_placement"), flags["norm"])))
    residual = ", residual" if flags.get("residual") else ""
    return f"{kind} of {flags['layers']} layers, {flags['activation']}, {norm}{residual}, {flags['scheme']}"

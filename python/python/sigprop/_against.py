"""The comparison of a prediction with measurements, a method of `Prediction`."""

from __future__ import annotations

from typing import Any

from ._call import call
from ._commands import _SWITCHES, validate
from ._results import Prediction, Validation


def against(self: Prediction, observed: Any) -> Validation:
    """Compares this prediction with measurements: a CSV file, or columns site, quantity, observed and std_error.

    >>> import sigprop
    >>> prediction = sigprop.predict(layers=2, width=32, seq_len=8)
    >>> observed = {"site": ["blocks.0"], "quantity": ["variance"], "observed": [0.5]}
    >>> prediction.against(observed).rows[0]["site"]
    'blocks.0'
    """
    given = self._given
    if given.get("head") or given.get("loss"):
        raise ValueError("against: expected a prediction without head and loss, whose gradients start elsewhere")
    known = validate.__kwdefaults__ or {}
    skipped = {"sites", "weights", "batch", "seed", "plot", "report"}
    flags = {
        name: value
        for name, value in given.items()
        if (name in known or name == "model") and name not in skipped
    }
    return call("validate", Validation, {**flags, "observed": observed}, _SWITCHES)

"""Predicts the propagation of signals and gradients through deep networks at initialisation.

>>> import sigprop
>>> prediction = sigprop.predict("gpt2", scheme="xavier", seq_len=32)
>>> prediction.grade
'healthy'
>>> prediction["grad_variance"].shape
(14,)

Functions take the flags of the command `sigprop` as keyword arguments. Results have its columns as numpy arrays.
"""

from ._against import against as _against
from ._commands import compare, inspect, measure, phase, predict, recommend, validate
from ._listed import models, schemes
from ._results import (
    Comparison,
    Inspection,
    Measurement,
    Models,
    PhaseMap,
    Prediction,
    Recommendation,
    Result,
    Schemes,
    Validation,
)
from ._shards import Shard, measure_shard, merge
from ._sigprop import __version__
from ._table import Table

# The command module builds on results, so that a result cannot import it.
Prediction.against = _against  # type: ignore[method-assign]

__all__ = [
    "Comparison",
    "Inspection",
    "Measurement",
    "Models",
    "PhaseMap",
    "Prediction",
    "Recommendation",
    "Result",
    "Schemes",
    "Shard",
    "Table",
    "Validation",
    "__version__",
    "compare",
    "inspect",
    "measure",
    "measure_shard",
    "merge",
    "models",
    "phase",
    "predict",
    "recommend",
    "schemes",
    "validate",
]

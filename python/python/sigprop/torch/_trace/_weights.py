"""The distributions of tensors and of inputs, from their entries."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

# A tensor with fewer entries does not show the shape of its distribution: it is taken for a normal one.
_FEWEST, _ENOUGH = 500, 200_000
# Kurtosis and largest entry, in standard deviations, halfway to the next distribution: 1.8 and √3 of a uniform distribution,
# 2.366 and 2.274 of a normal one cut at 2 σ, 3 of a normal one.
_UNIFORM, _CUT = (2.08, 2.0), (2.68, 2.5)
# The standard deviation of N(0, 1) conditioned on |z| ≤ 2.
_CUT_STD = 0.8796256610


def initialisation(values: Tensor) -> str | dict[str, Any]:
    """The distribution with the second moment of the entries, as in stack files.

    >>> initialisation(torch.zeros(3))
    'zero'
    """
    entries = values.detach().flatten()
    size, largest = rms(entries), float(entries.abs().max())
    if size == 0.0:
        return "zero"
    count = entries.numel()
    if count < _FEWEST or not size < 1e50:
        return {"normal": {"std": size}}
    # Some of the entries show the kurtosis well enough.
    kurtosis = float((entries[:: 1 + count // _ENOUGH].double() / size).pow(4).mean())
    if kurtosis < _UNIFORM[0] and largest / size < _UNIFORM[1]:
        # The largest of many entries is nearer to the bound than the root mean square tells.
        return {"uniform": {"bound": largest * (1.0 + 1.0 / count)}}
    if kurtosis < _CUT[0] and largest / size < _CUT[1]:
        return {"truncated_normal": {"std": size / _CUT_STD, "cutoff": 2.0}}
    return {"normal": {"std": size}}


def rms(value: Tensor) -> float:
    """The root mean square of the entries."""
    norm: Tensor = torch.linalg.vector_norm(value, dtype=torch.float64)
    return float(norm) / math.sqrt(value.numel())


def moments(value: Tensor, sequences: int) -> dict[str, float]:
    """Mean, variance and correlation of tokens; 0, 1 and 0 within four standard errors of independent entries."""
    entries = value.detach().double().reshape(sequences, -1, value.shape[-1])
    count, tokens = entries.numel(), entries.shape[1]
    mean, variance = float(entries.mean()), float(entries.var(correction=0))
    error = 4.0 / count**0.5
    if abs(mean) < error * variance**0.5:
        mean = 0.0
    if abs(variance - 1.0) < error * 2.0**0.5:
        variance = 1.0
    correlation = 0.0
    if tokens > 1 and variance > 0.0:
        centred = entries - mean
        pairs = float(centred.sum(1).square().sum() - centred.square().sum()) / (count * (tokens - 1))
        correlation = min(max(pairs / variance, 0.0), 1.0)
        if correlation < error * 2.0**0.5:
            correlation = 0.0
    return {**({"mean": mean} if mean else {}), "variance": variance, "correlation": correlation}

"""The distributions of tensors and of inputs, from their entries."""

from __future__ import annotations

import math
from collections.abc import Callable
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
# Entries that are summed at once.
_AT_ONCE = 1 << 16


def initialisation(values: Tensor) -> str | dict[str, Any]:
    """The distribution with the second moment of the entries, as in stack files.

    >>> initialisation(torch.zeros(3))
    'zero'
    """
    entries = values.detach().flatten()
    lowest, highest = torch.aminmax(entries)
    size, largest = rms(entries), max(float(highest), -float(lowest))
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


def standardised_length(weight: Tensor) -> float | None:
    """The root mean square length of the rows of a map, if all have mean zero: every forward pass standardises them.

    >>> standardised_length(torch.tensor([[3.0, -4.0, 1.0], [1.0, 4.0, -5.0]]))
    5.830951894845301
    """
    size, columns = rms(weight), weight.shape[1]
    is_centred = columns > 2 and size > 0.0 and float(weight.mean(1).abs().max()) < 1e-5 * size
    return size * math.sqrt(columns) if is_centred else None


def rms(value: Tensor) -> float:
    """The root mean square of the entries."""
    return math.sqrt(_mean(value, lambda part: part.square()))


def _mean(value: Tensor, of: Callable[[Tensor], Tensor]) -> float:
    """The mean of a function of the entries in f64, in parts, because f64 needs twice the memory."""
    parts = torch.split(value.flatten(), _AT_ONCE)
    return math.fsum(float(of(part.double()).sum()) for part in parts) / value.numel()


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

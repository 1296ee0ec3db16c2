"""Moments of the signals and gradients of live modules, from their sums."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from .._table import Table

# The moments that `moments_of` computes from the sums of a signal, by name.
Moments = dict[str, float]


class Observed(Table):
    """Moments of one or several networks, in the form that `prediction.against` takes: site, quantity, observed, std_error.

    `one + other` has the networks of both: means over networks, with jackknife standard errors.
    """

    __slots__ = ("networks",)

    def __init__(self, networks: Sequence[Mapping[str, Moments]]) -> None:
        self.networks = list(networks)
        super().__init__(_rows(self.networks))

    def __add__(self, other: Observed) -> Observed:
        return Observed([*self.networks, *other.networks])

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.networks,)


def _quantities(moments: Moments) -> dict[str, float]:
    """The quantities that are compared, from mean moments."""
    found: dict[str, float] = {}
    if "square" in moments:
        mean = moments["mean"]
        found["mean"] = mean
        found["variance"] = variance = max(moments["square"] - mean**2, 0.0)
        if "cross" in moments and variance > 0.0:
            found["token_correlation"] = (moments["cross"] - mean**2) / variance
    if "grad_square" in moments:
        found["grad_variance"] = square = moments["grad_square"]
        if "grad_cross" in moments and square > 0.0:
            found["grad_token_correlation"] = moments["grad_cross"] / square
    if "weight" in moments:
        found["weight_grad_second_moment"] = moments["weight"]
    return found


def _rows(networks: Sequence[Mapping[str, Moments]]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    count = len(networks)
    for site in networks[0] if networks else ():
        each = [network[site] for network in networks]
        total = {name: math.fsum(moments[name] for moments in each) for name in each[0]}
        of_all = _quantities({name: value / count for name, value in total.items()})
        without = [
            _quantities({name: (value - moments[name]) / (count - 1) for name, value in total.items()})
            for moments in (each if count > 1 else ())
        ]
        for quantity, observed in of_all.items():
            left = [one[quantity] for one in without if quantity in one]
            error = None
            if len(left) == count > 1:
                centre = math.fsum(left) / count
                error = math.sqrt((count - 1) / count * math.fsum((value - centre) ** 2 for value in left))
            rows.append({"site": site, "quantity": quantity, "observed": observed, "std_error": error})
    return rows


def sums_of(signal: Tensor, mask: Tensor | None = None) -> Tensor:
    """The counts of entries and of pairs of tokens, and the sums of entries, squares and products of pairs.

    Args:
        signal: Shape (batch, tokens, features).
        mask: Shape (batch, tokens): zero for tokens to leave out. One of another shape is not used.
    """
    signal = wide(signal)
    if mask is not None and mask.shape == signal.shape[:2]:
        here = mask.to(signal)
        signal = signal * here[..., None]
    else:
        here = torch.ones_like(signal[..., 0])
    tokens = here.sum(1)
    squares = signal.square().sum()
    return torch.stack(
        [
            tokens.sum() * signal.shape[-1],
            (tokens * (tokens - 1)).sum() * signal.shape[-1],
            signal.sum(),
            squares,
            signal.sum(1).square().sum() - squares,
        ]
    )


def moments_of(signal: list[float], gradient: list[float] | None) -> Moments:
    """Means from the sums of a signal and of its gradient."""
    entries, pairs, total, squares, products = signal
    found = {"mean": total / entries, "square": squares / entries}
    if pairs > 0:
        found["cross"] = products / pairs
    if gradient is not None:
        entries, pairs, _, squares, products = gradient
        found["grad_square"] = squares / entries
        if pairs > 0:
            found["grad_cross"] = products / pairs
    return found


def wide(signal: Tensor) -> Tensor:
    """The signal in f64, or in f32 if the device has no f64."""
    return signal.detach().to(torch.float32 if signal.device.type == "mps" else torch.float64)

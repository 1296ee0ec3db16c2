"""Elementwise functions: activations, and multiplication and addition of constants."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from .._network._components import ACTIVATIONS
from ._components import Activation, Gains, Positions, Scale, Shift
from ._constants import operation
from ._layout import Signal
from ._step import COMPUTED, EXACT, REDUCED, Found, Step, close

_TOLERANCE = 5e-5
_OTHER = ("identity", "leaky_relu")


def affine(step: Step) -> Found | None:
    """y = g x + b, entry by entry: a scale or gains, then a shift or positions."""
    x = step.random()
    y, shift, one = step.run(x), step.run(torch.zeros(step.shape)), step.run(torch.ones(step.shape))
    if not isinstance(y, Tensor) or y.shape != step.shape or not y.is_floating_point():
        return None
    if not bool(torch.isfinite(shift).all() & torch.isfinite(y).all()):
        return None
    gain, large = one - shift, step.random(100.0, seed=1)
    if not close(y - shift, gain * x) or not close(step.run(large) - shift, gain * large):
        return None
    component, entries = step.signal.component, step.signal.entries
    feature, is_exact = entries % component.width, True

    def by_feature(value: Tensor) -> Tensor:
        return torch.zeros(component.width, dtype=value.dtype).index_copy_(0, feature.flatten(), value.flatten())

    # Numbers close to one, such as those of a fresh BatchNorm, are factors, but not rounding errors of large shifts.
    rounding = min(1e-6 * (1.0 + float(shift.abs().max() / gain.abs().max().clamp_min(1e-30))), 1e-4)
    if not close(gain, torch.ones_like(gain), rounding):
        gains = by_feature(gain)
        if not close(gains[feature], gain):
            return None
        weight, is_exact = step.weight(gains, by_feature, rounding)
        factor = float(gains[0])
        is_uniform = close(gains, gains[:1].expand_as(gains), 1e-6)
        if is_uniform and (not is_exact or step.scalar(factor) is not None or weight.origin is None):
            component = step.make(Scale, component, factor=factor, parameter=step.scalar(factor))
            is_exact = True
        else:
            component = step.make(Gains, component, gain=weight)
    if float(shift.abs().max()) > 0:
        vector = by_feature(shift)
        if close(vector[feature], shift):
            weight, found = step.weight(vector, by_feature)
            if weight.origin is None and close(vector, torch.ones_like(vector), 1e-6):
                component, found = step.make(Activation, component, function="plus_one"), True
            else:
                component = step.make(Shift, component, vector=weight)
        else:
            length = step.layout.length(component)

            def table(value: Tensor) -> Tensor:
                flat = torch.zeros(component.rows * component.width, dtype=value.dtype)
                return flat.index_copy_(0, entries.flatten(), value.flatten()).reshape(component.rows, -1)[:length]

            rows = table(shift)
            if not close(rows[entries // component.width % length, feature], shift):
                return None
            weight, found = step.weight(rows, table)
            name = weight.name if weight.origin is None else weight.origin.parameter
            weight = type(weight)(weight.value, name, weight.origin)
            component = step.make(Positions, component, table=weight, sinusoid=_sinusoid(rows))
        is_exact = is_exact and found
    return Found(Signal(component, entries), EXACT if is_exact else COMPUTED)


def activation(step: Step) -> Found | None:
    """φ(x) or c φ(x) of one of the activations of stacks."""
    if any(operation(node) == "running_batch_norm" for node in step.nodes):
        # Its factor may be too close to one to see here.
        return None
    x, large = step.random(seed=2), step.random(4.0, seed=3)
    y, y_large = step.run(x), step.run(large)
    if not isinstance(y, Tensor) or not y.is_floating_point():
        return None
    candidates: dict[str, tuple[Callable[..., Tensor], dict[str, float]]]
    candidates = {name: (function, {}) for name, function in ACTIVATIONS.items() if name not in _OTHER}
    slope = float(f"{-float(step.run(torch.full(step.shape, -1.0)).flatten()[0]):.6g}")
    candidates["leaky_relu"] = (ACTIVATIONS["leaky_relu"], {"slope": slope})
    few = [torch.cat([one.flatten()[:512], other.flatten()[:512]]) for one, other in ((x, large), (y, y_large))]
    fits = {name: _fit(few[0], few[1], *candidate) for name, candidate in candidates.items()}
    # GELU and its approximation differ by 5e-4.
    name, (_, factor) = min(fits.items(), key=lambda fit: fit[1][0])
    function, arguments = candidates[name]
    if not all(close(each, factor * function(given, **arguments), _TOLERANCE) for given, each in ((x, y), (large, y_large))):
        return None
    component = step.make(Activation, step.signal.component, function={name: arguments} if arguments else name)
    if factor != 1.0:
        component = step.make(Scale, component, factor=factor, parameter=step.scalar(factor))
    return Found(Signal(component, step.signal.entries), EXACT if factor == 1.0 else REDUCED)


def _fit(x: Tensor, y: Tensor, function: Callable[..., Tensor], arguments: dict[str, float]) -> tuple[float, float]:
    """The largest difference of y and c φ(x), and c, which is 1 if it is close to that."""
    phi = function(x, **arguments)
    square = float(phi.square().sum())
    factor = float((y * phi).sum()) / square if square else 0.0
    factor = 1.0 if abs(factor - 1.0) < 1e-4 else factor
    error = float((y - factor * phi).abs().max())
    return (error if factor and math.isfinite(error) else math.inf), factor


def _sinusoid(table: Tensor) -> float | None:
    """The amplitude of the sinusoids of Vaswani et al. 2017, if rows of the table are those, in whatever order of features."""
    length, width = table.shape
    if length < 4 or width % 2:
        return None
    rows = table.double()
    frequencies = 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angles = torch.arange(length, dtype=torch.float64)[:, None] * frequencies
    usual = torch.cat([angles.sin(), angles.cos()], dim=-1)
    amplitude = float((rows.square().sum() / usual.square().sum()).sqrt())
    expected = amplitude**2 * usual @ usual.T
    is_usual = float((rows @ rows.T - expected).abs().max()) < 0.05 * float(expected.abs().max())
    return amplitude if is_usual else None

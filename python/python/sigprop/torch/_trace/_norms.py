"""Norms over features, by their values at several magnitudes."""

from __future__ import annotations

import torch
from torch import Tensor

from ._components import Component, Norm, Rotary, Scale, Weight
from ._constants import operation
from ._layout import Signal
from ._step import COMPUTED, REDUCED, Found, Step, close

# Magnitudes at which values agree: constants that are added before look like an ε to large inputs.
_SIZES = (1.0, 0.03, 1e-3)


def norm(step: Step) -> Found | None:
    """LayerNorm, RMSNorm or L2 norm over the last axis, with gains and biases."""
    features = step.shape[-1]
    if features < 2 or step.signal.entries.numel() < 3 * features:
        return None
    x = step.random(100.0, seed=4)
    y = step.run(x)
    if not isinstance(y, Tensor) or not bool(torch.isfinite(y).all()):
        return None
    for kind in ("rmsnorm", "layernorm"):
        unit = _normalised(kind, x, 0.0).reshape(-1, features)
        values = y.reshape(-1, features)
        unit_mean, mean = unit.mean(0), values.mean(0)
        gain = ((unit - unit_mean) * (values - mean)).sum(0) / (unit - unit_mean).square().sum(0)
        bias = mean - gain * unit_mean
        if not close(gain * unit + bias, values, 1e-3):
            continue
        if float(bias.abs().max()) < 1e-4 * float(gain.abs().max()):
            bias = torch.zeros_like(bias)
        eps = _epsilon(step, kind, gain, bias)
        if all(_agrees(step, kind, eps, gain, bias, size) for size in _SIZES):
            return _found(step, kind, eps, gain, bias)
    return None


def _centred(kind: str, x: Tensor) -> Tensor:
    return x if kind == "rmsnorm" else x - x.mean(-1, keepdim=True)


def _normalised(kind: str, x: Tensor, eps: float) -> Tensor:
    centred = _centred(kind, x)
    return centred / (centred.square().mean(-1, keepdim=True) + eps).sqrt()


def _agrees(step: Step, kind: str, eps: float, gain: Tensor, bias: Tensor, size: float) -> bool:
    x = step.random(size, seed=5)
    return close(gain * _normalised(kind, x, eps) + bias, step.run(x), 2e-2 if size < 0.01 else 3e-3)


def _epsilon(step: Step, kind: str, gain: Tensor, bias: Tensor) -> float:
    """ε by the argument of the operation, or else by values so small that it matters."""
    whole = [node for node in step.nodes if operation(node) in ("layer_norm", "rms_norm")]
    if len(whole) == 1:
        place = 4 if operation(whole[0]) == "layer_norm" else 3
        given = whole[0].args[place] if len(whole[0].args) > place else whole[0].kwargs.get("eps")
        default = 1e-5 if place == 4 else torch.finfo(torch.float32).eps
        return float(given) if isinstance(given, (int, float)) else default
    keep = gain.abs() > 0.1 * gain.abs().max()
    for size in (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6):
        centred = _centred(kind, step.random(size, seed=6))
        variance = centred.square().mean(-1).flatten()
        ratio = ((step.run(step.random(size, seed=6)) - bias) / gain)[..., keep] / centred[..., keep]
        added = 1.0 / ratio.reshape(len(variance), -1).double().median(-1).values.square() - variance
        eps = float(added.median())
        if eps > 0.05 * float(variance.median()):
            return float(f"{eps:.2g}")
    return 0.0


def _found(step: Step, kind: str, eps: float, gain: Tensor, bias: Tensor) -> Found:
    features = step.shape[-1]
    signal = step.layout.aligned(step.signal)

    def by_feature(value: Tensor) -> Tensor:
        return value.reshape(-1, features)[0]

    weights: list[Weight | None] = []
    is_exact, factor = True, 1.0
    for value, neutral in ((gain, 1.0), (bias, 0.0)):
        weight, found = step.weight(value, by_feature)
        is_neutral = bool(((value - neutral).abs() < 1e-4).all())
        if not found and neutral and not is_neutral and close(value, value.mean().expand_as(value), 1e-3):
            # Gains of a parameter are those times a scale.
            is_exact = not any(node in step.constants.parameters for node in step.constant_nodes)
            factor, is_neutral = float(value.mean()), True
        is_trained = weight.name.split("+")[0] in step.constants.captured.parameters or weight.origin is not None
        weights.append(weight if (found and is_trained) or not is_neutral else None)
        is_exact = is_exact and (found or is_neutral)
    groups = signal.component.width // features
    before = signal.component
    # A norm without gains does not depend on rotations: it is written before them, as in stacks of configs.
    is_plain = kind == "rmsnorm" and weights == [None, None]
    rotary = before if is_plain and isinstance(before, Rotary) and before.d_head == features else None
    source = before if rotary is None else rotary.inputs[0]
    component: Component = step.make(Norm, source, kind=kind, eps=eps, gain=weights[0], bias=weights[1], groups=groups)
    if rotary is not None:
        rotation = {"d_head": rotary.d_head, "frequencies": rotary.frequencies, "order": rotary.order}
        component = step.make(Rotary, component, **rotation)
    if factor != 1.0:
        component = step.make(Scale, component, factor=factor, parameter=step.scalar(factor))
    return Found(Signal(component, signal.entries), REDUCED if is_exact else COMPUTED)

"""Rotary position embeddings, by the matrices that they multiply tokens by."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ._components import Refusal, Rotary, Scale
from ._layout import Signal
from ._step import EXACT, Found, Step, close

_TOLERANCE = 1e-3


def rotary(step: Step) -> Found | None:
    """A rotation of pairs of features of every head, by angles that grow with the position."""
    width = step.shape[-1]
    x, z = step.random(seed=7), step.random(seed=8)
    y = step.run(x)
    if width % 2 or not isinstance(y, Tensor) or not close(step.run(x + z), y + step.run(z), _TOLERANCE):
        return None
    signal = step.layout.aligned(step.signal)
    length = step.layout.length(signal.component)
    position = (signal.entries[..., 0] // signal.component.width).flatten() % length
    if length < 3:
        return None
    maps = _maps(step, position, length, width)
    if not close(torch.einsum("nij,nj->ni", maps[position], x.reshape(-1, width)), y.reshape(-1, width), _TOLERANCE):
        return None
    size = float(maps[0].square().sum() / width)
    if size <= 0 or not torch.allclose(maps.transpose(1, 2) @ maps, size * torch.eye(width), atol=_TOLERANCE * size):
        return None
    maps = maps.double() / math.sqrt(size)
    rotation = maps[0].T @ maps[1]
    last = length - 1
    if not torch.allclose(maps[0] @ torch.linalg.matrix_power(rotation, last), maps[last], atol=_TOLERANCE * length):
        text = "a rotation by angles that are not position · frequency, such as rotary positions over two dimensions"
        raise Refusal(f"{text}; expected a frequency per pair of features, and all tokens rotated")
    # Features may be in another order afterwards.
    moved = maps[0].argmax(dim=1)
    is_order = torch.allclose(maps[0], torch.eye(width, dtype=maps.dtype)[moved], atol=_TOLERANCE)
    entries = signal.entries[..., moved] if is_order else signal.entries
    frequencies, order = _planes(rotation)
    component = step.make(Rotary, signal.component, d_head=width, frequencies=frequencies, order=order)
    if abs(size - 1.0) > 1e-4:
        component = step.make(Scale, component, factor=math.sqrt(size))
    return Found(Signal(component, entries), EXACT)


def _maps(step: Step, position: Tensor, length: int, width: int) -> Tensor:
    """The matrix of every position, if it is the same in all heads and sequences: these are sent a unit vector each at once."""
    order = position.argsort(stable=True)
    counts = torch.bincount(position, minlength=length)
    first = counts.cumsum(0) - counts
    number = torch.empty_like(position)
    number[order] = torch.arange(len(position)) - first[position[order]]
    together = int(counts.min())
    maps = torch.zeros(length, width, width)
    for start in range(0, width, together):
        feature = start + number
        has_one = (number < together) & (feature < width)
        unit = torch.zeros(len(position), width)
        unit[has_one, feature[has_one]] = 1.0
        maps[position[has_one], :, feature[has_one]] = step.run(unit.reshape(step.shape)).reshape(-1, width)[has_one]
    return maps


def _planes(rotation: Tensor) -> tuple[list[float], list[int]]:
    """Angles of a rotation of pairs of features, and the features: the first of every pair, the second, those that stay."""
    planes, fixed = [], []
    left = list(range(len(rotation)))
    while left:
        i = left.pop(0)
        j = max(left, key=lambda k: abs(float(rotation[k, i])), default=i)
        sine = float(rotation[j, i])
        if j == i or abs(sine) < 1e-12:
            fixed.append(i)
            continue
        left.remove(j)
        angle = math.atan2(abs(sine), float(rotation[i, i]))
        planes.append((angle, i, j) if sine > 0 else (angle, j, i))
    planes.sort(key=lambda plane: -plane[0])
    return [angle for angle, _, _ in planes], [i for _, i, _ in planes] + [j for _, _, j in planes] + fixed

"""Weights of experts, as parts of parameters that have those of all experts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import torch
from torch import Tensor

from ._components import Origin, Weight
from ._constants import name_of


@dataclass(frozen=True)
class Experts:
    """W_out (φ(W_gate x) ∘ W_up x), or W_out φ(W_up x) without a gate: weights of shape (experts, fan_out, fan_in)."""

    gate: Weight | None
    up: Weight
    down: Weight


def arrangements(stacked: dict[str, Tensor], fan_in: int, fan_out: int) -> Iterator[Experts]:
    """All ways in which parameters, in the order in which they are read, can be the weights of experts."""
    if len(stacked) not in (2, 3):
        return
    for parts in product(*(_oriented(name, value.float()) for name, value in stacked.items())):
        *inner, down = parts
        hidden = down.value.shape[2]
        if any(part.value.shape[2] != fan_in for part in inner) or down.value.shape[1] != fan_out:
            continue
        sizes = [part.value.shape[1] for part in inner]
        if sizes == [hidden]:
            yield Experts(None, inner[0], down)
        elif sizes == [hidden, hidden]:
            yield from (Experts(inner[0], inner[1], down), Experts(inner[1], inner[0], down))
        elif sizes == [2 * hidden]:
            rows = torch.arange(2 * hidden)
            for one, other in ((rows[:hidden], rows[hidden:]), (rows[::2], rows[1::2])):
                gate, up = _rows(inner[0], one), _rows(inner[0], other)
                yield from (Experts(gate, up, down), Experts(up, gate, down))


def _oriented(name: str, value: Tensor) -> list[Weight]:
    """Weights that a parameter is, shape (experts, fan_out, fan_in), if the axis of the outputs is its second or its last."""
    return [Weight(value, name, Origin(name, 1)), Weight(value.transpose(1, 2), name, Origin(name, 2))]


def _rows(weight: Weight, rows: Tensor) -> Weight:
    """A part of the outputs of all experts."""
    assert weight.origin is not None
    origin = replace(weight.origin, indices=tuple(rows.tolist()))
    return Weight(weight.value[:, rows], name_of(origin), origin)

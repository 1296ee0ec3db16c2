"""A step through an island, which rules try to recognise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from ._components import Component, Weight
from ._constants import Constants
from ._layout import Layout, Signal


# Ranks of steps, those to try first.
EXACT = 0
# A norm, in which scales before it seem to be part of its ε, or a function times a scale: other steps come first.
REDUCED = 1
# Some of the weights are no entries of constants: shorter steps may have weights that are.
COMPUTED = 2


@dataclass(frozen=True)
class Found:
    """A signal that was recognised, and the rank of the step."""

    signal: Signal
    rank: int


@dataclass(frozen=True)
class Step:
    """The operations between two nodes of equal shape."""

    layout: Layout
    # The signal before the step.
    signal: Signal
    # The value after the step for one before.
    run: Callable[[Tensor], Any]
    nodes: list[fx.Node]
    # Constants that the operations read.
    constant_nodes: list[fx.Node]
    constants: Constants
    # The fields of a component that say where it is.
    where: dict[str, str]

    @property
    def shape(self) -> torch.Size:
        return self.signal.entries.shape

    def random(self, size: float = 1.0, seed: int = 0) -> Tensor:
        """A test tensor, shape of the node before the step."""
        return size * torch.randn(self.shape, generator=torch.Generator().manual_seed(seed))

    def make(self, kind: type[Component], before: Component, /, **values: Any) -> Component:
        """A component with as many rows and features as the one before."""
        return self.layout.make(kind, inputs=[before], width=before.width, rows=before.rows, **self.where, **values)

    def weight(self, value: Tensor, arrange: Callable[[Tensor], Tensor], tolerance: float = 1e-4) -> tuple[Weight, bool]:
        """The weight with this value, and true if it is one of the constants, up to a tolerance.

        `arrange` brings a constant of the shape of the node into that of the value.
        """

        def arranged(constant: Tensor) -> Tensor:
            return arrange(torch.broadcast_to(constant, self.shape))

        for node in self.constant_nodes:
            constant = self.constants.values[node]
            if not isinstance(constant, Tensor) or not constant.is_floating_point() or not _fits(constant.shape, self.shape):
                continue
            if close(arranged(constant), value, tolerance):
                return self.constants.weight(node, arranged), True
        names = dict.fromkeys(name for node in self.constant_nodes for name in self.constants.parameters.get(node, ()))
        return Weight(value, "+".join(names) or self.where["path"] + ".constant", None), False

    def scalar(self, value: float) -> str | None:
        """The name of the parameter of one entry that has this value."""
        for node in self.constant_nodes:
            constant = self.constants.values[node]
            if node in self.constants.parameters and isinstance(constant, Tensor) and constant.numel() == 1:
                if abs(float(constant) - value) <= 1e-5 * abs(value):
                    return self.constants.parameters[node][0]
        return None


def _fits(shape: torch.Size, whole: torch.Size) -> bool:
    return len(shape) <= len(whole) and all(x in (1, y) for x, y in zip(reversed(shape), reversed(whole)))


def close(x: Tensor, y: Tensor, tolerance: float = 1e-4) -> bool:
    """True if two tensors are equal up to a tolerance."""
    return x.shape == y.shape and torch.allclose(x, y, rtol=tolerance, atol=tolerance * float(y.abs().max() + 1e-12))


def recognised() -> str:
    """Operations that are recognised, in words."""
    return "activations, norms over features, scales, gains, biases, positions or rotary embeddings"

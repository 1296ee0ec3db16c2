"""Signals and gradients at the sites of the streams, from a run of the captured graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, fx, nn

from ._read import Read
from ._run import Run, first
from ._structure import Structure


def state_of(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name, on the CPU in at least single precision. Parameters require gradients, tied ones once."""
    once: dict[Tensor, Tensor] = {}
    found: dict[str, Tensor] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        if parameter not in once:
            once[parameter] = _on_cpu(parameter).requires_grad_(parameter.is_floating_point())
        found[name] = once[parameter]
    for name, buffer in module.named_buffers(remove_duplicate=False):
        # Norms write to buffers.
        found[name] = _on_cpu(buffer).clone()
    return found


def _on_cpu(value: Tensor) -> Tensor:
    value = value.detach().cpu()
    return value.float() if value.is_floating_point() and value.dtype != torch.float64 else value


@dataclass
class Measured:
    """A run of one network. Signals and gradients have the shape (sequences, tokens, features)."""

    # By site, those of the streams.
    signals: dict[str, Tensor] = field(default_factory=dict)
    gradients: dict[str, Tensor] = field(default_factory=dict)


def measured(
    read: Read, found: Structure, state: Mapping[str, Tensor], generator: torch.Generator | None, inputs: Sequence[Tensor] = ()
) -> Measured:
    """Runs the graph with these parameters and buffers, and sends N(0, 1) gradients back from the end.

    Args:
        state: Parameters and buffers by name. The gradients of parameters are in their `grad` afterwards.
        inputs: Tensors with the shapes of the example inputs, to run with in their place.
    """
    run = _Measurement(read, found)
    run.run(state, generator, inputs)
    return run.measured


class _Measurement:
    def __init__(self, read: Read, found: Structure) -> None:
        self._read = read
        places = {site: read.places.get(found.sites[site]) for site in found.stream_sites}
        self._sites = {site: first(place) for site, place in places.items() if place is not None}
        self._end_node = first(read.places[found.end]).node
        self._end: Tensor | None = None
        self.measured = Measured()

    def run(self, state: Mapping[str, Tensor], generator: torch.Generator | None, inputs: Sequence[Tensor]) -> None:
        nodes = {place.node for place in self._sites.values()} | {self._end_node}
        with torch.enable_grad():
            Run(self._read.captured, nodes, self._at, is_wide=False).with_state(state, inputs)
            assert self._end is not None
            self._end.backward(torch.randn(self._end.shape, generator=generator))  # type: ignore[no-untyped-call]

    def _at(self, node: fx.Node, value: Tensor) -> Tensor:
        if not value.requires_grad:
            # A copy, because a leaf cannot be written to.
            value = value.detach().requires_grad_().clone()
        for site, place in self._sites.items():
            if place.node is node:
                self._measure(site, value, place.order)
        if node is self._end_node:
            self._end = value
        return value

    def _measure(self, site: str, value: Tensor, order: Tensor) -> None:
        def arranged(of: Tensor) -> Tensor:
            return of.detach().flatten()[order].reshape(self._read.sequences, -1, order.shape[1])

        def at_gradient(gradient: Tensor) -> None:
            self.measured.gradients[site] = arranged(gradient)

        self.measured.signals[site] = arranged(value)
        value.register_hook(at_gradient)  # type: ignore[no-untyped-call]
